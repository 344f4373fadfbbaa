"""A graph's edges by the node that receives over them: messages flow from the source of an edge to its target.

Source: torch-geometric's convention, flow="source_to_target"; A_ij = 1 if (j, i) is an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hopstate.data.graph_arrays import GraphArrays


@dataclass(frozen=True, eq=False)
class Incoming:
    """In-edges: row v holds the nodes that v receives from.

    Args:
        indptr: (N+1,) int64.
        indices: (E,) int64 sources, sorted within each row.
        rows: (E,) int64 positions of these edges in the graph's own order; None where edges carry nothing.
        weight: (E,) float32 in this order, or None.
        attr: (E, D) float32 edge features in the graph's own order, or None.
    """

    indptr: np.ndarray
    indices: np.ndarray
    rows: np.ndarray | None = None
    weight: np.ndarray | None = None
    attr: np.ndarray | None = None

    @classmethod
    def of(cls, graph: GraphArrays, *, undirected: bool) -> Incoming:
        """Return a graph's in-edges; those of an undirected graph are its own arrays."""
        from hopstate.data.build_kernels import transposed

        bare = graph.edge_weight is None and graph.edge_attr is None
        if bare and undirected:
            return cls(graph.indptr, graph.indices)
        indptr, indices, rows = transposed(_plain(graph.indptr), _plain(graph.indices), not bare)
        for array in (indptr, indices):
            array.flags.writeable = False
        weight = None if graph.edge_weight is None else graph.edge_weight[rows]
        return cls(indptr, indices, None if bare else rows, weight, graph.edge_attr)

    @cached_property
    def count(self) -> np.ndarray:
        """(N,) int64 number of in-edges."""
        return np.diff(self.indptr)

    @cached_property
    def degree(self) -> np.ndarray:
        """(N,) float32 number of in-edges, or the sum of their weights."""
        if self.weight is None:
            return self.count.astype(np.float32)
        receivers = np.repeat(np.arange(len(self.count)), self.count)
        return np.bincount(receivers, self.weight, len(self.count)).astype(np.float32)

    def attr_of(self, edges: np.ndarray | slice) -> np.ndarray | None:
        """Return (e, D) features of in-edges (positions in this order), or None where there are none."""
        return None if self.attr is None or self.rows is None else np.asarray(self.attr[self.rows[edges]])

    def weight_of(self, edges: np.ndarray | slice) -> np.ndarray | None:
        """Return (e,) weights of in-edges (positions in this order), or None where there are none."""
        return None if self.weight is None else self.weight[edges]


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array as a plain ndarray (a memory map is one, without a copy)."""
    return np.asarray(array).view(np.ndarray)
