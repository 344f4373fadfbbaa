"""What is predicted of a row (node, edge or graph): a class, several 0/1 labels, or numbers; loss, metrics, table.

Rows and single targets that are unknown (class -1, NaN) are left out of loss and metrics.

Source: Dwivedi et al. 2020, arXiv:2003.00982, section 5 (weights 1 - share of a class for PATTERN, CLUSTER).
Deviation: shares are those of all training rows, not of each batch, so that the loss does not depend on the batches.
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
from hopstate.errors import ConfigError, DataError, HopstateWarning, nearest
from hopstate.evaluation.metrics import METRICS, check_metric, evaluate_metrics, metrics_of_kind
from hopstate.io.opening import printable_name
from hopstate.streaming.history_scorer import ACTIVATIONS

Goal = Literal["classes", "labels", "values"]
ClassWeights = Literal["none", "balanced", "complement"] | tuple[str, ...]  # the last by hand: "spam=5", ...
ALIASES = {"accuracy-SBM": "balanced_accuracy", "ap": "average_precision", "rocauc": "roc_auc"}  # of publishers


def goal_of(y: np.ndarray) -> Goal:
    """Return what targets hold: (n,) int64 classes, else floats, NaN unknown, labels if all are 0 or 1."""
    if y.dtype.kind in "iu":
        return "classes"
    known = y[~np.isnan(y)]
    return "labels" if np.isin(known, (0, 1)).all() and len(known) else "values"


def is_known(y: np.ndarray) -> np.ndarray:
    """Return (n,) whether classes (n,) int64, -1 unknown, amounts (n,) or any of targets (n, T), NaN, are known."""
    if y.dtype.kind in "iu":
        return y >= 0
    return ~np.isnan(y) if y.ndim == 1 else ~np.isnan(y).all(1)


@dataclass(frozen=True, kw_only=True)
class Target:
    """How one kind of target is learned, judged and written down.

    Args:
        goal: "classes" (outputs are logits of C classes), "labels" (logits of T labels), "values" (T numbers).
        names: of the classes, the positive one of two last, or of the T targets.
        metrics: the first chooses the model.
        center, scale: (T,) mean and spread of the training rows, for values: the model predicts (y - center) / scale.
        class_weights: (C,) weights of the cross-entropy, or None.
        others: names of classes from C on: they occur, but no training row has them; any answer is wrong there.
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
        """Outputs of the model."""
        return len(self.names)

    @property
    def positive(self) -> str | None:
        """Name of the positive class of two, which metrics of one class are of; None otherwise."""
        return self.names[1] if self.goal == "classes" and len(self.names) == 2 else None

    @property
    def mode(self) -> Literal["max", "min"]:
        """Whether the first metric is better where it is larger."""
        return "max" if METRICS[self.metrics[0]].higher_is_better else "min"

    def rows(self, y: np.ndarray) -> np.ndarray:
        """Return targets as the loss takes them: (n,) int64 classes, or (n, T) float32, or float64 amounts as such."""
        if self.goal == "classes":
            return y
        wide = self.goal == "values" and y.dtype == np.float64
        return np.ascontiguousarray(y.reshape(len(y), -1), np.float64 if wide else np.float32)

    def known(self, y: np.ndarray) -> np.ndarray:
        """Return (n,) whether a row of `rows` has any known target."""
        return y >= 0 if self.goal == "classes" else ~np.isnan(y).all(1)

    def loss(self, out: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean loss of what is known, or the sum over rows of weight times a row's own; 0 where none is.

        Cross-entropy of classes, binary cross-entropy of labels; of values the absolute error where mae chooses the
        model, else the squared one, both in spreads of the training rows.

        Args:
            out: (n, C) or (n, T) outputs.
            y: what `rows` returned, as a tensor.
            weight: (n,).
        """
        if self.goal == "classes":
            classes = None if self.class_weights is None else out.new_tensor(self.class_weights)
            if weight is not None:
                own = F.cross_entropy(out, y, classes, ignore_index=-1, reduction="none")
                return (own * weight).sum()
            known = y >= 0
            return F.cross_entropy(out[known], y[known], classes) if known.any() else 0 * out.sum()
        known = ~y.isnan()
        cells = self._cells(out, torch.where(known, y, 0)) * known
        if weight is None:
            return cells.sum() / known.sum().clamp(min=1)
        return (cells.sum(1) / known.sum(1).clamp(min=1) * weight).sum()

    def class_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy of classes, weighted by the target's weights of classes; of others their loss.

        Args:
            logits: (Q, C), or (Q, 1) of the second of two classes; (Q, T) of labels and amounts.
            y: (Q,) classes, -1 unknown: left out; (Q,) amounts, or (Q, T) labels or amounts, NaN unknown.
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

    def _cells(self, out: Tensor, y: Tensor) -> Tensor:
        if self.goal == "labels":
            return F.binary_cross_entropy_with_logits(out, y.to(out.dtype), reduction="none")
        y = (y - y.new_tensor(self.center or (0.0,))) / y.new_tensor(self.scale or (1.0,))
        error = F.l1_loss if self.metrics[0] == "mae" else F.mse_loss
        return error(out, y.to(out.dtype), reduction="none")

    def unweighted(self, out: Tensor) -> Tensor:
        """Return the logits of classes, or outputs of other goals, corrected for class weights.

        A loss that weighs class c by w_c teaches p_w(c), proportional to w_c p(c). Therefore log w_c is subtracted from
        the logits, and p is of classes as frequent as they are.

        Args:
            out: outputs (n, C) or (n, T), or (n, 1) of the second of two classes.
        """
        own = self.weights
        if own is None:
            return out
        shift = np.log(np.where(own > 0, own, own.max()))  # nothing was learned of a class without weight
        if len(own) == 2 and (out.ndim < 2 or out.shape[1] == 1):
            shift = shift[1:] - shift[0]
        return out.double() - torch.from_numpy(shift).to(out.device)

    def activation(self, out: Tensor) -> Tensor:
        """Return float64 probabilities of the classes or labels, or values in spreads of the training rows.

        Args:
            out: see `unweighted`.
        """
        return ACTIVATIONS[self.goal](self.unweighted(out))

    def predictions(self, out: Tensor) -> np.ndarray:
        """Return float64 probabilities of the classes or labels, or values in the unit of the data."""
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

    def decided(self, probabilities: np.ndarray) -> np.ndarray:
        """Return (n, C) probabilities times class weights, whose largest is the predicted class."""
        return probabilities if self.weights is None else probabilities * self.weights

    def score(self, y: np.ndarray, out: Tensor) -> dict[str, float]:
        """Return the metrics, and the loss of classes, over what is known of y, as `rows` returned it."""
        known = self.known(y)
        if not known.any():
            raise DataError("no label is known among the rows to evaluate on; give labels for them, or use predict")
        found = self.predictions(out)[known]
        return evaluate_metrics(self.goal, self.metrics, y[known], found, self.weights)

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of a prediction table, of what `predictions` returned.

        Classes: prediction (the largest weight times probability), p_<class>; labels: p_<label>; values: prediction, or
        prediction_<name> of several.
        """
        names = np.asarray(self.names)
        if self.goal == "classes":
            columns: dict[str, np.ndarray] = {"prediction": names[self.decided(found).argmax(1)]}
            return columns | {f"p_{name}": found[:, c] for c, name in enumerate(names)}
        if self.goal == "values" and len(names) == 1:
            return {"prediction": found[:, 0]}
        kind = "p" if self.goal == "labels" else "prediction"
        return {f"{kind}_{name}": found[:, t] for t, name in enumerate(names)}

    def true_columns(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of what is true: of classes if all rows have one, of other targets if any has."""
        if self.goal == "classes":
            called = np.asarray((*self.names, *self.others))
            known = len(y) and (y >= 0).all() and y.max() < len(called)
            return {"label": called[y]} if known else {}
        if np.isnan(y).all():
            return {}
        one = len(self.names) == 1
        return {"label" if one else f"label_{name}": y[:, t] for t, name in enumerate(self.names)}

    def table(self, y: np.ndarray, out: Tensor) -> dict[str, np.ndarray]:
        """Return the columns of a prediction table: what outputs say, and what is true where it is known."""
        return self.columns(self.predictions(out)) | self.true_columns(y)


def target_of(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, metric: str, own: tuple[str, ...] = (),
    *, weights: ClassWeights = "none", amounts: bool = False,
) -> Target:  # fmt: skip
    """Return how the targets of a data set are learned.

    Args:
        y: see `goal_of`.
        train: training rows; they alone say what is centred, scaled and weighted.
        names: of the classes or targets; None numbers them.
        metric: what chooses the model; "auto" takes the data set's own, else the usual one of the goal.
        own: the data set's metrics.
        weights: of the classes; see `class_weights`.
        amounts: floats are values even where they are all 0 and 1.
    """
    goal: Goal = "values" if amounts and y.dtype.kind == "f" else goal_of(y)
    count = max(int(y.max(initial=-1)) + 1, len(names or ())) if goal == "classes" else y.reshape(len(y), -1).shape[1]
    if names is None or len(names) != count:
        names = tuple(map(str, range(count))) if goal == "classes" else default_names(count)
    metrics = metric_names(metric, own, goal, count)
    if goal != "classes" and weights != "none":
        raise ConfigError(f"class_weights={printable_name(weights)} weighs classes; these targets are {goal}")
    if goal == "classes":
        found = class_weights(y[train], names, weights)
        return Target(goal=goal, names=names, metrics=metrics, class_weights=found)
    if goal == "labels":
        return Target(goal=goal, names=names, metrics=metrics)
    center, scale = _standard(y.reshape(len(y), -1)[train].astype(np.float64))
    return Target(goal=goal, names=names, metrics=metrics, center=center, scale=scale)


def learned_target(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, metric: str, own: tuple[str, ...] = (),
    *, weights: ClassWeights = "none", amounts: bool = False, positive: str | None = None,
) -> tuple[np.ndarray, Target]:  # fmt: skip
    """Return targets as a model learns them, and how: see `target_of`, `of_training` and `positive_last`.

    Classes of training rows come first, of two the positive one last; the others that occur stand from C on.
    """
    others: tuple[str, ...] = ()
    if goal_of(y) == "classes":
        y, names, others = of_training(y, train, names)
    y, names = positive_last(y, train, names, positive)
    known = np.where(y < len(names), y, -1) if names and others else y
    target = target_of(known, train, names, metric, own, weights=weights, amounts=amounts)
    return y, replace(target, others=others)


POSITIVE, NEGATIVE = ("1", "true", "yes"), ("0", "-1", "false", "no")


def of_training(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[str, ...]]:
    """Return classes (n,), those of training rows first, their names, and the names of the others that occur.

    A model knows the former alone; of one or two classes in all it knows both, since one output tells them apart.

    Args:
        y: (n,) int64 classes, -1 unknown.
        train: training rows.
        names: of the classes, or None where they are numbers.

    >>> of_training(np.array([0, 3, 1, -1]), np.array([0, 1]), ("a", "b", "c", "d"))
    (array([ 0,  1,  2, -1]), ('a', 'd'), ('b',))
    """
    count = max(int(y.max(initial=-1)) + 1, len(names or ()))
    seen, there = (np.bincount(own[own >= 0], minlength=count) > 0 for own in (y[train], y))
    if seen.all() or count <= 2 or not seen.any():
        return y, names, ()
    own = names or tuple(map(str, range(count)))
    order = [*np.flatnonzero(seen).tolist(), *np.flatnonzero(there & ~seen).tolist()]
    place = np.full(count + 1, -1, np.int64)  # the last stands for "unknown"
    place[order] = np.arange(len(order))
    known = int(seen.sum())
    return place[y], tuple(own[c] for c in order[:known]), tuple(own[c] for c in order[known:])


def positive_last(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, positive: str | None = None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return classes (n,) and their names, of two the positive one last, which ROC AUC and average precision are of.

    It is the one that a user names, otherwise 1, true or yes beside 0, -1, false or no, otherwise the rarer class of
    the training rows.

    Args:
        y: (n,) int64 classes, -1 unknown, from len(names) on those that a model does not know; other targets stay.
        train: training rows.
        names: of the classes, or None if they are numbers.
        positive: `read.positive_class`.

    >>> positive_last(np.array([0, 0, 1, -1]), np.arange(3), ("ok", "banned"))
    (array([ 0,  0,  1, -1]), ('ok', 'banned'))
    >>> positive_last(np.array([0, 1, 1]), np.arange(3), ("banned", "ok"))
    (array([1, 0, 0]), ('ok', 'banned'))
    """
    classes = y.ndim == 1 and y.dtype.kind in "iu"
    own = names or (tuple(map(str, range(int(y.max(initial=-1)) + 1))) if classes else ())
    if positive is not None and (not classes or len(own) != 2 or positive not in own):
        known = f"classes: {', '.join(own[:10])}" if classes else "these targets are not classes"
        raise ConfigError(
            f"read.positive_class names one of two classes; got {positive!r}{nearest(positive, own)}; {known}"
        )
    if not classes or len(own) != 2:
        return y, names
    words = [name.strip().lower() for name in own]
    counts = np.bincount(y[train][(y[train] >= 0) & (y[train] < 2)], minlength=2)
    first = bool(counts[0] < counts[1])
    if any(a in POSITIVE and b in NEGATIVE for a, b in (words, words[::-1])):
        first = words[0] in POSITIVE
    if positive is not None:
        first = positive == own[0]
    return (np.where((y >= 0) & (y < 2), 1 - y, y), own[::-1]) if first else (y, names)


def warn_one_class(target: Target, y: np.ndarray, parts: Mapping[str, np.ndarray], name: str) -> None:
    """Warn of a split of one class only, for which the metric that chooses the model is undefined."""
    metric = target.metrics[0]
    if target.goal == "values" or not METRICS[metric].two_classes:
        return
    for split, means in (("val", "epochs are chosen by validation loss"), ("test", "its test value says nothing")):
        own = y[parts[split]]
        if target.goal == "labels":
            alone = not any(len(np.unique(column[~np.isnan(column)])) == 2 for column in own.reshape(len(own), -1).T)
            which = "no label has both values"
        else:
            there = np.unique(own[(own >= 0) & (own < target.width)])
            alone = len(there) == 1
            absent = [str(n) for c, n in enumerate(target.names) if c not in there]
            which = f"no row is of class {', '.join(absent[:5])}{', ...' * (len(absent) > 5)}"
        if alone:
            warnings.warn(
                f"{name}: in the {split} split {which}, so that {metric} is undefined there and {means}; choose "
                "another metric (--metric) or another split",
                HopstateWarning,
                stacklevel=3,
            )


def trained_target(found: Mapping[str, Any], metric: str) -> Target:
    """Return the target of a trained model from its data.json; metric is as in `target_of`."""
    target = found.get("target") or {"goal": "classes", "names": found["class_names"]}
    goal, names = target["goal"], tuple(target["names"])
    held = ("center", "scale", "class_weights", "others")
    optional = {key: tuple(target[key]) for key in held if target.get(key) is not None}
    metrics = metric_names(metric, tuple(found.get("metrics", ())), goal, len(names))
    return Target(goal=goal, names=names, metrics=metrics, **optional)


def remembered(target: Target) -> dict[str, Any]:
    """Return what a run must keep of a target, as JSON."""
    kept = {"goal": target.goal, "names": list(target.names)}
    optional = {key: getattr(target, key) for key in ("center", "scale", "class_weights")}
    optional["others"] = target.others or None
    return kept | {key: list(value) for key, value in optional.items() if value is not None}


def metric_names(metric: str, own: tuple[str, ...], goal: Goal, count: int) -> tuple[str, ...]:
    """Return the metric that chooses the model, "auto" the data's own or the usual one, then others to print."""
    known, metric = metrics_of_kind(goal), ALIASES.get(metric, metric)
    if metric != "auto":
        check_metric(metric, goal, auto=True)
    fitting = [ALIASES.get(name, name) for name in own if ALIASES.get(name, name) in known]
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
    """Return (C,) weights of classes in the loss, None for kind "none".

    Args:
        y: (n,) classes of the training rows, -1 unknown.
        names: (C,) of the classes.
        kind: "balanced" (the inverse of a class's share), "complement" (1 - its share; of both, a class that is absent
            has 0), or weights by hand, "spam=5" each; a class that is not named has 1.

    >>> class_weights(np.array([0, 0, 0, 1, -1]), ("a", "b"), "complement")
    (0.25, 0.75)
    >>> class_weights(np.array([0, 1]), ("a", "b"), ("b=5",))
    (1.0, 5.0)
    """
    if kind == "none":
        return None
    if not isinstance(kind, str):
        return _by_hand(names, kind)
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


def _by_hand(names: Sequence[str], said: Sequence[str]) -> tuple[float, ...]:
    found = dict.fromkeys(names, 1.0)
    for text in said:
        name, sign, number = str(text).rpartition("=")
        try:
            weight = float(number) if sign else math.nan
        except ValueError:
            weight = math.nan
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"class_weights by hand are NAME=WEIGHT, a weight a number of at least 0, such as '[{names[0]}=2]'; "
                f"got {text!r}"
            )
        if name not in found:
            known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise ConfigError(f"class_weights: there is no class {name!r}{nearest(name, names)}; classes: {known}")
        found[name] = weight
    if not any(found.values()):
        raise ConfigError("class_weights: every class weighs 0; there is nothing to learn")
    return tuple(found.values())


def _standard(y: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and spread of each column's known entries; 0 and 1 of one without, spread 1 of a constant one."""
    known = ~np.isnan(y)
    n = np.maximum(known.sum(0), 1)
    power = np.frexp(np.abs(np.where(known, y, 0)).max(0, initial=0))[1]  # squares of large amounts overflow
    y = np.ldexp(y, -power)
    center = np.where(known, y, 0).sum(0) / n
    spread = np.ldexp(np.sqrt(np.where(known, (y - center) ** 2, 0).sum(0) / n), power)
    center = np.ldexp(center, power)
    spread[~(spread > 1e-12 * np.abs(center))] = 1.0
    return tuple(center.tolist()), tuple(spread.tolist())
