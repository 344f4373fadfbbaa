"""Targets of an event's source at the time of the event, predicted before the event is seen, as a `Task`.

Targets are classes, several 0/1 labels, or numbers. What is unknown (class -1, NaN) counts in neither loss nor metrics,
each cell alone.

Source: Kumar et al. 2019, arXiv:1908.01207 (the task); DyG-Mamba, arXiv:2408.06966, algorithm 3; CTDG-SSM,
arXiv:2606.04672, algorithm 2.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.data.validate import SPLITS, default_names
from hopstate.errors import ConfigError, DataError, HopstateWarning
from hopstate.evaluation.intervals import KEPT, apart, bootstrap_areas, limits_of
from hopstate.evaluation.metrics import average_precision, check_metric, evaluate_metrics, one_vs_rest_auc, roc_auc
from hopstate.streaming.protocols import NodeFollower, Scores
from hopstate.streaming.replay import replay_split
from hopstate.training.tasks.events import EventSource, EventTask, events_to_score, to_user_ids
from hopstate.training.tasks.target import (
    ClassWeights,
    Target,
    encode_target,
    has_label,
)
from hopstate.training.tasks.task import TaskFacts

_HINT = "name their column (--read.label_column)"


@dataclass(frozen=True, eq=False, kw_only=True)
class EventTargets:
    """What is known of a stream's events, of their sources at their times.

    Args:
        y: (E,) int64 classes, -1 unknown, from C on where a model does not know them; or (E, T) labels or values, NaN
            unknown.
        target: how they are learned and evaluated; its first metric chooses the model.
        named: whether the user named the classes: else two are numbers 0 and 1.
    """

    y: np.ndarray
    target: Target
    named: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return self.target.names

    @property
    def metric(self) -> str:
        return self.target.metrics[0]

    @property
    def classes(self) -> bool:
        return self.target.goal == "classes"

    @property
    def width(self) -> int:
        """Outputs of a model: 1 for two classes."""
        return 1 if self.classes and len(self.names) == 2 else len(self.names)

    def values(self, found: np.ndarray) -> np.ndarray:
        """Return outputs of a model as float64 probabilities (Q, C) or (Q, T), or values (Q, T) in the data's unit."""
        found = np.asarray(found, np.float64).reshape(-1, self.width)
        if self.target.goal == "values":
            return found * np.asarray(self.target.scale or 1.0) + np.asarray(self.target.center or 0.0)
        return np.hstack([1 - found, found]) if self.classes and self.width == 1 else found

    def metrics(self, rows: np.ndarray, found: np.ndarray, *, bootstrap: int = 0, seed: int = 0) -> dict[str, float]:
        """Return the metrics over what is known of events at rows (Q,); NaN where nothing is.

        Two classes: roc_auc and average_precision of the positive one, the number of its events ("positives"), limits
        of a bootstrap if asked for, and the metric if it is another one. More: macro_f1, accuracy, roc_auc (each class
        against the rest, pooled over events; the mean over classes), the metric. If only one class occurs, also the
        cross-entropy ("loss"). A class that the model does not know is an error in macro_f1, accuracy and
        balanced_accuracy; areas leave its events out. Several labels or values: means over them.

        Args:
            rows: positions in the stream.
            found: outputs of a model, see `values`; of two classes (Q,) probabilities of the positive one.
            bootstrap: resamples for confidence intervals, of two classes; 0 gives none.
            seed: of the bootstrap.
        """
        y, values = self.y[rows], self.values(found)
        if not self.classes:
            return evaluate_metrics(self.target.goal, self.target.metrics, y, values)
        y, values = y[y >= 0], values[y >= 0]
        names = dict.fromkeys((*(("macro_f1", "accuracy") if self.width > 1 else ()), self.metric))
        counted = tuple(name for name in names if check_metric(name, "classes").counts_unknown)
        result = evaluate_metrics("classes", counted, y, values, self.target.weights)
        loss = result.pop("loss")
        inside = y < len(self.names)
        y, values = y[inside], values[inside]
        one_class = {"loss": loss} if len(np.unique(y)) == 1 else {}
        if self.width > 1:
            return result | {"roc_auc": one_vs_rest_auc(y, values)} | one_class
        score = values[:, 1]
        areas = {"roc_auc": roc_auc(y, score), "average_precision": average_precision(y, score)}
        result = areas | {"positives": float(y.sum())} | result | one_class
        if bootstrap and len(np.unique(y)) == 2:
            drawn = bootstrap_areas(score[y == 1], score[y == 0], None, repeats=bootstrap, seed=seed)
            result |= limits_of(drawn)
        return result

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of outputs.

        Classes: score, the positive one's probability, or of more than two p_<class> each, and prediction if they have
        names; labels: p_<label>; values: prediction, or of several prediction_<name>.
        """
        values = self.values(found)
        if self.classes and self.width == 1:
            decided = self.target.columns(values)["prediction"]
            return {"score": values[:, 1]} | ({"prediction": decided} if self.named else {})
        return self.target.columns(values)

    def baselines(self, stream: EventStream, split: EventSplit, part: str = "test") -> dict[str, dict[str, float]]:
        """Return metrics of a part of the split ("val" or "test") of answers without a model.

        "mean" of the training events ("majority" of classes: their shares), of values also "median"; and "last": the
        last that is known of the same source from earlier events, the mean without one.
        """
        rows, y = split.rows(part), self.y.astype(np.float64)
        if self.classes:
            known = (self.y >= 0) & (self.y < len(self.names))
            y = np.where(known[:, None], self.y[:, None] == np.arange(len(self.names)), np.nan)
        train = [column[~np.isnan(column)] for column in y[split.train].T]
        mean = np.broadcast_to([own.mean() if len(own) else 0.0 for own in train], (len(rows), y.shape[1]))
        said = {"majority" if self.classes else "mean": mean}
        if self.target.goal == "values":
            said["median"] = np.broadcast_to([np.median(own) if len(own) else 0.0 for own in train], mean.shape)
        if self.classes:
            last = last_label_per_source(stream, y, rows)
        else:
            last = np.stack([last_label_per_source(stream, own, rows) for own in y.T], 1)
        said["last"] = np.where(np.isnan(last), mean, last)
        unweighted = replace(self, target=replace(self.target, class_weights=None))
        return {name: unweighted.metrics(rows, self._outputs(values)) for name, values in said.items()}

    def _outputs(self, values: np.ndarray) -> np.ndarray:
        """Return what a model that answers `values` puts out."""
        if self.target.goal == "values":
            return (values - np.asarray(self.target.center or 0.0)) / np.asarray(self.target.scale or 1.0)
        return values[:, 1] if self.classes and self.width == 1 else values


def last_label_per_source(stream: EventStream, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return (Q,) or (Q, W) the last target of each event's source from strictly earlier events, NaN without."""
    known = np.flatnonzero(~np.isnan(y.reshape(len(y), -1)).all(1))
    if not len(known):
        return np.full((len(rows), *y.shape[1:]), np.nan)
    times = np.unique(stream.t)
    key = stream.src * (len(times) + 1) + np.searchsorted(times, stream.t)
    order = known[np.argsort(key[known], kind="stable")]
    at = np.searchsorted(key[order], key[rows]) - 1
    found = order[np.maximum(at, 0)]
    values = y[found]
    values[(at < 0) | (stream.src[found] != stream.src[rows])] = np.nan
    return values


# ---- targets of a stream -----------------------------------------------------------------------------------
def event_classes(
    stream: EventStream,
    *,
    metric: str = "auto",
    train: np.ndarray | None = None,
    positive: str | None = None,
    weights: ClassWeights = "none",
) -> EventTargets:
    """Return the classes of a stream's events; those that no training event has stand from C on.

    Args:
        stream: its labels: numbers of class_names, or whole numbers that are names themselves; -1 or NaN: unknown.
        metric: see `metric_of_classes`.
        train: positions of training events, whose classes alone a model learns; None learns all.
        positive: the positive class of two, `read.positive_class`; see `positive_last`.
        weights: of the classes in the loss, see `class_weights`.

    Warns:
        HopstateWarning: classes that the model does not know, by name.
    """
    y, own = event_codes(stream)
    if stream.class_names is None and set(own) <= {"0", "1"}:
        y, own = np.where(y < 0, -1, np.asarray([int(n) for n in own] or [0])[y]), ("0", "1")
    named = stream.class_names is not None or own != ("0", "1")
    learned = np.arange(len(y)) if train is None else train
    y, target = encode_target(y, learned, own, metric, weights=weights, positive=positive)
    names, others = target.names, target.others
    target = replace(target, metrics=(metric_of_classes(metric, target.width),))
    there = np.unique(y[y >= 0])
    if len(names) < 2 or len(there) == 1:
        which, only = ("training events have", names[0]) if others else ("labels are of", names[int(there[0])])
        raise DataError(f"{stream.name}: all {which} only the class {only}; there is nothing to learn")
    if others:
        counts = np.bincount(y[y >= len(names)] - len(names), minlength=len(others)).tolist()
        shown = [f"{name!r} ({n:,} events)" for name, n in zip(others, counts, strict=True)]
        more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
        warnings.warn(
            f"no training event of {stream.name} has the class {', '.join(shown[:5])}{more}; it can never be "
            "predicted, and events that have it count as wrong",
            HopstateWarning,
            stacklevel=4,
        )
    return EventTargets(y=y.astype(np.int64), target=target, named=named or names == ("1", "0"))


def metric_of_classes(metric: str, count: int) -> str:
    """Return the metric that chooses a model of so many classes: "auto" takes roc_auc of two and macro_f1 of more."""
    if metric == "auto":
        return "roc_auc" if count == 2 else "macro_f1"
    found = check_metric(metric, "classes", auto=True)
    if found.two_classes and metric != "roc_auc" and count > 2:
        raise ConfigError(f"{metric} is of two classes, the data have {count}; take macro_f1, accuracy or roc_auc")
    return metric


def event_amounts(stream: EventStream, *, required: bool = False) -> np.ndarray:
    """Return (E, 1) float64 amounts of events, NaN where unknown; DataError if none are there as required."""
    if stream.labels is None and required:
        raise DataError(f"{stream.name}: amounts of nodes need labels of events, and there are none; {_HINT}")
    if required and stream.class_names is not None:
        raise DataError(
            f"{stream.name}: labels such as {stream.class_names[0]!r} are classes, no amounts; leave --read.task out, "
            f"or {_HINT}"
        )
    if stream.labels is None:
        return np.full((len(stream), 1), np.nan)
    if stream.labels.ndim > 1:
        raise DataError(f"{stream.name} has {stream.labels.shape[1]} columns of labels, the run knows one; name one")
    return np.asarray(stream.labels, np.float64)[:, None]


def check_labels_present(targets: EventTargets, split: EventSplit, name: str) -> None:
    """Raise DataError where no training or no validation event has a label, or none of training one of several."""
    for part, said in (("train", "training"), ("val", "validation")):
        if not has_label(targets.y[split.rows(part)]).any():
            raise DataError(f"{name}: no {said} event has a label; label some, or choose another split (--split.kind)")
    if targets.classes:
        return
    unlabeled = np.isnan(targets.y[split.train]).all(0)
    if unlabeled.any():
        raise DataError(
            f"{name}: no training event has a label in column {targets.names[int(np.argmax(unlabeled))]!r}; label "
            "some, leave the column out of --read.label_column, or choose another split (--split.kind)"
        )


def label_columns(stream: EventStream, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of labels at rows (Q,) as the user wrote them: label, or label_<name> of several."""
    if stream.labels is None:
        return {}
    if stream.labels.ndim > 1:
        names = stream.class_names or default_names(stream.labels.shape[1])
        return {f"label_{name}": stream.labels[rows, at] for at, name in enumerate(names)}
    own = stream.labels[rows]
    if stream.class_names is None:
        return {"label": own}
    return {"label": np.array([*stream.class_names, None], object)[own]}


def event_codes(stream: EventStream) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return (E,) numbers of classes, -1 unknown, and the classes' names."""
    need = f"{stream.name}: dynamic node classification needs classes as labels of events"
    if stream.labels is None:
        why = next(
            (f"and none was taken: {note}" for note in stream.notes if "hardly classes" in note), "and there are none"
        )
        raise DataError(f"{need}, {why}; {_HINT}")
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
            f"as amounts (--read.task regression), or {_HINT}"
        )
    y = y.astype(np.int64)
    known = y[y >= 0]
    if not len(known) and len(y):
        raise DataError(f"{need}, and no event has a label; {_HINT}")
    if stream.class_names is not None:
        return y, stream.class_names
    values = np.unique(known)
    if len(values) > max(len(known) // 2, 2):
        raise DataError(f"{need}; {len(values):,} different labels of {len(known):,} events are no classes; {_HINT}")
    return np.where(y < 0, -1, np.searchsorted(values, y)), tuple(map(str, values.tolist()))


class EventNodeTask(EventTask[NodeFollower]):
    """Classification of an event's source, from what came before the event.

    Tables have columns node and t, those of `EventTargets.columns`, and label where the stream has labels.

    Args:
        source: of the batches, and of the model as a scorer.
        targets: of the events.
        eval_batch_size: events scored, then seen, together in evaluation, as `LinkEvaluation.batch_size`.
        bootstrap: resamples for confidence intervals of the test split, of two classes; 0 gives none.
        clock: of the gaps that the model sees, kept with the run.
        frozen: modules that were trained before, and stay as they are.
    """

    def __init__(
        self,
        source: EventSource[NodeFollower],
        *,
        targets: EventTargets,
        eval_batch_size: int = 200,
        bootstrap: int = 0,
        clock: Clock | None = None,
        frozen: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__(source, clock=clock)
        self.targets, self.metric, self.mode = targets, targets.metric, targets.target.mode
        self.eval_batch_size, self.bootstrap, self.frozen = eval_batch_size, bootstrap, frozen

    def loss(self, batch: Any) -> Tensor | None:
        for module in self.frozen:
            module.eval()
        return super().loss(batch)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of a split's sources (`EventTargets.metrics`), of "train" from training events."""
        if split not in SPLITS:
            raise ConfigError(f"nodes are evaluated on 'train', 'val' or 'test', not {split!r}")
        rows = self.split.rows(split)
        bootstrap = (self.bootstrap or KEPT) if split == "test" else 0
        found = self.targets.metrics(rows, self._scores(split, rows, rows), bootstrap=bootstrap)
        if split != "test" or self.bootstrap:
            return found
        judged, limits = apart(found)  # limits that nobody asked for are kept, and no metrics
        self.curves = {"ranking": [], "reliability": [], "intervals": limits} if limits else {}
        return judged

    def predict(self, split: str) -> dict[str, np.ndarray]:
        at, rows = events_to_score(self.stream, self.split, split)
        at = self._of_file(self.stream, at)
        return self.score_columns(self.stream, at, self._scores(split, at, rows)) | label_columns(self.stream, at)

    def _scores(self, split: str, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return outputs (Q,) or (Q, C) for the sources of the events at (Q,), scored amid the events at rows (P,)."""
        stream, scorer, size = self.stream, self.scorer(split), self.eval_batch_size

        def score(rows: np.ndarray) -> Scores:
            return scorer.score_nodes(stream.src[rows], stream.t[rows])

        return replay_split(scorer, score, stream, at, rows=rows, batch_size=size, wide=True)

    def facts(self) -> TaskFacts:
        return {"clock": self.clock, "target": self.targets.target}

    # ---- going on --------------------------------------------------------------------------------------
    @property
    def live_batch(self) -> int:
        return self.eval_batch_size

    def score_events(self, follower: NodeFollower, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        return follower.score_nodes(src, t)

    def rows_to_score(self, new: EventStream) -> np.ndarray:
        return self._of_file(new, np.arange(len(new)))

    def score_columns(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        named = to_user_ids(new, rows)
        return {"row": new.in_file(rows), "node": named["src"], "t": named["t"]} | self.targets.columns(scores)

    @staticmethod
    def _of_file(stream: EventStream, rows: np.ndarray) -> np.ndarray:
        return rows[stream.in_file(rows) >= 0]
