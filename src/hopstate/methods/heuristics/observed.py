"""The first events of a stream as a memory: its histories, looked up by events' numbers in place of their times.

A memory that takes in a hundred million events one batch after another would hold them with room to grow. Those of a
mapped stream are mapped already, so that what was observed is how many of them were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.data.events import EventBatch, EventStream
from hopstate.data.neighbor_store import NeighborStore


class Observed:
    """The first num_events events of a stream without deletions.

    Args:
        stream: whose ids begin at 0.
        whole: its histories.
    """

    def __init__(self, stream: EventStream, whole: NeighborStore) -> None:
        self._stream, self._whole = stream, whole
        self.num_events = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Observed:
        """Return one that goes on by itself; the events never change."""
        made = Observed(self._stream, self._whole)
        made.num_events = self.num_events
        return made

    def take(self, batch: EventBatch) -> bool:
        """Take in a batch; return whether it holds the very events that follow in the stream, and could be."""
        ids, first = batch.event_ids, self.num_events
        if not len(ids) or ids[0] != first or ids[-1] != first + len(ids) - 1 or (np.diff(ids) != 1).any():
            return not len(ids)
        self.num_events = first + len(ids)
        return True

    def copied(self) -> tuple[NeighborStore, np.ndarray]:
        """Return a store of its own that goes on with any events, and their times."""
        store, count = NeighborStore(self._whole.num_nodes, time_dtype=np.int64), self.num_events
        src, dst, t = (np.array(column[:count]) for column in (self._stream.src, self._stream.dst, self._stream.t))
        store.append(src, dst, np.arange(count))
        return store, t

    def met(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return (Q,) whether each source sent to its target among the events observed."""
        from hopstate.ops.neighbors.kernels import last_meeting_kernel

        known, count = self._whole.arrays(), len(src)
        src, dst, _ = self._whole.checked(src, dst, np.zeros(count, self._whole.time_dtype))
        last, met = np.empty(count, np.int64), np.empty(count, bool)
        entries = (known["start"], known["length"], known["codes"], known["events"])
        last_meeting_kernel(src, dst, np.full(count, self.num_events), True, *entries, last, met)
        return met
