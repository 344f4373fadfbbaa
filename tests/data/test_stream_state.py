"""A state accepts events: continued ids, time units, rejected events; states are immutable."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hopstate.data.events import DELETE, EventStream
from hopstate.data.neighbor_store import Column, NeighborStore
from hopstate.data.stream_state import Memories, StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, TimeOrderError


def events(t: list[float], **fields: Any) -> EventStream:
    rng = np.random.default_rng(len(t))
    return EventStream(src=rng.integers(0, 3, len(t)), dst=rng.integers(3, 5, len(t)), t=np.array(t), **fields)


def past(stream: EventStream) -> StreamState:
    return StreamState().joined(stream)[1]


def test_new_events_follow_in_the_same_rows() -> None:
    old = EventStream(
        src=np.array([0, 1]), dst=np.array([2, 2]), t=np.array([1, 2]), node_ids=Vocabulary(np.array(["a", "b", "c"]))
    )
    new = EventStream(
        src=np.array([3, 0]),
        dst=np.array([1, 2]),
        t=np.array([2, 5]),
        edge_attr=np.ones((2, 1), np.float32),
        node_ids=Vocabulary(np.array(["b", "c", "x", "y"])),
    )
    part, now = past(old).joined(new)
    whole = now.events()
    assert whole.node_ids is not None
    assert whole.node_ids.ids.tolist() == ["a", "b", "c", "y", "x"]
    assert whole.src.tolist() == [0, 1, 3, 1]
    assert whole.dst.tolist() == [2, 2, 2, 4]
    assert part.event_ids.tolist() == [2, 3]
    assert part.take(np.array([1])).src.tolist() == [1]
    assert part.edge_attr is not None
    assert whole.edge_attr is None  # earlier states have none
    assert now.events(2).edge_attr is not None
    assert now.events(1, 3).t.tolist() == [2, 2]
    assert now.events(3, 3).t.tolist() == []


def test_numeric_ids_may_follow_text_ids_but_not_the_reverse() -> None:
    text = Vocabulary(np.array(["0", "1", "2", "3", "4"]))
    assert past(events([1, 2], node_ids=text)).joined(events([3, 4]))[1].num_nodes == 5
    for ids in (None, Vocabulary(np.arange(5))):
        with pytest.raises(DataError):
            past(events([1, 2], node_ids=ids, num_nodes=5)).joined(events([3, 4], node_ids=text))


def test_events_that_cannot_be_appended_are_named() -> None:
    now = past(events([1, 5]))
    with pytest.raises(TimeOrderError, match="4"):
        now.joined(events([4, 6]))
    pair = {"src": np.array([0]), "dst": np.array([0]), "t": np.array([9])}
    gone = {"kind": np.array([1], np.int8), "from_start": False}
    with pytest.raises(DataError):
        now.joined(EventStream(**pair, **gone))
    added = now.joined(EventStream(**pair))[1]
    after = added.joined(EventStream(**pair, **gone))[1]
    assert after.has_deletes
    with pytest.raises(DataError):
        after.joined(EventStream(**pair | {"t": np.array([10])}, **gone))


def test_repeated_last_events_are_rejected_unless_allowed() -> None:
    new = events([5, 5], num_nodes=5)
    now = past(events([1, 5])).joined(new)[1]
    with pytest.raises(DataError):
        now.joined(new)
    assert len(now.joined(new, allow_duplicates=True)[1]) == 6
    assert len(now.joined(events([5, 5, 5]))[1]) == 7
    stranger = now.joined(events([5], num_nodes=9))[1]  # more nodes do not hide a repeated event
    with pytest.raises(DataError):
        stranger.joined(events([5], num_nodes=12))


@pytest.mark.parametrize(("own", "unit"), [("", "s"), ("s", ""), ("day", "s"), ("s", "h")])
def test_times_of_another_unit_are_rejected(own: str, unit: str) -> None:
    now = past(events([1, 5], time_unit=own))
    with pytest.raises(DataError, match="time_unit"):
        now.joined(events([6, 7], time_unit=unit))
    assert now.joined(events([6, 7], time_unit=own))[1].time_unit == own


def test_date_units_are_converted_if_exact() -> None:
    fine, coarse = past(events([1000, 5000], time_unit="ms")), past(events([1, 5], time_unit="s"))
    part, whole = fine.joined(events([6, 7], time_unit="s"))
    assert whole.events().t.tolist() == [1000, 5000, 6000, 7000]
    assert (whole.time_unit, part.time_unit, part.t.dtype) == ("ms", "ms", np.int64)
    assert coarse.joined(events([6000, 7000], time_unit="ms"))[0].t.tolist() == [6, 7]
    with pytest.raises(DataError):
        coarse.joined(events([6000, 7001], time_unit="ms"))


def test_a_state_without_a_unit_adopts_that_of_later_events() -> None:
    old = replace(past(events([1, 5])), time_unit=None)
    assert old.joined(events([6, 7], time_unit="s"))[1].time_unit == "s"


def test_a_node_number_far_above_all_others_is_rejected_before_allocation() -> None:
    far = EventStream(src=np.array([1]), dst=np.array([0]), t=np.array([9]), node_ids=Vocabulary(np.array([0, 10**12])))
    with pytest.raises(DataError):
        past(events([1, 5])).joined(far)


# ---- states that share a log -----------------------------------------------------------------------------------------
def stream(count: int, nodes: int = 12, *, deletes: bool = False, kind: type = np.int64) -> EventStream:
    """Return events with ties, self-loops and features, of which every third deletes the one before."""
    rng = np.random.default_rng(count)
    src, dst = rng.integers(0, nodes, (2, count))
    kinds = np.zeros(count, np.int8)
    if deletes:
        gone = np.arange(20, count, 3)  # the first events delete nothing
        src[gone], dst[gone], kinds[gone] = src[gone - 1], dst[gone - 1], DELETE
    t = np.sort(rng.integers(0, count // 2, count)).astype(kind)
    attr = rng.normal(size=(count, 2)).astype(np.float32)
    return EventStream(src=src, dst=dst, t=t, kind=kinds, edge_attr=attr, num_nodes=nodes)


def part(whole: EventStream, first: int, stop: int) -> EventStream:
    columns = {name: getattr(whole, name)[first:stop].copy() for name in ("src", "dst", "t", "kind", "edge_attr")}
    return EventStream(**columns, num_nodes=whole.num_nodes, from_start=False)


def grown(whole: EventStream, cuts: list[int]) -> list[StreamState]:
    """Return the states after some cuts, which share storage."""
    states = [StreamState()]
    for first, stop in zip([0, *cuts], cuts):
        states.append(states[-1].joined(part(whole, first, stop), allow_duplicates=True)[1])
    return states[1:]


def assert_is_state_of(state: StreamState, whole: EventStream, *, look_ups: bool = True) -> None:
    """Check that a state equals the first events of a stream, in events and neighbor queries."""
    begun = part(whole, 0, len(state)).with_(from_start=True)
    for name in ("src", "dst", "t", "edge_attr"):
        np.testing.assert_array_equal(getattr(state.events(), name), getattr(begun, name))
    kinds = np.zeros(len(state), np.int8) if state.kind is None else state.kind
    np.testing.assert_array_equal(kinds, begun.kind)
    assert state.has_deletes == begun.has_deletes
    rng = np.random.default_rng(5)
    u, v = rng.integers(0, whole.num_nodes, (2, 200))
    t = rng.integers(-1, len(whole), 200).astype(whole.t.dtype)
    for deletions in (False, True) if look_ups else ():
        found, expected = state.store(deletions=deletions), NeighborStore.from_stream(begun, deletions=deletions)
        for k in (0, 1, 3, 2**31 - 1):
            one, other = found.last(u, t, k), expected.last(u, t, k)
            assert all(np.array_equal(getattr(one, x), getattr(other, x)) for x in vars(other))
        for directed in (False, True):
            mine, theirs = found.last_meeting(u, v, t, directed), expected.last_meeting(u, v, t, directed)
            assert all(np.array_equal(a, b) for a, b in zip(mine, theirs))
            assert np.array_equal(found.count_meetings(u, v, t, directed), expected.count_meetings(u, v, t, directed))
        np.testing.assert_array_equal(found.event_times().times, expected.event_times().times)
    sent, received = state.ever_active()
    rows = begun.additions()
    assert np.flatnonzero(sent).tolist() == np.unique(begun.src[rows]).tolist()
    assert np.flatnonzero(received).tolist() == np.unique(begun.dst[rows]).tolist()


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("early", [False, True])
def test_earlier_states_do_not_change(deletes: bool, kind: type, early: bool) -> None:
    """Neighbor indices may be built before or after later events are appended."""
    whole = stream(300, deletes=deletes, kind=kind)
    states = grown(whole, [1, 18, 40, 41, 150])
    if early:
        for state in states:
            assert_is_state_of(state, whole)
    states += [states[-1].joined(part(whole, 150, 300))[1]]
    for state in states:
        assert_is_state_of(state, whole)


@pytest.mark.parametrize("deletes", [False, True])
def test_two_states_may_follow_one(deletes: bool) -> None:
    whole, other = stream(300, deletes=deletes), stream(290, deletes=deletes)
    first = grown(whole, [100, 160])[-1]
    other_end = part(other, 200, 290)
    other_end = other_end.with_(t=other_end.t + whole.t[-1], kind=np.zeros(90, np.int8))
    one, two = first.joined(part(whole, 160, 300))[1], first.joined(other_end)[1]
    for state in (first, one):
        assert_is_state_of(state, whole)
    assert two.src[160:].tolist() == other_end.src.tolist()
    assert two.edge_ends[:160].tolist() == np.where(first.edge_ends < 160, first.edge_ends, 2**63 - 1).tolist()
    assert_is_state_of(two, two.events().with_(kind=np.zeros(250, np.int8) if two.kind is None else two.kind))


def test_appended_rows_are_copied_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appending n events one at a time costs O(n): arrays at least double when they are full."""
    copied = {"rows": 0}
    append = Column.append

    def counting(self: Column, rows: np.ndarray) -> None:
        before = self._room
        previous = len(self)
        append(self, rows)
        copied["rows"] += 0 if self._room is before or not previous else previous

    monkeypatch.setattr(Column, "append", counting)
    whole, state = stream(1000, deletes=True), StreamState()
    for i in range(1000):
        state = state.joined(part(whole, i, i + 1), allow_duplicates=True)[1]
        state.store()
    columns = 8  # of the events, their features and the index
    assert 0 < copied["rows"] < columns * 2 * 1000
    assert_is_state_of(state, whole)


def test_features_that_a_memory_has_replaced_are_dropped_and_named_if_read() -> None:
    whole = stream(300)
    state = StreamState(tag="model")
    for i in range(0, 300, 10):
        state = state.joined(part(whole, i, i + 10))[1]
        state = state.settled_at(i, clock=0.0, tag="model")
    assert state.edge_attr is not None
    assert 50 < state.edge_attr.first <= 290
    kept = np.arange(state.edge_attr.first, 300)
    np.testing.assert_array_equal(state.edge_attr[kept], whole.edge_attr[kept])
    with pytest.raises(DataError):
        state.edge_attr[np.array([0])]


def test_the_newest_memory_of_a_node_counts_and_parts_stay_few() -> None:
    state, written = StreamState(num_nodes=64), 0
    rng, expected = np.random.default_rng(0), np.zeros(64)
    for i in range(1, 300):
        nodes = np.unique(rng.integers(0, 64, rng.integers(1, 4)))
        expected[nodes] = i
        full = [np.full(shape, float(i)) for shape in ((len(nodes), 2, 3), (len(nodes), 3), (len(nodes),))]
        before = set(map(id, state.memory_parts))
        moved = Memories(nodes=nodes, memory=full[0], output=full[1], last_time=full[2])
        state = state.settled_at(0, moved=moved, clock=float(i), tag="model")
        written += sum(len(one.nodes) for one in state.memory_parts if id(one) not in before)
    assert len(state.memory_parts) <= 8
    assert written < 300 * 3 * 8
    found = state.memories(np.arange(64))
    assert found is not None
    assert found.last_time.tolist() == expected[found.nodes].tolist()
    assert found.memory[:, 1, 2].tolist() == expected[found.nodes].tolist()
    assert found.nodes.tolist() == np.flatnonzero(expected).tolist()
