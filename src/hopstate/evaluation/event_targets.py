"""Several targets of nodes at their events: yes-or-no labels or amounts; what is known, how outputs are judged, shown.

Outputs of labels are chances, those of amounts are in spreads of the training events; what is unknown stands as NaN and
counts in no metric, each cell alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.data.validate import default_names
from hopstate.errors import ConfigError, DataError, HopstateWarning, nearest
from hopstate.evaluation.intervals import bootstrap_areas, limits_of
from hopstate.evaluation.metrics import (
    average_precision,
    classification_metrics,
    label_metrics,
    one_vs_rest_auc,
    roc_auc,
    value_metrics,
)

__all__ = ["EventTargets", "check_targets"]

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

    Raises:
        ConfigError: positive is not one of two classes.

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


_SHARED = ("macro_f1", "accuracy", "balanced_accuracy")
_AREAS = ("roc_auc", "average_precision")
METRICS = ("roc_auc", "average_precision", *_SHARED)


@dataclass(frozen=True, eq=False, kw_only=True)
class EventClasses:
    """The classes of a stream's events, of their sources at their times.

    Args:
        y: (E,) int64 classes, -1 unknown, from C on where a model does not know them.
        names: of the classes 0..C-1, the positive one of two last.
        named: whether the user named them: else two are numbers 0 and 1.
        metric: what chooses the model; see `metric_of`.
        others: names of the classes from C on.
        weights: (C,) of the classes in the loss, or None: a predicted class has the largest weight times probability.
    """

    y: np.ndarray
    names: tuple[str, ...]
    named: bool
    metric: str
    others: tuple[str, ...] = ()
    weights: np.ndarray | None = None

    @property
    def width(self) -> int:
        """Outputs of a model: 1 for two classes, else C."""
        return 1 if len(self.names) == 2 else len(self.names)

    def metrics(self, rows: np.ndarray, found: np.ndarray, *, bootstrap: int = 0, seed: int = 0) -> dict[str, float]:
        """Return the metrics over those of events at rows (Q,) whose class is known; NaN where none is.

        Two classes: roc_auc and average_precision of the positive one, the number of its events ("positives"), limits
        of a bootstrap if asked for, and the metric if it is another one. More: macro_f1, accuracy, roc_auc (each class
        against the rest, pooled over events; the mean over classes), the metric. If only one class occurs, also the
        cross-entropy ("loss"). A class that the model does not know is an error in macro_f1, accuracy and
        balanced_accuracy; areas leave its events out.

        Args:
            rows: positions in the stream.
            found: (Q,) probabilities of the positive class, or (Q, C).
            bootstrap, seed: see `evaluate_dynamic_nodes`.
        """
        y = self.y[rows]
        y, found = y[y >= 0], np.asarray(found)[y >= 0]
        wide = self._wide(found)
        inside = y < len(self.names)
        names = dict.fromkeys((*(("macro_f1", "accuracy") if self.width > 1 else ()), self.metric))
        judged = classification_metrics(tuple(n for n in names if n not in _AREAS), y, wide, self.weights)
        loss = judged.pop("loss")
        if self.width > 1:
            judged["roc_auc"] = one_vs_rest_auc(y[inside], wide[inside])
            return judged | self._loss(y[inside], loss)
        y, found = y[inside], found[inside]
        judged = {"roc_auc": roc_auc(y, found), "average_precision": average_precision(y, found)} | {
            "positives": float(y.sum()),
            **judged,
            **self._loss(y, loss),
        }
        if bootstrap and len(np.unique(y)) == 2:
            judged |= limits_of(bootstrap_areas(found[y == 1], found[y == 0], None, repeats=bootstrap, seed=seed))
        return judged

    def _loss(self, y: np.ndarray, loss: float) -> dict[str, float]:
        return {"loss": loss} if len(np.unique(y)) == 1 else {}

    def _wide(self, found: np.ndarray) -> np.ndarray:
        """Return (Q, C) probabilities of outputs."""
        found = np.asarray(found, np.float64)
        return np.stack([1 - found, found], 1) if self.width == 1 else found.reshape(-1, self.width)

    def _decided(self, wide: np.ndarray) -> np.ndarray:
        """Return (Q,) predicted classes of probabilities (Q, C)."""
        return (wide if self.weights is None else wide * self.weights).argmax(1)

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of outputs: score, the positive class's probability, or of more classes p_<class> each.

        Named classes also have a column prediction.

        Args:
            found: as in `metrics`.
        """
        wide = self._wide(found)
        said = {"prediction": np.asarray(self.names)[self._decided(wide)]}
        if self.width == 1:
            return {"score": wide[:, 1]} | (said if self.named else {})
        return said | {f"p_{name}": wide[:, c] for c, name in enumerate(self.names)}


def event_classes(
    stream: EventStream,
    *,
    metric: str = "auto",
    trained: Mapping[str, Any] | None = None,
    train: np.ndarray | None = None,
    positive: str | None = None,
) -> EventClasses:
    """Return the classes of a stream's events; those that training events, or a trained run, do not have from C on.

    Args:
        stream: its labels: numbers of class_names, or whole numbers that are names themselves; -1 or NaN: unknown.
        metric: see `metric_of`.
        trained: data.json of the run, if there is one; runs of 0.1.0 had two classes.
        train: positions of training events, whose classes alone a model learns; None learns all.
        positive: the positive class of two, `read.positive_class`; see `positive_last`.

    Raises:
        DataError: no labels, labels that are no classes, or one class only.
        ConfigError: an unknown metric, or one of two classes where there are more.

    Warns:
        HopstateWarning: classes that the model does not know, by name.
    """
    if trained is None:
        codes, own = _codes(stream)
        if stream.class_names is None and set(own) <= {"0", "1"}:
            codes, own = np.where(codes < 0, -1, np.asarray([int(n) for n in own] or [0])[codes]), ("0", "1")
        named = stream.class_names is not None or own != ("0", "1")
        learned = np.arange(len(codes)) if train is None else train
        codes, known, others = of_training(codes, learned, own)
        codes, last = positive_last(codes, learned, known or own, positive)
        names = last or own
        named = named or names == ("1", "0")
        there = np.unique(codes[codes >= 0])
        if len(names) < 2 or len(there) == 1:
            which, only = ("training events have", names[0]) if others else ("labels are of", names[int(there[0])])
            raise DataError(f"{stream.name}: all {which} only the class {only}; there is nothing to learn")
        if others:
            _warn_of(f"no training event of {stream.name} has", others, codes, len(names))
    else:
        class_names = (trained.get("target") or {}).get("names") or trained.get("class_names") or ("0", "1")
        names = tuple(class_names)
        named = names != ("0", "1") or bool(trained.get("class_names"))
        codes, own = _codes(stream) if stream.labels is not None else (np.full(len(stream), -1), ())
        told = tuple((trained.get("target") or {}).get("others") or ())
        others = (*told, *(name for name in own if name not in (*names, *told)))
        place = {name: c for c, name in enumerate((*names, *others))}
        codes = np.array([*(place[name] for name in own), -1], np.int64)[codes]
        if (codes >= len(names) + len(told)).any():
            _warn_of(f"the run does not know, of {stream.name},", others[len(told) :], codes, len(names) + len(told))
    chosen = metric_of(metric, len(names))
    return EventClasses(y=codes.astype(np.int64), names=names, named=named, metric=chosen, others=others)


def _warn_of(told: str, others: tuple[str, ...], codes: np.ndarray, count: int) -> None:
    """Warn of classes from count on, which stand in codes (E,)."""
    found = np.bincount(codes[codes >= count] - count, minlength=len(others))
    shown = [f"{name!r} ({n:,} events)" for name, n in zip(others, found.tolist(), strict=True) if n]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    warnings.warn(
        f"{told} the class {', '.join(shown[:5])}{more}; it can never be predicted, and events that have it count as "
        "wrong",
        HopstateWarning,
        stacklevel=4,
    )


def metric_of(metric: str, count: int) -> str:
    """Return the metric that chooses a model of so many classes: "auto" takes roc_auc of two and macro_f1 of more.

    Raises:
        ConfigError: an unknown metric, or one of two classes where there are more.
    """
    if metric == "auto":
        return "roc_auc" if count == 2 else "macro_f1"
    if metric not in METRICS:
        raise ConfigError(f"unknown metric {metric!r}{nearest(metric, METRICS)}; known: auto, {', '.join(METRICS)}")
    if metric == "average_precision" and count > 2:
        raise ConfigError(f"{metric} is of two classes, the data have {count}; take macro_f1, accuracy or roc_auc")
    return metric


def check_known(classes: EventClasses, splits: EventSplit, name: str) -> None:
    """Raise DataError where no event of the training or validation split has a label."""
    for split, said in (("train", "training"), ("val", "validation")):
        if not (classes.y[splits.rows(split)] >= 0).any():
            raise DataError(f"{name}: no {said} event has a label; label some, or choose another split (--split.kind)")


def shown_labels(stream: EventStream, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the column label of events at rows (Q,) as the user wrote it, none of unknown names; {} without labels.

    Of several labels an event there is a column label_<name> each.
    """
    if stream.labels is None:
        return {}
    if stream.labels.ndim > 1:
        names = stream.class_names or default_names(stream.labels.shape[1])
        return {f"label_{name}": stream.labels[rows, at] for at, name in enumerate(names)}
    own = stream.labels[rows]
    if stream.class_names is None:
        return {"label": own}
    return {"label": np.array([*stream.class_names, None], object)[own]}


def _codes(stream: EventStream) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return (E,) numbers of classes, -1 unknown, and the classes' names."""
    need = f"{stream.name}: dynamic node classification needs classes as labels of events"
    hint = "name their column (--read.label_column)"
    if stream.labels is None:
        why = next(
            (f"and none was taken: {note}" for note in stream.notes if "hardly classes" in note), "and there are none"
        )
        raise DataError(f"{need}, {why}; {hint}")
    if stream.labels.ndim > 1:
        raise DataError(f"{need}, one each, and here are {stream.labels.shape[1]} columns; name one")
    y = np.asarray(stream.labels)
    if y.dtype.kind == "f":
        y = np.where(np.isnan(y), -1, y)
    wrong = (y < -1) | (y != np.floor(y))
    if stream.class_names is not None:
        wrong |= y >= len(stream.class_names)
    if wrong.any():
        at = int(np.argmax(wrong))
        first = at if stream.file_rows is None else stream.file_rows[at]
        raise DataError(
            f"{need}; event {first} has {y[at]}, and {int(wrong.sum()):,} events in all have none: a class is "
            f"a whole number from 0 on, or text, and -1 or an empty cell is unknown; repair them, take them "
            f"as amounts (--read.task regression), or {hint}"
        )
    y = y.astype(np.int64)
    known = y[y >= 0]
    if not len(known) and len(y):
        raise DataError(f"{need}, and no event has a label; {hint}")
    if stream.class_names is not None:
        return y, stream.class_names
    values = np.unique(known)
    if len(values) > max(len(known) // 2, 2):
        raise DataError(f"{need}; {len(values):,} different labels of {len(known):,} events are no classes; {hint}")
    return np.where(y < 0, -1, np.searchsorted(values, y)), tuple(map(str, values.tolist()))


@dataclass(frozen=True, eq=False, kw_only=True)
class EventAmounts:
    """The amounts of a stream's events, of their sources at their times.

    Args:
        y: (E,) float64, NaN unknown.
        metrics_of: names of the metrics; the first chooses the model.
        center, scale: of the training events.
    """

    y: np.ndarray
    metrics_of: tuple[str, ...]
    center: float
    scale: float

    @property
    def metric(self) -> str:
        """What chooses the model."""
        return self.metrics_of[0]

    @property
    def width(self) -> int:
        """Outputs of a model."""
        return 1

    def values(self, found: np.ndarray) -> np.ndarray:
        """Return outputs (Q,) in the unit of the data, float64."""
        return np.asarray(found, np.float64) * self.scale + self.center

    def metrics(self, rows: np.ndarray, found: np.ndarray, *, bootstrap: int = 0, seed: int = 0) -> dict[str, float]:
        """Return the metrics over those of events at rows (Q,) whose amount is known; NaN where none is.

        Args:
            rows: positions in the stream.
            found: (Q,) outputs.
            bootstrap, seed: of no use to amounts.
        """
        return value_metrics(self.metrics_of, self.y[rows][:, None], self.values(found)[:, None])

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return the column prediction of outputs (Q,), in the unit of the data."""
        return {"prediction": self.values(found)}


def amounts_of(stream: EventStream) -> np.ndarray:
    """Return (E,) float64 amounts of a stream's events, NaN where unknown or where there are none.

    Raises:
        DataError: several columns of labels.
    """
    if stream.labels is None:
        return np.full(len(stream), np.nan)
    if stream.labels.ndim > 1:
        raise DataError(f"{stream.name} has {stream.labels.shape[1]} columns of labels, the run knows one; name one")
    return np.asarray(stream.labels, np.float64)


def check_amounts(y: np.ndarray, splits: EventSplit, stream: EventStream) -> None:
    """Raise DataError where labels are words, or none is known among the training or the validation events."""
    hint = "name their column (--read.label_column)"
    if stream.labels is None:
        raise DataError(f"{stream.name}: amounts of nodes need labels of events, and there are none; {hint}")
    if stream.class_names is not None:
        raise DataError(
            f"{stream.name}: labels such as {stream.class_names[0]!r} are classes, no amounts; leave --read.task out, "
            f"or {hint}"
        )
    for split, said in (("train", "training"), ("val", "validation")):
        if np.isnan(y[splits.rows(split)]).all():
            raise DataError(f"{stream.name}: no {said} event has a label; label some, or choose another split")


def last_known(stream: EventStream, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the last amount of each event's source that is known from strictly earlier events, NaN without one.

    Args:
        stream: E events.
        y: (E,) amounts, NaN unknown.
        rows: (Q,) positions in the stream.

    Returns:
        (Q,).
    """
    known = np.flatnonzero(~np.isnan(y))
    times = np.unique(stream.t)
    rank = np.searchsorted(times, stream.t)
    key = stream.src * (len(times) + 1) + rank
    order = known[np.argsort(key[known], kind="stable")]
    at = np.searchsorted(key[order], key[rows]) - 1
    found = order[np.maximum(at, 0)] if len(order) else np.zeros(len(rows), np.int64)
    there = (at >= 0) & (stream.src[found] == stream.src[rows])
    return np.where(there, y[found], np.nan)


@dataclass(frozen=True, eq=False, kw_only=True)
class EventTargets:
    """T targets of each of a stream's events, of its source at its time.

    Args:
        y: (E, T) floats, NaN unknown.
        names: (T,) of the targets.
        metrics_of: names of the metrics; the first chooses the model.
        center, scale: (T,) of the training events' amounts; of labels 0 and 1.
        labels: whether targets are labels of 0 and 1, else amounts.
    """

    y: np.ndarray
    names: tuple[str, ...]
    metrics_of: tuple[str, ...]
    center: tuple[float, ...] = field(default=())
    scale: tuple[float, ...] = field(default=())
    labels: bool = True

    @property
    def metric(self) -> str:
        """What chooses the model."""
        return self.metrics_of[0]

    @property
    def width(self) -> int:
        """Outputs of a model."""
        return len(self.names)

    def values(self, found: np.ndarray) -> np.ndarray:
        """Return outputs (Q,) or (Q, T) as chances, or in the unit of the data: (Q, T) float64."""
        found = np.asarray(found, np.float64).reshape(-1, self.width)
        return found if self.labels else found * np.asarray(self.scale) + np.asarray(self.center)

    def outputs(self, values: np.ndarray) -> np.ndarray:
        """Return what a model that says values (Q, T) would put out."""
        return values if self.labels else (values - np.asarray(self.center)) / np.asarray(self.scale)

    def metrics(self, rows: np.ndarray, found: np.ndarray, *, bootstrap: int = 0, seed: int = 0) -> dict[str, float]:
        """Return the metrics over what is known of events at rows (Q,), means over the targets; NaN where nothing is.

        Args:
            rows: positions in the stream.
            found: (Q, T) outputs.
            bootstrap, seed: of no use to several targets.
        """
        judge = label_metrics if self.labels else value_metrics
        return judge(self.metrics_of, self.y[rows], self.values(found))

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return columns p_<label> of chances, or prediction_<name> of amounts, of outputs (Q, T)."""
        kind = "p" if self.labels else "prediction"
        return {f"{kind}_{name}": column for name, column in zip(self.names, self.values(found).T, strict=True)}

    def floors(self, stream: EventStream, split: EventSplit, part: str = "test") -> dict[str, dict[str, float]]:
        """Return metrics of a part of the split ("val" or "test") of answers without a model.

        "mean" of each target's training events (of labels their share), of amounts also "median"; and "last": the last
        that is known of the same source from earlier events, the mean without one.

        Args:
            stream, split: the data.
            part: what is evaluated.
        """
        rows, train = split.rows(part), self.y[split.train].astype(np.float64)
        means, medians = (np.array([how(own[~np.isnan(own)]) if not np.isnan(own).all() else 0.0 for own in train.T])
                          for how in (np.mean, np.median))  # fmt: skip
        said = {"mean": np.broadcast_to(means, (len(rows), self.width))}
        if not self.labels:
            said["median"] = np.broadcast_to(medians, said["mean"].shape)
        last = np.stack([last_known(stream, own, rows) for own in self.y.T], 1)
        said["last"] = np.where(np.isnan(last), said["mean"], last)
        return {name: self.metrics(rows, self.outputs(one)) for name, one in said.items()}


def check_targets(y: np.ndarray, names: tuple[str, ...], split: EventSplit, stream: EventStream) -> None:
    """Raise DataError where a target is known of no training event, or none is of any validation event."""
    bare = [name for name, own in zip(names, y[split.train].T, strict=True) if np.isnan(own).all()]
    if bare:
        raise DataError(
            f"{stream.name}: no training event has a label in column {bare[0]!r}; label some, leave the column out of "
            "--read.label_column, or choose another split (--split.kind)"
        )
    if np.isnan(y[split.rows("val")]).all():
        raise DataError(f"{stream.name}: no validation event has a label; label some, or choose another split")
