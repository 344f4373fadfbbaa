"""The event stream: its invariants, slices, identity."""

import numpy as np
import pytest

from hopstate.data.events import EventStream, check_deletes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, HopstateWarning, TimeOrderError


def stream(**changes) -> EventStream:
    fields = {"src": np.array([0, 1, 2, 0]), "dst": np.array([1, 2, 2, 3]), "t": np.array([1, 3, 3, 7])}
    return EventStream(**{**fields, **changes})


def test_slices_are_views_that_keep_ids_and_nodes():
    whole = stream(edge_attr=np.ones((4, 2), np.float32), x=np.zeros((4, 1), np.float32))
    part = whole.slice(1, 3)
    assert np.shares_memory(part.src, whole.src)
    assert (len(part), part.num_nodes, part.event_ids.tolist()) == (2, 4, [1, 2])
    assert part.slice(1, 2).event_ids.tolist() == [2]
    assert part.take(np.array([1])).event_ids.tolist() == [2]
    assert len(whole.slice(3, 1)) == 0
    assert whole.slice(-2, 99).event_ids.tolist() == [2, 3]
    assert (part.has_edge_features, part.has_node_features) == (True, False)
    assert "2 events" in repr(part)


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        stream().src[0] = 5


def test_the_hash_depends_on_the_content():
    assert stream().content_hash == stream(name="other", source="elsewhere").content_hash
    different = [
        stream(t=np.array([1, 3, 3, 8])),
        stream(t=np.array([1.0, 3, 3, 7])),
        stream(num_nodes=9),
        stream(labels=np.zeros(4, int)),
        stream(node_ids=Vocabulary(np.array(["a", "b", "c", "d"]))),
    ]
    assert len({s.content_hash for s in [stream(), *different]}) == 6


def test_times_keep_their_type():
    assert stream().t.dtype == np.int64
    assert stream(t=np.array([0.5, 1, 1, 2])).t.dtype == np.float64
    for narrow in (np.float32, np.int32):
        with pytest.raises(DataError):
            stream(t=np.arange(4, dtype=narrow))
    assert EventStream.from_arrays([0, 1], [1, 0], np.arange(2, dtype=np.int32)).t.dtype == np.int64
    dates = EventStream.from_arrays([0, 1], [1, 0], np.array(["2024-01-01", "2024-01-02"], "datetime64[D]"))
    assert np.diff(dates.t).tolist() == [86_400 * 10**9]


def test_from_arrays_sorts_stably_and_collects_ids_with_a_warning():
    with pytest.warns(HopstateWarning, match="row 1"):
        made = EventStream.from_arrays(
            ["b", "a", "c"], ["a", "c", "a"], [5, 1, 5], labels=[1, 2, 3], edge_attr=[[1], [2], [3]]
        )
    assert made.node_ids.names(made.src).tolist() == ["a", "b", "c"]
    assert (made.labels.tolist(), made.edge_attr[:, 0].tolist()) == ([2, 1, 3], [2, 1, 3])
    assert len(EventStream.from_arrays([1, 0], [0, 1], [5, 1], warn=False)) == 2


def test_streams_of_one_event_no_event_and_one_time():
    assert stream(src=np.array([3]), dst=np.array([3]), t=np.array([0])).num_nodes == 4
    empty = EventStream(src=np.array([], int), dst=np.array([], int), t=np.array([], int))
    assert (len(empty), empty.num_nodes, empty.is_bipartite) == (0, 0, True)
    assert empty.content_hash
    assert len(EventStream.from_arrays([], [], [])) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": np.array([0, -1, 2, 0])}, "src.*row 1"),
        ({"num_nodes": 3}, "dst.*row 3"),
        ({"t": np.array([1, 3, np.nan, 7])}, "event 2"),
        ({"src": np.array([0, 1])}, "dst"),
        ({"edge_attr": np.ones((3, 2), np.float32)}, "edge_attr"),
        ({"edge_attr": np.ones((4, 2))}, "edge_attr"),
        ({"edge_attr": np.full((4, 1), np.nan, np.float32)}, "edge_attr.*rows? 0"),
        ({"labels": np.ones(3)}, "labels"),
        ({"kind": np.full(4, 2, np.int8)}, "event 0"),
        ({"kind": np.full(4, 4, np.int8)}, "kind"),
        ({"x": np.ones((2, 2), np.float32), "num_nodes": 4}, "x"),
    ],
)
def test_broken_invariants_of_streams_are_named(changes, message):
    with pytest.raises(DataError, match=message or None):
        stream(**changes)


def test_times_out_of_order_are_named():
    with pytest.raises(TimeOrderError, match="event 2"):
        stream(t=np.array([1, 3, 2, 7]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 1], [1, 0], [1.0, np.nan]), "row 1"),
        (([0.5, 1], [1, 0], [1, 2]), "row 0"),
        (([0, 1], [1], [1, 2]), "src"),
        (([0, 1], [1, 0], ["soon", "late"]), ""),
        (([0, -1], [1, 0], [1, 2]), ""),
    ],
)
def test_columns_that_cannot_be_used_are_named(columns, message):
    with pytest.raises(DataError, match=message or None):
        EventStream.from_arrays(*columns)
    known = Vocabulary(np.array(["ann", "bob"]))
    with pytest.raises(DataError, match="ann"):
        EventStream.from_arrays(["anna"], ["bob"], [1], node_ids=known)


def test_deletes_are_checked_in_their_direction_and_order():
    both = {"src": np.array([0, 1]), "dst": np.array([1, 0]), "t": np.array([1, 2])}
    check_deletes(EventStream(**both, kind=np.zeros(2, np.int8)))
    back = {"kind": np.array([0, 1], np.int8), "node_ids": Vocabulary(np.array(["a", "b"]))}
    with pytest.raises(DataError, match="event 1"):
        EventStream(**both, **back)
    with pytest.raises(DataError, match="event 1"):
        EventStream.from_arrays(both["src"], both["dst"], both["t"], **back)
    part = EventStream(**both, **back, from_start=False)  # the edge may be active from earlier events
    assert part.with_(name="later").has_deletes
    assert EventStream(**both | {"dst": both["dst"][::-1]}).slice(1, 2).with_(kind=back["kind"][1:]).has_deletes


def test_class_names_must_cover_every_class() -> None:
    with pytest.raises(DataError, match="label"):
        EventStream.from_arrays([0, 1], [1, 0], [1, 2], labels=[0, 1], class_names=("a",))
