"""Vectors of relations and node types, for networks over typed events and graphs.

Types come as codes: 0 is unknown, and type k is k + 1 (`hopstate.data.events.type_codes`).

Source: Perez et al. 2018, arXiv:1709.07871 (feature-wise linear modulation).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hopstate.errors import ShapeError


class TypeEmbedding(nn.Embedding):
    """A learned vector per type; unknown types have zeros.

    Args:
        num_types: types.
        dim: width of a vector.
        std: standard deviation of the first values. Default: as large as other encodings of tokens are; from zero, Adam
            would need hundreds of steps to separate the types.
    """

    def __init__(self, num_types: int, dim: int, *, std: float = 0.5) -> None:
        self.std = std
        super().__init__(num_types + 1, dim, padding_idx=0)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)
        self._fill_padding_idx_with_zero()


def add_types(x: Tensor, embedding: nn.Module | None, codes: Tensor | None) -> Tensor:
    """Return x (row, dim) plus the vectors of its rows' types; codes are (row,), or (row, k) of k tokens in a row."""
    if embedding is None or codes is None:
        return x
    return x + embedding(codes.view(x.shape[0], -1)).sum(1)


class RelationModulation(nn.Module):
    """(1 + a_r) * x + b_r of pairs x and their relations r: what a decoder reads, scaled and shifted per relation.

    a and b start at zero.

    Args:
        num_relations: relations.
        dim: width of x.
    """

    def __init__(self, num_relations: int, dim: int) -> None:
        super().__init__()
        self.scale, self.shift = (TypeEmbedding(num_relations, dim, std=0) for _ in range(2))

    def forward(self, x: Tensor, relation: Tensor | None) -> Tensor:
        """Return (pair, dim) of x (pair, dim) and codes of relations (pair,).

        Raises:
            ShapeError: no relations.
        """
        if relation is None:
            raise ShapeError("the model was trained on typed events: give the relation of each pair")
        return torch.addcmul(x + self.shift(relation), x, self.scale(relation))
