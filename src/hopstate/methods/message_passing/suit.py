"""Settings of a message-passing backbone that suit a graph, where a user gives none.

Figures: benchmarks/results/2026-11-22-defaults.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopstate.data.graph import Graph
from hopstate.methods.shared.node import NodeRun
from hopstate.methods.shared.suit_nodes import LINKS, Facts, facts, suit_links, suit_metric

RATE = 2e10  # multiply-adds a second of one core, for what an epoch takes
EPOCH = 1.0  # seconds that an epoch of the whole graph may take
DENSE = {"sage": 4, "pna": 17}  # square products of a layer, where they are not 3


AUTOMATIC = ("model.num_layers", "model.block", "metric", *LINKS)


def suit_backbone(graph: Graph, config: NodeRun, metrics: tuple[str, ...], *, kind: str) -> Mapping[str, Any]:
    if config.task == "link":
        layers = 8 if kind == "gcnii" else 2
        whole = config.batching.kind == "full"  # type: ignore[attr-defined]
        hide = kind != "mlp" and config.link.structure and not config.link.disjoint and whole
        # chosen on validation of three splits of Cora; other backbones and batches are not measured
        block = {}
        if kind == "gcn" and hide and config.model.jump == "none":  # type: ignore[attr-defined]
            block = {"model.block": "convolutions"}
        elif kind == "gcn" and not config.link.structure:
            block = {"model.block": "plain"}
        return suit_links(graph, config, hide=hide) | {"model.num_layers": layers, **block}
    f = facts(graph, config.split)
    layers = 2 if f.alike or kind == "mlp" else 5
    if kind == "gcnii":
        layers = 8
    chosen: dict[str, Any] = {
        "model.num_layers": layers,
        "model.dropout": 0.5 if f.wide else 0.2,
        "model.dim": _width(f, layers, kind),
        "loop.optim.lr": 3e-3,
        "loop.epochs": 300,
        "loop.patience": 60,
    }
    return {**chosen, **suit_metric(f, config, metrics)}


def _width(f: Facts, layers: int, kind: str) -> int:
    each = {"mlp": 0, "pna": 12}.get(kind, 4)  # multiply-adds an entry of the adjacency
    for dim in (128, 64, 32):
        dense = 3 * f.nodes * dim * (f.features + layers * DENSE.get(kind, 3) * dim)
        if (dense + 3 * layers * f.edges * dim * each) / RATE <= EPOCH:
            return dim
    return 32
