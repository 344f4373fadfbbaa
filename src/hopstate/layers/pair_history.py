"""What the histories of a pair tell, encoded for a decoder beside the learned encodings of its two ends.

Source: ours; the features are those of `hopstate.tokens.pair_features`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ShapeError
from hopstate.layers.joined_logits import JoinedLogits
from hopstate.ops.row_linear import RowLinear
from hopstate.types import Float, shapecheck

WIDTH = 64  # of an encoding
ModelT = TypeVar("ModelT", bound=nn.Module)
FARTHEST = 5.0  # standard deviations from the mean that are told apart


class PairHistory(nn.Module):
    """Features standardised as training pairs had them, a mark for each that is missing, and a perceptron.

    Args:
        num_features: F, of which encodings are made.
        dim: width of an encoding; 0 for one that only hands features on to the rules.
        joined: rules over all features, F of them or more, that a decoder's logit is joined with; None for none.
        given: how many features there are; F where None.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self, num_features: int, dim: int = WIDTH, *, joined: JoinedLogits | None = None, given: int | None = None
    ) -> None:
        super().__init__()
        self.dim, self.given, self.joined = dim, num_features if given is None else given, joined
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("scale", torch.ones(num_features))
        if dim:
            self.hidden, self.output = nn.Linear(2 * num_features, 2 * dim), nn.Linear(2 * dim, dim)

    @property
    def num_features(self) -> int:
        """F."""
        return len(self.mean)

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Take mean and deviation of each feature from pairs (Q, given), not NaN; 0 and 1 of one that is constant."""
        x = features[:, : self.num_features].double()
        told = ~x.isnan()
        count = told.sum(0).clamp_min(1)
        mean = x.nan_to_num(0.0).sum(0) / count
        square = torch.where(told, x - mean, 0.0).square().sum(0) / count
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(square > 0, square.sqrt(), 1.0))

    def forward(self, features: Tensor | None) -> Tensor:
        """Return (Q, dim) encodings of the first F of features (Q, given), NaN where something never happened.

        Raises:
            ShapeError: no features, or of another number.
        """
        read = _checked(features, self.given)[:, : self.num_features]
        return self._encode(read.to(self.hidden.weight.dtype)) if self.dim else self.mean.new_empty(len(read), 0)

    def with_rules(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return a decoder's logits (Q,), joined with what rules say of features (Q, given) outside training."""
        return logits if self.joined is None or features is None else self.joined(logits, features)

    @shapecheck
    def _encode(self, features: Float[Tensor, "pair feature"]) -> Float[Tensor, "pair channel"]:
        return torch.relu(self.output(torch.relu(self.hidden(self.marked(features)))))

    def marked(self, features: Tensor) -> Tensor:
        """Return (Q, 2F) features, standardised, and marks of the missing ones."""
        missing = features.isnan()
        x = ((features - self.mean) / self.scale).clamp(-FARTHEST, FARTHEST).masked_fill(missing, 0.0)
        return torch.cat([x, missing.to(x.dtype)], 1)


class PackedPairHistory:
    """A `PairHistory` with its weights as they are now: what it says within `alike`, to the bit, sooner.

    Args:
        history: in single or double precision on the CPU; later changes of its weights are not seen.
    """

    def __init__(self, history: PairHistory) -> None:
        self._marked, self._kind, self._given = history.marked, history.mean.dtype, history.given
        self._known, self._joined = history.num_features, history.joined
        linears = [history.hidden, history.output] if history.dim else []
        self._layers = [RowLinear(linear.weight, linear.bias) for linear in linears]

    def __call__(self, features: Tensor | None) -> np.ndarray:
        """Return (Q, dim) encodings of the first F of features (Q, given).

        Raises:
            ShapeError: as `PairHistory.forward` does.
        """
        read = _checked(features, self._given)[:, : self._known].to(self._kind)
        y = self._marked(read).numpy() if self._layers else np.empty((len(read), 0), read.numpy().dtype)
        for linear in self._layers:
            y = torch.relu(torch.from_numpy(linear(y))).numpy()
        return y

    def with_rules(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return logits (Q,) as `PairHistory.with_rules` does outside training."""
        return logits if self._joined is None or features is None else self._joined.joined(logits, features)


def for_program(model: ModelT) -> ModelT:
    """Return a model as a program is traced: a copy with rules in torch's own operations, itself where it has none."""
    if all(part.joined is None for part in model.modules() if isinstance(part, PairHistory)):
        return model
    made = deepcopy(model)
    for part in made.modules():
        if isinstance(part, PairHistory) and part.joined is not None:
            part.joined = part.joined.as_program()
    return made


def _checked(features: Tensor | None, known: int) -> Tensor:
    found = 0 if features is None else features.shape[1]
    if features is None or found != known:
        raise ShapeError(f"the model reads {known} features of a pair's history; the input has {found}")
    return features
