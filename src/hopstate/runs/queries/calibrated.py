"""Scores as probabilities, by a curve from validation's events and random pairs.

A probability is the chance that a pair is an event if events and other pairs are as many as there: the ratio is kept
with the curve and reported. The curve is kept in the run folder (`runs.curves`), from training or, if it is not there,
from the first query on. The curve itself is `hopstate.evaluation.metrics`'.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hopstate.errors import DataError, HopstateError, HopstateWarning
from hopstate.evaluation.calibration import Curve
from hopstate.runs.curves import kept_curve, put_curve
from hopstate.runs.load import load_run
from hopstate.runs.queries.session import Session
from hopstate.training.tasks.link import LinkTask


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

    def probabilities(self, scores: np.ndarray) -> tuple[np.ndarray, str]:
        """Return (Q,) probabilities of scores (Q,), NaN if no curve can be made, and what they mean."""
        if isinstance(self.curve, Curve):
            return self.curve(scores), self.curve.text()
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


__all__ = ["Calibrator", "curve_of", "validation_curve"]
