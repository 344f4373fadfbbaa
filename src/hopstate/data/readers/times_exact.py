"""Times of a text that became floats: none of them another than the one that is written, or was before a rounding."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.readers.ids import EXACT
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Place = Callable[[int], str]


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


def check_cut(numbers: np.ndarray, text: Callable[[], pd.Series | None], said: tuple[str, object, Place]) -> None:
    """Check that no time has an exponent that stands for digits which a spreadsheet, or %g, has cut off.

    Spreadsheets write 1.58E+12 of what they cut. R writes so what needs no more digits: 1e+05 among times in full is as
    good as they are; where most times are of six digits at most, they were rounded.

    Args:
        numbers: (E,) of the column.
        text: gives (E,) as they are written, None where there is no text; called where a number ends in a nought.
        said: what messages begin with, the column's name, and from a row to how messages call it.

    Raises:
        DataError: there is one; row and value are named.
    """
    if numbers.dtype.kind != "f":
        return
    finite = np.where(np.isfinite(numbers), numbers, 0)
    rows = np.flatnonzero((finite != 0) & (np.fmod(finite, 10) == 0))
    found = text() if len(rows) else None
    if found is None:
        return
    words = found.iloc[rows].astype(str).str.strip()
    parts = words.str.extract(r"^[+-]?([0-9]+)(?:\.([0-9]*))?([eE])\+([0-9]{2,})$")
    behind = parts[1].fillna("").str.len()
    cut = (parts[3].astype(float) > behind).to_numpy(bool)
    sheet = (parts[2] == "E").to_numpy(bool)
    short = cut & (parts[0].str.len() + behind <= 6).to_numpy(bool)
    cut = cut & (sheet | (short & (2 * int(short.sum()) > len(numbers))))
    if cut.any():
        row = int(rows[int(np.argmax(cut))])
        where, column, place = said
        raise DataError(
            f"{where}{found.iloc[row].strip()} in column {column!r}, {place(row)}, has an exponent in place of its "
            f"last digits ({int(cut.sum()):,} rows in all), by which times become one; write them in full (a "
            "spreadsheet: format the column as a number without decimals, and save again)"
        )
