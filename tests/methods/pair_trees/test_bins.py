"""Bins that are found beforehand give the trees that scikit-learn grows by its own, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from hopstate.methods.pair_trees.bins import BINNED, Bins, bin_ends
from hopstate.methods.pair_trees.trees import PairTrees

VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
KINDS = ("many", "few", "constant", "counts", "zeros", "missing", "far")


def column(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) float32 values."""
    x = {
        "many": rng.normal(size=n),
        "few": rng.integers(0, 5, n) * 1.0,
        "constant": np.full(n, 3.0),
        "counts": rng.integers(0, 300, n) * 1.0,
        "zeros": np.where(rng.random(n) < 0.6, 0.0, rng.normal(size=n)),
        "missing": np.where(rng.random(n) < 0.98, np.nan, rng.normal(size=n)),
        "far": rng.choice([-np.inf, np.inf, 1e30, 0.0], n),
    }[kind].astype(np.float32)
    x[rng.random(n) < 0.1] = np.nan
    return x


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, outcomes and weights as training has them."""
    rng = np.random.default_rng(seed)
    x = np.stack([column(kind, n, rng) for kind in KINDS], 1)
    seen = np.nan_to_num(x[:, :5], nan=-1.0)
    y = (seen[:, 0] + seen[:, 4] > seen[:, 1] - 2 + rng.normal(size=n)).astype(np.int64)
    return x, y, rng.choice([1.0, 0.9, 0.1], n)


def grown(x: np.ndarray, y: np.ndarray, weight: np.ndarray, bins: Bins | None = None) -> PairTrees:
    """Return trees of rows, or of the numbers of their bins."""
    grower = HistGradientBoostingClassifier(max_iter=12, early_stopping=False, random_state=3).fit(x, y, weight)
    trees = PairTrees(PairTrees.Config(max_trees=12), x.shape[1], np.empty(0, np.int64))
    trees.put(grower._predictors, float(grower._baseline_prediction[0][0]), bins)
    return trees


@pytest.mark.skipif(VERSION < (1, 9), reason="its own bins take no weights before scikit-learn 1.9")
@pytest.mark.parametrize("n", [60, 700, 6_000, BINNED + 10])
def test_the_same_trees(n: int) -> None:
    x, y, weight = rows(n, n)
    whole = grown(x, y, weight)
    numbers = x.copy()
    mine = grown(numbers, y, weight, Bins.put(numbers, weight, 3))
    for name, tensor in whole.state_dict().items():
        # a threshold in a gap between values may stand elsewhere in it
        if name != "threshold":
            assert torch.equal(tensor, mine.state_dict()[name]), name
    x = x[:5_000]
    np.testing.assert_array_equal(whole.forest().scores(x), mine.forest().scores(x))


def test_numbers_of_bins() -> None:
    """Each value's bin is the one that its threshold sends it to; what is missing stays missing."""
    x, _, weight = rows(3_000, 0)
    numbers = x.copy()
    bins = Bins.put(numbers, weight, 0)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(numbers))
    for f, ends in enumerate(bins.ends):
        assert (np.diff(ends) > 0).all()
        assert len(ends) < 255
        for a, b in zip(bins.met[f][:-1], bins.met[f][1:], strict=True):
            low = numbers[:, f] <= (a + b) / 2
            np.testing.assert_array_equal(low, x[:, f].astype(np.float64) <= bins.threshold(f, (a + b) / 2))
        assert bins.threshold(f, np.inf) == np.inf


def test_quantiles_stand_for_weights() -> None:
    """A value of weight two is that value twice; one of weight zero is not there."""
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=2_000), rng.integers(0, 4, 2_000)
    np.testing.assert_array_equal(bin_ends(x, weight * 1.0), bin_ends(np.repeat(x, weight), np.ones(weight.sum())))
    assert len(bin_ends(np.full(4, np.nan), np.ones(4))) == len(bin_ends(np.empty(0), np.empty(0))) == 0
