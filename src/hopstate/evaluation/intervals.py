"""Bootstrap confidence intervals: positives are drawn again, each with its own negatives; seeded.

Negatives drawn for one positive share its source or its moment, so they go with it: drawing scores one by one would
make the interval too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopstate.errors import ConfigError
from hopstate.random import named_rng

DEFAULT_REPEATS = (
    200  # resamples of the intervals that every run of labels keeps: quick, and ends that move by a tenth of a width
)


@dataclass(frozen=True)
class Interval:
    """A 95% percentile interval low..high."""

    low: float
    high: float


def bootstrap_mean(values: np.ndarray, *, repeats: int = 1000, seed: int = 0) -> Interval:
    """Return the 95% interval of the mean of values (P,), one value for each positive (1/rank, say).

    Args:
        values: (P,) the values.
        repeats: resamples.
        seed: of the resamples.
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
    """Return the 95% intervals of "average_precision" and "roc_auc", pooled.

    Args:
        positive: (P,) scores.
        negative: (T,) scores.
        offsets: (P+1,), where each positive's own negatives begin; None where negatives belong to nobody and are
            drawn again one by one.
        repeats: resamples.
        seed: of the resampling.

    Raises:
        ConfigError: repeats under 1.
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
    found: np.ndarray,
    *,
    repeats: int = DEFAULT_REPEATS,
    weights: np.ndarray | None = None,
) -> dict[str, Interval]:
    """Return the intervals of those metrics that are means over rows, or areas of two classes; rows are drawn again.

    Args:
        metrics: names; of others than accuracy of classes, roc_auc, average_precision and mae there is no interval.
        y: (n,) classes, from C on those that a model does not know; or (n, 1) amounts.
        found: (n, C) probabilities, or (n, 1) amounts.
        repeats: resamples.
        weights: (C,) of the classes, as in `classification_metrics`.
    """
    intervals: dict[str, Interval] = {}
    if y.ndim == 1 and len(y):
        if "accuracy" in metrics:
            decided = found if weights is None else found * weights
            intervals["accuracy"] = bootstrap_mean((decided.argmax(1) == y).astype(np.float64), repeats=repeats)
        if found.shape[1] == 2 and {"roc_auc", "average_precision"} & {*metrics} and {0, 1} <= set(np.unique(y)):
            areas = bootstrap_areas(found[y == 1, 1], found[y == 0, 1], None, repeats=repeats)
            intervals |= {name: own for name, own in areas.items() if name in metrics}
    elif found.shape == (len(y), 1) and len(y) and "mae" in metrics:
        intervals["mae"] = bootstrap_mean(np.abs(found - y)[:, 0], repeats=repeats)
    return intervals


def interval_columns(intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Return the ends of intervals by name: "mrr_low", "mrr_high", ..."""
    return {f"{name}_{end}": getattr(own, end) for name, own in intervals.items() for end in ("low", "high")}


def split_intervals(metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return metrics without the ends that `interval_columns` names, and [low, high] by metric of those that have both.

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
    """Return AP and ROC AUC of sorted, weighted scores; ends are the last places of runs of equal scores."""
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
    """Yield, for each resample, how often each of size positives was drawn."""
    rng = named_rng(seed)
    for _ in range(repeats):
        yield np.bincount(rng.integers(0, size, size), minlength=size)


def _interval(values: np.ndarray) -> Interval:
    low, high = np.nanquantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))
