"""The order by look-ups alone, and who is a candidate at all, however the events came."""

import numpy as np
import pytest

from hopstate.data.events import DELETE, EventStream
from hopstate.data.stream_state import StreamState
from hopstate.runs.queries.pool import usual_candidates
from hopstate.runs.queries.rule import BUSY, Rule


def _past(stream: EventStream, places: list[int]) -> StreamState:
    state = StreamState()
    for a, b in zip([0, *places], [*places, len(stream)], strict=True):
        columns = {name: getattr(stream, name)[a:b].copy() for name in ("src", "dst", "t")}
        kind = None if stream.kind is None else stream.kind[a:b].copy()
        part = EventStream(**columns, kind=kind, num_nodes=stream.num_nodes, from_start=False)
        state = state.joined(part, again=True)[1]
    return state


def _events(*, bipartite: bool = False, deletes: bool = False) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, 3_000), rng.integers(0, 30, 3_000) + 25 * bipartite
    kind, t = None, np.sort(rng.integers(0, 900, 3_000))
    if deletes:  # of each event before
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
            np.testing.assert_array_equal(usual_candidates(_past(stream, places), t), expected)


def test_a_rule_is_the_same_however_the_past_is_cut() -> None:
    stream = _events()
    whole = Rule(_past(stream, []))
    for places in ([5], [1_000, 2_000], list(range(100, 3_000, 100))):
        cut = Rule(_past(stream, places))
        for source, t in ((3, 900), (7, 2_000), (-1, 500), (4, 1), (0, 0)):
            rows = np.append(np.arange(0, 60, 2), -1)
            assert np.array_equal(cut.best(source, rows, t, 9), whole.best(source, rows, t, 9))


def test_the_others_come_by_how_busy_they_were_of_late() -> None:
    """What lies further back than so many events counts for nothing, wherever layers are cut."""
    src, dst = np.zeros(3 * BUSY, np.int64), np.full(3 * BUSY, 1)
    dst[: 2 * BUSY], dst[-3:] = 2, 3  # 2 was busy, long ago
    stream = EventStream(src=src, dst=dst, t=np.arange(3 * BUSY), num_nodes=5)
    for places in ([], [BUSY // 2], [2 * BUSY + 1, 3 * BUSY - 2]):
        rule = Rule(_past(stream, places))
        assert rule.best(-1, np.array([4, 2, 3, 1]), 3 * BUSY, 2).tolist() == [2, 3]
        assert rule.best(-1, np.array([4, 2, 3, 1]), 2 * BUSY, 1).tolist() == [1]
