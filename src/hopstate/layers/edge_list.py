"""A graph as a list of edges, in operations that every program format has: what exported programs pass messages over.

Messages go through torch-geometric's own layers, which its explainers look into, and are the same sums as those that
`layers.message.Adjacency` makes of a sparse matrix.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hopstate.layers.message import Normalization
from hopstate.ops.gated.gated import EPS


class EdgeList:
    """A `Propagator` over a list of edges, in operations that every program format has.

    Args:
        edge_index: (2, E) int64 senders above receivers.
        num_nodes: N.
        weight: (E,) weights of the edges, for layers that have a place for them; None where all weigh 1.
        attr: (E, D) features of the edges, likewise.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        weight: Tensor | None = None,
        attr: Tensor | None = None,
    ) -> None:
        self.edge_index, self.num_nodes, self.weight, self.attr = edge_index, num_nodes, weight, attr

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return a layer's output (N, F') at all nodes; see `Adjacency.propagate`."""
        if normalization == "symmetric":
            from torch_geometric.nn.conv.gcn_conv import gcn_norm

            edges, weight = gcn_norm(self.edge_index, self.weight, self.num_nodes, dtype=nodes[0].dtype)
            return conv(*nodes, edges, weight)
        if normalization == "mean":  # SAGEConv, which sums here
            ones = nodes[0].new_ones(self.edge_index.shape[1])
            degree = nodes[0].new_zeros(self.num_nodes).index_add(0, self.edge_index[1], ones)
            sage: Any = conv
            total = sage.propagate(self.edge_index, x=(nodes[0], nodes[0]), size=None)
            return sage.lin_l(total / degree.clamp(min=1)[:, None]) + sage.lin_r(nodes[0])
        return conv(*nodes, self.edge_index, **({} if self.attr is None else {"edge_attr": self.attr}))

    def gated_mean(self, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None) -> Tensor:
        """Return (N, d); see `ops.gated.gated_mean`, c in the order of the list."""
        sender, receiver = self.edge_index[0], self.edge_index[1]
        gate = a[receiver] + b[sender]
        gate = torch.sigmoid(gate if c is None else gate + c)
        sent = gate * v[sender]
        if (mask := getattr(self.edge_index, "message_mask", None)) is not None:  # of an explainer
            sent = sent * mask[:, None]
        top = torch.zeros_like(v).index_add(0, receiver, sent)
        return top / (torch.zeros_like(v).index_add(0, receiver, gate) + EPS)


__all__ = ["EdgeList"]
