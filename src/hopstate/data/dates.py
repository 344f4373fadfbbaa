"""Times: their numbers, the dates and lengths of time that users write and read, and gaps in the units of models.

Inside, times are numbers in a unit since 1970, UTC. What zone a file's dates are in is `EventStream.dates`: "" if its
times are numbers, "naive" for dates without a zone, "+01:00" or "Z" for those of one offset, "Europe/Berlin" if a
column has a zone, "UTC" if offsets differ.

By default a unit of a gap is the median gap between successive training events, equal timestamps
ignored. This is the finest scale on which events have an order, and it does not depend on the unit of the file. (The
gaps of single nodes would be a coarser unit that does not separate quick replies.) It is fitted once and stored with
the run.
"""

from __future__ import annotations

import math
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hopstate.errors import ConfigError, DataError, warn

if TYPE_CHECKING:
    import pandas as pd


UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # of dates, in nanoseconds, coarsest first
NANOSECONDS = {"W": 604800 * 10**9, "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, **UNITS}
DATE_RANGE = "1677-09-21 to 2262-04-11"
NAIVE = "naive"
_UTC = ("", NAIVE, "Z", "UTC")  # kinds of dates whose clock is that of UTC
DAY_OR_MONTH = r"\s*\d{1,2}([/.-])\d{1,2}\1(?:\d{4}|\d\d)(?!\d)"  # a date of either order at a text's beginning
AMBIGUOUS_DATE = "order of day and month is not guessed, as it differs by country; write ISO dates such as 2024-03-01"
_OFFSET = r"([zZ]|[+-]\d\d(?::?\d\d)?)$"
_LENGTHS = (("year", 365.25 * 86400), ("day", 86400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
TimeScale = Literal["median", "seconds", "raw"]


def validate_times(t: np.ndarray, where: str) -> np.ndarray:
    """Return times as int64 or float64, nothing narrowed."""
    if t.dtype.kind == "M":
        if np.isnat(t).any():
            raise DataError(f"{where}: the time of row {int(np.argmax(np.isnat(t)))} is missing")
        t = t.astype("datetime64[D]") if np.datetime_data(t.dtype)[0] in "YM" else t
        beyond = np.abs(t.astype(np.int64)) > np.iinfo(np.int64).max // NANOSECONDS.get(np.datetime_data(t.dtype)[0], 1)
        if beyond.any():
            row = int(np.argmax(beyond))
            raise DataError(
                f"{where}: the time of row {row}, {t[row]}, is beyond what 64 bits of nanoseconds hold ({DATE_RANGE})"
            )
        return _check_range(t.astype("datetime64[ns]").astype(np.int64), where)
    if t.dtype.kind == "u" and t.dtype.itemsize == 8 and t.max(initial=0) > np.iinfo(np.int64).max:
        raise DataError(f"{where}: the time of row {int(np.argmax(t))}, {t.max()}, is over 2^63 - 1")
    if t.dtype.kind in "bc":
        raise DataError(f"{where}: times must be numbers or dates; got {t.dtype}")
    if t.dtype.kind in "iu":
        return _check_range(t.astype(np.int64, copy=False), where)
    try:
        t = t.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: times must be numbers or dates; got {t.dtype} ({error})") from None
    if not np.isfinite(t).all():
        row = int(np.argmin(np.isfinite(t)))
        raise DataError(f"{where}: the time of row {row} is {t[row]}; remove the row or give it a time")
    return _check_range(t, where)


def _check_range(t: np.ndarray, where: str) -> np.ndarray:
    beyond = out_of_range(t)
    if beyond.any():
        row = int(np.argmax(beyond))
        raise DataError(f"{where}: the time of row {row}, {t[row]}, {out_of_range_reason(t)}")
    return t


def out_of_range(t: np.ndarray) -> np.ndarray:
    """Return which times are out of range: the limits of int64, and floats from 2^63 on."""
    if t.dtype.kind == "f":
        return np.abs(t) >= 2.0**63
    return (t >= np.iinfo(np.int64).max) | (t == np.iinfo(np.int64).min)


def out_of_range_reason(t: np.ndarray) -> str:
    """Return the error text for times that are `out_of_range`."""
    if t.dtype.kind == "f":
        return "is beyond 2^63, farther than clocks count; give times from a nearer start or in a coarser unit"
    return "is the first or last that 64 bits hold, or beyond; give the event its own time"


def zone_of(values: pd.Series) -> str:
    """Return the zone of a column's dates in the form of `EventStream.dates`; "" if it holds numbers."""
    import pandas as pd

    if values.dtype.kind in "iufb" or str(values.dtype).startswith(("Int", "UInt", "Float")):
        return ""
    if values.dtype.kind == "M":
        return _normalize_zone(str(values.dtype.tz)) if isinstance(values.dtype, pd.DatetimeTZDtype) else NAIVE
    text = values.dropna().astype(str).str.strip()
    if plain_dates(text) is not None:
        return NAIVE
    text = text[text.str.match(r"[+-]?\d{4}-?\d\d").to_numpy(bool) & pd.to_numeric(text, errors="coerce").isna()]
    if text.empty:
        return ""
    ends = text.str.extract(_OFFSET, expand=False).str.upper().where(text.str.contains(":"), NAIVE).fillna(NAIVE)
    zones = {_normalize_zone(end) for end in ends.unique().tolist()}
    return zones.pop() if len(zones) == 1 else "UTC"


def plain_dates(text: pd.Series) -> np.ndarray | None:
    """Return dates (E,) of texts that all are such as 2024-03-01T12:00:00, without a zone; None if one is not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        dates = pc.cast(pa.array(text, pa.string(), from_pandas=True), pa.timestamp("ns"))
    except (pa.ArrowException, TypeError):
        return None
    return None if dates.null_count or not len(dates) else dates.to_numpy()


def iso_dates(text: pd.Series) -> pd.Series:
    """Return ISO dates of texts in UTC, NaT for others: pandas alone would read "now" as the moment of reading."""
    import pandas as pd

    plain = plain_dates(text)
    if plain is not None:
        return pd.Series(plain, text.index).dt.tz_localize("UTC")
    dates = text.where(text.str.match(r"\s*[+-]?[0-9]").eq(True))
    return pd.to_datetime(dates, utc=True, format="ISO8601", errors="coerce")


def _normalize_zone(zone: str) -> str:
    if zone in (NAIVE, "Z", "UTC"):
        return zone
    zone = zone.removeprefix("UTC")  # as pandas has a fixed offset
    if zone[:1] in ("+", "-"):
        return f"{zone[:3]}:{zone[3:].lstrip(':')[:2] or '00'}"
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC"
    return zone


def parse_times(values: Sequence[Any], unit: str, dates: str, name: str) -> list[float | int]:
    """Return times as numbers in a stream's unit; a date without a zone is read in the zone of the stream's own dates.

    If the stream's times have no single zone, such a date is read as UTC, with a warning. Values are numbers, dates
    (`datetime`, `pandas.Timestamp`, `numpy.datetime64`), or texts of either; whole numbers stay exact.
    """
    parsed = [_number_or_date(value) for value in values]
    moments = [one for one in parsed if isinstance(one, datetime)]
    if moments and unit not in UNITS:
        raise ConfigError(f"{name}: dates need a stream whose time_unit is one of {', '.join(UNITS)}; it is {unit!r}")
    if any(one.tzinfo is None for one in moments):
        warn_assumed_utc(dates, name)
    return [_date_to_number(one, unit, dates) if isinstance(one, datetime) else one for one in parsed]


def _number_or_date(when: Any) -> Any:
    if isinstance(when, np.datetime64):
        import pandas as pd

        when = pd.Timestamp(when)
    if isinstance(when, str):
        for read in (int, float, datetime.fromisoformat):
            try:
                when = read(when.strip())
                break
            except ValueError:
                continue
        else:
            if re.match(DAY_OR_MONTH, when):
                raise ConfigError(f"{when!r} is a date whose {AMBIGUOUS_DATE}")
            raise ConfigError(f"{when!r} is neither a number nor a date such as 2024-03-01 or 2024-03-01T12:00:00")
    elif isinstance(when, date) and not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    if when != when or (isinstance(when, float | np.floating) and not math.isfinite(when)):
        raise ConfigError(f"a time must be a finite number or a date; got {when}")
    return when


def _date_to_number(when: datetime, unit: str, dates: str) -> int:
    """Return a date in a unit since 1970, UTC."""
    since = when - datetime(1970, 1, 1, tzinfo=None if when.tzinfo is None else UTC)
    nanoseconds = since // timedelta(microseconds=1) * 1000 + getattr(when, "nanosecond", 0)
    if when.tzinfo is None:
        clock = np.array([nanoseconds // 1000]).astype("datetime64[us]")
        nanoseconds -= int((clock - local_to_utc(clock, dates)).astype(np.int64)[0]) * 1000
    return nanoseconds // UNITS[unit]


def local_to_utc(local: np.ndarray, dates: str) -> np.ndarray:
    """Return (Q,) datetime64 by the clock of a zone as UTC, in the same unit and never in another order.

    An hour that the clock shows twice is the first of both; one that it leaves out is its end.
    """
    import pandas as pd

    if dates in _UTC or not len(local):
        return local
    first = np.ones(len(local), bool)
    try:
        zoned = pd.DatetimeIndex(local).tz_localize(_zone(dates), ambiguous=first, nonexistent="shift_forward")
    except (KeyError, ValueError, OSError):  # a zone that this machine does not know
        return local
    return zoned.tz_convert("UTC").tz_localize(None).to_numpy().astype(local.dtype)


def as_utc_times(t: np.ndarray, unit: str, dates: str, what: str) -> np.ndarray:
    """Return times (Q,), counted as if their dates were UTC, in the zone of a stream's own dates."""
    warn_assumed_utc(dates, what)
    return local_to_utc(t.astype(f"datetime64[{unit}]"), dates).astype(np.int64)


def warn_assumed_utc(dates: str, what: str) -> None:
    """Warn that dates without a zone are read as UTC, unless the stream has one zone or none."""
    if dates in ("", "UTC"):
        warn(
            f"{what}: a date without a time zone is taken as UTC, as the times of the run's data are in no one zone; "
            "write the zone with it, such as 2024-03-01T12:00:00+00:00",
            stacklevel=4,
        )


def format_times(t: Any, unit: str, dates: str) -> np.ndarray:
    """Format (Q,) times, or one, as ISO dates in their zone; times of streams without dates stay numbers.

    >>> format_times([0, 3600], "s", "+01:00").tolist()
    ['1970-01-01T01:00:00+01:00', '1970-01-01T02:00:00+01:00']
    """
    numbers = np.asarray(t)
    if not _are_dates(numbers, unit, dates):
        return numbers
    local, offsets = _local(numbers, unit, dates)
    text = np.datetime_as_string(local).astype(object) + _zone_suffixes(offsets, dates)
    return text if numbers.ndim else np.asarray(text[0], object)


def format_time(t: Any, unit: str, dates: str) -> str:
    """Format one time for messages, as `format_times` does."""
    return str(format_times(t, unit, dates))


def plot_times(t: Any, unit: str, dates: str) -> Any:
    """Return (Q,) times for a plot: local datetime64 if the stream has dates, otherwise numbers."""
    numbers = np.asarray(t)
    if not _are_dates(numbers, unit, dates):
        return t
    local = _local(numbers, unit, dates)[0]
    return local if numbers.ndim else local[0]


def _are_dates(numbers: np.ndarray, unit: str, dates: str) -> bool:
    return bool(dates) and unit in UNITS and numbers.dtype.kind in "iu"


def _local(numbers: np.ndarray, unit: str, dates: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (Q,) dates by the clock of a zone, and (Q,) seconds by which it is ahead of UTC."""
    utc = np.atleast_1d(numbers.astype(np.int64)).astype(f"datetime64[{unit}]")
    offsets = np.zeros(len(utc), np.int64) if dates in _UTC else _offsets(utc, dates)
    second = UNITS["s"] // UNITS[unit]
    return utc + (offsets * second).astype(f"timedelta64[{unit}]"), offsets


def _offsets(utc: np.ndarray, dates: str) -> np.ndarray:
    """Return (Q,) seconds by which a zone is ahead of UTC."""
    import pandas as pd

    try:
        zoned = pd.DatetimeIndex(utc).tz_localize("UTC").tz_convert(_zone(dates))
    except (KeyError, ValueError, OSError):  # a zone that this machine does not know
        return np.zeros(len(utc), np.int64)
    local = zoned.tz_localize(None).to_numpy()
    return (local - utc.astype(local.dtype)).astype("timedelta64[s]").astype(np.int64)


def _zone(dates: str) -> str:
    """Return a zone as pandas names it: it writes +01:00 as UTC+01:00."""
    return f"UTC{dates}" if dates[0] in "+-" else dates


def _zone_suffixes(offsets: np.ndarray, dates: str) -> np.ndarray:
    """Return (Q,) the suffixes of ISO dates: empty, Z or an offset."""
    if dates == NAIVE:
        return np.full(len(offsets), "", object)
    if dates in ("Z", "UTC"):
        return np.full(len(offsets), "Z", object)
    values, place = np.unique(offsets, return_inverse=True)
    words = [f"{'-' if s < 0 else '+'}{abs(s) // 3600:02d}:{abs(s) % 3600 // 60:02d}" for s in values.tolist()]
    return np.array(words, object)[place]


def format_duration(span: Any, unit: str) -> str:
    """Format a duration in words if its unit is known, otherwise as a number and its unit.

    >>> format_duration(7_532_879, "s"), format_duration(90, "ms"), format_duration(12, "")
    ('87 days', '0.09 seconds', '12')
    """
    if unit not in UNITS:
        figure = f"{span:,.0f}" if 1e6 <= abs(span) < 1e15 else f"{span:,.6g}"
        return f"{figure}{f' {unit}' if unit else ''}"
    seconds = float(span) * UNITS[unit] / NANOSECONDS["s"]
    name, length = next(((name, size) for name, size in _LENGTHS if abs(seconds) >= 2 * size), _LENGTHS[-1])
    amount = seconds / length
    text = f"{amount:,.0f}" if amount >= 20 or amount == round(amount) else f"{amount:.2g}"
    return f"{text} {name}{'' if text == '1' else 's'}"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What one unit of a gap is."""

    unit: float = 1.0  # the gap that counts as 1, in the stream's unit of time; over 0
    time_unit: str = ""  # that unit (s, ms, us, ns), "" if unknown
    ratio: float = 1.0  # how many of the stream's units are one of the stream that the clock was fitted on

    def __post_init__(self) -> None:
        if not 0 < self.unit < np.inf:
            raise ConfigError(f"a clock's unit is a positive number; got {self.unit}")

    @classmethod
    def fit(cls, t: np.ndarray, time_unit: str = "", time_scale: TimeScale = "median") -> Clock:
        """Return the clock of training events at times t (E,), sorted.

        A unit is the "median" of the gaps between successive events that are not 0 (1 where there is none), a second
        where time_unit is known, or a "raw" number.
        """
        if time_scale not in get_args(TimeScale):
            raise ConfigError(f"time_scale is one of {', '.join(get_args(TimeScale))}; got {time_scale!r}")
        if time_scale == "raw":
            return cls()
        if time_scale == "seconds":
            return cls(unit=UNITS["s"] / UNITS.get(time_unit, UNITS["s"]), time_unit=time_unit)
        return cls.of_gaps(elapsed(t[1:], t[:-1]), time_unit)

    @classmethod
    def of_gaps(cls, gaps: np.ndarray, time_unit: str = "") -> Clock:
        """Return the clock with the median nonzero gap of gaps (Q,) as its unit, or 1 if there is none."""
        gaps = gaps[gaps > 0]
        middle = (len(gaps) - 1) // 2  # of an even number the lower one: a gap of the stream, never rounded
        return cls(unit=float(np.partition(gaps, middle)[middle]) if len(gaps) else 1.0, time_unit=time_unit)

    def over(self, time_unit: str) -> Clock:
        """Return the same clock for a stream of another unit of time; itself where either unit is unknown."""
        if time_unit == self.time_unit or not {time_unit, self.time_unit} <= UNITS.keys():
            return self
        ratio = UNITS[self.time_unit] / UNITS[time_unit]
        return replace(self, unit=self.unit * ratio, time_unit=time_unit, ratio=self.ratio * ratio)

    def gaps(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Return (Q,) float64 gaps from earlier (Q,) to later (Q,) times, in units."""
        return elapsed(later, earlier) / self.unit

    def log_time_deltas(self, later: np.ndarray, earlier: np.ndarray, limit: float = np.inf) -> np.ndarray:
        """Return (Q,) float64 ln(1 + gap), clipped below limit."""
        log_deltas = np.log1p(self.gaps(later, earlier))
        return np.minimum(log_deltas, np.nextafter(np.float32(limit), np.float32(0)))


def elapsed(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Return later - earlier, or 0 where that is negative: uint64 of integers, exact over any span, else float64."""
    later, earlier = np.asarray(later), np.asarray(earlier)
    if later.dtype.kind == "f" or earlier.dtype.kind == "f":
        return np.maximum(later.astype(np.float64) - earlier, 0.0)
    difference = later.astype(np.int64, copy=False) - earlier.astype(np.int64, copy=False)  # may wrap, rightly so
    return np.where(later >= earlier, difference.view(np.uint64), np.uint64(0))
