"""What the labels of events may be: one column of classes or amounts, or several columns."""

from __future__ import annotations

import numpy as np

from hopstate.errors import DataError


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


__all__ = ["check_event_labels"]
