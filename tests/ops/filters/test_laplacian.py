"""Laplacians against networkx, filters against their bound, the critical coefficient against a long path."""

import networkx as nx
import numpy as np
import pytest
import torch

from hopstate.errors import ConfigError, ShapeError
from hopstate.ops.filters.laplacian import (
    check_filter,
    critical_alpha,
    dense_laplacian,
    filter_minimum,
    matrix_polynomial,
    path_gain,
    sparse_laplacian,
)
from hopstate.testing.conformance import F64_DEEP, F64_LAST, F64_TIGHT


def edges(graph: nx.Graph) -> torch.Tensor:
    return torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T


def laplacian(graph: nx.Graph) -> torch.Tensor:
    pairs = edges(graph)
    return dense_laplacian(pairs, torch.ones(pairs.shape[1], dtype=torch.float64), graph.number_of_nodes())[0]


@pytest.mark.parametrize("seed", range(3))
def test_equals_networkx_if_every_node_has_an_edge(seed: int) -> None:
    graph = nx.connected_watts_strogatz_graph(17, 4, 0.4, seed=seed)
    expected = nx.normalized_laplacian_matrix(graph, nodelist=range(17)).toarray()
    assert np.allclose(laplacian(graph), expected, atol=F64_LAST)


def test_sparse_equals_dense_with_weights_loops_repeats_and_isolated_nodes() -> None:
    pairs = torch.tensor([[0, 1, 1, 3, 4, 2], [1, 2, 0, 3, 5, 5]])
    weight = torch.tensor([1.0, 2, 1, 1, 0.5, 3], dtype=torch.float64)
    dense = dense_laplacian(pairs, weight, 8)[0]
    sparse = sparse_laplacian(pairs.numpy(), weight.numpy(), 8).toarray()
    assert np.allclose(dense, sparse, atol=F64_LAST)
    assert torch.equal(dense[6], torch.eye(8, dtype=torch.float64)[6])
    assert dense[0, 1] == pytest.approx(-2 / np.sqrt(2 * 4))
    values = torch.linalg.eigvalsh(dense)
    assert values.min() >= -1e-12
    assert values.max() <= 2 + 1e-12


def test_blocks_are_the_blocks_of_the_whole() -> None:
    pairs = torch.tensor([[0, 1, 3, 5], [1, 2, 4, 4]])
    weight = torch.ones(4, dtype=torch.float64)
    blocks = dense_laplacian(pairs, weight, 6, 2)
    torch.testing.assert_close(torch.block_diag(*blocks), dense_laplacian(pairs, weight, 6)[0], rtol=1e-5, atol=1e-6)


def test_empty_graph_and_one_node() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert dense_laplacian(none, torch.zeros(0), 1).tolist() == [[[1.0]]]
    assert dense_laplacian(none, torch.zeros(0), 0).shape == (1, 0, 0)


def test_names_edges_between_blocks_and_uneven_blocks() -> None:
    with pytest.raises(ShapeError):
        dense_laplacian(torch.tensor([[0], [3]]), torch.ones(1), 4, 2)
    with pytest.raises(ShapeError):
        dense_laplacian(torch.tensor([[0], [1]]), torch.ones(1), 5, 2)


def test_polynomial_equals_powers() -> None:
    L = laplacian(nx.path_graph(5))
    c = torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64)
    expected = sum(c[k] * torch.linalg.matrix_power(L, k) for k in range(4))
    assert torch.allclose(matrix_polynomial(c, L), expected, atol=F64_TIGHT)
    torch.testing.assert_close(
        matrix_polynomial(c[:1], L[None]), 0.3 * torch.eye(5, dtype=torch.float64)[None], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("coefficients", [[1, -2, 1.001], [1.0], [1, 3], [2, -1.9, 0.4, 0.1], [1, -0.9, 0.1, 0.2, 0.1]])
def test_minimum_is_the_least_value_on_a_fine_grid(coefficients: list[float]) -> None:
    grid = np.linspace(0, 2, 200_001)
    least, where = filter_minimum(coefficients)
    values = np.polynomial.Polynomial(coefficients)(grid)
    assert least == pytest.approx(values.min(), abs=F64_DEEP)
    assert 0 <= where <= 2


@pytest.mark.parametrize("bad", [[1, -1], [1, -0.5], [0, 1], [1, -2, 1], [-1, -1], [], [1, float("nan")]])
def test_a_filter_that_is_not_positive_on_the_spectrum_is_rejected(bad: list[float]) -> None:
    with pytest.raises(ConfigError, match="filter"):
        check_filter(bad)


def test_a_positive_filter_with_negative_coefficients_is_accepted() -> None:
    check_filter([1, -0.9, 0.3])
    np.testing.assert_allclose(filter_minimum(np.array([1, -0.9, 0.3])), (0.325, 1.5))  # at 0.9 / (2 * 0.3)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_critical_start_keeps_a_signal_over_a_path_of_100_nodes(order: int) -> None:
    """Gain 1 a hop within 2%: the newest nodes' norm after the last event against that after the first."""
    c = torch.tensor([1.0] + [critical_alpha(order)] * order, dtype=torch.float64)
    state = torch.zeros(100, dtype=torch.float64)
    state[0] = 1
    norms = []
    for new in range(1, 100):
        active = torch.arange(max(0, new - 1 - order), new + 1)
        path = nx.path_graph(len(active))
        P = matrix_polynomial(c, laplacian(path))
        path.remove_edge(len(active) - 2, len(active) - 1)
        before = matrix_polynomial(c, laplacian(path))
        state[active] = torch.linalg.matrix_exp(-torch.linalg.solve(P, P - before)) @ state[active]
        norms.append(float(state[max(0, new - order) : new + 1].norm()))
    gain = (norms[-1] / norms[0]) ** (1 / (len(norms) - 1))
    assert gain == pytest.approx(1, abs=0.02)


def test_gain_grows_through_one_at_the_critical_coefficient() -> None:
    for order in (1, 2, 3):
        a = critical_alpha(order)
        assert path_gain([1, *[0.8 * a] * order]) < 0.9 < 1.1 < path_gain([1, *[1.2 * a] * order])
    with pytest.raises(ConfigError, match="order"):
        critical_alpha(0)
