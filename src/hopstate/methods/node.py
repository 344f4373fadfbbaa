"""What all node-classification methods do first: check the graph, choose the split and the metrics."""

from __future__ import annotations

import warnings

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.splits import random_split
from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError, HopstateWarning, nearest
from hopstate.evaluation.metrics import CLASSIFICATION
from hopstate.methods.base import Context, SplitConfig
from hopstate.training.checkpoint import replace_file
from hopstate.training.node_task import NodeLabels


def node_labels(graph: Graph, split: SplitConfig, metric: str, context: Context) -> NodeLabels:
    """Return labels, split rows, metrics and class names of a node-classification run; a new run saves its split.

    Raises:
        DataError: no labels, an empty split, or a training node without a label.
        ConfigError: an unknown metric, or one that needs two classes where there are more.
    """
    if context.trained is not None:
        return _labels_as_trained(graph, split, metric, context)
    if graph.y is None or not graph.num_classes:
        raise DataError(f"{graph.name} has no class labels; give a table of them (--read.labels FILE)")
    rows = split_rows(graph, split)
    check_split(graph, rows)
    replace_file(context.run / "split.npz", lambda part: _save_npz(part, rows))
    names = graph.class_names or tuple(str(c) for c in range(graph.num_classes))
    metrics = metric_names(metric, context.metrics, len(names))
    return NodeLabels(y=graph.y, split=rows, metrics=metrics, class_names=names, node_ids=graph.node_ids)


def _labels_as_trained(graph: Graph, split: SplitConfig, metric: str, context: Context) -> NodeLabels:
    """Return labels in the classes of the trained model, -1 where there is none; splits where the data have them."""
    trained = context.trained or {}
    names = tuple(trained["class_names"])
    own = graph.class_names or tuple(str(c) for c in range(graph.num_classes))
    place = {name: c for c, name in enumerate(names)}
    moved = np.array([place.get(name, -1) for name in own] + [-1], np.int64)  # the last stands for "unknown"
    y = moved[-1].repeat(graph.num_nodes) if graph.y is None or not own else moved[graph.y]
    labelled = graph.y is not None and bool(own)
    rows = split_rows(graph, split) if labelled or graph.num_splits else {}
    metrics = metric_names(metric, tuple(trained["metrics"]), len(names))
    return NodeLabels(y=y, split=rows, metrics=metrics, class_names=names, node_ids=graph.node_ids)


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
    if split.kind == "stored" or (split.kind == "auto" and graph.num_splits):
        return graph.split(split.number)
    assert graph.y is not None
    return random_split(graph.y, split.fractions, seed=split.seed + 1000 * split.number, stratified=split.stratified)


def check_split(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    """Raise DataError on an empty split or unlabelled training nodes; warn of classes absent from training."""
    assert graph.y is not None
    for name in SPLITS:
        if not len(rows.get(name, ())):
            sizes = ", ".join(f"{key} {len(value)}" for key, value in rows.items())
            raise DataError(
                f"the {name} split of {graph.name} is empty ({sizes}); mark nodes for it, or give more labelled nodes "
                f"or other fractions to a random one (--split.kind random, --split.fractions)"
            )
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
        warnings.warn(
            f"no training node has class {', '.join(names)}; it can never be predicted", HopstateWarning, stacklevel=4
        )


def metric_names(metric: str, own: tuple[str, ...], num_classes: int) -> tuple[str, ...]:
    """Return the metric that chooses the model, then the others worth printing."""
    if metric != "auto" and metric not in CLASSIFICATION:
        raise ConfigError(
            f"unknown metric {metric!r}{nearest(metric, CLASSIFICATION)}; known: auto, {', '.join(CLASSIFICATION)}"
        )
    first = metric if metric != "auto" else (own[0] if own else "accuracy")
    extra = ("accuracy", "roc_auc", "average_precision") if num_classes == 2 else ("accuracy", "macro_f1")
    return tuple(dict.fromkeys((first, *extra)))


def _save_npz(path: object, rows: dict[str, np.ndarray]) -> None:
    with open(str(path), "wb") as file:
        np.savez(file, **rows)  # type: ignore[arg-type]
