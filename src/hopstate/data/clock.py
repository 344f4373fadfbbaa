"""The clock of a stream: gaps in time, exact in the stream's own numbers, then in units that models see.

By default a unit is the median gap between successive training events, those at one time left out: the finest scale on
which the stream tells order, and the same share of every gap whatever unit the file counts in. (A node's own gaps would
be a coarser unit, under which quick answers all look alike.) Fitted once, on training events, and kept with the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from hopstate.data.event_build import UNITS
from hopstate.errors import ConfigError

GapUnit = Literal["median", "seconds", "raw"]


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What one unit of a gap is.

    Args:
        unit: the gap that counts as 1, in the stream's unit of time; over 0.
        time_unit: that unit (s, ms, us, ns), "" if unknown.
        ratio: how many of the stream's units are one of the stream that the clock was fitted on.
        bounded: hold gaps below what stands for "never" (0.1.0 did not).

    Raises:
        ConfigError: unit is not a positive finite number.
    """

    unit: float = 1.0
    time_unit: str = ""
    ratio: float = 1.0
    bounded: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.unit < np.inf:
            raise ConfigError(f"a clock's unit is a positive number; got {self.unit}")

    @classmethod
    def fit(cls, t: np.ndarray, time_unit: str = "", gap_unit: GapUnit = "median") -> Clock:
        """Return the clock of training events at times t (E,), sorted.

        Args:
            time_unit: of t.
            gap_unit: "median" of the gaps between successive events that are not 0 (1 where there is none), "seconds"
                where time_unit is known, or "raw" numbers as they stand, for runs of version 0.1.0.

        Raises:
            ConfigError: an unknown gap_unit.
        """
        if gap_unit not in get_args(GapUnit):
            raise ConfigError(f"gap_unit is one of {', '.join(get_args(GapUnit))}; got {gap_unit!r}")
        if gap_unit == "raw":
            return cls(bounded=False)
        if gap_unit == "seconds":
            return cls(unit=UNITS["s"] / UNITS.get(time_unit, UNITS["s"]), time_unit=time_unit)
        return cls.of_gaps(elapsed(t[1:], t[:-1]), time_unit)

    @classmethod
    def of_gaps(cls, gaps: np.ndarray, time_unit: str = "") -> Clock:
        """Return the clock whose unit is the median of gaps (Q,) that are not 0; 1 where there is none."""
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

    def log_gaps(self, later: np.ndarray, earlier: np.ndarray, never: float = np.inf) -> np.ndarray:
        """Return (Q,) float64 ln(1 + gap); below never, which stands for a gap without a beginning, if bounded."""
        found = np.log1p(self.gaps(later, earlier))
        return np.minimum(found, np.nextafter(np.float32(never), np.float32(0))) if self.bounded else found


def elapsed(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Return later - earlier, or 0 where that is negative: uint64 of integers, exact over any span, else float64."""
    later, earlier = np.asarray(later), np.asarray(earlier)
    if later.dtype.kind == "f" or earlier.dtype.kind == "f":
        return np.maximum(later.astype(np.float64) - earlier, 0.0)
    difference = later.astype(np.int64, copy=False) - earlier.astype(np.int64, copy=False)  # may wrap, rightly so
    return np.where(later >= earlier, difference.view(np.uint64), np.uint64(0))
