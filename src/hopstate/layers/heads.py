"""Decoders of node embeddings: the score of a pair, and a perceptron for one node.

Source: Xu et al. 2020, arXiv:2002.07962 (merge layer); Yu et al. 2023, arXiv:2303.13047 (80-10 perceptron).
Deviation: both return logits; the loss takes the sigmoid. A pair's own history beside its embeddings is ours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hopstate.layers.pair_history import PairHistory
from hopstate.types import Float, shapecheck


class LinkHead(nn.Module):
    """w_2 ReLU(W_1 (h_u || h_v)) for a pair (u, v); with a pair's own history p, of (h_u || h_v || p).

    Args:
        dim: width of an embedding.
        hidden: inner width; dim where None.
        pair: reads the pair's history; None for a head without.
    """

    def __init__(self, dim: int, hidden: int | None = None, *, pair: PairHistory | None = None) -> None:
        super().__init__()
        width = hidden or dim
        self.merge = nn.Linear(2 * dim + (0 if pair is None else pair.dim), width)
        self.score = nn.Linear(width, 1)
        self.pair = pair

    @shapecheck
    def forward(
        self,
        u: Float[Tensor, "pair channel"],
        v: Float[Tensor, "pair channel"],
        features: Float[Tensor, "pair feature"] | None = None,
    ) -> Float[Tensor, "pair"]:
        """Return one logit a pair.

        Args:
            u, v: embeddings of the ends.
            features: what the pair's history tells, of a head that reads it; see `PairHistory`.
        """
        parts = [u, v] if self.pair is None else [u, v, self.pair(features)]
        return self.score(torch.relu(self.merge(torch.cat(parts, -1)))).squeeze(-1)


class NodeHead(nn.Sequential):
    """A perceptron with ReLU and dropout between its layers.

    Args:
        dim: width of an embedding.
        outputs: width of the result.
        hidden: inner widths.
        dropout: probability that an inner element is dropped in training.
    """

    def __init__(self, dim: int, outputs: int, *, hidden: tuple[int, ...] = (80, 10), dropout: float = 0.1) -> None:
        layers: list[nn.Module] = []
        for before, after in zip((dim, *hidden), hidden):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        super().__init__(*layers, nn.Linear((dim, *hidden)[-1], outputs))
