"""Methods on one graph: the configuration they share, and the task made of a network, of its nodes or its links."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import nn

from hopstate.data.graph import Graph
from hopstate.data.splits import per_class_split, random_split
from hopstate.data.validate import SPLITS
from hopstate.errors import DataError, HopstateWarning
from hopstate.io.files import replace_file
from hopstate.methods.method import Context, ReadOptions, RunConfig, SplitConfig
from hopstate.methods.shared.targets_as_trained import targets_as_trained, unknown_classes
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.node import NodeBatches, NodeLabels, NodeTask
from hopstate.training.tasks.static_link import LinkConfig, StaticLinkTask
from hopstate.training.tasks.target import (
    ClassWeights,
    learned_target,
    trained_target,
    warn_one_class,
)

STEP, SAMPLED = 16_384, 1024  # links of a step: where it encodes the whole graph anyway, and where it does not


@dataclass(frozen=True, kw_only=True)
class NodeRun(RunConfig):
    """What the configurations of methods for nodes share.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`).
        read: how a file is read.
        split: which nodes are for training, validation and test.
        metric: what chooses the model: "auto" takes the data set's own, else accuracy, average_precision or mae.
        class_weights: of the cross-entropy: "none", "balanced" (the inverse of a class's share of the training nodes),
            "complement" (1 - its share), or by hand: '[spam=5, ham=1]', 1 where a class is not named.
        task: what is predicted: the "node"s' classes or values, or the "link"s between them.
        link: settings of links, for task link.
        loop: training.
    """

    read: ReadOptions = field(default_factory=ReadOptions)
    split: SplitConfig = field(default_factory=SplitConfig)
    metric: str = "auto"
    class_weights: ClassWeights = "none"
    task: Literal["node", "link"] = "node"
    link: LinkConfig = field(default_factory=LinkConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """What a method makes of a graph.

    Args:
        model: gives each node outputs of the width asked for.
        source: of its batches.
        walks: numbers of walks that the source draws, which a run remembers.
        dropout: of the model, which what stands on it takes too.
        whole: a step encodes the whole graph, however many rows of it are asked for.
    """

    model: nn.Module
    source: NodeBatches[Any]
    walks: Mapping[str, int] | None = None
    dropout: float = 0.0
    whole: bool = False


Make = Callable[[Graph, Context, NodeLabels, int], NodeNetwork]  # graph, context, labels, width of the output


def graph_task(graph: Graph, config: NodeRun, context: Context, make: Make) -> NodeTask[Any] | StaticLinkTask:
    """Return the task that a run's settings name.

    Args:
        graph: the data.
        config: settings.
        context: of the build.
        make: graph that messages pass over, context, labels and width of the output → network and source.
    """
    check_width(graph, context)
    if config.task == "link":
        from hopstate.methods.shared.static_link import link_task

        return link_task(graph, config, context, make)
    labels = node_labels(graph, config, context)
    made = make(graph, context, labels, len(labels.class_names))
    return NodeTask(made.model, made.source, walks=made.walks)


def node_labels(graph: Graph, config: NodeRun, context: Context) -> NodeLabels:
    """Return targets, split rows, metrics and names of a node run; a new run saves its split."""
    if context.trained is not None:
        return _labels_as_trained(graph, config, context)
    if graph.y is None or (graph.y.dtype.kind == "i" and not graph.num_classes):
        raise DataError(
            f"{graph.name} has no labels; give a table of them (--read.labels FILE), or predict links, which "
            "take none (--task link)"
        )
    if graph.y.ndim == 2 and graph.y.dtype.kind == "i":
        raise DataError(
            f"{graph.name} has {graph.y.shape[1]} columns of whole numbers as labels; give one column of classes, or "
            f"several 0/1 labels or values as floats (NaN: unknown)"
        )
    rows = split_rows(graph, config.split)
    check_split(graph, rows)
    y, target = learned_target(
        graph.y, rows["train"], graph.class_names, config.metric, context.metrics, weights=config.class_weights,
        amounts=config.read.task == "regression", positive=config.read.positive_class,
    )  # fmt: skip
    if target.others and target.width < 2:
        raise DataError(
            f"{graph.name}: all training nodes have only the class {target.names[0]}; there is nothing to learn; "
            "choose another split (--split.kind random)"
        )
    warn_one_class(target, y, rows, graph.name)
    replace_file(context.run / "split.npz", lambda part: save_npz(part, rows))
    return NodeLabels(y=y, split=rows, target=target, node_ids=graph.node_ids)


def _labels_as_trained(graph: Graph, config: NodeRun, context: Context) -> NodeLabels:
    """Return targets as the trained model has them, unknown where there is none; splits where the data have them."""
    trained = context.trained or {}
    target = trained_target(trained, config.metric)
    listed = trained.get("label_cells") == "all"
    y = targets_as_trained(graph.y, graph.class_names, target, graph.num_nodes, graph.name, listed=listed)
    rows = split_rows(graph, config.split) if graph.num_splits or target.known(y).any() else {}
    target = replace(target, others=(*target.others, *unknown_classes(graph.y, graph.class_names, target)))
    return NodeLabels(y=y, split=rows, target=target, node_ids=graph.node_ids)


def check_width(graph: Graph, context: Context) -> None:
    """Raise DataError where a graph has no features, or another number of them than the trained model takes."""
    if graph.x is None:
        raise DataError(
            f"{graph.name} has no node features, and this method needs them; give a table (--read.features FILE)"
        )
    wanted = graph.num_features if context.trained is None else context.trained["num_features"]
    if graph.num_features != wanted:
        raise DataError(f"{graph.name} has {graph.num_features} features a node, the model was trained with {wanted}")


def split_rows(graph: Graph, split: SplitConfig) -> dict[str, np.ndarray]:
    """Return the rows of train, val and test: stored masks, or a seeded random split of the labelled nodes."""
    if split.kind == "stored" or (split.kind == "auto" and graph.num_splits and split.per_class is None):
        return graph.split(split.number)
    assert graph.y is not None
    if split.per_class is not None:
        return per_class_split(graph.y, split.per_class, seed=split.seed + 1000 * split.number)
    return random_split(graph.y, split.fractions, seed=split.seed + 1000 * split.number, stratified=split.stratified)


def check_filled(rows: Mapping[str, np.ndarray], name: str, what: str) -> None:
    """Raise DataError on an empty split of the nodes or graphs (what) of a data set."""
    for part in SPLITS:
        if not len(rows.get(part, ())):
            sizes = ", ".join(f"{key} {len(value)}" for key, value in rows.items())
            raise DataError(
                f"the {part} split of {name} is empty ({sizes}); mark {what} for it, or give more labelled {what} "
                f"or other fractions to a random one (--split.kind random, --split.fractions)"
            )


def check_split(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    """Raise DataError on an empty split or unlabelled training nodes; warn of classes absent from training."""
    assert graph.y is not None
    check_filled(rows, graph.name, "nodes")
    if graph.y.dtype.kind == "f":
        if np.isnan(graph.y[rows["train"]]).all():
            raise DataError(f"no target is known among the training nodes of {graph.name}")
        return
    unlabelled = rows["train"][graph.y[rows["train"]] < 0]
    if len(unlabelled):
        raise DataError(
            f"{len(unlabelled)} training nodes have no label, the first is row {unlabelled[0]}; "
            f"label them or leave them out of the training mask"
        )
    if graph.num_classes == 1:
        warnings.warn(f"{graph.name} has one class only; there is nothing to learn", HopstateWarning, stacklevel=4)
    absent = np.setdiff1d(np.arange(graph.num_classes), graph.y[rows["train"]])
    if len(absent):
        names = [str(graph.class_names[c]) if graph.class_names else str(c) for c in absent[:5]]
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        warnings.warn(
            f"no training node has class {', '.join(names)}{more}; it can never be predicted, and validation and test "
            "nodes that have it count as wrong",
            HopstateWarning,
            stacklevel=4,
        )


def save_npz(path: object, rows: dict[str, np.ndarray]) -> None:
    """Write the rows of a split."""
    with open(str(path), "wb") as file:
        np.savez(file, **rows)  # type: ignore[arg-type]
