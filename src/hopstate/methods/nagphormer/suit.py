"""Settings of NAGphormer that suit a graph, where a user gives none.

Figures: benchmarks/results/2026-11-22-defaults.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.methods.shared.node import NodeRun
from hopstate.methods.shared.suit_nodes import LINKS, facts, suit_links, suit_metric

AUTOMATIC = ("tokens.num_hops", "tokens.eigenvectors", "batch_size", "metric", *LINKS)


def suit_nagphormer(graph: Graph, config: NodeRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    if config.task == "link":
        return suit_links(graph, config) | {"tokens.num_hops": 3, "tokens.eigenvectors": 0}
    f = facts(graph, config.split)
    chosen: dict[str, Any] = {
        "model.dim": 128,
        "model.dropout": 0.5 if f.wide else 0.1,
        "tokens.num_hops": 3,
        "tokens.eigenvectors": 0,
        "batch_size": int(np.clip(f.train // 8, 64, 2000)),
        "loop.epochs": 80,
        "loop.patience": 20,
    }
    return {**chosen, **suit_metric(f, config, metrics)}
