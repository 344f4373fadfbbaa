"""Prediction of the label of an event's source before the event is seen, as a `Task`.

Targets are classes, several 0/1 labels, or numbers. Missing entries (class -1, NaN) are ignored in losses and metrics.

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
from hopstate.errors import ConfigError, DataError, HopstateWarning, listed
from hopstate.evaluation.intervals import DEFAULT_REPEATS, bootstrap_areas, interval_columns, split_intervals
from hopstate.evaluation.metrics import average_precision, check_metric, evaluate_metrics, ovr_roc_auc, roc_auc
from hopstate.streaming.protocols import NodeScorer, Scores
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
    """Labels of a stream's events, which describe their sources at the time of the event.

    Args:
        y: (E,) int64 classes, -1 if missing, C or more for classes unknown to the model; or (E, T) labels or regression
            targets, NaN if missing.
        target: loss and metrics; the first metric selects the model.
        named: False if the user did not name two classes 0 and 1.
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
        """Number of model outputs; 1 for two classes."""
        return 1 if self.classes and len(self.names) == 2 else len(self.names)

    def values(self, outputs: np.ndarray) -> np.ndarray:
        """Return model outputs as float64 probabilities (Q, C) or (Q, T), or as values (Q, T) in the data's unit."""
        outputs = np.asarray(outputs, np.float64).reshape(-1, self.width)
        if self.target.goal == "values":
            return outputs * np.asarray(self.target.scale or 1.0) + np.asarray(self.target.center or 0.0)
        return np.hstack([1 - outputs, outputs]) if self.classes and self.width == 1 else outputs

    def metrics(self, rows: np.ndarray, outputs: np.ndarray, *, bootstrap: int = 0) -> dict[str, float]:
        """Return the metrics of events at rows (Q,); NaN if none is labeled.

        Binary: roc_auc and average_precision of the positive class, its count ("positives"), confidence limits if
        requested, and the selected metric. Multiclass: macro_f1, accuracy, one-vs-rest roc_auc (pooled over events,
        mean over classes) and the selected metric. "loss" is added if only one class occurs. Unknown classes count as
        errors in macro_f1, accuracy and balanced_accuracy, and are dropped for areas. Multilabel and regression: means
        over the targets.

        Args:
            rows: positions in the stream.
            found: model outputs, see `values`; (Q,) probabilities of the positive class if binary.
            bootstrap: resamples for confidence intervals if binary; 0 computes none.
        """
        y, values = self.y[rows], self.values(outputs)
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
            return result | {"roc_auc": ovr_roc_auc(y, values)} | one_class
        score = values[:, 1]
        areas = {"roc_auc": roc_auc(y, score), "average_precision": average_precision(y, score)}
        result = areas | {"positives": int(y.sum())} | result | one_class
        if bootstrap and len(np.unique(y)) == 2:
            drawn = bootstrap_areas(score[y == 1], score[y == 0], None, repeats=bootstrap)
            result |= interval_columns(drawn)
        return result

    def columns(self, outputs: np.ndarray) -> dict[str, np.ndarray]:
        """Return prediction columns of model outputs.

        Classes: score (probability of the positive class) or p_<class>, and prediction if the classes are named.
        Labels: p_<label>. Values: prediction, or prediction_<name> for several targets.
        """
        values = self.values(outputs)
        if self.classes and self.width == 1:
            decided = self.target.columns(values)["prediction"]
            return {"score": values[:, 1]} | ({"prediction": decided} if self.named else {})
        return self.target.columns(values)

    def baselines(self, stream: EventStream, split: EventSplit, part: str = "test") -> dict[str, dict[str, float]]:
        """Return metrics of predictions without a model on a part of the split, "val" or "test".

        "mean" predicts the training mean ("majority" for classes: their frequencies) and "median" the training median
        of values. "last" predicts the source's last label from earlier events, or the mean if there is none.
        """
        rows, y = split.rows(part), self.y.astype(np.float64)
        if self.classes:
            known = (self.y >= 0) & (self.y < len(self.names))
            y = np.where(known[:, None], self.y[:, None] == np.arange(len(self.names)), np.nan)
        train = [column[~np.isnan(column)] for column in y[split.train].T]
        mean = np.broadcast_to([own.mean() if len(own) else 0.0 for own in train], (len(rows), y.shape[1]))
        predictions = {"majority" if self.classes else "mean": mean}
        if self.target.goal == "values":
            predictions["median"] = np.broadcast_to([np.median(own) if len(own) else 0.0 for own in train], mean.shape)
        if self.classes:
            last = last_label_per_source(stream, y, rows)
        else:
            last = np.stack([last_label_per_source(stream, own, rows) for own in y.T], 1)
        predictions["last"] = np.where(np.isnan(last), mean, last)
        unweighted = replace(self, target=replace(self.target, class_weights=None))
        return {name: unweighted.metrics(rows, self._outputs(values)) for name, values in predictions.items()}

    def _outputs(self, values: np.ndarray) -> np.ndarray:
        """Convert predicted values to model outputs."""
        if self.target.goal == "values":
            return (values - np.asarray(self.target.center or 0.0)) / np.asarray(self.target.scale or 1.0)
        return values[:, 1] if self.classes and self.width == 1 else values


def last_label_per_source(stream: EventStream, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return (Q,) or (Q, W) the last label of each event's source from strictly earlier events, or NaN."""
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
    """Return the classes of a stream's events; classes without a training event get codes from C on.

    Args:
        stream: labeled stream. Labels are indices of class_names or integers that name classes; -1 or NaN means
            missing.
        metric: see `metric_of_classes`.
        train: positions of training events, which define the learned classes. Default: all events.
        positive: name of the positive class of two, `read.positive_class`; see `positive_last`.
        weights: class weights of the loss, see `class_weights`.

    Warns:
        HopstateWarning: classes that the model cannot predict.
    """
    y, class_names = event_codes(stream)
    if stream.class_names is None and set(class_names) <= {"0", "1"}:
        y, class_names = np.where(y < 0, -1, np.asarray([int(n) for n in class_names] or [0])[y]), ("0", "1")
    named = stream.class_names is not None or class_names != ("0", "1")
    learned = np.arange(len(y)) if train is None else train
    y, target = encode_target(y, learned, class_names, metric, weights=weights, positive=positive)
    names, others = target.names, target.others
    target = replace(target, metrics=(metric_of_classes(metric, target.width),))
    present = np.unique(y[y >= 0])
    if len(names) < 2 or len(present) == 1:
        labeled, only = ("training events have", names[0]) if others else ("labels are of", names[int(present[0])])
        raise DataError(f"{stream.name}: all {labeled} only the class {only}; there is nothing to learn")
    if others:
        counts = np.bincount(y[y >= len(names)] - len(names), minlength=len(others)).tolist()
        unseen = [f"{name!r} ({n:,} events)" for name, n in zip(others, counts, strict=True)]
        warnings.warn(
            f"no training event of {stream.name} has the class {listed(unseen)}; it can never be predicted, and "
            "events that have it count as wrong",
            HopstateWarning,
            stacklevel=4,
        )
    return EventTargets(y=y.astype(np.int64), target=target, named=named or names == ("1", "0"))


def metric_of_classes(metric: str, count: int) -> str:
    """Return the model-selection metric; "auto" means roc_auc for two classes and macro_f1 for more."""
    if metric == "auto":
        return "roc_auc" if count == 2 else "macro_f1"
    found = check_metric(metric, "classes", auto=True)
    if found.two_classes and metric != "roc_auc" and count > 2:
        raise ConfigError(f"{metric} is for two classes, but the data have {count}; use macro_f1, accuracy or roc_auc")
    return metric


def event_amounts(stream: EventStream, *, required: bool = False) -> np.ndarray:
    """Return (E, 1) float64 regression targets of events, NaN if missing; raise DataError if required and absent."""
    if stream.labels is None and required:
        raise DataError(f"{stream.name}: node regression needs labels of events, and there are none; {_HINT}")
    if required and stream.class_names is not None:
        raise DataError(
            f"{stream.name}: labels such as {stream.class_names[0]!r} are classes, not numbers; remove --read.task, "
            f"or {_HINT}"
        )
    if stream.labels is None:
        return np.full((len(stream), 1), np.nan)
    if stream.labels.ndim > 1:
        raise DataError(f"{stream.name} has {stream.labels.shape[1]} label columns, but the run has one; name one")
    return np.asarray(stream.labels, np.float64)[:, None]


def check_labels_present(targets: EventTargets, split: EventSplit, name: str) -> None:
    """Raise DataError if training or validation events have no labels, or a label column has none in training."""
    for part, name_of_part in (("train", "training"), ("val", "validation")):
        if not has_label(targets.y[split.rows(part)]).any():
            raise DataError(
                f"{name}: no {name_of_part} event has a label; label some, or choose another split (--split.kind)"
            )
    if targets.classes:
        return
    unlabeled = np.isnan(targets.y[split.train]).all(0)
    if unlabeled.any():
        raise DataError(
            f"{name}: no training event has a label in column {targets.names[int(np.argmax(unlabeled))]!r}; label "
            "some, leave the column out of --read.label_column, or choose another split (--split.kind)"
        )


def label_columns(stream: EventStream, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the label columns at rows (Q,) as the user wrote them: label, or label_<name> for several."""
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
    """Return (E,) class codes, -1 if missing, and the class names."""
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
            f"as numbers (--read.task regression), or {_HINT}"
        )
    y = y.astype(np.int64)
    known = y[y >= 0]
    if not len(known) and len(y):
        raise DataError(f"{need}, and no event has a label; {_HINT}")
    if stream.class_names is not None:
        return y, stream.class_names
    values = np.unique(known)
    if len(values) > max(len(known) // 2, 2):
        raise DataError(
            f"{need}; {len(values):,} different labels of {len(known):,} events are too many for classes; {_HINT}"
        )
    return np.where(y < 0, -1, np.searchsorted(values, y)), tuple(map(str, values.tolist()))


class EventNodeTask(EventTask[NodeScorer]):
    """Dynamic node classification or regression: the label of an event's source, given earlier events.

    Prediction tables have columns node and t, those of `EventTargets.columns`, and label if the stream has labels.

    Args:
        source: source of the batches and scorers.
        targets: labels of the events.
        eval_batch_size: see `LinkEvaluation.batch_size`.
        bootstrap: resamples for confidence limits among the test metrics of two classes; 0: only in `curves`.
        clock: time normalization of the model's inputs, stored with the run.
        frozen: pretrained modules that stay unchanged.

    takes_nodes: whether a node and a time are a query. Other models need the event.
    """

    takes_nodes = True

    def __init__(
        self,
        source: EventSource[NodeScorer],
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
        """Return the pooled metrics of a split, see `EventTargets.metrics`; "train" uses training events."""
        if split not in SPLITS:
            raise ConfigError(f"nodes are evaluated on 'train', 'val' or 'test', not {split!r}")
        rows = self.split.rows(split)
        bootstrap = (self.bootstrap or DEFAULT_REPEATS) if split == "test" else 0
        found = self.targets.metrics(rows, self._scores(split, rows, rows), bootstrap=bootstrap)
        if split != "test" or self.bootstrap:
            return found
        metrics, limits = split_intervals(found)  # unrequested confidence limits go to the report only
        self.curves = {"reliability": [], "intervals": limits} if limits else {}
        return metrics

    def predict(self, split: str) -> dict[str, np.ndarray]:
        at, rows = events_to_score(self.stream, self.split, split)
        at = self._of_file(self.stream, at)
        return self.score_columns(self.stream, at, self._scores(split, at, rows)) | label_columns(self.stream, at)

    def _scores(self, split: str, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return outputs (Q,) or (Q, C) for the events at (Q,) while replaying the events at rows (P,)."""
        stream, scorer, size = self.stream, self.scorer(split), self.eval_batch_size

        def score(rows: np.ndarray) -> Scores:
            return self.score_events(scorer, *self.query_columns(stream, rows))

        return replay_split(scorer, score, stream, at, rows=rows, batch_size=size, wide=True)

    def facts(self) -> TaskFacts:
        return {"clock": self.clock, "target": self.targets.target}

    # ---- streaming --------------------------------------------------------------------------------------
    @property
    def live_batch(self) -> int:
        return self.eval_batch_size

    def score_events(self, follower: NodeScorer, *queries: np.ndarray) -> Scores:
        src, _, t, *_ = queries
        return follower.score_nodes(src, t)

    def rows_to_score(self, new: EventStream) -> np.ndarray:
        return self._of_file(new, np.arange(len(new)))

    def score_columns(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        named = to_user_ids(new, rows)
        return {"row": new.in_file(rows), "node": named["src"], "t": named["t"]} | self.targets.columns(scores)

    @staticmethod
    def _of_file(stream: EventStream, rows: np.ndarray) -> np.ndarray:
        return rows[stream.in_file(rows) >= 0]
