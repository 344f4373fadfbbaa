"""Message-passing blocks with normalization and residual connections, and pooling of packed rows.

GatedGCN uses a compiled gated sum; the others are torch-geometric's layers (`edge_layers`).

Source: Dwivedi et al. 2020, arXiv:2003.00982, equations 9-12 (GatedGCN with edge features); Xu et al. 2019 (GIN);
Hu et al. 2020 (GINE); Corso et al. 2020, arXiv:2004.05718 (PNA); Luo et al. 2024, arXiv:2406.08993 (linear residual).
Deviation: without edge features, GatedGCN has no edge states, so that no tensor has one row per edge.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError, nearest
from hopstate.layers.message import Adjacency, Normalization
from hopstate.ops.rows import segment_sum

MessageKind = Literal["gatedgcn", "gcn", "gin", "gine", "pna", "sage"]
READS_EDGES = ("gatedgcn", "gine", "pna")  # kinds with a place for edge features
LINEAR_RESIDUAL = ("gcn", "sage")  # kinds whose blocks add a linear map of their input to the convolution
Pooling = Literal["mean", "sum", "max"]
Reading = Literal["mean", "sum", "max", "all"]
FORMS: dict[str, Normalization] = {"gcn": "symmetric", "sage": "mean", "pna": "edges"}  # others sum


class GatedGCN(nn.Module):
    """A h_i + sum_j g_ij * B h_j / sum_j g_ij with g = sigmoid(D h_i + E h_j + C e_ij); the gate's input becomes e'.

    Args:
        dim: width of nodes and edges.
        edges: whether there are edge features.
    """

    def __init__(self, dim: int, *, edges: bool = False) -> None:
        super().__init__()
        self.node = nn.Linear(dim, 4 * dim)  # A, B, D, E side by side
        self.edge = nn.Linear(dim, dim) if edges else None

    def forward(
        self, h: Tensor, graph: Adjacency, e: Tensor | None = None, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return (node, dim), and the new edge features (edge, dim) before the activation if there are any.

        If rows is given, node i of the graph has the features h[rows[i]].
        """
        parts = zip(self.node.weight.chunk(4), self.node.bias.chunk(4))  # four products, no copies of columns
        own, value, receiver, sender = (F.linear(h, weight, bias) for weight, bias in parts)
        c = None if self.edge is None or e is None else self.edge(e)
        own = own if rows is None else own.index_select(0, rows)
        out = own + graph.gated_mean(receiver, sender, value, c, rows)
        if c is None:
            return out, None
        senders, receivers = graph.edge_index() if rows is None else rows[graph.edge_index()]
        return out, c + receiver[receivers] + sender[senders]


class MessageBlock(nn.Module):
    """Dropout(ReLU(Norm(conv(h) + W h))) of GCN and GraphSAGE, h + Dropout(ReLU(Norm(conv(h)))) of the other kinds.

    GatedGCN updates edge features in the same way. Its convolution has the map W h inside.

    Args:
        kind: the convolution.
        dim: width.
        edges: whether there are edge features; READS_EDGES lists the kinds that use them.
        dropout: dropout probability of the residual branch.
        norm: "batch" or "layer".
        last: True if no later block reads the updated edge features.
        degrees: (N,) in-degrees of the training graph, used only by "pna".
    """

    def __init__(
        self, kind: MessageKind, dim: int, *, edges: bool, dropout: float, norm: str = "batch", last: bool = False,
        degrees: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kind, self.edges = kind, edges and kind in READS_EDGES
        self.conv = _conv(kind, dim, self.edges, degrees)
        make = BatchNorm if norm == "batch" else nn.LayerNorm
        self.residual = nn.Linear(dim, dim) if kind in LINEAR_RESIDUAL else None
        self.norm = make(dim)
        self.edge_norm = make(dim) if kind == "gatedgcn" and self.edges and not last else None
        self.dropout = dropout

    def forward(
        self, h: Tensor, graph: Adjacency, e: Tensor | None = None, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return nodes (P, dim) and edges (E, dim) after one block; node i starts as h[rows[i]], or h[i]."""
        rows_of = h if rows is None else h.index_select(0, rows)
        if self.kind == "gatedgcn":
            z, gate = self.conv(h, graph, e if self.edges else None, rows)
            if self.edge_norm is not None and e is not None:
                e = e + F.dropout(F.relu(self.edge_norm(gate)), self.dropout, self.training)
        elif self.edges:
            z = self.conv(rows_of, graph.edge_index(), e)
        else:
            z = graph.propagate(self.conv, FORMS.get(self.kind, "sum"), 0, rows_of)
        if self.residual is not None:
            return F.dropout(F.relu(self.norm(z + self.residual(rows_of))), self.dropout, self.training), e
        return rows_of + F.dropout(F.relu(self.norm(z)), self.dropout, self.training), e


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization over rows; a single row uses the running statistics."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (n, d) normalised rows."""
        if self.training and len(input) < 2:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(input)


def _conv(kind: MessageKind, dim: int, edges: bool, degrees: Tensor | None) -> nn.Module:
    if kind not in get_args(MessageKind):
        raise ConfigError(
            f"unknown message passing {kind!r}{nearest(kind, get_args(MessageKind))}; "
            f"known: {', '.join(get_args(MessageKind))}"
        )
    if kind == "gatedgcn":
        return GatedGCN(dim, edges=edges)
    if kind == "gine" and not edges:
        raise ConfigError("gine needs edge features, and the graph has none; take gin, or relative encodings as edges")
    from torch_geometric.nn import GINEConv

    from hopstate.layers.edge_layers import GCN, GIN, PNA, SAGE

    if kind == "pna":
        counts = torch.zeros(1) if degrees is None else torch.bincount(degrees.long())
        return PNA(dim, dim, counts, edge_dim=dim if edges else None)
    if kind == "gcn":
        return GCN(dim, dim, normalize=False)
    if kind == "sage":
        return SAGE(dim, dim, aggr="sum")
    mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
    return GIN(mlp, train_eps=True) if kind == "gin" else GINEConv(mlp, train_eps=True)


class MPNN(nn.Module):
    """A stack of message-passing blocks.

    Args:
        kind, dim, dropout, norm, degrees: see `MessageBlock`.
        num_layers: number of blocks.
        edges: whether there are (E, dim) edge features.
    """

    def __init__(
        self, kind: MessageKind, dim: int, *, num_layers: int, edges: bool = False, dropout: float = 0.0,
        norm: str = "batch", degrees: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shared = {"edges": edges, "dropout": dropout, "norm": norm, "degrees": degrees}
        self.blocks = nn.ModuleList(
            MessageBlock(kind, dim, last=i == num_layers - 1, **shared)  # type: ignore[arg-type]
            for i in range(num_layers)
        )

    def forward(self, h: Tensor, graph: Adjacency, e: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """Return (P, dim) after all blocks; e is (edge, dim) or None, and node i starts as h[rows[i]], or h[i]."""
        for block in self.blocks:
            h, e = block(h, graph, e, rows)
            rows = None
        return h if rows is None else h.index_select(0, rows)


def read_width(width: int, how: Reading) -> int:
    """Return the output width of `pool`."""
    return width * len(get_args(Pooling)) if how == "all" else width


def pool(x: Tensor, offsets: Tensor, how: Reading) -> Tensor:
    """Pool the rows of each segment of x.

    Args:
        x: (row, d).
        offsets: (segment + 1,) int64; segment i has the rows offsets[i]..offsets[i + 1] - 1.
        how: "mean", "sum", "max", or "all" for their concatenation. Empty segments give zeros.

    Returns:
        (segment, d), or (segment, 3 * d) for "all".
    """
    if how == "all":
        return torch.cat([pool(x, offsets, one) for one in get_args(Pooling)], 1)
    sizes = offsets.diff()
    if how == "max":
        rows = torch.repeat_interleave(sizes, output_size=x.shape[0])
        start = x.new_zeros(sizes.shape[0], x.shape[1])
        return start.scatter_reduce(0, rows[:, None].expand_as(x), x, "amax", include_self=False)
    total = _SegmentSum.apply(x, offsets)
    return total / sizes.clamp(min=1)[:, None] if how == "mean" else total


class _SegmentSum(torch.autograd.Function):
    """Sum of consecutive rows; the gradient of a row is its segment's."""

    @staticmethod
    def forward(ctx, x: Tensor, offsets: Tensor) -> Tensor:  # type: ignore[no-untyped-def,override]
        ctx.save_for_backward(offsets)
        return segment_sum(x, offsets)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def,override]
        (offsets,) = ctx.saved_tensors
        return torch.repeat_interleave(grad, offsets.diff(), 0), None


class WalkEncoder(nn.Module):
    """Random-walk features: per step W_x x + W_e e + W_b bits, ReLU, a short convolution along the walk, SiLU, pooling.

    Args:
        dim: width.
        window: number of earlier steps that the identity and adjacency bits cover.
        edges: whether there are (step, dim) edge features.
        pooling: pooling over the steps of all walks of a token.
        conv_width: kernel size of the convolution.

    Source: Tönshoff et al. 2023, arXiv:2102.08786 (CRaWl), section 3.
    """

    def __init__(self, dim: int, *, window: int, edges: bool, pooling: Pooling = "mean", conv_width: int = 3) -> None:
        super().__init__()
        self.pooling = pooling
        self.bits = nn.Linear(2 * window, dim)
        self.edge = nn.Linear(dim, dim, bias=False) if edges else None
        self.conv = nn.Conv1d(dim, dim, conv_width, groups=dim)
        self.norm = BatchNorm(dim)  # without it, features shared by all tokens dominate
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, bits: Tensor, walks: Tensor, tokens: Tensor, e: Tensor | None = None) -> Tensor:
        """Return (token, dim).

        Args:
            x: (step, dim) features of the node at each step.
            bits: (step, 2 * window) uint8.
            walks: (walk + 1,) int64 bounds of the walks.
            tokens: (token + 1,) int64 bounds of the tokens, in steps.
            e: (step, dim) features of the edge that leads to the step, zeros at starts.
        """
        from hopstate.ops.conv1d import conv1d

        z = x + self.bits(bits.to(x.dtype))
        if self.edge is not None and e is not None:
            z = z + self.edge(e)
        z = conv1d(F.relu(z), self.conv.weight.squeeze(1), self.conv.bias, offsets=walks)
        return self.out(pool(F.silu(self.norm(z)), tokens, self.pooling))


__all__ = ["MPNN", "READS_EDGES", "GatedGCN", "MessageBlock", "MessageKind", "Pooling", "WalkEncoder", "pool"]
