"""Classes that a model can learn: those of its training rows, and which of two is the positive one.

Other classes that occur are errors, whatever a model answers.
"""

from __future__ import annotations

import numpy as np

from hopstate.errors import ConfigError, nearest

POSITIVE, NEGATIVE = ("1", "true", "yes"), ("0", "-1", "false", "no")


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


def positive_last(
    y: np.ndarray, train: np.ndarray, names: tuple[str, ...] | None, positive: str | None = None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return classes (n,) and their names, of two the positive one last, which ROC AUC and average precision are of.

    It is the one that a user names, otherwise 1, true or yes beside 0, -1, false or no, otherwise the rarer class of
    the training rows.

    Args:
        y: (n,) int64 classes, -1 unknown, from len(names) on those that a model does not know; other targets stay.
        train: training rows.
        names: of the classes, or None if they are numbers.
        positive: `read.positive_class`.

    Raises:
        ConfigError: positive is not one of two classes.

    >>> positive_last(np.array([0, 0, 1, -1]), np.arange(3), ("ok", "banned"))
    (array([ 0,  0,  1, -1]), ('ok', 'banned'))
    >>> positive_last(np.array([0, 1, 1]), np.arange(3), ("banned", "ok"))
    (array([1, 0, 0]), ('ok', 'banned'))
    """
    classes = y.ndim == 1 and y.dtype.kind in "iu"
    own = names or (tuple(map(str, range(int(y.max(initial=-1)) + 1))) if classes else ())
    if positive is not None and (not classes or len(own) != 2 or positive not in own):
        known = f"classes: {', '.join(own[:10])}" if classes else "these targets are not classes"
        raise ConfigError(
            f"read.positive_class names one of two classes; got {positive!r}{nearest(positive, own)}; {known}"
        )
    if not classes or len(own) != 2:
        return y, names
    words = [name.strip().lower() for name in own]
    counts = np.bincount(y[train][(y[train] >= 0) & (y[train] < 2)], minlength=2)
    first = bool(counts[0] < counts[1])
    if any(a in POSITIVE and b in NEGATIVE for a, b in (words, words[::-1])):
        first = words[0] in POSITIVE
    if positive is not None:
        first = positive == own[0]
    return (np.where((y >= 0) & (y < 2), 1 - y, y), own[::-1]) if first else (y, names)
