"""Bootstrap intervals against scikit-learn on equal resamples and against coverage; calibration computed manually."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.calibration import calibration
from hopstate.evaluation.intervals import (
    bootstrap_areas,
    bootstrap_mean,
    interval_columns,
    label_intervals,
    split_intervals,
)
from hopstate.testing.conformance import F64


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


def test_a_seed_fixes_the_interval():
    positive, negative = np.random.default_rng(0).normal(size=(2, 30))
    a, b, c = (bootstrap_areas(positive, negative, np.arange(31), repeats=50, seed=s) for s in (1, 1, 2))
    assert a == b != c
    with pytest.raises(ConfigError, match="repeats"):
        bootstrap_areas(positive, negative, np.arange(31), repeats=0)


def test_calibration_equals_a_manual_computation():
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
    with pytest.raises(DataError):
        calibration(np.ones(0), np.ones(0))
    with pytest.raises(ConfigError):
        calibration(np.ones(1), np.ones(1), bins=0)


def test_label_intervals_contain_their_metric_and_shrink_with_rows():
    rng, width = np.random.default_rng(3), {}
    for count in (100, 1600):
        y = rng.integers(0, 2, count)
        right = np.where(rng.random(count) < 0.8, 0.7, 0.3)
        chances = np.where(y == 1, right, 1 - right)
        found = np.stack([1 - chances, chances], 1)
        intervals = label_intervals(("accuracy", "roc_auc", "macro_f1"), y, found)
        assert intervals.keys() == {"accuracy", "roc_auc"}  # macro_f1 is not a mean over rows
        for name, value in (("accuracy", (found.argmax(1) == y).mean()), ("roc_auc", roc_auc_score(y, chances))):
            assert intervals[name].low < value < intervals[name].high
        width[count] = intervals["accuracy"].high - intervals["accuracy"].low
    assert width[100] / width[1600] == pytest.approx(4, rel=0.4)


def test_an_unknown_class_counts_as_an_error():
    y, found = np.array([0] * 50 + [2] * 50), np.repeat([[0.9, 0.1]], 100, 0)
    own = label_intervals(("accuracy", "average_precision"), y, found)
    assert own.keys() == {"accuracy"}
    assert own["accuracy"].low < 0.5 < own["accuracy"].high


def test_intervals_of_regression_targets_and_of_no_rows():
    y = np.random.default_rng(0).normal(size=(200, 1))
    own = label_intervals(("mae", "rmse"), y, np.zeros_like(y))
    assert own.keys() == {"mae"}
    assert own["mae"].low < np.abs(y).mean() < own["mae"].high
    assert label_intervals(("mae",), y[:0], y[:0]) == {}
    assert label_intervals(("accuracy",), np.zeros(0, np.int64), np.zeros((0, 2))) == {}


def test_interval_columns_round_trip():
    limits = label_intervals(("accuracy",), np.array([0, 1, 1]), np.eye(2)[[0, 1, 0]])
    metrics, ends = split_intervals({"accuracy": 2 / 3, "loss": 1.0} | interval_columns(limits))
    assert metrics == {"accuracy": 2 / 3, "loss": 1.0}
    assert ends == {"accuracy": [limits["accuracy"].low, limits["accuracy"].high]}
