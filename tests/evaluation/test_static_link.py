"""Ranks of held-out links equal a loop over candidates in Python; filtered, seeded, ties at the mean."""

import numpy as np
import pytest

from hopstate.errors import DataError
from hopstate.evaluation import static_link
from hopstate.evaluation.static_link import HITS, LinkQueries, link_metrics, link_ranks
from hopstate.sampling.pair_negatives import NonNeighbors
from hopstate.testing.conformance import F64


def example(directed=False, candidates=None, nodes=30, seed=0):
    pairs = np.random.default_rng(seed).integers(0, nodes, (90, 2))
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    pairs = np.random.default_rng(seed).permutation(pairs)
    free = NonNeighbors(pairs, nodes, directed=directed)
    return LinkQueries(pairs=pairs[:20], free=free, directed=directed, candidates=candidates), pairs


def tied(u, v):
    """Return scores with many ties."""
    return ((u * 7 + v * 3) % 5).astype(float) - (u == v)


def naive(queries, pairs, score):
    """Return ranks by a loop over candidates."""
    linked = {tuple(p) for p in pairs.tolist()}
    linked |= set() if queries.directed else {(v, u) for u, v in linked}
    found = []
    for given, expected in queries.ends().tolist():
        own = score(np.array([given]), np.array([expected]))[0]
        above, level = 0, 0
        for other in range(queries.free.num_nodes):
            if other == given or (given, other) in linked:
                continue
            value = score(np.array([given]), np.array([other]))[0]
            above, level = above + (value > own), level + (value == own)
        found.append(1 + above + level / 2)
    return found


@pytest.mark.parametrize("directed", [False, True])
def test_ranks_equal_a_loop_over_candidates(directed, monkeypatch):
    queries, pairs = example(directed)
    expected = naive(queries, pairs, tied)
    assert link_ranks(queries, tied).tolist() == expected
    monkeypatch.setattr(static_link, "PAIRS", 64)  # two source nodes at a time
    assert link_ranks(queries, tied).tolist() == expected
    found = link_metrics(queries, tied)
    assert found["mrr"] == pytest.approx(np.mean([1 / r for r in expected]), rel=F64)
    assert [found[f"hits@{k}"] for k in HITS] == [np.mean([r <= k for r in expected]) for k in HITS]


def test_candidates_are_neither_links_of_any_split_nor_the_node_itself():
    for candidates in (None, 7):
        queries, pairs = example(candidates=candidates)
        linked = {tuple(p) for p in pairs.tolist()} | {(v, u) for u, v in pairs.tolist()}
        for rows, owner, nodes, cuts in queries.blocks():
            given = np.unique(queries.ends()[rows, 0])
            assert np.array_equal(given[owner], queries.ends()[rows, 0])
            sources = np.repeat(given, np.diff(cuts))
            assert not linked & set(zip(sources.tolist(), nodes.tolist(), strict=True))
            assert (sources != nodes).all()
        negatives = queries.negatives()
        assert not linked & set(map(tuple, negatives.tolist()))


def test_candidates_depend_only_on_the_seed():
    one, again = (example(candidates=5)[0] for _ in range(2))
    assert np.array_equal(link_ranks(one, tied), link_ranks(again, tied))
    assert link_metrics(one, tied) == link_metrics(again, tied)
    other = LinkQueries(pairs=one.pairs, free=one.free, directed=False, candidates=5, seed=1)
    assert not np.array_equal(link_ranks(one, tied), link_ranks(other, tied))
    every = LinkQueries(pairs=one.pairs, free=one.free, directed=False, candidates=10_000)
    assert np.array_equal(link_ranks(every, tied), link_ranks(example()[0], tied))


def test_perfect_worst_and_constant_scores():
    queries, pairs = example()
    linked = NonNeighbors(pairs, 30, directed=False).linked
    best = link_metrics(queries, lambda u, v: linked(u, v).astype(float))
    assert best["mrr"] == best["hits@1"] == best["roc_auc"] == 1
    rank = link_ranks(queries, lambda u, v: np.zeros(len(u)))
    assert np.array_equal(rank, 1 + queries.free.count[queries.ends()[:, 0]] / 2)
    assert link_metrics(queries, lambda u, v: np.zeros(len(u)))["roc_auc"] == 0.5


def test_intervals_contain_the_metric_and_bad_scores_are_named():
    queries, _ = example()
    found = link_metrics(queries, tied, bootstrap=50)
    for name in ("mrr", "average_precision", "roc_auc"):
        assert found[f"{name}_low"] <= found[name] <= found[f"{name}_high"]
    with pytest.raises(DataError, match=r"(?i)nan"):
        link_ranks(queries, lambda u, v: np.full(len(u), np.nan))
    none = LinkQueries(pairs=np.empty((0, 2), int), free=queries.free, directed=False, candidates=None)
    with pytest.raises(DataError):
        link_metrics(none, tied)
