"""Readouts: a sequence of hop tokens (hop 0, the node itself, first) to one vector a node.

Source: Chen et al., ICLR 2023, arXiv:2206.04910, section 3.3 (attention) and 4.4 (self, sum).
Deviation: the paper scores hop k by (Z_0 || Z_k) W_a. The half of W_a that meets Z_0 adds the same number to every
score, which the softmax over k cancels, so its gradient is exactly zero; it is left out. The result is the same.
"""

from __future__ import annotations

from torch import Tensor, nn

from hopstate.types import Float, shapecheck


class AttentionReadout(nn.Module):
    """Z_0 + sum_k alpha_k Z_k with alpha = softmax over k >= 1 of Z_k w.

    Args:
        dim: token width.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    @shapecheck
    def weights(self, z: Float[Tensor, "node token dim"]) -> Float[Tensor, "node hop"]:
        """Return alpha_1..alpha_K of each node; rows sum to 1."""
        return self.score(z[:, 1:]).squeeze(-1).softmax(-1)

    @shapecheck
    def forward(self, z: Float[Tensor, "node token dim"]) -> Float[Tensor, "node dim"]:
        """Return one vector a node; Z_0 alone where there are no further hops."""
        if z.shape[1] == 1:
            return z[:, 0]
        return z[:, 0] + (self.weights(z).unsqueeze(1) @ z[:, 1:]).squeeze(1)


class SelfReadout(nn.Module):
    """Z_0, the node's own token ("SIN." in the paper)."""

    @shapecheck
    def forward(self, z: Float[Tensor, "node token dim"]) -> Float[Tensor, "node dim"]:
        """Return Z_0."""
        return z[:, 0]


class SumReadout(nn.Module):
    """The sum of all hops' tokens."""

    @shapecheck
    def forward(self, z: Float[Tensor, "node token dim"]) -> Float[Tensor, "node dim"]:
        """Return the sum over hops 0..K."""
        return z.sum(1)
