"""Methods on one graph: their configuration and edges, the task made of a network, and automatic settings."""

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
from hopstate.errors import ConfigError, DataError, HopstateError, HopstateWarning
from hopstate.io.files import replace_file
from hopstate.methods.method import Context, ReadOptions, RunConfig, SplitConfig
from hopstate.methods.shared.targets_as_trained import labels_as_trained
from hopstate.training.config import LoopConfig
from hopstate.training.progress import note
from hopstate.training.tasks.node import NodeBatches, NodeLabels, NodeTask
from hopstate.training.tasks.static_link import LinkConfig, StaticLinkTask
from hopstate.training.tasks.target import (
    ClassWeights,
    encode_target,
    goal_of,
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
    """Return the task that a run's settings name, of its nodes or its links."""
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
    y, target = encode_target(
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
    y, target = labels_as_trained(graph.y, graph.class_names, trained, config.metric, graph.num_nodes, graph.name)
    rows = split_rows(graph, config.split) if graph.num_splits or target.has_label(y).any() else {}
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


# ---- edges: which way messages flow, and what weights and features of edges are for -----------------------
Place = Literal["weights", "features", "none", "unused"]
Use = Literal["auto", "features", "drop"]


@dataclass(frozen=True, kw_only=True)
class EdgeConfig:
    """What is made of edges.

    Args:
        use: "auto" takes edge weights and edge features where the method has a place for them and refuses them where it
            has none; "drop" leaves them out.
        weight: column of the edge features that weighs edges, from 0, in methods that take weights (gcn, gcnii,
            nagphormer); null takes the graph's own weights, or its only column.
        flow: over an edge (u, v) of a directed graph, v receives from u ("source_to_target", as in torch-geometric), or
            u from v.
    """

    use: Literal["auto", "drop"] = "auto"
    weight: int | None = None
    flow: Literal["source_to_target", "target_to_source"] = "source_to_target"

    def __post_init__(self) -> None:
        if self.weight is not None and (self.weight < 0 or self.use == "drop"):
            raise ConfigError(
                f"edges.weight is a column of the edge features, from 0, which edges.use=drop leaves out; got "
                f"{self.weight} and {self.use}"
            )


def message_graph(graph: Graph, config: EdgeConfig, place: Place, method: str, loop: LoopConfig) -> Graph:
    """Return the graph that messages pass over: its edges the way they flow, carrying what the method reads.

    place: one weight an edge, features, neither, or the method reads no edges at all.
    """
    if place == "unused":
        return _bare(graph)
    if config.flow == "target_to_source":
        graph = turned(graph)
    if _carries(graph) == "nothing":
        if config.weight is not None:
            raise DataError(f"{graph.name} has no edge features, so edges.weight={config.weight} names none")
        return graph
    if config.use == "drop":
        note(loop, f"edges: {_carries(graph)} of {graph.name} are left out (edges.use=drop)")
        return _bare(graph)
    if place == "features" and config.weight is None:
        return graph.with_(edge_attr=_columns(graph), edge_weight=None)
    if place == "weights":
        return _weighted(graph, config, method, loop)
    raise ConfigError(
        f"{method} has no place for {'one weight an edge' if place == 'features' else _carries(graph)} "
        f"({graph.name} has {_carries(graph)}): {_otherwise(place)}"
    )


def turned(graph: Graph) -> Graph:
    """Return the graph with every edge turned round; itself where each has its reverse and they carry nothing."""
    return graph if _carries(graph) == "nothing" and graph.is_undirected else graph.reversed()


def learned_features(graph: Graph, use: Use, reads: bool, loop: LoopConfig, *, otherwise: str | None) -> Graph:
    """Return a graph with the edge features that a network learns from alone; weights become their last column.

    reads: whether the network has a place for edge features. otherwise: where it has none, what an error says to do
    about it; None leaves them out and says so.
    """
    carried = _carries(graph)
    if carried == "nothing":
        return graph
    if use == "features":
        return graph.with_(edge_weight=None)
    if use == "drop" or not reads:
        if use == "auto" and otherwise is not None:
            raise ConfigError(f"this model has no place for edges' features ({graph.name} has {carried}): {otherwise}")
        why = "edges=drop" if use == "drop" else "no part of the network reads them"
        note(loop, f"edges: {carried} of {graph.name} are left out ({why})")
        return _bare(graph)
    return graph if graph.edge_weight is None else graph.with_(edge_attr=_columns(graph), edge_weight=None)


def check_same_edges(name: str, found: int, trained: Mapping[str, Any] | None) -> None:
    """Raise DataError where edges carry other numbers of features than those that a model was trained with."""
    wanted = (trained or {}).get("edge_columns")
    if wanted is not None and wanted != found:
        raise DataError(f"{name} has {found} features an edge, the model was trained with {wanted}")


def edge_columns(graph: Graph) -> int:
    return 0 if graph.edge_attr is None else graph.edge_attr.shape[1]


def raw_column(graph: Graph, column: int) -> np.ndarray:
    """Return (E,) float32 of one column of the edge features as it was read, not scaled."""
    if graph.edge_table is None:
        assert graph.edge_attr is not None
        return graph.edge_attr[:, column]
    values = graph.edge_table.values[:, column]
    bad = ~np.isfinite(values)
    if bad.any():
        at = int(np.argmax(bad))
        source = int(np.searchsorted(graph.indptr, at, side="right")) - 1
        raise DataError(
            f"{graph.name}: {int(bad.sum())} edges have no weight in column {graph.edge_table.columns[column]!r}, the "
            f"first is ({source}, {graph.indices[at]}) by rows; fill them in, or leave weights out (--edges.use drop)"
        )
    return values.astype(np.float32)


def _weighted(graph: Graph, config: EdgeConfig, method: str, loop: LoopConfig) -> Graph:
    width = edge_columns(graph)
    if config.weight is not None:
        if graph.edge_attr is None or config.weight >= width:
            raise DataError(f"edges.weight={config.weight} is a column of the edge features; {graph.name} has {width}")
        return graph.with_(edge_weight=raw_column(graph, config.weight), edge_attr=None)
    if graph.edge_attr is None:
        return graph
    if width == 1 and graph.edge_weight is None:
        called = "" if graph.edge_table is None else f", column {graph.edge_table.columns[0]!r},"
        note(
            loop,
            f"edges: the one edge feature of {graph.name}{called} is taken as a weight (edges.use=drop leaves it out)",
        )
        return graph.with_(edge_weight=raw_column(graph, 0), edge_attr=None)
    raise ConfigError(
        f"{method} has a place for one weight an edge, and none for edge features ({graph.name} has {_carries(graph)}):"
        f" name the column that is a weight (--edges.weight COLUMN), {_otherwise('weights')}"
    )


def _otherwise(place: Place) -> str:
    if place == "features":
        return "leave edges.weight out: it reads every column as a feature"
    others = "gat, gin, pna and gmn read edge features" + ("" if place == "weights" else ", gcn and gcnii edge weights")
    return f"leave them out (--edges.use drop), or take another method: {others}"


def _carries(graph: Graph) -> str:
    parts = ["edge weights"] if graph.edge_weight is not None else []
    if graph.edge_attr is not None:
        parts.append(f"{graph.edge_attr.shape[1]} edge features")
    return " and ".join(parts) or "nothing"


def _columns(graph: Graph) -> np.ndarray:
    """Return (E, D) all that edges carry, weights last."""
    parts = [] if graph.edge_attr is None else [graph.edge_attr]
    parts += [] if graph.edge_weight is None else [graph.edge_weight[:, None]]
    return np.concatenate(parts, 1)


def _bare(graph: Graph) -> Graph:
    return graph if _carries(graph) == "nothing" else graph.with_(edge_attr=None, edge_weight=None)


# ---- automatic settings: from sizes, neighbors' classes and class shares of the training nodes alone ----------
# Source: Platonov et al. 2023, arXiv:2209.06177 (adjusted homophily); benchmarks/results/2026-11-22-defaults.md
ALIKE = 0.3  # adjusted homophily from which neighbours mostly share a class
MANY = 64  # features of which half may be missed
SKEWED = 0.7  # share of the largest class from which accuracy says little
STEPS = 300  # of training on links
HIDDEN = 6  # steps of an epoch at least where a step hides its own links


@dataclass(frozen=True)
class Facts:
    """What settings depend on.

    Args:
        nodes, edges, features: sizes; edges as stored.
        train: training nodes.
        homophily: adjusted, over edges between training nodes; NaN where they say nothing.
        largest: share of the largest class among the training nodes; 0 where there are no classes.
        classes: number of classes; 0 where targets are something else.
    """

    nodes: int
    edges: int
    features: int
    train: int
    homophily: float = float("nan")
    largest: float = 0.0
    classes: int = 0

    @property
    def wide(self) -> bool:
        """Whether there are so many features that they can be learned by heart."""
        return self.features > self.train / 8

    @property
    def alike(self) -> bool:
        """Whether neighbours mostly share a class."""
        return self.homophily >= ALIKE

    @property
    def metric(self) -> str | None:
        """The metric that a skewed data set asks for, or None."""
        return metric_of(self.classes, self.largest)


def metric_of(classes: int, largest: float) -> str | None:
    if classes < 2 or largest < SKEWED:
        return None
    return "roc_auc" if classes == 2 else "macro_f1"


def facts(graph: Graph, split: SplitConfig) -> Facts:
    """Return what automatic settings depend on; without labels or with a split that the build will reject, sizes."""
    sizes = Facts(graph.num_nodes, graph.num_edges, graph.num_features, graph.num_nodes)
    if graph.y is None:
        return sizes
    try:
        rows = split_rows(graph, split)["train"]
    except HopstateError:
        return sizes
    if goal_of(graph.y) != "classes" or graph.y.ndim != 1:
        return replace(sizes, train=len(rows))
    y = np.full(graph.num_nodes, -1)
    y[rows] = graph.y[rows]
    counts = np.bincount(y[y >= 0], minlength=1)
    return replace(
        sizes,
        train=len(rows),
        homophily=adjusted_homophily(graph, y),
        largest=float(counts.max() / max(counts.sum(), 1)),
        classes=min(max(int((counts > 0).sum()), 2), graph.num_classes),
    )


def adjusted_homophily(graph: Graph, y: np.ndarray) -> float:
    """Return (h - sum_c p_c^2) / (1 - sum_c p_c^2), p_c the share of edge ends in class c, h that of edges within one.

    It is 1 where edges join equal classes alone, about 0 where they do not care; NaN without edges or with one class.
    Edges with an end of class -1 are left out.
    """
    sources, targets = graph.edge_index()
    a, b = y[sources], y[targets]
    known = (a >= 0) & (b >= 0) & (sources != targets)
    if not known.any():
        return float("nan")
    shares = np.bincount(np.concatenate([a[known], b[known]])) / (2 * known.sum())
    chance = float((shares**2).sum())
    return (float((a[known] == b[known]).mean()) - chance) / (1 - chance) if chance < 1 else float("nan")


def suit_links(graph: Graph, config: NodeRun, *, hide: bool = False) -> dict[str, Any]:
    """Return settings of link prediction: about `STEPS` steps; with hide a step's links are no messages."""
    links = graph.num_edges / (2 if graph.is_undirected else 1) * config.link.fractions[0]
    share = {"link.hide": True, "link.batch_size": int(np.clip(links // HIDDEN + 1, 1, STEP))} if hide else {}
    each = config.link.batch_size or share.get("link.batch_size", STEP)
    epochs = int(np.clip(STEPS // max(1, -(-links // each)), 20, STEPS))
    sparse = links < 8 * graph.num_nodes
    return {
        "model.dropout": 0.5 if sparse and graph.num_features >= MANY else 0.2,
        "model.dim": 128,
        "loop.optim.lr": 3e-3,
        "loop.epochs": epochs,
        "loop.patience": max(5, epochs // 3),
        "loop.eval_every": max(1, epochs // 20),
        **share,
    }


def suit_metric(f: Facts, config: NodeRun, metrics: tuple[str, ...]) -> dict[str, Any]:
    """Return the metric that skewed classes ask for, where neither the data nor the user name one."""
    return {} if metrics or config.metric != "auto" or f.metric is None else {"metric": f.metric}


LINKS = (
    "link.hide",
    "link.batch_size",
    "model.dropout",
    "model.dim",
    "loop.optim.lr",
    "loop.epochs",
    "loop.patience",
    "loop.eval_every",
)
