import numpy as np
import pytest

from hopstate.errors import ConfigError, DataError
from hopstate.ops.sampling import Neighborhoods, bisected_clusters
from hopstate.testing.conformance import F32_SUM


def random_csr(n: int, edges: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    dense = np.zeros((n, n), int)
    dense[rng.integers(0, n, edges), rng.integers(0, n, edges)] = 1
    cols = np.nonzero(dense)[1]
    return np.concatenate([[0], np.cumsum(dense.sum(1))]), cols, dense


def dense_of(local, n: int) -> np.ndarray:
    dense = np.zeros((n, n))
    for r in range(local.num_receivers):
        for e in range(local.indptr[r], local.indptr[r + 1]):
            dense[local.nodes[r], local.nodes[local.indices[e]]] += 1 if local.weight is None else local.weight[e]
    return dense


def test_induced_subgraph_and_halo_equal_dense_selection() -> None:
    indptr, indices, dense = random_csr(40, 200)
    cutter = Neighborhoods(indptr, indices)
    nodes = np.random.default_rng(1).permutation(40)[:13]
    inside = np.zeros_like(dense)
    inside[np.ix_(nodes, nodes)] = dense[np.ix_(nodes, nodes)]
    found = cutter.induced(nodes)
    assert np.array_equal(dense_of(found, 40), inside)
    assert np.array_equal(indices[found.edges], found.nodes[found.indices])
    halo = cutter.induced(nodes, halo=True)
    assert np.array_equal(halo.nodes[:13], nodes)
    assert halo.num_receivers == 13
    far = np.flatnonzero(dense[nodes].any(0) & ~np.isin(np.arange(40), nodes))
    assert np.array_equal(np.sort(halo.nodes[13:]), far)
    full = np.zeros_like(dense)
    full[nodes] = dense[nodes]
    assert np.array_equal(dense_of(halo, 40), full)
    assert np.array_equal(dense_of(cutter.induced(nodes), 40), inside)  # the workspace is clean


def test_edges_on_disk_are_read_in_place(tmp_path) -> None:
    indptr, indices, _ = random_csr(40, 200)
    np.save(tmp_path / "e.npy", indices)
    mapped = np.load(tmp_path / "e.npy", mmap_mode="r")
    cutter = Neighborhoods(indptr, mapped)
    assert np.shares_memory(cutter.indices, mapped)
    expected = Neighborhoods(indptr, indices).induced(np.arange(9), halo=True)
    assert np.array_equal(cutter.induced(np.arange(9), halo=True).indices, expected.indices)


@pytest.mark.parametrize("nodes", [[], [3]])
def test_empty_and_single(nodes: list[int]) -> None:
    indptr, indices, dense = random_csr(10, 30)
    cutter = Neighborhoods(indptr, indices)
    assert len(cutter.induced(np.array(nodes, int)).indices) == sum(dense[v, v] for v in nodes)
    assert cutter.sample(np.array(nodes, int), 2, seed=0).num_receivers == len(nodes)
    offsets, _ = cutter.ppr(np.array(nodes, int), 4)
    assert len(offsets) == len(nodes) + 1


@pytest.mark.parametrize("labor", [False, True])
def test_sampled_sums_are_unbiased_and_bounded(labor: bool) -> None:
    """The mean over many draws of the weighted sample is the adjacency, within 5 standard errors."""
    indptr, indices, dense = random_csr(30, 350)
    cutter, seeds = Neighborhoods(indptr, indices), np.arange(0, 30, 2)
    draws, total, square = 3000, np.zeros((30, 30)), np.zeros((30, 30))
    for s in range(draws):
        found = cutter.sample(seeds, 4, seed=s, labor=labor)
        one = dense_of(found, 30)
        assert (np.count_nonzero(one, 1) <= 4).all() or labor
        assert (dense[one > 0] > 0).all()
        total, square = total + one, square + one**2
    mean = total / draws
    error = np.sqrt(np.maximum(square / draws - mean**2, 1e-12) / draws)
    expected = dense[seeds]
    assert (np.abs(mean[seeds] - expected) < 5 * error[seeds] + 1e-3).all()


def test_labor_reads_fewer_nodes_than_neighbour_sampling() -> None:
    indptr, indices, _ = random_csr(400, 20000)
    cutter, seeds = Neighborhoods(indptr, indices), np.arange(100)
    count = {lab: np.mean([len(cutter.sample(seeds, 5, seed=s, labor=lab).nodes) for s in range(20)]) for lab in (0, 1)}
    assert count[1] < 0.6 * count[0]


def test_sample_does_not_depend_on_other_seeds() -> None:
    indptr, indices, _ = random_csr(50, 900)
    cutter = Neighborhoods(indptr, indices)
    single, together = cutter.sample(np.array([7]), 3, seed=5), cutter.sample(np.array([1, 7, 9]), 3, seed=5)
    row = slice(together.indptr[1], together.indptr[2])
    assert np.array_equal(single.nodes[single.indices], together.nodes[together.indices[row]])


def test_ppr_takes_the_nearest_nodes_and_the_root_first() -> None:
    indptr, indices, dense = random_csr(60, 240)
    dense = np.maximum(dense, dense.T)
    indices = np.nonzero(dense)[1]
    indptr = np.concatenate([[0], np.cumsum(dense.sum(1))])
    walk = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    exact = 0.15 * np.linalg.inv(np.eye(60) - 0.85 * walk)
    offsets, nodes = Neighborhoods(indptr, indices).ppr(np.arange(60), 8, epsilon=1e-7)
    for r in range(60):
        found = nodes[offsets[r] : offsets[r + 1]]
        assert found[0] == r
        others = np.sort(np.delete(exact[r], r))[::-1]
        assert np.allclose(np.sort(exact[r][found[1:]])[::-1], others[: len(found) - 1], atol=F32_SUM)


def test_union_stacks_induced_subgraphs() -> None:
    indptr, indices, dense = random_csr(30, 200)
    cutter = Neighborhoods(indptr, indices)
    offsets, nodes = cutter.hops(np.array([3, 4, 3 + 9]), 2, 3, seed=1)
    union = cutter.union(offsets, nodes)
    for r in range(3):
        part = nodes[offsets[r] : offsets[r + 1]]
        assert len(np.unique(part)) == len(part)
        block = np.zeros((len(part), len(part)))
        for i in range(offsets[r], offsets[r + 1]):
            ends = union.indices[union.indptr[i] : union.indptr[i + 1]]
            assert ((ends >= offsets[r]) & (ends < offsets[r + 1])).all()
            block[i - offsets[r], ends - offsets[r]] = 1
        assert np.array_equal(block, dense[np.ix_(part, part)])


def test_bad_nodes_are_named() -> None:
    cutter = Neighborhoods(*random_csr(10, 30)[:2])
    with pytest.raises(DataError, match="12"):
        cutter.induced(np.array([1, 12]))
    with pytest.raises(DataError, match="4"):
        cutter.induced(np.array([4, 1, 4]))
    with pytest.raises(ConfigError):
        cutter.sample(np.array([1]), 0, seed=0)


def test_bisection_balances_and_cuts_little() -> None:
    side = 40
    grid = np.arange(side * side).reshape(side, side)
    ends = np.concatenate(
        [np.stack([grid[1:].ravel(), grid[:-1].ravel()], 1), np.stack([grid[:, 1:].ravel(), grid[:, :-1].ravel()], 1)]
    )
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0]))])
    part = bisected_clusters(indptr, both[:, 1], 7)
    size = np.bincount(part, minlength=7)
    assert size.min() > 0.85 * side * side / 7
    assert size.max() < 1.15 * side * side / 7
    assert (part[both[:, 0]] != part[both[:, 1]]).mean() < 0.15  # 0.86 for random parts
