"""What the methods that classify nodes at their events share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.data.validate import default_names
from hopstate.errors import CheckpointError, ConfigError, HopstateWarning
from hopstate.methods.method import Context
from hopstate.methods.shared.link import EventRun
from hopstate.methods.shared.targets_as_trained import classes_as_trained, labels_as_trained, unknown_classes
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import RunFolder, flatten
from hopstate.training.tasks.event_node import (
    EventNodeTask,
    EventTargets,
    check_labels_present,
    event_amounts,
    event_classes,
    event_codes,
    metric_of_classes,
)
from hopstate.training.tasks.target import ClassWeights, make_target, target_from_record, warn_one_class


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


def event_targets(stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context) -> EventTargets:
    """Return what is learned of a stream's events, and how; what a trained run learned where one is applied."""
    if context.trained is not None:
        return _trained_targets(stream, config.metric, context.trained)
    amounts = config.read.task == "regression"
    several = stream.labels is not None and stream.labels.ndim > 1
    if amounts or several:
        y = np.asarray(stream.labels) if several else event_amounts(stream, required=True)
        names = (stream.class_names or default_names(y.shape[1])) if several else None
        target = make_target(y, split.train, names, config.metric, weights=config.class_weights, amounts=amounts)
        found = EventTargets(y=y, target=target)
        if config.read.positive_class is not None:
            raise ConfigError(f"read.positive_class={config.read.positive_class} names a class; these targets are not")
    else:
        found = event_classes(
            stream,
            metric=config.metric,
            train=split.train,
            positive=config.read.positive_class,
            weights=config.class_weights,
        )
    check_labels_present(found, split, stream.name)
    warn_one_class(found.target, found.y, {part: split.rows(part) for part in ("val", "test")}, stream.name)
    return found


def _trained_targets(stream: EventStream, metric: str, trained: Mapping[str, Any]) -> EventTargets:
    goal = trained["target"]["goal"]
    if goal == "classes":
        return _trained_classes(stream, metric, trained)
    if goal == "values" and len(trained["target"]["names"]) == 1:
        return EventTargets(y=event_amounts(stream), target=target_from_record(trained, metric))
    own = stream.labels if len(stream) else None
    y, target = labels_as_trained(own, stream.class_names, trained, metric, len(stream), stream.name)
    return EventTargets(y=y, target=target)


def _trained_classes(stream: EventStream, metric: str, trained: Mapping[str, Any]) -> EventTargets:
    target = target_from_record(trained, "auto")
    y, names, others = np.full(len(stream), -1), None, target.others
    if stream.labels is not None:
        y, names = event_codes(stream)
        others = (*others, *unknown_classes(y, names, target))
        y = classes_as_trained(y, names, target, stream.name)
    named = target.names != ("0", "1") or bool(trained.get("class_names"))
    target = replace(target, metrics=(metric_of_classes(metric, target.width),), others=others)
    return EventTargets(y=y, target=target, named=named)


def event_floors(
    stream: EventStream, config: EventNodeRun, context: Context, task: EventNodeTask
) -> dict[str, dict[str, float]]:
    """Return test metrics that need no model, and of validation the one that chooses a model ("val_<metric>").

    See `EventTargets.baselines`.
    """
    test, val = (task.targets.baselines(stream, task.split, part) for part in ("test", "val"))
    return {name: own | {f"val_{task.metric}": val[name][task.metric]} for name, own in test.items()}


# ---- a backbone trained on links before and taken up here: frozen, and a head trained on it ------------------
# Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib's node classification); DyG-Mamba, arXiv:2408.06966, section 5
PAIRS = ("model.pair_dim", "model.node_gaps", "model.pair_history")  # of a decoder of pairs alone
SHARED = ("model.", "history.", "num_neighbors", "gap_unit", "deletions", "cut_ties")


def suit_init(record: EventStream, config: EventNodeRun, metrics: tuple[str, ...], *, links: str) -> Mapping[str, Any]:
    """Return the settings that a classifier shares with the run of the method `links` that its `init` names."""
    if config.init is None:
        return {}
    known = flatten(config)
    settings = flatten(_run(config.init, links).settings())
    shared = {k: v for k, v in settings.items() if k in known and k.startswith(SHARED) and k not in PAIRS}
    return {k: v for k, v in shared.items() if not isinstance(v, (list, dict))}


def init_context(config: EventNodeRun, context: Context, *, links: str) -> Context:
    """Return a context under which a model is built as that of the run it begins from: its widths and its clock."""
    if config.init is None or context.trained is not None:
        return context
    return replace(context, trained=_run(config.init, links).read_json("data.json"))


def take_backbone(
    model: nn.Module, config: EventNodeRun, context: Context, *, links: str, head: tuple[str, ...]
) -> list[nn.Module]:
    """Copy all weights but the head's of the run that `init` names, and return the parts that are frozen."""
    if config.init is None:
        return []
    if context.trained is None:
        folder = _run(config.init, links)
        weights = load_checkpoint(folder.weights).tensors.get("model", {})
        weights = {name.replace("encoders.0.", "encoder."): tensor for name, tensor in weights.items()}
        own = {name: t for name, t in model.state_dict().items() if name.split(".")[0] not in head}
        wrong = [name for name, t in own.items() if name not in weights or weights[name].shape != t.shape]
        if wrong:
            raise CheckpointError(
                f"{config.init} has no weights of this shape for {', '.join(wrong[:3])}; leave out settings of the "
                "model, which are taken from that run"
            )
        model.load_state_dict({name: weights[name] for name in own}, strict=False)
        if any(name.startswith(("encoder.count.", "encoders.1.")) for name in weights):
            warnings.warn(
                f"{config.init} encodes what two nodes have in common, which one node alone has not: that encoding is "
                "left out here; train it with --model.cooccurrence false for the same backbone",
                HopstateWarning,
                stacklevel=3,
            )
    parts = [part for name, part in model.named_children() if name not in head] if config.freeze else []
    for part in parts:
        part.requires_grad_(False)
    return parts


def _run(path: str, links: str) -> RunFolder:
    folder = RunFolder.open(path)
    found = folder.read_json("config.json").get("method")
    if found != links:
        raise CheckpointError(f"{path} is a run of {found}; a backbone for this method comes from one of {links}")
    return folder
