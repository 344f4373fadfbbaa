"""Classes that a model can learn: those of its training rows. Others that occur are errors, whatever it answers."""

from __future__ import annotations

import numpy as np


def of_training(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[str, ...]]:
    """Return classes (n,), those of training rows first, their names, and the names of the others that occur.

    A model knows the former alone; of one or two classes in all it knows both, since one output tells them apart.

    Args:
        y: (n,) int64 classes, -1 unknown.
        train: training rows.
        names: of the classes, or None where they are numbers.

    >>> of_training(np.array([0, 3, 1, -1]), np.array([0, 1]), ("a", "b", "c", "d"))
    (array([ 0,  1,  2, -1]), ('a', 'd'), ('b',))
    """
    count = max(int(y.max(initial=-1)) + 1, len(names or ()))
    seen, there = (np.bincount(own[own >= 0], minlength=count) > 0 for own in (y[train], y))
    if seen.all() or count <= 2 or not seen.any():
        return y, names, ()
    own = names or tuple(map(str, range(count)))
    order = [*np.flatnonzero(seen).tolist(), *np.flatnonzero(there & ~seen).tolist()]
    place = np.full(count + 1, -1, np.int64)  # the last stands for "unknown"
    place[order] = np.arange(len(order))
    known = int(seen.sum())
    return place[y], tuple(own[c] for c in order[:known]), tuple(own[c] for c in order[known:])
