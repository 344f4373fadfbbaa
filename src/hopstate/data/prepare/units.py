"""Times in two units across the files of a source: a file in seconds beside a file in milliseconds.

Files that follow each other in time have no hole between them, or a short one. Files in two units stand apart by 10^3,
10^6 or 10^9, and one of two things more is true: as dates since 1970 both lie between 1990 and 2100, each in its own
unit, or the mean time between events differs by the same power. A stream of one unit that looks so all the same is
taken once its unit is given (`time_unit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopstate.data.event_build import UNITS
from hopstate.errors import DataError

POWERS = (10**3, 10**6, 10**9)
HOLE = 100  # times later than all before: no two files that follow each other
NEAR = 3.0  # how far from a power the hole may be, as a factor
RATE = 10.0  # how far from it the mean times between events may be
SAME = 1.2  # as NEAR and RATE, of files that begin at nought alike
FEW = 10  # events that give no rate
CALENDAR = (631_152_000, 4_102_444_800)  # 1990 and 2100, seconds since 1970


@dataclass(frozen=True)
class Range:
    """The times of a file.

    Args:
        file: its place among the source's.
        least, most: first and last time.
        count: events.
    """

    file: int
    least: float
    most: float
    count: int


def check_units(facts: Sequence[dict[str, Any]], files: Sequence[Path]) -> None:
    """Refuse files whose numbers of time are of two units.

    Args:
        facts: of the pieces, with least and most; those of an older version have none and are not checked.
        files: the source's.

    Raises:
        DataError: two files look so; they are named.
    """
    ranges = sorted(_ranges(facts), key=lambda one: one.most)
    for at in range(1, len(ranges)):
        fine = ranges[at:]
        found = _power(ranges[:at], fine)
        if found is None:
            continue
        power, units = found
        first, other = (f"{files[one.file]} ({one.least:.10g} to {one.most:.10g})" for one in (ranges[at - 1], fine[0]))
        what = f"{units[0]} there and {units[1]} here" if units else "two units"
        raise DataError(
            f"times of {other} are about {power:,} times those of {first}, as if counted in {what}; write all files "
            "in one unit, or where they are so already give it (--read.time_unit s)"
        )


def _ranges(facts: Sequence[dict[str, Any]]) -> list[Range]:
    """Return the range of each file, none where a time is negative or not known."""
    found: dict[int, Range] = {}
    for fact in facts:
        if "least" not in fact or fact["least"] < 0:
            return []
        one = Range(fact["file"], fact["least"], fact["most"], fact["count"])
        other = found.get(one.file, one)
        count = one.count + (0 if other is one else other.count)
        found[one.file] = Range(one.file, min(one.least, other.least), max(one.most, other.most), count)
    return list(found.values())


def _power(low: Sequence[Range], high: Sequence[Range]) -> tuple[int, tuple[str, str] | None] | None:
    """Return by which power two groups of files differ, and their units where the calendar tells; None for no power."""
    start, end = min(one.least for one in high), max(one.most for one in low)
    rate = _gap(high) / _gap(low) if _gap(low) else 0.0
    if end > 0 and start >= HOLE * end:
        units = _calendar(low), _calendar(high)
        for power in POWERS:
            if units[0] and units[1] and UNITS[units[0]] == power * UNITS[units[1]]:
                return power, (units[0], units[1])
            if _within(start / end, power, NEAR) and _within(rate, power, RATE):
                return power, None
    if end > 0 and all(HOLE * one.least <= one.most for one in (*low, *high)):
        ends = min(one.most for one in high) / end
        for power in POWERS:
            if _within(ends, power, SAME) and _within(rate, power, SAME):
                return power, None
    return None


def _gap(some: Sequence[Range]) -> float:
    """Return the mean time between events within files; 0 where they are too few to tell."""
    count = sum(one.count for one in some)
    return sum(one.most - one.least for one in some) / count if count >= FEW else 0.0


def _within(value: float, power: int, factor: float) -> bool:
    return power / factor <= value <= power * factor


def _calendar(some: Sequence[Range]) -> str | None:
    """Return the unit in which all times lie between 1990 and 2100."""
    least, most = min(one.least for one in some), max(one.most for one in some)
    for unit, size in UNITS.items():
        scale = UNITS["s"] // size
        if CALENDAR[0] * scale <= least and most <= CALENDAR[1] * scale:
            return unit
    return None
