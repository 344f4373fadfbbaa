"""Generated graphs: exact counts, the statistics of the published Minesweeper, fixed by the seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.data.readers.read_graph import read_graph
from hopstate.datasets.generators import minesweeper, stochastic_block_model
from hopstate.errors import ConfigError


def test_minesweeper_follows_the_rules_of_the_game() -> None:
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
    # the published features follow from the published labels by the same rule
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


def test_one_seed_fixes_everything_and_another_changes_it() -> None:
    for make in (lambda s: minesweeper(10, seed=s), lambda s: stochastic_block_model(60, 3, seed=s)):
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
    ],
)
def test_impossible_settings_are_rejected(call) -> None:
    with pytest.raises(ConfigError):
        call()
