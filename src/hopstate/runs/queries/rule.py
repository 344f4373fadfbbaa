"""An order of candidates by look-ups alone.

First whom the source has met, the latest first; then the others by how many events they had among the latest of all;
then by how many of the partners among the latest 32 of each are shared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.data.stream_state import StreamState

LATEST = 32  # events of a node whose partners are compared
BUSY = 1_000  # events before a time that tell how busy a node is


class Rule:
    """The order of candidates by look-ups.

    Args:
        past: what is known.
    """

    def __init__(self, past: StreamState) -> None:
        self.past, self.store = past, past.store()

    def best(self, source: int, candidates: np.ndarray, t: Any, count: int) -> np.ndarray:
        """Return rising places of the count first candidates (q,) of a source; a row -1 is a node that never met."""
        known = np.flatnonzero(candidates >= 0)
        rows = candidates[known]
        last = np.full(len(candidates), -np.inf)
        shared, busy = np.zeros(len(candidates)), np.zeros(len(candidates))
        busy[known] = self._events(t)[rows]
        if source >= 0 and len(known):
            when, met = self.store.last_meeting(np.full(len(rows), source), rows, np.full(len(rows), t))
            last[known[met]] = when[met] - np.float64(self.past.t[0])
            shared[known] = self._shared(source, rows, t)
        order = np.lexsort((-shared, -busy, -last))
        return np.sort(order[:count])

    def _events(self, t: Any) -> np.ndarray:
        """Return (N,) events of each node among the latest before t."""
        stop = int(np.searchsorted(self.past.t, t, side="left"))
        some = slice(max(stop - BUSY, 0), stop)
        recent = np.concatenate([self.past.src[some], self.past.dst[some]])
        return np.bincount(recent, minlength=self.past.num_nodes)

    def _shared(self, source: int, rows: np.ndarray, t: Any) -> np.ndarray:
        """Return (q,) how many partners among the latest events of each the source's latest partners are."""
        own = np.zeros(self.past.num_nodes, bool)
        own[self.store.last(np.array([source]), np.array([t]), LATEST).nodes] = True
        own[source] = False
        near = self.store.last(rows, np.full(len(rows), t), LATEST)
        total = np.concatenate([[0], np.cumsum(own[near.nodes])])
        return total[near.offsets[1:]] - total[near.offsets[:-1]]


__all__ = ["Rule"]
