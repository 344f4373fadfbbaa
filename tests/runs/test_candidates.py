"""Candidates, and the prefilter's order of candidates, for any cut of events."""

import numpy as np
import pytest

from hopstate.data.events import DELETE, EventStream
from hopstate.data.stream_state import StreamState
from hopstate.runs.queries import Prefilter, default_candidates, prefilter_recall_on


def _past(stream: EventStream, places: list[int]) -> StreamState:
    state = StreamState()
    for a, b in zip([0, *places], [*places, len(stream)], strict=True):
        columns = {name: getattr(stream, name)[a:b].copy() for name in ("src", "dst", "t")}
        kind, relation = (None if c is None else c[a:b].copy() for c in (stream.kind, stream.relation))
        facts = {
            name: getattr(stream, name) for name in ("num_nodes", "relation_names", "node_type", "node_type_names")
        }
        part = EventStream(**columns, kind=kind, relation=relation, **facts, from_start=False)
        state = state.joined(part, allow_duplicates=True)[1]
    return state


def _events(*, bipartite: bool = False, deletes: bool = False) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, 3_000), rng.integers(0, 30, 3_000) + 25 * bipartite
    kind, t = None, np.sort(rng.integers(0, 900, 3_000))
    if deletes:  # before each event
        gone = np.flatnonzero(rng.random(1_500) < 0.4) * 2 + 1
        kind = np.zeros(3_000, np.int8)
        src[gone], dst[gone], kind[gone] = src[gone - 1], dst[gone - 1], DELETE
    return EventStream(src=src, dst=dst, t=t, kind=kind, num_nodes=60, from_start=False)


@pytest.mark.parametrize("bipartite", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_candidates_are_the_nodes_of_earlier_added_edges(bipartite: bool, deletes: bool) -> None:
    stream = _events(bipartite=bipartite, deletes=deletes)
    for t in (0, 1, 40, 450, 899, 2_000):
        rows = stream.additions(np.flatnonzero(stream.t < t))
        src, expected = np.unique(stream.src[rows]), np.unique(stream.dst[rows])
        if np.intersect1d(src, expected).size:
            assert not bipartite
            expected = np.union1d(src, expected)
        for places in ([], [1, 7], [1_000, 2_999], list(range(100, 3_000, 100))):
            np.testing.assert_array_equal(default_candidates(_past(stream, places), t), expected)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("bipartite", [False, True])
def test_candidates_of_a_relation_are_the_nodes_of_its_events(bipartite: bool, typed: bool) -> None:
    relation = np.random.default_rng(1).integers(0, 40, 3_000).astype(np.int32)  # most events connect a few nodes
    stream = _events(bipartite=bipartite).with_(relation=relation, relation_names=tuple(map(str, range(41))))
    types = (np.arange(60) % 6).astype(np.int16)
    if typed:
        stream = stream.with_(node_type=types, node_type_names=tuple("abcdef"))
    for places in ([], [1, 7], [1_000, 2_999], list(range(100, 3_000, 100))):
        past = _past(stream, places)
        for r in (0, 17, 40):
            for t in (1, 40, 450, 2_000):
                rows = np.flatnonzero((stream.t < t) & (relation == r))
                src, expected = np.unique(stream.src[rows]), np.unique(stream.dst[rows])
                if typed:
                    active = np.union1d(stream.src[stream.t < t], stream.dst[stream.t < t])
                    expected = active[np.isin(types[active], types[expected])]
                elif np.intersect1d(src, expected).size:
                    expected = np.union1d(src, expected)
                np.testing.assert_array_equal(default_candidates(past, t, r), expected)


def test_a_prefilter_does_not_depend_on_how_the_history_is_cut() -> None:
    stream = _events()
    whole = Prefilter(_past(stream, []))
    for places in ([5], [1_000, 2_000], list(range(100, 3_000, 100))):
        cut = Prefilter(_past(stream, places))
        for source, t in ((3, 900), (7, 2_000), (-1, 500), (4, 1), (0, 0)):
            rows = np.append(np.arange(0, 60, 2), -1)
            assert np.array_equal(cut.best(source, rows, t, 9), whole.best(source, rows, t, 9))


def test_latest_partners_come_first_then_common_neighbors_then_popularity() -> None:
    """Node 0 has events with 10 and 11; 1 with 10 and 12; 13 has the most events."""
    src = np.array([0, 0, 1, 1, 2, 2, 3, 2])
    dst = np.array([10, 11, 10, 12, 13, 13, 14, 13])
    past = _past(EventStream(src=src, dst=dst, t=np.arange(8), num_nodes=20), [])
    prefilter = Prefilter(past)
    pool = np.arange(10, 16)
    kept = [pool[prefilter.best(0, pool, 8, count)].tolist() for count in range(1, 7)]
    new = [next(iter(set(some) - set(before))) for before, some in zip([[], *kept], kept)]
    assert new == [11, 10, 13, 12, 14, 15]  # items have no common neighbors with a buyer


def test_common_neighbors_come_before_popularity() -> None:
    src, dst = np.array([0, 1, 3, 3, 3, 4]), np.array([1, 2, 4, 5, 4, 5])
    prefilter = Prefilter(_past(EventStream(src=src, dst=dst, t=np.arange(6), num_nodes=7), []))
    assert prefilter.best(0, np.array([4, 2]), 6, 1).tolist() == [1]


def test_only_latest_events_count_for_popularity() -> None:
    window = Prefilter.window
    src, dst = np.zeros(3 * window, np.int64), np.full(3 * window, 1)
    dst[: 2 * window], dst[-3:] = 2, 3  # 2 was popular long ago
    stream = EventStream(src=src, dst=dst, t=np.arange(3 * window), num_nodes=5)
    for places in ([], [window // 2], [2 * window + 1, 3 * window - 2]):
        prefilter = Prefilter(_past(stream, places))
        assert prefilter.best(-1, np.array([4, 2, 3, 1]), 3 * window, 2).tolist() == [2, 3]
        assert prefilter.best(-1, np.array([4, 2, 3, 1]), 2 * window, 1).tolist() == [1]


def test_recall_is_the_fraction_of_events_whose_destination_is_kept() -> None:
    stream = EventStream(src=np.array([0, 1, 0, 1, 0]), dst=np.array([5, 6, 5, 5, 7]), t=np.arange(5), num_nodes=8)
    assert prefilter_recall_on(stream, np.array([2, 3]), 1) == 0.5  # 0-5 is a repeat pair, 1-5 is a new pair
    assert prefilter_recall_on(stream, np.array([2, 3]), 2) == 1
    assert prefilter_recall_on(stream, np.array([4]), 9) == 0  # 7 has no event
    assert np.isnan(prefilter_recall_on(stream, np.empty(0, np.int64), 1))
