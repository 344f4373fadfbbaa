"""Active nodes and the graph before and after a batch, against hand-drawn cases."""

import numpy as np
import pytest
import torch

from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import DataError, ShapeError, TimeOrderError
from hopstate.streaming.active_batch import ActiveBatch, recent_context


def named(batch: ActiveBatch, edges: torch.Tensor) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in batch.nodes[edges].T]


def test_batch_edges_are_active_after_and_removed_edges_before() -> None:
    batch = ActiveBatch.build(
        np.array([7, 2]),
        np.array([9, 7]),
        np.array([1, 1]),
        context=np.array([[7, 3], [3, 2]]),
        removed=np.array([[9], [4]]),
    )
    assert batch.nodes.tolist() == [2, 3, 4, 7, 9]
    assert named(batch, batch.after) == [(7, 9), (2, 7), (7, 3), (3, 2)]
    assert named(batch, batch.before) == [(7, 3), (3, 2), (9, 4)]
    assert batch.nodes[batch.source].tolist() == [7, 2]
    assert batch.nodes[batch.target].tolist() == [9, 7]


def test_features_of_active_rows_are_selected() -> None:
    x = torch.arange(20.0).view(10, 2)
    batch = ActiveBatch.build(np.array([8]), np.array([1]), np.array([0.5]), x=x, edge_attr=np.ones((1, 3)))
    assert torch.equal(batch.node_attr, x[[1, 8]])
    assert batch.edge_attr.dtype == torch.float32


def test_a_batch_may_be_empty() -> None:
    none = np.empty(0, np.int64)
    assert len(ActiveBatch.build(none, none, none).nodes) == 0
    only_removed = ActiveBatch.build(none, none, none, removed=np.array([[1], [2]]))
    assert len(only_removed) == 0
    assert only_removed.after.shape == (2, 0)
    assert named(only_removed, only_removed.before) == [(1, 2)]


def test_names_events_out_of_order_and_negative_nodes() -> None:
    with pytest.raises(TimeOrderError, match="event 1"):
        ActiveBatch.build(np.array([0, 1]), np.array([1, 2]), np.array([2.0, 1.0]))
    with pytest.raises(DataError, match="-3"):
        ActiveBatch.build(np.array([0]), np.array([-3]), np.array([0.0]))


def test_columns_of_different_lengths_are_named() -> None:
    with pytest.raises(ShapeError, match="edge_attr"):
        ActiveBatch.build(np.array([0]), np.array([1]), np.array([0.0]), edge_attr=np.ones((3, 1)))


def context_naive(
    src: np.ndarray, dst: np.ndarray, t: np.ndarray, node: int, time: float, k: int, hops: int
) -> set[int]:
    """All walks from node by recency, the events of the first k: the definition."""
    walks, border = [], [(0.0, node, -1)]
    for hop in range(hops):
        further = []
        for age, at, last in border:
            events = [e for e in np.flatnonzero((src == at) | (dst == at)) if t[e] < time][-k:]
            for e in events:
                if e != last:
                    other = dst[e] if src[e] == at else src[e]
                    further.append((age + time - t[e], int(other), int(e)))
        border = further
        walks += [(age, hop, event) for age, _, event in further]
    return {event for *_, event in sorted(walks)[:k]}


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize("k", [1, 4])
def test_context_equals_the_walks_by_recency(hops: int, k: int) -> None:
    rng = np.random.default_rng(hops)
    src, dst = rng.integers(0, 9, 40), rng.integers(9, 15, 40)
    t = np.sort(rng.random(40))
    store = NeighborStore.from_events(src, dst, t)
    nodes = np.array([0, 12, 3])
    for cut in (t[0], t[20], 2.0):
        edges = recent_context(store, nodes, np.full(3, cut), k, hops).edges
        expected = set().union(*(context_naive(src, dst, t, int(v), cut, k, hops) for v in nodes))
        found = sorted(tuple(sorted(e)) for e in edges.T.tolist())
        assert found == sorted((int(src[e]), int(dst[e])) for e in expected)


def test_context_sees_nothing_at_or_after_the_time() -> None:
    store = NeighborStore.from_events(np.array([0, 0]), np.array([1, 2]), np.array([1.0, 2.0]))
    assert recent_context(store, np.array([0]), np.array([1.0]), 5, 2).edges.shape == (2, 0)
    assert recent_context(store, np.array([0]), np.array([2.0]), 5, 1).edges.T.tolist() == [[0, 1]]
