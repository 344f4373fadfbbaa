"""Batches of consecutive events, and samples of whole batches from large splits.

The sample is stratified by time: a split is divided into equal segments, and one batch is drawn from each. Each batch
is evaluated independently of the others, so a metric on the sample estimates the metric on the split.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np

from hopstate.data.events import EventBatch, EventStream
from hopstate.errors import ConfigError, check_range
from hopstate.random import named_rng

BATCH = 200  # events per batch, as for the negatives
SEED = 0


def sample_batches(count: int, max_events: int | None, batch_size: int = BATCH) -> np.ndarray:
    """Return the sorted numbers of the batches to evaluate, at most max_events events; None takes all batches.

    >>> sample_batches(1000, None).tolist(), len(sample_batches(10**9, 10**6))
    ([0, 1, 2, 3, 4], 5000)
    """
    return stratified_sample(count, max_events, batch_size, named_rng(SEED, "judged"))


def epoch_batches(count: int, max_events: int | None, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """Return the sorted numbers of the batches for one training epoch, at most max_events events."""
    return stratified_sample(count, max_events, batch_size, named_rng(seed, "epoch-events", epoch))


def stratified_sample(count: int, max_events: int | None, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the sorted numbers of all batches of count events, or of a stratified sample of at most max_events events.

    The batches are divided into max_events // batch_size segments, and one batch is drawn from each.
    """
    batches = -(-count // batch_size)
    if max_events is None or count <= max_events:
        return np.arange(batches)
    bounds = np.linspace(0, batches, max(max_events // batch_size, 1) + 1).astype(np.int64)
    return rng.integers(bounds[:-1], bounds[1:])


def parse_count(name: str, value: int | Literal["all"]) -> int | None:
    """Return a setting that is a number (at least 1) or "all", as a number or None."""
    if value == "all":
        return None
    if isinstance(value, str):
        raise ConfigError(f"{name} must be a number or 'all': got {value!r}")
    check_range("", minimum=1, **{name: value})
    return value


def rows_of_batches(rows: np.ndarray, numbers: np.ndarray, batch_size: int = BATCH) -> np.ndarray:
    """Return the entries of rows (P,) that belong to the batches with the given sorted numbers (B,)."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return rows[numbers[0] * batch_size : (numbers[-1] + 1) * batch_size]
    at = (numbers[:, None] * batch_size + np.arange(batch_size)).reshape(-1)
    return rows[at[at < len(rows)]]


def sample_rows(rows: np.ndarray, max_events: int | None) -> np.ndarray:
    """Return the events to evaluate among a split's sorted rows (P,); see `sample_batches`."""
    return rows_of_batches(rows, sample_batches(len(rows), max_events))


def batch_boundaries(t: np.ndarray, batch_size: int, *, keep_ties: bool = True) -> np.ndarray:
    """Return the batch boundaries 0 = b_0 < b_1 < ... = E of events with sorted times t (E,).

    Args:
        t: (E,) sorted event times.
        batch_size: minimum number of events per batch, except for the last.
        keep_ties: extend a batch until all events with equal timestamps are in it. Otherwise a model could observe an
            event before it scores another event with the same timestamp. Default: True.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1: got {batch_size}")
    if not keep_ties:
        return np.append(np.arange(0, len(t), batch_size), len(t)) if len(t) else np.zeros(1, np.int64)
    edges = [0]
    while edges[-1] < len(t):
        last = min(edges[-1] + batch_size, len(t)) - 1
        edges.append(int(np.searchsorted(t, t[last], side="right")))
    return np.array(edges, np.int64)


def update_boundaries(t: np.ndarray, batch_size: int) -> np.ndarray:
    """Return the boundaries 0 = b_0 < b_1 < ... = E of the batches that update a node memory.

    As in `batch_boundaries`, events with equal timestamps stay in one batch. If there are more than batch_size of them,
    they are split into batches of at most batch_size events, which contain no other timestamp.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1: got {batch_size}")
    edges = [0]
    while (first := edges[-1]) < len(t):
        stop = min(first + batch_size, len(t))
        cut_before = first > 0 and t[first - 1] == t[first]  # the last boundary split equal timestamps
        time = t[first] if cut_before else t[stop - 1]
        low, high = (int(np.searchsorted(t, time, side)) for side in ("left", "right"))
        if high - low <= batch_size:
            edges.append(high)
        else:
            edges.append(low if low > first else min(stop, high))
    return np.array(edges, np.int64)


def split_batch(batch: EventBatch, batch_size: int) -> Iterator[EventBatch]:
    """Split a batch at its `update_boundaries`; an empty batch is yielded unchanged."""
    edges = update_boundaries(batch.t, batch_size)
    if len(edges) <= 2:
        yield batch
        return
    for a, b in pairwise(edges.tolist()):
        yield batch.take(slice(a, b))


def event_batches(
    stream: EventStream, rows: np.ndarray | None = None, *, batch_size: int = 200
) -> Iterator[EventBatch]:
    """Yield events in batches that never split equal timestamps.

    Args:
        stream: the event stream.
        rows: (P,) sorted positions of the events. Default: all events.
        batch_size: minimum number of events per batch. Default: 200.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> list(map(len, hopstate.event_batches(stream, batch_size=50)))
        [50, 50, 20]
    """
    rows = np.arange(len(stream)) if rows is None else rows
    for a, b in pairwise(batch_boundaries(stream.t[rows], batch_size)):
        yield stream.take(rows[a:b])
