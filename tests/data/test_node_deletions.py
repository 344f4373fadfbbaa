"""Deleting a node deletes each of its edges, in files, streams and states of live runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.data.events import ADD, DELETE, GONE, EventStream, check_deletes, edge_ends, expand_node_deletions
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.readers.read_events import read_events
from hopstate.data.stream_state import StreamState
from hopstate.data.summary import summarize
from hopstate.errors import DataError
from hopstate.ops.neighbors import PackedNeighbors

Row = tuple[int, int, int, int]


def story(count: int = 120, seed: int = 0, nodes: int = 8) -> list[Row]:
    """Return rows (source, destination, time, kind) as a user would write them, with deleted nodes."""
    rng, active, rows = np.random.default_rng(seed), [], []
    times = np.sort(rng.integers(0, count // 2, count)).tolist()
    for t in times:
        chance = rng.random()
        if active and chance < 0.1:
            node = int(rng.choice(active[rng.integers(len(active))]))
            active = [pair for pair in active if node not in pair]
            rows.append((node, node, t, GONE))
        elif active and chance < 0.35:
            rows.append((*active.pop(rng.integers(len(active))), t, DELETE))
        else:
            active.append((int(rng.integers(nodes)), int(rng.integers(nodes))))
            rows.append((*active[-1], t, ADD))
    return rows


def naive(rows: list[Row]) -> list[Row]:
    """Return the rows with a deletion of each active edge of a node in place of the node's, the oldest first."""
    active: list[tuple[int, int]] = []
    expected = []
    for u, v, t, kind in rows:
        if kind == ADD:
            active.append((u, v))
        elif kind == DELETE:
            active.remove((u, v))
        else:
            expected += [(*pair, t, DELETE) for pair in active if u in pair]
            active = [pair for pair in active if u not in pair]
            continue
        expected.append((u, v, t, kind))
    return expected


def stream_of(rows: list[Row], **fields: object) -> EventStream:
    src, dst, t, kind = np.array(rows).T
    return EventStream.from_arrays(src, dst, t, kind=kind, num_nodes=8, **fields)


def rows_of(stream: EventStream) -> list[Row]:
    kind = np.zeros(len(stream), int) if stream.kind is None else stream.kind
    return list(map(tuple, np.stack([stream.src, stream.dst, stream.t, kind], 1).tolist()))


def lists(found: PackedNeighbors) -> list[list[int]]:
    return [getattr(found, name).tolist() for name in ("offsets", "nodes", "event_ids", "times")]


@pytest.mark.parametrize("seed", range(4))
def test_deleting_a_node_deletes_its_edges(seed: int) -> None:
    rows = story(seed=seed)
    stream = stream_of(rows)
    assert rows_of(stream) == naive(rows)
    assert len(naive(rows)) > len(rows)
    check_deletes(stream)
    assert expand_node_deletions(stream) is stream  # a repeated deletion has no effect
    ends = edge_ends(stream.src, stream.dst, stream.kind, 8)
    open_: dict[tuple[int, int], list[int]] = {}
    for i, (u, v, _, kind) in enumerate(rows_of(stream)):
        if kind == ADD:
            open_.setdefault((u, v), []).append(i)
        else:
            assert ends[open_[u, v].pop(0)] == i
    assert all(ends[i] > len(stream) for left in open_.values() for i in left)
    assert (ends[stream.kind != ADD] == -1).all()


@pytest.mark.parametrize(("seed", "size"), [(0, 1), (1, 5), (2, 40), (3, 37)])
def test_a_state_accepts_node_deletions_in_any_cut(seed: int, size: int) -> None:
    """Equal events with equal ids, equal ended edges and equal queries of active edges."""
    rows = story(160, seed)
    whole, state = stream_of(rows), StreamState()
    for start in range(0, len(rows), size):
        src, dst, t, kind = np.array(rows[start : start + size]).T
        raw = EventStream(src=src, dst=dst, t=t, kind=kind.astype(np.int8), num_nodes=8, from_start=False)
        state = state.joined(raw, allow_duplicates=True)[1]
    assert rows_of(state.events()) == rows_of(whole)
    added = whole.kind == ADD
    ends = edge_ends(whole.src, whole.dst, whole.kind, 8)
    assert state.edge_ends[added].tolist() == ends[added].tolist()
    nodes, times = np.repeat(np.arange(8), 5), np.tile([5, 20, 40, 60, 99], 8)
    for deletions in (False, True):
        store, expected = state.store(deletions=deletions), NeighborStore.from_stream(whole, deletions=deletions)
        assert lists(store.last(nodes, times, 4)) == lists(expected.last(nodes, times, 4))
    flat = NeighborStore.from_stream(whole)
    for k in (1, 3, 50):
        for last in (20, 80, len(whole)):
            until = np.full(len(nodes), last)
            found = state.store().last_active(nodes, times, k, state.edge_ends, until)
            assert lists(found) == lists(flat.last_active(nodes, times, k, ends, until))


FILE = """source,target,time,kind,amount
a,b,1,add,2.5
a,c,2,add,1
c,b,3,add,4
a,,4,{word},
c,a,5,add,3
"""


@pytest.mark.parametrize("word", ["delete", "delete-node", "Remove node", "delete_node"])
def test_a_deleted_node_needs_no_target_in_a_file(word: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(FILE.format(word=word))
    stream = read_events(path, edge_columns=["amount"])
    a, b, c = 0, 1, 2
    expected = [(a, b, 1, 0), (a, c, 2, 0), (c, b, 3, 0), (a, b, 4, 1), (a, c, 4, 1), (c, a, 5, 0)]
    assert rows_of(stream) == expected
    assert stream.edge_attr.ravel().tolist() == [2.5, 1, 4, 0, 0, 3]
    facts = summarize(stream).facts
    assert (facts["events"], facts["deletions"]) == (6, 2)
    stream.save(tmp_path / "folder")
    again = read_events(tmp_path / "folder")
    assert rows_of(again) == expected
    assert again.content_hash == stream.content_hash


def test_numeric_ids_stay_numeric_if_a_cell_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("src,dst,t,kind\n0,1,1,0\n2,1,2,0\n1,,3,1\n0,1,4,0\n0,0,5,2\n")
    stream = read_events(path, kind_column="kind")
    assert stream.node_ids is None
    assert [row[:2] for row in rows_of(stream)] == [(0, 1), (2, 1), (0, 1), (2, 1), (0, 1), (0, 1)]
    frame = pd.DataFrame({"src": [7, 8, 7], "dst": [8, 9, None], "t": [1, 2, 3], "kind": ["add", "add", "delete"]})
    assert read_events(frame).node_ids.ids.tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,c,9,delete-node", "'c'"),
        ("z,,9,delete", "event 2.*z"),
        (",b,9,delete", "source"),
        ("a,,9,add", "target"),
    ],
)
def test_contradictory_deletions_are_named(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(f"source,target,time,kind\na,b,1,add\nb,c,2,add\n{row}\n")
    with pytest.raises(DataError, match=message):
        read_events(path)


def test_a_node_may_be_deleted_after_all_its_edges_and_again(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("source,target,time,kind\na,b,1,add\nb,c,2,add\na,b,9,delete\na,,10,delete\na,,11,delete\n")
    stream = read_events(path)
    assert rows_of(stream) == [(0, 1, 1, 0), (1, 2, 2, 0), (0, 1, 9, 1)]


def test_a_stream_rejects_node_deletions_that_are_not_expanded() -> None:
    columns = {"src": np.array([0, 0]), "dst": np.array([1, 0]), "t": np.arange(2), "kind": np.array([0, 2], np.int8)}
    with pytest.raises(DataError, match="event 1"):
        EventStream(**columns)
    assert len(EventStream.from_arrays(**columns)) == 2


def test_deleting_a_node_before_its_first_edge_is_rejected() -> None:
    columns = {"src": np.array([1, 0]), "dst": np.array([1, 0]), "t": np.arange(2)}
    with pytest.raises(DataError, match="event 0"):
        EventStream.from_arrays(**columns, kind=np.array([GONE, ADD], np.int8))
