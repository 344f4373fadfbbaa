"""The methods that a plan is made for: their settings, the stages of a run, and what each stage's costs grow with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHARE, JUDGED = 0.5, 0.01  # of a graph's nodes that train, and that validate, where it is measured
BATCH = 50_000  # nodes of a batch of TOP
HOPS = 3
BUDGET = 512  # bytes of --tokens.memory_budget a node: hops are made 16 features, a cache line, at a time


@dataclass(frozen=True)
class MethodPlan:
    """What is known of a method's costs before it is measured.

    Args:
        stages: stage → what its processor time grows with, of `hopstate.runs.plan.cost.TERMS`.
        settings: with which it is measured and planned, by dotted name.
        memory: stage → what its memory grows with, where that is not what it grows with for most.
        events: it reads events; their number stands for edges.
        few: where it is measured few of validation's events are judged, as no model must be shown those between them.
        whole: it is made at once rather than in epochs.
        tokens: it keeps tokens of all nodes.
        batches: it draws batches of about `BATCH` nodes from clusters.
    """

    stages: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    events: bool = False
    few: bool = False
    whole: bool = False
    tokens: bool = False
    batches: bool = False

    def disk(self, stage: str, nodes: float, edges: float, features: float) -> float:
        """Return bytes that a stage leaves on disk: of "read" the store that `hopstate prepare` makes."""
        if stage == "read":
            return 24 * edges + 4 * edges * features if self.events else 8 * (edges + 2 * nodes) + 4 * nodes * features
        return 4 * (HOPS + 1) * nodes * features if stage == "prepare" and self.tokens else 0.0

    def at(self, nodes: int) -> dict[str, Any]:
        """Return the settings for a number of nodes."""
        if self.tokens:
            return {**self.settings, "tokens.memory_budget": BUDGET * nodes}
        if not self.batches:
            return dict(self.settings)
        clusters = max(20, 10 * nodes // BATCH)
        return {**self.settings, "batching.num_clusters": clusters, "batching.clusters_per_batch": 10}


_QUIET = {"loop.tensorboard": "no", "loop.device": "cpu"}
_SPLIT = {"split.kind": "random", "split.fractions": [SHARE, JUDGED, JUDGED]}
_ROWS = ("nodes", "values")
_GRAPH = ("edges", "far_edges", "values")
_EVENTS = ("edges", "messages")
_READ = {"read": (*_EVENTS, "nodes"), "prepare": (*_EVENTS, "nodes")}
_JUDGED = ("judged", "judged_messages")
_LOOKED_UP = {**_READ, "epoch": ("trained", "trained_messages"), "inference": _JUDGED}

PLANS: dict[str, MethodPlan] = {
    "nagphormer": MethodPlan(
        {"read": _GRAPH, "prepare": ("messages", "far_messages", "values"), "epoch": _ROWS, "inference": _ROWS},
        {"tokens.num_hops": HOPS, "tokens.eigenvectors": 0, **_SPLIT, **_QUIET},
        tokens=True,
    ),
    "gcn": MethodPlan(
        {"read": _GRAPH, "prepare": _GRAPH, "epoch": _GRAPH, "inference": _GRAPH},
        {
            "batching.kind": "top",
            "model.dim": 64,
            "model.num_layers": 2,
            **_SPLIT,
            **_QUIET,
        },
        batches=True,
    ),
    "graphmixer": MethodPlan(_LOOKED_UP, _QUIET, events=True, few=True),
    "dyg-mamba": MethodPlan(_LOOKED_UP, _QUIET, events=True, few=True),
    "ctdg-ssm": MethodPlan({**_READ, "epoch": _EVENTS, "inference": _EVENTS}, _QUIET, events=True),
    "pair-trees": MethodPlan(  # bins of a fixed number; the pairs of all events are numbered
        {**_READ, "epoch": ("one", "grown", "edges"), "inference": ("one", "judged", "far_judged")},
        _QUIET,
        memory={"epoch": ("one", "grown", "edges")},
        events=True,
        whole=True,
    ),
}
