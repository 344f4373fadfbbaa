"""Scores as probabilities, and the order of candidates: from validation's events and random pairs beside them.

A probability is the chance that a pair is an event where events and other pairs are as many as there: the ratio is kept
with the curve and told. Candidates stand in the order of what the curve rises with: the score, joined with what rules
beside random pairs say where a run has them, raised where a pair met before by what those pairs tell (not in runs with
evaluation.raise_met=false, nor where scores are no probabilities).
Both are kept in the run folder (`runs.curves`), from training or, where they are not there, from the first question on.
The curve itself is `hopstate.evaluation.probabilities`'.
"""

from __future__ import annotations

import warnings
from functools import cached_property, partial
from typing import Any

import numpy as np

from hopstate.data.past import Past
from hopstate.errors import DataError, HopstateError, HopstateWarning
from hopstate.evaluation.probabilities import Curve
from hopstate.runs.curves import kept_curve, put_curve
from hopstate.runs.load import load_run
from hopstate.runs.queries.influences import InOrder
from hopstate.runs.queries.session import Session
from hopstate.streaming.slices import Pace, Steps, in_slices
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.ranker import Rules

MET = "met"  # the input of a program that its curve reads


class Calibrator:
    """What scores of a run are worth.

    Args:
        asked: the run.

    curve: from scores to probabilities; where there is none, why.
    """

    def __init__(self, asked: Session) -> None:
        self.asked = asked
        self.curve: Curve | HopstateError
        try:
            self.curve = curve_of(asked)
        except HopstateError as error:
            self.curve = error

    def met(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) bool: which pairs met before their times, as far as is known; arguments as of `ordering`."""
        return self.asked.queries.past.store().last_meeting(u, v, t)[1]

    @property
    def share(self) -> float:
        """What the rules beside scores have of the order of candidates."""
        return self.curve.share if isinstance(self.curve, Curve) else 0.0

    @cached_property
    def rules(self) -> Rules | None:
        """What stands beside scores in the order of candidates, None where nothing does."""
        ranker = self.asked.task.ranker
        return ranker.over(self.asked.queries.past) if ranker is not None and self.share else None

    def in_order(self) -> InOrder | None:
        """Return what candidates stand in the order of, of a score's log-odds; None for these themselves."""
        curve, ranker = self.curve, self.asked.task.ranker
        if not isinstance(curve, Curve) or not curve.moves:
            return None

        def aside(past: Past, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
            found = curve.met * past.store().last_meeting(u, v, t)[1]
            return found + curve.share * ranker.over(past)(u, v, t) if curve.share and ranker is not None else found

        return InOrder(1 - curve.share, lambda past: partial(aside, past))

    def ordered(self, scores: np.ndarray, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) what candidates stand in the order of, the scores themselves where there is no curve.

        Args:
            scores: (Q,) of the pairs.
            u, v: (Q,) rows of their ends, as `with_rows` has them.
            t: (Q,) their times.
        """
        if not isinstance(self.curve, Curve) or not self.curve.moves:
            return scores
        rules = None if self.rules is None else self.rules(u, v, t)
        return self.curve.ordered(scores, self.met(u, v, t), rules)

    def ordering(self, scores: np.ndarray, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Steps[np.ndarray]:
        """Return what `ordered` does, in slices."""
        if not isinstance(self.curve, Curve) or not self.curve.moves:
            return scores

        def order(part: slice) -> np.ndarray:
            return self.ordered(scores[part], u[part], v[part], t[part])

        return (yield from in_slices(order, len(scores), self.asked.found.setdefault("order's pace", Pace())))

    def probabilities(
        self, scores: np.ndarray, u: np.ndarray, v: np.ndarray, t: np.ndarray, order: np.ndarray | None = None
    ) -> tuple[np.ndarray, str]:
        """Return (Q,) probabilities, NaN where no curve can be made, and what they mean.

        Args:
            scores, u, v, t: as of `ordered`.
            order: what that returns, where it is known.
        """
        if isinstance(self.curve, Curve):
            return self.curve.at(self.ordered(scores, u, v, t) if order is None else order), self.curve.text()
        if self.asked.task.calibrated:
            return scores, f"as calibrated in training; {self.curve}"
        warnings.warn(f"scores have no probabilities: {self.curve}", HopstateWarning, stacklevel=5)
        return np.full(len(scores), np.nan), f"unknown: {self.curve}"


def curve_of(asked: Session) -> Curve:
    """Return the curve of a run, from its folder or made and put there.

    Raises:
        HopstateError: there is none, and none can be made: the same whenever it is asked for.
    """
    found = asked.found.get("curve")
    if found is None:
        try:
            found = _kept_or_made(asked)
        except HopstateError as error:
            found = error
        asked.found["curve"] = found
    if isinstance(found, HopstateError):
        raise found
    return found


def _kept_or_made(asked: Session) -> Curve:
    kept = kept_curve(asked.folder, asked.task)
    if kept is not None:
        return kept
    curve = validation_curve(asked)
    put_curve(asked.folder, asked.task, curve)
    return curve


def validation_curve(asked: Session) -> Curve:
    """Return the curve of some of validation's events and of the pairs beside them.

    Raises:
        DataError: validation has no such pairs.
    """
    own: Any = asked.own
    with load_run(asked.folder.path, own, method=asked.method) as (trainer, task), trainer.precision():
        assert isinstance(task, LinkTask)
        curve = task.judged_curve()
    if curve is None:
        raise DataError("validation has no events, or no pairs beside them")
    return curve


__all__ = ["MET", "Calibrator", "curve_of", "validation_curve"]
