"""Decoders of pairs of node vectors, by their product: the score of a link.

Source: Kipf & Welling 2016, arXiv:1611.07308 (dot product); Hu et al. 2020, arXiv:2005.00687 (a perceptron on the
element-wise product); Yang et al. 2015, arXiv:1412.6575, and Nickel et al. 2011 (bilinear).
Deviation: of an undirected graph the bilinear score is the mean of both ways round, so that it has no direction.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, nearest
from hopstate.types import Float, shapecheck

NEAR = 32  # inner width of the perceptron on nearness
Decoder = Literal["dot", "mlp", "bilinear"]


class PairDecoder(nn.Module):
    """One logit a pair.

    Args:
        kind: "dot" h_u . h_v; "mlp" a perceptron of two layers on h_u * h_v; "bilinear" h_u^T W h_v.
        dim: width of a node vector.
        directed: whether (u, v) and (v, u) may differ: only "bilinear" tells them apart.
        dropout: on the perceptron's inner layer.
        features: numbers that say how near two nodes are by links alone; a small perceptron's logit of them is added.

    Raises:
        ConfigError: an unknown kind.
    """

    def __init__(self, kind: Decoder, dim: int, *, directed: bool, dropout: float = 0.0, features: int = 0) -> None:
        super().__init__()
        if kind not in get_args(Decoder):
            known = get_args(Decoder)
            raise ConfigError(f"unknown decoder {kind!r}{nearest(kind, known)}; known: {', '.join(known)}")
        self.kind, self.directed = kind, directed
        if kind == "mlp":
            self.inner, self.drop, self.outer = nn.Linear(dim, dim), nn.Dropout(dropout), nn.Linear(dim, 1)
        elif kind == "bilinear":
            self.weight = nn.Parameter(torch.eye(dim) + 0.01 * torch.randn(dim, dim))
        self.near: nn.Module | None = None
        if features:
            self.near = nn.Sequential(nn.Linear(features, NEAR), nn.ReLU(), nn.Linear(NEAR, 1))

    @property
    def symmetric(self) -> bool:
        """Whether a pair has one score, whichever of its nodes comes first."""
        return self.kind != "bilinear" or not self.directed

    @shapecheck
    def forward(
        self,
        u: Float[Tensor, "pair channel"],
        v: Float[Tensor, "pair channel"],
        near: Float[Tensor, "pair feature"] | None = None,
    ) -> Float[Tensor, "pair"]:
        if self.kind == "mlp":
            found = self.outer(self.drop(torch.relu(self.inner(u * v)))).squeeze(-1)
        elif self.kind == "bilinear":
            found = (nn.functional.linear(u, self.weight.T) * v).sum(-1)
            if not self.directed:
                found = (found + (nn.functional.linear(v, self.weight.T) * u).sum(-1)) / 2
        else:
            found = (u * v).sum(-1)
        return found if self.near is None else found + self.near(near).squeeze(-1)

    @shapecheck
    def among(
        self,
        u: Float[Tensor, "pair channel"],
        others: Float[Tensor, "pair other channel"],
        near: Float[Tensor, "pair other feature"] | None = None,
    ) -> Float[Tensor, "pair other"]:
        """Return the logits of each u with each of its others, as `forward` does to rounding."""
        if self.kind == "mlp":
            flat, count = (None if near is None else near.flatten(0, 1)), others.shape[1]
            return self(u.repeat_interleave(count, 0), others.flatten(0, 1), flat).view(-1, count)
        if self.kind == "bilinear":
            u = u @ (self.weight if self.directed else (self.weight + self.weight.T) / 2)
        found = torch.bmm(others, u.unsqueeze(-1)).squeeze(-1)
        return found if self.near is None else found + self.near(near).squeeze(-1)
