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
from hopstate.errors import ConfigError, DataError, HopstateWarning, check_range, refuse_idle
from hopstate.io.files import replace_file
from hopstate.layers.decoders import DECODERS
from hopstate.methods.method import Context, ReadOptions, RunConfig, SplitConfig
from hopstate.methods.shared.targets_as_trained import targets_as_trained, unknown_classes
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.node import NodeBatches, NodeLabels, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.target import (
    ClassWeights,
    goal_of,
    of_training,
    positive_last,
    target_of,
    trained_target,
    warn_one_class,
)

STEP, SAMPLED = 16_384, 1024  # links of a step: where it encodes the whole graph anyway, and where it does not
How = Literal["auto", "random", "time", "file"]


@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Link prediction on a static graph (task "link").

    Args:
        split: how links are shared out: "random" (by split.seed and split.number), "time" (the latest are for test,
            those before them for validation), a "file"; "auto" takes the file where one is named, the time where
            edges carry one, else random.
        fractions: shares of train, val and test of a split by chance or time.
        time: column of the edges that holds their time; null takes one of a usual name. It is no feature then.
        file: table of source, target and split (train, val, test) with your ids; links that it leaves out are for
            training.
        disjoint: share of the training links that are learned from and are no messages meanwhile; 0 takes every
            training link for both, as is usual. Evaluation passes messages over all training links.
        hide: a step's own links are no messages in it, as a link that is asked about is none; for networks that a step
            gives the whole graph.
        val_messages: pass messages over validation links too where test links are scored.
        decoder: score of two node vectors: "dot", "mlp" (a perceptron on their product), "bilinear", "merge" (a
            perceptron on both); "auto" takes dot,
            or bilinear where edges have a direction: dot and mlp score both directions alike.
        structure: add what a small perceptron makes of the pair's common neighbours and paths of three steps over
            messages, its own link left out; false scores by the two vectors alone.
        dim: width of a node vector.
        negatives: pairs that are no training links: their targets are drawn "uniform", by "degree", from "two-hop"
            neighbours, or of eight times as many the highest "scored".
        num_negatives: of each link.
        loss: "softmax" of a link among its own negatives, or "bce" of single pairs.
        batch_size: links of a step; null takes 16,384 where a step encodes the whole graph anyway, else 1,024. Batches
            of nodes take the links among them.
        candidates: nodes that a held-out link's end is ranked among, drawn from those without a link in any split;
            0 takes all of them.
        bootstrap: resamples for 95% limits of the test figures; 0 gives none.
    """

    split: How = "auto"
    fractions: tuple[float, float, float] = (0.85, 0.05, 0.10)
    time: str | None = None
    file: str | None = None
    disjoint: float = 0.0
    hide: bool = False
    val_messages: bool = False
    decoder: str = "auto"
    structure: bool = True
    dim: int = 128
    negatives: Literal["uniform", "degree", "two-hop", "scored"] = "uniform"
    num_negatives: int = 20
    loss: Literal["softmax", "bce"] = "softmax"
    batch_size: int | None = None
    candidates: int = 1000
    bootstrap: int = 0

    def __post_init__(self) -> None:
        if min(self.fractions) <= 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise ConfigError(f"link.fractions are three positive shares that sum to 1; got {list(self.fractions)}")
        known = ("auto", *DECODERS)
        if self.decoder not in known:
            raise ConfigError(f"link.decoder is one of {', '.join(known)}; got {self.decoder!r}")
        check_range("link.", least=0, below=1, disjoint=self.disjoint)
        check_range("link.", least=1, dim=self.dim, num_negatives=self.num_negatives, batch_size=self.batch_size)
        check_range("link.", least=0, candidates=self.candidates, bootstrap=self.bootstrap)
        if (self.split == "file") != (self.file is not None) and self.split != "auto":
            raise ConfigError(f"link.split=file takes link.file, and nothing else does; got {self.split}, {self.file}")
        if self.hide and self.disjoint:
            raise ConfigError("link.hide and link.disjoint both keep links out of messages; give one of them")
        refuse_idle(self, time=self.split in ("random", "file") and f"link.split={self.split} looks at no time")


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
    others: tuple[str, ...] = ()
    y, names = graph.y, graph.class_names
    if goal_of(y) == "classes":
        y, names, others = of_training(y, rows["train"], names)
        if others and len(names or ()) < 2:
            raise DataError(
                f"{graph.name}: all training nodes have only the class {', '.join(names or ())}; there is nothing to "
                "learn; choose another split (--split.kind random)"
            )
    y, names = positive_last(y, rows["train"], names, config.read.positive_class)
    learned = np.where(y < len(names), y, -1) if names and others else y
    target = target_of(
        learned, rows["train"], names, config.metric, context.metrics,
        weights=config.class_weights, amounts=config.read.task == "regression",
    )  # fmt: skip
    warn_one_class(target, y, rows, graph.name)
    replace_file(context.run / "split.npz", lambda part: save_npz(part, rows))
    return NodeLabels(y=y, split=rows, target=replace(target, others=others), node_ids=graph.node_ids)


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
