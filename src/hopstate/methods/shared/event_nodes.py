"""What the methods that classify nodes at their events share."""

from __future__ import annotations

from dataclasses import dataclass

from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.evaluation.event_classes import EventClasses, check_known, event_classes
from hopstate.methods.method import Context
from hopstate.methods.shared.backbone import check_init
from hopstate.methods.shared.link import EventRun
from hopstate.training.tasks.event_node import event_target
from hopstate.training.tasks.target import ClassWeights, Target, trained_target


@dataclass(frozen=True, kw_only=True)
class EventNodeRun(EventRun):
    """What the configurations of methods that classify nodes at their events share.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`); events have classes
            as labels, of any number, and those without one count in neither loss nor metrics.
        metric: what chooses the model; "auto" takes roc_auc of two classes and macro_f1 of more; or average_precision,
            accuracy, balanced_accuracy.
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
        check_init(self.init, self.freeze)


def learned_classes(
    stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context
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
