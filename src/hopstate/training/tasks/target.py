"""Prediction targets of rows (nodes, edges or graphs): classes, several 0/1 labels or numbers; losses and metrics.

Missing entries (class -1, NaN) are ignored in losses and metrics.

Source: Dwivedi et al. 2020, arXiv:2003.00982, section 5 (weights 1 - class frequency for PATTERN, CLUSTER).
Deviation: class frequencies are those of all training rows, so that the loss does not depend on the batches.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.data.validate import default_names
from hopstate.errors import ConfigError, DataError, HopstateWarning, listed, nearest
from hopstate.evaluation.metrics import METRICS, check_metric, evaluate_metrics, metrics_of_kind
from hopstate.io.opening import shorten
from hopstate.streaming.history_scorer import ACTIVATIONS

Goal = Literal["classes", "labels", "values"]
ClassWeights = Literal["none", "balanced", "complement"] | tuple[str, ...]  # or explicit weights: "spam=5", ...
ALIASES = {
    "accuracy-SBM": "balanced_accuracy",
    "ap": "average_precision",
    "rocauc": "roc_auc",
}  # used by benchmark publishers


def goal_of(y: np.ndarray) -> Goal:
    """Return the kind of targets: int64 classes, 0/1 labels if all floats are 0 or 1 (NaN if missing), else values."""
    if y.dtype.kind in "iu":
        return "classes"
    known = y[~np.isnan(y)]
    return "labels" if np.isin(known, (0, 1)).all() and len(known) else "values"


def has_label(y: np.ndarray) -> np.ndarray:
    """Return (n,) whether classes (n,), values (n,) or any target of (n, T) are present."""
    if y.dtype.kind in "iu":
        return y >= 0
    return ~np.isnan(y) if y.ndim == 1 else ~np.isnan(y).all(1)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Loss, metrics and names of one kind of target.

    Args:
        goal: "classes" (outputs are logits of C classes), "labels" (logits of T labels) or "values" (T numbers).
        names: names of the classes, with the positive one of two last, or of the T targets.
        metrics: metric names; the first one selects the model.
        center, scale: (T,) mean and standard deviation of the training rows; the model predicts (y - center) / scale.
        class_weights: (C,) weights of the cross-entropy, or None.
        others: names of classes from C on, which occur only outside the training rows and cannot be predicted.
    """

    goal: Goal
    names: tuple[str, ...]
    metrics: tuple[str, ...]
    center: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    others: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Number of model outputs."""
        return len(self.names)

    @property
    def positive(self) -> str | None:
        """Name of the positive class if there are two classes, else None."""
        return self.names[1] if self.goal == "classes" and len(self.names) == 2 else None

    @property
    def mode(self) -> Literal["max", "min"]:
        """Return "max" if a larger first metric is better, else "min"."""
        return "max" if METRICS[self.metrics[0]].higher_is_better else "min"

    def rows(self, y: np.ndarray) -> np.ndarray:
        """Return targets in the loss's format: (n,) int64 classes, (n, T) float32, or float64 if y is float64."""
        if self.goal == "classes":
            return y
        wide = self.goal == "values" and y.dtype == np.float64
        return np.ascontiguousarray(y.reshape(len(y), -1), np.float64 if wide else np.float32)

    def has_label(self, y: np.ndarray) -> np.ndarray:
        """Return (n,) whether a row of `rows` has any label."""
        return y >= 0 if self.goal == "classes" else ~np.isnan(y).all(1)

    def loss(self, out: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean loss of labeled entries, or the weighted sum over rows; 0 if none is labeled.

        The loss is cross-entropy for classes and binary cross-entropy for labels. For standardized values it is the
        absolute error if mae selects the model, otherwise the squared error.

        Args:
            out: (n, C) or (n, T) model outputs.
            y: result of `rows`, as a tensor.
            weight: (n,) row weights.
        """
        if self.goal == "classes":
            classes = None if self.class_weights is None else out.new_tensor(self.class_weights)
            if weight is not None:
                losses = F.cross_entropy(out, y, classes, ignore_index=-1, reduction="none")
                return (losses * weight).sum()
            known = y >= 0
            return F.cross_entropy(out[known], y[known], classes) if known.any() else 0 * out.sum()
        known = ~y.isnan()
        cells = self._elementwise_loss(out, torch.where(known, y, 0)) * known
        if weight is None:
            return cells.sum() / known.sum().clamp(min=1)
        return (cells.sum(1) / known.sum(1).clamp(min=1) * weight).sum()

    def class_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean class-weighted cross-entropy, or `loss` for other goals.

        Args:
            logits: (Q, C), (Q, 1) for the second of two classes, or (Q, T) for labels and values.
            y: (Q,) classes, -1 if missing; (Q,) values; or (Q, T) labels or values, NaN if missing.
        """
        if self.goal != "classes":
            return self.loss(logits, y.reshape(len(y), -1))
        if logits.shape[1] > 1:
            return self.loss(logits, y)
        if self.class_weights is not None:
            return self.loss(torch.cat([torch.zeros_like(logits), logits], 1), y)
        known = y >= 0
        if not known.any():
            return 0 * logits.sum()
        return F.binary_cross_entropy_with_logits(logits[known, 0], y[known].to(logits.dtype))

    def _elementwise_loss(self, out: Tensor, y: Tensor) -> Tensor:
        if self.goal == "labels":
            return F.binary_cross_entropy_with_logits(out, y.to(out.dtype), reduction="none")
        y = (y - y.new_tensor(self.center or (0.0,))) / y.new_tensor(self.scale or (1.0,))
        error = F.l1_loss if self.metrics[0] == "mae" else F.mse_loss
        return error(out, y.to(out.dtype), reduction="none")

    def unweighted(self, out: Tensor) -> Tensor:
        """Return logits corrected for class weights, or unchanged outputs for other goals.

        Training with class weights w gives p_w(c) proportional to w_c p(c). Subtracting log w_c from the logits
        restores the class frequencies of the data.

        Args:
            out: outputs (n, C) or (n, T), or (n, 1) for the second of two classes.
        """
        weights = self.weights
        if weights is None:
            return out
        shift = np.log(np.where(weights > 0, weights, weights.max()))  # a class with weight 0 was not learned
        if len(weights) == 2 and (out.ndim < 2 or out.shape[1] == 1):
            shift = shift[1:] - shift[0]
        return out.double() - torch.from_numpy(shift).to(out.device)

    def activation(self, out: Tensor) -> Tensor:
        """Return float64 probabilities of classes or labels, or standardized values.

        Args:
            out: see `unweighted`.
        """
        return ACTIVATIONS[self.goal](self.unweighted(out))

    def predictions(self, out: Tensor) -> np.ndarray:
        """Return float64 probabilities of classes or labels, or values in the data's unit."""
        wide = out.double()
        if self.goal == "classes":
            return self.unweighted(wide).softmax(1).numpy()
        if self.goal == "labels":
            return wide.sigmoid().numpy()
        center, scale = np.asarray(self.center or 0.0), np.asarray(self.scale or 1.0)
        return wide.numpy() * scale + center

    @property
    def weights(self) -> np.ndarray | None:
        return None if self.class_weights is None else np.asarray(self.class_weights)

    def decision_scores(self, probabilities: np.ndarray) -> np.ndarray:
        """Return (n, C) probabilities times class weights; the largest is the predicted class."""
        return probabilities if self.weights is None else probabilities * self.weights

    def score(self, y: np.ndarray, out: Tensor) -> dict[str, float]:
        """Return metrics, and the loss of classes, over the labeled rows of y (see `rows`)."""
        known = self.has_label(y)
        if not known.any():
            raise DataError("the rows to evaluate have no labels; add labels, or use predict")
        predictions = self.predictions(out)[known]
        return evaluate_metrics(self.goal, self.metrics, y[known], predictions, self.weights)

    def columns(self, outputs: np.ndarray) -> dict[str, np.ndarray]:
        """Return prediction columns from the result of `predictions`.

        Classes: prediction (largest weighted probability) and p_<class>. Labels: p_<label>. Values: prediction, or
        prediction_<name> for several targets.
        """
        names = np.asarray(self.names)
        if self.goal == "classes":
            columns: dict[str, np.ndarray] = {"prediction": names[self.decision_scores(outputs).argmax(1)]}
            return columns | {f"p_{name}": outputs[:, c] for c, name in enumerate(names)}
        if self.goal == "values" and len(names) == 1:
            return {"prediction": outputs[:, 0]}
        kind = "p" if self.goal == "labels" else "prediction"
        return {f"{kind}_{name}": outputs[:, t] for t, name in enumerate(names)}

    def true_columns(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return the label columns: for classes only if all rows are labeled, otherwise if any is."""
        if self.goal == "classes":
            class_names = np.asarray((*self.names, *self.others))
            known = len(y) and (y >= 0).all() and y.max() < len(class_names)
            return {"label": class_names[y]} if known else {}
        if np.isnan(y).all():
            return {}
        one = len(self.names) == 1
        return {"label" if one else f"label_{name}": y[:, t] for t, name in enumerate(self.names)}

    def table(self, y: np.ndarray, out: Tensor) -> dict[str, np.ndarray]:
        """Return the columns of a prediction table: predictions, and labels if present."""
        return self.columns(self.predictions(out)) | self.true_columns(y)


def make_target(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, metric: str, dataset_metrics: tuple[str, ...] = (),
    *, weights: ClassWeights = "none", amounts: bool = False,
) -> Target:  # fmt: skip
    """Return the target of a dataset.

    Args:
        y: see `goal_of`.
        train: training rows, which determine centers, scales and class weights.
        names: names of the classes or targets. None numbers them.
        metric: model-selection metric; "auto" uses the dataset's own, or the default of the goal.
        dataset_metrics: the dataset's metrics.
        weights: class weights; see `class_weights`.
        amounts: treat floats as values even if all are 0 or 1.
    """
    goal: Goal = "values" if amounts and y.dtype.kind == "f" else goal_of(y)
    count = max(int(y.max(initial=-1)) + 1, len(names or ())) if goal == "classes" else y.reshape(len(y), -1).shape[1]
    if names is None or len(names) != count:
        names = tuple(map(str, range(count))) if goal == "classes" else default_names(count)
    metrics = metric_names(metric, dataset_metrics, goal, count)
    if goal != "classes" and weights != "none":
        raise ConfigError(f"class_weights={shorten(weights)} needs classes, but these targets are {goal}")
    if goal == "classes":
        weights_of_classes = class_weights(y[train], names, weights)
        return Target(goal=goal, names=names, metrics=metrics, class_weights=weights_of_classes)
    if goal == "labels":
        return Target(goal=goal, names=names, metrics=metrics)
    center, scale = _standard(y.reshape(len(y), -1)[train].astype(np.float64))
    return Target(goal=goal, names=names, metrics=metrics, center=center, scale=scale)


def encode_target(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, metric: str, dataset_metrics: tuple[str, ...] = (),
    *, weights: ClassWeights = "none", amounts: bool = False, positive: str | None = None,
) -> tuple[np.ndarray, Target]:  # fmt: skip
    """Return encoded targets and their `Target`; see `make_target`, `training_classes_first` and `positive_last`.

    Classes of training rows come first, with the positive one of two last. Other classes get codes from C on.
    """
    others: tuple[str, ...] = ()
    if goal_of(y) == "classes":
        y, names, others = training_classes_first(y, train, names)
    y, names = positive_last(y, train, names, positive)
    known = np.where(y < len(names), y, -1) if names and others else y
    target = make_target(known, train, names, metric, dataset_metrics, weights=weights, amounts=amounts)
    return y, replace(target, others=others)


POSITIVE, NEGATIVE = ("1", "true", "yes"), ("0", "-1", "false", "no")


def training_classes_first(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[str, ...]]:
    """Return class codes (n,) with the training classes first, their names, and the names of the other classes.

    The model can predict only training classes. With two classes or fewer in total, it predicts both.

    Args:
        y: (n,) int64 classes, -1 if missing.
        train: training rows.
        names: names of the classes, or None if they are numbers.

    >>> training_classes_first(np.array([0, 3, 1, -1]), np.array([0, 1]), ("a", "b", "c", "d"))
    (array([ 0,  1,  2, -1]), ('a', 'd'), ('b',))
    """
    count = max(int(y.max(initial=-1)) + 1, len(names or ()))
    seen, there = (np.bincount(codes[codes >= 0], minlength=count) > 0 for codes in (y[train], y))
    if seen.all() or count <= 2 or not seen.any():
        return y, names, ()
    class_names = names or tuple(map(str, range(count)))
    order = [*np.flatnonzero(seen).tolist(), *np.flatnonzero(there & ~seen).tolist()]
    place = np.full(count + 1, -1, np.int64)  # the last stands for "unknown"
    place[order] = np.arange(len(order))
    known = int(seen.sum())
    return place[y], tuple(class_names[c] for c in order[:known]), tuple(class_names[c] for c in order[known:])


def positive_last(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, positive: str | None = None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return class codes (n,) and names, with the positive class of two last.

    The positive class is the one given by the user. Otherwise it is 1, true or yes if the other is 0, -1, false or no.
    Otherwise it is the rarer class of the training rows.

    Args:
        y: (n,) int64 classes, -1 if missing, len(names) or more if unknown to the model. Other targets are unchanged.
        train: training rows.
        names: names of the classes, or None if they are numbers.
        positive: name of the positive class, `read.positive_class`.

    >>> positive_last(np.array([0, 0, 1, -1]), np.arange(3), ("ok", "banned"))
    (array([ 0,  0,  1, -1]), ('ok', 'banned'))
    >>> positive_last(np.array([0, 1, 1]), np.arange(3), ("banned", "ok"))
    (array([1, 0, 0]), ('ok', 'banned'))
    """
    classes = y.ndim == 1 and y.dtype.kind in "iu"
    class_names = names or (tuple(map(str, range(int(y.max(initial=-1)) + 1))) if classes else ())
    if positive is not None and (not classes or len(class_names) != 2 or positive not in class_names):
        known = f"classes: {', '.join(class_names[:10])}" if classes else "these targets are not classes"
        raise ConfigError(
            f"read.positive_class must be one of two classes; got {positive!r}{nearest(positive, class_names)}; {known}"
        )
    if not classes or len(class_names) != 2:
        return y, names
    words = [name.strip().lower() for name in class_names]
    counts = np.bincount(y[train][(y[train] >= 0) & (y[train] < 2)], minlength=2)
    first = bool(counts[0] < counts[1])
    if any(a in POSITIVE and b in NEGATIVE for a, b in (words, words[::-1])):
        first = words[0] in POSITIVE
    if positive is not None:
        first = positive == class_names[0]
    return (np.where((y >= 0) & (y < 2), 1 - y, y), class_names[::-1]) if first else (y, names)


def warn_one_class(target: Target, y: np.ndarray, parts: Mapping[str, np.ndarray], name: str) -> None:
    """Warn about splits with one class only, for which the model-selection metric is undefined."""
    metric = target.metrics[0]
    if target.goal == "values" or not METRICS[metric].two_classes:
        return
    for split, means in (("val", "epochs are chosen by validation loss"), ("test", "its test value is meaningless")):
        labels = y[parts[split]]
        if target.goal == "labels":
            single_class = not any(
                len(np.unique(column[~np.isnan(column)])) == 2 for column in labels.reshape(len(labels), -1).T
            )
            which = "no label has both values"
        else:
            present = np.unique(labels[(labels >= 0) & (labels < target.width)])
            single_class = len(present) == 1
            absent = [str(n) for c, n in enumerate(target.names) if c not in present]
            which = f"no row is of class {', '.join(absent[:5])}{', ...' * (len(absent) > 5)}"
        if single_class:
            warnings.warn(
                f"{name}: in the {split} split {which}, so that {metric} is undefined there and {means}; choose "
                "another metric (--metric) or another split",
                HopstateWarning,
                stacklevel=3,
            )


def target_from_record(record: Mapping[str, Any], metric: str) -> Target:
    """Rebuild a trained model's target from its data.json; metric is as in `make_target`."""
    target = record.get("target") or {"goal": "classes", "names": record["class_names"]}
    goal, names = target["goal"], tuple(target["names"])
    optional_fields = ("center", "scale", "class_weights", "others")
    optional = {key: tuple(target[key]) for key in optional_fields if target.get(key) is not None}
    metrics = metric_names(metric, tuple(record.get("metrics", ())), goal, len(names))
    return Target(goal=goal, names=names, metrics=metrics, **optional)


def target_record(target: Target) -> dict[str, Any]:
    """Return a target's fields for data.json."""
    record = {"goal": target.goal, "names": list(target.names)}
    optional = {key: getattr(target, key) for key in ("center", "scale", "class_weights")}
    optional["others"] = target.others or None
    return record | {key: list(value) for key, value in optional.items() if value is not None}


def metric_names(metric: str, dataset_metrics: tuple[str, ...], goal: Goal, count: int) -> tuple[str, ...]:
    """Return the model-selection metric, followed by other metrics to report."""
    known, metric = metrics_of_kind(goal), ALIASES.get(metric, metric)
    if metric != "auto":
        check_metric(metric, goal, auto=True)
    fitting = [ALIASES.get(name, name) for name in dataset_metrics if ALIASES.get(name, name) in known]
    usual = {"classes": "accuracy", "labels": "average_precision", "values": "mae"}[goal]
    first = metric if metric != "auto" else (fitting[0] if fitting else usual)
    two = ("accuracy", "roc_auc", "average_precision")
    extra = {
        "classes": two if count == 2 else ("accuracy", "macro_f1"),
        "labels": ("average_precision", "roc_auc", "micro_f1"),
        "values": known,
    }[goal]
    return tuple(dict.fromkeys((first, *extra)))


def class_weights(y: np.ndarray, names: Sequence[str], kind: ClassWeights) -> tuple[float, ...] | None:
    """Return (C,) class weights for the loss, or None for kind "none".

    Args:
        y: (n,) classes of the training rows, -1 if missing.
        names: (C,) class names.
        kind: "balanced" (inverse frequency), "complement" (1 - frequency), or explicit weights such as "spam=5". Absent
            classes get weight 0 with the first two. Classes without an explicit weight get 1.

    >>> class_weights(np.array([0, 0, 0, 1, -1]), ("a", "b"), "complement")
    (0.25, 0.75)
    >>> class_weights(np.array([0, 1]), ("a", "b"), ("b=5",))
    (1.0, 5.0)
    """
    if kind == "none":
        return None
    if not isinstance(kind, str):
        return _parse_class_weights(names, kind)
    if kind not in ("balanced", "complement"):
        raise ConfigError(f"class_weights is none, balanced, complement or '[NAME=WEIGHT, ...]'; got {kind!r}")
    counts = np.bincount(y[y >= 0], minlength=len(names)).astype(np.float64)
    total, there = counts.sum(), counts > 0
    if kind == "complement":
        weights = np.where(there, (total - counts) / max(total, 1), 0)
        weights = weights if weights.any() else there.astype(np.float64)  # one class only
    else:
        weights = np.where(there, total / np.maximum(counts, 1) / max(there.sum(), 1), 0)
    return tuple(weights.tolist())


def _parse_class_weights(names: Sequence[str], entries: Sequence[str]) -> tuple[float, ...]:
    weights = dict.fromkeys(names, 1.0)
    for text in entries:
        name, sign, number = str(text).rpartition("=")
        try:
            weight = float(number) if sign else math.nan
        except ValueError:
            weight = math.nan
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"class_weights must be NAME=WEIGHT with a weight of at least 0, such as '[{names[0]}=2]'; got {text!r}"
            )
        if name not in weights:
            known = listed(names, 10)
            raise ConfigError(f"class_weights: there is no class {name!r}{nearest(name, names)}; classes: {known}")
        weights[name] = weight
    if not any(weights.values()):
        raise ConfigError("class_weights: all class weights are 0; set one above 0")
    return tuple(weights.values())


def _standard(y: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each column's mean and standard deviation without missing entries; 0 and 1 if none, 1 if constant."""
    known = ~np.isnan(y)
    n = np.maximum(known.sum(0), 1)
    power = np.frexp(np.abs(np.where(known, y, 0)).max(0, initial=0))[1]  # squares of large amounts overflow
    y = np.ldexp(y, -power)
    center = np.where(known, y, 0).sum(0) / n
    deviation = np.ldexp(np.sqrt(np.where(known, (y - center) ** 2, 0).sum(0) / n), power)
    center = np.ldexp(center, power)
    deviation[~(deviation > 1e-12 * np.abs(center))] = 1.0
    return tuple(center.tolist()), tuple(deviation.tolist())
