"""Times of a table's events: numbers or dates, each as it is written or rejected with its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.dates import DATES_HELD, DAY_OR_MONTH, NANOSECONDS, UNGUESSED, UNITS, beyond_clock, why_beyond
from hopstate.data.readers.ids import EXACT, MISSING
from hopstate.data.readers.local import date_forms
from hopstate.data.readers.tables import Table
from hopstate.errors import ConfigError, DataError, FormatError, warn

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
    """Return dates of a form as datetime64, NaT where absent."""
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
