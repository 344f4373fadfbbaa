"""Generated graphs: exact counts, the published Minesweeper's statistics, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.data.readers.read_graph import read_graph
from hopstate.datasets.generators import long_range, minesweeper, rmat, stochastic_block_model
from hopstate.errors import ConfigError


def test_minesweeper_is_the_game() -> None:
    graph = minesweeper(12, seed=3)
    assert graph.num_nodes == 144
    assert graph.num_edges == 2 * (2 * 12 * 11 + 2 * 11 * 11)
    assert graph.y.sum() == round(0.2 * 144)
    assert graph.x[:, 0].sum() == 72
    np.testing.assert_array_equal(graph.x.sum(1), 1)
    for v in range(144):
        near = [u for u in range(144) if u != v and max(abs(u // 12 - v // 12), abs(u % 12 - v % 12)) == 1]
        np.testing.assert_array_equal(graph.indices[graph.indptr[v] : graph.indptr[v + 1]], near)
        if not graph.x[v, 0]:
            assert graph.x[v, 1 + min(graph.y[near].sum(), 5)] == 1


@pytest.mark.shared
def test_minesweeper_has_the_published_statistics(shared: Path) -> None:
    real = read_graph(shared / "data" / "heterophilous" / "minesweeper.npz")
    made = minesweeper()
    assert made.structure_hash == real.structure_hash
    assert made.y.sum() == real.y.sum() == 2000
    assert made.x[:, 0].sum() == real.x[:, 0].sum() == 5000
    counts = np.stack([g.x[:, 1:].sum(0) for g in (made, real)])
    assert np.all(np.abs(counts[0] - counts[1]) < 5 * np.sqrt(counts.sum(0)))
    for name in ("train", "val", "test"):
        np.testing.assert_array_equal(made.masks[name].sum(1), real.masks[name].sum(1))
        for a, b in zip(made.masks[name], real.masks[name], strict=True):
            assert made.y[a].mean() == real.y[b].mean() == 0.2
    # the real features follow from the real labels by the same rule
    shown = np.flatnonzero(real.x[:, 0] == 0)
    near = real.to_scipy() @ real.y
    np.testing.assert_array_equal(real.x[shown].argmax(1), 1 + np.minimum(near[shown], 5))


def test_block_model_has_its_degree_and_homophily() -> None:
    graph = stochastic_block_model(4000, 4, degree=30, homophily=0.7, num_features=8, signal=2.0, seed=1)
    np.testing.assert_array_equal(np.bincount(graph.y), 1000)
    assert abs(graph.degree.mean() - 30) < 0.5
    u, v = graph.edge_index()
    assert abs((graph.y[u] == graph.y[v]).mean() - 0.7) < 0.01
    assert graph.num_self_loops == 0
    assert graph.is_undirected
    means = np.stack([graph.x[graph.y == c].mean(0) for c in range(4)])
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 2, atol=0.2)
    assert stochastic_block_model(200_000, degree=2, num_features=0).num_nodes == 200_000


def test_rmat_fills_the_quadrants_as_asked() -> None:
    graph = rmat(10, 8, undirected=False, seed=5)
    assert graph.num_nodes == 1024
    assert 0 < graph.num_edges <= 8 * 1024
    u, v = rmat(1, 50_000, probabilities=(0.1, 0.4, 0.3, 0.2), undirected=False).edge_index()
    assert {(0, 1), (1, 0)} == set(zip(u.tolist(), v.tolist(), strict=True))  # self-loops dropped
    from hopstate.datasets.rmat_kernels import rmat_edges

    edges = rmat_edges(1, 2, 100_000, 0.1, 0.5, 0.8, 0)
    shares = np.bincount(2 * edges[:, 0] + edges[:, 1]) / len(edges)
    np.testing.assert_allclose(shares, [0.1, 0.4, 0.3, 0.2], atol=0.01)
    skewed = rmat(12, 8).degree
    assert skewed.max() > 15 * skewed.mean()
    assert rmat(num_nodes=1000, num_features=3).x.shape == (1000, 3)
    assert rmat(num_nodes=1).num_nodes == 1


@pytest.mark.parametrize(("ring", "length"), [(False, 1), (False, 7), (True, 2), (True, 6)])
def test_long_range_label_is_the_bit_at_exactly_that_distance(ring: bool, length: int) -> None:
    graph = long_range(length, 20, ring=ring, seed=2)
    asked = np.flatnonzero(graph.y >= 0)
    assert len(asked) == 20
    assert graph.y[asked].sum() == 10
    heads = np.flatnonzero((np.abs(graph.x) == 1).all(1))
    assert len(heads) == 20
    a = graph.to_scipy().toarray()
    reach = np.eye(graph.num_nodes)
    for hop in range(length + 1):
        met = (reach[np.ix_(asked, heads)] > 0).any(1)
        assert met.all() if hop == length else not met.any()
        if hop < length:
            reach = reach @ a
    where = reach[np.ix_(asked, heads)].argmax(1)
    np.testing.assert_array_equal(graph.y[asked], graph.x[heads[where], 0] > 0)
    np.testing.assert_array_equal(graph.degree <= 2, True)


def test_one_seed_fixes_everything_and_another_changes_it() -> None:
    makers = (lambda s: minesweeper(10, seed=s), lambda s: stochastic_block_model(60, 3, seed=s))
    for make in (*makers, lambda s: rmat(6, seed=s, num_features=2), lambda s: long_range(3, 10, seed=s)):
        first, same, other = make(0), make(0), make(1)
        assert isinstance(first, Graph)
        assert first.content_hash == same.content_hash != other.content_hash
        assert all(np.array_equal(first.masks[k], same.masks[k]) for k in first.masks)


@pytest.mark.parametrize(
    "call",
    [
        lambda: minesweeper(1),
        lambda: minesweeper(mines=1.0),
        lambda: stochastic_block_model(3, 2),
        lambda: stochastic_block_model(homophily=1.5),
        lambda: rmat(0),
        lambda: rmat(probabilities=(0.5, 0.5, 0.5, 0.5)),
        lambda: long_range(0),
        lambda: long_range(1, ring=True),
        lambda: long_range(count=3),
    ],
)
def test_impossible_settings_are_refused(call) -> None:
    with pytest.raises(ConfigError):
        call()
