"""Calibration of predicted probabilities: reliability bins, calibration error, Brier score, isotonic regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.errors import ConfigError, DataError
from hopstate.streaming.replay import check_scores

STEP = 1 << 20  # predictions that are gone through together


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Reliability of probabilities.

    Args:
        ece: expected calibration error: mean |positive share - mean probability| over bins, weighted by their counts.
        brier: mean squared difference between probability and outcome.
        edges: (bins+1,) bin limits.
        mean_probability, positive_share: (bins,) means per bin, NaN for empty bins.
        count: (bins,) predictions per bin.
    """

    ece: float
    brier: float
    edges: np.ndarray
    mean_probability: np.ndarray
    positive_share: np.ndarray
    count: np.ndarray


def calibration(y: np.ndarray, probabilities: np.ndarray, *, bins: int = 15) -> Calibration:
    """Measure the calibration of probabilities.

    Args:
        y: (n,) outcomes, 0 or 1.
        probabilities: (n,) predicted probabilities.
        bins: number of bins of equal width. Default: 15.

    Raises:
        ConfigError: bins is below 1.
        DataError: there are no predictions, a value is outside 0..1, or the lengths differ.
    """
    if bins < 1:
        raise ConfigError(f"bins is {bins}; it must be at least 1")
    p, y = check_scores(probabilities, "probabilities"), np.asarray(y)
    if not len(p) or len(p) != len(y):
        raise DataError(f"need as many outcomes as probabilities, at least one; got {len(y)} and {len(p)}")
    if p.min() < 0 or p.max() > 1:
        raise DataError(f"probabilities lie in 0..1; these reach from {p.min():.4g} to {p.max():.4g}")
    count, sums, hits, error = np.zeros(bins, np.int64), np.zeros(bins), np.zeros(bins), 0.0
    for first in range(0, len(p), STEP):
        part, outcomes = p[first : first + STEP], y[first : first + STEP].astype(np.float64)
        place = np.minimum((part * bins).astype(np.int64), bins - 1)
        count += np.bincount(place, minlength=bins)
        sums += np.bincount(place, part, bins)
        hits += np.bincount(place, outcomes, bins)
        error += float(((part - outcomes) ** 2).sum())
    with np.errstate(invalid="ignore"):
        mean, share = sums / count, hits / count
    error_of_bins = np.abs(np.nan_to_num(mean - share))
    return Calibration(
        ece=float(error_of_bins @ count / len(p)),
        brier=error / len(p),
        edges=np.linspace(0, 1, bins + 1),
        mean_probability=mean,
        positive_share=share,
        count=count,
    )


MAX_CALIBRATION_EVENTS = 1_000  # events of validation that a curve is fitted to, evenly spread


@dataclass(frozen=True)
class IsotonicCurve:
    """Isotonic calibration: a monotone map from scores to probabilities.

    Args:
        scores: (k,) increasing knots.
        values: (k,) probabilities at the knots.
        num_events: number of validation events the curve was fitted to.
        ratio: negatives per validation event.
        strategy: negative-sampling strategy.
    """

    scores: np.ndarray
    values: np.ndarray
    num_events: int
    ratio: float
    strategy: str

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return the (Q,) probabilities of scores (Q,)."""
        return np.interp(scores, self.scores, self.values)

    def text(self) -> str:
        """Describe the data that the curve was fitted to."""
        return (
            f"calibrated on {self.num_events:,} validation events, {self.ratio:g} {self.strategy} "
            f"negative{'' if self.ratio == 1 else 's'} each"
        )


def fit_isotonic(scores: np.ndarray, y: np.ndarray, strategy: str) -> IsotonicCurve:
    """Fit an isotonic calibration curve.

    Args:
        scores: (Q,) scores.
        y: (Q,) outcomes, 0 or 1.
        strategy: negative-sampling strategy of the zeros.
    """
    from scipy.optimize import isotonic_regression

    at, which = np.unique(scores, return_inverse=True)
    count = np.bincount(which).astype(np.float64)
    steps = isotonic_regression(np.bincount(which, y) / count, weights=count)
    sizes = np.diff(steps.blocks)
    of = np.repeat(np.arange(len(sizes)), sizes)
    weight = np.bincount(of, count)
    knots, values = np.bincount(of, at * count) / weight, steps.x[steps.blocks[:-1]]
    values = np.clip(values, 1 / (weight + 2), (weight + 1) / (weight + 2))
    num_events = int(y.sum())
    ratio = round((len(y) - num_events) / max(num_events, 1), 2)
    return IsotonicCurve(np.maximum.accumulate(knots), np.maximum.accumulate(values), num_events, ratio, strategy)


def evenly_spaced(count: int) -> np.ndarray:
    """Return at most MAX_CALIBRATION_EVENTS evenly spaced positions of count."""
    return np.unique(np.linspace(0, count - 1, min(MAX_CALIBRATION_EVENTS, count)).astype(np.int64))
