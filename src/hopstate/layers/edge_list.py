"""A graph as a list of edges, in operations that every program format has: what exported programs pass messages over.

Messages go through torch-geometric's own layers, which its explainers look into, and are the same sums as those that
`layers.message.Adjacency` makes of a sparse matrix.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hopstate.layers.message import Adjacency, Normalization
from hopstate.ops.gated import gated_mean_of_edges


class EdgeList(Adjacency):
    """What a model may ask of an adjacency, over edges in any order; all nodes receive.

    Args:
        edges: (2, E) int64 senders above receivers.
        num_nodes: N.
        weight: (E,) weights of the edges, for layers that have a place for them; None where all weigh 1.
        attr: (E, D) features of the edges, likewise.
    """

    def __init__(self, edges: Tensor, num_nodes: int, weight: Tensor | None = None, attr: Tensor | None = None) -> None:
        self.edges, self.num_nodes, self.weight, self.edge_attr = edges, num_nodes, weight, attr

    def edge_index(self) -> Tensor:
        """Return (2, E) int64: senders above receivers."""
        return self.edges

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return a layer's output (N, F') at all nodes; see `Adjacency.propagate`."""
        if normalization == "symmetric":
            from torch_geometric.nn.conv.gcn_conv import gcn_norm

            edges, weight = gcn_norm(self.edges, self.weight, self.num_nodes, dtype=nodes[0].dtype)
            return conv(*nodes, edges, weight)
        if normalization == "mean":  # SAGEConv, which sums here
            ones = nodes[0].new_ones(self.edges.shape[1])
            degree = nodes[0].new_zeros(self.num_nodes).index_add(0, self.edges[1], ones)
            sage: Any = conv
            total = sage.propagate(self.edges, x=(nodes[0], nodes[0]), size=None)
            return sage.lin_l(total / degree.clamp(min=1)[:, None]) + sage.lin_r(nodes[0])
        return conv(*nodes, self.edges, **({} if self.edge_attr is None else {"edge_attr": self.edge_attr}))

    def gated_mean(
        self, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return (N, d); see `ops.gated.gated_mean`, c in the order of the list."""
        a, b, v = (a, b, v) if rows is None else (a[rows], b[rows], v[rows])
        mask = getattr(self.edges, "message_mask", None)  # of an explainer
        return gated_mean_of_edges(self.edges[1], self.edges[0], a, b, v, c, mask)


__all__ = ["EdgeList"]
