"""Arrays of labels in memory: how amounts are stored, and what labels of events may be."""

from __future__ import annotations

import numpy as np

from hopstate.errors import DataError

ROUNDING = 1e-6  # of a column's standard deviation


def as_amounts(y: np.ndarray) -> np.ndarray:
    """Return amounts (n,) or (n, T), NaN where unknown, as float32, or float64 where that would tell on a column.

    >>> as_amounts(np.array([1.5, 2.25])).dtype, as_amounts(np.array([1.7e9, 1.7e9 + 60])).dtype
    (dtype('float32'), dtype('float64'))
    """
    if y.dtype == np.float32:
        return y
    y = y.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        small = y.astype(np.float32)
    for wide, near in zip(y.reshape(len(y), -1).T, small.reshape(len(y), -1).T):
        known = ~np.isnan(wide)
        exact, rounded = wide[known], near[known].astype(np.float64)
        if not len(exact) or np.array_equal(exact, rounded):
            continue
        if not np.isfinite(rounded).all() or np.abs(exact - rounded).max() > ROUNDING * exact.std():
            return y
    return small


def default_names(count: int) -> tuple[str, ...]:
    """Return names of targets that have none."""
    return ("value",) if count == 1 else tuple(f"value_{t}" for t in range(count))


def check_event_labels(labels: np.ndarray, names: tuple[str, ...] | None, where: str) -> None:
    """Check labels (E,), or (E, T) of several targets, whose names are those of the columns.

    Raises:
        DataError: an infinity, no numbers, or columns without one name each.
    """
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{where}: labels are numbers, but these are {labels.dtype}; number the classes")
    if labels.ndim == 2 and (labels.dtype.kind != "f" or not labels.shape[1]):
        raise DataError(
            f"{where}: several labels of an event are floats, one column each, NaN where one is unknown; got "
            f"{labels.shape} {labels.dtype}"
        )
    if labels.ndim == 2 and names is not None and len(names) != labels.shape[1]:
        raise DataError(f"{where}: {len(names)} names for {labels.shape[1]} columns of labels")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        row, *_ = np.argwhere(np.isinf(labels))[0]
        found = labels[row] if labels.ndim == 1 else labels[row][np.isinf(labels[row])][0]
        raise DataError(f"{where}: the label of event {row} is {found}; give a number, or NaN where it is unknown")
    if labels.dtype.kind == "u" and labels.max(initial=0) > np.iinfo(np.int64).max:
        raise DataError(f"{where}: the label of event {int(np.argmax(labels))} is beyond 2^63 - 1: {labels.max()}")


__all__ = ["as_amounts", "check_event_labels", "default_names"]
