"""Times of a text that became floats: none of them another than the one that is written."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.readers.ids import EXACT
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def check_digits(numbers: np.ndarray, text: pd.Series, where: str, column: object, place: Callable[[int], str]) -> None:
    """Check that floats from 2^53 on are the numbers as they are written in full, without an exponent.

    Args:
        numbers: (E,) of the column; integers pass.
        text: (E,) as they are written.
        where: what messages begin with.
        column: its name, for messages.
        place: from a row to how messages call it.

    Raises:
        DataError: float64 holds a time as another number, so that neighbours could become one; row and value are named.
    """
    if numbers.dtype.kind != "f":
        return
    large = np.flatnonzero(np.isfinite(numbers) & (np.abs(numbers) >= EXACT))
    words = text.iloc[large].str.strip()
    full = words.str.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]*)?").to_numpy(bool)
    for row, word in zip(large[full].tolist(), words[full], strict=True):  # few files: nanoseconds beside fractions
        if Decimal(word) != Decimal(float(numbers[row])):
            raise DataError(
                f"{where}{word!r} in column {column!r}, {place(row)}, is beyond 2^53, where times beside fractions (or "
                f"beyond 64 bits) lose digits and neighbours become one: it would be read as {numbers[row]:.0f}; "
                "write all times as whole numbers, or from a nearer start"
            )
