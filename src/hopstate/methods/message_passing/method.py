"""Message-passing backbones, with full-graph training or batches: GCN, GraphSAGE, GIN, GAT, PNA, GCNII, MLP.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (5 layers, residual, LayerNorm); see `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, ConfigError
from hopstate.io.opening import shorten
from hopstate.layers.message import Adjacency, EdgeList
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.batching import NODE_SETS, Batching, batched_source
from hopstate.methods.message_passing.model import Backbone, BackboneConfig
from hopstate.methods.method import Context, Method, Range, Space
from hopstate.methods.shared.baselines import graph_baselines
from hopstate.methods.shared.node import (
    LINK_SETTINGS,
    EdgeConfig,
    GraphStats,
    NodeNetwork,
    NodeRun,
    auto_config_links,
    auto_metric,
    check_same_edges,
    edge_columns,
    graph_stats,
    graph_task,
    message_graph,
)
from hopstate.methods.shared.programs import ExportSpec, Port, Program, Tensors, graph_spec, rows_port
from hopstate.sampling.partition import MODULES, NAMES, first_installed
from hopstate.sampling.subgraph import full_adjacency, full_graph
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.progress import note
from hopstate.training.tasks.node import FullGraph, NodeBatches, NodeLabels, NodeTask, Subgraphs, to_model
from hopstate.training.tasks.static_link import StaticLinkTask

MULTIPLY_ADDS_PER_SECOND = 2e10  # of one core, for the estimate of epoch time
MAX_EPOCH_SECONDS = 0.6  # of full-graph training: at most 300 epochs in 3 minutes
LINK_BLOCK = {"model.block": "conv", "model.residual": False, "model.norm": "none", "model.pre_linear": False}
PRESETS: Mapping[str, Mapping[str, Any]] = {  # benchmarks/defaults.py compares them
    "shallow": {
        "model.block": "ffn", "model.norm": "layer", "model.num_layers": 2, "model.jumping_knowledge": "none",
        "model.dropout": 0.7, "loop.optim.name": "adamw", "loop.optim.lr": 3e-3, "loop.optim.weight_decay": 0.0,
    },
    "medium": {
        "model.block": "ffn", "model.norm": "layer", "model.num_layers": 4, "model.jumping_knowledge": "none",
        "model.dropout": 0.2, "loop.optim.name": "adamw", "loop.optim.lr": 1e-2, "loop.optim.weight_decay": 0.0,
        "loop.grad_clip": 1.0,  # gradients grow as the loss falls; without it a fit of 12,000 nodes diverges
    },
    "residual": {
        "model.block": "conv", "model.norm": "batch", "model.num_layers": 3, "model.jumping_knowledge": "cat",
        "model.dropout": 0.7, "loop.optim.name": "adam", "loop.optim.lr": 1e-2, "loop.optim.weight_decay": 5e-4,
    },
    "deep": {
        "model.block": "conv", "model.norm": "batch", "model.num_layers": 10, "model.jumping_knowledge": "cat",
        "model.dropout": 0.2, "loop.optim.name": "adamw", "loop.optim.lr": 1e-2, "loop.optim.weight_decay": 0.0,
    },
}  # fmt: skip
AUTOMATIC = (*LINK_BLOCK, *PRESETS["medium"], "metric", *LINK_SETTINGS)


def choose_preset(stats: GraphStats) -> str:
    """Return the name of the preset for a node task on a graph.

    =================================  ========================================  =================================
    .                                  many features: one for every 8 labels     few features
    =================================  ========================================  =================================
    neighbors share a class, no edges  shallow: two hops, strong dropout         medium: averages over four hops
    neighbors do not                   residual: three hops and a linear map of  deep: ten hops, because the label
                                       a node's own features in each layer       depends on the structure around
                                       the head reads all layers                 the head reads all layers
    =================================  ========================================  =================================
    """
    if stats.is_homophilous or not stats.edges:
        return "shallow" if stats.is_high_dimensional else "medium"
    return "residual" if stats.is_high_dimensional else "deep"


def auto_config_backbone(
    graph: Graph, config: FullBatchRun, metrics: tuple[str, ...], *, kind: str
) -> Mapping[str, Any]:
    """Return the automatic settings of a backbone."""
    backbone = BACKBONES[kind]
    if config.task == "link":
        structure, whole = config.link.structural_features, config.batching.kind == "full"
        hide = backbone.edges != "unused" and structure and not config.link.disjoint_train_ratio and whole
        chosen = auto_config_links(graph, config, hide=hide) | {"model.num_layers": backbone.link_layers}
        if kind != "gcn":  # measured for GCN alone, on validation of three splits of Cora
            return chosen
        if not structure:
            return chosen | {"model.block": "conv"}
        return chosen | LINK_BLOCK if hide and config.model.jumping_knowledge == "none" else chosen
    stats = graph_stats(graph, config.split)
    name = choose_preset(stats)
    if backbone.edges == "unused" or backbone.initial_residual:  # blocks of its own, or none that reads neighbors
        name = "shallow"
    elif name == "deep" and (not backbone.deep or config.batching.kind == "neighbor"):  # neighborhoods grow, too
        name = "medium"
    chosen = {**PRESETS[name], "loop.epochs": 300, "loop.patience": 60}
    if backbone.edges == "unused":
        chosen["model.dropout"] = 0.5  # an MLP on Cora loses 2.8 points with 0.7
    if backbone.num_layers is not None:
        chosen["model.num_layers"] = backbone.num_layers
    chosen["model.dim"] = _width(stats, chosen["model.num_layers"], kind)
    return {**chosen, **auto_metric(stats, config, metrics)}


def _width(stats: GraphStats, layers: int, kind: str) -> int:
    """Return the largest width whose epoch is expected to stay under `MAX_EPOCH_SECONDS`."""
    backbone = BACKBONES[kind]
    for dim in (128, 64, 32):
        dense = 3 * stats.nodes * dim * (stats.features + layers * backbone.dense_cost * dim)
        sparse = 3 * stats.edges * dim * layers * backbone.edge_cost
        if (dense + sparse) / MULTIPLY_ADDS_PER_SECOND <= MAX_EPOCH_SECONDS:
            break
    return dim


NODES, EDGES = 6, ((0, 1, 2, 3, 1), (1, 0, 1, 2, 4))  # of the made graph that a program is traced with


def export_spec(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    return graph_spec(task, _network_spec, _tensors, lambda model, source: model(*to_model(_full_graph(source), model)))


def _tensors(source: NodeBatches[Any]) -> dict[str, Tensor | None]:
    x, graph = _full_graph(source)
    edges = graph.edge_index()
    weight = torch.ones(edges.shape[1]) if graph.weight is None else graph.weight
    return {"x": x, "edge_index": edges, "edge_weight": weight, "edge_attr": graph.edge_attr}


def _full_graph(source: NodeBatches[Any]) -> tuple[Tensor, Adjacency]:
    if isinstance(source, FullGraph):
        return source.inputs[0], source.inputs[1]
    assert isinstance(source, Subgraphs)
    assert source.graph is not None
    return full_graph(source.graph)


def _network_spec(model: nn.Module) -> ExportSpec:
    if not isinstance(model, Backbone):
        raise ConfigError(f"{type(model).__name__} is not a backbone and has no program over a list of edges")
    if BACKBONES[model.kind].edges == "relations":
        raise ConfigError(
            f"{model.kind} cannot be exported: it chooses the edges of each relation in turn. Train gat, gin or pna, "
            "which read relations as edge features"
        )
    like, count = next(model.parameters()), len(EDGES[0])
    width, ports = model.in_dim, []

    def add(name: str, example: Tensor, meaning: str, *axes: str) -> None:
        ports.append(Port(name=name, meaning=meaning, axes=axes, example=example))

    add("x", torch.randn(NODES, width).to(like), f"{width} features of each node, scaled as in training", "node", "")
    backbone = BACKBONES[model.kind]
    if backbone.edges != "unused":
        meaning = "int64 node rows, those that send above those that receive; both directions where flow is both"
        add("edge_index", torch.tensor(EDGES), meaning, "", "edge")
    if backbone.edges == "weights":
        add("edge_weight", torch.rand(count).to(like) + 0.5, "weight of each edge, 1 where the graph has none", "edge")
    elif model.edge_dim:
        meaning = f"{model.edge_dim} features of each edge, scaled as in training"
        add("edge_attr", torch.randn(count, model.edge_dim).to(like), meaning, "edge", "")
    return ExportSpec(
        module=Program(model, ports, _call),
        inputs=tuple(ports),
        outputs=(rows_port("node"),),
        preprocessing="the whole graph, or every node within as many hops as the model has layers of those asked for, "
        "with all edges among them and their neighbors; edges as edges.flow, read.undirected and read.self_loops left "
        "them",
    )


def _call(model: Backbone, given: Tensors) -> Tensor:
    x, edges = given["x"], given.get("edge_index", torch.zeros(2, 0, dtype=torch.int64))  # a perceptron has no edges
    return model(x, EdgeList(edges, x.shape[0], given.get("edge_weight"), given.get("edge_attr")))


def with_partitioner(config: Batching, context: Context, loop: LoopConfig) -> Batching:
    """Return settings with the partitioner of the run's clusters in place of "auto", and note it for data.json.

    A new run takes the first that is installed; a run that is resumed or applied keeps its own.
    """
    if config.kind not in NODE_SETS or config.nodes != "clusters":
        return config
    chosen: Any = config.partitioner
    if chosen == "auto":
        known = context.begun()
        chosen = first_installed() if known is None else known.get("partitioner")
        if not isinstance(chosen, str) or chosen not in NAMES:
            raise CheckpointError(f"{context.run}: data.json gives the partitioner as {shorten(chosen)!r}; train again")
        if context.trained is None:
            better = " or ".join(f"hopstate[{how}]" for how in MODULES)
            more = f"; {better} cuts fewer edges" if chosen == "bisection" and known is None else ""
            note(loop, f"note: clusters by {NAMES[chosen]}{more}")
    context.noted["partitioner"] = chosen
    return replace(config, partitioner=chosen)


@dataclass(frozen=True, kw_only=True)
class FullBatchRun(NodeRun):
    """Configuration of a backbone's run.

    Args:
        edges: direction of messages, edge weights and edge features.
        model: layers, width, dropout.
        batching: whole graph or batches, and how they are cut.
    """

    edges: EdgeConfig = field(default_factory=EdgeConfig)
    model: BackboneConfig = field(default_factory=BackboneConfig)
    batching: Batching = field(default_factory=Batching)
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=1000, patience=200, optim=OptimConfig(lr=1e-3, weight_decay=0.0))
    )


def build(graph: Graph, config: FullBatchRun, context: Context, *, kind: str) -> NodeTask[Any] | StaticLinkTask:
    """Return the task of training a backbone: on the whole graph in one step an epoch, or on batches of it."""
    if BACKBONES[kind].edges != "unused" and config.loop.precision.endswith("mixed"):
        raise ConfigError(
            f"{kind} sums neighbors in 32 or 64 bits; got loop.precision={config.loop.precision}. Set it to 32; "
            f"loop.matmul_precision=medium multiplies faster on processors and GPUs with matrix units"
        )
    if config.task == "link" and config.batching.train_only:
        raise ConfigError("batching.train_only leaves out nodes of other splits, and task=link splits links")
    return graph_task(graph, config, context, partial(network, config=config, kind=kind))


def network(
    graph: Graph, context: Context, labels: NodeLabels, width: int, *, config: FullBatchRun, kind: str
) -> NodeNetwork:
    """Return a backbone with outputs of a width, and what feeds it."""
    graph = message_graph(graph, config.edges, BACKBONES[kind].edges, kind, config.loop)
    check_same_edges(graph.name, edge_columns(graph), context.trained)
    model = backbone_for(graph, config.model, kind, width)
    if config.loop.precision == "64":
        model.double()  # before what stands for missing neighbors is made from it
    if config.batching.kind != "full":
        batching = with_partitioner(config.batching, context, config.loop)
        source = batched_source(graph, batching, labels, model, context, seed=config.loop.seed)
        return NodeNetwork(model=model, source=source, dropout=config.model.dropout)
    whole = FullGraph((torch.tensor(graph.x), full_adjacency(graph)), labels)
    return NodeNetwork(model=model, source=whole, dropout=config.model.dropout, full_graph=True)


def reads_edges(config: FullBatchRun, kind: str) -> bool:
    """Return whether a backbone takes columns of edges as features."""
    return BACKBONES[kind].edges == "features" and config.edges.use == "auto" and config.edges.weight is None


def backbone_for(graph: Graph, config: BackboneConfig, kind: str, num_classes: int) -> Backbone:
    """Return an untrained backbone for a graph of `message_graph`."""
    return Backbone(
        config,
        kind=kind,
        in_dim=graph.num_features,
        num_classes=num_classes,
        degrees=torch.tensor(graph.incoming.count) if BACKBONES[kind].needs_degrees else None,
        edge_dim=edge_columns(graph),
        num_relations=len(graph.relation_names),
    )


SPACE: Space = {  # 1 to 5 layers as in the source; learning rate and dropout are ours: no paper states a space for them
    "model.num_layers": Range(1, 5),
    "loop.optim.lr": Range(3e-5, 3e-2, log=True),
    "model.dropout": [0.0, 0.2, 0.5],
}


def backbone_method(kind: str) -> Method[Graph, FullBatchRun, Any]:
    """Return the method that trains a backbone of `BACKBONES`."""
    return Method(
        kind,
        FullBatchRun,
        partial(build, kind=kind),
        "graph",
        BACKBONES[kind].summary,
        BACKBONES[kind].source,
        reads_edges=partial(reads_edges, kind=kind),
        auto_config=partial(auto_config_backbone, kind=kind),
        automatic=AUTOMATIC,
        baselines=graph_baselines,
        space=SPACE,
        export=export_spec,
        relations=True,
    )


METHODS = {kind: backbone_method(kind) for kind in BACKBONES}
