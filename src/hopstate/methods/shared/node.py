"""Shared code of methods on one graph: configuration, edge features, the training task and automatic settings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import nn

from hopstate.data.events import TYPE_FIELDS, in_known_types
from hopstate.data.graph import Graph
from hopstate.data.splits import per_class_split, random_split
from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError, HopstateError, HopstateWarning, listed
from hopstate.io.files import replace_file
from hopstate.methods.method import Context, ReadOptions, RunConfig, SplitConfig
from hopstate.methods.shared.label_alignment import align_labels
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

FULL_GRAPH_LINK_BATCH, SAMPLED_LINK_BATCH = (
    16_384,
    1024,
)  # links per step with full-graph and with sampled encoding


@dataclass(frozen=True, kw_only=True)
class NodeRun(RunConfig):
    """Base configuration of methods on one graph.

    Args:
        data: a file, a folder, or the name of a dataset (see `hopstate datasets`).
        read: how files are read.
        split: training, validation and test nodes.
        metric: metric for model selection: "auto" (the dataset's own, otherwise accuracy, average_precision or mae), or
            a metric's name.
        class_weights: class weights in the cross-entropy: "none", "balanced" (inverse class frequency in training),
            "complement" (1 - class frequency), or a list such as '[spam=5, ham=1]'. Classes that the list does not name
            have weight 1.
        task: prediction target: "node" labels or "link"s.
        link: settings of link prediction, for task link.
        loop: training loop settings.
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
    """A network and its batch source, as built by a method for one graph.

    Args:
        model: the network.
        source: source of its batches.
        walks: numbers of walks that the source samples. They are saved with the run.
        dropout: dropout of the model, also used by a link decoder.
        full_graph: every step encodes the full graph.
    """

    model: nn.Module
    source: NodeBatches[Any]
    walks: Mapping[str, int] | None = None
    dropout: float = 0.0
    full_graph: bool = False


BuildNetwork = Callable[
    [Graph, Context, NodeLabels, int], NodeNetwork
]  # (graph, context, labels, output width) → network


def graph_task(graph: Graph, config: NodeRun, context: Context, make: BuildNetwork) -> NodeTask[Any] | StaticLinkTask:
    """Return the node-classification or link-prediction task of a run."""
    check_width(graph, context)
    if context.trained is not None:
        for column in TYPE_FIELDS:
            known = tuple(context.trained.get(f"{column}_names", ()))
            graph = in_known_types(graph, column, known, needed=column == "node_type")
    graph = _with_node_types(graph)
    if config.task == "link":
        from hopstate.methods.shared.static_link import link_task

        return link_task(graph, config, context, make)
    labels = node_labels(graph, config, context)
    network = make(graph, context, labels, len(labels.class_names))
    return NodeTask(network.model, network.source, walks=network.walks)


def _with_node_types(graph: Graph) -> Graph:
    """Return a graph with a feature for each node type, so that a network's first linear map adds a vector per type."""
    count = len(graph.node_type_names)
    if graph.node_type is None or count < 2:
        return graph
    columns = np.eye(count + 1, count, dtype=np.float32)[graph.node_type]  # -1, of unknown types, is the row of zeros
    assert graph.x is not None
    return graph.with_(x=np.concatenate([graph.x, columns], 1))


def node_labels(graph: Graph, config: NodeRun, context: Context) -> NodeLabels:
    """Return the targets, split and metrics of a node run. A new run saves its split."""
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
    """Return targets aligned with the trained model. The split is empty if the data have none."""
    trained = context.trained or {}
    y, target = align_labels(graph.y, graph.class_names, trained, config.metric, graph.num_nodes, graph.name)
    rows = split_rows(graph, config.split) if graph.num_splits or target.has_label(y).any() else {}
    return NodeLabels(y=y, split=rows, target=target, node_ids=graph.node_ids)


def check_width(graph: Graph, context: Context) -> None:
    """Raise DataError if a graph has no features, or not as many as the trained model takes."""
    if graph.x is None:
        raise DataError(
            f"{graph.name} has no node features, and this method needs them; give a table (--read.features FILE)"
        )
    expected = graph.num_features if context.trained is None else context.trained["num_features"]
    if graph.num_features != expected:
        raise DataError(f"{graph.name} has {graph.num_features} features a node, the model was trained with {expected}")


def split_rows(graph: Graph, split: SplitConfig) -> dict[str, np.ndarray]:
    """Return the rows of train, val and test: stored masks or a seeded random split of the labeled nodes."""
    if split.kind == "stored" or (split.kind == "auto" and graph.num_splits and split.per_class is None):
        return graph.split(split.number)
    assert graph.y is not None
    if split.per_class is not None:
        return per_class_split(graph.y, split.per_class, seed=split.seed + 1000 * split.number)
    return random_split(graph.y, split.fractions, seed=split.seed + 1000 * split.number, stratified=split.stratified)


def check_no_empty_split(rows: Mapping[str, np.ndarray], name: str, what: str) -> None:
    """Raise DataError if a split has no nodes or graphs (`what`)."""
    for part in SPLITS:
        if not len(rows.get(part, ())):
            sizes = ", ".join(f"{key} {len(value)}" for key, value in rows.items())
            raise DataError(
                f"the {part} split of {name} is empty ({sizes}); mark {what} for it, or give more labeled {what} "
                f"or other fractions to a random one (--split.kind random, --split.fractions)"
            )


def check_split(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    """Raise DataError for empty splits and unlabeled training nodes. Warn about classes absent from training."""
    assert graph.y is not None
    check_no_empty_split(rows, graph.name, "nodes")
    if graph.y.dtype.kind == "f":
        if np.isnan(graph.y[rows["train"]]).all():
            raise DataError(f"no training node of {graph.name} has a target")
        return
    unlabeled = rows["train"][graph.y[rows["train"]] < 0]
    if len(unlabeled):
        raise DataError(
            f"{len(unlabeled)} training nodes have no label, the first is row {unlabeled[0]}; "
            f"label them or remove them from the training mask"
        )
    if graph.num_classes == 1:
        warnings.warn(f"{graph.name} has one class only; there is nothing to learn", HopstateWarning, stacklevel=4)
    absent = np.setdiff1d(np.arange(graph.num_classes), graph.y[rows["train"]])
    if len(absent):
        names = absent.tolist() if graph.class_names is None else [graph.class_names[c] for c in absent]
        warnings.warn(
            f"no training node has class {listed(names)}; it can never be predicted, and validation and test "
            "nodes that have it count as wrong",
            HopstateWarning,
            stacklevel=4,
        )


def save_npz(path: object, rows: dict[str, np.ndarray]) -> None:
    """Save the rows of a split."""
    with open(str(path), "wb") as file:
        np.savez(file, **rows)  # type: ignore[arg-type]


# ---- edges: direction of messages, edge weights and edge features -------------------------------------------
EdgeRole = Literal["weights", "features", "relations", "none", "unused"]
Use = Literal["auto", "features", "drop"]
RELATION_COLUMNS = 64  # most relations that are read as edge features, one float each an edge


@dataclass(frozen=True, kw_only=True)
class EdgeConfig:
    """How edges are used.

    Args:
        use: "auto" uses edge weights, features and relations, and raises an error if the method cannot. "drop" ignores
            them (rgcn, hetero-sage and hetero-gat: weights and features).
        weight: index of the edge feature used as edge weight (gcn, gcnii, nagphormer). null: the graph's own weights,
            or its only edge feature.
        flow: direction of messages over a directed edge (u, v): "source_to_target" sends from u to v, as in
            torch-geometric, and "target_to_source" from v to u.
    """

    use: Literal["auto", "drop"] = "auto"
    weight: int | None = None
    flow: Literal["source_to_target", "target_to_source"] = "source_to_target"

    def __post_init__(self) -> None:
        if self.weight is not None and (self.weight < 0 or self.use == "drop"):
            raise ConfigError(
                f"edges.weight must be the index of an edge feature, and needs edges.use=auto: got {self.weight} and "
                f"edges.use={self.use}"
            )


def message_graph(graph: Graph, config: EdgeConfig, role: EdgeRole, method: str, loop: LoopConfig) -> Graph:
    """Return the graph for message passing, with reversed edges if configured and the edge data that the method reads.

    role: what the method reads from edges: "weights", "features" (relations are columns then), "relations", "none" of
        them, or the edges are "unused".
    """
    if role == "unused":
        return _without_edge_data(graph)
    if role == "relations":
        return _relation_graph(graph, config, method, loop)
    if config.flow == "target_to_source":
        graph = flow_reversed(graph)
    if _edge_data(graph) == "nothing":
        if config.weight is not None:
            raise DataError(f"{graph.name} has no edge features, but edges.weight={config.weight} is set")
        return graph
    if config.use == "drop":
        note(loop, f"edges: without {_edge_data(graph)} of {graph.name} (edges.use=drop)")
        return _without_edge_data(graph)
    if role == "features" and config.weight is None:
        graph = _with_relation_columns(graph)
        return graph.with_(edge_attr=_edge_columns(graph), edge_weight=None)
    if role == "weights" and graph.relation is None:
        return _weighted(graph, config, method, loop)
    raise ConfigError(
        f"{method} does not read {'edge weights' if role == 'features' else 'such edges'}: {graph.name} has "
        f"{_edge_data(graph)}. {_edge_advice(role)}"
    )


def _relation_graph(graph: Graph, config: EdgeConfig, method: str, loop: LoopConfig) -> Graph:
    """Return a graph whose one edge feature is the number of the relation, with inverse relations of directed edges."""
    if graph.relation is None:
        raise DataError(
            f"{graph.name} has no relations of edges, which {method} reads: name their column "
            "(--read.relation_column), or use another method"
        )
    relation, names = graph.relation, graph.relation_names
    graph = graph.with_(relation=None, relation_names=())
    carried = _edge_data(graph)
    if carried != "nothing":
        if config.use != "drop":
            raise ConfigError(
                f"{method} reads relations alone, but {graph.name} has {carried} too: ignore them (--edges.use drop)"
            )
        note(loop, f"edges: without {carried} of {graph.name} (edges.use=drop)")
    edges = graph.edge_index()
    if not graph.is_undirected:
        edges = np.concatenate([edges, edges[::-1]], 1)
        relation = np.concatenate([relation, relation + len(names)])
        names = (*names, *(f"inverse of {name}" for name in names))
    made = Graph.from_edges(edges, graph.num_nodes, undirected=False, duplicates="keep", relation=relation)
    assert made.relation is not None
    of_edges = {"indptr": made.indptr, "indices": made.indices, "relation": made.relation, "relation_names": names}
    return graph.with_(edge_weight=None, edge_attr=made.relation[:, None].astype(np.float32), **of_edges)


def _with_relation_columns(graph: Graph) -> Graph:
    """Return a graph with a column of edge features for each relation, 1 for edges of the relation."""
    if graph.relation is None:
        return graph
    count = len(graph.relation_names)
    if count > RELATION_COLUMNS:
        raise ConfigError(
            f"{graph.name} has {count} relations, more than the {RELATION_COLUMNS} that are read as edge features: use "
            "rgcn, hetero-sage or hetero-gat, or ignore them (--edges.use drop)"
        )
    columns = np.eye(count, dtype=np.float32)[graph.relation]
    columns = columns if graph.edge_attr is None else np.concatenate([graph.edge_attr, columns], 1)
    return graph.with_(edge_attr=columns, relation=None, relation_names=())


def flow_reversed(graph: Graph) -> Graph:
    """Return the graph with all edges reversed, or the graph itself if that changes nothing."""
    return graph if _edge_data(graph) == "nothing" and graph.is_undirected else graph.reversed()


def learned_features(graph: Graph, use: Use, reads_edges: bool, loop: LoopConfig, *, advice: str | None) -> Graph:
    """Return a graph with the edge features that a network reads. Edge weights become the last column.

    reads_edges: whether the network reads edge features. advice: end of the error message if it does not; None drops
    the features with a note instead.
    """
    if use != "drop" and reads_edges:
        graph = _with_relation_columns(graph)
    carried = _edge_data(graph)
    if carried == "nothing":
        return graph
    if use == "features":
        return graph.with_(edge_weight=None)
    if use == "drop" or not reads_edges:
        if use == "auto" and advice is not None:
            raise ConfigError(f"this model does not use edge features, but {graph.name} has {carried}: {advice}")
        why = "edges=drop" if use == "drop" else "no part of the network reads them"
        note(loop, f"edges: without {carried} of {graph.name} ({why})")
        return _without_edge_data(graph)
    return graph if graph.edge_weight is None else graph.with_(edge_attr=_edge_columns(graph), edge_weight=None)


def check_same_edges(name: str, found: int, trained: Mapping[str, Any] | None) -> None:
    """Raise DataError if the number of edge features differs from that in training."""
    expected = (trained or {}).get("edge_columns")
    if expected is not None and expected != found:
        raise DataError(f"{name} has {found} features an edge, the model was trained with {expected}")


def edge_columns(graph: Graph) -> int:
    return 0 if graph.edge_attr is None else graph.edge_attr.shape[1]


def raw_column(graph: Graph, column: int) -> np.ndarray:
    """Return (E,) float32 one edge feature as it was read, unscaled."""
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
            f"edges: the one edge feature of {graph.name}{called} is used as edge weight (edges.use=drop ignores it)",
        )
        return graph.with_(edge_weight=raw_column(graph, 0), edge_attr=None)
    raise ConfigError(
        f"{method} uses one edge weight and no edge features, but {graph.name} has {_edge_data(graph)}. Choose the "
        f"weight by its number, counted from 0 (--edges.weight 0). {_edge_advice('weights')}"
    )


def _edge_advice(role: EdgeRole) -> str:
    if role == "features":
        return "Remove edges.weight, because the method reads every column as a feature"
    others = "gat, gin, pna and gmn read edge features and relations, rgcn, hetero-sage and hetero-gat relations"
    others += "" if role == "weights" else ", gcn and gcnii edge weights"
    return f"Ignore them (--edges.use drop) or use another method: {others}"


def _edge_data(graph: Graph) -> str:
    parts = ["edge weights"] if graph.edge_weight is not None else []
    if graph.edge_attr is not None:
        width = graph.edge_attr.shape[1]
        parts.append(f"{width} edge feature{'s' * (width > 1)}")
    if graph.relation is not None:
        parts.append(f"{len(graph.relation_names)} relations")
    return " and ".join(parts) or "nothing"


def _edge_columns(graph: Graph) -> np.ndarray:
    """Return (E, D) edge features with edge weights as the last column."""
    parts = [] if graph.edge_attr is None else [graph.edge_attr]
    parts += [] if graph.edge_weight is None else [graph.edge_weight[:, None]]
    return np.concatenate(parts, 1)


def _without_edge_data(graph: Graph) -> Graph:
    nothing: dict[str, Any] = {"edge_attr": None, "edge_weight": None, "relation": None, "relation_names": ()}
    return graph if _edge_data(graph) == "nothing" else graph.with_(**nothing)


# ---- automatic settings: from sizes, and from classes of training nodes only ---------------------------------
# Source: Platonov et al. 2023, arXiv:2209.06177 (adjusted homophily); benchmarks/results/2026-11-29-defaults.md
FEW_LABELS = 50  # training nodes per class under which nothing follows from the absence of edges between them
HOMOPHILOUS = 0.2  # adjusted homophily above which neighbors mostly share a class
MANY_FEATURES = 64  # features from which a high input dropout helps
MAJORITY_SHARE = 0.7  # share of the largest class above which accuracy is uninformative
LINK_STEPS = 300  # optimizer steps of link-prediction training
MIN_MASKED_STEPS = 6  # minimum steps per epoch if each step masks its target links


@dataclass(frozen=True)
class GraphStats:
    """Graph statistics that automatic settings depend on.

    Args:
        nodes, edges, features: sizes.
        train: number of training nodes.
        homophily: adjusted homophily over edges between training nodes, NaN if undefined.
        largest: share of the largest class among the training nodes, 0 without classes.
        classes: number of classes, 0 for other targets.
    """

    nodes: int
    edges: int
    features: int
    train: int
    homophily: float = float("nan")
    largest: float = 0.0
    classes: int = 0

    @property
    def is_high_dimensional(self) -> bool:
        """Whether features are so many that a model can memorize the training nodes."""
        return self.features > self.train / 8

    @property
    def is_homophilous(self) -> bool:
        """Whether neighbors mostly share a class. It is assumed if labels are too few to have edges between them."""
        if math.isnan(self.homophily):
            return self.has_few_labels
        return self.homophily >= HOMOPHILOUS

    @property
    def has_few_labels(self) -> bool:
        """Whether there are fewer than `FEW_LABELS` training nodes per class."""
        return 0 < self.train < FEW_LABELS * self.classes

    @property
    def metric(self) -> str | None:
        """Metric for imbalanced classes, or None."""
        return imbalance_metric(self.classes, self.largest)


def imbalance_metric(classes: int, largest: float) -> str | None:
    if classes < 2 or largest < MAJORITY_SHARE:
        return None
    return "roc_auc" if classes == 2 else "macro_f1"


def graph_stats(graph: Graph, split: SplitConfig) -> GraphStats:
    """Return the statistics of a graph. Only sizes if there are no labels or the split is invalid."""
    sizes = GraphStats(graph.num_nodes, graph.num_edges, graph.num_features, graph.num_nodes)
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
    """Return (h - sum_c p_c^2) / (1 - sum_c p_c^2) with edge homophily h and degree-weighted class shares p_c.

    It is 1 if all edges join equal classes, about 0 if edges are independent of classes, and NaN without edges or with
    one class. Edges with an endpoint of class -1 are ignored.
    """
    sources, targets = graph.edge_index()
    a, b = y[sources], y[targets]
    labeled = (a >= 0) & (b >= 0) & (sources != targets)
    if not labeled.any():
        return float("nan")
    shares = np.bincount(np.concatenate([a[labeled], b[labeled]])) / (2 * labeled.sum())
    chance = float((shares**2).sum())
    return (float((a[labeled] == b[labeled]).mean()) - chance) / (1 - chance) if chance < 1 else float("nan")


def auto_config_links(graph: Graph, config: NodeRun, *, hide: bool = False) -> dict[str, Any]:
    """Return settings for about `LINK_STEPS` steps of link prediction. hide masks each step's target links."""
    links = graph.num_edges / (2 if graph.is_undirected else 1) * config.link.fractions[0]
    masking = (
        {
            "link.mask_target_edges": True,
            "link.batch_size": int(np.clip(links // MIN_MASKED_STEPS + 1, 1, FULL_GRAPH_LINK_BATCH)),
        }
        if hide
        else {}
    )
    batch_size = config.link.batch_size or masking.get("link.batch_size", FULL_GRAPH_LINK_BATCH)
    epochs = int(np.clip(LINK_STEPS // max(1, -(-links // batch_size)), 20, LINK_STEPS))
    sparse = links < 8 * graph.num_nodes
    return {
        "model.dropout": 0.5 if sparse and graph.num_features >= MANY_FEATURES else 0.2,
        "model.dim": 128,
        "loop.optim.lr": 3e-3,
        "loop.epochs": epochs,
        "loop.patience": max(5, epochs // 3),
        "loop.eval_every": max(1, epochs // 20),
        **masking,
    }


def auto_metric(stats: GraphStats, config: NodeRun, metrics: tuple[str, ...]) -> dict[str, Any]:
    """Return the metric for imbalanced classes if neither the dataset nor the user sets one."""
    return {} if metrics or config.metric != "auto" or stats.metric is None else {"metric": stats.metric}


# settings that `auto_config_links` may choose; node tasks also choose model.dim, model.dropout and loop.*
LINK_SETTINGS = (
    "link.mask_target_edges",
    "link.batch_size",
    "model.dropout",
    "model.dim",
    "loop.optim.lr",
    "loop.epochs",
    "loop.patience",
    "loop.eval_every",
)
