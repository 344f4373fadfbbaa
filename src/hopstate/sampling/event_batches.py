"""How a stream is cut into batches of consecutive events, and which batches of a large split are evaluated.

Of a large split whole batches are taken, one drawn out of each of as many stretches. A batch of an evaluation does not
depend on which others are taken, so a metric of some batches estimates the metric of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np

from hopstate.data.events import EventBatch, EventStream
from hopstate.errors import ConfigError, check_range
from hopstate.random import named_rng

BATCH = 200  # events of a batch, that of the pairs drawn beside them
SEED = 0


def judged_batches(count: int, most: int | None, batch_size: int = BATCH) -> np.ndarray:
    """Return the rising numbers of the batches that are judged; see `spread_batches`. most: events, None for all.

    >>> judged_batches(1000, None).tolist(), len(judged_batches(10**9, 10**6))
    ([0, 1, 2, 3, 4], 5000)
    """
    return spread_batches(count, most, batch_size, named_rng(SEED, "judged"))


def epoch_batches(count: int, most: int | None, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """Return the rising numbers of the batches that an epoch takes of count training events, `most` at most."""
    return spread_batches(count, most, batch_size, named_rng(seed, "epoch-events", epoch))


def spread_batches(count: int, most: int | None, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rising numbers of all batches of count events, or of a sample of them.

    The sample is one batch drawn out of each of as many stretches as `most` events have batches.
    """
    batches = -(-count // batch_size)
    if most is None or count <= most:
        return np.arange(batches)
    bounds = np.linspace(0, batches, max(most // batch_size, 1) + 1).astype(np.int64)
    return rng.integers(bounds[:-1], bounds[1:])


def number_or_all(name: str, value: int | Literal["all"]) -> int | None:
    """Return a setting of the kind "a number, at least 1, or all": None for all."""
    if value == "all":
        return None
    if isinstance(value, str):
        raise ConfigError(f"{name} is a number, or 'all'; got {value!r}")
    check_range("", minimum=1, **{name: value})
    return value


def in_batches(rows: np.ndarray, numbers: np.ndarray, batch_size: int = BATCH) -> np.ndarray:
    """Return which rows (P,) of all batches stand in those of some numbers (B,), rising."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return rows[numbers[0] * batch_size : (numbers[-1] + 1) * batch_size]
    at = (numbers[:, None] * batch_size + np.arange(batch_size)).reshape(-1)
    return rows[at[at < len(rows)]]


def judged(rows: np.ndarray, most: int | None) -> np.ndarray:
    """Return which of a split's events rows (P,), rising, are judged; see `judged_batches`."""
    return in_batches(rows, judged_batches(len(rows), most))


def batch_boundaries(t: np.ndarray, batch_size: int, *, whole_ties: bool = True) -> np.ndarray:
    """Return positions 0 = b_0 < b_1 < ... = E that cut events of sorted times t (E,) into batches.

    whole_ties lets a batch grow to the end of the time it would have cut, so that no event is seen before another of
    the same time is scored.
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
    """Return positions 0 = b_0 < b_1 < ... = E that cut events of sorted times t (E,) into batches that move a memory.

    A batch grows to the end of the time that it would have cut, as in `batch_boundaries`; but more than batch_size
    events of one time are cut into batches of their own, of at most batch_size. So a batch holds whole times or a piece
    of one.
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
    stream: EventStream, rows: np.ndarray | None = None, *, batch_size: int = 200
) -> Iterator[EventBatch]:
    """Yield the events at rows (ascending; by default all) in batches that end where a time does."""
    rows = np.arange(len(stream)) if rows is None else rows
    for a, b in pairwise(batch_boundaries(stream.t[rows], batch_size)):
        yield stream.take(rows[a:b])
