"""What programs of links carry besides the network: a run's curve of probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import HopstateError
from hopstate.runs.queries.calibrated import Curve, curve_of
from hopstate.runs.queries.session import session
from hopstate.training.exported import ExportSpec, Port


def curve_of_run(run: Path, own: Any, method: str | None) -> Curve | HopstateError:
    """Return a run's curve from scores to probabilities, or why it has none."""
    with session(run, own=own, device="cpu", method=method) as asked:
        try:
            return curve_of(asked)
        except HopstateError as error:
            return error


class Calibrated(nn.Module):
    """A network's logits, their sigmoid, which is what `hopstate.score` calls a score, and its probability.

    Args:
        module: inputs → (P,) logits.
        curve: from scores to probabilities; None for a program without them.
    """

    knots: Tensor
    values: Tensor

    def __init__(self, module: nn.Module, curve: Curve | None) -> None:
        super().__init__()
        self.module, self.told = module, curve is not None
        if curve is not None:
            self.register_buffer("knots", torch.from_numpy(curve.scores.astype(np.float64)))
            self.register_buffer("values", torch.from_numpy(curve.values.astype(np.float64)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (P,) logits, float64 scores, and float64 probabilities if there is a curve."""
        logit = self.module(*inputs)
        score = torch.sigmoid(logit.double())
        return (logit, score, self._interpolated(score)) if self.told else (logit, score)

    def _interpolated(self, score: Tensor) -> Tensor:
        """Return the curve at scores (P,): linear between knots, as at the nearest one beyond them."""
        count = (score.unsqueeze(1) >= self.knots).sum(1)
        left, right = (count - 1).clamp(min=0), count.clamp(max=len(self.knots) - 1)
        low, width = self.knots[left], self.knots[right] - self.knots[left]
        share = ((score - low) / torch.where(width > 0, width, 1.0)).clamp(0.0, 1.0) * (width > 0)
        return self.values[left] + share * (self.values[right] - self.values[left])


def with_probabilities(form: ExportSpec, found: Curve | HopstateError) -> ExportSpec:
    """Return the form of a model of pairs with scores and probabilities beside its logits."""
    score = Port(name="score", meaning="sigmoid of the logit, as hopstate.score has it", axes=("pair",))
    form = replace(form, outputs=(*form.outputs, score))
    if isinstance(found, HopstateError):
        said = f"{form.preprocessing}; there is no output of probabilities: {found}"
        return replace(form, module=Calibrated(form.module, None), preprocessing=said)
    probability = Port(name="probability", meaning=f"of the score, {found.text()}", axes=("pair",))
    return replace(form, module=Calibrated(form.module, found), outputs=(*form.outputs, probability))
