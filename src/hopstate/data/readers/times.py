"""Times of a table's events: numbers or ISO dates, none of them missing or beyond what 64 bits of nanoseconds hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.dates import DAY_OR_MONTH, UNGUESSED
from hopstate.data.event_build import DATES_HELD, NANOSECONDS, UNITS
from hopstate.data.readers.ids import EXACT, MISSING
from hopstate.data.readers.local import date_forms
from hopstate.data.readers.tables import Table
from hopstate.data.readers.times_exact import check_cut, check_digits
from hopstate.data.readers.times_suspect import suspect_numbers
from hopstate.data.validate import beyond_clock, why_beyond
from hopstate.errors import ConfigError, DataError, FormatError

if TYPE_CHECKING:
    import pandas as pd

_ABSENT = {word.lower() for word in MISSING} | {"nat"}
_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[zZ]|[+-]\d\d:?\d\d)?"
_OFFSET = r"[zZ]|UTC|[+-]\d\d:?\d\d"
_ZONE = r"(?:[zZ]|[+-]\d\d:?\d\d)$"


def timed(
    table: Table, column: str, unit: str, missing: str, form: str = ""
) -> tuple[Table, np.ndarray, str, tuple[str, ...]]:
    """Return the rows of a table that have a time, these times, their unit ("" where unknown), and notes.

    Dates are counted in the unit that is asked for, else in the coarsest of s, ms, us, ns that loses nothing; without
    a zone they are UTC.

    Args:
        table: one row for each event.
        column: of the times.
        unit: asked for, or "".
        missing: "error", or "drop" rows without a time and with dates that nanoseconds do not reach.
        form: of dates, as strptime has it; "" for ISO dates.

    Raises:
        FormatError: neither numbers nor dates.
        DataError: dates such as 03/04/2024, a row without a usable time, or with one that floats beside fractions do
            not hold; row and value are named.
        ConfigError: another missing, or a unit that dates are not counted in.
    """
    if missing not in ("error", "drop"):
        raise ConfigError(f"read.missing_time is 'error' or 'drop'; got {missing!r}")
    values = table.frame[column]
    absent = _absent(values)
    endless = np.isinf(values.to_numpy()) if values.dtype.kind == "f" else np.zeros(len(absent), bool)
    endless &= ~absent
    numbers, dates = _parsed(table, column, absent | endless, form)
    if numbers is not None:
        beyond = beyond_clock(numbers) & np.isfinite(numbers)
        wrong = ((beyond | ~np.isfinite(numbers)) & ~absent) | endless
        why = why_beyond(numbers) if beyond[np.argmax(absent | wrong)] else "is no time"
    else:
        assert dates is not None
        wrong, why = _beyond(dates) & ~absent, f"is beyond the dates that 64 bits of nanoseconds hold ({DATES_HELD})"
    bad = absent | wrong
    if bad.any() and missing == "error":
        raise _refused(table, column, bad, int(absent.sum()), why if wrong[np.argmax(bad)] else "is no time")
    if bad.all():
        raise DataError(f"{table.path}: no event has a time in column {column!r}")
    notes = []
    if bad.any():
        notes.append(
            f"{int(bad.sum()):,} of {len(bad):,} events were left out: {int(absent.sum()):,} without a time, "
            f"{int(wrong.sum()):,} with one that cannot be used (--read.missing_time drop)"
        )
        table = replace(table, frame=table.frame[~bad].reset_index(drop=True), rows=table.origin(np.flatnonzero(~bad)))
    if numbers is not None:
        suspect_numbers(table, column, numbers[~bad])
        return table, numbers[~bad], unit, tuple(notes)
    if values.dtype.kind != "M":
        zoned = values[~bad].astype(str).str.contains(_ZONE, regex=True)
        if zoned.any() and not zoned.all():
            notes.append(f"{int((~zoned).sum()):,} dates name no time zone, unlike the others; they were taken as UTC")
    assert dates is not None
    t, unit = _counted(table, dates[~bad], unit)
    return table, t, unit, tuple(notes)


def with_clock(table: Table, time: str) -> tuple[Table, tuple[str, ...]]:
    """Return a table without names in which days followed by clocks (and zones) are one column, and a note on it."""
    names = [str(name) for name in table.frame.columns]
    at = names.index(time)
    if not all(name.startswith("column ") for name in names) or not _all(table, time, _DAY):
        return table, ()
    parts = [time]
    for name, form in zip(names[at + 1 :], (_CLOCK, _OFFSET)):
        if not _all(table, name, form):
            break
        parts.append(name)
    if len(parts) == 1:
        return table, ()
    texts = [table.frame[name].astype(str).str.strip() for name in parts]
    whole = texts[0] + "T" + texts[1] if len(parts) == 2 else texts[0] + "T" + texts[1] + texts[2].replace("UTC", "Z")
    frame = table.frame.assign(**{time: whole}).drop(columns=parts[1:])
    told = f"{' and '.join(map(repr, parts))} were taken together as the time, {whole.iloc[0]} in {table.place(0)}"
    return replace(table, frame=frame, filled={**table.filled, time: whole}), (told,)


def _all(table: Table, column: str, form: str) -> bool:
    values = table.frame[column]
    if values.dtype.kind in "iufbM" or values.isna().any():
        return False
    return bool(values.astype(str).str.strip().str.fullmatch(form).all())


def _absent(values: pd.Series) -> np.ndarray:
    """Return which cells hold nothing, or a word for it."""
    absent = values.isna().to_numpy(bool)
    if values.dtype.kind in "iufbM":
        return absent
    return absent | values.astype(str).str.strip().str.lower().isin(_ABSENT).to_numpy(bool)


def _parsed(table: Table, column: str, absent: np.ndarray, form: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return (numbers, None) or (None, dates as datetime64 of any unit) of a column; anything where absent."""
    import pandas as pd

    values = table.frame[column]
    if form:
        return None, _of_form(table, column, absent, form)
    if values.dtype.kind in "iuf":
        if values.isna().any() and values.dtype.kind != "f":  # pandas' integers with gaps
            values = values.fillna(0)
        check_cut(values.to_numpy(), lambda: table.text(column), (f"{table.path}: ", column, table.place))
        return _exact(table, column, values.to_numpy(), absent), None
    if values.dtype.kind == "M":
        return None, pd.to_datetime(values, utc=True).dt.tz_localize(None).to_numpy()
    known = values[~absent].astype(str).str.strip()
    numbers = pd.to_numeric(known, errors="coerce")
    if numbers.notna().all():
        found = numbers.to_numpy()
        filled = np.zeros(len(values), found.dtype)  # integers stay exact
        filled[~absent] = found
        check_cut(filled, lambda: values.astype(str), (f"{table.path}: ", column, table.place))
        check_digits(filled, values.astype(str), f"{table.path}: ", column, table.place)
        return filled, None
    dates = pd.to_datetime(known, utc=True, format="ISO8601", errors="coerce")
    if numbers.notna().sum() > dates.notna().sum() or (len(known) > 1 and dates.isna().sum() > 0):
        dates = _all_dates(table, column, known, numbers, dates)
    elif dates.isna().any():
        raise _neither(table, column, known)
    raw = dates.dt.tz_localize(None).to_numpy()
    whole = np.full(len(values), np.datetime64("NaT"), raw.dtype)
    whole[~absent] = raw
    return None, whole


def _of_form(table: Table, column: str, absent: np.ndarray, form: str) -> np.ndarray:
    """Return dates of a form as datetime64, NaT where absent.

    Raises:
        DataError: a cell of another form; its row is named.
    """
    import pandas as pd

    text = table.text(column) if table.frame[column].dtype.kind in "iuf" else None
    text = (table.frame[column].astype(str) if text is None else text).str.strip()
    dates = pd.to_datetime(text.where(~absent), utc=True, format=form, errors="coerce")
    bad = dates.isna().to_numpy() & ~absent
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{table.path}: {text.iloc[row]!r} in column {column!r}, {table.place(row)}, is no date of the form {form} "
            f"({int(bad.sum()):,} rows in all)"
        )
    return dates.dt.tz_localize(None).to_numpy()


def _exact(table: Table, column: str, numbers: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """Return numbers, those that stand as whole ones in a file as int64: read beside gaps, large ones are rounded."""
    if numbers.dtype.kind != "f" or not (np.abs(numbers, where=~absent, out=np.zeros(len(absent))) >= EXACT).any():
        return numbers
    text = table.text(column)
    if text is None:
        return numbers
    whole = text[~absent].str.strip().str.extract(r"^([+-]?[0-9]{1,19})(?:\.0*)?$")[0]
    values = [] if whole.isna().any() else [int(word) for word in whole]  # few files: nanoseconds with gaps
    if not values or max(map(abs, values)) > np.iinfo(np.int64).max:
        check_digits(numbers, text, f"{table.path}: ", column, table.place)
        return numbers
    found = np.zeros(len(absent), np.int64)
    found[~absent] = values
    return found


def _all_dates(table: Table, column: str, known: pd.Series, numbers: pd.Series, dates: pd.Series) -> pd.Series:
    """Return dates of a column in which some could not be read together with finer ones.

    Raises:
        DataError: a cell is no time like the others.
        FormatError: no cell is a time; a DataError where they are dates such as 03/04/2024.
    """
    import pandas as pd

    if dates.isna().all() and numbers.isna().all():
        raise _neither(table, column, known)
    if numbers.notna().sum() > dates.notna().sum():
        bad = numbers.isna()
    else:  # beside nanoseconds, dates that these cannot hold are not read: they are alone
        alone = pd.to_datetime(known[dates.isna()], utc=True, format="ISO8601", errors="coerce")
        bad = dates.isna() & ~dates.index.isin(alone.index[alone.notna()])
        if not bad.any():
            return dates
    row = int(bad.index[int(np.argmax(bad.to_numpy()))])
    raise DataError(
        f"{table.path}: {known[row]!r} in column {column!r}, {table.place(row)}, is no time like the others; "
        "remove the row or give it a time"
    )


def _beyond(dates: np.ndarray) -> np.ndarray:
    """Return which dates nanoseconds since 1970 do not reach; NaT counts, as it stands for one that was not read."""
    size = NANOSECONDS[np.datetime_data(dates.dtype)[0]]
    limit = (np.iinfo(np.int64).max - 1) // size  # nothing could come after the last
    count = dates.astype(np.int64)
    return np.isnat(dates) | (count > limit) | (count < -limit)


def _counted(table: Table, dates: np.ndarray, unit: str) -> tuple[np.ndarray, str]:
    t = dates.astype("datetime64[ns]").astype(np.int64)
    exact = [name for name, size in UNITS.items() if not (t % size).any()]
    unit = unit or exact[0]
    if unit not in UNITS:
        raise ConfigError(f"{table.path} holds dates, which are counted in {', '.join(UNITS)}, not in {unit!r}")
    if unit not in exact:
        raise DataError(f"{table.path}: dates finer than a whole {unit}; take time_unit={exact[0]} or round them")
    return t // UNITS[unit], unit


def _refused(table: Table, column: str, bad: np.ndarray, absent: int, why: str) -> DataError:
    """Return the error of rows without a usable time, the first of them with its value."""
    row = int(np.argmax(bad))
    value = table.frame[column].iloc[row]
    text = str(value)
    what = f"{text!r} in column {column!r}, {table.place(row)}, {why}"
    if isinstance(value, float) and np.isinf(value):
        what = f"the time in {table.place(row)} is {value}"
    elif not isinstance(value, str) or not text.strip():
        what = f"no time in column {column!r}, {table.place(row)}" if why == "is no time" else what
    return DataError(
        f"{table.path}: {what}; of {len(bad):,} rows {absent:,} have no time and {int(bad.sum()) - absent:,} none that "
        f"can be used: give them one, or leave them out with --read.missing_time drop"
    )


def _neither(table: Table, column: str, known: pd.Series) -> DataError:
    """Return the error of a column of texts (E,) of which none is a time."""
    forms = date_forms(known)
    ways = " or ".join(f"'[{column}=date:{form}]'" for form in forms or ("%d/%m/%Y", "%m/%d/%Y"))
    of_either = known.str.match(DAY_OR_MONTH).to_numpy(bool) | bool(forms)
    if of_either.any():
        row = int(known.index[int(np.argmax(of_either))])
        return DataError(
            f"{table.path}: {known[row]!r} in column {column!r}, {table.place(row)}, is a date whose {UNGUESSED}, or "
            f"say the form: --read.columns {ways}"
        )
    return FormatError(
        f"{table.path}: column {column!r} holds neither numbers nor ISO dates such as 2024-03-01T12:00:00; "
        "convert it, or name another with time_column"
    )
