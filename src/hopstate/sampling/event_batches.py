"""How a stream is cut into batches of consecutive events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from hopstate.data.events import EventBatch, EventStream
from hopstate.errors import ConfigError


def batch_boundaries(t: np.ndarray, batch_size: int, *, whole_ties: bool = True) -> np.ndarray:
    """Return positions 0 = b_0 < b_1 < ... = E that cut events sorted by time into batches.

    Args:
        t: (E,) times, sorted.
        batch_size: events in a batch, at least 1.
        whole_ties: let a batch grow to the end of the time it would have cut, so that no event is seen before
            another of the same time is scored.

    Raises:
        ConfigError: batch_size under 1.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
    if not whole_ties:
        return np.append(np.arange(0, len(t), batch_size), len(t)) if len(t) else np.zeros(1, np.int64)
    edges = [0]
    while edges[-1] < len(t):
        last = min(edges[-1] + batch_size, len(t)) - 1
        edges.append(int(np.searchsorted(t, t[last], side="right")))
    return np.array(edges, np.int64)


def piece_boundaries(t: np.ndarray, batch_size: int) -> np.ndarray:
    """Return positions 0 = b_0 < b_1 < ... = E that cut events sorted by time into batches that move a memory.

    A batch grows to the end of the time that it would have cut, as in `batch_boundaries`; but more than batch_size
    events of one time are cut into batches of their own, of at most batch_size. So a batch holds whole times or a piece
    of one.

    Args:
        t: (E,) times, sorted.
        batch_size: at least 1.

    Raises:
        ConfigError: batch_size under 1.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
    edges = [0]
    while (first := edges[-1]) < len(t):
        stop = min(first + batch_size, len(t))
        cut_before = first > 0 and t[first - 1] == t[first]  # in the midst of a time
        time = t[first] if cut_before else t[stop - 1]
        low, high = (int(np.searchsorted(t, time, side)) for side in ("left", "right"))
        if high - low <= batch_size:
            edges.append(high)
        else:
            edges.append(low if low > first else min(stop, high))
    return np.array(edges, np.int64)


def pieces(batch: EventBatch, batch_size: int) -> Iterator[EventBatch]:
    """Yield a batch cut at its `piece_boundaries`; an empty one stays as it is."""
    edges = piece_boundaries(batch.t, batch_size)
    if len(edges) <= 2:
        yield batch
        return
    for a, b in pairwise(edges.tolist()):
        yield batch.take(slice(a, b))


def event_batches(
    stream: EventStream,
    rows: np.ndarray | None = None,
    *,
    batch_size: int = 200,
    whole_ties: bool = True,
    start: int = 0,
) -> Iterator[EventBatch]:
    """Yield the events at rows (ascending; by default all) in batches, from batch number start on.

    Raises:
        ConfigError: batch_size under 1.
    """
    rows = np.arange(len(stream)) if rows is None else rows
    edges = batch_boundaries(stream.t[rows], batch_size, whole_ties=whole_ties)
    for a, b in zip(edges[start:-1], edges[start + 1 :], strict=True):
        yield stream.take(rows[a:b])
