"""Counting events between two times equals a naive count, for every type and with ties."""

import numpy as np
import pytest

from hopstate.data.events import ADD, DELETE, EventStream
from hopstate.data.neighbor_store import EventTimes, NeighborStore
from hopstate.data.stream_state import StreamState


def counted(t: np.ndarray, after: np.ndarray, before: np.ndarray) -> np.ndarray:
    pairs = zip(*(x.ravel().tolist() for x in np.broadcast_arrays(after, before)), strict=True)
    return np.array([sum(a < x < b for x in t.tolist()) for a, b in pairs]).reshape(np.broadcast(after, before).shape)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_counts_equal_a_naive_count(kind: type) -> None:
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(-5, 25, 90)).astype(kind)  # with ties
    after, before = rng.integers(-8, 28, (40, 3)).astype(kind), rng.integers(-8, 28, (40, 1)).astype(kind)
    np.testing.assert_array_equal(EventTimes(t).between(after, before), counted(t, after, before))
    without = EventTimes(t, hidden=t[40].item())
    np.testing.assert_array_equal(without.between(after, before), counted(np.delete(t, 40), after, before))


def test_empty_streams_and_extreme_time_ranges() -> None:
    low, high = np.array([-(2**63)]), np.array([2**63 - 1])
    assert EventTimes(np.empty(0, np.int64)).between(low, high).tolist() == [0]
    t = np.array([-(2**63), -3, 2**62, 2**62 + 1, 2**63 - 1])
    assert EventTimes(t).between(low, high).tolist() == [3]


@pytest.mark.parametrize("deletes", [False, True])
def test_event_times_of_stores_and_states(deletes: bool) -> None:
    """Built, appended and from a state: the times of the same events, self pairs once."""
    rng = np.random.default_rng(1)
    src, dst, t = rng.integers(0, 4, 50), rng.integers(0, 4, 50), np.sort(rng.integers(0, 30, 50))
    kind = None
    if deletes:  # each edge is deleted immediately after it was added
        kind = np.resize(np.array([ADD, DELETE], np.int8), 100)
        src, dst, t = np.repeat(src, 2), np.repeat(dst, 2), np.repeat(t, 2)
    stream = EventStream(src=src, dst=dst, t=t, num_nodes=4, kind=kind)
    added = stream.additions()
    assert (src == dst).any()
    built, grown, past = NeighborStore.from_stream(stream), NeighborStore(4, time_dtype=np.int64), StreamState()
    for part in np.array_split(added, 7):
        grown.append(src[part], dst[part], t[part])
    for a in range(0, len(stream), 9):
        past = past.joined(_bare(stream, a, a + 9), allow_duplicates=True)[1]
    for store in (built, grown, past.store()):
        np.testing.assert_array_equal(store.event_times().times, t[added])


def _bare(stream: EventStream, first: int, stop: int) -> EventStream:
    """Return some of the events as a stream with its own numbers."""
    kind = None if stream.kind is None else stream.kind[first:stop].copy()
    columns = {name: getattr(stream, name)[first:stop].copy() for name in ("src", "dst", "t")}
    return EventStream(**columns, num_nodes=4, kind=kind, from_start=False)
