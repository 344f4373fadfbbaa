"""Proximity by sparse products equals a loop over pairs, with duplicate and reversed entries."""

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.ops import proximity as module
from hopstate.ops.proximity import KINDS, Proximity, proximity_naive
from hopstate.testing.conformance import F32, F32_LAST, F32_TIGHT, F64, F64_LAST, F64_SOLVED

EDGES = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 3), (1, 0), (1, 2), (4, 2), (4, 0), (5, 6)]


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_definition(kind, undirected, monkeypatch):
    graph = Graph.from_edges(np.array(EDGES), num_nodes=8, undirected=undirected, duplicates="keep")
    near = Proximity(graph.indptr, graph.indices)
    u, v = np.divmod(np.random.default_rng(0).permutation(64), 8)
    wanted = [proximity_naive(EDGES, 8, kind, *pair) for pair in zip(u.tolist(), v.tolist(), strict=True)]
    found = near.pairs(kind, u, v)
    assert np.allclose(found, wanted, rtol=F32 if kind == "pagerank" else F64, atol=F64_LAST)
    monkeypatch.setattr(module, "CELLS", 16)  # two rows at a time
    np.testing.assert_allclose(near.pairs(kind, u, v), found, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(near.pairs(kind, u[5:9], v[5:9]), found[5:9], rtol=1e-5, atol=1e-6)


def test_walks_stay_a_distribution_and_isolated_nodes_are_near_to_none():
    graph = Graph.from_edges(np.array(EDGES), num_nodes=8)
    near = Proximity(graph.indptr, graph.indices)
    every = near.pairs("pagerank", np.zeros(8, int), np.arange(8))
    assert every.sum() == pytest.approx(1 - 0.85 ** (module.STEPS + 1), abs=F32_TIGHT) or every.sum() <= 1
    assert every[7] == every[5] == 0
    assert all(near.pairs(kind, np.array([7]), np.array([0]))[0] == 0 for kind in KINDS)
    with pytest.raises(ConfigError, match="common_neighbors"):
        near.pairs("common_neighbours", np.array([0]), np.array([1]))


def test_features_do_not_see_the_pairs_own_link():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 15, (40, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = Graph.from_edges(edges, 15)
    near, others = Proximity(graph.indptr, graph.indices), np.argwhere(~np.eye(15, dtype=bool))
    found = near.paths(*others.T)
    wanted = [proximity_naive(edges.tolist(), 15, "paths", u, v) for u, v in others.tolist()]
    assert np.allclose(found[:, 3], wanted, rtol=F64_SOLVED, atol=F64)
    features = near.features(*others.T)
    for (u, v), own in zip(others.tolist(), features, strict=True):
        rest = edges[~((edges == (u, v)).all(1) | (edges == (v, u)).all(1))]
        without = Graph.from_edges(rest, 15)
        expected = Proximity(without.indptr, without.indices).features(np.array([u]), np.array([v]))[0]
        assert np.allclose(own, expected, rtol=F32_TIGHT, atol=F32_LAST)
    np.testing.assert_allclose(near.features(*others[7:9].T), features[7:9], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(features, near.features(*others[:, ::-1].T), rtol=1e-5, atol=1e-6)
