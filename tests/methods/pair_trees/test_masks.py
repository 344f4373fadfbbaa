"""Trees as masks of leaves say what walks from root to leaf say, to the bit, of whatever rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hopstate.methods.pair_trees.masks import MaskedTrees, rounded_down
from hopstate.methods.pair_trees.trees import Forest

WIDTH = 5
VALUES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 0.1, -3.5, 1e30, -1e30, 1e-40], np.float32)


def grown(rng: np.random.Generator, leaves: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes (n, 4) and thresholds (n,) of a tree that is split at leaves drawn at random."""
    nodes, threshold, open_ = [[0, 0, 0, 0]], [0.0], [0]
    while len(open_) < leaves:
        i = open_.pop(rng.integers(len(open_)))
        left, right = len(nodes), len(nodes) + 1
        nodes[i] = [int(rng.integers(WIDTH)), left, right, int(rng.choice([left, right]))]
        some = rng.choice([rng.normal(), float(rng.choice(VALUES[3:])), np.finfo(np.float64).max, -1e300])
        threshold[i] = float(some)
        nodes += [[0] + [left] * 3, [0] + [right] * 3]
        threshold += [0.0, 0.0]
        open_ += [left, right]
    return np.array(nodes, np.int32), np.array(threshold)


def forest(seed: int, sizes: list[int]) -> Forest:
    """Return trees of so many leaves each."""
    from hopstate.methods.pair_trees.tree_kernels import depths

    rng = np.random.default_rng(seed)
    parts = [grown(rng, size) for size in sizes]
    first = np.concatenate([[0], np.cumsum([len(nodes) for nodes, _ in parts])]).astype(np.int64)
    nodes = np.concatenate([nodes for nodes, _ in parts]) if parts else np.zeros((0, 4), np.int32)
    for k in range(len(parts)):
        nodes[first[k] : first[k + 1], 1:] += first[k].astype(np.int32)
    threshold = np.concatenate([one for _, one in parts]) if parts else np.zeros(0)
    deepest = np.zeros(len(parts), np.int64)
    depths(first, nodes, deepest)
    return Forest(first, deepest, nodes, threshold, rng.normal(size=len(nodes)), 0.25)


def rows(seed: int, count: int, trees: Forest) -> np.ndarray:
    """Return (count, F) values, many of them at a threshold or beside it."""
    rng = np.random.default_rng(seed)
    near = rounded_down(trees.threshold) if len(trees.threshold) else np.zeros(1, np.float32)
    edges = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), VALUES])
    x = rng.normal(size=(count, WIDTH)).astype(np.float32)
    at = rng.random(x.shape) < 0.6
    x[at] = rng.choice(edges, at.sum())
    return x


def walked(trees: Forest, x: np.ndarray, begin: int = 0, end: int | None = None) -> np.ndarray:
    """Return what walks say of rows, and see that masks say it too."""
    end = len(trees.deepest) if end is None else end
    before = np.random.default_rng(1).normal(size=len(x))
    a, b = before.copy(), before.copy()
    trees.walk(x, a, begin, end)
    assert trees.masked is not None
    trees.masked.add(x, b, begin, end)
    np.testing.assert_array_equal(a, b)
    return a


@pytest.mark.parametrize("count", [0, 1, 5, 63, 64, 65, 200])
def test_any_number_of_rows(count: int) -> None:
    trees = forest(0, [31, 1, 2, 64, 17])
    assert len(walked(trees, rows(count, count, trees))) == count


@pytest.mark.parametrize("seed", range(4))
def test_trees_of_any_form(seed: int) -> None:
    sizes = np.random.default_rng(seed).integers(1, 65, 20).tolist()
    trees = forest(seed, sizes)
    x = rows(seed, 300, trees)
    assert np.ptp(walked(trees, x)) > 0
    walked(trees, x, 3, 11)
    walked(trees, x, 7, 7)


def test_no_trees() -> None:
    trees = forest(0, [])
    assert walked(trees, rows(0, 70, trees)).shape == (70,)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the two ways were taken."""
    found: list[str] = []

    def noted(name: str, whole: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any) -> None:
            found.append(name)
            whole(*given)

        return call

    for owner, name in ((MaskedTrees, "add"), (Forest, "walk")):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    return found


def test_which_way_is_taken(taken: list[str]) -> None:
    """Masks where there are rows enough and leaves few enough; the score of a row does not tell."""
    small, large = forest(3, [31] * 9), forest(3, [31] * 8 + [65])
    for trees, ways in ((small, {"add", "walk"}), (large, {"walk"})):
        x = rows(4, 100, trees)
        whole = trees.scores(x)
        alone = np.concatenate([trees.scores(x[k : k + 1]) for k in range(len(x))])
        np.testing.assert_array_equal(whole, alone)
        assert set(taken) == ways
        taken.clear()
    small.scores(rows(4, 100, small).astype(np.float64))
    assert taken == ["walk"]


@pytest.mark.parametrize("node", [[0, 1, 1, 1], [0, 1, 2, 5], [0, 1, 3, 1]])
def test_what_is_no_tree_is_walked(node: list[int]) -> None:
    """Two ways to a node, something missing that goes elsewhere, a node with no way to it: as a file may have them."""
    trees = forest(5, [4])
    trees.nodes[0] = node
    assert MaskedTrees.of(trees.first, trees.nodes, trees.threshold, trees.value) is None
    assert np.isfinite(trees.scores(rows(0, 70, trees))).all()


def test_a_threshold_that_is_no_number_is_walked() -> None:
    """No value is up to it and none above it: walks go right, which no mask says."""
    trees = forest(5, [4])
    trees.threshold[0] = np.nan
    assert MaskedTrees.of(trees.first, trees.nodes, trees.threshold, trees.value) is None


def test_thresholds_are_rounded_towards_the_left() -> None:
    """x <= t and x <= rounded t agree of every float32 x, at the ends of the type too."""
    rng = np.random.default_rng(0)
    wide = [np.finfo(np.float64).max, -1e300, 1e-320, -1e-320, 3.5e38, -3.5e38, 0.0]
    t = np.concatenate([rng.normal(size=500), rng.normal(size=100) * 1e-44, wide])
    low = rounded_down(t)
    with np.errstate(over="ignore"):
        beside = [low, np.nextafter(low, np.float32(np.inf)), np.nextafter(low, np.float32(-np.inf))]
    for x in (*beside, *(np.full_like(low, one) for one in VALUES)):
        np.testing.assert_array_equal(x <= low, x.astype(np.float64) <= t)
