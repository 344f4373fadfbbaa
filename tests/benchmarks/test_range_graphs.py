"""Long-range labels: a labeled node depends on one node at a known distance and on nothing nearer."""

import sys
from pathlib import Path

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from range_graphs import far_clues, long_range, tree_match


def distances(graph: Graph, start: int) -> np.ndarray:
    """(N,) hops from a node, by breadth-first search; -1 for unreachable nodes."""
    found = np.full(graph.num_nodes, -1)
    found[start], ring, hops = 0, [start], 0
    while ring:
        hops += 1
        near = {int(u) for v in ring for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
        ring = [u for u in near if found[u] < 0]
        found[ring] = hops
    return found


def labeled_nodes(graph: Graph) -> np.ndarray:
    return np.flatnonzero(graph.y >= 0)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_root_has_the_class_of_the_leaf_with_its_key(depth: int) -> None:
    graph, leaves = tree_match(depth, 30, num_classes=3, seed=1), 2**depth
    assert graph.num_nodes == 30 * (2 * leaves - 1)
    assert np.bincount(graph.y[labeled_nodes(graph)]).tolist() == [10, 10, 10]
    for root in labeled_nodes(graph):
        away = distances(graph, root)
        (mine,) = np.flatnonzero(graph.x[root])
        assert mine < leaves
        mates = np.flatnonzero((away >= 0) & (graph.x[:, mine] == 1) & (np.arange(graph.num_nodes) != root))
        assert away[mates].tolist() == [depth]
        assert graph.x[mates[0], leaves:].argmax() == graph.y[root]
        assert not graph.x[(away > 0) & (away < depth)].any()  # no nearer node carries features
        assert sorted(graph.x[away == depth, :leaves].argmax(1)) == list(range(leaves))


@pytest.mark.parametrize("reach", [1, 6])
def test_the_last_cell_of_a_row_has_the_label_of_its_rows_clue(reach: int) -> None:
    graph = far_clues(reach, 20, seed=3)
    assert len(labeled_nodes(graph)) == 20
    assert graph.y[labeled_nodes(graph)].sum() == 10
    for cell in labeled_nodes(graph):
        away = distances(graph, cell)
        clues = np.flatnonzero(graph.x[:, 0])
        assert (away >= 0).all()  # one board
        assert len(clues) == 20
        assert away[clues].min() == reach
        (own,) = clues[away[clues] == reach]
        assert graph.x[own, 1] == 2 * graph.y[cell] - 1
        assert (np.abs(graph.x[away < reach, 1]) < 1).all()


def test_crossings_have_small_weights_and_join_different_rows() -> None:
    plain, graph = (far_clues(5, 30, crossings=c, faint=0.25, seed=4) for c in (0, 2))
    np.testing.assert_array_equal(graph.x, plain.x)
    np.testing.assert_array_equal(graph.y, plain.y)
    np.testing.assert_array_equal(graph.masks["test"], plain.masks["test"])
    assert far_clues(5, 30, crossings=2, faint=0.25, seed=4).content_hash == graph.content_hash
    edges = np.stack([np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices])
    clear = graph.edge_attr[:, 0] == 1
    assert set(graph.edge_attr[~clear, 0].tolist()) == {0.25}
    np.testing.assert_array_equal(edges[1, clear], plain.indices)  # all edges of the rows, and no others, are clear
    row, column = np.divmod(edges[:, ~clear], 6)
    assert (row[0] != row[1]).all()
    assert (column != 0).any(0).all()
    assert 3.4 < np.bincount(edges[0, ~clear], minlength=180).mean() <= 4


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: tree_match(3, 40, seed=seed),
        lambda seed: far_clues(4, 40, seed=seed),
        lambda seed: long_range(4, 40, marked=True, seed=seed),
    ],
)
def test_a_seed_fixes_the_graph_and_labeled_nodes_have_one_degree(make) -> None:
    graphs = [make(0), make(1)]
    assert graphs[0].content_hash == make(0).content_hash != graphs[1].content_hash
    graph = graphs[0]
    assert {len(np.flatnonzero(graph.masks[part])) for part in ("train", "val", "test")} == {28, 6}
    degrees = np.diff(graph.indptr)[labeled_nodes(graph)]
    assert len(set(degrees.tolist())) == 1


@pytest.mark.parametrize("ring", [False, True])
def test_a_mark_identifies_the_first_node(ring: bool) -> None:
    plain, marked = (long_range(5, 20, ring=ring, marked=m, seed=2) for m in (False, True))
    np.testing.assert_array_equal(marked.x[:, :-1], plain.x)
    np.testing.assert_array_equal(marked.y, plain.y)
    heads = np.flatnonzero(marked.x[:, -1])
    np.testing.assert_array_equal(heads, np.flatnonzero((np.abs(plain.x) == 1).all(1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: tree_match(0),
        lambda: tree_match(17),
        lambda: tree_match(num_classes=1),
        lambda: tree_match(3, 20),
        lambda: far_clues(0),
        lambda: far_clues(rows=5),
        lambda: far_clues(crossings=-1),
    ],
)
def test_impossible_range_graph_settings_are_rejected(call) -> None:
    with pytest.raises(ConfigError):
        call()
