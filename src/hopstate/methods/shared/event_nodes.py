"""Shared code of methods that classify nodes at their events."""

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
from hopstate.methods.shared.label_alignment import align_classes, align_labels, unknown_classes
from hopstate.methods.shared.link import EventRun
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
    """Base configuration of methods that classify nodes at their events.

    Args:
        data: a file, a folder, or the name of a dataset (see `hopstate datasets`). Event labels are classes, numbers
            (read.task regression), or several columns of either (read.label_column a,b). Events without a label are
            ignored in the loss and the metrics.
        metric: metric for model selection. "auto" is roc_auc for two classes, macro_f1 for more, average_precision for
            multi-label targets and mae for regression. Others: average_precision, accuracy, balanced_accuracy; for
            multi-label roc_auc, micro_f1, accuracy; for regression rmse, r2, spearman.
        class_weights: class weights in the loss: "none", "balanced" (inverse class frequency), "complement" (1 - class
            frequency), or a list such as '[spam=5, ham=1]'. Classes that the list does not name have weight 1.
        bootstrap: bootstrap resamples for confidence limits among the test metrics of two classes. 0: none among the
            metrics, 200 resamples for the report.
        init: link-prediction run of the same model that provides all weights except the head's. Its settings are the
            defaults.
        freeze: train only the head, as published; false trains all weights.
    """

    metric: str = "auto"
    class_weights: ClassWeights = "none"
    bootstrap: int = 0
    init: str | None = None
    freeze: bool = False

    def __post_init__(self) -> None:
        if self.freeze and self.init is None:
            raise ConfigError("freeze needs a pretrained backbone: add --init RUN")


def event_targets(stream: EventStream, split: EventSplit, config: EventNodeRun, context: Context) -> EventTargets:
    """Return the targets of a stream. If a trained model is applied, they are those of that model."""
    if context.trained is not None:
        return _trained_targets(stream, config.metric, context.trained)
    regression = config.read.task == "regression"
    multi_column = stream.labels is not None and stream.labels.ndim > 1
    if regression or multi_column:
        y = np.asarray(stream.labels) if multi_column else event_amounts(stream, required=True)
        names = (stream.class_names or default_names(y.shape[1])) if multi_column else None
        target = make_target(y, split.train, names, config.metric, weights=config.class_weights, amounts=regression)
        targets = EventTargets(y=y, target=target)
        if config.read.positive_class is not None:
            raise ConfigError(f"read.positive_class={config.read.positive_class} names a class; these targets are not")
    else:
        targets = event_classes(
            stream,
            metric=config.metric,
            train=split.train,
            positive=config.read.positive_class,
            weights=config.class_weights,
        )
    check_labels_present(targets, split, stream.name)
    warn_one_class(targets.target, targets.y, {part: split.rows(part) for part in ("val", "test")}, stream.name)
    return targets


def _trained_targets(stream: EventStream, metric: str, trained: Mapping[str, Any]) -> EventTargets:
    goal = trained["target"]["goal"]
    if goal == "classes":
        return _trained_classes(stream, metric, trained)
    if goal == "values" and len(trained["target"]["names"]) == 1:
        return EventTargets(y=event_amounts(stream), target=target_from_record(trained, metric))
    labels = stream.labels if len(stream) else None
    y, target = align_labels(labels, stream.class_names, trained, metric, len(stream), stream.name)
    return EventTargets(y=y, target=target)


def _trained_classes(stream: EventStream, metric: str, trained: Mapping[str, Any]) -> EventTargets:
    target = target_from_record(trained, "auto")
    y, names, others = np.full(len(stream), -1), None, target.others
    if stream.labels is not None:
        y, names = event_codes(stream)
        others = (*others, *unknown_classes(y, names, target))
        y = align_classes(y, names, target, stream.name)
    named = target.names != ("0", "1") or bool(trained.get("class_names"))
    target = replace(target, metrics=(metric_of_classes(metric, target.width),), others=others)
    return EventTargets(y=y, target=target, named=named)


def event_baselines(
    stream: EventStream, config: EventNodeRun, context: Context, task: EventNodeTask
) -> dict[str, dict[str, float]]:
    """Return test metrics of the baselines, and the validation metric as "val_<metric>"."""
    test, val = (task.targets.baselines(stream, task.split, part) for part in ("test", "val"))
    return {name: metrics | {f"val_{task.metric}": val[name][task.metric]} for name, metrics in test.items()}


# ---- start from a backbone that was trained on link prediction ----------------------------------------------
# Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib's node classification); DyG-Mamba, arXiv:2408.06966, section 5
PAIR_DECODER_SETTINGS = (
    "model.pair_dim",
    "model.node_time_deltas",
    "model.pair_features",
)  # settings of pair decoders only
SHARED_SETTINGS = ("model.", "history.", "num_neighbors", "time_scale", "deletions", "cut_ties")


def settings_from_init(
    record: EventStream, config: EventNodeRun, metrics: tuple[str, ...], *, links: str
) -> Mapping[str, Any]:
    """Return the settings that a classifier shares with the link-prediction run that its `init` names."""
    if config.init is None:
        return {}
    own_settings = flatten(config)
    settings = flatten(_open_init_run(config.init, links).settings())
    shared = {
        k: v
        for k, v in settings.items()
        if k in own_settings and k.startswith(SHARED_SETTINGS) and k not in PAIR_DECODER_SETTINGS
    }
    return {k: v for k, v in shared.items() if not isinstance(v, (list, dict))}


def init_context(config: EventNodeRun, context: Context, *, links: str) -> Context:
    """Return a context with the feature dimensions and time scale of the run that `init` names."""
    if config.init is None or context.trained is not None:
        return context
    return replace(context, trained=_open_init_run(config.init, links).read_json("data.json"))


def load_backbone(
    model: nn.Module, config: EventNodeRun, context: Context, *, links: str, head: tuple[str, ...]
) -> list[nn.Module]:
    """Load all weights except the head's from the run that `init` names, and return the frozen modules."""
    if config.init is None:
        return []
    if context.trained is None:
        folder = _open_init_run(config.init, links)
        weights = load_checkpoint(folder.weights).tensors.get("model", {})
        weights = {name.replace("encoders.0.", "encoder."): tensor for name, tensor in weights.items()}
        backbone = {name: t for name, t in model.state_dict().items() if name.split(".")[0] not in head}
        missing = [name for name, t in backbone.items() if name not in weights or weights[name].shape != t.shape]
        if missing:
            raise CheckpointError(
                f"{config.init} lacks weights of this shape for {', '.join(missing[:3])}; remove the settings of the "
                "model, which come from that run"
            )
        model.load_state_dict({name: weights[name] for name in backbone}, strict=False)
        if any(name.startswith(("encoder.count.", "encoders.1.")) for name in weights):
            warnings.warn(
                f"{config.init} uses a co-occurrence encoding of node pairs, which does not exist for single nodes "
                "and is ignored here; train it with --model.cooccurrence false for the same backbone",
                HopstateWarning,
                stacklevel=3,
            )
    parts = [part for name, part in model.named_children() if name not in head] if config.freeze else []
    for part in parts:
        part.requires_grad_(False)
    return parts


def _open_init_run(path: str, links: str) -> RunFolder:
    folder = RunFolder.open(path)
    method = folder.read_json("config.json").get("method")
    if method != links:
        raise CheckpointError(f"{path} is a run of {method}; this method needs the backbone of a {links} run")
    return folder
