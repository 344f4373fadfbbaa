"""A graph as a list of edges, in operations that every program format has: what exported programs pass messages over.

The sums over neighbours are written as gathers and scatters over the list, the same sums as `layers.message.Adjacency`
makes of a sparse matrix.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
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
        from torch_geometric.nn import GCN2Conv, GCNConv, GINConv, SAGEConv

        if normalization == "edges":
            carried = {} if self.attr is None else {"edge_attr": self.attr}
            return conv(*nodes, self.edge_index, **carried)
        if isinstance(conv, GCNConv):
            return F.linear(self._symmetric(nodes[0]), conv.lin.weight, conv.bias)
        if isinstance(conv, SAGEConv):
            return conv.lin_l(self._mean(nodes[0])) + conv.lin_r(nodes[0])
        if isinstance(conv, GINConv):
            return conv.nn(self._sum(nodes[0]) + (1 + conv.eps) * nodes[0])
        if not isinstance(conv, GCN2Conv):
            raise ConfigError(f"{type(conv).__name__} has no form over a list of edges")
        x, first = (1 - conv.alpha) * self._symmetric(nodes[0]), conv.alpha * nodes[1]
        mixed = (x + first) @ conv.weight1 if conv.weight2 is None else x @ conv.weight1 + first @ conv.weight2
        return (1 - conv.beta) * (x + first) + conv.beta * mixed

    def _sum(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        sender, receiver = self.edge_index[0], self.edge_index[1]
        sent = x[sender] if weight is None else x[sender] * weight[:, None]
        return x.new_zeros(self.num_nodes, x.shape[1]).index_add(0, receiver, sent)

    def _mean(self, x: Tensor) -> Tensor:
        ones = x.new_ones(self.edge_index.shape[1])
        degree = x.new_zeros(self.num_nodes).index_add(0, self.edge_index[1], ones)
        return self._sum(x) / degree.clamp(min=1)[:, None]

    def _symmetric(self, x: Tensor) -> Tensor:
        weight = x.new_ones(self.edge_index.shape[1]) if self.weight is None else self.weight
        degree = x.new_zeros(self.num_nodes).index_add(0, self.edge_index[1], weight) + 1
        scale = degree.rsqrt()
        edge = weight * scale[self.edge_index[0]] * scale[self.edge_index[1]]
        return self._sum(x, edge) + x / degree[:, None]

    def gated_mean(self, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None) -> Tensor:
        """Return (N, d); see `ops.gated.gated_mean`, c in the order of the list."""
        sender, receiver = self.edge_index[0], self.edge_index[1]
        gate = a[receiver] + b[sender]
        gate = torch.sigmoid(gate if c is None else gate + c)
        top = torch.zeros_like(v).index_add(0, receiver, gate * v[sender])
        return top / (torch.zeros_like(v).index_add(0, receiver, gate) + EPS)


__all__ = ["EdgeList"]
