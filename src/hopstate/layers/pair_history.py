"""What the histories of a pair tell, encoded for a decoder beside the learned encodings of its two ends.

Source: ours; the features are those of `hopstate.tokens.pair_features`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hopstate.errors import ShapeError
from hopstate.types import Float, shapecheck

WIDTH = 64  # of an encoding
FARTHEST = 5.0  # standard deviations from the mean that are told apart


class PairHistory(nn.Module):
    """Features standardised as training pairs had them, a mark for each that is missing, and a perceptron.

    Args:
        num_features: F, of which encodings are made.
        dim: width of an encoding.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, num_features: int, dim: int = WIDTH) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("scale", torch.ones(num_features))
        self.hidden, self.output = nn.Linear(2 * num_features, 2 * dim), nn.Linear(2 * dim, dim)

    @property
    def num_features(self) -> int:
        """F."""
        return len(self.mean)

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Take mean and deviation of each feature from pairs (Q, F), not NaN; 0 and 1 of one that is constant."""
        x = features.double()
        told = ~x.isnan()
        count = told.sum(0).clamp_min(1)
        mean = x.nan_to_num(0.0).sum(0) / count
        square = torch.where(told, x - mean, 0.0).square().sum(0) / count
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(square > 0, square.sqrt(), 1.0))

    def forward(self, features: Tensor | None) -> Tensor:
        """Return (Q, dim) encodings of features (Q, F), NaN where something never happened.

        Raises:
            ShapeError: no features, or of another number.
        """
        return self._encode(_checked(features, self.num_features).to(self.hidden.weight.dtype))

    @shapecheck
    def _encode(self, features: Float[Tensor, "pair feature"]) -> Float[Tensor, "pair channel"]:
        return torch.relu(self.output(torch.relu(self.hidden(self.marked(features)))))

    def marked(self, features: Tensor) -> Tensor:
        """Return (Q, 2F) features, standardised, and marks of the missing ones."""
        missing = features.isnan()
        x = ((features - self.mean) / self.scale).clamp(-FARTHEST, FARTHEST).masked_fill(missing, 0.0)
        return torch.cat([x, missing.to(x.dtype)], 1)


def _checked(features: Tensor | None, known: int) -> Tensor:
    found = 0 if features is None else features.shape[1]
    if features is None or found != known:
        raise ShapeError(f"the model reads {known} features of a pair's history; the input has {found}")
    return features
