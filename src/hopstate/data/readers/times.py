"""Event times of tables: numbers or dates; an unreadable time is an error that names its row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hopstate.data.dates import (
    AMBIGUOUS_DATE,
    DATE_RANGE,
    DAY_OR_MONTH,
    NANOSECONDS,
    UNITS,
    iso_dates,
    out_of_range,
    out_of_range_reason,
    plain_dates,
    zone_of,
)
from hopstate.data.readers.local import date_forms
from hopstate.data.readers.tables import EXACT, MISSING, Table
from hopstate.errors import ConfigError, DataError, FormatError, warn

if TYPE_CHECKING:
    import pandas as pd

ABSENT = {word.lower() for word in MISSING} | {"nat"}  # texts that stand for no time, in lower case
_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[zZ]|[+-]\d\d:?\d\d)?"
_OFFSET = r"[zZ]|UTC|[+-]\d\d:?\d\d"
_ZONE = r"(?:[zZ]|[+-]\d\d:?\d\d)$"
_DROP = "Give it a time, or leave such rows out with --read.drop_missing_time true."
_DAYS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # digits → form of a day written as one number
_SINCE_1970 = (631_152_000, 4_102_444_800)  # seconds from 1990 to 2100
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def parse_time_column(
    table: Table, column: str, unit: str, drop_missing: bool, form: str = ""
) -> tuple[Table, np.ndarray, str, tuple[str, ...]]:
    """Return the rows with a time, the times, their unit ("" if unknown), and notes.

    Dates are counted in the given unit, otherwise in the coarsest exact one of s, ms, us and ns. Dates without a zone
    are UTC. Their form is as strptime has it, "" for ISO dates. Rows without a usable time are dropped, or an error.
    """
    if not isinstance(drop_missing, bool):
        raise ConfigError(f"read.drop_missing_time must be true or false; got {drop_missing!r}")
    values, times = table.frame[column], times_of(table, column, form)
    absent, unusable = times.absent, times.unusable
    if not drop_missing:
        times.check(table, column)
    bad = absent | unusable
    if bad.all():
        raise DataError(f"{table.path}: no event has a time in column {column!r}")
    notes = []
    if bad.any():
        notes.append(
            f"{int(bad.sum()):,} of {len(bad):,} events were left out: {int(absent.sum()):,} without a time, "
            f"{int(unusable.sum()):,} with one that cannot be used (--read.drop_missing_time true)"
        )
        rows = np.flatnonzero(~bad)
        written = {name: cells.take(rows) for name, cells in table.written.items()}
        frame = table.frame.iloc[rows].reset_index(drop=True)
        table = replace(table, frame=frame, rows=table.origin(rows), written=written)
    t = times.t[~bad]
    if not times.dated:
        _warn_of_numbers(table, column, t)
        return table, t, unit, tuple(notes)
    if values.dtype.kind != "M" and zone_of(values) == "UTC":
        zoned = values[~bad].astype(str).str.contains(_ZONE, regex=True)
        if zoned.any() and not zoned.all():
            notes.append(f"{int((~zoned).sum()):,} dates name no time zone, unlike the others; they were taken as UTC")
    unit = unit_of_dates(exact_unit(t), unit, table.path)
    return table, t // UNITS[unit], unit, tuple(notes)


def _calendar() -> dict[str, tuple[int, int]]:
    """Return the numbers of the years 1990 and 2100 in each unit of time since 1970."""
    scales = {unit: UNITS["s"] // size for unit, size in UNITS.items()}
    return {unit: (_SINCE_1970[0] * scale, _SINCE_1970[1] * scale) for unit, scale in scales.items()}


def calendar_unit(earliest: float, latest: float) -> str:
    """Return the unit since 1970 in which all times are between 1990 and 2100, "" if there is none."""
    return next((unit for unit, (first, last) in _calendar().items() if first <= earliest and latest <= last), "")


def describe_times(t: np.ndarray, unit: str, dates: str) -> str:
    """Describe times (E,): dates, Unix times, or numbers of unknown unit."""
    if dates:
        return "dates"
    if unit:
        return f"in {unit}"
    found = calendar_unit(t.min(), t.max()) if len(t) else ""
    return f"Unix {_UNIT_NAMES[found]}" if found else "numbers of unknown unit"


def exact_unit(t: np.ndarray) -> str:
    """Return the coarsest unit in which nanoseconds (E,) are whole."""
    return next(name for name, size in UNITS.items() if not (t % size).any())


def unit_of_dates(exact: str, requested: str, path: Any) -> str:
    """Return the unit of dates: the requested one if it is exact, by default the exact one."""
    unit = requested or exact
    if unit not in UNITS:
        raise ConfigError(f"{path} holds dates, which are counted in {', '.join(UNITS)}, not in {unit!r}")
    if UNITS[unit] > UNITS[exact]:
        raise DataError(f"{path}: dates finer than a whole {unit}; take time_unit={exact} or round them")
    return unit


def join_date_and_clock(table: Table, time: str) -> tuple[Table, tuple[str, ...]]:
    """Join columns of a day, a clock time and a zone to one, if columns have no names; return the table and a note."""
    names = table.names
    later_names = names[names.index(time) + 1 :]
    if not all(name.startswith("column ") for name in names) or not _all_match(table, time, _DAY):
        return table, ()
    parts = [time]
    for name, form in zip(later_names, (_CLOCK, _OFFSET)):
        if not _all_match(table, name, form):
            break
        parts.append(name)
    if len(parts) == 1:
        return table, ()
    texts = [table.frame[name].astype(str).str.strip() for name in parts]
    joined = texts[0] + "T" + texts[1]
    if len(parts) == 3:
        joined += texts[2].replace("UTC", "Z")
    frame = table.frame.assign(**{time: joined}).drop(columns=parts[1:])
    note = f"{' and '.join(map(repr, parts))} were joined to the time, {joined.iloc[0]} in {table.place(0)}"
    return replace(
        table, frame=frame, written={**table.written, time: pa.chunked_array([pa.array(joined, pa.string())])}
    ), (note,)


def _all_match(table: Table, column: str, form: str) -> bool:
    values = table.frame[column]
    if values.dtype.kind in "iufbM" or values.isna().any():
        return False
    return bool(values.astype(str).str.strip().str.fullmatch(form).all())


# ---- parsing -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Times:
    """Parsed times of a column."""

    t: np.ndarray  # (E,) int64 or float64, nanoseconds since 1970 if they are dates; 0 where there is none
    dated: bool
    absent: np.ndarray  # (E,) nothing, or a word for it
    unusable: np.ndarray  # (E,) a time that no clock counts

    def check(self, table: Table, column: str) -> None:
        """Raise DataError for the first row without a time."""
        table.check(self.absent, column, "a time is missing", _DROP)
        beyond = f"a date beyond what 64 bits of nanoseconds hold ({DATE_RANGE})"
        why = beyond if self.dated else f"a time that {out_of_range_reason(self.t)}"
        table.check(self.unusable, column, why, _DROP)


def times_of(table: Table, column: str, form: str = "", *, dated: bool | None = None) -> Times:
    """Return the times of a column; dated says whether they are dates, None goes by what most of them are."""
    import pandas as pd

    values = table.frame[column]
    absent = missing_times(values)
    kind = values.dtype.kind
    if kind == "M" and not form:
        dates = pd.to_datetime(values, utc=True).dt.tz_localize(None).to_numpy()
        beyond = beyond_nanoseconds(dates)
        return Times(_nanoseconds(dates, beyond), True, absent, beyond & ~absent)
    text = table.text(column)
    if kind in "iuf" and not form and (text is None or kind == "i" or not _may_lose_digits(values)):
        numbers = values.to_numpy(np.float64, na_value=0.0) if kind == "f" else values.fillna(0).to_numpy()
        return _numeric_times(np.where(absent, numbers.dtype.type(0), numbers), absent)
    infinite = np.isinf(values.to_numpy(np.float64, na_value=0.0)) if kind == "f" else np.zeros(len(absent), bool)
    none = absent | infinite
    known = (values.astype(str).str.strip() if text is None else text)[~none]
    known.index = pd.Index(np.flatnonzero(~none))
    plain = None if form else plain_dates(known)
    if plain is not None:
        days, counts = pd.Series(plain, known.index).dt.tz_localize("UTC"), pd.Series(np.nan, known.index)
    else:
        try:
            days = pd.to_datetime(known, utc=True, format=form, errors="coerce") if form else iso_dates(known)
        except ValueError as error:
            raise ConfigError(f"read.time_format is not a format of dates: got {form!r} ({error})") from error
        counts = _exact_numbers(known)
    if dated is None:
        dated = bool(form) or not counts.notna().sum() > days.notna().sum()
        if not form and len(known) and counts.isna().all() and days.isna().all():
            raise _not_times_error(table, column, known)
    if not dated:
        other_kind = _to_all_rows(counts.isna(), none)
        _check_one_kind(table, column, known, other_kind)
        numbers_found = counts.fillna(0).to_numpy()
        check_digits(table, column, known, numbers_found)
        t = np.zeros(len(values), numbers_found.dtype)  # integers stay exact
        t[~none] = numbers_found
        counted = _numeric_times(t, absent | other_kind)
        return replace(counted, unusable=counted.unusable | infinite)
    if form:
        table.check(_to_all_rows(days.isna(), none), column, f"not a date of the form {form}", "Correct it.")
    elif days.isna().any():  # alone they may be dates that nanoseconds do not reach
        dates_beyond = iso_dates(known[days.isna()])
        _check_one_kind(
            table,
            column,
            known,
            _to_all_rows(days.isna() & ~days.index.isin(dates_beyond.index[dates_beyond.notna()]), none),
        )
    raw = days.dt.tz_localize(None).to_numpy()
    filled = np.full(len(values), np.datetime64("NaT"), raw.dtype)
    filled[~none] = raw
    beyond = beyond_nanoseconds(filled)
    return Times(_nanoseconds(filled, beyond), True, absent, beyond & ~absent)


def _check_one_kind(table: Table, column: str, present: pd.Series, other: np.ndarray) -> None:
    """Raise DataError for a cell that is not a time like the others."""
    remedy = (
        "Remove the row or give it a time; --read.time_format '%d/%m/%Y' reads dates that are not ISO, and "
        "--read.time_column NAME another column."
    )
    either = np.zeros(len(other), bool)
    either[present.index] = present.str.match(DAY_OR_MONTH).eq(True)
    table.check(other & either, column, f"a date whose {AMBIGUOUS_DATE}", remedy)
    table.check(other, column, "not a time like the others", remedy)


def _numeric_times(t: np.ndarray, absent: np.ndarray) -> Times:
    unusable = ~absent & (out_of_range(t) | ~np.isfinite(t))
    return Times(np.where(unusable, t.dtype.type(0), t), False, absent, unusable)


def _nanoseconds(dates: np.ndarray, beyond: np.ndarray) -> np.ndarray:
    return np.where(beyond, np.datetime64(0, "s"), dates).astype("datetime64[ns]").astype(np.int64)


def holds_dates(table: Table, column: str) -> bool:
    """Return whether most times of a column are dates."""
    return times_of(replace(table, bad={}), column).dated


def missing_times(values: pd.Series) -> np.ndarray:
    """Return (E,) which cells are empty or a missing-value marker."""
    absent = values.isna().to_numpy(bool)
    if values.dtype.kind in "iufbM":
        return absent
    return absent | values.astype(str).str.strip().str.lower().isin(ABSENT).to_numpy(bool)


def _exact_numbers(text: pd.Series) -> pd.Series:
    """Return numbers of texts, NaN for others; int64 if all are whole ones that floats would round."""
    import pandas as pd

    numbers = pd.to_numeric(text, errors="coerce")
    if numbers.dtype.kind == "f" and (numbers.abs() >= EXACT).any():
        whole = pd.to_numeric(text.str.replace(r"\.0*$", "", regex=True), errors="coerce")
        return whole if whole.dtype.kind == "i" else numbers
    return numbers


def _may_lose_digits(values: pd.Series) -> bool:
    """Return whether floats may differ from the file's numbers: beyond 2^53, or ending in 0."""
    numbers = values.to_numpy(np.float64, na_value=0.0)
    finite = np.where(np.isfinite(numbers), numbers, 0)
    return bool(((finite != 0) & (np.fmod(finite, 10) == 0)).any() or (np.abs(finite) >= EXACT).any())


def _to_all_rows(bad: pd.Series, absent: np.ndarray) -> np.ndarray:
    """Return a mask of the cells that are not absent as a mask of all rows."""
    whole = np.zeros(len(absent), bool)
    whole[~absent] = bad
    return whole


def _not_times_error(table: Table, column: str, present: pd.Series) -> DataError:
    forms = date_forms(present)
    local = present.str.match(DAY_OR_MONTH).to_numpy(bool) | bool(forms)
    if local.any():
        row = int(present.index[int(np.argmax(local))])
        ways = " or ".join(f"'{form}'" for form in forms or ("%d/%m/%Y", "%m/%d/%Y"))
        return DataError(
            f"{table.path}: {present[row]!r} in column {column!r}, {table.place(row)}, is a date whose "
            f"{AMBIGUOUS_DATE}, or give the form: --read.time_format {ways}"
        )
    return FormatError(
        f"{table.path}: column {column!r} holds neither numbers nor ISO dates such as 2024-03-01T12:00:00; "
        "convert it, or name another with time_column"
    )


def beyond_nanoseconds(dates: np.ndarray) -> np.ndarray:
    """Return which dates int64 nanoseconds cannot represent; NaT is one, because it was not parsed."""
    size = NANOSECONDS[np.datetime_data(dates.dtype)[0]]
    limit = (np.iinfo(np.int64).max - 1) // size  # nothing could come after the last
    count = dates.astype(np.int64)
    return np.isnat(dates) | (count > limit) | (count < -limit)


def check_digits(table: Table, column: str, text: pd.Series, numbers: np.ndarray) -> None:
    """Raise DataError for a time of which digits were lost: cut by an exponent, or beyond what float64 holds.

    Spreadsheets write 1.58E+12 of what they cut. R writes so what needs no more digits: 1e+05 among times in full is
    as good as they are; where most times are of six digits at most, they were rounded.
    """
    if numbers.dtype.kind != "f":
        return
    rows = np.arange(len(table.frame))
    parts = text.str.extract(r"^[+-]?([0-9]+)(?:\.([0-9]*))?([eE])\+([0-9]{2,})$")
    decimals = parts[1].fillna("").str.len()
    cut = parts[3].astype(float) > decimals
    short = cut & (parts[0].str.len() + decimals <= 6)
    cut &= (parts[2] == "E") | (short & (2 * int(short.sum()) > len(rows)))
    remedy = "Write times in full (a spreadsheet: format the column as a number without decimals, and save again)."
    as_text = replace(table, frame=text.reindex(rows).to_frame(column), written={}, bad=None)
    as_text.check(np.isin(rows, text.index[cut]), column, "an exponent in place of the last digits of a time", remedy)
    large = np.isfinite(numbers) & (np.abs(numbers) >= EXACT)
    full = text[large & text.str.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]*)?").to_numpy(bool)]
    lost = [row for row, word in full.items() if Decimal(word) != Decimal(float(word))]  # few files have any
    remedy = "Write all times as whole numbers, or from a nearer start."
    wrong = "a time beyond 2^53 beside fractions (or beyond 64 bits), where neighbours become one"
    as_text.check(np.isin(rows, lost), column, wrong, remedy)


# ---- warnings ----------------------------------------------------------------------------------------------------
def _warn_of_numbers(table: Table, column: str, t: np.ndarray) -> None:
    """Warn if numbers (E,) look like days written as numbers, or counted in several units; they are read as such."""
    import pandas as pd

    where = f"{table.path}: the numbers in column {column!r}"
    form = _DAYS.get(len(f"{t.max():.0f}"))
    if form and len(f"{t.min():.0f}") == len(f"{t.max():.0f}") and (t == np.floor(t)).all():
        days = pd.to_datetime(pd.Series(t.astype(np.int64)).astype(str), format=form, errors="coerce")
        if days.dt.year.between(1900, 2100).all():
            warn(
                f"{where} look like days, {int(t[0])} in {table.place(0)}; they are read as plain numbers, whose "
                f"distances are no durations: write them as dates, {days[0].isoformat()}",
                stacklevel=5,
            )
            return
    if float(t.max()) < 100 * max(float(t.min()), 5 * _SINCE_1970[0]):
        return
    inside = {unit: (t >= first) & (t <= last) for unit, (first, last) in _calendar().items()}
    inside = {unit: mask for unit, mask in inside.items() if mask.any()}
    if len(inside) < 2 or sum(int(mask.sum()) for mask in inside.values()) < 0.99 * len(t):
        return
    parts = []
    for unit, mask in inside.items():
        row = int(np.argmax(mask))
        parts.append(f"{int(mask.sum()):,} in {_UNIT_NAMES[unit]} (the first, {t[row]:.15g}, in {table.place(row)})")
    warn(
        f"{where} seem to be counted in several units: {', '.join(parts)}; they are read as they stand: bring them to "
        "one unit and name it with --read.time_unit (time_unit in Python)",
        stacklevel=5,
    )
