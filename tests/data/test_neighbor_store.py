"""The neighbour store against its definition, for streams with ties, self-events and appended batches."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.ops.neighbors import PackedNeighbors, cooccurrence, cooccurrence_naive, last_meeting_naive, last_naive


def random_events(seed: int, num_events: int = 200, num_nodes: int = 7, span: int = 40, floats: bool = False):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, num_nodes, (2, num_events))
    t = np.sort(rng.integers(0, span, num_events))  # many ties; some self-events
    return src, dst, t / 4 if floats else t


def assert_same(a: PackedNeighbors, b: PackedNeighbors) -> None:
    for name in ("offsets", "nodes", "event_ids", "times"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        assert getattr(a, name).dtype == getattr(b, name).dtype, name


def queries(seed: int, num_nodes: int = 7, span: int = 40, count: int = 60):
    rng = np.random.default_rng(seed + 1)
    return rng.integers(0, num_nodes, count), rng.integers(-1, span + 2, count)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("k", [0, 1, 5, 1000])
def test_last_equals_the_definition(k, floats):
    src, dst, t = random_events(k, floats=floats)
    nodes, times = queries(k)
    times = times / 4 if floats else times
    assert_same(NeighborStore.from_events(src, dst, t).last(nodes, times, k), last_naive(src, dst, t, nodes, times, k))


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    k=st.integers(0, 8),
)
def test_appending_in_any_batches_equals_one_build(events, cuts, k):
    src, dst, t = np.array(sorted(events, key=lambda e: e[2]), np.int64).reshape(-1, 3).T
    store = NeighborStore(6, time_dtype=np.int64)
    edges = [0, *sorted(min(c, len(src)) for c in cuts), len(src)]
    for a, b in itertools.pairwise(edges):
        store.append(src[a:b], dst[a:b], t[a:b])
    nodes, times = np.repeat(np.arange(6), 11), np.tile(np.arange(11), 6)
    assert_same(store.last(nodes, times, k), last_naive(src, dst, t, nodes, times, k))


def test_a_long_live_stream_stays_correct_and_compact():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 50, (2, 20_000)) ** 2 // 50  # uneven degrees
    t = np.sort(rng.integers(0, 5000, 20_000))
    store = NeighborStore(0, time_dtype=np.int64)
    for a in range(0, 20_000, 37):
        store.append(src[a : a + 37], dst[a : a + 37], t[a : a + 37])
    built = NeighborStore.from_events(src, dst, t)
    nodes, times = rng.integers(0, 49, 500), rng.integers(0, 5001, 500)
    assert_same(store.last(nodes, times, 30), built.last(nodes, times, 30))
    assert len(store.arrays()["codes"]) < 8 * len(built.arrays()["codes"])
    assert store.num_nodes == built.num_nodes
    assert len(built.arrays()["codes"]) == built.degrees_of(np.arange(built.num_nodes)).sum()  # no spare room


def test_append_continues_after_a_build():
    src, dst, t = random_events(3)
    store = NeighborStore.from_events(src[:150], dst[:150], t[:150], num_nodes=7)
    store.append(src[150:], dst[150:], t[150:])
    nodes, times = queries(3)
    assert_same(store.last(nodes, times, 9), last_naive(src, dst, t, nodes, times, 9))
    assert (store.num_events, store.last_time) == (200, t[-1])


def test_earlier_events_of_the_same_batch_are_visible_and_simultaneous_ones_are_not():
    store = NeighborStore.from_events(*np.array([[0, 1, 2], [1, 2, 0], [5, 6, 6]]))
    seen = store.last(np.array([1, 2, 0]), np.array([6, 6, 6]), 10)
    assert [list(seen.of(q)[1]) for q in range(3)] == [[0], [], [0]]


def test_a_self_event_is_stored_once():
    store = NeighborStore.from_events(np.array([0, 0]), np.array([0, 1]), np.array([1, 2]))
    nodes, ids, times = store.last(np.array([0]), np.array([9]), 10).of(0)
    assert (nodes.tolist(), ids.tolist(), times.tolist()) == ([0, 1], [0, 1], [1, 2])
    assert store.degrees_of(np.arange(2)).tolist() == [2, 1]
    last, found = store.last_meeting(np.array([0, 1]), np.array([0, 1]), np.array([9, 9]))
    assert (last[0], found.tolist()) == (1, [True, False])


def test_ties_are_ordered_by_event_id():
    store = NeighborStore.from_events(np.array([0, 3, 0]), np.array([1, 0, 2]), np.array([4, 4, 4]))
    assert store.last(np.array([0]), np.array([5]), 2).nodes.tolist() == [3, 2]


@pytest.mark.parametrize("directed", [False, True])
def test_last_meeting_equals_the_definition(directed):
    src, dst, t = random_events(11, num_events=400, num_nodes=6)
    u, times = queries(11, 6, count=300)
    v = np.random.default_rng(5).integers(0, 6, 300)
    store = NeighborStore.from_events(src, dst, t)
    for got, expected in zip(
        store.last_meeting(u, v, times, directed), last_meeting_naive(src, dst, t, u, v, times, directed), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_cooccurrence_equals_the_definition():
    src, dst, t = random_events(4)
    store = NeighborStore.from_events(src, dst, t)
    nodes, times = queries(4, count=40)
    u, v = store.last(nodes, times, 12), store.last(nodes[::-1], times, 7)
    for got, expected in zip(
        cooccurrence(u.offsets, u.nodes, v.offsets, v.nodes), cooccurrence_naive(u, v), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_fractions_over_integer_times_are_not_rounded():
    store = NeighborStore.from_events(np.array([0]), np.array([1]), np.array([2**60 + 1]))
    assert store.last(np.array([0]), np.array([2**60 + 1]), 1).lengths.tolist() == [0]
    assert store.last(np.array([0]), np.array([2**60 + 2]), 1).times.tolist() == [2**60 + 1]
    small = NeighborStore.from_events(np.array([0]), np.array([1]), np.array([2]))
    found = small.last(np.array([0, 0, 0, 0]), np.array([2.0, 2.5, np.inf, -np.inf]), 1)
    assert found.lengths.tolist() == [0, 1, 1, 0]


def test_an_empty_store_and_an_empty_query():
    store = NeighborStore(3)
    assert store.last(np.array([0, 2]), np.array([1.0, 2.0]), 4).lengths.tolist() == [0, 0]
    assert len(store.last(np.array([], np.int64), np.array([]), 4)) == 0
    store.append(np.array([], np.int64), np.array([], np.int64), np.array([]))
    assert store.num_events == 0


def test_bad_input_of_a_neighbor_store_is_named():
    store = NeighborStore.from_events(np.array([0]), np.array([1]), np.array([5]))
    one = np.array([0])
    with pytest.raises(TimeOrderError, match="5"):
        store.append(one, one, np.array([4]))
    with pytest.raises(TimeOrderError, match="1"):
        store.append(np.array([0, 0]), np.array([1, 1]), np.array([7, 6]))
    with pytest.raises(DataError):
        store.append(np.array([-1]), one, np.array([9]))
    with pytest.raises(DataError):
        store.append(one, one, np.array([9.5]))
    with pytest.raises(DataError):
        NeighborStore(2).append(one, one, np.array([np.nan]))
    with pytest.raises(DataError):
        store.append(one, one, np.array([np.nan]))
    assert store.num_events == 1
    with pytest.raises(DataError, match="2"):
        store.last(np.array([2]), one, 1)
    for fractions in (lambda: store.last(one + 0.5, one, 1), lambda: store.append(one, one + 0.5, one + 9)):
        with pytest.raises(DataError):
            fractions()
    with pytest.raises(DataError, match=r"(?i)nan"):
        store.last(one, np.array([np.nan]), 1)
    with pytest.raises(ShapeError):
        store.last(one, np.array([1, 2]), 1)
    with pytest.raises(ConfigError):
        store.last(one, one, -1)
    with pytest.raises(ConfigError, match="num_nodes"):
        NeighborStore(2**31)


def test_a_stream_part_keeps_the_ids_of_the_whole():
    src, dst, t = random_events(6)
    part = EventStream(src=src, dst=dst, t=t).slice(100, 200)
    ids = NeighborStore.from_stream(part).last(np.arange(7), np.full(7, 99), 500).event_ids
    assert (ids.min(), ids.max()) == (100, 199)
