"""Areas equal their definitions and scikit-learn's, for any order and scale."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from hopstate.evaluation import calibration
from hopstate.evaluation.metrics import average_precision, average_precision_of, roc_auc, roc_auc_of
from hopstate.testing.conformance import F64

SCORES = st.lists(st.sampled_from([-2.5, -1.0, -0.0, 0.0, 0.25, 1.0, 1e300]), min_size=1, max_size=30)


def naive_area(positive: np.ndarray, negative: np.ndarray) -> Fraction:
    """Return the fraction of ordered pairs, ties counting half."""
    halves = sum(2 * (p > n) + (p == n) for p in positive.tolist() for n in negative.tolist())
    return Fraction(halves, 2 * len(positive) * len(negative))


def naive_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the mean over positives of the precision among scores at least as high."""
    return float(np.mean([(positive >= p).sum() / ((positive >= p).sum() + (negative >= p).sum()) for p in positive]))


@given(SCORES, SCORES)
@settings(max_examples=60, deadline=None)
def test_areas_equal_their_definitions(own: list[float], others: list[float]) -> None:
    positive, negative = np.array(own), np.array(others)
    assert math.isclose(roc_auc_of(positive, negative), naive_area(positive, negative), rel_tol=F64)
    assert math.isclose(average_precision_of(positive, negative), naive_precision(positive, negative), rel_tol=F64)
    y, scores = np.repeat([1, 0], [len(own), len(others)]), np.concatenate([positive, negative])
    place = np.random.default_rng(0).permutation(len(y))
    assert math.isclose(roc_auc(y[place], scores[place]), roc_auc_score(y, scores), rel_tol=F64)
    assert math.isclose(average_precision(y[place], scores[place]), average_precision_score(y, scores), rel_tol=F64)


def test_scores_with_equal_rankings_have_equal_areas() -> None:
    rng = np.random.default_rng(0)
    positive, negative = np.round(rng.normal(1, 1, 500), 1), np.round(rng.normal(0, 1, 700), 1)
    for moved in (lambda s: 3 * s + 5, np.exp, lambda s: s.astype(np.float32)):
        assert roc_auc_of(moved(positive), moved(negative)) == roc_auc_of(positive, negative)
        assert average_precision_of(moved(positive), moved(negative)) == average_precision_of(positive, negative)


def test_undefined_areas_are_nan_and_inputs_are_unchanged() -> None:
    none, some = np.empty(0), np.array([3.0, 1.0, 2.0])
    assert math.isnan(roc_auc_of(none, some))
    assert math.isnan(roc_auc_of(some, none))
    assert math.isnan(average_precision_of(none, some))
    assert average_precision_of(some, none) == 1.0
    assert some.tolist() == [3.0, 1.0, 2.0]


def test_reliability_is_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    p, y = rng.random(101), rng.integers(0, 2, 101)
    whole = calibration.calibration(y, p)
    monkeypatch.setattr(calibration, "STEP", 7)
    parts = calibration.calibration(y.astype(np.int8), p)
    assert parts.count.tolist() == whole.count.tolist()
    assert math.isclose(parts.brier, float(((p - y) ** 2).mean()), rel_tol=F64)
    for name in ("mean_probability", "positive_share"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=F64)
    assert math.isclose(parts.ece, whole.ece, rel_tol=F64)
