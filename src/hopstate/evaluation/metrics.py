"""Metrics of classes, of several 0/1 labels, of numbers and of ranks, over pooled scores; what is undefined is NaN.

`METRICS` holds each by its name. A metric that is added there can be named by `--metric`, chooses epochs in its own
direction, and has its label in tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from hopstate.errors import ConfigError, nearest
from hopstate.evaluation.ranking import hits, mrr, ndcg
from hopstate.streaming.replay import check_scores

Kind = Literal["classes", "labels", "values", "ranks"]
Function = Callable[..., float]
OF_WORDS = {"classes": "classes", "labels": "several 0/1 labels", "values": "numbers", "ranks": "ranks"}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of predictions.

    Args:
        name: name in settings and tables of metrics.
        label: name in tables for people.
        functions: function for each kind of target that has the metric. Arguments are y (n,) and probabilities (n, C)
            of "classes", y (n, T) with NaN if unknown and probabilities (n, T) of "labels", y and predictions (n, T)
            of "values", and ranks (P,) of "ranks".
        higher_is_better: whether higher is better.
        two_classes: defined for two classes only, as the metric of the second one.
        counts_unknown: rows of a class that the model does not know count as wrong. Otherwise they are ignored.

    Example:
        >>> rank = Metric(name="rank", label="mean rank", functions={"ranks": np.mean}, higher_is_better=False)
        >>> mean_rank = rank.functions["ranks"]
        >>> float(mean_rank(np.array([1, 3])))
        2.0
    """

    name: str
    label: str
    functions: Mapping[Kind, Function]
    higher_is_better: bool = True
    two_classes: bool = False
    counts_unknown: bool = False


METRICS: dict[str, Metric] = {}


def register(metric: Metric) -> Metric:
    """Add a metric to `METRICS`."""
    METRICS[metric.name] = metric
    return metric


def metrics_of_kind(kind: Kind) -> tuple[str, ...]:
    return tuple(name for name, metric in METRICS.items() if kind in metric.functions)


def check_metric(name: str, kind: Kind, *, auto: bool = False) -> Metric:
    """Return the metric with a name.

    Raises:
        ConfigError: the metric is unknown, or is for other targets.

    Example:
        >>> check_metric("mrr", "ranks").label
        'MRR'
    """
    known = metrics_of_kind(kind)
    if name not in known:
        listed = ", ".join((*(("auto",) if auto else ()), *known))
        raise ConfigError(f"unknown metric {name!r} for {OF_WORDS[kind]}{nearest(name, known)}; known: {listed}")
    return METRICS[name]


def evaluate_metrics(
    kind: Kind, names: Sequence[str], y: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, float]:
    """Compute metrics; "loss" is included for classes, and for labels if the first metric is undefined.

    Args:
        kind: kind of target.
        names: metric names.
        y: (n,) classes, C and above if unknown to the model; or (n, T) labels or values, NaN if missing.
        predictions: (n, C) or (n, T) probabilities, or (n, T) values.
        weights: (C,) class weights: the predicted class has the largest weight times probability.

    Raises:
        ConfigError: a metric is unknown, or needs two classes and the data has more.
        DivergenceError: a prediction is NaN or infinite.

    Example:
        >>> y, probabilities = np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]])
        >>> evaluate_metrics("classes", ["accuracy"], y, probabilities)["accuracy"]
        0.5
    """
    check_scores(predictions, "predictions")
    metrics = [check_metric(name, kind) for name in names]
    if kind != "classes":
        values = {metric.name: metric.functions[kind](y, predictions) for metric in metrics}
        undefined = kind == "labels" and names and np.isnan(values[names[0]])
        return values | ({"loss": _label_loss(y, predictions)} if undefined else {})
    values, classes = {}, predictions.shape[1]
    known = y < classes
    weighted = predictions if weights is None else predictions * weights
    for metric in metrics:
        if metric.two_classes and classes != 2:
            raise ConfigError(f"metric {metric.name} needs 2 classes, the data have {classes}; use accuracy")
        rows = (y, weighted) if metric.counts_unknown else (y[known], predictions[known])
        values[metric.name] = metric.functions[kind](*rows)
    return values | {"loss": cross_entropy(y[known], predictions[known])}


# ---- areas -----------------------------------------------------------------------------------------------
def average_precision_of(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the average precision of scores (P,) and (T,) in any order; NaN without positives.

    >>> round(average_precision_of(np.array([0.35, 0.8]), np.array([0.1, 0.4])), 6)
    0.833333
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_labels_and_scores(positive, negative))) if len(positive) else float("nan")


def roc_auc_of(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the area under the ROC curve of scores (P,) and (T,) in any order; NaN where one of them is empty.

    >>> roc_auc_of(np.array([0.35, 0.8]), np.array([0.1, 0.4]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    if not len(positive) or not len(negative):
        return float("nan")
    return float(roc_auc_score(*_labels_and_scores(positive, negative)))


def _labels_and_scores(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([1, 0], [len(positive), len(negative)]), np.concatenate([positive, negative])


def roc_auc(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the area under the ROC curve of y (n,) in {0, 1}, probabilities (n, 2) or scores (n,); else NaN.

    >>> roc_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    return roc_auc_of(*_split_by_label(y, probabilities))


def average_precision(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the average precision of y (n,) in {0, 1}, probabilities (n, 2) or scores (n,); NaN without positives.

    Example:
        >>> round(average_precision(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])), 4)
        0.8333
    """
    return average_precision_of(*_split_by_label(y, probabilities))


def _split_by_label(y: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the rows where y is 1, and of the others."""
    scores, own = check_scores(probabilities if probabilities.ndim == 1 else probabilities[:, 1]), np.asarray(y) == 1
    return scores[own], scores[~own]


def ovr_roc_auc(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the one-vs-rest ROC AUC, averaged over the classes in y (n,), from probabilities (n, C).

    NaN if y has fewer than two classes.

    >>> ovr_roc_auc(np.array([0, 1, 2]), np.eye(3))
    1.0
    """
    classes = np.unique(y)
    areas = [roc_auc((y == c).astype(np.int64), probabilities[:, c]) for c in classes] if len(classes) > 1 else []
    return float(np.mean(areas)) if areas else float("nan")


# ---- classes ---------------------------------------------------------------------------------------------
def accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the accuracy of the most likely class in probabilities (n, C), for classes y (n,).

    Example:
        >>> y, probabilities = np.array([0, 0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
        >>> round(accuracy(y, probabilities), 4)
        0.75
    """
    return float((probabilities.argmax(1) == y).mean()) if len(y) else float("nan")


def macro_f1(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the unweighted mean over classes of F1, from labels y (n,) and probabilities (n, C).

    Example:
        >>> y, probabilities = np.array([0, 0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
        >>> round(macro_f1(y, probabilities), 4)
        0.7333
    """
    from sklearn.metrics import f1_score

    return float(f1_score(y, probabilities.argmax(1), average="macro")) if len(y) else float("nan")


def balanced_accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the recall averaged over the classes of y (n,), from probabilities (n, C).

    The "accuracy-SBM" of PATTERN and CLUSTER (Dwivedi et al. 2020, arXiv:2003.00982), if every class occurs.

    Example:
        >>> y, probabilities = np.array([0, 0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
        >>> round(balanced_accuracy(y, probabilities), 4)
        0.8333
    """
    correct = probabilities.argmax(1) == y
    return float(np.mean([correct[y == c].mean() for c in np.unique(y)])) if len(y) else float("nan")


def cross_entropy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean negative log-probability, in nats, of the true class y (n,) under probabilities (n, C).

    Example:
        >>> y, probabilities = np.array([0, 0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
        >>> round(cross_entropy(y, probabilities), 4)
        0.5108
    """
    if not len(y):
        return float("nan")
    chosen = np.take_along_axis(probabilities, y[:, None], 1)[:, 0]
    return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())


def pairwise_loss(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the mean of log(1 + exp(negative - positive)) over logits (n,) of links and their negatives.

    It applies to binary cross-entropy and softmax, because a constant added to all logits does not change it.

    Example:
        >>> round(pairwise_loss(np.array([2.0]), np.array([0.0])), 4)
        0.1269
    """
    return float(np.logaddexp(0, negative - positive).mean()) if len(negative) else float("nan")


# ---- several 0/1 labels ----------------------------------------------------------------------------------
def _mean_over_labels(metric: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[np.ndarray, np.ndarray], float]:
    """Return a metric that averages a binary metric over the labels (columns) with both classes."""

    def mean(y: np.ndarray, probabilities: np.ndarray) -> float:
        values = []
        for labels, scores in zip(y.T, probabilities.T):
            known = ~np.isnan(labels)
            if len(np.unique(labels[known])) == 2:
                values.append(metric(labels[known].astype(np.int64), scores[known]))
        return float(np.mean(values)) if values else float("nan")

    return mean


def micro_f1(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the micro-averaged F1 over all known labels of y (n, T), with probabilities (n, T) thresholded at 0.5.

    >>> micro_f1(np.array([[1, 0, np.nan], [1, 1, 0]]), np.array([[0.9, 0.8, 0.9], [0.2, 0.6, 0.1]]))
    0.6666666666666666
    """
    known = ~np.isnan(y)
    predicted, true = probabilities[known] > 0.5, y[known] > 0.5
    total = predicted.sum() + true.sum()
    return float(2 * (predicted & true).sum() / total) if total else float("nan")


def label_accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the accuracy over all known labels of y (n, T), with probabilities (n, T) thresholded at 0.5.

    Example:
        >>> label_accuracy(np.array([[1, 0, np.nan], [1, 1, 0]]), np.array([[0.9, 0.8, 0.9], [0.2, 0.6, 0.1]]))
        0.6
    """
    known = ~np.isnan(y)
    return float(((probabilities > 0.5) == (y > 0.5))[known].mean()) if known.any() else float("nan")


def _label_loss(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean binary cross-entropy of what is known of y (n, T)."""
    known = ~np.isnan(y)
    own = np.where(y[known] > 0.5, probabilities[known], 1 - probabilities[known])
    return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean()) if known.any() else float("nan")


# ---- numbers ---------------------------------------------------------------------------------------------
def mae(y: np.ndarray, values: np.ndarray) -> float:
    """Return the mean absolute error of values over what is known in y, both (n, T), in the data's unit.

    Example:
        >>> y, values = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [3.0], [4.0]])
        >>> round(mae(y, values), 4)
        0.3333
    """
    return float(np.nanmean(np.abs(values - y))) if (~np.isnan(y)).any() else float("nan")


def rmse(y: np.ndarray, values: np.ndarray) -> float:
    """Return the root of the mean squared error of values over what is known in y, both (n, T), in the data's unit.

    Example:
        >>> y, values = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [3.0], [4.0]])
        >>> round(rmse(y, values), 4)
        0.5774
    """
    return float(np.sqrt(np.nanmean((values - y) ** 2))) if (~np.isnan(y)).any() else float("nan")


def r2(y: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the variance of y that values explain, (n, T) both, averaged over the columns that vary.

    Example:
        >>> y, values = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [3.0], [4.0]])
        >>> round(r2(y, values), 4)
        0.7857
    """
    from sklearn.metrics import r2_score

    return _mean_over_columns(r2_score, y, values)


def spearman(y: np.ndarray, values: np.ndarray) -> float:
    """Return the correlation of the ranks of values with those of y, (n, T) both, averaged over columns that vary.

    Example:
        >>> y, values = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [3.0], [4.0]])
        >>> round(spearman(y, values), 4)
        1.0
    """
    from scipy.stats import spearmanr

    return _mean_over_columns(lambda own, guess: spearmanr(own, guess).statistic, y, values, both=True)


def _mean_over_columns(metric: Function, y: np.ndarray, values: np.ndarray, *, both: bool = False) -> float:
    """Return the mean of a metric over the columns where y (n, T) varies (with both: values too), ignoring NaN in y."""
    values_of_columns = []
    for own, guess in zip(y.T, values.T):
        known = ~np.isnan(own)
        varies = len(np.unique(own[known])) > 1 and (not both or len(np.unique(guess[known])) > 1)
        if varies:
            values_of_columns.append(metric(own[known], guess[known]))
    return float(np.mean(values_of_columns)) if values_of_columns else float("nan")


for _metric in (
    Metric(name="accuracy", label="accuracy", counts_unknown=True,
           functions={"classes": accuracy, "labels": label_accuracy}),
    Metric(name="roc_auc", label="ROC AUC", two_classes=True,
           functions={"classes": roc_auc, "labels": _mean_over_labels(roc_auc)}),
    Metric(name="average_precision", label="AP", two_classes=True,
           functions={"classes": average_precision, "labels": _mean_over_labels(average_precision)}),
    Metric(name="macro_f1", label="macro F1", counts_unknown=True, functions={"classes": macro_f1}),
    Metric(name="balanced_accuracy", label="accuracy-SBM", counts_unknown=True,
           functions={"classes": balanced_accuracy}),
    Metric(name="micro_f1", label="micro F1", functions={"labels": micro_f1}),
    Metric(name="mae", label="MAE", higher_is_better=False, functions={"values": mae}),
    Metric(name="rmse", label="RMSE", higher_is_better=False, functions={"values": rmse}),
    Metric(name="r2", label="R2", functions={"values": r2}),
    Metric(name="spearman", label="Spearman", functions={"values": spearman}),
    Metric(name="mrr", label="MRR", functions={"ranks": mrr}),
    *(Metric(name=f"hits@{k}", label=f"hits@{k}", functions={"ranks": partial(hits, k=k)}) for k in (1, 3, 10, 50)),
    Metric(name="ndcg@10", label="NDCG@10", functions={"ranks": lambda rank: float(ndcg(rank, 10).mean())}),
    Metric(name="loss", label="loss", higher_is_better=False, functions={}),
    Metric(name="brier", label="Brier score", higher_is_better=False, functions={}),
    Metric(name="ece", label="calibration error", higher_is_better=False, functions={}),
):  # fmt: skip
    register(_metric)


# ---- choosing --------------------------------------------------------------------------------------------
FULL_WEIGHT_EVENTS = 500  # events from which on a kind of pairs counts whole in a mean over kinds


def mean_over_kinds(values: Sequence[float], events: Sequence[int]) -> float:
    """Return the mean of a metric over kinds of pairs, with less weight for kinds with few events.

    Metrics from few events are mostly noise, so they should not decide the selection.

    Args:
        values: (k,) metric values.
        events: (k,) number of events behind each value; `FULL_WEIGHT_EVENTS` and more have full weight.

    >>> mean_over_kinds([0.8, 0.6], [9_000, 700]), round(mean_over_kinds([0.8, 0.6], [9_000, 5]), 3)
    (0.7, 0.798)
    """
    return float(np.average(values, weights=np.minimum(events, FULL_WEIGHT_EVENTS)))


def label_with_class(metric: str, positive: str | None, words: str = "") -> str:
    """Return a metric's label, with the positive class if the metric is defined for one class.

    Args:
        metric: metric name.
        positive: positive class of two, or None.
        words: label of the metric. Default: its name.

    >>> label_with_class("roc_auc", "banned"), label_with_class("accuracy", "banned")
    ("roc_auc of 'banned'", 'accuracy')
    """
    words = words or metric
    one_class = metric in METRICS and METRICS[metric].two_classes
    return f"{words} of {positive!r}" if positive is not None and one_class else words


def selection_value(metrics: Mapping[str, float], metric: str, mode: str) -> float:
    """Return the value for model selection, larger is better: the metric, or the negative loss if the metric is NaN.

    Args:
        metrics: validation metrics.
        metric: name of the selection metric.
        mode: "max" or "min".

    >>> selection_value({"roc_auc": float("nan"), "loss": 0.5}, "roc_auc", "max")
    -0.5
    """
    value = metrics[metric]
    if np.isnan(value):
        return -metrics.get("loss", metrics.get("mae", float("nan")))
    return value if mode == "max" else -value
