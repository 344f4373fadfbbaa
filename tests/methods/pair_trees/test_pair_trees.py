"""Trees as arrays equal scikit-learn's; contributions add up; damaged trees are rejected."""

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from hopstate.errors import CheckpointError, ConfigError
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.testing.conformance import F64

NONE = np.empty(0, np.int64)


def table(rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows with missing values, some informative, and a constant column; outcomes and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] ** 2 + rng.normal(size=rows) > 0.7).astype(int)
    x[rng.random(rows) < 0.3, 0] = np.nan
    x[(rng.random(rows) < 0.5) & (y == 1), 2] = np.nan  # missingness is informative
    x[:, 3], x[:, 4] = np.round(x[:, 3]), 1.0
    return x, y, rng.uniform(0.1, 1, rows)


def grown(trees: int = 40, **settings: Any) -> tuple[PairTrees, Any, np.ndarray]:
    """Return trees of scikit-learn as arrays, their model, and the rows; trained once for equal settings."""
    mine, model, x = _grown(trees, **settings)
    return deepcopy(mine), model, x


@cache
def _grown(trees: int, **settings: Any) -> tuple[PairTrees, Any, np.ndarray]:
    x, y, weight = table()
    model = HistGradientBoostingClassifier(max_iter=trees, random_state=0, early_stopping=False, **settings)
    model.fit(x, y, weight)
    mine = PairTrees(PairTrees.Config(num_trees=trees + 3), 6, NONE)
    mine.load_estimator(model, np.arange(6))
    return mine, model, x


def test_scores_equal_scikit_learns() -> None:
    mine, model, x = grown()
    other = np.concatenate([x, table(500, 1)[0], np.full((1, 6), np.nan, np.float32)])
    for rows in (other, other[:1], other[5:70], other.astype(np.float64)):
        found = mine.forest.scores(rows)
        np.testing.assert_allclose(found, model.decision_function(rows.astype(np.float64)), rtol=F64, atol=F64)


def test_trees_of_one_leaf() -> None:
    mine, model, x = grown(trees=3, min_samples_leaf=10**6)
    assert mine.size[:3].tolist() == [1, 1, 1]
    np.testing.assert_allclose(mine.forest.scores(x), model.decision_function(x.astype(np.float64)), rtol=F64)
    assert not mine.importances().any()


def test_contributions_add_up_and_belong_to_the_split_features() -> None:
    mine, _, x = grown()
    forest = mine.forest
    parts, rest = forest.contributions(x[:200])
    np.testing.assert_allclose(parts.sum(1) + rest, forest.scores(x[:200]), atol=F64)
    assert not parts[:, 4].any()  # constant
    assert (np.abs(parts).mean(0)[[0, 1]] > np.abs(parts).mean(0)[[3, 5]].max()).all()
    share = mine.importances()
    assert share.sum() == pytest.approx(1)
    assert share[4] == 0
    assert share[:3].sum() > 0.8


def test_contributions_of_one_split_equal_a_manual_computation() -> None:
    """A stump: the expected value is the mean of its leaves by their counts."""
    mine, _, x = grown(trees=1, max_leaf_nodes=2)
    forest = mine.forest
    parts, rest = forest.contributions(x)
    leaf, scores = forest.value[1:3], np.round(forest.scores(x) - forest.baseline, 9)
    count = np.array([(scores == np.round(value, 9)).sum() for value in leaf])
    expected = (leaf * count).sum() / count.sum()
    assert rest == pytest.approx(forest.baseline + expected)
    column = int(forest.nodes[0, 0])
    assert set(np.round(parts[:, column], 9)) == set(np.round(leaf - expected, 9))
    assert not np.delete(parts, column, 1).any()


def test_weights_round_trip_through_a_checkpoint() -> None:
    mine, _, x = grown()
    other = PairTrees(mine.config, 6, NONE)
    assert not other.forest.scores(x).any()
    other.load_state_dict(mine.state_dict())
    assert np.array_equal(other.forest.scores(x), mine.forest.scores(x))
    assert other.half().to(torch.float16).value.dtype == torch.float64  # trees do not depend on device and precision


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("child", (0, 0, 1), 0),
        ("child", (0, 0, 2), 61),
        ("child", (0, 0, 3), -5),
        ("child", (0, 0, 0), 6),
        ("child", (0, 0, 0), -1),
        ("size", (2,), 0),
        ("size", (0,), 10**9),
        ("size", (0,), -3),
        ("size", (42,), 5),
    ],
)
def test_damaged_trees_are_rejected(name: str, place: tuple[int, ...], value: int) -> None:
    mine, _, _ = grown()
    damaged = {key: tensor.clone() for key, tensor in mine.state_dict().items()}
    damaged[name][place] = value
    with pytest.raises(CheckpointError):
        mine.load_state_dict(damaged)


@pytest.mark.parametrize(
    ("setting", "value"), [("num_trees", 0), ("max_leaves", 1), ("learning_rate", 0.0), ("l2", -1.0)]
)
def test_invalid_tree_settings_are_rejected(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=setting):
        PairTrees.Config(**{setting: value})
