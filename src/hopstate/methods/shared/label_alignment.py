"""Map labels of other data to the classes or target columns of a trained model, by name.

Classes unknown to a model with C classes get numbers from C on and count as wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hopstate.data.validate import default_names
from hopstate.errors import DataError, HopstateWarning, listed
from hopstate.training.tasks.target import Target, target_from_record

MAX_NAMES = 10  # names in a message


def align_labels(
    y: np.ndarray | None, names: tuple[str, ...] | None, trained: Mapping[str, Any], metric: str, count: int, what: str
) -> tuple[np.ndarray, Target]:
    """Return `align_targets` for the target in a run's data.json, and that target with the unknown classes added."""
    target = target_from_record(trained, metric)
    aligned = align_targets(y, names, target, count, what, absent_is_zero=trained.get("multilabel") == "all")
    return aligned, replace(target, others=(*target.others, *unknown_classes(y, names, target)))


def align_targets(
    y: np.ndarray | None,
    names: tuple[str, ...] | None,
    target: Target,
    count: int,
    what: str,
    *,
    absent_is_zero: bool = False,
) -> np.ndarray:
    """Return targets in the classes or columns of a trained model. Absent ones are unknown (-1 or NaN).

    Classes are matched by name. Columns are matched by name if both sides have names, otherwise by position. A warning
    lists unmatched names.

    Args:
        y, names: targets of the data, and the names of their classes or columns. None if there are none.
        target: the trained model's target.
        count: number of rows.
        what: name of the data, for messages.
        absent_is_zero: rows list their labels, so a label that a labeled row does not list is 0 instead of unknown.
    """
    if target.goal == "classes":
        if y is None or y.dtype.kind == "f":
            if y is not None and not np.isnan(y).all():
                raise DataError(f"{what} holds numbers, the model was trained on classes")
            return np.full(count, -1, np.int64)
        return align_classes(y, names, target, what, require_known=True)
    if y is None:
        return np.full((count, target.width), np.nan, np.float32)
    values = target.rows(_to_numbers(y, names, what))
    has_names = names is not None and len(names) == values.shape[1] and names != default_names(len(names))
    if has_names and names is not None and target.names != default_names(target.width):
        values = _match_columns(values, names, target, what, absent_is_zero)
    if values.shape[1] != target.width:
        raise DataError(f"{what} has {values.shape[1]} targets a row, the model was trained on {target.width}")
    if target.goal == "labels":
        invalid = values[~np.isnan(values) & (values != 0) & (values != 1)]
        if len(invalid):
            raise DataError(f"{what} holds {invalid[0]} among its labels, the model was trained on labels of 0 and 1")
    return values


def align_classes(
    y: np.ndarray, names: tuple[str, ...] | None, target: Target, what: str, *, require_known: bool = False
) -> np.ndarray:
    """Return (n,) class numbers of a trained model: -1 for no label, from C on for unknown classes."""
    others = unknown_classes(y, names, target)
    number_of = {name: c for c, name in enumerate((*target.names, *target.others, *others))}
    class_names = _class_names(y, names)
    aligned = np.array([*(number_of.get(name, -1) for name in class_names), -1], np.int64)[y]  # index -1: no label
    if require_known and (aligned >= target.width).any() and not ((aligned >= 0) & (aligned < target.width)).any():
        raise _no_common_label(what, [class_names[c] for c in np.unique(y[y >= 0])], target)
    if others:
        counts = listed((f"{name!r} ({(aligned == number_of[name]).sum():,} rows)" for name in others), MAX_NAMES)
        _warn(f"{what} has classes that the run does not know: {counts}; these rows count as wrong")
    return aligned


def unknown_classes(y: np.ndarray | None, names: tuple[str, ...] | None, target: Target) -> tuple[str, ...]:
    """Return the names of the classes in y (n,) that a trained model does not know."""
    if y is None or target.goal != "classes" or y.dtype.kind == "f":
        return ()
    class_names = _class_names(y, names)
    return tuple(
        class_names[c] for c in np.unique(y[y >= 0]).tolist() if class_names[c] not in (*target.names, *target.others)
    )


def _class_names(y: np.ndarray, names: tuple[str, ...] | None) -> tuple[str, ...]:
    return names or tuple(str(c) for c in range(max(int(y.max(initial=-1)) + 1, 0)))


def _match_columns(
    y: np.ndarray, names: tuple[str, ...], target: Target, what: str, absent_is_zero: bool
) -> np.ndarray:
    """Return (n, T) targets in the model's column order. Absent columns are NaN, or 0 if absent_is_zero."""
    position = {name: at for at, name in enumerate(names)}
    absent = [name for name in target.names if name not in position]
    kind = "label" if absent_is_zero else "target"
    if len(absent) == target.width:
        raise _no_common_label(what, names, target)
    if absent:
        means = "rows with a label have 0 there" if absent_is_zero else "it is unknown in every row"
        _warn(f"{what} has no {kind} {listed(map(repr, absent), MAX_NAMES)}, which the run has; {means}")
    labeled = ~np.isnan(y)
    present = labeled & (y != 0) if absent_is_zero else labeled
    new = [f"{name!r} ({present[:, at].sum():,} rows)" for name, at in position.items() if name not in target.names]
    if new:
        _warn(f"{what} has {kind}s that the run does not know, which are ignored: {listed(new, MAX_NAMES)}")
    filled = np.where(labeled.any(1) & absent_is_zero, 0, np.nan).astype(y.dtype)[:, None]
    return np.hstack([y, filled])[:, [position.get(name, -1) for name in target.names]]


def _no_common_label(what: str, names: Sequence[str], target: Target) -> DataError:
    theirs, own = (listed(map(repr, labels), MAX_NAMES) for labels in (names, target.names))
    return DataError(
        f"{what} has the labels {theirs}, the run has {own}: no name is in both; write them as the run's own file did "
        "(names, letters, the sign between several in a cell), or give no labels"
    )


def _warn(text: str) -> None:
    warnings.warn(text, HopstateWarning, stacklevel=7)


def _to_numbers(y: np.ndarray, names: tuple[str, ...] | None, what: str) -> np.ndarray:
    """Return numeric targets, NaN if unknown. Class names are parsed as numbers."""
    if y.dtype.kind == "f":
        return y
    if y.ndim > 1 or names is None:
        return np.where(y < 0, np.nan, y)
    values = np.full(len(names) + 1, np.nan)  # index -1: unknown
    for c, name in enumerate(names):
        try:
            values[c] = float(name)
        except ValueError:
            raise DataError(f"{what} holds classes such as {name!r}, the model was trained on numbers") from None
    return values[y]


__all__ = ["align_classes", "align_labels", "align_targets", "unknown_classes"]
