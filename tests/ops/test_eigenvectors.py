from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch

from hopstate.errors import HopstateError
from hopstate.ops import eigenvectors
from hopstate.ops.eigenvectors import canonical_basis, components, laplacian_eigenvectors, shares
from hopstate.testing.conformance import F32_LAST, F32_TIGHT, F64_DEEP, F64_SOLVED, F64_SUM, assert_close_rmse

ROUTES = ("dense", "factor", "lanczos")


def force(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Force one solver on graphs that would all be dense."""
    if route != "dense":
        monkeypatch.setattr(eigenvectors, "DENSE", 4)
        monkeypatch.setattr(eigenvectors, "_factor_stays_sparse", lambda _: route == "factor")


def csr(graph: nx.Graph) -> tuple[np.ndarray, np.ndarray]:
    a = nx.to_scipy_sparse_array(graph, format="csr", weight=None)
    a.sort_indices()
    return a.indptr.astype(np.int64), a.indices.astype(np.int64)


def dense_laplacian(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """L of the whole graph, rows of isolated nodes zero."""
    n = len(indptr) - 1
    a = np.zeros((n, n))
    np.add.at(a, (np.repeat(np.arange(n), np.diff(indptr)), indices), 1)
    a = (a + a.T) / 2
    degree = a.sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 0.5)), 0)
    return np.diag((degree > 0) * 1.0) - scale[:, None] * a * scale


GRAPHS = {
    "grid": nx.grid_2d_graph(7, 7),  # eigenvalues come in pairs
    "ring": nx.cycle_graph(31),  # all pairs
    "path": nx.path_graph(40),
    "star": nx.star_graph(40),  # 1 has multiplicity 39
    "complete": nx.complete_graph(25),  # 25/24 has multiplicity 24
    "bipartite": nx.complete_bipartite_graph(9, 13),
    "tree": nx.balanced_tree(3, 3),
    "hypercube": nx.hypercube_graph(5),
    "random": nx.gnp_random_graph(60, 0.1, seed=1),
    "power law": nx.barabasi_albert_graph(80, 2, seed=2),
    "disconnected": nx.disjoint_union_all(
        [nx.cycle_graph(12), nx.path_graph(9), nx.complete_graph(2), nx.empty_graph(3), nx.cycle_graph(12)]
    ),
    "two nodes": nx.path_graph(2),
    "self-loops": nx.Graph([(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 6), (7, 7)]),
}


def smallest_of_components(laplacian: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Return each component's share of smallest non-trivial eigenvalues, by the dense solver."""
    parts = sorted((np.flatnonzero(labels == c) for c in range(labels.max(initial=-1) + 1)), key=len, reverse=True)
    own = shares(np.array([len(rows) for rows in parts], int), count)
    found = [np.linalg.eigvalsh(laplacian[np.ix_(rows, rows)])[1 : k + 1] for rows, k in zip(parts, own)]
    return np.sort(np.concatenate([np.zeros(0), *found]))


def check(indptr: np.ndarray, indices: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Compare with the dense solver: eigenvalues with multiplicities, residuals, orthonormality, no trivial ones."""
    values, vectors = laplacian_eigenvectors(indptr, indices, count)
    laplacian = dense_laplacian(indptr, indices)
    expected = smallest_of_components(laplacian, components(indptr, indices), count)
    found = len(expected)
    assert vectors.shape == (len(laplacian), count)
    np.testing.assert_allclose(values[:found], expected, atol=F64_SUM)
    assert np.isnan(values[found:]).all()
    assert not vectors[:, found:].any()
    kept = vectors[:, :found]
    np.testing.assert_allclose(kept.T @ kept, np.eye(found), atol=F64_SOLVED)
    np.testing.assert_allclose(laplacian @ kept, kept * values[:found], atol=F32_LAST)
    assert not vectors[~laplacian.any(1)].any()  # isolated nodes
    return values, vectors


@pytest.mark.parametrize("route", ROUTES)
def test_equals_dense(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(route, monkeypatch)
    for number, graph in enumerate(GRAPHS.values()):
        check(*csr(graph), (1, 4, 9)[(number + len(route)) % 3])


@pytest.mark.parametrize("name", ["ring", "star", "disconnected", "two nodes", "self-loops"])
def test_more_eigenvectors_than_nodes(name: str) -> None:
    graph = GRAPHS[name]
    values, _ = check(*csr(graph), len(graph) + 5)
    assert np.isfinite(values).sum() == len(graph) - nx.number_connected_components(graph)


def test_many_small_random_graphs() -> None:
    for seed in range(30):
        graph = nx.gnp_random_graph(1 + seed % 17, 0.25, seed=seed)
        check(*csr(graph), 1 + seed % 6)


def test_no_node_no_edge_no_column() -> None:
    nothing = np.zeros(0, np.int64)
    assert laplacian_eigenvectors(np.zeros(1, np.int64), nothing, 3)[1].shape == (0, 3)
    for n in (1, 5):
        values, vectors = laplacian_eigenvectors(np.zeros(n + 1, np.int64), nothing, 3)
        assert np.isnan(values).all()
        assert not vectors.any()
    assert laplacian_eigenvectors(*csr(nx.cycle_graph(5)), 0)[1].shape == (5, 0)


def test_entries_stored_twice_and_one_way() -> None:
    indptr, indices = np.array([0, 3, 4, 5, 5]), np.array([1, 1, 2, 2, 3])  # 0-1 twice; no reverse stored
    check(indptr, indices, 3)


def test_routes_agree_to_the_sign() -> None:
    """The basis depends only on the eigenspaces, not on the solver, start vector or sign."""
    graph, results = nx.grid_2d_graph(13, 13), []
    for dense, sparse in ((10**6, False), (4, True), (4, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(eigenvectors, "DENSE", dense)
            patch.setattr(eigenvectors, "_factor_stays_sparse", lambda _, sparse=sparse: sparse)
            results.append(laplacian_eigenvectors(*csr(graph), 7)[1])  # 7 separates two eigenspaces
    assert_close_rmse(results[1], results[0], factor=1e4)  # eigenvectors are accurate to residual / gap
    assert_close_rmse(results[2], results[0], factor=1e4)


def test_the_canonical_basis_does_not_depend_on_the_input_basis() -> None:
    generator = np.random.default_rng(0)
    space = np.linalg.qr(generator.standard_normal((20, 4)))[0]
    rotation = np.linalg.qr(generator.standard_normal((4, 4)))[0]
    basis = canonical_basis(space)
    assert_close_rmse(canonical_basis(space @ rotation), basis)
    assert_close_rmse(basis.T @ basis, np.eye(4))
    assert_close_rmse(basis @ basis.T, space @ space.T)
    assert canonical_basis(-space[:, :1]).max() == pytest.approx(np.abs(space[:, 0]).max())


@pytest.mark.parametrize("sparse", [True, False])
def test_eigenvectors_that_lanczos_misses_are_found(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first solve that returns one vector of each pair of equal eigenvalues, as a Krylov space does."""
    first, whole = [True], eigenvectors._lanczos

    def misses(apply: object, basis: np.ndarray, count: int, *args: object, **options: object) -> np.ndarray:
        if not first or not first.pop():
            return whole(apply, basis, count, *args, **options)
        vectors = np.linalg.eigh(dense_laplacian(*csr(GRAPHS["ring"])))[1]
        return vectors[:, 1 : 2 * count : 2]

    monkeypatch.setattr(eigenvectors, "DENSE", 4)
    monkeypatch.setattr(eigenvectors, "_factor_stays_sparse", lambda _: sparse)
    monkeypatch.setattr(eigenvectors, "_lanczos", misses)
    check(*csr(GRAPHS["ring"]), 6)
    assert not first


def test_a_large_residual_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigenvectors, "DENSE", 4)
    monkeypatch.setattr(eigenvectors, "RESIDUAL", 1e-300)
    with pytest.raises(HopstateError):
        laplacian_eigenvectors(*csr(nx.path_graph(40)), 3)


def minesweeper_grid(side: int) -> nx.Graph:
    """Each cell joined to its up to 8 neighbours."""
    return nx.convert_node_labels_to_integers(nx.strong_product(nx.path_graph(side), nx.path_graph(side)))


def inertia_below(indptr: np.ndarray, indices: np.ndarray, bound: float) -> int:
    """Number of eigenvalues of L below bound: by Sylvester's law, negative pivots of L - bound I (LU, no pivoting)."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    n = len(indptr) - 1
    a = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n))
    scale = sp.diags_array(1 / np.sqrt(np.diff(indptr)))
    shifted = (sp.eye_array(n) * (1 - bound) - scale @ a @ scale).tocsc()
    factor = splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    assert np.array_equal(factor.perm_r, factor.perm_c)
    return int((factor.U.diagonal() < 0).sum())


@pytest.mark.slow
def test_minesweeper_grid() -> None:
    """Eigenvalues at full size: 0.00038 has multiplicity 2, and none is missing in between, by inertia."""
    indptr, indices = csr(minesweeper_grid(100))
    assert len(indices) == 2 * 39_402
    values, vectors = laplacian_eigenvectors(indptr, indices, 15)
    assert values[:2].round(5).tolist() == [0.00038, 0.00038]
    assert values[7].round(5) == 0.00301  # the 9th, counting the trivial one
    for i in (1, 6, 13):
        assert inertia_below(indptr, indices, (values[i] + values[i + 1]) / 2) == i + 2  # with the trivial one
    assert_close_rmse(vectors.T @ vectors, np.eye(15), dtype=torch.float64)


def test_which_graphs_are_factorised() -> None:
    """Meshes, paths and trees, not expanders: on those the factor would be almost full."""

    def sparse(graph: nx.Graph) -> bool:
        return eigenvectors._factor_stays_sparse(nx.normalized_laplacian_matrix(graph).tocsr())

    assert sparse(minesweeper_grid(40))
    assert sparse(nx.path_graph(2000))
    assert sparse(nx.balanced_tree(2, 10))
    assert not sparse(nx.random_regular_graph(6, 2000, seed=0))
    assert not sparse(nx.barabasi_albert_graph(2000, 5, seed=0))


def test_component_shares_follow_size_and_never_exceed_it() -> None:
    assert shares(np.array([1000, 40, 40, 7, 2, 1]), 8).tolist() == [8, 0, 0, 0, 0, 0]
    assert shares(np.array([40, 2, 40]), 5).tolist() == [3, 0, 2]
    assert shares(np.array([3, 2, 1, 1]), 9).tolist() == [2, 1, 0, 0]
    assert shares(np.array([], int), 3).tolist() == []
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes, count = rng.integers(1, 30, rng.integers(1, 12)), int(rng.integers(0, 40))
        got = shares(sizes, count)
        assert got.sum() == min(count, (sizes - 1).sum())
        assert (got <= sizes - 1).all()
        larger = np.argsort(-sizes, kind="stable")
        full = got == sizes - 1
        assert all(got[a] >= got[b] or full[a] for a, b in pairwise(larger))


@pytest.mark.parametrize(("count", "route"), [(3, "dense"), (6, "factor"), (15, "lanczos")])
def test_the_giant_component_has_its_own_eigenvectors(count: int, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty long paths have smaller eigenvalues than the giant component, and would use every vector."""
    force(route, monkeypatch)
    giant, paths = nx.random_regular_graph(4, 300, seed=0), [nx.path_graph(12)] * 50
    indptr, indices = csr(nx.disjoint_union_all([*paths, giant]))
    values, vectors = laplacian_eigenvectors(indptr, indices, count)
    own = laplacian_eigenvectors(*csr(giant), count)[0]
    assert np.all(np.diff(values) >= 0)
    np.testing.assert_allclose(values, own, atol=F64_DEEP)  # by size it gets all of so few
    assert np.linalg.norm(vectors[600:], axis=0) == pytest.approx(np.ones(count))


def test_each_component_has_its_own_smallest_eigenvectors() -> None:
    parts = [nx.cycle_graph(40), nx.gnp_random_graph(30, 0.3, seed=1), nx.path_graph(2), nx.empty_graph(3)]
    values, vectors = laplacian_eigenvectors(*csr(nx.disjoint_union_all(parts)), 7)
    first = np.abs(vectors[:40]).sum(0) > 0
    assert (first.sum(), (~first).sum()) == (4, 3)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(7), atol=F64_SOLVED)
    for mask, graph, rows in ((first, parts[0], slice(0, 40)), (~first, parts[1], slice(40, 70))):
        expected = laplacian_eigenvectors(*csr(graph), int(mask.sum()))
        np.testing.assert_allclose(values[mask], expected[0], atol=F64_SOLVED)
        np.testing.assert_allclose(vectors[rows][:, mask], expected[1], atol=F32_TIGHT)


def test_components_take_edges_both_ways() -> None:
    assert components(np.array([0, 1, 1, 2, 2]), np.array([1, 3])).tolist() == [0, 0, 1, 1]
    assert components(np.zeros(4, np.int64), np.zeros(0, np.int64)).tolist() == [0, 1, 2]
