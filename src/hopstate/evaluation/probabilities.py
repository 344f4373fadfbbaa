"""A rising curve from scores to probabilities, fitted to outcomes.

Source: Zadrozny & Elkan 2002, doi:10.1145/775047.775151 (isotonic regression).
Deviation: linear between the means of its steps, and held off 0 and 1 by what so many outcomes can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST = 1_000  # events of validation that a curve is fitted to, evenly spread


@dataclass(frozen=True)
class Curve:
    """A rising map from scores to probabilities.

    Args:
        scores: (k,) rising knots.
        values: (k,) probabilities there.
        events: validation events that it was fitted to.
        ratio: other pairs beside each of them.
        strategy: how those were drawn.
    """

    scores: np.ndarray
    values: np.ndarray
    events: int
    ratio: float
    strategy: str

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return (Q,) probabilities of scores (Q,)."""
        return np.interp(scores, self.scores, self.values)

    def text(self) -> str:
        """Return what a probability means."""
        return (
            f"calibrated on {self.events:,} validation events with {self.ratio:g} {self.strategy} other "
            f"pair{'' if self.ratio == 1 else 's'} beside each"
        )


def fitted(scores: np.ndarray, y: np.ndarray, strategy: str) -> Curve:
    """Return the curve of scores with outcomes.

    Args:
        scores: (Q,).
        y: (Q,) outcomes, 0 or 1.
        strategy: how those of 0 were drawn.
    """
    from scipy.optimize import isotonic_regression

    at, which = np.unique(scores, return_inverse=True)
    count = np.bincount(which).astype(np.float64)
    steps = isotonic_regression(np.bincount(which, y) / count, weights=count)
    sizes = np.diff(steps.blocks)
    of = np.repeat(np.arange(len(sizes)), sizes)
    weight = np.bincount(of, count)
    knots, values = np.bincount(of, at * count) / weight, steps.x[steps.blocks[:-1]]
    values = np.clip(values, 1 / (weight + 2), (weight + 1) / (weight + 2))
    events = int(y.sum())
    ratio = round((len(y) - events) / max(events, 1), 2)
    return Curve(np.maximum.accumulate(knots), np.maximum.accumulate(values), events, ratio, strategy)


def evenly(count: int) -> np.ndarray:
    """Return the positions, at most MOST of count, evenly spread, that a curve is fitted to."""
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.int64))


__all__ = ["MOST", "Curve", "evenly", "fitted"]
