"""GCN, GraphSAGE, GIN and GCNII on sparse products, GAT and PNA on compiled sums (torch-geometric's, faster), and RGCN.

`Hetero` has a convolution per relation. Parameters and results for edge lists equal torch-geometric's. Imported on
first use.

Source: Veličković et al. 2018, arXiv:1710.10903 (GAT); Corso et al. 2020, arXiv:2004.05718 (PNA); Schlichtkrull et al.
2018, arXiv:1703.06103 (RGCN).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import (
    GATConv,
    GCN2Conv,
    GCNConv,
    GINConv,
    HeteroConv,
    MessagePassing,
    PNAConv,
    RGCNConv,
    SAGEConv,
)

from hopstate.layers.message import Adjacency
from hopstate.ops.edge_attention import edge_attention
from hopstate.ops.neighbor_statistics import neighbor_statistics

AGGREGATORS, SCALERS = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]


_transposed = WeakTensorKeyDictionary()  # CSR matrix → its transposed CSR matrix


class SparseProduct(torch.autograd.Function):
    """matrix @ x. Unlike torch.sparse.mm, the backward pass transposes a matrix only once."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
        ctx.matrix = matrix
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        if ctx.matrix not in _transposed:
            _transposed[ctx.matrix] = ctx.matrix.t().to_sparse_csr()
        return None, torch.sparse.mm(_transposed[ctx.matrix], grad)

    @staticmethod
    def jvp(ctx: Any, _: None, x: Tensor) -> Tensor:  # type: ignore[override]
        return torch.sparse.mm(ctx.matrix, x)


class _Explainable:
    """Layers that torch-geometric's explainers can mask even after a layer of the parent class was built.

    Building a layer replaces `propagate` of its class by a version without masks, which subclasses would inherit.
    """

    propagate = MessagePassing.propagate
    edge_updater = MessagePassing.edge_updater


class _SparseSum(_Explainable):
    """Layers that sum neighbors with a CSR matrix of weights."""

    def message_and_aggregate(self, edge_index: Tensor, x: Any) -> Tensor:
        product: Tensor = SparseProduct.apply(edge_index, x if isinstance(x, Tensor) else x[0])
        return product


class GCN(_SparseSum, GCNConv):
    """`GCNConv` with `SparseProduct`."""


class SAGE(_SparseSum, SAGEConv):
    """`SAGEConv` with `SparseProduct`."""


class GIN(_SparseSum, GINConv):
    """`GINConv` with `SparseProduct`."""


class GCNII(_SparseSum, GCN2Conv):
    """`GCN2Conv` with `SparseProduct`."""


class GAT(_Explainable, GATConv):
    """Multi-head attention over in-neighbors and the node itself, with concatenated heads.

    `takes_graph` marks that it accepts a graph without edge features instead of an edge list.

    Args:
        in_dim: input width.
        dim: output width, a multiple of heads.
        heads: number of attention heads.
        edge_dim: number of edge features, or None.
    """

    takes_graph = True

    def __init__(self, in_dim: int, dim: int, heads: int, *, edge_dim: int | None = None) -> None:
        super().__init__(in_dim, dim // heads, heads, edge_dim=edge_dim)

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, *args: Any, **kwargs: Any) -> Any:
        """Return (N, dim) for an edge list as in torch-geometric, or (R, dim) for a graph without edge features."""
        if isinstance(edge_index, Adjacency):
            return self._receive(x, edge_index)
        return super().forward(x, edge_index, *args, **kwargs)

    def _receive(self, h: Tensor, graph: Adjacency) -> Tensor:
        values = self.lin(h).view(len(h), self.heads, self.out_channels)
        a, b = ((values * side).sum(-1) for side in (self.att_dst, self.att_src))
        out = edge_attention(graph.indptr, graph.indices, graph.receiver_ids(), a, b, values, self.negative_slope)
        return out.flatten(1) + self.bias


class PNA(_Explainable, PNAConv):
    """Mean, minimum, maximum and standard deviation of messages, each unscaled, amplified and attenuated by degree.

    `takes_graph`: see `GAT`.

    Args:
        in_dim: input width.
        dim: output width.
        degrees: (D,) histogram of in-degrees in the training graph.
        edge_dim: number of edge features, or None.
    """

    takes_graph = True

    def __init__(self, in_dim: int, dim: int, degrees: Tensor, *, edge_dim: int | None = None) -> None:
        if not bool(degrees[1:].any()):
            degrees = torch.tensor([0, 1])  # without edges the mean of log(degree + 1) is 0, and it divides
        super().__init__(in_dim, dim, AGGREGATORS, SCALERS, degrees, edge_dim=edge_dim)

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_attr: Tensor | None = None) -> Tensor:
        """Return (N, dim) for an edge list as in torch-geometric, or (R, dim) for a graph without edge features."""
        if isinstance(edge_index, Adjacency):
            return self._receive(x, edge_index)
        return super().forward(x, edge_index, edge_attr)

    def _receive(self, h: Tensor, graph: Adjacency) -> Tensor:
        """Return the aggregated messages.

        A message p_i + q_j is linear in both nodes. Therefore p_i shifts the aggregates of q_j, except the standard
        deviation.
        """
        receivers, dim = graph.receiver_rows(h), h.shape[1]
        pre, post = self.pre_nns[0][0], self.post_nns[0][0]
        weight_to, weight_from = pre.weight.split(dim, 1)
        *aggregates, deviation = neighbor_statistics(graph.indptr, graph.indices, F.linear(h, weight_from))
        counts = graph.indptr.diff()[:, None]
        shift = torch.where(counts > 0, F.linear(receivers, weight_to, pre.bias), 0)
        aggregated = torch.cat([*(aggregate + shift for aggregate in aggregates), deviation], 1)
        factor = (counts + 1).to(h.dtype).log() / self.aggr_module.avg_deg_log
        first, *weights = post.weight.split([dim, *[4 * dim] * len(SCALERS)], 1)
        identity, amplified, attenuated = (F.linear(aggregated, weight) for weight in weights)
        damping = (counts.clamp(min=1) + 1).to(h.dtype).log() / self.aggr_module.avg_deg_log
        return self.lin(F.linear(receivers, first, post.bias) + identity + amplified * factor + attenuated / damping)


class RGCN(_Explainable, RGCNConv):
    """W_0 h_i + sum_r mean_j W_r h_j over the in-neighbors j of relation r, whose number is the one edge feature.

    Args:
        in_dim, out_dim: widths.
        num_relations: relations.
        num_bases: basis matrices that the relations combine; None for a matrix of each relation's own.
    """

    edge_dim = 1

    def __init__(self, in_dim: int, out_dim: int, num_relations: int, *, num_bases: int | None = None) -> None:
        super().__init__(in_dim, out_dim, num_relations, num_bases=num_bases)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return (N, out_dim) of x (N, in_dim), edges (2, E) and their relations (E, 1)."""
        return super().forward(x, edge_index, edge_attr[:, 0].long())


class Hetero(HeteroConv):
    """sum_r conv_r(h) over the in-neighbors of relation r, whose number is the one edge feature.

    Args:
        convs: a layer for each relation.
    """

    edge_dim = 1

    def __init__(self, convs: Iterable[nn.Module]) -> None:
        super().__init__({("node", str(r), "node"): conv for r, conv in enumerate(convs)}, aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return (N, out_dim) of x (N, in_dim), edges (2, E) and their relations (E, 1)."""
        relation = edge_attr[:, 0].long()
        edges = {key: edge_index[:, relation == r] for r, key in enumerate(self.convs.keys())}
        out: Tensor = super().forward({"node": x}, edges)["node"]
        return out


__all__ = ["GAT", "GCN", "GCNII", "GIN", "PNA", "RGCN", "SAGE", "Hetero"]
