"""Link splits, random or by time: both directions and duplicates of a link stay in one part."""

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.data.splits import given_split, link_keys, message_edges, split_edges
from hopstate.errors import DataError


def graph_of(edges, **options):
    return Graph.from_edges(np.array(edges), **options)


def many(directed=False, seed=0, nodes=40, count=200):
    edges = np.random.default_rng(seed).integers(0, nodes, (count, 2))
    attr = np.arange(count, dtype=np.float32)[:, None]
    return graph_of(edges, num_nodes=nodes, undirected=not directed, duplicates="keep", edge_attr=attr)


@pytest.mark.parametrize("directed", [False, True])
def test_no_copy_of_a_held_out_link_is_a_message_edge(directed):
    graph = many(directed)
    split = split_edges(graph, seed=3)
    assert split.directed is directed
    kept = message_edges(graph, split.pairs["train"])
    inside = set(link_keys(kept.edge_index().T, 40).tolist())
    for name in ("val", "test"):
        assert not inside & set(link_keys(split.pairs[name], 40).tolist())
    of = [set(link_keys(split.pairs[name], 40).tolist()) for name in ("train", "val", "test")]
    links = {(min(u, v), max(u, v)) for u, v in graph.edge_index().T.tolist() if u != v}
    assert sum(map(len, of)) == len(set.union(*of)) == len(links)
    assert of[0] == inside - {v * 40 + v for v in range(40)}


def test_message_edges_keep_loops_duplicates_and_features():
    graph = many()
    split = split_edges(graph, seed=1)
    kept = message_edges(graph, split.pairs["train"])
    train = set(link_keys(split.pairs["train"], 40).tolist())
    ends = graph.edge_index().T.tolist()
    rows = [i for i, (u, v) in enumerate(ends) if u == v or min(u, v) * 40 + max(u, v) in train]
    assert np.array_equal(kept.edge_index(), graph.edge_index()[:, rows])
    assert np.array_equal(kept.edge_attr, graph.edge_attr[rows])
    assert kept.num_self_loops == graph.num_self_loops > 0


def test_fractions_seed_and_order_of_pairs():
    graph = many()
    a, b, c = (split_edges(graph, seed=seed) for seed in (0, 0, 1))
    total = sum(map(len, a.pairs.values()))
    assert [len(a.pairs[name]) for name in ("val", "test")] == [round(0.05 * total), round(0.1 * total)]
    assert all(np.array_equal(a.pairs[name], b.pairs[name]) for name in a.pairs)
    assert not np.array_equal(a.pairs["test"], c.pairs["test"])
    assert (a.pairs["test"][:, 0] < a.pairs["test"][:, 1]).all()


def test_the_latest_links_are_held_out_by_the_time_of_their_first_copy():
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 0)]
    graph = graph_of(edges, undirected=True, duplicates="keep", edge_attr=np.array([1, 5, 3, 4, 2, 9.0]))
    split = split_edges(graph, (0.6, 0.2, 0.2), times=graph.edge_attr[:, 0])
    assert split.pairs["test"].tolist() == [[1, 2]]
    assert split.pairs["val"].tolist() == [[3, 4]]
    with pytest.raises(DataError):
        split_edges(graph, times=np.full(graph.num_edges, np.nan))


def test_directions_of_a_directed_graph_stay_together():
    graph = graph_of([(0, 1), (1, 0), (1, 2), (2, 3), (3, 0)], undirected=False)
    for seed in range(8):
        split = split_edges(graph, (0.5, 0.25, 0.25), seed=seed)
        parts = [name for name, own in split.pairs.items() if {(0, 1), (1, 0)} & set(map(tuple, own.tolist()))]
        assert len(parts) == 1


@pytest.mark.parametrize("edges", [[(0, 0)], [(0, 1)], [(0, 1), (1, 0), (2, 2)], [(0, 1), (1, 2)]])
def test_too_few_links_are_named(edges):
    with pytest.raises(DataError):
        split_edges(graph_of(edges, num_nodes=4))
    with pytest.raises(DataError):
        split_edges(graph_of(np.empty((0, 2), int), num_nodes=4))


def test_a_given_split_is_validated_and_used():
    graph = graph_of([(0, 1), (1, 2), (2, 3), (3, 0), (4, 4)])
    split = given_split(graph, {"val": np.array([[1, 0]]), "test": np.array([[2, 3]])})
    assert {name: own.tolist() for name, own in split.pairs.items()} == {
        "train": [[0, 3], [1, 2]], "val": [[0, 1]], "test": [[2, 3]],
    }  # fmt: skip
    for wrong in (
        {"val": [[0, 2]], "test": [[2, 3]]},
        {"val": [[4, 4]], "test": [[2, 3]]},
        {"val": [[2, 3]], "test": [[3, 2]]},
        {"test": [[2, 3]]},
    ):
        with pytest.raises(DataError):
            given_split(graph, {name: np.array(pairs) for name, pairs in wrong.items()})


@pytest.mark.parametrize("fractions", [(0.2, 0.2, 0.6), (0.05, 0.05, 0.9), (0.05, 0.9, 0.05), (0.9, 0.05, 0.05)])
def test_few_links_leave_one_for_each_split(fractions: tuple[float, float, float]) -> None:
    for count in (3, 4, 5, 10):
        ring = np.stack([np.arange(count), np.arange(1, count + 1)])
        split = split_edges(Graph.from_edges(ring.T, count + 1), fractions)
        sizes = [len(split.pairs[name]) for name in ("train", "val", "test")]
        assert min(sizes) >= 1
        assert sum(sizes) == count
