"""Scores as probabilities: a rising curve, fitted to the scores of validation's events and of the pairs beside them.

A probability is the chance that a pair is an event where events and other pairs are as many as in validation, and the
others are drawn as there: the ratio is kept with the curve and told. It is made when it is first asked for, and kept as
calibration.json in the run folder. Scores that are calibrated in training (pair-trees) stand as they are.
The curve itself is `hopstate.evaluation.probabilities`'.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hopstate.errors import CheckpointError, DataError, HopstateError, HopstateWarning, StorageError
from hopstate.evaluation.probabilities import Curve, evenly, fitted
from hopstate.runs.load import load_run
from hopstate.runs.queries.session import Session
from hopstate.sampling.event_batches import batch_boundaries, event_batches
from hopstate.streaming.replay import replay
from hopstate.training.tasks.link import LinkTask

NAME = "calibration.json"
_FORMAT = "hopstate-calibration-1"


def probabilities(asked: Session, scores: np.ndarray) -> tuple[np.ndarray, str]:
    """Return (Q,) probabilities of scores (Q,), NaN where no curve can be made, and what they mean."""
    if asked.task.calibrated:
        return scores, "as calibrated in training"
    try:
        curve = curve_of(asked)
    except HopstateError as error:
        warnings.warn(f"scores have no probabilities: {error}", HopstateWarning, stacklevel=4)
        return np.full(len(scores), np.nan), f"unknown: {error}"
    return curve(scores), curve.text()


def curve_of(asked: Session) -> Curve:
    """Return the curve of a run, from its folder or made and put there."""
    found: Curve = asked.found.get("curve") or _kept_or_made(asked)
    asked.found["curve"] = found
    return found


def _kept_or_made(asked: Session) -> Curve:
    made = asked.key
    kept = _read(asked, made)
    if kept is not None:
        return kept
    scores, y, strategy = validation_scores(asked)
    curve = fitted(scores, y, strategy)
    found = {"scores": curve.scores.tolist(), "values": curve.values.tolist(), "events": curve.events}
    try:
        asked.folder.write_json(
            NAME, {"format": _FORMAT, "model": made, **found, "ratio": curve.ratio, "strategy": curve.strategy}
        )
    except StorageError as error:
        warnings.warn(f"the probabilities' curve is not kept: {error}", HopstateWarning, stacklevel=5)
    return curve


def _read(asked: Session, made: str) -> Curve | None:
    """Return the curve that is kept, None where there is none of these weights that could be one."""
    if not (asked.folder.path / NAME).is_file():
        return None
    try:
        found = asked.folder.read_json(NAME)
        if not isinstance(found, dict) or (found.get("format"), found.get("model")) != (_FORMAT, made):
            return None
        knots, values = (np.asarray(found[name], np.float64) for name in ("scores", "values"))
        curve = Curve(knots, values, int(found["events"]), float(found["ratio"]), str(found["strategy"]))
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None
    sound = knots.ndim == 1 and knots.shape == values.shape and len(knots) and np.isfinite([knots, values]).all()
    rising = sound and (np.diff(knots) >= 0).all() and (np.diff(values) >= 0).all()
    return curve if rising and 0 <= values[0] <= values[-1] <= 1 else None


def validation_scores(asked: Session) -> tuple[np.ndarray, np.ndarray, str]:
    """Return scores (Q,) and outcomes (Q,) of some of validation's events and of the pairs beside them, and their kind.

    Raises:
        DataError: validation has no such pairs.
    """
    own: Any = asked.own
    with load_run(asked.folder.path, own, method=asked.method) as (trainer, task), trainer.precision():
        assert isinstance(task, LinkTask)
        return _of_validation(task)


def _of_validation(task: LinkTask) -> tuple[np.ndarray, np.ndarray, str]:
    strategy, stream = task.evaluation.strategies[0], task.stream
    drawn = task.negatives.get(("val", strategy))
    if drawn is None or not len(drawn.rows):
        raise DataError("validation has no events, or no pairs beside them")
    some = evenly(len(drawn.rows))
    sizes = np.diff(drawn.offsets)
    which = np.repeat(np.isin(np.arange(len(sizes)), some), sizes)
    at = drawn.rows[some]
    src, dst = np.concatenate([stream.src[at], drawn.src[which]]), np.concatenate([stream.dst[at], drawn.dst[which]])
    row = np.concatenate([at, np.repeat(at, sizes[some])])
    rows, t, size = task.split.val, stream.t[row], task.evaluation.batch_size
    scorer = task.scorer("val")
    scores = replay(
        scorer,
        lambda mine: scorer.score(src[mine], dst[mine], t[mine]),
        stream,
        np.searchsorted(rows, row),
        rows=rows,
        boundaries=batch_boundaries(stream.t[rows], size),
        history=event_batches(stream, np.arange(rows[0]), batch_size=size),
    )
    return scores, (np.arange(len(row)) < len(at)).astype(np.float64), strategy
