"""Encoding of how often a neighbour stands in each of two nodes' histories.

Source: Yu et al. 2023, arXiv:2303.13047, section 3.3; DyG-Mamba, arXiv:2408.06966, equation 5.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CountEncoding(nn.Sequential):
    """f(c_u) + f(c_v) of two counts, f a two-layer perceptron with ReLU on the scalar count.

    Args:
        dim: width of the encoding.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(nn.Linear(1, dim), nn.ReLU(), nn.Linear(dim, dim))

    def table(self, largest: int) -> Tensor:
        """Return (largest + 1, dim): f of 0, 1, ..., largest, computed once for each count and not for each token."""
        weight = next(self.parameters())
        return self(torch.arange(largest + 1, device=weight.device, dtype=weight.dtype).unsqueeze(-1))

    def of(self, counts: Tensor, largest: int) -> Tensor:
        """Return (token, dim) of counts (token, 2), none above largest."""
        if torch.compiler.is_exporting():  # no table: its size would be that of the example
            return self(counts.to(next(self.parameters()).dtype).unsqueeze(-1)).sum(1)
        return F.embedding(counts, self.table(largest)).sum(1)
