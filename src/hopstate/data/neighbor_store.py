"""Per-node histories of an event stream, for look-ups strictly before a time; grows at amortised O(1) per event.

Both ends see an event: u's history holds v and v's holds u; a self-event stands once in its node's history. A query
sees exactly the events with a smaller time, whatever was appended since, so one store may hold a whole stream and
serve training, evaluation and live scoring. 16 bytes per entry: 32 per event, plus 24 per node. It grows as
`neighbor_arena` says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.lookup import Part
from hopstate.data.neighbor_arena import ARRAYS, HistoryArena
from hopstate.data.stretch import stretch
from hopstate.errors import ConfigError, DataError, ShapeError
from hopstate.io.scratch import folder_beside
from hopstate.ops.neighbors import PackedNeighbors, cooccurrence

if TYPE_CHECKING:
    from hopstate.data.events import EventStream

MAPPED = 1 << 28  # bytes of entries from which the store of a mapped stream is mapped


_ALL = np.empty(0, np.int64)  # a part's nodes where its numbers are all nodes'


def folder_of(stream: EventStream) -> Path | None:
    """Return where the store of a stream is mapped; None where it stays in memory."""
    return folder_beside(stream.src) if 32 * len(stream) >= MAPPED else None


class NeighborStore(HistoryArena):
    """Histories of num_nodes nodes.

    Args:
        num_nodes: N, under 2^31; `append` may raise it.
        time_dtype: int64 or float64, that of the times stored and returned.
        folder: where entries lie in files without names, mapped; None keeps them in memory.

    Raises:
        ConfigError: a negative or too large N, or another time type.
    """

    @classmethod
    def from_events(
        cls,
        src: np.ndarray,
        dst: np.ndarray,
        t: np.ndarray,
        event_ids: np.ndarray | None = None,
        num_nodes: int | None = None,
        folder: Path | None = None,
    ) -> NeighborStore:
        """Build a store from columns sorted by time, with no spare room; columns may be memory-mapped.

        Args:
            src, dst: (E,) int64.
            t: (E,) int64 or float64.
            event_ids: (E,) int64; by default 0..E-1.
            num_nodes: N; by default one more than the largest row.
            folder: where the entries lie, mapped; None keeps them in memory.

        Raises:
            TimeOrderError: the times are not sorted.
            StorageError: the folder's disk has no room for them.
            DataError: a row that is negative or not under num_nodes, or too many events.
        """
        if num_nodes is None:
            num_nodes = int(max(np.max(src, initial=-1), np.max(dst, initial=-1))) + 1
        kind = np.float64 if np.asarray(t[:0]).dtype.kind == "f" else np.int64
        store = cls(num_nodes, time_dtype=kind, folder=folder)
        store._build(src, dst, t, event_ids)
        return store

    @classmethod
    def from_stream(
        cls, stream: EventStream, rows: np.ndarray | None = None, *, deletions: bool = False
    ) -> NeighborStore:
        """Build a store of a stream's events under the stream's ids.

        That of a mapped stream is mapped too where it is large: it lies beside the stream's files, without a name.

        Args:
            stream: the events.
            rows: ascending positions of those that it is to hold; by default all.
            deletions: let those of edges stand in it as events of their own; by default only added edges are there, so
                that a deletion is no meeting and takes up none of a look-up's k.
        """
        if stream.has_deletes and not deletions:
            rows = stream.additions(rows)
        elif stream.has_gone:
            rows = stream.edge_rows(rows)
        folder = folder_of(stream)
        if rows is None:
            ids = stream.event_ids if stream.first_id else None
            return cls.from_events(stream.src, stream.dst, stream.t, ids, stream.num_nodes, folder)
        part = stretch(rows)
        ids = None if isinstance(part, slice) and part.start + stream.first_id == 0 else rows + stream.first_id
        return cls.from_events(stream.src[part], stream.dst[part], stream.t[part], ids, stream.num_nodes, folder)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], num_events: int) -> NeighborStore:
        """Return the store whose `arrays` these are; they may be memory-mapped, and it is only to be queried.

        Args:
            arrays: start, length (N,), codes, events, times (T,).
            num_events: how many they hold.
        """
        store = cls(0, time_dtype=arrays["times"].dtype)
        store._start, store._length, store._codes, store._events, store._times = (arrays[k] for k in ARRAYS)
        store._capacity, store._num_nodes, store._top = store._length, len(store._start), len(store._codes)
        store.num_events, store._event_times = num_events, None
        return store

    # ---- queries ---------------------------------------------------------------------------------------
    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k events of each node strictly before its time, oldest first, packed.

        Args:
            nodes: (Q,) int64.
            times: (Q,), in the unit of the store's times.
            k: most entries per query, at least 0.

        >>> store = NeighborStore.from_events(np.array([0, 0, 0]), np.array([1, 2, 1]), np.array([10, 20, 30]))
        >>> seen = store.last(np.array([0, 0]), np.array([30, 31]), k=2)
        >>> seen.offsets.tolist(), seen.times.tolist()  # the event at 30 is not before 30
        ([0, 2, 4], [10, 20, 20, 30])

        Raises:
            ShapeError: nodes and times differ in length.
            DataError: a node that is negative or not under num_nodes.
        """
        from hopstate.ops.neighbors.kernels import copy_out, find

        nodes, times = self._query(nodes, times, k)
        first, offsets = np.empty(len(nodes), np.int64), np.empty(len(nodes) + 1, np.int64)
        find(nodes, times, k, self._start, self._length, self._times, first, offsets)
        out = self._empty(offsets)
        copy_out(first, offsets, self._codes, self._events, self._times, out.nodes, out.event_ids, out.times)
        return out

    def last_standing(
        self, nodes: np.ndarray, times: np.ndarray, k: int, ends: np.ndarray, until: int, first_id: int = 0
    ) -> PackedNeighbors:
        """Return the last k edges of each node before its time that stand after event `until`, oldest first, packed.

        Costs a scan of the history back to the k-th such edge.

        Args:
            nodes, times, k: as `last`.
            ends: (E,) int64 the id of the event that ends each event's edge, larger than all ids where none does.
            until: an id; edges that end at or before it are passed over.
            first_id: the id of the first event of ends.

        Raises:
            ShapeError, DataError: as `last`.
        """
        from hopstate.ops.neighbors.kernels import find_standing, gather

        nodes, times = self._query(nodes, times, k)
        offsets = np.empty(len(nodes) + 1, np.int64)
        positions = np.empty(int(np.minimum(self._length[nodes], k).sum()), np.int64)
        entries = (self._start, self._length, self._times, self._events)
        find_standing(nodes, times, k, *entries, ends, first_id, until, positions, offsets)
        out = self._empty(offsets)
        positions = positions[: offsets[-1]]
        gather(positions, self._codes, self._events, self._times, out.nodes, out.event_ids, out.times)
        return out

    def uniform(self, nodes: np.ndarray, times: np.ndarray, k: int, seed: int) -> PackedNeighbors:
        """Return k events of each node drawn uniformly without replacement from those strictly before its time.

        Args, errors: as `last`; all events where there are at most k. Oldest first. Query q draws from (seed, q).
        """
        from hopstate.ops.neighbors.kernels import gather, sample_offsets, sample_positions

        nodes, times = self._query(nodes, times, k)
        available, offsets = np.empty(len(nodes), np.int64), np.empty(len(nodes) + 1, np.int64)
        sample_offsets(nodes, times, k, self._start, self._length, self._times, available, offsets)
        positions = np.empty(offsets[-1], np.int64)
        sample_positions(nodes, self._start, available, offsets, seed, positions)
        out = self._empty(offsets)
        gather(positions, self._codes, self._events, self._times, out.nodes, out.event_ids, out.times)
        return out

    def last_hops(self, nodes: np.ndarray, times: np.ndarray, k: int, num_hops: int) -> list[PackedNeighbors]:
        """Return the last k events of each node, then of each of their neighbours, and so on, one record per hop.

        Entry i of hop h is query i of hop h + 1. Every hop looks strictly before the root query's time.

        Args, errors: as `last`; num_hops at least 1.
        """
        if num_hops < 1:
            raise ConfigError(f"num_hops is {num_hops}; it must be at least 1")
        hops = [self.last(nodes, times, k)]
        times = self._times_as_stored(np.asarray(times))
        for _ in range(num_hops - 1):
            times = np.repeat(times, hops[-1].lengths)
            hops.append(self.last(hops[-1].nodes, times, k))
        return hops

    def last_meeting(
        self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return when each pair last met strictly before its time, and whether it ever did.

        Costs one scan of the less busy end's history.

        Args:
            src, dst: (Q,) int64.
            times: (Q,), in the unit of the store's times.
            directed: count only events from src to dst.

        Returns:
            (Q,) times in the store's type, 0 where they never met; (Q,) bool.
        """
        from hopstate.ops.neighbors.kernels import last_meeting_kernel

        src, times = self._query(src, times, 0)
        dst = self._query(dst, times, 0)[0]
        last, met = np.empty(len(src), self.time_dtype), np.empty(len(src), bool)
        last_meeting_kernel(src, dst, times, directed, self._start, self._length, self._codes, self._times, last, met)
        return last, met

    def count_meetings(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False) -> np.ndarray:
        """Return (Q,) int64: how often each pair met strictly before its time; directed as in `last_meeting`."""
        from hopstate.ops.neighbors.kernels import count_meetings_kernel

        src, times = self._query(src, times, 0)
        dst, count = self._query(dst, times, 0)[0], np.empty(len(src), np.int64)
        count_meetings_kernel(src, dst, times, directed, self._start, self._length, self._codes, self._times, count)
        return count

    def parts(self, nodes: np.ndarray) -> list[Part]:
        """Return what compiled loops read: one part with the histories of all nodes; see `Histories.parts`."""
        return [Part(_ALL, self.arrays())]

    @staticmethod
    def cooccurrence(u: PackedNeighbors, v: PackedNeighbors) -> tuple[np.ndarray, np.ndarray]:
        """Count each entry's neighbour in u's and v's lists; see `hopstate.ops.neighbors.cooccurrence`."""
        return cooccurrence(u.offsets, u.nodes, v.offsets, v.nodes)

    def checked(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs and times as a compiled loop over `arrays` takes them; arguments, errors: as `last_meeting`."""
        src, times = self._query(src, times, 0)
        return src, self._query(dst, times, 0)[0], times

    def _times_as_stored(self, times: np.ndarray) -> np.ndarray:
        return times_as_stored(times, self.time_dtype)

    def _query(self, nodes: np.ndarray, times: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        nodes, times = self._rows(nodes), np.asarray(times)
        if len(nodes) != len(times):
            raise ShapeError(f"{len(nodes)} nodes but {len(times)} times")
        if k < 0:
            raise ConfigError(f"k is {k}; it must be at least 0")
        self._looked_up(len(nodes))
        return nodes, self._times_as_stored(times)

    def _empty(self, offsets: np.ndarray) -> PackedNeighbors:
        size = int(offsets[-1])
        return PackedNeighbors(
            offsets, np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, self.time_dtype)
        )


def times_as_stored(times: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Return query times in the stored type; a fraction over integer times becomes the next integer.

    Args:
        times: (Q,), in the unit of the store's times.
        kind: int64 or float64.

    Raises:
        DataError: one is NaN.
    """
    if times.dtype.kind == "f" and np.isnan(times).any():
        raise DataError(f"the query time in row {int(np.argmax(np.isnan(times)))} is NaN")
    if kind == np.int64 and times.dtype.kind == "f":
        times = np.clip(np.ceil(times), -(2.0**63), 2.0**63 - 1024)
    return np.ascontiguousarray(times, kind)
