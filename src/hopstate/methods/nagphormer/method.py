"""NAGphormer on a user's graph: Laplacian eigenvectors, Hop2Token once, then mini-batches of nodes.

Source: Chen et al., ICLR 2023, arXiv:2206.04910; settings of its Appendix D.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, check_range
from hopstate.io.opening import parse_bytes
from hopstate.methods.method import Context, Method, Range, Space
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.methods.shared.baselines import graph_baselines
from hopstate.methods.shared.node import (
    LINK_SETTINGS,
    EdgeConfig,
    NodeNetwork,
    NodeRun,
    auto_config_links,
    auto_metric,
    graph_stats,
    graph_task,
    message_graph,
)
from hopstate.methods.shared.programs import ExportSpec, Port, graph_spec, rows_port
from hopstate.tokens.encodings import laplacian_encoding
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.tasks.node import NodeBatches, NodeLabels, NodeTask, RowBatches
from hopstate.training.tasks.static_link import StaticLinkTask

__all__ = ["METHODS", "HopTokensConfig", "NAGphormerRun", "build"]

AUTOMATIC = ("tokens.num_hops", "tokens.eigenvectors", "batch_size", "metric", *LINK_SETTINGS)


def auto_config_nagphormer(graph: Graph, config: NodeRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    if config.task == "link":
        return auto_config_links(graph, config) | {"tokens.num_hops": 3, "tokens.eigenvectors": 0}
    stats = graph_stats(graph, config.split)
    chosen: dict[str, Any] = {
        "model.dim": 128,
        "model.dropout": 0.5 if stats.is_high_dimensional else 0.1,
        "tokens.num_hops": 3,
        "tokens.eigenvectors": 0,
        # with many features a few steps overfit: fewer steps per epoch let validation choose among more of them
        "batch_size": int(np.clip(stats.train // (2 if stats.is_high_dimensional else 8), 64, 2000)),
        "loop.epochs": 80,
        "loop.patience": 20,
    }
    return {**chosen, **auto_metric(stats, config, metrics)}


SAMPLE = 1000  # nodes that a check queries


@dataclass(frozen=True, kw_only=True)
class HopTokensConfig:
    """Settings of Hop2Token.

    Args:
        num_hops: K. A node has K + 1 tokens.
        eigenvectors: s, number of Laplacian eigenvectors added to the features.
        max_memory: tokens larger than this are stored on disk ("2GiB", "500MB", or bytes).
    """

    num_hops: int = 10
    eigenvectors: int = 15
    max_memory: str = "2GiB"

    def __post_init__(self) -> None:
        check_range("tokens.", minimum=0, num_hops=self.num_hops, eigenvectors=self.eigenvectors)
        parse_bytes(self.max_memory)


@dataclass(frozen=True, kw_only=True)
class NAGphormerRun(NodeRun):
    """Configuration of a NAGphormer run.

    Args:
        edges: direction of hop averages, and edge weights.
        tokens: settings of Hop2Token.
        model: the transformer over hops.
        batch_size: nodes per step.
    """

    edges: EdgeConfig = field(default_factory=EdgeConfig)
    tokens: HopTokensConfig = field(default_factory=HopTokensConfig)
    model: NAGphormer.Config = field(default_factory=NAGphormer.Config)
    batch_size: int = 2000
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=500, patience=50, optim=OptimConfig(lr=1e-3, weight_decay=1e-5))
    )


def build(graph: Graph, config: NAGphormerRun, context: Context) -> NodeTask[Any] | StaticLinkTask:
    return graph_task(graph, config, context, partial(network, config=config))


def network(graph: Graph, context: Context, labels: NodeLabels, width: int, *, config: NAGphormerRun) -> NodeNetwork:
    graph = message_graph(graph, config.edges, "weights", "nagphormer", config.loop)
    eigenvectors = config.tokens.eigenvectors
    extra = laplacian_encoding(graph, eigenvectors, context.cache) if eigenvectors else None
    tokens = hop_tokens(
        graph,
        config.tokens.num_hops,
        extra=extra,
        max_memory=parse_bytes(config.tokens.max_memory),
        folder=context.run / "tokens",
    )
    in_dim, num_hops = tokens.array.shape[2], config.tokens.num_hops
    model = NAGphormer(config.model, in_dim=in_dim, num_classes=width, num_hops=num_hops)
    source = RowBatches(tokens.rows, labels, batch_size=config.batch_size, seed=config.loop.seed)
    return NodeNetwork(model=model, source=source, dropout=config.model.dropout)


def export_spec(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    """Return the export of a trained task: hop tokens (and pairs of nodes) → outputs."""

    def tokens(source: NodeBatches[Any], rows: np.ndarray | None = None) -> dict[str, Tensor | None]:
        assert isinstance(source, RowBatches)
        return {"tokens": source.inputs(np.arange(len(source.labels.y)) if rows is None else rows)}

    def vectors(model: nn.Module, source: NodeBatches[Any]) -> Tensor:
        return source.logits(model, np.arange(len(source.labels.y))).to(next(model.parameters()))

    spec = graph_spec(task, _network_spec, tokens, vectors)
    if isinstance(task, StaticLinkTask):
        return spec
    return replace(
        spec,
        fill=lambda rows: tokens(task.source, rows),
        reference=lambda rows: task.source.logits(task.model, rows),
        sample=np.arange(min(SAMPLE, len(task.source.labels.y))),
    )


def _network_spec(model: nn.Module) -> ExportSpec:
    if not isinstance(model, NAGphormer):
        raise ConfigError(f"{type(model).__name__} is not a NAGphormer, so it cannot be exported")
    shape = 3, model.num_hops + 1, model.in_dim
    meaning = f"hop averages of each node, hop 0 first: {shape[1]} tokens of {shape[2]} features"
    example = torch.randn(shape).to(next(model.parameters()))
    return ExportSpec(
        module=model,
        inputs=(Port(name="tokens", meaning=meaning, axes=("node", "", ""), example=example),),
        outputs=(rows_port("node"),),
        preprocessing=(
            "tokens[v, k] = (A_hat^k X)[v], A_hat the graph's (D+I)^-1/2 (A+I) (D+I)^-1/2 and X its features, scaled "
            "as in training, followed by Laplacian eigenvectors if tokens.eigenvectors is above 0: "
            "hopstate.export_inputs(RUN) gives them for the run's own nodes"
        ),
    )


# search space of the paper, appendix D.2
SPACE: Space = {
    "model.num_layers": Range(1, 5),
    "model.dim": [128, 256, 512],
    "tokens.num_hops": Range(2, 20),
    "loop.optim.lr": [1e-3, 5e-3, 1e-4],
    "loop.optim.weight_decay": [1e-4, 5e-4, 1e-5],
    "model.dropout": [0.1, 0.3, 0.5],
}

METHODS = {
    "nagphormer": Method(
        "nagphormer",
        NAGphormerRun,
        build,
        "graph",
        "a transformer over hops, in mini-batches of nodes",
        "arXiv:2206.04910",
        auto_config=auto_config_nagphormer,
        automatic=AUTOMATIC,
        baselines=graph_baselines,
        space=SPACE,
        export=export_spec,
        relations=True,
    )
}
