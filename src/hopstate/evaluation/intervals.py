"""Bootstrap confidence intervals that resample positives together with their negatives.

The negatives of a positive share its source or its time. Resampling single scores would make the intervals too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopstate.errors import ConfigError
from hopstate.random import named_rng

# resamples of the intervals that every run with labels keeps; their limits vary by a tenth of the width
DEFAULT_REPEATS = 200


@dataclass(frozen=True)
class Interval:
    """A 95% percentile interval low..high."""

    low: float
    high: float


def bootstrap_mean(values: np.ndarray, *, repeats: int = 1000, seed: int = 0) -> Interval:
    """Return the 95% interval of the mean of one value per positive, for example 1/rank.

    Args:
        values: (P,) values.
        repeats: number of resamples. Default: 1000.
        seed: random seed. Default: 0.
    """
    weights = _weights(len(values), repeats, seed)
    return _interval(np.array([w @ values / len(values) for w in weights]))


def bootstrap_areas(
    positive: np.ndarray,
    negative: np.ndarray,
    offsets: np.ndarray | None,
    *,
    repeats: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Return the 95% intervals of "average_precision" and "roc_auc" over all scores.

    Args:
        positive: (P,) scores of positives.
        negative: (T,) scores of negatives.
        offsets: (P+1,) offsets of each positive's negatives. None resamples negatives independently.
        repeats: number of resamples. Default: 1000.
        seed: random seed. Default: 0.

    Raises:
        ConfigError: repeats is below 1.
    """
    if repeats < 1:
        raise ConfigError(f"repeats must be at least 1; got {repeats}")
    units = np.arange(len(positive))
    if offsets is None:
        owner = np.arange(len(positive) + len(negative))
    else:
        owner = np.concatenate([units, np.repeat(units, np.diff(offsets))])
    scores = np.concatenate([positive, negative])
    order = np.argsort(-scores, kind="stable")
    owner, is_positive = owner[order], order < len(positive)
    ends = np.flatnonzero(np.append(scores[order][1:] != scores[order][:-1], True))  # last place of each tie
    values = np.array(
        [_weighted_areas(w[owner], is_positive, ends) for w in _weights(int(owner.max()) + 1, repeats, seed)]
    )
    return {"average_precision": _interval(values[:, 0]), "roc_auc": _interval(values[:, 1])}


def label_intervals(
    metrics: Sequence[str],
    y: np.ndarray,
    predictions: np.ndarray,
    *,
    weights: np.ndarray | None = None,
) -> dict[str, Interval]:
    """Return bootstrap intervals of accuracy, AP and ROC AUC (classes) or MAE (regression); other metrics have none.

    Args:
        metrics: metric names.
        y: (n,) classes, C and above if unknown to the model, or (n, 1) regression targets.
        predictions: (n, C) probabilities, or (n, 1) predictions.
        weights: (C,) class weights, as in `evaluate_metrics`.
    """
    intervals: dict[str, Interval] = {}
    if y.ndim == 1 and len(y):
        if "accuracy" in metrics:
            weighted = predictions if weights is None else predictions * weights
            intervals["accuracy"] = bootstrap_mean(
                (weighted.argmax(1) == y).astype(np.float64), repeats=DEFAULT_REPEATS
            )
        if predictions.shape[1] == 2 and {"roc_auc", "average_precision"} & {*metrics} and {0, 1} <= set(np.unique(y)):
            areas = bootstrap_areas(predictions[y == 1, 1], predictions[y == 0, 1], None, repeats=DEFAULT_REPEATS)
            intervals |= {name: interval for name, interval in areas.items() if name in metrics}
    elif predictions.shape == (len(y), 1) and len(y) and "mae" in metrics:
        intervals["mae"] = bootstrap_mean(np.abs(predictions - y)[:, 0], repeats=DEFAULT_REPEATS)
    return intervals


def interval_columns(intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Return the limits of intervals as columns "mrr_low", "mrr_high", ..."""
    return {f"{name}_{end}": getattr(own, end) for name, own in intervals.items() for end in ("low", "high")}


def split_intervals(metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Split metrics into values and intervals, the inverse of `interval_columns`.

    >>> split_intervals({"mrr": 0.5, "mrr_low": 0.4, "mrr_high": 0.6})
    ({'mrr': 0.5}, {'mrr': [0.4, 0.6]})
    """
    limits = {
        name: [metrics[f"{name}_low"], metrics[f"{name}_high"]]
        for name in metrics
        if f"{name}_low" in metrics and f"{name}_high" in metrics
    }
    ends = {f"{name}_{end}" for name in limits for end in ("low", "high")}
    return {name: value for name, value in metrics.items() if name not in ends}, limits


def _weighted_areas(weight: np.ndarray, is_positive: np.ndarray, ends: np.ndarray) -> tuple[float, float]:
    """Return AP and ROC AUC of sorted, weighted scores; ends are the last positions of runs of equal scores."""
    hit = np.cumsum(np.where(is_positive, weight, 0))[ends].astype(np.float64)
    seen = np.cumsum(weight)[ends].astype(np.float64)
    miss = seen - hit
    gained = np.diff(hit, prepend=0)
    precision = np.divide(hit, seen, out=np.zeros_like(hit), where=seen > 0)
    if not hit[-1] or not miss[-1]:
        return float("nan"), float("nan")
    area = np.diff(miss, prepend=0) @ (hit - gained / 2)
    return float(gained @ precision / hit[-1]), float(area / (hit[-1] * miss[-1]))


def _weights(size: int, repeats: int, seed: int) -> Iterator[np.ndarray]:
    """Yield for each resample how often each of size positives was drawn."""
    rng = named_rng(seed)
    for _ in range(repeats):
        yield np.bincount(rng.integers(0, size, size), minlength=size)


def _interval(values: np.ndarray) -> Interval:
    low, high = np.nanquantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))
