"""Negatives of a node: never a link, uniform, by degree and two hops away, without repeats, seeded."""

import numpy as np
import pytest

from hopstate.sampling.pair_negatives import NonNeighbors


def some_links(directed, seed=0, nodes=30, count=120):
    pairs = np.random.default_rng(seed).integers(0, nodes, (count, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    linked = {(u, u) for u in range(nodes)} | {tuple(p) for p in pairs.tolist()}
    linked |= set() if directed else {(v, u) for u, v in linked}
    return NonNeighbors(pairs, nodes, directed=directed), linked


@pytest.mark.parametrize("directed", [False, True])
def test_counts_equal_the_nodes_that_are_not_linked(directed):
    free, linked = some_links(directed)
    for u in range(30):
        expected = [v for v in range(30) if (u, v) not in linked]
        assert free.count[u] == len(expected)
        assert free.nth_non_neighbor(np.full(len(expected), u), np.arange(len(expected))).tolist() == expected
    u, v = np.divmod(np.arange(900), 30)
    assert free.linked(u, v).tolist() == [pair in linked for pair in zip(u.tolist(), v.tolist(), strict=True)]


@pytest.mark.parametrize("strategy", ["uniform", "degree", "two-hop"])
def test_no_draw_is_a_link(strategy):
    free, linked = some_links(False)
    rows = np.tile(np.arange(30), 200)
    drawn = free.draw(rows, np.random.default_rng(1), strategy)
    assert not linked & set(zip(rows.tolist(), drawn.tolist(), strict=True))
    assert np.array_equal(drawn, free.draw(rows, np.random.default_rng(1), strategy))


def test_strategies_follow_their_rules():
    star = np.array([(0, v) for v in range(1, 6)] + [(6, 7)])
    free = NonNeighbors(star, 10, directed=False)
    rng = np.random.default_rng(0)
    rows = np.full(30_000, 8)
    for strategy, weight in (("uniform", np.ones(10)), ("degree", np.array([5, 1, 1, 1, 1, 1, 1, 1, 0, 0]))):
        weight = np.where(np.arange(10) == 8, 0, weight)
        shares = np.bincount(free.draw(rows, rng, strategy), minlength=10) / len(rows)
        assert np.abs(shares - weight / weight.sum()).max() < 0.02
    near = np.bincount(free.draw(np.full(10_000, 1), rng, "two-hop"), minlength=10)
    assert near[2:6].sum() > 9_900  # the others around the center
    assert near[[0, 1]].sum() == 0


def test_a_node_linked_to_all_others_has_no_negatives():
    free = NonNeighbors(np.array([(0, 1), (0, 2)]), 3, directed=False)
    for strategy in ("uniform", "degree", "two-hop"):
        assert free.draw(np.array([0, 1]), np.random.default_rng(0), strategy).tolist() == [-1, 2]
    nodes, bounds = free.sample(np.array([0, 1]), 5, np.random.default_rng(0))
    assert (nodes.tolist(), bounds.tolist()) == ([2], [0, 0, 1])


@pytest.mark.parametrize("most", [1, 5, 12, 25, 100])
def test_several_draws_differ_and_none_is_a_link(most):
    free, linked = some_links(False, count=60)
    rows = np.arange(30)
    nodes, bounds = free.sample(rows, most, np.random.default_rng(0))
    for u in rows:
        own = nodes[bounds[u] : bounds[u + 1]].tolist()
        assert len(own) == len(set(own)) == min(most, free.count[u])
        assert not {(u, v) for v in own} & linked


def test_all_places_are_equally_likely():
    free = NonNeighbors(np.empty((0, 2), int), 40, directed=False)
    for most in (4, 20):  # far below and close to the available number
        nodes, _ = free.sample(np.zeros(4000, int), most, np.random.default_rng(0))
        shares = np.bincount(nodes, minlength=40)[1:] / 4000
        assert np.abs(shares - most / 39).max() < 0.04
