"""The curve of a run's probabilities, calibration.json in its folder: believed of its own weights alone."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from hopstate.errors import CheckpointError, HopstateWarning, StorageError
from hopstate.evaluation.calibration import Curve
from hopstate.streaming.live import fingerprint
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

NAME = "calibration.json"
_FORMAT = "hopstate-calibration-4"


def key_of(folder: RunFolder, task: LinkTask) -> str:
    """Return what is the same for the same weights, settings and data of a run alone."""
    files = (folder.path / name for name in ("config.json", "data.json"))
    told = b"".join(file.read_bytes() for file in files if file.is_file())
    # models without weights are all alike
    return f"{fingerprint(task)}-{hashlib.sha256(told).hexdigest()[:16]}"


def kept_curve(folder: RunFolder, task: LinkTask) -> Curve | None:
    if not (folder.path / NAME).is_file():
        return None
    try:
        found = folder.read_json(NAME)
        if not isinstance(found, dict) or found.get("model") != key_of(folder, task) or found.get("format") != _FORMAT:
            return None
        knots, values = (np.asarray(found[name], np.float64) for name in ("scores", "values"))
        told = int(found["events"]), float(found["ratio"]), str(found["strategy"])
        curve = Curve(knots, values, *told)
    except (CheckpointError, ArithmeticError, KeyError, TypeError, ValueError):
        return None
    sound = knots.ndim == 1 and knots.shape == values.shape and len(knots) and np.isfinite([knots, values]).all()
    rising = sound and (np.diff(knots) >= 0).all() and (np.diff(values) >= 0).all()
    return curve if rising and 0 <= values[0] <= values[-1] <= 1 else None


def keep_curve(folder: RunFolder, task: LinkTask) -> None:
    """Keep the curve that training's own last look at validation gave, so that the first question finds it.

    That of a protocol which shows validation otherwise than a question does is not kept: the first question makes it.
    """
    if task.curve is not None and task.evaluation.protocol == "pooled":
        put_curve(folder, task, task.curve)


def put_curve(folder: RunFolder, task: LinkTask, curve: Curve) -> None:
    """Put a curve into the folder of a run; a warning says where that cannot be done."""
    told: dict[str, Any] = {"format": _FORMAT, "model": key_of(folder, task)}
    told |= {"scores": curve.scores.tolist(), "values": curve.values.tolist(), "events": curve.events}
    try:
        folder.write_json(NAME, told | {"ratio": curve.ratio, "strategy": curve.strategy})
    except StorageError as error:
        warnings.warn(f"the probabilities' curve is not kept: {error}", HopstateWarning, stacklevel=5)


__all__ = ["NAME", "keep_curve", "kept_curve", "key_of", "put_curve"]
