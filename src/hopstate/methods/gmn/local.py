"""What encodes a token: message passing on its induced subgraph, or random-walk features; the node itself marked in it.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Algorithm 1, line 14.
Deviations: the mark, which the paper does not name; without it a pooled token does not say whose it is. Attention
beside the pooled rows, where it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from hopstate.layers.mpnn import MPNN, MessageKind, Pooling, WalkEncoder, pool
from hopstate.methods.gmn.config import GMNConfig
from hopstate.methods.gmn.inputs import GMNInputs

__all__ = ["OwnMark", "SubgraphEncoder", "TokenPool", "WalkTokens", "local_encoder"]

STEEPEST = 32.0  # of the likeness: exp(-64) is still a float32


class OwnAttention(nn.Module):
    """Means of a token's rows, weighted by exp(scale cos(L own, L row)) with a scale a head.

    Args:
        dim: width of rows.
        heads: each of dim / heads columns of L and of the values.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.likeness, self.value = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)
        self.log_scale = nn.Parameter(torch.full((heads,), math.log(10.0)))

    def forward(self, rows: Tensor, owner: Tensor, segment: Tensor, sums: Callable[[Tensor], Tensor]) -> Tensor:
        """Return (token, dim).

        Args:
            rows: (R, dim).
            owner: (token, dim) row of the node whose token it is.
            segment: (R,) token of each row.
            sums: (R, d) to (token, d) sums over each token's rows.
        """
        asked, held = self._directions(owner), self._directions(rows)
        scale = self.log_scale.clamp(max=math.log(STEEPEST)).exp()
        weight = (scale * ((asked.index_select(0, segment) * held).sum(2) - 1)).exp()
        value = self.value(rows).view(held.shape) * weight.unsqueeze(2)
        return (sums(value.flatten(1)).view(asked.shape) / sums(weight).unsqueeze(2)).flatten(1)

    def _directions(self, rows: Tensor) -> Tensor:
        """Return (row, heads, dim / heads) of length 1."""
        return functional.normalize(self.likeness(rows).view(-1, self.heads, self.width), dim=2)


class TokenPool(nn.Module):
    """One row of each token's rows: pooled alike, and with what attention of the node whose token it is finds in them.

    Args:
        c: what a user chooses.
        tokens: K, tokens of a node.
    """

    def __init__(self, c: GMNConfig, tokens: int) -> None:
        super().__init__()
        self.pooling: Pooling = c.pooling
        self.tokens, self.attention = tokens, OwnAttention(c.dim, c.token_heads) if c.token_heads else None

    def forward(self, rows: Tensor, h: Tensor, inputs: GMNInputs) -> Tensor:
        """Return (token, dim) of rows (R, dim); h (N, dim) holds the nodes' own."""
        offsets = inputs.token_offsets
        assert offsets is not None
        pooled = pool(rows, offsets, self.pooling)
        if self.attention is None:
            return pooled
        owner = h.index_select(0, owners(inputs, self.tokens))
        segment = torch.repeat_interleave(offsets.diff(), output_size=rows.shape[0])
        return pooled + self.attention(rows, owner, segment, lambda x: pool(x, offsets, "sum"))


def owners(inputs: GMNInputs, tokens: int) -> Tensor:
    """Return (n*K,) rows of x of the nodes whose tokens they are."""
    assert inputs.token_offsets is not None
    node = torch.arange(inputs.token_offsets.shape[0] - 1, device=inputs.token_offsets.device) // tokens
    return node if inputs.targets is None else inputs.targets[node]


class SubgraphEncoder(nn.Module):
    """Message passing inside each token, pooled."""

    def __init__(self, c: GMNConfig, edges: bool, tokens: int) -> None:
        super().__init__()
        self.pool = TokenPool(c, tokens)
        kind: MessageKind = c.encoder  # type: ignore[assignment]
        self.mpnn = MPNN(kind, c.dim, num_layers=c.local_layers, edges=edges, norm="layer")

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        """Return (token, dim) from rows of nodes (N, dim) and of edges (E, dim)."""
        assert inputs.token_graph is not None
        e = None if e is None or inputs.token_edges is None else e.index_select(0, inputs.token_edges)
        return self.pool(self.mpnn(h, inputs.token_graph, e, inputs.token_nodes), h, inputs)


class WalkTokens(nn.Module):
    """Random-walk features of each token."""

    def __init__(self, c: GMNConfig, window: int, edges: bool, tokens: int) -> None:
        super().__init__()
        self.pool = TokenPool(c, tokens)
        self.encoder = WalkEncoder(c.dim, window=window, edges=edges, pooling=c.pooling, norm=c.walk_norm)

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        """Return (token, dim) from rows of nodes (N, dim) and of edges (E, dim)."""
        assert inputs.token_nodes is not None
        assert inputs.bits is not None
        assert inputs.walks is not None
        if e is not None and inputs.token_edges is not None:
            none = inputs.token_edges < 0  # not along an edge: starts, and steps of walks that stay
            places = torch.where(none, e.shape[0], inputs.token_edges)
            e = torch.cat([e, e.new_zeros(1, e.shape[1])]).index_select(0, places)
        rows = h.index_select(0, inputs.token_nodes)
        return self.encoder.out(self.pool(self.encoder.steps(rows, inputs.bits, inputs.walks, e), h, inputs))


def local_encoder(c: GMNConfig, window: int, edges: bool, tokens: int) -> nn.Module:
    """Return what encodes tokens: (rows of nodes (N, dim), of edges (E, dim) or None, inputs) → (token, dim)."""
    return WalkTokens(c, window, edges, tokens) if c.encoder == "rwf" else SubgraphEncoder(c, edges, tokens)


class OwnMark(nn.Module):
    """Adds a learned vector to the rows of a token that stand for the node whose token it is.

    Args:
        dim: width.
        tokens: K, tokens of a node.
    """

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__()
        self.tokens, self.vector = tokens, nn.Parameter(torch.randn(dim) / 2)

    def forward(self, h: Tensor, inputs: GMNInputs) -> tuple[Tensor, GMNInputs]:
        """Return (2N, dim), marked rows below the plain ones, and inputs whose token_nodes take those."""
        assert inputs.token_offsets is not None
        assert inputs.token_nodes is not None
        node = owners(inputs, self.tokens)
        rows = inputs.token_nodes
        own = rows == torch.repeat_interleave(node, inputs.token_offsets.diff(), output_size=rows.shape[0])
        marked = torch.where(own, rows + h.shape[0], rows)
        return torch.cat([h, h + self.vector]), replace(inputs, token_nodes=marked)
