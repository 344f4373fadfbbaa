"""Bootstrap intervals against scikit-learn on the same resamples and against coverage; calibration by hand."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.calibration import calibration
from hopstate.evaluation.intervals import bootstrap_areas, bootstrap_mean
from hopstate.testing.asserts import F64


def test_intervals_are_quantiles_of_resampled_metrics():
    rng = np.random.default_rng(0)
    positive, negative = np.round(rng.normal(1, 1, 60), 1), np.round(rng.normal(0, 1, 120), 1)  # with ties
    offsets = np.arange(61) * 2
    found = bootstrap_areas(positive, negative, offsets, repeats=200, seed=4)
    draws, values = np.random.default_rng(4), []
    for _ in range(200):
        rows = draws.integers(0, 60, 60)
        scores = np.concatenate([positive[rows], negative.reshape(60, 2)[rows].reshape(-1)])
        y = np.repeat([1, 0], [60, 120])
        values.append((average_precision_score(y, scores), roc_auc_score(y, scores)))
    for interval, column in zip(found.values(), np.array(values).T, strict=True):
        np.testing.assert_allclose([interval.low, interval.high], np.quantile(column, [0.025, 0.975]), rtol=F64)


def test_the_interval_of_a_mean_covers_it():
    rng, covered = np.random.default_rng(1), 0
    for i in range(200):
        interval = bootstrap_mean(rng.normal(0, 1, 80), repeats=200, seed=i)
        covered += interval.low <= 0 <= interval.high
    assert 0.88 < covered / 200 < 0.99


def test_one_seed_one_interval():
    positive, negative = np.random.default_rng(0).normal(size=(2, 30))
    a, b, c = (bootstrap_areas(positive, negative, np.arange(31), repeats=50, seed=s) for s in (1, 1, 2))
    assert a == b != c
    with pytest.raises(ConfigError, match="repeats"):
        bootstrap_areas(positive, negative, np.arange(31), repeats=0)


def test_calibration_by_hand():
    found = calibration(np.array([0, 1, 1, 1]), np.array([0.1, 0.2, 0.9, 1.0]), bins=2)
    np.testing.assert_allclose(found.mean_probability, [0.15, 0.95])
    np.testing.assert_allclose(found.positive_share, [0.5, 1.0])
    assert found.ece == pytest.approx((0.35 + 0.05) / 2)
    assert found.brier == pytest.approx((0.01 + 0.64 + 0.01 + 0) / 4)
    assert found.count.tolist() == [2, 2]


def test_true_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=50_000)
    found = calibration((rng.uniform(size=50_000) < p).astype(int), p)
    assert found.ece < 0.01
    assert found.brier == pytest.approx(1 / 6, abs=0.005)


def test_bad_probabilities_are_errors():
    for bad in ([1.2], [np.nan], [-0.1]):
        with pytest.raises(DataError):
            calibration(np.ones(1), np.array(bad))
    with pytest.raises(DataError, match="at least one"):
        calibration(np.ones(0), np.ones(0))
    with pytest.raises(ConfigError):
        calibration(np.ones(1), np.ones(1), bins=0)
