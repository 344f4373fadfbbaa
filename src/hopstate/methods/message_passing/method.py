"""Message-passing backbones on the whole graph at once, or on batches of it: GCN, GraphSAGE, GIN, GAT, PNA, GCNII, MLP.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (5 layers, residual, LayerNorm); see `model`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.methods.message_passing.batching import Batching, batched_source
from hopstate.methods.message_passing.clusters import with_partitioner
from hopstate.methods.message_passing.model import WITH_EDGES, WITH_WEIGHTS, Backbone, BackboneConfig
from hopstate.methods.message_passing.program import export_spec
from hopstate.methods.message_passing.suit import AUTOMATIC, suit_backbone
from hopstate.methods.method import Context, Method
from hopstate.methods.shared.edges import (
    EdgeConfig,
    Place,
    check_same_edges,
    edge_columns,
    message_graph,
)
from hopstate.methods.shared.floors import graph_run_floors
from hopstate.methods.shared.graph_task import graph_task
from hopstate.methods.shared.network import NodeNetwork
from hopstate.methods.shared.node import NodeRun
from hopstate.methods.space import Range, Space
from hopstate.sampling.adjacency import whole_adjacency
from hopstate.training.config import LoopConfig
from hopstate.training.optim import OptimConfig
from hopstate.training.tasks.node import NodeLabels, NodeTask, WholeGraph
from hopstate.training.tasks.static_link import StaticLinkTask


@dataclass(frozen=True, kw_only=True)
class FullBatchRun(NodeRun):
    """Configuration of a backbone's run.

    Args:
        edges: which way messages flow, and what weights and features of edges are for.
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
    if kind != "mlp" and config.loop.precision.endswith("mixed"):
        raise ConfigError(
            f"{kind} sums neighbours in 32 or 64 bits; got loop.precision={config.loop.precision}. Set it to 32; "
            f"loop.matmul_precision=medium multiplies faster on processors and GPUs with matrix units"
        )
    if config.task == "link" and config.batching.train_only:
        raise ConfigError("batching.train_only leaves out nodes of other splits, and task=link splits links")
    return graph_task(graph, config, context, partial(network, config=config, kind=kind))


def network(
    graph: Graph, context: Context, labels: NodeLabels, width: int, *, config: FullBatchRun, kind: str
) -> NodeNetwork:
    """Return a backbone with outputs of a width, and what feeds it."""
    graph = message_graph(graph, config.edges, place_of(kind), kind, config.loop)
    check_same_edges(graph.name, edge_columns(graph), context.trained)
    model = backbone_for(graph, config.model, kind, width)
    if config.loop.precision == "64":
        model.double()  # before what stands for missing neighbours is made from it
    if config.batching.kind != "full":
        if config.model.block == "convolutions":
            raise ConfigError(
                "model.block=convolutions is for the whole graph (--batching.kind full); take bare in batches"
            )
        batching = with_partitioner(config.batching, context, config.loop)
        source = batched_source(graph, batching, labels, model, context, seed=config.loop.seed)
        return NodeNetwork(model=model, source=source, dropout=config.model.dropout)
    whole = WholeGraph((torch.tensor(graph.x), whole_adjacency(graph)), labels)
    return NodeNetwork(model=model, source=whole, dropout=config.model.dropout, whole=True)


def place_of(kind: str) -> Place:
    if kind == "mlp":
        return "unused"
    return "weights" if kind in WITH_WEIGHTS else "features" if kind in WITH_EDGES else "none"


def reads_edges(config: FullBatchRun, kind: str) -> bool:
    """Return whether a backbone takes columns of edges as features."""
    return place_of(kind) == "features" and config.edges.use == "auto" and config.edges.weight is None


def backbone_for(graph: Graph, config: BackboneConfig, kind: str, num_classes: int) -> Backbone:
    """Return an untrained backbone for a graph of `message_graph`."""
    return Backbone(
        config,
        kind=kind,
        in_dim=graph.num_features,
        num_classes=num_classes,
        degrees=torch.tensor(graph.incoming.count) if kind == "pna" else None,
        edge_dim=edge_columns(graph),
    )


_SOURCES = {
    "mlp": ("a perceptron on the features alone", "Platonov et al. 2023"),
    "gcn": ("graph convolutions, residual", "arXiv:1609.02907"),
    "sage": ("GraphSAGE, mean aggregation, residual", "arXiv:1706.02216"),
    "gin": ("graph isomorphism network, residual", "arXiv:1810.00826"),
    "gat": ("graph attention, residual", "arXiv:1710.10903"),
    "pna": ("principal neighbourhood aggregation, residual", "arXiv:2004.05718"),
    "gcnii": ("deep graph convolutions with initial residual", "arXiv:2007.02133"),
}
SPACE: Space = {  # 1 to 5 layers as in the source; learning rate and dropout are ours: no paper states a space for them
    "model.num_layers": Range(1, 5),
    "loop.optim.lr": Range(3e-5, 3e-2, log=True),
    "model.dropout": [0.0, 0.2, 0.5],
}

METHODS = {
    kind: Method(
        kind,
        FullBatchRun,
        partial(build, kind=kind),
        "graph",
        summary,
        source,
        reads_edges=partial(reads_edges, kind=kind),
        suit=partial(suit_backbone, kind=kind),
        automatic=AUTOMATIC,
        floors=graph_run_floors,
        space=SPACE,
        export=export_spec,
    )
    for kind, (summary, source) in _SOURCES.items()
}
