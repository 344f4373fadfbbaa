"""What a run keeps of its test split to be drawn: curves.json, a few lists of numbers; see `evaluation.summaries`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hopstate.errors import CheckpointError
from hopstate.io.opening import exists
from hopstate.training.run_folder import RunFolder, is_number, json_text
from hopstate.training.tasks.protocols import DrawsCurves, Task

CURVES = "curves.json"
_KINDS = {"ranking": ("of", "k", "hits"), "reliability": ("of", "how", "probability", "share", "count", "ece")}


def curves_of(task: Task[Any], folder: RunFolder) -> dict[Path, str]:
    """Return the file of a run's curves with its text; nothing where the task keeps none."""
    found = task.curves if isinstance(task, DrawsCurves) else {}
    return {folder.path / CURVES: json_text(found)} if found else {}


def kept_curves(folder: RunFolder) -> dict[str, Any]:
    """Return a run's curves, "ranking" and "reliability", and test's "intervals"; empty where nothing is kept.

    Raises:
        CheckpointError: they are damaged.
    """
    path = folder.path / CURVES
    found = folder.read_json(CURVES) if exists(path) else {}
    try:
        for kind, columns in _KINDS.items():
            for one in found.get(kind, []):
                _check_curve(one, columns)
        for limits in found.get("intervals", {}).values():
            if type(limits) is not list or len(limits) != 2 or not all(map(is_number, limits)):
                raise ValueError("limits that are none")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: its curves are no lists of numbers; remove it") from error
    return found


def _check_curve(one: dict[str, Any], columns: tuple[str, ...]) -> None:
    lists = [one[name] for name in columns if name not in ("of", "how", "ece")]
    if not all(type(one[name]) is str for name in columns if name in ("of", "how")):
        raise ValueError("a name that is none")
    if not all(type(row) is list and len(row) == len(lists[0]) for row in lists):
        raise ValueError("lists of several lengths")
    if not all(is_number(value) and value >= 0 for row in [*lists, [one.get("ece", 0)]] for value in row):
        raise ValueError("a number that cannot be drawn")
    if any(value > 1 for name in ("hits", "probability", "share") for value in one.get(name, ())):
        raise ValueError("a share over 1")


__all__ = ["CURVES", "curves_of", "kept_curves"]
