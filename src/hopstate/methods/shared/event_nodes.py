"""What the methods that classify nodes at their events share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.data.validate import default_names
from hopstate.errors import ConfigError
from hopstate.evaluation.event_targets import (
    EventAmounts,
    EventClasses,
    EventTargets,
    amounts_of,
    check_amounts,
    check_known,
    check_targets,
    event_classes,
    last_known,
)
from hopstate.methods.method import Context
from hopstate.methods.shared.event_run import EventRun
from hopstate.methods.shared.targets_as_trained import targets_as_trained
from hopstate.training.tasks.event_node import EventNodeTask, event_target
from hopstate.training.tasks.target import ClassWeights, Target, target_of, trained_target, warn_one_class


@dataclass(frozen=True, kw_only=True)
class EventNodeRun(EventRun):
    """What the configurations of methods that classify nodes at their events share.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`); events have classes
            as labels, of any number, or amounts (read.task regression), or several of either
            (read.label_column a,b); those without one count in neither loss nor metrics.
        metric: what chooses the model; "auto" takes roc_auc of two classes, macro_f1 of more, average_precision of
            several labels and mae of amounts; or average_precision, accuracy, balanced_accuracy; of several labels
            roc_auc, micro_f1, accuracy; of amounts rmse, r2, spearman.
        class_weights: weights of the classes in the loss: "none", "balanced" (the inverse of a class's share) or
            "complement" (1 - its share), or by hand: '[spam=5, ham=1]', 1 where a class is not named.
        bootstrap: resamples for confidence intervals of the test split, of two classes; 0 gives none.
        init: a run of links of the same model to begin from: its weights but for the head, and its settings where none
            are given.
        freeze: hold what init gave as it is, and train the head alone, as published; false trains end to end.
    """

    metric: str = "auto"
    class_weights: ClassWeights = "none"
    bootstrap: int = 0
    init: str | None = None
    freeze: bool = False

    def __post_init__(self) -> None:
        if self.freeze and self.init is None:
            raise ConfigError("freeze holds a backbone that was trained before: name its run too (--init RUN)")


def learned_classes(
    stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context
) -> tuple[EventClasses | EventAmounts | EventTargets, Target]:
    """Return what is learned of a stream's events, classes, amounts or several targets, and how; that of a run applied.

    Args:
        stream, split: the data.
        config: with metric and class_weights.
        context: of the build.

    Raises:
        DataError: no classes, or none known among training or validation events.
        ConfigError: a metric or weights that are unknown or do not fit.
    """
    found, target = _learned(stream, split, config, context)
    if context.trained is None:
        if config.read.positive_class is not None and not isinstance(found, EventClasses):
            raise ConfigError(f"read.positive_class={config.read.positive_class} names a class; these targets are not")
        warn_one_class(target, found.y, {part: split.rows(part) for part in ("val", "test")}, stream.name)
    return found, target


def _learned(
    stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context
) -> tuple[EventClasses | EventAmounts | EventTargets, Target]:
    trained = (context.trained or {}).get("target") or {}
    of_several = trained.get("goal") == "labels" or len(trained.get("center") or ()) > 1
    if of_several or (context.trained is None and stream.labels is not None and stream.labels.ndim > 1):
        return _several(stream, split, config, context)
    if trained.get("goal") == "values" or (context.trained is None and config.read.task == "regression"):
        return _amounts(stream, split, config, context)
    classes = event_classes(
        stream, metric=config.metric, trained=context.trained, train=split.train, positive=config.read.positive_class
    )
    if context.trained is None:
        check_known(classes, split, stream.name)
        target = event_target(classes, split, config.class_weights)
    elif context.trained.get("target"):
        target = trained_target(context.trained, "auto")
    else:
        target = event_target(classes, split)
    return replace(classes, weights=target.weights), target


def _amounts(
    stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context
) -> tuple[EventAmounts, Target]:
    y = amounts_of(stream)
    if context.trained is None:
        check_amounts(y, split, stream)
        target = target_of(y, split.train, None, config.metric, weights=config.class_weights, amounts=True)
    else:
        target = trained_target(context.trained, config.metric)
    (center,), (scale,) = target.center or (0.0,), target.scale or (1.0,)
    return EventAmounts(y=y, metrics_of=target.metrics, center=center, scale=scale), target


def _several(
    stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context
) -> tuple[EventTargets, Target]:
    if context.trained is None:
        y = np.asarray(stream.labels)
        names = stream.class_names or default_names(y.shape[1])
        check_targets(y, names, split, stream)
        amounts = config.read.task == "regression"
        target = target_of(y, split.train, names, config.metric, weights=config.class_weights, amounts=amounts)
    else:
        target = trained_target(context.trained, config.metric)
        listed = context.trained.get("label_cells") == "all"
        own = stream.labels if len(stream) else None
        y = targets_as_trained(own, stream.class_names, target, len(stream), stream.name, listed=listed)
    made = EventTargets(
        y=y, names=target.names, metrics_of=target.metrics, labels=target.goal == "labels",
        center=target.center or (), scale=target.scale or (),
    )  # fmt: skip
    return made, target


def _said_of(classes: EventClasses, stream: EventStream, split: EventSplit, part: str) -> dict[str, np.ndarray]:
    """Return probabilities of a part's classes as `EventClasses.metrics` takes them, by what says them."""
    count, rows = len(classes.names), split.rows(part)
    known = np.where((classes.y >= 0) & (classes.y < count), classes.y, np.nan)
    train = known[split.train]
    shares = np.bincount(train[~np.isnan(train)].astype(np.int64), minlength=count) / max((~np.isnan(train)).sum(), 1)
    last = last_known(stream, known, rows)
    shown = np.where(np.isnan(last)[:, None], shares, np.eye(count)[np.nan_to_num(last).astype(np.int64)])
    said = {"majority": np.broadcast_to(shares, shown.shape), "last": shown}
    return {name: one[:, 1] if classes.width == 1 else one for name, one in said.items()}


def event_floors(
    stream: EventStream, config: EventNodeRun, context: Context, task: EventNodeTask
) -> dict[str, dict[str, float]]:
    """Return test metrics that need no model, and of validation the one that chooses a model ("val_<metric>").

    Of classes "majority", the shares of the training events, and "last", the last class of the same source that is
    known from earlier events, these shares without one. Of amounts "mean" and "median" of the training events'
    amounts, and "last": the last one of the same source that is known from earlier events, the mean without one.
    Of several targets see `EventTargets.floors`.
    """
    test, val = (_without_model(stream, task, part) for part in ("test", "val"))
    return {name: own | {f"val_{task.metric}": val[name][task.metric]} for name, own in test.items()}


def _without_model(stream: EventStream, task: EventNodeTask, part: str) -> dict[str, dict[str, float]]:
    amounts, rows = task.classes, task.split.rows(part)
    if isinstance(amounts, EventTargets):
        return amounts.floors(stream, task.split, part)
    if isinstance(amounts, EventClasses):
        amounts = replace(amounts, weights=None)  # nothing is learned from weighted classes
        return {name: amounts.metrics(rows, one) for name, one in _said_of(amounts, stream, task.split, part).items()}
    known = amounts.y[task.split.train][~np.isnan(amounts.y[task.split.train])]
    last = last_known(stream, amounts.y, rows)
    said = {"mean": np.full(len(rows), known.mean()), "median": np.full(len(rows), np.median(known))}
    said["last"] = np.where(np.isnan(last), known.mean(), last)
    return {name: amounts.metrics(rows, (one - amounts.center) / amounts.scale) for name, one in said.items()}
