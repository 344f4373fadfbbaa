"""What a token holds for its own node: its rows weighed by their likeness to that node's row.

Source: none; the paper pools the rows of a token alike. One of many rows that must be picked is lost in a mean, and a
maximum cannot know which the node asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

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


__all__ = ["OwnAttention"]
