"""What settings that suit a graph follow from, where a user gives none; each method's own are in its package (`suit`).

They follow from sizes, from how alike neighbours are among the training nodes, and from how the classes are shared out;
nothing of validation or test labels is looked at.

Source: Platonov et al. 2023, arXiv:2209.06177 (adjusted homophily).
Figures: benchmarks/results/2026-11-22-defaults.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import HopstateError
from hopstate.methods.method import SplitConfig
from hopstate.methods.shared.node import STEP, NodeRun, split_rows
from hopstate.training.tasks.target import goal_of

ALIKE = 0.3  # adjusted homophily from which neighbours mostly share a class
MANY = 64  # features of which half may be missed
SKEWED = 0.7  # share of the largest class from which accuracy says little
STEPS = 300  # of training on links
HIDDEN = 6  # steps of an epoch at least where a step hides its own links


@dataclass(frozen=True)
class Facts:
    """What settings depend on.

    Args:
        nodes, edges, features: sizes; edges as stored.
        train: training nodes.
        homophily: adjusted, over edges between training nodes; NaN where they say nothing.
        largest: share of the largest class among the training nodes; 0 where there are no classes.
        classes: number of classes; 0 where targets are something else.
    """

    nodes: int
    edges: int
    features: int
    train: int
    homophily: float = float("nan")
    largest: float = 0.0
    classes: int = 0

    @property
    def wide(self) -> bool:
        """Whether there are so many features that they can be learned by heart."""
        return self.features > self.train / 8

    @property
    def alike(self) -> bool:
        """Whether neighbours mostly share a class."""
        return self.homophily >= ALIKE

    @property
    def metric(self) -> str | None:
        """The metric that a skewed data set asks for, or None."""
        return metric_of(self.classes, self.largest)


def metric_of(classes: int, largest: float) -> str | None:
    if classes < 2 or largest < SKEWED:
        return None
    return "roc_auc" if classes == 2 else "macro_f1"


def facts(graph: Graph, split: SplitConfig) -> Facts:
    """Return what automatic settings depend on; without labels or with a split that the build will reject, sizes."""
    sizes = Facts(graph.num_nodes, graph.num_edges, graph.num_features, graph.num_nodes)
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
    """Return (h - sum_c p_c^2) / (1 - sum_c p_c^2), p_c the share of edge ends in class c, h that of edges within one.

    Args:
        graph: N nodes.
        y: (N,) classes; edges with an end of class -1 are left out.

    Returns:
        1 where edges join equal classes alone, about 0 where they do not care; NaN without edges or with one class.
    """
    sources, targets = graph.edge_index()
    a, b = y[sources], y[targets]
    known = (a >= 0) & (b >= 0) & (sources != targets)
    if not known.any():
        return float("nan")
    shares = np.bincount(np.concatenate([a[known], b[known]])) / (2 * known.sum())
    chance = float((shares**2).sum())
    return (float((a[known] == b[known]).mean()) - chance) / (1 - chance) if chance < 1 else float("nan")


def suit_links(graph: Graph, config: NodeRun, *, hide: bool = False) -> dict[str, Any]:
    """Return settings of link prediction: about `STEPS` steps; with hide a step's links are no messages."""
    links = graph.num_edges / (2 if graph.is_undirected else 1) * config.link.fractions[0]
    share = {"link.hide": True, "link.batch_size": int(np.clip(links // HIDDEN + 1, 1, STEP))} if hide else {}
    each = config.link.batch_size or share.get("link.batch_size", STEP)
    epochs = int(np.clip(STEPS // max(1, -(-links // each)), 20, STEPS))
    sparse = links < 8 * graph.num_nodes
    return {
        "model.dropout": 0.5 if sparse and graph.num_features >= MANY else 0.2,
        "model.dim": 128,
        "loop.optim.lr": 3e-3,
        "loop.epochs": epochs,
        "loop.patience": max(5, epochs // 3),
        "loop.eval_every": max(1, epochs // 20),
        **share,
    }


def suit_metric(f: Facts, config: NodeRun, metrics: tuple[str, ...]) -> dict[str, Any]:
    """Return the metric that skewed classes ask for, where neither the data nor the user name one."""
    return {} if metrics or config.metric != "auto" or f.metric is None else {"metric": f.metric}


LINKS = (
    "link.hide",
    "link.batch_size",
    "model.dropout",
    "model.dim",
    "loop.optim.lr",
    "loop.epochs",
    "loop.patience",
    "loop.eval_every",
)
__all__ = ["LINKS", "MANY", "Facts", "adjusted_homophily", "facts", "metric_of", "suit_links", "suit_metric"]
