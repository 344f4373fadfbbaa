"""Values of an event's fields as a run has them: ids, times, numbers; what is none is told by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError
from hopstate.io.files import is_broken
from hopstate.runs.asking import LAST, times_in
from hopstate.serving.event_columns import ID, LONGEST


def listed(names: Sequence[str]) -> str:
    """Return names of fields for a message, the first few of many."""
    told = [repr(name[:40]) for name in names[:5]]
    return ", ".join(told) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def id_as_read(value: Any, end: str, k: int, text: bool) -> str | int:
    """Return an id as the run has them, texts or whole numbers; a text is never read as a number it looks like."""
    if not text and type(value) is int and 0 <= value < LAST:
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"event {k}: {end} is an id, text or a whole number; got {value!r}")
    if text:
        found = str(value) if isinstance(value, str) or abs(value) <= LAST else ""
        if not found or "\0" in found or len(found) > LONGEST or (not found.isascii() and is_broken(found)):
            raise DataError(f"event {k}: {end} is an id without NUL of 1 to {LONGEST} characters; got {found[:40]!r}")
        return found
    if isinstance(value, str) and not (value.isascii() and value.isdecimal() and str(int(value[:20])) == value):
        raise DataError(f"event {k}: {end}: ids of this run are whole numbers; got {value[:40]!r}")
    if not 0 <= int(value) < LAST:
        raise DataError(f"event {k}: {end}: {value} is no id of this run, whose ids are whole numbers of 63 bits")
    return int(value)


def number_as_read(value: Any, name: str, k: int, kinds: list[Any]) -> float | None:
    """Return a feature as a finite number; a deletion may leave it out."""
    if value is None and kinds == ["delete"]:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise OverflowError
        return float(value)
    except OverflowError:
        raise DataError(f"event {k}: feature {name} is a finite number; got {value!r}") from None


def times_as_read(past: StreamState, given: list[Any], places: Sequence[int], dates: str) -> np.ndarray:
    """Return times (n,) in the past's unit and type, each read by itself."""
    for k, value in zip(places, given, strict=True):
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise DataError(f"event {k}: t is a number in the unit of the run's own data, or a date; got {value!r}")
        if isinstance(value, int) and abs(value) > LAST:
            raise DataError(f"event {k}: {value} is no time of this run, whose times are of 64 bits")
    try:
        if len(set(map(type, given))) == 1 and not isinstance(given[0], str):
            return times_in(past, np.array(given), dates)
        # each by itself: whole numbers beside others would be rounded as these are
        each = [times_in(past, np.array([value], object if isinstance(value, str) else None), dates) for value in given]
        return np.concatenate(each)
    except ConfigError as error:
        raise DataError(str(error)) from None


def id_of(event: Mapping[str, Any]) -> str | None:
    """Return an event's own id, None where it has none.

    Raises:
        DataError: it is no object, or the id is none.
    """
    if not isinstance(event, Mapping):
        raise DataError(f"an event is an object with fields; got {event!r}")
    found = event.get(ID)
    if found is not None and (isinstance(found, bool) or not isinstance(found, (str, int))):
        raise DataError(f"an event's {ID} is text or a whole number; got {found!r}")
    if isinstance(found, int) and abs(found) > LAST:
        raise DataError(f"an event's {ID} is text, or a whole number of 64 bits")
    if isinstance(found, str) and (len(found) > LONGEST or (not found.isascii() and is_broken(found))):
        raise DataError(f"an event's {ID} has up to {LONGEST} characters; got {found[:40]!r}")
    return None if found is None else str(found)
