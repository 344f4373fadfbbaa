"""Splits of an event stream by windows of a fixed duration: train to then, choose on one week, score the next."""

from __future__ import annotations

import math
from typing import Any

from hopstate.data.event_splits import IN_SECOND, EventSplit, split_at
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError

_DURATIONS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def split_windows(stream: EventStream, window: Any) -> EventSplit:
    """Split by a fixed duration before the last event: that long test, as long before it validation, training earlier.

    Args:
        window: a number in the stream's unit; or a duration as `parse_duration` takes it.

    Raises:
        ConfigError: no such duration, or one that leaves no time for training.
        DataError: no training, validation or test events remain.
    """
    length, end = parse_duration(stream, window), stream.t[-1].item()
    low, high = end - 2 * length, end - length
    if low < stream.t[0]:
        raise ConfigError(
            f"two windows of {window} are {2 * length:g} of the stream's {end - stream.t[0].item():g} units of time "
            "and leave none for training; give a shorter split.window"
        )
    return split_at(stream, low, high)


def parse_duration(stream: EventStream, duration: Any) -> float | int:
    """Return a duration in the stream's unit; a whole number of a stream of integers, exact.

    Args:
        stream: whose unit.
        duration: a number in it, or text such as 30s, 15m, 12h, 7d or 4w where the unit is s, ms, us or ns.

    Raises:
        ConfigError: neither of these, not above 0, or a duration on a stream whose unit is unknown.

    >>> import numpy as np
    >>> one = np.zeros(1, np.int64)
    >>> parse_duration(EventStream(src=one, dst=one, t=one, num_nodes=1, time_unit="ms"), "2h")
    7200000
    """
    text = str(duration).strip()
    factor, number = 1, text
    if text and text[-1] in _DURATIONS:
        if stream.time_unit not in IN_SECOND:
            raise ConfigError(
                f"{stream.name}: what a time counts in is unknown, so {text!r} means nothing; say it "
                "(--read.time_unit s) or give the window as a number in the file's own unit"
            )
        factor, number = _DURATIONS[text[-1]] * IN_SECOND[stream.time_unit], text[:-1]
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"{duration!r} is no duration above 0 such as 12h, 7d or 3600 (in the stream's unit)")
    length = value * factor
    return max(1, round(length)) if stream.t.dtype.kind == "i" else length
