"""Splits of an event stream: chronological, DyGLib's transductive/inductive, by date, and fixed masks.

Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib), for `dyglib_split`; its new nodes depend on CPython's order of a
set of integers, reproduced here with the ids of the data set (1..N where the stream has no vocabulary of integers).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hopstate.data.dates import parse_times
from hopstate.data.events import EventStream
from hopstate.data.stretch import stretch
from hopstate.errors import ConfigError, DataError
from hopstate.io.scratch import let_go

_EMPTY = np.empty(0, np.int64)
IN_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DURATIONS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # letter to seconds
_EXACT = 2**53  # up to which float64 holds every integer
EVENT_SPLITS = ("train", "val", "test", "new_val", "new_test")


@dataclass(frozen=True, eq=False, kw_only=True)
class EventSplit:
    """Positions of a stream's events, ascending, for training, validation and testing.

    Args:
        train, val, test: int64 positions.
        new_val, new_test: those of val and test that touch a node absent from training (the "inductive" rows).
        new_nodes: nodes whose events were taken out of training, or empty.
        val_time, test_time: training ends at val_time (inclusive), validation at test_time.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    new_val: np.ndarray = field(default_factory=_EMPTY.copy)
    new_test: np.ndarray = field(default_factory=_EMPTY.copy)
    new_nodes: np.ndarray = field(default_factory=_EMPTY.copy)
    val_time: float = float("nan")
    test_time: float = float("nan")

    def rows(self, split: str) -> np.ndarray:
        """Return the positions of "train", "val", "test", "new_val" or "new_test"."""
        if split not in EVENT_SPLITS:
            raise ConfigError(f"unknown split {split!r}; known: {', '.join(EVENT_SPLITS)}")
        return getattr(self, split)


def chronological_split(stream: EventStream, *, val_ratio: float = 0.15, test_ratio: float = 0.15) -> EventSplit:
    """Split by the quantiles of the times of the data's own events; ties are never cut.

    Events up to the first train, after the second test. Deletions that follow from those of nodes have no say in it.

    Raises:
        ConfigError: ratios that are not positive or leave nothing.
        DataError: no training, validation or test events remain.
    """
    val_time, test_time = _quantiles(stream, val_ratio, test_ratio)
    return split_at(stream, val_time, test_time)


def split_at(stream: EventStream, val_time: Any, test_time: Any) -> EventSplit:
    """Split by time: training t <= val_time, validation val_time < t <= test_time, test later.

    Args:
        val_time, test_time: in the stream's unit; or dates (`datetime`, or text such as "2024-03-01") where the
            stream's time_unit is s, ms, us or ns since 1970. A date without a zone is in that of the stream's dates.

    Raises:
        ConfigError: the times are out of order, or dates on a stream whose unit is unknown.
        DataError: no training, validation or test events remain.
    """
    low, high = parse_times([val_time, test_time], stream.time_unit, stream.dates, stream.name)
    if low > high:
        raise ConfigError(f"val_time {val_time} must not be after test_time {test_time}")
    first, second = np.searchsorted(stream.t, [low, high], side="right")
    rows = np.arange(len(stream))
    return _finish(stream, rows[:first], rows[first:second], rows[second:], _EMPTY, low, high)


def split_by_masks(stream: EventStream, masks: dict[str, np.ndarray]) -> EventSplit:
    """Split by fixed boolean masks over the events, named train, val and test.

    Raises:
        DataError: a mask is missing, has the wrong length, overlaps another or is empty.
    """
    for name in ("train", "val", "test"):
        if name not in masks or masks[name].shape != (len(stream),) or masks[name].dtype != bool:
            raise DataError(f"{stream.name}: need a boolean mask {name!r} of shape ({len(stream)},)")
    if (masks["train"].astype(int) + masks["val"] + masks["test"]).max(initial=0) > 1:
        raise DataError(f"{stream.name}: an event is in more than one of train, val and test")
    train, val, test = (np.flatnonzero(masks[name]) for name in ("train", "val", "test"))
    times = (float(stream.t[rows[-1]]) if len(rows) else float("nan") for rows in (train, val))
    return _finish(stream, train, val, test, _EMPTY, *times)


def dyglib_split(
    stream: EventStream, *, val_ratio: float = 0.15, test_ratio: float = 0.15, new_ratio: float = 0.1, seed: int = 2020
) -> EventSplit:
    """Split as DyGLib: by quantiles of time; a tenth of the nodes, drawn from those seen later, leave training.

    Args:
        val_ratio, test_ratio: shares of the time span's events.
        new_ratio: share of all nodes to draw.
        seed: of `random.sample`.

    Raises:
        ConfigError: ratios that are not positive or leave nothing.
        DataError: no training, validation or test events remain.
    """
    val_time, test_time = _quantiles(stream, val_ratio, test_ratio)
    ids = np.arange(1, stream.num_nodes + 1)
    if stream.node_ids is not None and stream.node_ids.ids.dtype.kind == "i":
        ids = stream.node_ids.ids
    later = int(np.searchsorted(stream.t, val_time, side="right"))
    # The order of this set decides who is drawn, so it is built exactly as there: sources, then destinations.
    pool = set(ids[stream.src[later:]].tolist()).union(set(ids[stream.dst[later:]].tolist()))
    met = len(np.union1d(stream.src, stream.dst))
    count = int(new_ratio * met)
    if count > len(pool):
        raise ConfigError(f"new_ratio {new_ratio} asks for {count} new nodes, only {len(pool)} are seen after training")
    drawn = random.Random(seed).sample(tuple(pool), count)
    new = np.flatnonzero(np.isin(ids, drawn))
    second = int(np.searchsorted(stream.t, test_time, side="right"))
    rows = np.arange(len(stream))
    kept = rows[:later][~_touches(stream, rows[:later], new)]
    return _finish(stream, kept, rows[later:second], rows[second:], new, val_time, test_time)


def _touches(stream: EventStream, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    among = np.zeros(stream.num_nodes, bool)
    among[nodes] = True
    part = stretch(rows)
    return among[stream.src[part]] | among[stream.dst[part]]


def _finish(
    stream: EventStream,
    train: np.ndarray,
    val: np.ndarray,
    test: np.ndarray,
    new_nodes: np.ndarray,
    val_time: float,
    test_time: float,
) -> EventSplit:
    for name, rows in (("training", train), ("validation", val), ("test", test)):
        if not len(rows):
            raise DataError(
                f"{stream.name}: the split leaves no {name} events (train {len(train)}, val {len(val)}, "
                f"test {len(test)}); choose other ratios or times, or more data"
            )
    unseen = np.ones(stream.num_nodes, bool)
    part = stretch(train)
    unseen[stream.src[part]] = False
    unseen[stream.dst[part]] = False
    absent = np.flatnonzero(unseen)
    new_val, new_test = (rows[_touches(stream, rows, absent)] for rows in (val, test))
    let_go(stream.src, stream.dst, stream.t)
    return EventSplit(
        train=train,
        val=val,
        test=test,
        new_val=new_val,
        new_test=new_test,
        new_nodes=new_nodes,
        val_time=float(val_time),
        test_time=float(test_time),
    )


def _quantiles(stream: EventStream, val_ratio: float, test_ratio: float) -> tuple[float | int, float | int]:
    if not (val_ratio > 0 and test_ratio > 0 and val_ratio + test_ratio < 1):
        raise ConfigError(f"val_ratio {val_ratio} and test_ratio {test_ratio} must be positive and leave training data")
    if not len(stream):
        raise DataError(f"{stream.name}: the stream is empty; there is nothing to split")
    shares = [1 - val_ratio - test_ratio, 1 - test_ratio]
    t = stream.t
    if t.dtype.kind == "i" and max(abs(int(t[0])), abs(int(t[-1]))) > _EXACT:  # such as nanoseconds since 1970
        return _between(t, shares[0]), _between(t, shares[1])
    return _quantile(t, shares[0]), _quantile(t, shares[1])


def _quantile(t: np.ndarray, share: float) -> float:
    """Return `np.quantile` of rising numbers, which would copy and part them, to the bit.

    >>> _quantile(np.array([1, 2, 4]), 0.75)
    3.0
    """
    place = share * (len(t) - 1)
    low = int(place)
    a, b = t[low], t[min(low + 1, len(t) - 1)]
    return float(np.quantile(np.array([a, b]), place - low)) if b != a else float(a)


def _between(t: np.ndarray, share: float) -> int:
    """Return the quantile of rising whole numbers by linear interpolation, rounded down; only a gap is ever a float."""
    place = share * (len(t) - 1)
    low = int(place)
    gap = int(t[min(low + 1, len(t) - 1)]) - int(t[low])
    return int(t[low]) + min(math.floor((place - low) * gap), max(gap - 1, 0))


# ---- windows of a fixed duration ---------------------------------------------------------------------------------
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
