"""Scores of events and of the pairs beside them, as an evaluation of links has them."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        own_event: (T,) bool, which negatives are the very pair of their event; None if none is.
    """

    rows: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    offsets: np.ndarray
    own_event: np.ndarray | None = None

    def without_own_event(self) -> LinkScores:
        """Return the scores without negatives that are the very pair of their event."""
        if self.own_event is None:
            return self
        kept = ~self.own_event
        of = np.repeat(np.arange(len(self.rows)), np.diff(self.offsets))[kept]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(self.rows)))])
        return replace(self, negative=self.negative[kept], offsets=offsets, own_event=None)

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
