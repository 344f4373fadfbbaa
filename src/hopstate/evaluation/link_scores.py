"""Scores of events and of the pairs beside them, as an evaluation of links has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.evaluation.metrics import pairwise_loss

_EPS = np.finfo(np.float64).eps  # no probability is nearer to 0 or 1 where it becomes a logit


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkScores:
    """Scores of some positives and their negatives.

    Args:
        rows: (P,) positions of the positives in the stream.
        positive: (P,) float64.
        negative, offsets: (T,) float64, packed by (P+1,) offsets.
    """

    rows: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    offsets: np.ndarray

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (labels, scores) of all positives and negatives."""
        labels = np.repeat(np.array([1, 0], np.int8), [len(self.positive), len(self.negative)])
        return labels, np.concatenate([self.positive, self.negative])

    def loss(self) -> float:
        """Return the `pairwise_loss` of the logits of events and negatives, whose scores are probabilities."""
        bounded = (np.clip(p, _EPS, 1 - _EPS) for p in (self.positive, self.negative))
        positive, negative = (np.log(p) - np.log1p(-p) for p in bounded)
        return pairwise_loss(np.repeat(positive, np.diff(self.offsets)), negative)


__all__ = ["LinkScores"]
