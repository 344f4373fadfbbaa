"""Graph Mamba Networks and GIN on sets of graphs, with packed batches of graphs.

Encodings and orders of a graph do not depend on the other graphs in the set.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678; Xu et al. 2019, arXiv:1810.00826 (GIN).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.graph_set import GraphSet
from hopstate.data.splits import random_split
from hopstate.errors import ConfigError, DataError, HopstateError, check_range
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import BatchNorm, Reading, pool, read_width
from hopstate.methods.gmn.batches import PreparedGraph, WalkPlan, plan_graph_batches, token_inputs
from hopstate.methods.gmn.export import EDGES, NODES, SENDERS, SIZES, call, gmn_spec, in_precision, tensors_of
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.node_method import (
    SPACE,
    EncodingConfig,
    OrderConfig,
    WalksConfig,
    gmn_model,
    prepare,
    reads_edges,
)
from hopstate.methods.gmn.orders import node_order
from hopstate.methods.gmn.tokens import drawing_seed, token_order
from hopstate.methods.method import Context, Method, Range, ReadOptions, SetRun, Space, SplitConfig
from hopstate.methods.shared.baselines import graph_set_baselines
from hopstate.methods.shared.label_alignment import align_labels
from hopstate.methods.shared.node import (
    Use,
    check_no_empty_split,
    check_same_edges,
    flow_reversed,
    imbalance_metric,
    learned_features,
    save_npz,
)
from hopstate.methods.shared.programs import ExportSpec, Port, Program, rows_port
from hopstate.ops.cpu.random_kernels import mix
from hopstate.ops.rows import bounds_of, ranges
from hopstate.training.checkpoint import replace_file
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.devices import bare
from hopstate.training.tasks.graph import GraphTask, Level, level_targets
from hopstate.training.tasks.target import (
    ClassWeights,
    goal_of,
    make_target,
    positive_last,
    warn_one_class,
)

__all__ = ["METHODS", "GINRun", "GMNGraphsRun", "build", "build_gin", "prepared_set"]


class GIN(nn.Module):
    """GIN layers with batch normalization; graph output is the sum over layers of a linear map of the pooled nodes.

    Args:
        config: settings of the model.
        in_dim: node features.
        out_dim: classes or targets.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of a GIN; the defaults are the paper's.

        Args:
            dim: width; the paper searches 16, 32, 64.
            num_layers: convolutions.
            pooling: over the nodes of a graph; "all" reads mean, sum and maximum side by side.
            dropout: before the readout; the paper searches 0, 0.5.
        """

        dim: int = 32
        num_layers: int = 4
        pooling: Reading = "sum"
        dropout: float = 0.5

        def __post_init__(self) -> None:
            check_range("model.", minimum=1, dim=self.dim, num_layers=self.num_layers)
            check_range("model.", minimum=0, below=1, dropout=self.dropout)

    def __init__(self, config: Config, *, in_dim: int, out_dim: int) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv

        self.config, self.in_dim, c = config, in_dim, config
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        self.heads = nn.ModuleList([nn.Linear(read_width(in_dim, c.pooling), out_dim)])
        for i in range(c.num_layers):
            width = in_dim if i == 0 else c.dim
            mlp = nn.Sequential(nn.Linear(width, c.dim), BatchNorm(c.dim), nn.ReLU(), nn.Linear(c.dim, c.dim))
            self.convs.append(GINConv(mlp, train_eps=True))
            self.norms.append(BatchNorm(c.dim))
            self.heads.append(nn.Linear(read_width(c.dim, c.pooling), out_dim))

    def forward(self, inputs: GMNInputs) -> Tensor:
        """Return (G, out_dim)."""
        h, c = inputs.x, self.config
        out = self.heads[0](pool(h, inputs.sequences, c.pooling))
        for conv, norm, head in zip(self.convs, self.norms, self.heads[1:]):
            h = F.relu(norm(inputs.graph.propagate(conv, "sum", 0, h)))
            out = out + F.dropout(head(pool(h, inputs.sequences, c.pooling)), c.dropout, self.training)
        return out


SAMPLE = 32  # graphs that a check asks of
Flow = Literal["source_to_target", "target_to_source"]


class Packed(NamedTuple):
    """Some graphs of a set, one after the other.

    Args:
        rows: (n,) their nodes in the union.
        bounds: (B+1,) bounds of the graphs.
        indptr, indices: the adjacency by rows of the batch.
        edges: (e,) rows of its entries in the union's adjacency.
    """

    rows: np.ndarray
    bounds: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    edges: np.ndarray


def pack(graphs: GraphSet, indptr: np.ndarray, indices: np.ndarray, ids: np.ndarray) -> Packed:
    """Return graphs ids, packed; indptr and indices are an adjacency of the union, which way round its edges may be."""
    rows, bounds = graphs.rows(ids)
    first = graphs.offsets[ids]
    edges = ranges(indptr[first], indptr[graphs.offsets[ids + 1]] - indptr[first])
    degree = np.diff(indptr)[rows]
    shift = np.repeat(np.repeat(bounds[:-1] - first, np.diff(bounds)), degree)  # from the union's rows to the batch's
    return Packed(rows, bounds, bounds_of(degree), indices[edges] + shift, edges)


def names_in_set(graphs: GraphSet) -> np.ndarray:
    """Return (N,) numbers by which walks are drawn: of what a node's graph is, and of the node's place in it.

    So a graph has the walks that it has alone, or in any other set, and other graphs have others.
    """
    union, first = graphs.union, graphs.offsets[graphs.graph_of]
    place = np.arange(union.num_nodes) - first
    sources = np.repeat(np.arange(union.num_nodes), np.diff(union.indptr))
    edges = mix(((place[sources] << 32) + union.indices - first[sources]).view(np.uint64))
    until = np.append(np.uint64(0), np.cumsum(edges))[union.indptr[graphs.offsets]]  # sums modulo 2^64
    of_graph = mix(np.diff(until) + np.diff(graphs.offsets).astype(np.uint64)) >> np.uint64(34)
    return (of_graph.astype(np.int64) << 20)[graphs.graph_of] + place


class Collator:
    """Packs graphs of a set into the inputs of a GMN.

    Args:
        graphs: the set.
        prepared: its union, made ready.
        model: says what tokens are needed.
        seed, resample_every: as in `hopstate.methods.gmn.batches.FullGraphBatches`.
        level: "edge" adds the pairs.
    """

    def __init__(
        self,
        graphs: GraphSet,
        prepared: PreparedGraph,
        model: GMN.Config,
        *,
        seed: int,
        resample_every: int,
        level: str,
    ) -> None:
        self.graphs, self.prepared, self.model, self.level = graphs, prepared, model, level
        self.seed, self.resample_every = seed, resample_every
        self._names = names_in_set(graphs)

    def __call__(self, ids: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        """Return the inputs of graphs ids; without a generator the epoch is a round of evaluation: 0, -1, -2, ..."""
        m, graphs = self.prepared, self.graphs
        rows, bounds, indptr, indices, edges = pack(graphs, m.indptr, m.indices, ids)
        extra: dict[str, object] = {}
        if m.settings.max_length:
            extra = self._tokens(rows, bounds, ids, edges, epoch, rng)
        if self.level == "edge":
            extra["pairs"] = self._pairs(ids)
        place = np.repeat(np.arange(len(ids)), np.diff(bounds))
        return GMNInputs(
            x=m.features(rng, rows, bounds), graph=Adjacency.of(indptr, indices),
            edge_attr=None if m.edge_attr is None else torch.from_numpy(m.edge_attr[edges]),
            order=torch.from_numpy(node_order(m.key[rows], rng, place)), sequences=torch.from_numpy(bounds),
            **extra,  # type: ignore[arg-type]
        )  # fmt: skip

    def _pairs(self, ids: np.ndarray) -> torch.Tensor:
        """Return (e, 2) ends of the edges as they are stored, which targets and predictions follow."""
        union = self.graphs.union
        stored = pack(self.graphs, union.indptr, union.indices, ids)
        return torch.from_numpy(
            np.stack([np.repeat(np.arange(len(stored.rows)), np.diff(stored.indptr)), stored.indices], 1)
        )

    def _tokens(
        self, rows: np.ndarray, bounds: np.ndarray, ids: np.ndarray, edges: np.ndarray, epoch: int,
        rng: np.random.Generator | None,
    ) -> dict[str, object]:  # fmt: skip
        m, graphs = self.prepared, self.graphs
        number = epoch if rng is None else epoch // self.resample_every if self.resample_every else 0
        seed = drawing_seed(self.seed, number)
        tokens = m.tokens(rows, self.model.token_kind, seed, names=self._names[rows])
        start = np.zeros(graphs.num_graphs, np.int64)
        start[ids] = bounds[:-1] - graphs.offsets[ids]
        visited = tokens["nodes"].numpy()
        tokens["nodes"] = torch.from_numpy(visited + start[graphs.graph_of[visited]])
        if m.edge_attr is not None:
            place = np.full(len(m.indices) + 1, -1)
            place[edges] = np.arange(len(edges))
            tokens["edges"] = torch.from_numpy(place[tokens["edges"].numpy()])
        return {**token_inputs(tokens), "token_order": token_order(len(rows), m.settings, rng)}


@dataclass(frozen=True, kw_only=True)
class GraphSetRun(SetRun):
    """Base configuration of methods for sets of graphs.

    Args:
        data: a TU text file or folder, or the name of a dataset of graphs.
        read: how files are read.
        fold: index of the stored split.
        split: random split, if no split is stored.
        flow: direction of messages over a directed edge (u, v): "source_to_target" sends from u to v, as in
            torch-geometric, and "target_to_source" from v to u.
        metric: metric for model selection: "auto" (the dataset's own, otherwise accuracy, average_precision or mae), or
            a metric's name.
        class_weights: class weights in the cross-entropy: "none", "balanced" (inverse class frequency), "complement" (1
            - class frequency, as published for PATTERN, PascalVOC-SP and COCO-SP), or a list such as '[0=1, 1=5]'.
        loop: training loop settings.
    """

    read: ReadOptions = field(default_factory=ReadOptions)
    fold: int = 0
    split: SplitConfig = field(default_factory=lambda: SplitConfig(fractions=(0.8, 0.1, 0.1)))
    flow: Flow = "source_to_target"
    metric: str = "auto"
    class_weights: ClassWeights = "none"
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=100, patience=None, optim=OptimConfig(lr=1e-3, weight_decay=1e-5))
    )

    @property
    def labelled(self) -> Level:
        """Whether graphs, nodes or edges have labels."""
        return "graph"

    def training_graphs(self, graphs: GraphSet) -> np.ndarray:
        """Return the indices of the training graphs, or an empty array if the split is invalid."""
        y = _labels(graphs, self.labelled)
        try:
            return np.zeros(0, np.int64) if y is None else graph_split(graphs, y, self)["train"]
        except HopstateError:
            return np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class GMNGraphsRun(GraphSetRun):
    """Configuration of a Graph Mamba Network over a set of graphs.

    Args:
        level: what is labeled: "graph", "node" or "edge".
        walks, encoding, order, model: see `hopstate.methods.gmn.node_method.GMNRun`.
        edges: "auto" takes edge features, and edge weights as one more, if Psi or tokens read them, and reports if
            they are left out; "features" takes the features alone, and "drop" nothing.
        batch_size: graphs a step; null takes 32, or fewer if the largest of them do not fit walks.max_memory.
    """

    level: Level = "graph"
    walks: WalksConfig = field(default_factory=WalksConfig)
    encoding: EncodingConfig = field(default_factory=lambda: EncodingConfig(kind="rwse", size=8))
    order: OrderConfig = field(default_factory=OrderConfig)
    edges: Use = "auto"
    model: GMN.Config = field(default_factory=GMN.Config)
    batch_size: int | None = None

    @property
    def labelled(self) -> Level:
        """What is labeled."""
        return self.level


@dataclass(frozen=True, kw_only=True)
class GINRun(GraphSetRun):
    """Configuration of a GIN over a set of graphs.

    Args:
        model: the network; it does not read edge features.
        batch_size: graphs a step.
    """

    model: GIN.Config = field(default_factory=GIN.Config)
    batch_size: int = 32


def build(graphs: GraphSet, config: GMNGraphsRun, context: Context) -> GraphTask:
    targets = _targets(graphs, config, context)
    ready, choice = prepared_set(graphs, config, context)
    check_same_edges(graphs.name, ready.edge_dim, context.trained)
    model = gmn_model(config, ready, targets["target"].width, config.level)
    collate = Collator(
        graphs, ready, config.model, seed=config.loop.seed, resample_every=config.walks.resample_every,
        level=config.level,
    )  # fmt: skip
    assert choice.batch_size is not None
    return GraphTask(
        model, graphs, collate, level=config.level, batch_size=choice.batch_size, seed=config.loop.seed,
        walks=choice.walks.counts, eval_samples=config.walks.eval_samples if choice.walks.tokens > 1 else 1, **targets,
    )  # fmt: skip


def build_gin(graphs: GraphSet, config: GINRun, context: Context) -> GraphTask:
    targets = _targets(graphs, config, context)
    over = graphs.union if config.flow == "target_to_source" else flow_reversed(graphs.union)
    over = learned_features(over, "auto", False, config.loop, advice=None)

    def collate(ids: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        part = pack(graphs, over.indptr, over.indices, ids)
        assert graphs.union.x is not None
        return GMNInputs(
            x=torch.from_numpy(graphs.union.x[part.rows]), graph=Adjacency.of(part.indptr, part.indices),
            order=torch.arange(len(part.rows)), sequences=torch.from_numpy(part.bounds),
        )  # fmt: skip

    model = GIN(config.model, in_dim=graphs.num_features, out_dim=targets["target"].width)
    return GraphTask(
        model, graphs, collate, level="graph", batch_size=config.batch_size, seed=config.loop.seed, **targets
    )


def prepared_set(graphs: GraphSet, config: GMNGraphsRun, context: Context) -> tuple[PreparedGraph, WalkPlan]:
    """Return the preprocessed union of all graphs, with encodings and orders per graph, and its settings."""
    nodes, edges = np.diff(graphs.offsets), np.diff(graphs.union.indptr[graphs.offsets])

    names = names_in_set(graphs) if config.encoding.kind == "anonymous" else None
    plan = partial(plan_graph_batches, nodes, edges)
    return prepare(graphs.union, config, context, plan, offsets=graphs.offsets, names=names)


def _targets(graphs: GraphSet, config: GraphSetRun, context: Context) -> dict[str, Any]:
    """Return y, target and split for `GraphTask`. A new run saves a random split."""
    if graphs.union.x is None:
        raise DataError(f"{graphs.name} has no node features; give each node at least a constant one")
    if context.trained is not None:
        return _aligned_targets(graphs, config, context.trained)
    level = config.labelled
    y = level_targets(graphs, level)
    split = graph_split(graphs, y, config)
    check_no_empty_split(split, graphs.name, "graphs")
    rows = _rows(graphs, level, split["train"])
    y, names = positive_last(y, rows, graphs.class_names, config.read.positive_class)
    target = make_target(y, rows, names, config.metric, context.metrics, weights=config.class_weights)
    y = target.rows(y)
    if not target.has_label(y[rows]).any():
        raise DataError(f"no {level} label is known among the training graphs of {graphs.name}")
    warn_one_class(target, y, {part: _rows(graphs, level, ids) for part, ids in split.items()}, graphs.name)
    if not graphs.num_splits or config.split.kind == "random":
        replace_file(context.run / "split.npz", lambda part: save_npz(part, split))
    return {"y": y, "target": target, "split": split}


def _aligned_targets(graphs: GraphSet, config: GraphSetRun, trained: Mapping[str, Any]) -> dict[str, Any]:
    level = config.labelled
    if graphs.num_features != trained["num_features"]:
        raise DataError(
            f"{graphs.name} has {graphs.num_features} features a node, the model was trained with "
            f"{trained['num_features']}"
        )
    labels = _labels(graphs, level)
    count = {"graph": graphs.num_graphs, "node": graphs.num_nodes, "edge": graphs.union.num_edges}[level]
    y, target = align_labels(labels, graphs.class_names, trained, config.metric, count, graphs.name)
    has_labels = bool(target.has_label(y).any())
    split = graph_split(graphs, y, config) if graphs.num_splits or has_labels else {}
    return {"y": y, "target": target, "split": split}


def graph_split(graphs: GraphSet, y: np.ndarray, config: GraphSetRun) -> dict[str, np.ndarray]:
    """Return the graph numbers of train, val and test: a stored split, or a seeded one of the labeled graphs."""
    s, level = config.split, config.labelled
    if s.per_class is not None:
        raise ConfigError("split.per_class counts nodes of one graph; graphs of a set are split by split.fractions")
    if s.kind == "stored" or (s.kind == "auto" and graphs.num_splits):
        return graphs.split(config.fold)
    labels = y if level == "graph" else np.zeros(graphs.num_graphs, np.int64)
    stratified = level == "graph" and y.dtype.kind == "i" and (s.stratified or np.bincount(y[y >= 0]).min() > 2)
    return random_split(labels, s.fractions, seed=s.seed + 1000 * (s.number or config.fold), stratified=stratified)


def _auto_config(
    graphs: GraphSet, config: GraphSetRun, metrics: tuple[str, ...], *, method_settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return automatic settings for a set of graphs. They were chosen on validation of MUTAG and PROTEINS."""
    steps = max(1, -(-graphs.num_graphs // 32))
    epochs = int(np.clip(2000 / steps, 30, 100))
    shared = {"model.dim": 32, "loop.epochs": epochs, "loop.optim.lr": 3e-3, "loop.optim.schedule": "cosine"}
    bare = isinstance(config, GMNGraphsRun) and config.model.variant == "gmn-"
    if bare:  # no message passing, not even in tokens
        method_settings = {name: value for name, value in method_settings.items() if name != "model.local"}
    return {**shared, **method_settings, **_metric(graphs, config, metrics)}


def _metric(graphs: GraphSet, config: GraphSetRun, metrics: tuple[str, ...]) -> Mapping[str, str]:
    level = config.labelled
    y = _labels(graphs, level)
    train = config.training_graphs(graphs)
    if metrics or config.metric != "auto" or y is None or y.ndim != 1 or goal_of(y) != "classes" or not len(train):
        return {}
    train_labels = y[_rows(graphs, level, train)]
    counts = np.bincount(train_labels[train_labels >= 0], minlength=1)
    metric = imbalance_metric(int((np.bincount(y[y >= 0], minlength=1) > 0).sum()), counts.max() / max(1, counts.sum()))
    return {} if metric is None else {"metric": metric}


def _labels(graphs: GraphSet, level: Level) -> np.ndarray | None:
    return {"graph": graphs.y, "node": graphs.union.y, "edge": graphs.edge_y}[level]


def _rows(graphs: GraphSet, level: Level, ids: np.ndarray) -> np.ndarray:
    return {"graph": lambda g: g, "node": lambda g: graphs.rows(g)[0], "edge": graphs.edges}[level](ids)


def export_spec(task: GraphTask) -> ExportSpec:
    """Return what is exported of a trained Graph Mamba Network over graphs."""
    return _export_of_graphs(task, gmn_spec(bare(task.model), eval_samples=task.eval_samples, many=True))


def gin_spec(task: GraphTask) -> ExportSpec:
    """Return what is exported of a trained GIN."""
    model = bare(task.model)
    assert isinstance(model, GIN)
    x = torch.randn(NODES, model.in_dim).to(next(model.parameters()))
    ports = [
        Port(name=name, meaning=meaning, axes=axes, example=example)
        for name, example, meaning, axes in (
            ("x", x, f"{model.in_dim} features of each node, graph after graph", ("node", "")),
            ("edge_index", torch.tensor(EDGES), SENDERS, ("", "edge")),
            ("sizes", torch.tensor([2, NODES - 2]), SIZES, ("graph",)),
        )
    ]
    spec = ExportSpec(
        module=Program(model, ports, call),
        inputs=tuple(ports),
        outputs=(rows_port("graph", "graph"),),
        preprocessing="edges within each graph, as flow, read.undirected and read.self_loops left them; features as "
        "they were read",
    )
    return _export_of_graphs(task, spec)


def _export_of_graphs(task: GraphTask, spec: ExportSpec) -> ExportSpec:
    count = task.graphs.num_graphs

    def collated(ids: Any) -> GMNInputs:
        rows = np.arange(count) if ids is None else np.asarray(ids).reshape(-1)
        if rows.dtype.kind not in "iu" or len(rows) == 0 or rows.min() < 0 or rows.max() >= count:
            raise DataError(f"graph numbers must be in 0..{count - 1}, at least one; got {ids!r}")
        return task.collate(rows.astype(np.int64), 0, None)

    return replace(
        spec,
        fill=lambda ids: tensors_of(collated(ids)),
        reference=lambda ids: task.model(in_precision(task.model, collated(ids))),
        sample=np.arange(min(SAMPLE, count)),
    )


_SETS = ("model.dim", "loop.epochs", "loop.optim.lr", "loop.optim.schedule", "metric")
_GMN = {
    "walks.max_length": 2, "walks.repeats": 1, "walks.walks": 4, "model.mpnn": "gin", "model.local": "gin",
    "model.pooling": "sum", "model.expand": 1.0, "model.state_dim": 8, "model.dropout": 0.3,
}  # fmt: skip
_DEEPER: Space = {  # 4 and 5: of LRGB
    "model.token_layers": [1, 3, 4, 5, 6],
    "model.node_layers": [1, 3, 4, 5, 6],
    "model.mpnn_layers": [3, 4, 5, 6],
}

METHODS = {
    "gmn-graphs": Method(
        "gmn-graphs", GMNGraphsRun, build, "graphs", "Graph Mamba Networks over many graphs", "arXiv:2402.08678",
        auto_config=partial(_auto_config, method_settings=_GMN), automatic=(*_SETS, *_GMN),
        baselines=graph_set_baselines, reads_edges=reads_edges, space=SPACE | _DEEPER, export=export_spec,
    ),
    "gin-graphs": Method(
        "gin-graphs", GINRun, build_gin, "graphs", "GIN over many graphs", "arXiv:1810.00826",
        auto_config=partial(_auto_config, method_settings={}), automatic=_SETS, baselines=graph_set_baselines,
        space={"loop.optim.lr": Range(1e-4, 1e-2, log=True)}, export=gin_spec,
    ),
}  # fmt: skip
