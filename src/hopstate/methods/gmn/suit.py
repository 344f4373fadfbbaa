"""Settings of a Graph Mamba Network that suit a graph, where a user gives none.

Figures: benchmarks/results/2026-11-22-defaults.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopstate.data.graph import Graph
from hopstate.methods.shared.node import NodeRun
from hopstate.methods.shared.suit_nodes import LINKS, MANY, facts, suit_links, suit_metric

AUTOMATIC = (
    "walks.max_length",
    "walks.repeats",
    "walks.walks",
    "encoding.kind",
    "model.mpnn_layers",
    "model.expand",
    "model.state_dim",
    "model.input_dropout",
    "loop.optim.schedule",
    "loop.optim.warmup",
    "metric",
    *LINKS,
)


def suit_gmn(graph: Graph, config: NodeRun, metrics: tuple[str, ...], *, gps: bool = False) -> Mapping[str, Any]:
    """Return settings of a Graph Mamba Network that suit a graph; walks and batches fit themselves to the memory.

    Args:
        graph, config, metrics: as of every method.
        gps: whether layers that pass messages have a scan over the nodes each.
    """
    if config.task == "link":
        small = {"walks.max_length": 1, "walks.repeats": 1, "walks.walks": 4, "encoding.kind": "rwse"}
        layers = {} if gps else {"model.mpnn_layers": 2}
        return suit_links(graph, config) | small | layers | {"model.dim": 64, "model.expand": 1.0, "model.state_dim": 8}
    f = facts(graph, config.split)
    chosen: dict[str, Any] = {
        "walks.max_length": 1,
        "walks.repeats": 1,
        "walks.walks": 4,
        "encoding.kind": "rwse",
        "model.dim": 64 if f.alike else 40,
        "model.mpnn_layers": 2 if f.alike else 14,
        "model.expand": 1.0,
        "model.state_dim": 8,
        "model.dropout": 0.5 if f.wide else 0.3,
        "model.input_dropout": 0.5 if f.wide and f.features >= MANY else 0.0,
        "loop.epochs": 80,
        "loop.patience": None,
        "loop.eval_every": 2,
        "loop.optim.lr": 0.003 if f.wide else 0.01,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }
    if gps:
        del chosen["model.mpnn_layers"]
    return {**chosen, **suit_metric(f, config, metrics)}
