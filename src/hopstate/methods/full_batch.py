"""Whole-graph baselines beside every result: MLP, GCN and GraphSAGE with residual connections and LayerNorm.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (5 layers, residual, LayerNorm).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch

from hopstate.data.graph import Graph
from hopstate.methods.base import Context, Method, ReadOptions, SplitConfig
from hopstate.methods.node import check_width, node_labels
from hopstate.models.backbones import Adjacency, Backbone, BackboneConfig
from hopstate.training.loop import LoopConfig
from hopstate.training.node_task import FullGraphTask
from hopstate.training.optim import OptimConfig


@dataclass(frozen=True, kw_only=True)
class FullBatchRun:
    """Configuration of a whole-graph run.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`).
        read: how a file is read.
        split: which nodes are for training, validation and test.
        model: layers, width, dropout.
        metric: what chooses the model: "auto" takes the data set's own, else accuracy.
        loop: training.
    """

    data: str
    read: ReadOptions = field(default_factory=ReadOptions)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: BackboneConfig = field(default_factory=BackboneConfig)
    metric: str = "auto"
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=1000, patience=200, optim=OptimConfig(lr=1e-3, weight_decay=0.0))
    )


def build(graph: Graph, config: FullBatchRun, context: Context, *, kind: str) -> FullGraphTask:
    """Return the task of training a backbone on the whole graph in one step an epoch."""
    check_width(graph, context)
    labels = node_labels(graph, config.split, config.metric, context)
    model = Backbone(config.model, kind=kind, in_dim=graph.num_features, num_classes=len(labels.class_names))
    inputs = (torch.tensor(graph.x), Adjacency.of(graph.indptr, graph.indices))
    return FullGraphTask(model, inputs, labels, seed=config.loop.seed)


_SOURCES = {
    "mlp": ("a perceptron on the features alone", "Platonov et al. 2023"),
    "gcn": ("graph convolutions, residual", "arXiv:1609.02907"),
    "sage": ("GraphSAGE, mean aggregation, residual", "arXiv:1706.02216"),
}
METHODS = {
    kind: Method(kind, FullBatchRun, partial(build, kind=kind), "graph", summary, source)
    for kind, (summary, source) in _SOURCES.items()
}
