"""Recency: the zero-parameter scorer that every temporal model must beat.

score(u, v, t) = -log(1 + gap), the gap since the last meeting of u and v, in either direction, strictly before t.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from hopstate.data.dates import Clock
from hopstate.data.events import EventBatch
from hopstate.data.neighbor_store import Histories
from hopstate.data.stream_state import StreamState

NEVER = -100.0  # the score of a pair that never met; gaps are held to scores above it


class Recency:
    """Score a pair by how lately it met.

    Args:
        store: the events; it may hold the whole stream, since look-ups are strictly before the query time.
        directed: count only events from u to v.
        clock: what a gap of 1 is, in the unit of the store's times; None takes them as they stand.
    """

    by_time = False
    observes = False

    def __init__(self, store: Histories, *, directed: bool = False, clock: Clock | None = None) -> None:
        self.store: Histories = store
        self.directed, self.clock = directed, clock or Clock()

    def over(self, past: StreamState) -> Recency:
        """Return the same over all events of a past."""
        made = copy(self)
        made.store, made.clock = past.store(), self.clock.over(past.time_unit or "")
        return made

    def reset(self) -> None:
        """Nothing to forget: what is visible follows from the query time."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) scores of pairs src (Q,), dst (Q,) at times t (Q,)."""
        last, met = self.store.last_meeting(src, dst, t, directed=self.directed)
        return np.where(met, -self.clock.log_gaps(t, last, -NEVER), NEVER)

    def log_odds(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return `score`, which is no probability."""
        return self.score(src, dst, t)

    def observe(self, batch: EventBatch) -> None:
        """Nothing to do: the store holds the events."""

    def state(self) -> None:
        """Return None: the store holds the events."""

    def restore(self, state: None) -> None:
        """Nothing to do."""
