"""Scores as probabilities, by an isotonic curve fitted to validation events and random pairs.

A probability is the chance that a pair is an event if events and other pairs are as many as in validation. That ratio
is kept with the curve and reported. The curve is in calibration.json of the run folder, from training or, if it is not
there, from the first query on.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import CheckpointError, DataError, HopstateError, HopstateWarning, StorageError
from hopstate.evaluation.calibration import Curve
from hopstate.runs.load import load_run
from hopstate.streaming.live import fingerprint
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    from hopstate.runs.queries import Session

NAME = "calibration.json"
_FORMAT = "hopstate-calibration-4"


def probabilities(opened: Session, scores: np.ndarray) -> tuple[np.ndarray, str]:
    """Return (Q,) probabilities of scores (Q,), NaN if no curve can be made, and what they mean."""
    try:
        curve = curve_of(opened)
    except HopstateError as error:
        warnings.warn(f"scores have no probabilities: {error}", HopstateWarning, stacklevel=5)
        return np.full(len(scores), np.nan), f"unknown: {error}"
    return curve(scores), curve.text()


def curve_of(opened: Session) -> Curve:
    """Return the curve of a run; the first time it comes from the run folder, or is made and put there.

    Raises:
        HopstateError: there is none, and none can be made: the same error every time.
    """
    if opened.curve is None:
        try:
            opened.curve = load_curve(opened.folder, opened.task) or _make_curve(opened)
        except HopstateError as error:
            opened.curve = error
    if isinstance(opened.curve, HopstateError):
        raise opened.curve
    return opened.curve


def _make_curve(opened: Session) -> Curve:
    with load_run(opened.folder.path, opened.own, method=opened.method) as (trainer, task), trainer.precision():
        assert isinstance(task, LinkTask)
        curve = task.judged_curve()
    if curve is None:
        raise DataError("validation has no events, or no pairs to compare them with")
    save_curve(opened.folder, opened.task, curve)
    return curve


def load_curve(folder: RunFolder, task: LinkTask) -> Curve | None:
    """Return the curve in a run folder; None if there is none of these weights, settings and data."""
    if not (folder.path / NAME).is_file():
        return None
    try:
        found = folder.read_json(NAME)
        if not isinstance(found, dict) or found.get("model") != _key(folder, task) or found.get("format") != _FORMAT:
            return None
        scores, values = (np.asarray(found[name], np.float64) for name in ("scores", "values"))
        curve = Curve(scores, values, int(found["events"]), float(found["ratio"]), str(found["strategy"]))
    except (CheckpointError, ArithmeticError, KeyError, TypeError, ValueError):
        return None
    sound = scores.ndim == 1 and scores.shape == values.shape and len(scores) and np.isfinite([scores, values]).all()
    rising = sound and (np.diff(scores) >= 0).all() and (np.diff(values) >= 0).all()
    return curve if rising and 0 <= values[0] <= values[-1] <= 1 else None


def keep_curve(folder: RunFolder, task: LinkTask) -> None:
    """Save the curve of training's last validation, so that no query has to make it.

    A protocol other than "pooled" does not show validation as a query does; then the first query makes the curve.
    """
    if task.curve is not None and task.evaluation.protocol == "pooled":
        save_curve(folder, task, task.curve)


def save_curve(folder: RunFolder, task: LinkTask, curve: Curve) -> None:
    """Save a curve in a run folder; warn if that is not possible."""
    facts: dict[str, Any] = {"format": _FORMAT, "model": _key(folder, task)}
    facts |= {"scores": curve.scores.tolist(), "values": curve.values.tolist(), "events": curve.events}
    try:
        folder.write_json(NAME, facts | {"ratio": curve.ratio, "strategy": curve.strategy})
    except StorageError as error:
        warnings.warn(f"the probabilities' curve is not kept: {error}", HopstateWarning, stacklevel=5)


def _key(folder: RunFolder, task: LinkTask) -> str:
    """Return what identifies weights, settings and data: models without weights have equal fingerprints."""
    files = (folder.path / name for name in ("config.json", "data.json"))
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    return f"{fingerprint(task)}-{hashlib.sha256(content).hexdigest()[:16]}"
