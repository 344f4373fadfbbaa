"""Times of all events that look-ups know, and how many of them lie between two: a clock that counts events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np


class EventTimes:
    """Rising times in consecutive pieces, each as it lies in memory or in a file.

    Args:
        pieces: (E,) arrays, rising, oldest first.
        hidden: time of an event among them that is not to be counted; None for none.
    """

    def __init__(self, pieces: Iterable[np.ndarray] = (), hidden: float | None = None) -> None:
        self.hidden = hidden
        self.pieces = [piece for piece in pieces if len(piece)]

    def __len__(self) -> int:
        return sum(map(len, self.pieces)) - (self.hidden is not None)

    def append(self, t: np.ndarray) -> None:
        """Add times after all others; an event is written again a number of times that grows as the log of E."""
        if not len(t):
            return
        self.pieces.append(np.array(t))
        while len(self.pieces) > 1 and len(self.pieces[-2]) < 2 * len(self.pieces[-1]):
            self.pieces[-2:] = [np.concatenate(self.pieces[-2:])]

    def between(self, after: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return int64 events strictly after `after` and strictly before `before`, never less than 0.

        Args:
            after, before: (Q, ...) of shapes that broadcast, of the type of the times.
        """
        found = self._up_to(before, equal=False) - self._up_to(after, equal=True)
        if self.hidden is not None:
            found = found - ((after < self.hidden) & (self.hidden < before))
        return np.maximum(found, 0)

    def _up_to(self, t: np.ndarray, *, equal: bool) -> np.ndarray:
        """Return (Q, ...) int64 events before t (Q, ...), those at it too if `equal`."""
        side: Literal["left", "right"] = "right" if equal else "left"
        if len(self.pieces) < 2:
            return np.searchsorted(self.pieces[0], t, side) if self.pieces else np.zeros(t.shape, np.int64)
        ends = np.array([piece[-1] for piece in self.pieces])
        starts = np.cumsum([0, *map(len, self.pieces)])
        piece_of = np.searchsorted(ends, t, side)
        found = starts[piece_of]
        for number in np.unique(piece_of[piece_of < len(ends)]).tolist():
            here = piece_of == number
            found[here] += np.searchsorted(self.pieces[number], t[here], side)
        return found
