"""A rising curve from scores to probabilities, fitted to outcomes, and by how much a pair that met before is raised.

A link predictor trained beside pairs that met (`negatives.mixture`) says how a pair compares with a mixture of those
and of random ones. Among all others a pair that met is likelier than it says, by one summand of the logit: the log of
how much denser the mixture is where pairs met. That summand is fitted to outcomes among random pairs, so that it also
mends what a model has wrong there.

Source: Zadrozny & Elkan 2002, doi:10.1145/775047.775151 (isotonic regression).
Deviation: linear between the means of its steps, and held off 0 and 1 by what so many outcomes can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST = 1_000  # events of validation that a curve is fitted to, evenly spread
NEVER = 1e-12  # no probability is nearer to 0 or 1 where it becomes a logit
SLOPE, LEAST = 0.5, 0.1  # how far from 1 a logit's slope may well be, and how small it is taken to be


@dataclass(frozen=True)
class Curve:
    """A rising map from scores to probabilities.

    Args:
        scores: (k,) rising knots.
        values: (k,) probabilities there.
        events: validation events that it was fitted to.
        ratio: other pairs beside each of them.
        strategy: how those were drawn.
        met: what is added to the logit of a pair that met before; where it is not 0, knots are logits so raised.
    """

    scores: np.ndarray
    values: np.ndarray
    events: int
    ratio: float
    strategy: str
    met: float = 0.0

    def __call__(self, scores: np.ndarray, met: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) probabilities of scores (Q,) of pairs that met (Q,) before, or where that says nothing."""
        return np.interp(self.ordered(scores, met), self.scores, self.values)

    def ordered(self, scores: np.ndarray, met: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) what candidates stand in the order of; arguments as above."""
        return raised(scores, met, self.met) if self.met else scores

    def text(self) -> str:
        """Return what a probability means, and what candidates stand in the order of."""
        said = (
            f"calibrated on {self.events:,} validation events with {self.ratio:g} {self.strategy} other "
            f"pair{'' if self.ratio == 1 else 's'} beside each"
        )
        if not self.met:
            return said
        return f"{said}; candidates stand in its order: the logit of pairs that met before is {raised_words(self.met)}"


def raised_words(by: float) -> str:
    """Return a summand of a logit in words.

    >>> raised_words(3.414), raised_words(-0.25)
    ('raised by 3.4', 'lowered by 0.25')
    """
    return f"{'raised' if by > 0 else 'lowered'} by {abs(by):.2g}"


def raised(scores: np.ndarray, met: np.ndarray | None, by: float) -> np.ndarray:
    """Return (Q,) logits of scores (Q,), with a summand where pairs met (Q,) before."""
    from scipy.special import logit

    found = logit(np.clip(scores.astype(np.float64), NEVER, 1 - NEVER))
    return found if met is None else found + by * met


def raise_of(scores: np.ndarray, y: np.ndarray, met: np.ndarray) -> float:
    """Return by how much the logit of pairs that met is to be raised; 0 where outcomes tell nothing.

    The most likely slope of the logit and summand, of a logistic regression whose slope is believed to be 1, as of a
    logit, and whose summand to be 0, as far as outcomes do not tell otherwise. The summand is in units of that slope.

    Args:
        scores: (Q,) probabilities of events and of pairs drawn at random beside them.
        y: (Q,) which are events, 1 or 0.
        met: (Q,) bool, which met before.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    if not 0 < y.sum() < len(y) or met.all() or not met.any():
        return 0.0
    x = np.stack([raised(scores, None, 0.0), met, np.ones(len(y))], 1)

    def against(w: np.ndarray) -> tuple[float, np.ndarray]:
        z, pull = x @ w, np.array([(w[0] - 1) / SLOPE**2, w[1], 0.0])
        value = np.logaddexp(0, z).sum() - y @ z + (w[0] - 1) * pull[0] / 2 + w[1] ** 2 / 2
        return float(value), x.T @ (expit(z) - y) + pull

    slope, by, _ = minimize(against, np.array([1.0, 0.0, 0.0]), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    return float(by / max(slope, LEAST))


def fitted(scores: np.ndarray, y: np.ndarray, strategy: str, met: np.ndarray | None = None, by: float = 0.0) -> Curve:
    """Return the curve of scores (Q,) with outcomes y (Q,) of 0 and 1, those of pairs that met (Q,) raised."""
    from scipy.optimize import isotonic_regression

    scores = raised(scores, met, by) if by else scores
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
    return Curve(np.maximum.accumulate(knots), np.maximum.accumulate(values), events, ratio, strategy, by)


def evenly(count: int) -> np.ndarray:
    """Return the positions, at most MOST of count, evenly spread, that a curve is fitted to."""
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.int64))


__all__ = ["MOST", "Curve", "evenly", "fitted", "raise_of", "raised"]
