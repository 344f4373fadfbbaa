"""What the methods that classify nodes at their events share."""

from __future__ import annotations

from typing import Any

from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.evaluation.event_classes import EventClasses, check_known, event_classes
from hopstate.methods.method import Context
from hopstate.training.tasks.event_node import event_target
from hopstate.training.tasks.target import Target, trained_target


def learned_classes(
    stream: EventStream, split: EventSplit, config: Any, context: Context
) -> tuple[EventClasses, Target]:
    """Return the classes of a stream's events and how they are learned; those of the run where one is applied.

    Args:
        stream, split: the data.
        config: with metric and class_weights.
        context: of the build.

    Raises:
        DataError: no classes, or none known among training or validation events.
        ConfigError: a metric or weights that are unknown or do not fit.
    """
    classes = event_classes(stream, metric=config.metric, trained=context.trained)
    if context.trained is None:
        check_known(classes, split, stream.name)
        return classes, event_target(classes, split, config.class_weights)
    if context.trained.get("target"):
        return classes, trained_target(context.trained, "auto")
    return classes, event_target(classes, split)
