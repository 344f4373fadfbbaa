"""What a `NeighborStore` of all events answers, from the layers of a past."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hopstate.data.event_times import EventTimes
from hopstate.data.layers import Layer
from hopstate.data.lookup import Part
from hopstate.data.neighbor_store import NeighborStore, times_as_stored
from hopstate.errors import DataError, ShapeError
from hopstate.ops.neighbors import PackedNeighbors
from hopstate.ops.rows import ranges


class LayeredStore:
    """What a `NeighborStore` of all events answers, from layers.

    Args:
        layers: consecutive, oldest first.
        num_nodes: N.
        deletions: let those of edges stand in it too, as in `NeighborStore.from_stream`.
    """

    def __init__(self, layers: Sequence[Layer], num_nodes: int, *, deletions: bool = False) -> None:
        self.layers, self.num_nodes, self.added = tuple(layers), num_nodes, not deletions
        floats = any(layer.t.dtype.kind == "f" for layer in self.layers) or not self.layers
        self.time_dtype = np.dtype(np.float64 if floats else np.int64)
        self.num_events = sum(len(layer) for layer in self.layers)
        self.last_time = self.layers[-1].t[-1].item() if self.num_events else None

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k events of each node strictly before its time; see `NeighborStore.last`."""
        nodes, times = self._query(nodes, times)
        left, found = np.full(len(nodes), k, np.int64), []
        for layer in reversed(self.layers):
            local = layer.local(nodes, added=self.added)
            asked = np.flatnonzero((left > 0) & (local < len(layer.nodes)))
            if not len(asked):
                continue
            lookup = self._of(layer).last(local[asked], times[asked], k)
            layer.check_found(lookup)
            count = np.minimum(lookup.lengths, left[asked])
            left[asked] -= count
            found.append((layer, asked, lookup, count))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(k - left)])
        out = [np.empty(offsets[-1], kind) for kind in (np.int64, np.int64, self.time_dtype)]
        end = offsets[1:].copy()
        for layer, asked, lookup, count in found:  # newest first, so each query is filled from its end
            end[asked] -= count
            to, source = ranges(end[asked], count), ranges(lookup.offsets[1:] - count, count)
            out[0][to], out[1][to], out[2][to] = (
                layer.nodes[lookup.nodes[source]],
                lookup.event_ids[source],
                lookup.times[source],
            )
        return PackedNeighbors(offsets, *out)

    def last_hops(self, nodes: np.ndarray, times: np.ndarray, k: int, num_hops: int) -> list[PackedNeighbors]:
        """Return the last k events of nodes, of their neighbours, and so on; see `NeighborStore.last_hops`.

        Args:
            nodes, times, k: as in `last`.
            num_hops: records returned, one a hop.
        """
        hops = [self.last(nodes, times, k)]
        for _ in range(num_hops - 1):
            times = np.repeat(times, hops[-1].lengths)
            hops.append(self.last(hops[-1].nodes, times, k))
        return hops

    def last_meeting(
        self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return when each pair last met strictly before its time, and whether; see `NeighborStore.last_meeting`.

        Args:
            src, dst, times: (Q,).
            directed: count only events from src to dst.
        """
        src, times = self._query(src, times)
        dst, _ = self._query(dst, times)
        when, met = np.zeros(len(src), self.time_dtype), np.zeros(len(src), bool)
        for layer in reversed(self.layers):
            u, v = layer.local(src, added=self.added), layer.local(dst, added=self.added)
            asked = np.flatnonzero(~met & (u < len(layer.nodes)) & (v < len(layer.nodes)))
            if len(asked):
                when[asked], met[asked] = self._of(layer).last_meeting(u[asked], v[asked], times[asked], directed)
        return when, met

    def count_meetings(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False) -> np.ndarray:
        """Return (Q,) int64: how often each pair met strictly before its time; see `NeighborStore.count_meetings`.

        Args:
            src, dst, times: (Q,).
            directed: count only events from src to dst.
        """
        src, times = self._query(src, times)
        dst, _ = self._query(dst, times)
        count = np.zeros(len(src), np.int64)
        for layer in self.layers:
            u, v = layer.local(src, added=self.added), layer.local(dst, added=self.added)
            asked = np.flatnonzero((u < len(layer.nodes)) & (v < len(layer.nodes)))
            if len(asked):
                count[asked] += self._of(layer).count_meetings(u[asked], v[asked], times[asked], directed)
        return count

    def last_standing(
        self, nodes: np.ndarray, times: np.ndarray, k: int, ends: Callable[[np.ndarray], np.ndarray], until: int
    ) -> PackedNeighbors:
        """Return the last k edges of each node before its time that stand after event `until`, oldest first.

        Args:
            nodes, times, k: as in `last`.
            ends: ids of added edges (q,) to those of the events that end them.
            until: an id; edges that end at or before it are passed over.
        """
        nodes, times = self._query(nodes, times)
        asked, width, parts = np.arange(len(nodes)), 2 * k, []
        while len(asked):
            found = self.last(nodes[asked], times[asked], width)
            stands, of = ends(found.event_ids) > until, found.rows()
            later = np.cumsum(stands[::-1])[::-1]  # that stand from here to the end of all lists
            rank = later - np.append(later, 0)[found.offsets[of + 1]]
            whole = (np.bincount(of[stands], minlength=len(asked)) >= k) | (found.lengths < width)
            rows = np.flatnonzero(stands & (rank <= k) & whole[of])
            parts.append((asked[of[rows]], found.nodes[rows], found.event_ids[rows], found.times[rows]))
            asked, width = asked[~whole], 4 * width
        query, *columns = (np.concatenate(c) for c in zip(*parts)) if parts else (np.empty(0, np.int64),) * 4
        order = np.argsort(query, kind="stable")
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(query, minlength=len(nodes)))])
        return PackedNeighbors(offsets, *(c[order] for c in columns))

    def all_of(self, nodes: np.ndarray) -> PackedNeighbors:
        """Return all events of each node, oldest first, packed.

        Args:
            nodes: (Q,) int64.
        """
        end = np.iinfo(np.int64).max if self.time_dtype == np.int64 else np.inf
        return self.last(nodes, np.full(len(nodes), end, self.time_dtype), 1 << 62)

    def degrees_of(self, nodes: np.ndarray) -> np.ndarray:
        """Return (Q,) int64 how many events each node has.

        Args:
            nodes: (Q,) int64.
        """
        count = np.zeros(len(nodes), np.int64)
        for layer in self.layers:
            count += self._index(layer)["length"][layer.local(nodes, added=self.added)]
        return count

    def parts(self, nodes: np.ndarray) -> list[Part]:
        """Return what compiled loops read: a part a layer; see `Histories.parts`."""
        return [Part(layer.nodes, self._index(layer), layer.path) for layer in self.layers if len(layer)]

    def event_times(self) -> EventTimes:
        """Return the times of all events; see `Histories.event_times`."""
        return EventTimes(
            times
            for layer in self.layers
            for times in ([layer.t] if layer.kind is None else self._of(layer).event_times().pieces)
        )

    def checked(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs and times as compiled loops take them; see `Histories.checked`."""
        src, times = self._query(src, times)
        dst, _ = self._query(dst, times)
        if not len(src) == len(dst) == len(times):
            raise ShapeError(f"{len(src)} and {len(dst)} nodes but {len(times)} times")
        return src, dst, times_as_stored(times, self.time_dtype)

    def _index(self, layer: Layer) -> dict[str, np.ndarray]:
        return layer.index if layer.added is None or not self.added else layer.added

    def _of(self, layer: Layer) -> NeighborStore:
        return layer.added_store if self.added else layer.store

    def _query(self, nodes: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nodes = np.ascontiguousarray(nodes, np.int64)
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= self.num_nodes):
            bad = int(np.argmax((nodes < 0) | (nodes >= self.num_nodes)))
            raise DataError(f"node {nodes[bad]} (row {bad}) is not in 0..{self.num_nodes - 1}")
        return nodes, np.asarray(times)
