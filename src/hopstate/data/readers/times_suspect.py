"""Numbers as times that are most likely meant otherwise: days written as 20240131, seconds beside milliseconds."""

from __future__ import annotations

import numpy as np

from hopstate.data.readers.tables import Table
from hopstate.errors import warn

_YEARS = (1900, 2100)
_CLOCKS = {1: "20240131", 10**4: "202401311530", 10**6: "20240131153059"}  # what stands behind the day, in digits
_EPOCH = (6.3e8, 4.2e9)  # seconds since 1970 from 1990 to 2103
_UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")


def suspect_numbers(table: Table, column: str, t: np.ndarray) -> None:
    """Warn where the times of a table are whole days as they are written, or counted in several units.

    Args:
        table: where they stand.
        column: of the times.
        t: (E,) finite numbers, in the table's order; they are read as they are all the same.
    """
    least, most = float(t.min()), float(t.max())
    for behind in _CLOCKS:
        if _YEARS[0] * 10000 * behind <= least and most < (_YEARS[1] + 1) * 10000 * behind and _are_days(t, behind):
            _warn_of_days(table, column, t, behind)
            return
    if most >= 500 * _EPOCH[0] and most >= 100 * least:
        _warn_of_units(table, column, t)


def _are_days(t: np.ndarray, behind: int) -> bool:
    """Return whether all numbers are a year, a month, a day and, behind them, a time of day."""
    if not np.array_equal(t, np.floor(t)):
        return False
    whole = t.astype(np.int64)
    days, clock = np.divmod(whole, behind)
    month, day = days // 100 % 100, days % 100
    good = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    if behind > 1:
        hour = clock // (behind // 100)
        good &= (hour < 24) & (clock % 100 < 60) & (clock // (behind // 10**4) % 100 < 60)
    return bool(good.all())


def _warn_of_days(table: Table, column: str, t: np.ndarray, behind: int) -> None:
    text = str(int(t[0]))
    date = f"{text[:4]}-{text[4:6]}-{text[6:8]}" + "".join(
        sign + text[at : at + 2] for sign, at in zip("T::", range(8, len(text), 2), strict=False)
    )
    warn(
        f"{table.path}: all {len(t):,} numbers in column {column!r} look like days, {text} in {table.place(0)}; they "
        f"are read as plain numbers, whose distances are no durations: write them as dates, {date}",
        stacklevel=6,
    )


def _warn_of_units(table: Table, column: str, t: np.ndarray) -> None:
    """Warn where nearly all times lie in this age (1990 to 2103), but counted in several units."""
    edges = np.concatenate([np.array(_EPOCH) * 1000.0**k for k in range(len(_UNITS))])
    band = np.searchsorted(edges, t, side="right")  # 1, 3, 5, 7: within; even: outside
    counts = np.bincount(band, minlength=2 * len(_UNITS) + 1)
    inside = [k for k in range(len(_UNITS)) if counts[2 * k + 1]]
    if len(inside) < 2 or counts[1::2].sum() < 0.99 * len(t):
        return
    told = []
    for k in inside:
        row = int(np.argmax(band == 2 * k + 1))
        told.append(f"{counts[2 * k + 1]:,} in {_UNITS[k]} (the first, {t[row]:.15g}, in {table.place(row)})")
    warn(
        f"{table.path}: the numbers in column {column!r} seem to be counted in several units: {', '.join(told)}; they "
        f"are read as they stand: bring them to one unit and name it with --read.time_unit (time_unit in Python)",
        stacklevel=6,
    )
