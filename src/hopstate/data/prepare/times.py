"""Times of a piece: numbers, or dates as nanoseconds since 1970; none that is missing or beyond what clocks count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.event_build import UNITS
from hopstate.data.prepare.layout import Layout
from hopstate.data.readers.ids import EXACT, MISSING
from hopstate.data.readers.times import check_cut
from hopstate.data.validate import beyond_clock
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_ABSENT = [*{word.lower() for word in MISSING}, "nat"]


def times_of(column: pa.ChunkedArray, name: str, layout: Layout) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return times (n,) as int64 or float64, where one cannot be used, and facts: what they are, and in which unit.

    Args:
        column: (n,) numbers, dates, or texts of either.
        name: of the column, for messages.
        layout: of the file, for messages.

    Raises:
        DataError: floats that do not hold the numbers that are written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_timestamp(column.type) or types.is_date(column.type):
        stamps = pc.cast(pc.cast(column, pa.timestamp(_unit(column.type))), pa.int64())
        return _dates(pc.fill_null(stamps, 0).to_numpy(), column.is_null().to_numpy(), _unit(column.type))
    absent, written = np.asarray(column.is_null()), None
    if types.is_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        absent |= np.asarray(pc.fill_null(pc.is_in(pc.utf8_lower(text), pa.array(_ABSENT)), True))
        text = pc.if_else(pa.array(absent), pa.scalar(None, pa.string()), text)
        written = text.to_pandas
        for kind in (pa.int64(), pa.float64()):
            try:
                column = pc.cast(text, kind)
                break
            except pa.ArrowInvalid:
                column = None
        if column is None:
            return _parsed(text.to_pandas(), absent, name, layout)
    if types.is_integer(column.type):
        t = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy()
    else:
        t = pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
        if written is not None:
            check_cut(t, written, (f"{layout.path}: ", name, lambda row: f"cell {row} of a piece"))
    return _numbers(t, absent, name, layout)


def _numbers(
    t: np.ndarray, absent: np.ndarray, name: str, layout: Layout
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    bad = absent | beyond_clock(t) | ~np.isfinite(t)
    kind = "integer" if t.dtype.kind == "i" else "number"
    largest = float(np.abs(t[~bad].astype(np.float64)).max(initial=0))
    if kind == "number" and largest >= EXACT and layout.text is not None:
        raise DataError(
            f"{layout.path}: times in column {name!r} beyond 2^53 stand beside fractions, where neighbours become one; "
            "write all times as whole numbers, or from a nearer start"
        )
    return t, bad, {"time": kind if (~bad).any() else "", "largest": largest}


def _parsed(
    text: pd.Series, absent: np.ndarray, name: str, layout: Layout
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return times of texts some of which are no numbers: what most of them are counts."""
    import pandas as pd

    known = text[~absent]
    numbers = pd.to_numeric(known, errors="coerce")
    dates = pd.to_datetime(known, utc=True, format="ISO8601", errors="coerce")
    if numbers.notna().sum() > dates.notna().sum():
        values = np.full(len(text), np.nan)
        values[~absent] = numbers.to_numpy(np.float64, na_value=np.nan)
        if np.array_equal(values[np.isfinite(values)], np.floor(values[np.isfinite(values)])):
            whole = known[numbers.notna()].str.fullmatch(r"[+-]?[0-9]{1,18}").all()
            if whole:
                exact, lost = np.zeros(len(text), np.int64), absent | ~np.isfinite(values)
                exact[~lost] = text[~lost].astype(np.int64)
                return _numbers(exact, lost, name, layout)
        return _numbers(values, absent | np.isnan(values), name, layout)
    t, lost = np.zeros(len(text), np.int64), absent.copy()
    plain = dates.dt.tz_localize(None).to_numpy()
    unit = np.datetime_data(plain.dtype)[0]
    lost[~absent] = np.isnat(plain)
    t[~absent] = np.where(np.isnat(plain), 0, plain.astype(np.int64))
    return _dates(t, lost, unit)


def _unit(kind: pa.DataType) -> str:
    import pyarrow.types as types

    return kind.unit if types.is_timestamp(kind) else ("s" if str(kind) == "date32[day]" else "ms")


def _dates(count: np.ndarray, absent: np.ndarray, unit: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    limit = (np.iinfo(np.int64).max - 1) // UNITS[unit]
    bad = absent | (count > limit) | (count < -limit)
    t = np.where(bad, 0, count) * UNITS[unit]
    exact = [name for name, size in UNITS.items() if not (t[~bad] % size).any()]
    return t, bad, {"time": "date" if (~bad).any() else "", "unit": exact[0]}
