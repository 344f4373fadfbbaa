"""KaMinPar's clusters: balanced, fixed by their seed, and fewer edges cut than by bisection."""

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import MissingExtraError
from hopstate.sampling import partition as partition_module
from hopstate.sampling.partition import IMBALANCE, cut_fraction, first_installed, partition


def near(n: int = 3000, edges: int = 12_000, seed: int = 0) -> Graph:
    """Return a graph whose nodes, in shuffled order, mostly have neighbours near them on a line."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n, edges)
    b = np.where(rng.random(edges) < 0.9, (a + rng.integers(1, 20, edges)) % n, rng.integers(0, n, edges))
    order = rng.permutation(n)
    return Graph.from_edges(order[np.stack([a, b], 1)], n)


def test_clusters_are_balanced_repeatable_and_cut_less_than_bisection() -> None:
    pytest.importorskip("kaminpar")
    graph, clusters = near(), 24
    cluster = partition(graph, clusters, partitioner="kaminpar", seed=3)
    assert np.array_equal(cluster, partition(graph, clusters, partitioner="kaminpar", seed=3))
    assert not np.array_equal(cluster, partition(graph, clusters, partitioner="kaminpar", seed=4))
    sizes = np.bincount(cluster, minlength=clusters)
    assert sizes.min() > 0
    assert sizes.max() <= np.ceil((1 + IMBALANCE) * graph.num_nodes / clusters)
    assert cut_fraction(graph, cluster) < cut_fraction(graph, partition(graph, clusters, partitioner="bisection"))


@pytest.mark.parametrize(
    ("nodes", "edges", "clusters"),
    [(1, 0, 2), (5, 0, 5), (2, 1, 40), (9, 4, 2), (40, 60, 40), (40, 60, 5)],
)
def test_small_graphs_and_many_clusters_leave_none_empty(nodes: int, edges: int, clusters: int) -> None:
    pytest.importorskip("kaminpar")
    ends = np.random.default_rng(0).integers(0, nodes, (edges, 2))
    clusters = min(nodes, clusters)
    cluster = partition(Graph.from_edges(ends, nodes), clusters, partitioner="kaminpar")
    assert sorted(set(cluster)) == list(range(clusters))


def test_wide_and_narrow_files_hold_the_same_graph(tmp_path, monkeypatch) -> None:
    kaminpar = pytest.importorskip("kaminpar")
    graph = near(200, 800)
    indptr, indices = partition_module._symmetric(graph)
    for flags, width in ((0b1111, 4), (0b0011, 8)):
        if width == 8:
            monkeypatch.setattr(partition_module, "NARROW", 0)
        path = tmp_path / f"{width}.parhip"
        partition_module._write_parhip(path, indptr, indices)
        assert np.fromfile(path, np.uint64, 3).tolist() == [flags, 200, len(indices)]
        assert path.stat().st_size == 24 + width * (len(indptr) + len(indices))
        loaded = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP)
        assert (loaded.n(), loaded.m()) == (200, len(indices))
        cut = kaminpar.edge_cut(loaded, [node % 2 for node in range(200)])  # of exactly these edges
        rows = np.repeat(np.arange(200), np.diff(indptr))
        assert cut == (rows % 2 != indices % 2).sum() // 2


def test_the_first_installed_partitioner_is_used(monkeypatch) -> None:
    there = {"kaminpar", "pymetis"}
    monkeypatch.setattr(partition_module, "find_spec", lambda name: object() if name in there else None)
    assert first_installed() == "kaminpar"
    there.remove("kaminpar")
    assert first_installed() == "metis"
    there.clear()
    assert first_installed() == "bisection"
    with pytest.raises(MissingExtraError, match="kaminpar"):
        partition(near(50, 100), 4, partitioner="kaminpar")


@pytest.mark.parametrize("some", [1, 7, 1 << 22])
def test_entries_are_read_in_blocks_of_nodes(some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "SOME", some)
    graph = near(200, 500)
    cluster = np.random.default_rng(0).integers(0, 4, 200)
    sources, targets = graph.edge_index()
    assert cut_fraction(graph, cluster) == (cluster[sources] != cluster[targets]).mean()
    indptr, indices = partition_module._symmetric(graph)
    assert indices is graph.indices  # a graph is not copied
    assert indptr is graph.indptr


def test_loops_do_not_reach_the_partitioner() -> None:
    indptr, indices = partition_module._symmetric(Graph.from_edges(np.array([[0, 1], [1, 2], [2, 3], [3, 3]])))
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 3, 5, 6], [1, 0, 2, 1, 3, 2])
