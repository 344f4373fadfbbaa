import numpy as np
import pytest
import torch

from hopstate.layers.message import Adjacency, EdgeList
from hopstate.testing.conformance import assert_close_rmse

# 0-1, 1-2, a second 1-2 stored twice, a self-loop on 3, and 4 alone
EDGES = np.array([(0, 1), (1, 0), (1, 2), (1, 2), (2, 1), (2, 1), (3, 3)])


def adjacency() -> tuple[Adjacency, np.ndarray]:
    dense = np.zeros((5, 5))
    np.add.at(dense, tuple(EDGES.T), 1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(EDGES[:, 0], minlength=5))])
    return Adjacency.of(indptr, EDGES[:, 1]), dense


def test_forms_equal_dense() -> None:
    made, dense = adjacency()
    degree = dense.sum(1)
    loops = dense + np.eye(5)
    expected = {
        "symmetric": loops / np.sqrt(np.outer(degree + 1, degree + 1)),
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
def test_a_list_of_edges_weighs_self_loops_as_the_matrix_does(weighted: bool) -> None:
    """A node's own edge adds to the one that the normalization gives it."""
    from torch_geometric.nn import GCNConv

    loops = np.array([(2, 2), (3, 3)])
    edges = np.concatenate([EDGES, loops])
    edges = edges[np.lexsort(edges.T[::-1])]
    weight = torch.linspace(0.5, 2, len(edges)) if weighted else None
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=5))]))
    matrix = Adjacency(indptr, torch.from_numpy(edges[:, 1].copy()), weight=weight)
    listed = EdgeList(torch.from_numpy(edges[:, ::-1].T.copy()), 5, weight)
    torch.manual_seed(0)
    conv, x = GCNConv(3, 4, normalize=False), torch.randn(5, 3)
    found = listed.propagate(conv, "symmetric", 0, x)
    assert_close_rmse(found, matrix.propagate(conv, "symmetric", 0, x))


@pytest.mark.parametrize("name", ["symmetric", "mean", "sum"])
def test_gradient_of_product(name: str) -> None:
    """The backward pass multiplies by the transpose, also where the form is not symmetric."""
    made, _ = adjacency()
    x = torch.randn(5, 3, requires_grad=True)
    weight = torch.randn(5, 3)
    (gradient,) = torch.autograd.grad(((made.normalized_adjacency(name) @ x) * weight).sum(), x)
    assert_close_rmse(gradient, made.normalized_adjacency(name).to_dense().T @ weight)


@pytest.mark.parametrize("name", ["symmetric", "mean", "sum"])
def test_some_rows_equal_those_of_the_whole(name: str) -> None:
    """Receivers anywhere among the nodes, their columns in any order."""
    made, dense = adjacency()
    rows = np.array([3, 1, 4])
    columns = [np.repeat(np.arange(5), dense[v].astype(int))[::-1] for v in rows]
    indptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    degree = dense.sum(1)
    some = Adjacency.of(indptr, np.concatenate(columns), num_nodes=5, receivers=rows, degree=degree)
    assert_close_rmse(some.normalized_adjacency(name).to_dense(), made.normalized_adjacency(name).to_dense()[rows])
    first = Adjacency.of(indptr[:2], columns[0], num_nodes=5, receivers=rows[:1])  # a degree of its own entries
    assert_close_rmse(
        first.normalized_adjacency("mean").to_dense(), made.normalized_adjacency("mean").to_dense()[rows[:1]]
    )
    senders, receivers = some.edge_index()
    assert set(zip(receivers.tolist(), senders.tolist())) == {(v, int(u)) for v, c in zip(rows, columns) for u in c}


def test_forms_are_kept_and_move() -> None:
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
