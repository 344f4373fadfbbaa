"""Metrics of classes, of several 0/1 labels and of numbers, over pooled scores; what is undefined is NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopstate.errors import ConfigError, nearest
from hopstate.streaming.replay import check_scores

MOST = 1_000  # events of validation that a curve is fitted to, evenly spread


@dataclass(frozen=True)
class Curve:
    """A rising map from scores to probabilities.

    Args:
        scores: (k,) rising knots.
        values: (k,) probabilities there.
        events: validation events that it was fitted to.
        ratio: other pairs beside each of them.
        strategy: how those were drawn.
    """

    scores: np.ndarray
    values: np.ndarray
    events: int
    ratio: float
    strategy: str

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return (Q,) probabilities of scores (Q,)."""
        return np.interp(scores, self.scores, self.values)

    def text(self) -> str:
        """Return what a probability means."""
        return (
            f"calibrated on {self.events:,} validation events with {self.ratio:g} {self.strategy} other "
            f"pair{'' if self.ratio == 1 else 's'} beside each"
        )


def fitted(scores: np.ndarray, y: np.ndarray, strategy: str) -> Curve:
    """Return the curve of scores with outcomes.

    Args:
        scores: (Q,).
        y: (Q,) outcomes, 0 or 1.
        strategy: how those of 0 were drawn.
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
    events = int(y.sum())
    ratio = round((len(y) - events) / max(events, 1), 2)
    return Curve(np.maximum.accumulate(knots), np.maximum.accumulate(values), events, ratio, strategy)


def evenly(count: int) -> np.ndarray:
    """Return the positions, at most MOST of count, evenly spread, that a curve is fitted to."""
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.int64))


STEP = 1 << 20  # positives that are looked up together


def average_precision_of(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the average precision of scores (P,) and (T,) in any order; NaN without positives.

    >>> average_precision_of(np.array([0.35, 0.8]), np.array([0.1, 0.4]))
    0.8333333333333333
    """
    positive, negative = np.sort(positive), np.sort(negative)
    if not len(positive):
        return float("nan")
    total = 0.0
    for some in _parts(positive):
        hit = len(positive) - np.searchsorted(positive, some)
        total += float((hit / (hit + len(negative) - np.searchsorted(negative, some))).sum())
    return total / len(positive)


def roc_auc_of(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the area under the ROC curve of scores (P,) and (T,) in any order; NaN where one of them is empty.

    >>> roc_auc_of(np.array([0.35, 0.8]), np.array([0.1, 0.4]))
    0.75
    """
    positive, negative = np.sort(positive), np.sort(negative)
    if not len(positive) or not len(negative):
        return float("nan")
    twice = 0
    for some in _parts(positive):
        for side in ("left", "right"):
            twice += int(np.searchsorted(negative, some, side=side).sum())
    return twice / (2 * len(positive) * len(negative))


def _parts(values: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(values), STEP):
        yield values[first : first + STEP]


FULL = 500  # events from which on a kind of pairs counts whole in a mean over kinds


def mean_over_kinds(values: Sequence[float], events: Sequence[int]) -> float:
    """Return the mean of a metric over kinds of pairs; a kind that fewer than `FULL` events tell counts less.

    What a few events say, as those of the few nodes that are new in a part, is mostly chance, and a mean in which each
    kind has the same say would choose by it.

    Args:
        values: (k,) of the metric.
        events: (k,) that each is told from.

    >>> mean_over_kinds([0.8, 0.6], [9_000, 700]), round(mean_over_kinds([0.8, 0.6], [9_000, 5]), 3)
    (0.7, 0.798)
    """
    return float(np.average(values, weights=np.minimum(events, FULL)))


def pairwise_loss(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the mean of log(1 + exp(negative - positive)) over logits (n,) of links and of their negatives.

    It suits binary cross-entropy and softmax alike, because a constant added to all logits does not change it.
    """
    return float(np.logaddexp(0, negative - positive).mean()) if len(negative) else float("nan")


def accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the share of rows whose largest of probabilities (n, C) is the class y (n,)."""
    return float((probabilities.argmax(1) == y).mean()) if len(y) else float("nan")


def roc_auc(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the area under the ROC curve of y (n,) in {0, 1}, probabilities (n, 2) or scores (n,); else NaN.

    >>> roc_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    return roc_auc_of(*_apart(y, probabilities))


def average_precision(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the average precision of y (n,) in {0, 1}, probabilities (n, 2) or scores (n,); NaN without positives."""
    return average_precision_of(*_apart(y, probabilities))


def one_vs_rest_auc(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean over classes of the ROC AUC of each against the rest, from y (n,) and probabilities (n, C).

    Of the classes that are there beside others; NaN where none is.

    >>> one_vs_rest_auc(np.array([0, 1, 2]), np.eye(3))
    1.0
    """
    classes = np.unique(y)
    found = [roc_auc((y == c).astype(np.int64), probabilities[:, c]) for c in classes] if len(classes) > 1 else []
    return float(np.mean(found)) if found else float("nan")


def macro_f1(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the unweighted mean over classes of F1, from labels y (n,) and probabilities (n, C)."""
    from sklearn.metrics import f1_score

    return float(f1_score(y, probabilities.argmax(1), average="macro")) if len(y) else float("nan")


def balanced_accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean over the classes of y (n,) of the share of them found by probabilities (n, C).

    The "accuracy-SBM" of PATTERN and CLUSTER (Dwivedi et al. 2020, arXiv:2003.00982), where every class occurs.
    """
    found = probabilities.argmax(1) == y
    return float(np.mean([found[y == c].mean() for c in np.unique(y)])) if len(y) else float("nan")


def cross_entropy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean negative log-probability, in nats, of the true class y (n,) under probabilities (n, C)."""
    if not len(y):
        return float("nan")
    chosen = np.take_along_axis(probabilities, y[:, None], 1)[:, 0]
    return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())


def _label_loss(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean binary cross-entropy of what is known of y (n, T)."""
    known = ~np.isnan(y)
    own = np.where(y[known] > 0.5, probabilities[known], 1 - probabilities[known])
    return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean()) if known.any() else float("nan")


def of_class(metric: str, positive: str | None, words: str = "") -> str:
    """Return a metric's name, with the positive class if it is a metric of one class.

    Args:
        metric: its name.
        positive: of two classes, or None.
        words: how people write the metric; by default its name.

    >>> of_class("roc_auc", "banned"), of_class("accuracy", "banned")
    ("roc_auc of 'banned'", 'accuracy')
    """
    words = words or metric
    return f"{words} of {positive!r}" if positive is not None and metric in ("roc_auc", "average_precision") else words


def selection_value(metrics: Mapping[str, float], metric: str, mode: str) -> float:
    """Return what an epoch is chosen by, the larger the better: the metric, or the loss if the metric is undefined.

    Args:
        metrics: of validation.
        metric: that chooses the model.
        mode: "max" or "min", which of two values of it is the better.

    >>> selection_value({"roc_auc": float("nan"), "loss": 0.5}, "roc_auc", "max")
    -0.5
    """
    value = metrics[metric]
    if np.isnan(value):
        return -metrics.get("loss", metrics.get("mae", float("nan")))
    return value if mode == "max" else -value


def _apart(y: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the rows where y is 1, and of the others."""
    scores, own = check_scores(probabilities if probabilities.ndim == 1 else probabilities[:, 1]), np.asarray(y) == 1
    return scores[own], scores[~own]


CLASSIFICATION: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
    "average_precision": average_precision,
    "macro_f1": macro_f1,
    "balanced_accuracy": balanced_accuracy,
}


COUNTED = ("accuracy", "macro_f1", "balanced_accuracy")  # in which a class that the model does not know counts


def classification_metrics(
    names: tuple[str, ...], y: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, float]:
    """Return the metrics of those names and the cross-entropy ("loss") of labels y (n,) and probabilities (n, C).

    A class from C on is one that the model does not know: any answer is wrong, which accuracy, balanced_accuracy and
    macro_f1 count; areas and the cross-entropy leave such rows out.

    Args:
        names: of the metrics.
        y: (n,) classes.
        probabilities: (n, C).
        weights: (C,) of the classes: a predicted class has the largest weight times probability.

    Raises:
        ConfigError: an unknown metric, or a two-class metric asked for other than two classes.
        DataError: a probability is NaN.
    """
    check_scores(probabilities, "predictions")
    for name in names:
        if name not in CLASSIFICATION:
            raise ConfigError(
                f"unknown metric {name!r}{nearest(name, CLASSIFICATION)}; known: {', '.join(CLASSIFICATION)}"
            )
        if name in ("roc_auc", "average_precision") and probabilities.shape[1] != 2:
            raise ConfigError(f"metric {name} needs 2 classes, the data have {probabilities.shape[1]}; use accuracy")
    inside = y < probabilities.shape[1]
    own, among = y[inside], probabilities[inside]
    judged = {}
    for name in names:
        rows, found = (y, probabilities) if name in COUNTED else (own, among)
        judged[name] = CLASSIFICATION[name](rows, found if weights is None or name not in COUNTED else found * weights)
    return judged | {"loss": cross_entropy(own, among)}


def _over_labels(metric: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[np.ndarray, np.ndarray], float]:
    """Return the mean of a two-class metric over the labels (columns) that have both kinds among what is known."""

    def mean(y: np.ndarray, probabilities: np.ndarray) -> float:
        found = []
        for own, chances in zip(y.T, probabilities.T):
            known = ~np.isnan(own)
            if len(np.unique(own[known])) == 2:
                found.append(metric(own[known].astype(np.int64), chances[known]))
        return float(np.mean(found)) if found else float("nan")

    return mean


def micro_f1(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return F1 over all labels that are known in y (n, T), where probabilities (n, T) above one half say 1.

    >>> micro_f1(np.array([[1, 0, np.nan], [1, 1, 0]]), np.array([[0.9, 0.8, 0.9], [0.2, 0.6, 0.1]]))
    0.6666666666666666
    """
    known = ~np.isnan(y)
    said, true = probabilities[known] > 0.5, y[known] > 0.5
    total = said.sum() + true.sum()
    return float(2 * (said & true).sum() / total) if total else float("nan")


def label_accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the share of the labels known in y (n, T) on whose side of one half the probabilities (n, T) lie."""
    known = ~np.isnan(y)
    return float(((probabilities > 0.5) == (y > 0.5))[known].mean()) if known.any() else float("nan")


def mae(y: np.ndarray, values: np.ndarray) -> float:
    """Return the mean absolute error of values over what is known in y, both (n, T), in the data's unit."""
    return float(np.nanmean(np.abs(values - y))) if (~np.isnan(y)).any() else float("nan")


def rmse(y: np.ndarray, values: np.ndarray) -> float:
    """Return the root of the mean squared error of values over what is known in y, both (n, T), in the data's unit."""
    return float(np.sqrt(np.nanmean((values - y) ** 2))) if (~np.isnan(y)).any() else float("nan")


def r2(y: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the variance of y that values explain, (n, T) both, averaged over the columns that vary."""
    found = []
    for own, guess in zip(y.T, values.T):
        known = ~np.isnan(own)
        spread = ((own[known] - own[known].mean()) ** 2).sum() if known.any() else 0.0
        if spread > 0:
            found.append(1 - ((guess[known] - own[known]) ** 2).sum() / spread)
    return float(np.mean(found)) if found else float("nan")


def spearman(y: np.ndarray, values: np.ndarray) -> float:
    """Return the correlation of the ranks of values with those of y, (n, T) both, averaged over columns that vary."""
    from scipy.stats import rankdata

    found = []
    for own, guess in zip(y.T, values.T):
        known = ~np.isnan(own)
        a, b = (rankdata(one[known]) - (known.sum() + 1) / 2 for one in (own, guess))
        size = float(np.sqrt((a * a).sum() * (b * b).sum()))
        if size > 0:
            found.append(float((a * b).sum()) / size)
    return float(np.mean(found)) if found else float("nan")


LABELS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "average_precision": _over_labels(average_precision),
    "roc_auc": _over_labels(roc_auc),
    "micro_f1": micro_f1,
    "accuracy": label_accuracy,
}
VALUES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "mae": mae,
    "rmse": rmse,
    "r2": r2,
    "spearman": spearman,
}


def label_metrics(names: tuple[str, ...], y: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Return the metrics of those names, of 0/1 labels y (n, T), NaN unknown, under probabilities (n, T).

    If the first, which chooses the model, is undefined, the mean binary cross-entropy ("loss") is among them.

    Raises:
        ConfigError: an unknown metric.
        DataError: a probability is NaN.
    """
    found = _pooled(LABELS, names, y, probabilities)
    return found | ({"loss": _label_loss(y, probabilities)} if names and np.isnan(found[names[0]]) else {})


def value_metrics(names: tuple[str, ...], y: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Return the metrics of those names, of numbers y (n, T), NaN unknown, predicted as values (n, T).

    Raises:
        ConfigError: an unknown metric.
        DataError: a prediction is NaN.
    """
    return _pooled(VALUES, names, y, values)


def _pooled(
    known: dict[str, Callable[[np.ndarray, np.ndarray], float]],
    names: tuple[str, ...],
    y: np.ndarray,
    found: np.ndarray,
) -> dict[str, float]:
    check_scores(found, "predictions")
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown metric {name!r}{nearest(name, known)}; known: {', '.join(known)}")
    return {name: known[name](y, found) for name in names}
