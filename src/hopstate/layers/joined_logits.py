"""A network's logit joined with what other rules say of the same features: a weighted mean of the two.

Each is fitted by itself, and the mean is taken where scores are asked for, never in training: the network learns as if
it were alone. The weight is validation's.

Source: ours; means of models that err differently are Hansen and Salamon's (1990, doi:10.1109/34.58871).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn


class Rules(Protocol):
    """What says something of features, without a gradient."""

    def __call__(self, features: Tensor) -> Tensor:
        """Return (P,) float64 logits of pairs by their features (P, F)."""
        ...

    def feature_shares(self, features: np.ndarray) -> np.ndarray:
        """Return (P, F) float64: what each feature adds to the logits."""
        ...

    def as_program(self) -> nn.Module:
        """Return the same in torch's own operations, as a program is traced."""
        ...

    @property
    def kept(self) -> int:
        """How many rules there are."""
        ...


class JoinedLogits(nn.Module):
    """(1 - w) z + w r outside training, of a network's logit z and the rules' r; z in training, or where w is 0.

    Args:
        rules: a module; it has a gradient of its own or none.

    ranker: further rules over the same features, which are kept here and move no logit; None for none.
    """

    share: Tensor

    def __init__(self, rules: nn.Module) -> None:
        super().__init__()
        self.rules = rules
        self.ranker: nn.Module | None = None
        self.register_buffer("share", torch.zeros((), dtype=torch.float64))

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return (P,) logits, float64 where they are joined, of a network's (P,) and of features (P, F)."""
        return logits if self.training else self.joined(logits, features)

    def joined(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return what `forward` does outside training."""
        share = float(self.share)
        if not share:
            return logits
        return mean_of_logits(logits, self.rules(features).to(logits.device), share)

    def as_program(self) -> JoinedProgram | None:
        """Return the same in torch's own operations, with the share of now; None where the network has it all.

        Further rules are in it, where there are such.
        """
        rules: Rules = self.rules  # type: ignore[assignment]
        ranker: Rules | None = self.ranker  # type: ignore[assignment]
        if ranker is not None and not ranker.kept:
            ranker = None
        if ranker is None and not float(self.share):
            return None
        return JoinedProgram(rules.as_program(), float(self.share), None if ranker is None else ranker.as_program())

    def feature_shares(self, features: Tensor) -> np.ndarray:
        """Return (P, F) float64: what each feature adds to joined logits by the rules."""
        rules: Rules = self.rules  # type: ignore[assignment]
        share = float(self.share)
        if not share:
            return np.zeros(tuple(features.shape))
        return share * rules.feature_shares(features.cpu().numpy())


class JoinedProgram(JoinedLogits):
    """Joined logits as a program is traced: of the network's own type.

    Args:
        rules: in torch's own operations.
        share: of the rules.
        ranker: further rules in torch's own operations; None for none.
    """

    def __init__(self, rules: nn.Module, share: float, ranker: nn.Module | None = None) -> None:
        super().__init__(rules)
        self.fixed, self.ranker = share, ranker
        self._said: list[Tensor] = []

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return joined logits: a program is never trained."""
        return self.joined(logits, features)

    def joined(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return (P,) logits of a network's (P,) and of features (P, F)."""
        self._said = [] if self.ranker is None else [self.ranker(features)]
        return mean_of_logits(logits, self.rules(features), self.fixed).to(logits.dtype) if self.fixed else logits

    def ranked(self) -> Tensor:
        """Return what the further rules said of the features that were last asked about, once."""
        (found,), self._said = self._said, []
        return found


def mean_of_logits(network: Tensor, rules: Tensor, share: float) -> Tensor:
    """Return (P,) float64, (1 - share) times one and share times the other: two products and a sum, each rounded."""
    return network.double() * (1 - share) + rules.double() * share


__all__ = ["JoinedLogits", "JoinedProgram", "Rules", "mean_of_logits"]
