"""Labels to numbered classes: by size or alphabet, or in an order that the user says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hopstate.errors import DataError, nearest, warn

Place = Callable[[int], str]


def numbered(
    found: np.ndarray, known: np.ndarray, where: str, place: Place, order: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...] | None, str]:
    """Return (n,) classes, -1 unknown, their names (None where they are 0..C-1 and stand in no order), and a note.

    Args:
        found: labels of the rows that are known (n,).
        known: (N,) which rows these are.
        where, place: file and column, and row → how messages name it.
        order: the classes from first to last, or None.

    Raises:
        DataError: a class that the order does not name.
    """
    classes, y = np.unique(found, return_inverse=True)
    codes = np.full(len(known), -1, np.int64)
    codes[known] = y
    if order is not None:
        places = {name: at for at, name in enumerate(order)}
        _check_order([str(name) for name in classes], places, where, place, codes)
        moved = np.array([places[str(name)] for name in classes] + [-1], np.int64)  # the last is "unknown"
        return moved[codes], order, _in_order(order, where, moved[codes])
    plain = classes.dtype.kind == "i" and np.array_equal(classes, np.arange(len(classes)))
    shown = ", ".join(map(str, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")
    note = f"labels: {where}, {len(classes)} classes ({shown})"
    return codes, None if plain else tuple(str(name) for name in classes), note


def _check_order(names: list[str], known: Mapping[str, int], where: str, place: Place, codes: np.ndarray) -> None:
    """Raise DataError where a class stands in no place of the order; its row is named."""
    for at, name in enumerate(names):
        if name not in known:
            row = int(np.argmax(codes == at))
            raise DataError(
                f"{where} holds {name!r} in {place(row)}, which read.order does not name{nearest(name, known)}; it "
                f"names {', '.join(known)}"
            )


def _in_order(order: Sequence[str], where: str, y: np.ndarray) -> str:
    counts = np.bincount(y[y >= 0], minlength=len(order))
    shown = " < ".join(f"{name} ({n:,})" for name, n in list(zip(order, counts))[:10])
    absent = [name for name, n in zip(order, counts) if not n]
    if absent:
        told = f"{', '.join(map(repr, absent[:5]))}{', ...' * (len(absent) > 5)}"
        warn(
            f"{where}: read.order names {told}, which no row has; "
            "mend the name, or leave it: what no training row has is never predicted",
            stacklevel=2,
        )
    return f"labels: {where}, {len(order)} classes in order: {shown}{' < ...' * (len(order) > 10)}"


__all__ = ["Place", "numbered"]
