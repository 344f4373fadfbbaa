"""A past as it would be had one of its events not happened, for look-ups; the memory in it stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hopstate.data.event_times import EventTimes
from hopstate.data.layered_store import LayeredStore
from hopstate.data.layers import Layer
from hopstate.data.lookup import Part
from hopstate.data.past import Past
from hopstate.ops.neighbors import PackedNeighbors
from hopstate.ops.rows import ranges


@dataclass(frozen=True)
class OneEvent:
    """An event that adds an edge.

    Args:
        id: of the event.
        src, dst: rows of its ends.
        t: its time.
    """

    id: int
    src: int
    dst: int
    t: int | float

    @classmethod
    def of(cls, past: Past, number: int) -> OneEvent:
        """Return the event of a past under an id."""
        layer = next(layer for layer in past.layers if number < layer.last)
        row = number - layer.first
        return cls(number, int(layer.src[row]), int(layer.dst[row]), layer.t[row].item())


@dataclass(frozen=True, eq=False, kw_only=True)
class PastWithout(Past):
    """A past whose look-ups do not find one event.

    Args:
        hidden: the event.
    """

    hidden: OneEvent

    @classmethod
    def of(cls, past: Past, hidden: OneEvent) -> PastWithout:
        """Return a past without an event."""
        return cls(**{field.name: getattr(past, field.name) for field in fields(Past)}, hidden=hidden)

    def store(self, *, deletions: bool = False) -> LayeredStore:
        """Return look-ups over all other events; see `Past.store`."""
        return StoreWithout(self.layers, self.num_nodes, self.hidden, deletions=deletions)


class StoreWithout(LayeredStore):
    """What a `LayeredStore` answers had one event not happened.

    Args:
        layers, num_nodes, deletions: as there.
        hidden: the event.
    """

    def __init__(self, layers: Sequence[Layer], num_nodes: int, hidden: OneEvent, *, deletions: bool = False) -> None:
        super().__init__(layers, num_nodes, deletions=deletions)
        self.hidden = hidden

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k events of each node strictly before its time, but for the hidden one."""
        found = super().last(nodes, times, k + 1)
        kept = found.event_ids != self.hidden.id
        count = np.bincount(found.rows()[kept], minlength=len(found))
        ends, taken = np.cumsum(count), np.minimum(count, k)
        rows = np.flatnonzero(kept)[ranges(ends - taken, taken)]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(taken)])
        return PackedNeighbors(offsets, found.nodes[rows], found.event_ids[rows], found.times[rows])

    def last_meeting(
        self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return when each pair last met but in the hidden event; see `LayeredStore.last_meeting`."""
        last, met = super().last_meeting(src, dst, times, directed)
        hit = np.flatnonzero(self._meets(src, dst, directed) & met & (last == self.hidden.t))
        if len(hit):
            before = np.full(len(hit), self.hidden.t, self.time_dtype)
            u, v = np.asarray(src)[hit], np.asarray(dst)[hit]
            count = super().count_meetings(u, v, np.asarray(times)[hit], directed)
            alone = count - super().count_meetings(u, v, before, directed) == 1  # nothing else at that very time
            earlier, any_earlier = super().last_meeting(u[alone], v[alone], before[alone], directed)
            last[hit[alone]], met[hit[alone]] = earlier, any_earlier
        return last, met

    def count_meetings(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False) -> np.ndarray:
        """Return (Q,) int64 how often each pair met but in the hidden event; see `LayeredStore.count_meetings`."""
        count = super().count_meetings(src, dst, times, directed)
        return count - (self._meets(src, dst, directed) & (np.asarray(times) > self.hidden.t))

    def parts(self, nodes: np.ndarray) -> list[Part]:
        """Return what compiled loops read of nodes (q,), but for the hidden event; see `Histories.parts`."""
        layers = [layer for layer in self.layers if len(layer)]
        return [
            self._without(part, np.unique(layer.local(nodes, added=self.added)))
            if layer.first <= self.hidden.id < layer.last
            else part
            for layer, part in zip(layers, super().parts(nodes), strict=True)
        ]

    def event_times(self) -> EventTimes:
        """Return the times of all other events; see `LayeredStore.event_times`."""
        return EventTimes(super().event_times().pieces, hidden=self.hidden.t)

    def _without(self, part: Part, rows: np.ndarray) -> Part:
        """Return a part with the histories of its rows (q,) alone, but for the hidden event."""
        start, length = np.zeros_like(part.arrays["start"]), np.zeros_like(part.arrays["length"])
        entries = ranges(part.arrays["start"][rows], part.arrays["length"][rows])
        of = np.repeat(rows, part.arrays["length"][rows])
        kept = part.arrays["events"][entries] != self.hidden.id
        length[rows] = np.bincount(of[kept], minlength=len(length))[rows]
        start[rows] = np.cumsum(length[rows]) - length[rows]
        columns = {name: part.arrays[name][entries[kept]] for name in ("codes", "events", "times")}
        return part._replace(arrays={"start": start, "length": length, **columns})

    def _meets(self, src: np.ndarray, dst: np.ndarray, directed: bool) -> np.ndarray:
        """Return (Q,) whether the hidden event is a meeting of each pair."""
        u, v, a, b = np.asarray(src), np.asarray(dst), self.hidden.src, self.hidden.dst
        there = (u == a) & (v == b)
        return there if directed else there | ((u == b) & (v == a))
