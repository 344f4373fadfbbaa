"""Targets of other data in the classes or columns of a trained model: by name, and what has none is said.

Classes that the model does not know stand from its number of classes C on, and count as wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hopstate.data.validate import default_names
from hopstate.errors import DataError, HopstateWarning
from hopstate.training.tasks.target import Target, target_from_record

SHOWN = 10  # names in a message


def labels_as_trained(
    y: np.ndarray | None, names: tuple[str, ...] | None, trained: Mapping[str, Any], metric: str, count: int, what: str
) -> tuple[np.ndarray, Target]:
    """Return `targets_as_trained` of the target in a run's data.json, and the target with their unknown classes."""
    target = target_from_record(trained, metric)
    own = targets_as_trained(y, names, target, count, what, listed=trained.get("label_cells") == "all")
    return own, replace(target, others=(*target.others, *unknown_classes(y, names, target)))


def targets_as_trained(
    y: np.ndarray | None,
    names: tuple[str, ...] | None,
    target: Target,
    count: int,
    what: str,
    *,
    listed: bool = False,
) -> np.ndarray:
    """Return the targets of other data in a trained model's classes or columns, unknown where there is none.

    Several targets stand by place where either side has no names for them; else by name, as classes do. What the model
    does not know, or the data do not have, is warned of.

    Args:
        y, names: the data's own targets and the names of their classes or columns, or None.
        listed: rows list the labels that they have, so that a row with labels lacks those that no row lists.
    """
    if target.goal == "classes":
        if y is None or y.dtype.kind == "f":
            if y is not None and not np.isnan(y).all():
                raise DataError(f"{what} holds numbers, the model was trained on classes")
            return np.full(count, -1, np.int64)
        return classes_as_trained(y, names, target, what, some_known=True)
    if y is None:
        return np.full((count, target.width), np.nan, np.float32)
    own = target.rows(_amounts(y, names, what))
    named = names is not None and len(names) == own.shape[1] and names != default_names(len(names))
    if named and names is not None and target.names != default_names(target.width):
        own = _by_name(own, names, target, what, listed)
    if own.shape[1] != target.width:
        raise DataError(f"{what} has {own.shape[1]} targets a row, the model was trained on {target.width}")
    if target.goal == "labels":
        other = own[~np.isnan(own) & (own != 0) & (own != 1)]
        if len(other):
            raise DataError(f"{what} holds {other[0]} among its labels, the model was trained on labels of 0 and 1")
    return own


def classes_as_trained(
    y: np.ndarray, names: tuple[str, ...] | None, target: Target, what: str, *, some_known: bool = False
) -> np.ndarray:
    """Return (n,) classes of a trained model, -1 without one, from C on what it does not know."""
    others = unknown_classes(y, names, target)
    place = {name: c for c, name in enumerate((*target.names, *target.others, *others))}
    own = _class_names(y, names)
    found = np.array([*(place.get(name, -1) for name in own), -1], np.int64)[y]  # the last stands for "none"
    if some_known and (found >= target.width).any() and not ((found >= 0) & (found < target.width)).any():
        raise _nothing_left(what, [own[c] for c in np.unique(y[y >= 0])], target)
    if others:
        told = [(name, int((found == place[name]).sum())) for name in others]
        _warn(f"{what} has classes that the run does not know: {_counted(told)}; these rows count as wrong")
    return found


def unknown_classes(y: np.ndarray | None, names: tuple[str, ...] | None, target: Target) -> tuple[str, ...]:
    """Return the names of the classes of y (n,) that a trained model has not met, in their own order."""
    if y is None or target.goal != "classes" or y.dtype.kind == "f":
        return ()
    own = _class_names(y, names)
    return tuple(own[c] for c in np.unique(y[y >= 0]).tolist() if own[c] not in (*target.names, *target.others))


def _class_names(y: np.ndarray, names: tuple[str, ...] | None) -> tuple[str, ...]:
    return names or tuple(str(c) for c in range(max(int(y.max(initial=-1)) + 1, 0)))


def _by_name(y: np.ndarray, names: tuple[str, ...], target: Target, what: str, listed: bool) -> np.ndarray:
    """Return (n, T) targets in the order of a trained model's; one that the data lack is NaN, or 0 of listed labels."""
    place = {name: at for at, name in enumerate(names)}
    absent = [name for name in target.names if name not in place]
    kind = "label" if listed else "target"
    if len(absent) == target.width:
        raise _nothing_left(what, names, target)
    if absent:
        means = "rows with a label have 0 there" if listed else "it is unknown in every row"
        _warn(f"{what} has no {kind} {_shown(absent)}, which the run knows; {means}")
    known = ~np.isnan(y)
    had = known & (y != 0) if listed else known
    new = [(name, int(had[:, at].sum())) for name, at in place.items() if name not in target.names]
    if new:
        _warn(f"{what} has {kind}s that the run does not know and leaves out: {_counted(new)}")
    filled = np.where(known.any(1) & listed, 0, np.nan).astype(y.dtype)[:, None]
    return np.hstack([y, filled])[:, [place.get(name, -1) for name in target.names]]


def _nothing_left(what: str, names: Sequence[str], target: Target) -> DataError:
    return DataError(
        f"{what} has the labels {_shown(names)}, the run knows {_shown(target.names)}: none of them is the same; write "
        "them as the run's own file did (names, letters, the sign between several in a cell), or give no labels"
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _counted(found: Sequence[tuple[str, int]]) -> str:
    told = ", ".join(f"{name!r} ({n:,} rows)" for name, n in found[:SHOWN])
    return told + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def _warn(text: str) -> None:
    warnings.warn(text, HopstateWarning, stacklevel=7)


def _amounts(y: np.ndarray, names: tuple[str, ...] | None, what: str) -> np.ndarray:
    """Return targets as amounts, NaN where unknown; classes stand for the numbers that they are called by."""
    if y.dtype.kind == "f":
        return y
    if y.ndim > 1 or names is None:
        return np.where(y < 0, np.nan, y)
    values = np.full(len(names) + 1, np.nan)  # the last stands for "unknown"
    for c, name in enumerate(names):
        try:
            values[c] = float(name)
        except ValueError:
            raise DataError(f"{what} holds classes such as {name!r}, the model was trained on numbers") from None
    return values[y]


__all__ = ["classes_as_trained", "labels_as_trained", "targets_as_trained", "unknown_classes"]
