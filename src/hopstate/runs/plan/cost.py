"""The cost model: each stage's processor time and memory as a sum of terms with coefficients of at least 0.

A term is a product of sizes (edges, nodes, nodes x features, edges x features), edges times the share of nodes that a
processor's cache has no room for, or events up to the number beyond which a stage takes no more of them. The
coefficients are those of the least squares of relative errors over the measured points, none negative (Lawson & Hanson
1974, through scipy), so that a plan never falls as a size grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CACHE = 8 << 20  # bytes of the processor's that one core may hope for
GROWN = 428_571  # events of which 70% train: trees are grown from no more than their max_events
JUDGED = 6_666_667  # events of which 15% validate: no more than evaluation.max_events are judged
TRAINED = 1_428_571  # events of which 70% train: an epoch from histories takes no more than max_events
ENTRIES = 32  # bytes of an event in the histories of its ends
LINE = 64  # bytes of a cache line, of a row of 16 float32


def missed(rows: float, size: int = LINE) -> float:
    """Return the share of reads of a random row that a cache cannot answer, from 0 to 1 with the rows of that size."""
    return 1.0 - min(1.0, CACHE / (size * rows))


TERMS = {
    "one": lambda nodes, edges, features: 1.0,
    "nodes": lambda nodes, edges, features: nodes,
    "edges": lambda nodes, edges, features: edges,
    "values": lambda nodes, edges, features: nodes * features,
    "messages": lambda nodes, edges, features: edges * features,
    "far_edges": lambda nodes, edges, features: edges * missed(nodes),
    "trained": lambda nodes, edges, features: min(edges, TRAINED),
    "trained_messages": lambda nodes, edges, features: min(edges, TRAINED) * features,
    "grown": lambda nodes, edges, features: min(edges, GROWN),
    "judged": lambda nodes, edges, features: min(edges, JUDGED),
    "far_judged": lambda nodes, edges, features: min(edges, JUDGED) * missed(edges, ENTRIES),
    "judged_messages": lambda nodes, edges, features: min(edges, JUDGED) * features,
    "far_messages": lambda nodes, edges, features: edges * features * missed(nodes),
}
LEAST = 1e-3  # seconds below which a clock tells little


@dataclass(frozen=True)
class Point:
    """A measured point.

    Args:
        method: of the run.
        nodes, edges, features: of the made graph or stream; edges are events there.
        stages: stage → "seconds" of processor time and "memory", peak resident bytes.
        fitted: whether the model is fitted to it; one point is kept to judge the model.
    """

    method: str
    nodes: int
    edges: int
    features: int
    stages: Mapping[str, Mapping[str, float]]
    fitted: bool = True

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Point:
        """Return a point that a file holds."""
        return cls(**{name: told[name] for name in ("method", "nodes", "edges", "features", "stages", "fitted")})

    @property
    def sizes(self) -> tuple[float, float, float]:
        """Nodes, edges, features."""
        return float(self.nodes), float(self.edges), float(self.features)


@dataclass(frozen=True)
class Law:
    """A cost as a sum of terms.

    Args:
        terms: of `TERMS`.
        coefficients: (terms,) at least 0; of "seconds" in seconds, of "memory" in bytes.
    """

    terms: tuple[str, ...]
    coefficients: np.ndarray

    def at(self, nodes: float, edges: float, features: float) -> float:
        """Return the cost at sizes."""
        return float(self.coefficients @ np.array([TERMS[name](nodes, edges, features) for name in self.terms]))


def law(points: Sequence[Point], stage: str, what: str, terms: tuple[str, ...]) -> Law:
    """Return the law of a stage's "seconds" or "memory" that fits the points marked so."""
    from scipy.optimize import nnls

    some = [point for point in points if point.fitted]
    cost = np.array([max(LEAST, point.stages[stage][what]) for point in some])
    table = np.array([[TERMS[name](*point.sizes) for name in terms] for point in some])
    scale = np.where(table.any(0), table.max(0), 1.0)
    found, _ = nnls(table / scale / cost[:, None], np.ones(len(some)))
    return Law(terms, found / scale)
