"""Rows of events that follow each other, told from rows that do not: a slice copies nothing of a mapped stream."""

from __future__ import annotations

import numpy as np


def stretch(rows: np.ndarray) -> np.ndarray | slice:
    """Return rising rows (P,) as a slice where they follow each other.

    >>> stretch(np.array([3, 4, 5])), stretch(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    whole = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    return slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows


def begins(rows: np.ndarray) -> bool:
    """Return whether rising rows (P,) are the first P of a stream: look-ups at their times see nothing else."""
    return len(rows) > 0 and rows[0] == 0 and rows[-1] == len(rows) - 1


__all__ = ["begins", "stretch"]
