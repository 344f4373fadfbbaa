"""A rising curve from scores to probabilities, fitted to outcomes, and the order of candidates that it rises with.

A link predictor trained beside pairs that met (`negatives.mixture`) says how a pair compares with a mixture of those
and of random ones. Among all others a pair that met is likelier than it says, by one summand of the logit: the log of
how much denser the mixture is where pairs met. That summand is fitted to outcomes among random pairs, so that it also
mends what a model has wrong there. Where a run has rules that were fitted beside random pairs alone, their log-odds
stand beside the score's, and the same outcomes say how much of the order is theirs.

Source: Zadrozny & Elkan 2002, doi:10.1145/775047.775151 (isotonic regression); Wolpert 1992,
doi:10.1016/S0893-6080(05)80023-1 (a regression over what several say).
Deviation: linear between the means of its steps, and held off 0 and 1 by what so many outcomes can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST = 1_000  # events of validation that a curve is fitted to, evenly spread
NEVER = 1e-12  # no probability is nearer to 0 or 1 where it becomes a logit
SLOPE, LEAST = 0.5, 0.1  # how far from 1 a logit's slope may well be, and how small it is taken to be
Says = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # src, dst, t (Q,) → (Q,) log-odds of an event


@dataclass(frozen=True)
class Curve:
    """A rising map from scores to probabilities.

    Args:
        scores: (k,) rising knots.
        values: (k,) probabilities there.
        events: validation events that it was fitted to.
        ratio: other pairs beside each of them.
        strategy: how those were drawn.
        met: what is added to the logit of a pair that met before.
        share: of rules beside the score: a logit is 1 - share times the score's and share times theirs.

    Where either of the last two is not 0, knots are such logits.
    """

    scores: np.ndarray
    values: np.ndarray
    events: int
    ratio: float
    strategy: str
    met: float = 0.0
    share: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether the order is another than that of scores."""
        return self.met != 0 or self.share != 0

    def __call__(
        self, scores: np.ndarray, met: np.ndarray | None = None, rules: np.ndarray | None = None
    ) -> np.ndarray:
        """Return (Q,) probabilities; arguments as of `ordered`."""
        return self.at(self.ordered(scores, met, rules))

    def at(self, order: np.ndarray) -> np.ndarray:
        """Return (Q,) probabilities of what candidates stand in the order of (Q,)."""
        return np.interp(order, self.scores, self.values)

    def ordered(self, scores: np.ndarray, met: np.ndarray | None = None, rules: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) what candidates stand in the order of.

        Args:
            scores: (Q,).
            met: (Q,) bool, which pairs met before; None where that says nothing.
            rules: (Q,) what the rules beside the score say; None only where these have no share.
        """
        return raised(scores, met, self.met, rules, self.share) if self.moves else scores

    def text(self) -> str:
        """Return what a probability means, and what candidates stand in the order of."""
        said = (
            f"calibrated on {self.events:,} validation events with {self.ratio:g} {self.strategy} other "
            f"pair{'' if self.ratio == 1 else 's'} beside each"
        )
        return f"{said}; candidates stand in its order: {order_words(self.met, self.share)}" if self.moves else said


def order_words(by: float, share: float) -> str:
    """Return in words what candidates stand in the order of.

    >>> order_words(3.414, 0.0)
    'the logit of pairs that met before raised by 3.4'
    >>> order_words(-0.25, 0.9)
    '90% of the logit from trees grown beside random pairs alone, that of pairs that met before lowered by 0.25'
    >>> order_words(0.0, 1.0)
    '100% of the logit from trees grown beside random pairs alone'
    """
    trees = f"{share:.0%} of the logit from trees grown beside random pairs alone" if share else ""
    met = f"of pairs that met before {'raised' if by > 0 else 'lowered'} by {abs(by):.2g}" if by else ""
    return f"{trees}, that {met}" if trees and met else trees or f"the logit {met}"


def raised(
    scores: np.ndarray, met: np.ndarray | None, by: float, rules: np.ndarray | None = None, share: float = 0.0
) -> np.ndarray:
    """Return (Q,) logits of scores (Q,), joined with the rules' (Q,), with a summand where pairs met (Q,) before."""
    from scipy.special import logit

    found = logit(np.clip(scores.astype(np.float64), NEVER, 1 - NEVER))
    if share:
        assert rules is not None, "an order that has a share of rules asks them"
        found = (1 - share) * found + share * rules
    return found if met is None else found + by * met


def order_of(scores: np.ndarray, y: np.ndarray, met: np.ndarray, rules: np.ndarray) -> tuple[float, float]:
    """Return by how much the logit of pairs that met is to be raised, and the share of rules in it.

    The most likely of a logistic regression on both logits, neither of which speaks against itself, and on who met:
    each logit's slope is believed to be near a half, and the summand near 0. They are in units of the slopes' sum.

    Args:
        scores, y, met: as in `raise_of`.
        rules: (Q,) log-odds.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    if not 0 < y.sum() < len(y):
        return 0.0, 0.0
    there = float(not met.all() and met.any())
    x = np.stack([raised(scores, None, 0.0), rules, there * met, np.ones(len(y))], 1)
    middle, spread = np.array([0.5, 0.5, 0.0, 0.0]), np.array([SLOPE, SLOPE, 1.0, np.inf])

    def against(w: np.ndarray) -> tuple[float, np.ndarray]:
        z, off = x @ w, (w - middle) / spread
        value = np.logaddexp(0, z).sum() - y @ z + off @ off / 2
        return float(value), x.T @ (expit(z) - y) + off / spread

    limits = [(0, None), (0, None), (None, None), (None, None)]
    how: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "bounds": limits}
    own, other, by, _ = minimize(against, middle, **how, options={"gtol": 1e-8, "ftol": 1e-15, "maxiter": 1_000}).x
    both = float(own + other)
    return float(by) / max(both, LEAST), float(other) / both if both else 0.0


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


def fitted(
    scores: np.ndarray,
    y: np.ndarray,
    strategy: str,
    met: np.ndarray | None = None,
    by: float = 0.0,
    rules: np.ndarray | None = None,
    share: float = 0.0,
) -> Curve:
    """Return the curve of scores with outcomes.

    Args:
        scores: (Q,).
        y: (Q,) outcomes, 0 or 1.
        strategy: how those of 0 were drawn.
        met, by, rules, share: as in `raised`.
    """
    from scipy.optimize import isotonic_regression

    scores = raised(scores, met, by, rules, share) if by or share else scores
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
    return Curve(np.maximum.accumulate(knots), np.maximum.accumulate(values), events, ratio, strategy, by, share)


def evenly(count: int) -> np.ndarray:
    """Return the positions, at most MOST of count, evenly spread, that a curve is fitted to."""
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.int64))


__all__ = ["MOST", "Curve", "Says", "evenly", "fitted", "order_of", "order_words", "raise_of", "raised"]
