import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.layers.message import Adjacency, EdgeList
from hopstate.sampling.subgraph import full_adjacency, rows_adjacency
from hopstate.testing.conformance import assert_close_rmse

# 0-1, 1-2, a second 1-2 stored twice, a self-loop on 3, and 4 isolated
EDGES = np.array([(0, 1), (1, 0), (1, 2), (1, 2), (2, 1), (2, 1), (3, 3)])


def adjacency() -> tuple[Adjacency, np.ndarray]:
    dense = np.zeros((5, 5))
    np.add.at(dense, tuple(EDGES.T), 1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(EDGES[:, 0], minlength=5))])
    return Adjacency.of(indptr, EDGES[:, 1]), dense


def test_forms_equal_dense() -> None:
    made, dense = adjacency()
    degree = dense.sum(1)
    loops = dense + np.diag(dense.diagonal() == 0)  # node 3 has a loop
    expected = {
        "symmetric": loops / np.sqrt(np.outer(loops.sum(1), loops.sum(1))),
        "mean": dense / np.maximum(degree, 1)[:, None],
        "sum": dense,
    }
    for name, matrix in expected.items():
        assert_close_rmse(made.normalized_adjacency(name).to_dense(), matrix, dtype=torch.float32, name=name)
    assert made.num_nodes == 5


def test_edge_index_sends_to_rows() -> None:
    made, dense = adjacency()
    senders, receivers = made.edge_index()
    again = torch.zeros(5, 5).index_put((receivers, senders), torch.ones(len(senders)), accumulate=True)
    assert torch.equal(again, torch.from_numpy(dense).float())


@pytest.mark.parametrize("weighted", [False, True])
def test_existing_self_loops_are_normalized_as_in_torch_geometric(weighted: bool) -> None:
    """Whole graphs, lists of edges, and rows of sampled batches with the degrees of the whole graph."""
    from torch_geometric.nn import GCNConv

    edges = np.concatenate([np.unique(EDGES, axis=0), [(2, 2), (0, 4)]])
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    weight = np.linspace(0.5, 2, len(edges), dtype=np.float32) if weighted else None
    graph = Graph.from_edges(edges, 5, x=x, edge_weight=weight)
    listed = torch.from_numpy(graph.edge_index())
    carried = None if graph.edge_weight is None else torch.tensor(graph.edge_weight)
    expected = GCNConv(3, 4)
    conv = GCNConv(3, 4, normalize=False)
    conv.load_state_dict(expected.state_dict())
    wanted = expected(torch.from_numpy(x), listed, carried)
    found = [
        adjacency.propagate(conv, "symmetric", 0, torch.from_numpy(x))
        for adjacency in (full_adjacency(graph), EdgeList(listed, 5, carried))
    ]
    degree = torch.from_numpy(graph.incoming.degree)
    for rows in (np.array([0, 1]), np.array([2, 3, 4])):
        some = rows_adjacency(graph, rows, degree).propagate(conv, "symmetric", 0, torch.from_numpy(x))
        assert_close_rmse(some, wanted[torch.from_numpy(rows)])
    for actual in found:
        assert_close_rmse(actual, wanted)


@pytest.mark.parametrize("name", ["symmetric", "mean", "sum"])
def test_gradient_of_the_sparse_product(name: str) -> None:
    """The backward pass multiplies by the transpose, also for asymmetric forms."""
    made, _ = adjacency()
    x = torch.randn(5, 3, requires_grad=True)
    weight = torch.randn(5, 3)
    (gradient,) = torch.autograd.grad(((made.normalized_adjacency(name) @ x) * weight).sum(), x)
    assert_close_rmse(gradient, made.normalized_adjacency(name).to_dense().T @ weight)


@pytest.mark.parametrize("name", ["symmetric", "mean", "sum"])
def test_selected_rows_equal_those_of_the_full_product(name: str) -> None:
    """Receivers anywhere among the nodes, their columns in any order."""
    made, dense = adjacency()
    rows = np.array([3, 1, 4])
    columns = [np.repeat(np.arange(5), dense[v].astype(int))[::-1] for v in rows]
    indptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    known = {"degree": dense.sum(1), "added_loops": (dense.diagonal() == 0).astype(np.float32)}
    some = Adjacency.of(indptr, np.concatenate(columns), num_nodes=5, receivers=rows, **known)
    assert_close_rmse(some.normalized_adjacency(name).to_dense(), made.normalized_adjacency(name).to_dense()[rows])
    first = Adjacency.of(indptr[:2], columns[0], num_nodes=5, receivers=rows[:1])  # a degree over its own entries
    assert_close_rmse(
        first.normalized_adjacency("mean").to_dense(), made.normalized_adjacency("mean").to_dense()[rows[:1]]
    )
    senders, receivers = some.edge_index()
    assert set(zip(receivers.tolist(), senders.tolist())) == {(v, int(u)) for v, c in zip(rows, columns) for u in c}


def test_converted_forms_are_cached_and_follow_the_device() -> None:
    made, _ = adjacency()
    assert made.normalized_adjacency("mean") is made.normalized_adjacency("mean")
    moved = made.to("cpu")
    torch.testing.assert_close(
        moved.normalized_adjacency("mean").to_dense(),
        made.normalized_adjacency("mean").to_dense(),
        rtol=1e-5,
        atol=1e-6,
    )


def test_no_edges() -> None:
    empty = Adjacency.of(np.zeros(4, np.int64), np.zeros(0, np.int64))
    assert torch.equal(empty.normalized_adjacency("symmetric").to_dense(), torch.eye(3))
    assert torch.equal(empty.normalized_adjacency("mean").to_dense(), torch.zeros(3, 3))
