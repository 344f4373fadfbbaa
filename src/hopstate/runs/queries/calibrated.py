"""Scores as probabilities, and the order of candidates: from validation's events and the pairs beside them.

A probability is the chance that a pair is an event where events and other pairs are as many as in validation, and the
others are drawn as there: the ratio is kept with the curve and told. Candidates stand in the order of what the curve
rises with: the score, raised where a pair met before by what random pairs beside validation's events tell. Both are
kept as calibration.json in the run folder, from training or, where it is not there, from the first question on.
The curve itself is `hopstate.evaluation.probabilities`'.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hopstate.errors import CheckpointError, DataError, HopstateError, HopstateWarning, StorageError
from hopstate.evaluation.link import score_split
from hopstate.evaluation.probabilities import Curve
from hopstate.evaluation.summaries import ValidationCurve, some
from hopstate.runs.load import load_run
from hopstate.runs.queries.session import Session, key_of
from hopstate.sampling.negatives import draw_negatives
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

NAME = "calibration.json"
MET = "met"  # the input of a program that its curve reads
_FORMAT = "hopstate-calibration-2"


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

    @property
    def raises(self) -> bool:
        """Whether pairs that met before are raised."""
        return isinstance(self.curve, Curve) and self.curve.met != 0

    def met(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) bool: which pairs met before their times, as far as is known; arguments as of `ordered`."""
        return self.asked.queries.past.store().last_meeting(u, v, t)[1]

    def ordered(self, scores: np.ndarray, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) what candidates stand in the order of, the scores themselves where there is no curve.

        Args:
            scores: (Q,) of the pairs.
            u, v: (Q,) rows of their ends, as `with_rows` has them.
            t: (Q,) their times.
        """
        if isinstance(self.curve, Curve) and self.raises:
            return self.curve.ordered(scores, self.met(u, v, t))
        return scores

    def probabilities(self, scores: np.ndarray, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, str]:
        """Return (Q,) probabilities, NaN where no curve can be made, and what they mean; arguments as above."""
        if isinstance(self.curve, Curve):
            return self.curve(scores, self.met(u, v, t) if self.raises else None), self.curve.text()
        if self.asked.task.calibrated:
            return scores, f"as calibrated in training; {self.curve}"
        warnings.warn(f"scores have no probabilities: {self.curve}", HopstateWarning, stacklevel=5)
        return np.full(len(scores), np.nan), f"unknown: {self.curve}"


def curve_of(asked: Session) -> Curve:
    """Return the curve of a run, from its folder or made and put there."""
    found: Curve = asked.found.get("curve") or _kept_or_made(asked)
    asked.found["curve"] = found
    return found


def keep_curve(folder: RunFolder, task: LinkTask) -> None:
    """Keep the curve that training's own last look at validation gave, so that the first question finds it.

    That of a protocol which shows validation otherwise than a question does is not kept: the first question makes it.
    """
    if task.curve is not None and task.evaluation.protocol == "pooled":
        _keep(folder, key_of(folder, task), task.curve)


def _kept_or_made(asked: Session) -> Curve:
    kept = _read(asked, asked.key)
    if kept is not None:
        return kept
    curve = validation_curve(asked)
    _keep(asked.folder, asked.key, curve)
    return curve


def _keep(folder: RunFolder, key: str, curve: Curve) -> None:
    told: dict[str, Any] = {"format": _FORMAT, "model": key}
    told |= {"scores": curve.scores.tolist(), "values": curve.values.tolist(), "events": curve.events}
    try:
        folder.write_json(NAME, told | {"ratio": curve.ratio, "strategy": curve.strategy, "met": curve.met})
    except StorageError as error:
        warnings.warn(f"the probabilities' curve is not kept: {error}", HopstateWarning, stacklevel=5)


def _read(asked: Session, made: str) -> Curve | None:
    """Return the curve that is kept, None where there is none of these weights that could be one."""
    if not (asked.folder.path / NAME).is_file():
        return None
    try:
        found = asked.folder.read_json(NAME)
        if not isinstance(found, dict) or (found.get("format"), found.get("model")) != (_FORMAT, made):
            return None
        knots, values = (np.asarray(found[name], np.float64) for name in ("scores", "values"))
        told = int(found["events"]), float(found["ratio"]), str(found["strategy"])
        curve = Curve(knots, values, *told, float(found["met"]))
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None
    sound = knots.ndim == 1 and knots.shape == values.shape and len(knots) and np.isfinite([knots, values]).all()
    sound = sound and np.isfinite(curve.met)
    rising = sound and (np.diff(knots) >= 0).all() and (np.diff(values) >= 0).all()
    return curve if rising and 0 <= values[0] <= values[-1] <= 1 else None


def validation_curve(asked: Session) -> Curve:
    """Return the curve of some of validation's events and of the pairs beside them.

    Raises:
        DataError: validation has no such pairs.
    """
    own: Any = asked.own
    with load_run(asked.folder.path, own, method=asked.method) as (trainer, task), trainer.precision():
        assert isinstance(task, LinkTask)
        return _of_validation(task)


def _of_validation(task: LinkTask) -> Curve:
    """Return the curve of some events alone: the same as evaluation makes of all."""
    made = ValidationCurve(task.stream, task.evaluation.strategies[0])
    drawn = {}
    for kind in made.kinds:
        one = task.negatives.get(("val", kind))
        if one is None and kind == "random" != made.strategy:
            one = draw_negatives(task.stream, task.split, "val", most=task.evaluation.most)
        if one is None or not len(one.rows):
            raise DataError("validation has no events, or no pairs beside them")
        drawn["val", kind] = some(one)
    size = task.evaluation.batch_size
    curve = made.of(score_split(task.scorer("val"), task.stream, task.split.val, drawn, batch_size=size), drawn)
    if curve is None:
        raise DataError("validation has no events, or no pairs beside them")
    return curve


__all__ = ["MET", "NAME", "Calibrator", "curve_of", "keep_curve", "validation_curve"]
