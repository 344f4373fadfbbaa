"""Per-node histories of an event stream, for look-ups strictly before a time; grows at amortised O(1) per event.

Both ends see an event: u's history holds v and v's holds u; a self-event stands once in its node's history. A query
sees exactly the events with a smaller time, whatever was appended since, so one store may hold a whole stream and
serve training, evaluation and live scoring. 16 bytes per entry: 32 per event, plus 24 per node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.ops.neighbors import PackedNeighbors, cooccurrence

if TYPE_CHECKING:
    from hopstate.data.events import EventStream

_LIMIT = 2**31 - 1
_CHUNK = 1 << 20  # events read together from a mapped stream
_NO_IDS = np.empty(0, np.int64)
_ARRAYS = ("start", "length", "codes", "events", "times")


class NeighborStore:
    """Histories of num_nodes nodes.

    Args:
        num_nodes: N, under 2^31; `append` may raise it.
        time_dtype: int64 or float64, that of the times stored and returned.

    Raises:
        ConfigError: a negative or too large N, or another time type.
    """

    def __init__(self, num_nodes: int, *, time_dtype: np.dtype | type | str = np.float64) -> None:
        if not 0 <= num_nodes <= _LIMIT:
            raise ConfigError(f"num_nodes is {num_nodes}; a store holds 0 to {_LIMIT} nodes")
        self.time_dtype = np.dtype(time_dtype)
        if self.time_dtype not in (np.int64, np.float64):
            raise ConfigError(f"times are int64 or float64, not {self.time_dtype}")
        self._start, self._length, self._capacity = (np.zeros(num_nodes, np.int64) for _ in range(3))
        self._allocate(0)
        self._top = 0  # first free place of the arena
        self._left = 0  # places left behind by histories that moved
        self._num_nodes = num_nodes  # the node columns may have spare rows
        self.num_events = 0
        self.last_time: float | int | None = None

    @classmethod
    def from_events(
        cls,
        src: np.ndarray,
        dst: np.ndarray,
        t: np.ndarray,
        event_ids: np.ndarray | None = None,
        num_nodes: int | None = None,
    ) -> NeighborStore:
        """Build a store from columns sorted by time, with no spare room; columns may be memory-mapped.

        Args:
            src, dst: (E,) int64.
            t: (E,) int64 or float64.
            event_ids: (E,) int64; by default 0..E-1.
            num_nodes: N; by default one more than the largest row.

        Raises:
            TimeOrderError: the times are not sorted.
            DataError: a row that is negative or not under num_nodes, or too many events.
        """
        if num_nodes is None:
            num_nodes = int(max(np.max(src, initial=-1), np.max(dst, initial=-1))) + 1
        kind = np.float64 if np.asarray(t[:0]).dtype.kind == "f" else np.int64
        store = cls(num_nodes, time_dtype=kind)
        store._build(src, dst, t, event_ids)
        return store

    @classmethod
    def from_stream(
        cls, stream: EventStream, rows: np.ndarray | None = None, *, deletions: bool = False
    ) -> NeighborStore:
        """Build a store of a stream's events under the stream's ids.

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
        if rows is None:
            ids = stream.event_ids if stream.first_id else None
            return cls.from_events(stream.src, stream.dst, stream.t, ids, stream.num_nodes)
        columns = (stream.src[rows], stream.dst[rows], stream.t[rows], rows + stream.first_id)
        return cls.from_events(*columns, stream.num_nodes)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], num_events: int) -> NeighborStore:
        """Return the store whose `arrays` these are; they may be memory-mapped, and it is only to be queried.

        Args:
            arrays: start, length (N,), codes, events, times (T,).
            num_events: how many they hold.
        """
        store = cls(0, time_dtype=arrays["times"].dtype)
        store._start, store._length, store._codes, store._events, store._times = (arrays[k] for k in _ARRAYS)
        store._capacity, store._num_nodes, store._top = store._length, len(store._start), len(store._codes)
        store.num_events = num_events
        return store

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what `of_arrays` takes; once events are appended, they may have room between histories."""
        held = (self._start, self._length, self._codes, self._events, self._times)
        return dict(zip(_ARRAYS, held, strict=True))

    # ---- sizes -----------------------------------------------------------------------------------------
    @property
    def num_nodes(self) -> int:
        """N; grows where events bring new nodes."""
        return self._num_nodes

    @property
    def degrees(self) -> np.ndarray:
        """(N,) int64 length of every node's whole history."""
        return self._length[: self._num_nodes].copy()

    @property
    def num_bytes(self) -> int:
        """Bytes of memory held, spare room included."""
        arrays = (self._codes, self._events, self._times, self._start, self._length, self._capacity)
        return sum(array.nbytes for array in arrays)

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

    @staticmethod
    def cooccurrence(u: PackedNeighbors, v: PackedNeighbors) -> tuple[np.ndarray, np.ndarray]:
        """Count each entry's neighbour in u's and v's lists; see `hopstate.ops.neighbors.cooccurrence`."""
        return cooccurrence(u.offsets, u.nodes, v.offsets, v.nodes)

    def checked(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs and times as a compiled loop over `arrays` takes them; arguments, errors: as `last_meeting`."""
        src, times = self._query(src, times, 0)
        return src, self._query(dst, times, 0)[0], times

    # ---- growth ----------------------------------------------------------------------------------------
    def append(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None = None) -> None:
        """Add events after all that are stored; new nodes raise num_nodes.

        Args:
            src, dst: (B,) int64.
            t: (B,), not decreasing and not before the last time stored.
            event_ids: (B,) int64; by default they go on from the number of events stored.

        Raises:
            TimeOrderError: a time before an earlier one; nothing was added.
            DataError: a negative row, or too many events.
        """
        from hopstate.ops.neighbors.kernels import count_events, fill, move_segments, reserve

        src, dst, t, ids = self._events_in(src, dst, t, event_ids)
        if not len(src):
            return
        self._grow_nodes(int(max(src.max(), dst.max())) + 1)
        touched, inverse = np.unique(np.concatenate([src, dst]), return_inverse=True)
        added = np.zeros(len(touched), np.int64)
        count_events(inverse[: len(src)], inverse[len(src) :], added)
        need = self._length[touched] + added
        room = np.maximum(need, 2 * self._capacity[touched]) + 4
        self._grow_arena(self._top + int(room[need > self._capacity[touched]].sum()))
        self._top, left, old = reserve(added, touched, self._start, self._length, self._capacity, self._top)
        self._left += left
        columns = (self._codes, self._events, self._times)
        move_segments(touched, old, self._start, self._length, *columns, *columns)
        fill(src, dst, t, self.num_events, ids, self._start, self._length, *columns)
        self._note(t)
        self._compact()

    def _build(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None) -> None:
        from hopstate.ops.neighbors.kernels import count_events, fill

        if not len(src) == len(dst) == len(t):
            raise ShapeError(f"src, dst and t differ in length: {len(src)}, {len(dst)}, {len(t)}")
        chunks = [slice(i, i + _CHUNK) for i in range(0, len(src), _CHUNK)]
        for part in chunks:
            a, b = self._rows(src[part]), self._rows(dst[part])
            count_events(a, b, self._capacity)
        self._top = int(self._capacity.sum())
        self._start[1:] = np.cumsum(self._capacity)[:-1]
        self._allocate(self._top)
        for part in chunks:
            ids = None if event_ids is None else event_ids[part]
            a, b, when, ids = self._events_in(src[part], dst[part], t[part], ids)
            columns = (self._codes, self._events, self._times)
            fill(a, b, when, self.num_events, ids, self._start, self._length, *columns)
            self._note(when)

    def _events_in(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Check a batch of events and return its columns in the types stored."""
        ids = _NO_IDS if event_ids is None else np.ascontiguousarray(event_ids, np.int64)
        if not len(src) == len(dst) == len(t) or (event_ids is not None and len(ids) != len(src)):
            raise ShapeError(f"columns differ in length: src {len(src)}, dst {len(dst)}, t {len(t)}, ids {len(ids)}")
        a, b = _whole(src), _whole(dst)
        if len(a) and min(a.min(), b.min()) < 0:
            raise DataError(f"event {int(np.argmax((a < 0) | (b < 0)))} of the batch has a negative node")
        if len(a) and max(a.max(), b.max()) >= _LIMIT:
            raise DataError(f"a node row reaches {max(a.max(), b.max())}; a store holds up to {_LIMIT} nodes")
        if self.num_events + len(a) > _LIMIT or ids.max(initial=0) > _LIMIT:
            raise DataError(f"a store holds up to {_LIMIT} events, with ids up to {_LIMIT}")
        when = np.asarray(t)
        if when.dtype.kind == "f" and not np.isfinite(when).all():
            raise DataError(f"the time of event {int(np.argmin(np.isfinite(when)))} of the batch is not finite")
        if self.time_dtype == np.int64 and when.dtype.kind == "f" and np.any(when != np.floor(when)):
            raise DataError("the store holds int64 times and was given fractions; build it with time_dtype=float64")
        when = np.ascontiguousarray(when, self.time_dtype)
        late = np.flatnonzero(when[1:] < when[:-1]) + 1
        if len(when) and self.last_time is not None and when[0] < self.last_time:
            late = np.zeros(1, np.int64)
        if len(late):
            before = self.last_time if late[0] == 0 else when[late[0] - 1]
            raise TimeOrderError(
                f"event {late[0]} of the batch has time {when[late[0]]}, but {before} is already past; "
                "sort the events, or build a new store"
            )
        return a, b, when, ids

    def _note(self, t: np.ndarray) -> None:
        self.num_events += len(t)
        self.last_time = t[-1].item() if len(t) else self.last_time

    def _allocate(self, size: int) -> None:
        self._codes, self._events = np.empty(size, np.int32), np.empty(size, np.int32)
        self._times = np.empty(size, self.time_dtype)

    def _grow_nodes(self, num_nodes: int) -> None:
        self._num_nodes = max(num_nodes, self._num_nodes)
        if num_nodes > len(self._start):
            room = np.zeros(num_nodes + num_nodes // 2 - len(self._start), np.int64)
            self._start, self._length, self._capacity = (
                np.concatenate([column, room]) for column in (self._start, self._length, self._capacity)
            )

    def _grow_arena(self, size: int) -> None:
        if size <= len(self._codes):
            return
        size = max(size, len(self._codes) + len(self._codes) // 2, 1024)
        for name in ("_codes", "_events", "_times"):
            column = getattr(self, name)
            wider = np.empty(size, column.dtype)
            wider[: self._top] = column[: self._top]
            setattr(self, name, wider)

    def _compact(self) -> None:
        """Pack the segments again once more than half of the arena is left behind by moved histories."""
        from hopstate.ops.neighbors.kernels import move_segments

        if self._top < 4096 or 2 * self._left <= self._top:
            return
        old, columns = self._start.copy(), (self._codes, self._events, self._times)
        self._start = np.zeros_like(old)
        np.cumsum(self._capacity[:-1], out=self._start[1:])
        self._top, self._left = int(self._capacity.sum()), 0
        self._allocate(self._top + self._top // 2)
        nodes = np.arange(len(old))
        move_segments(nodes, old, self._start, self._length, *columns, self._codes, self._events, self._times)

    # ---- checks ----------------------------------------------------------------------------------------
    def _rows(self, nodes: np.ndarray) -> np.ndarray:
        nodes = _whole(nodes)
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= self.num_nodes):
            bad = int(np.argmax((nodes < 0) | (nodes >= self.num_nodes)))
            raise DataError(f"node {nodes[bad]} (row {bad}) is not in 0..{self.num_nodes - 1}")
        return nodes

    def _times_as_stored(self, times: np.ndarray) -> np.ndarray:
        """Return query times in the stored type; a fraction over integer times becomes the next integer."""
        if self.time_dtype == np.int64 and times.dtype.kind == "f":
            times = np.clip(np.ceil(times), -(2.0**63), 2.0**63 - 1024)
        return np.ascontiguousarray(times, self.time_dtype)

    def _query(self, nodes: np.ndarray, times: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        nodes, times = self._rows(nodes), np.asarray(times)
        if len(nodes) != len(times):
            raise ShapeError(f"{len(nodes)} nodes but {len(times)} times")
        if k < 0:
            raise ConfigError(f"k is {k}; it must be at least 0")
        if times.dtype.kind == "f" and np.isnan(times).any():
            raise DataError(f"the query time in row {int(np.argmax(np.isnan(times)))} is NaN")
        return nodes, self._times_as_stored(times)

    def _empty(self, offsets: np.ndarray) -> PackedNeighbors:
        size = int(offsets[-1])
        return PackedNeighbors(
            offsets, np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, self.time_dtype)
        )


def _whole(nodes: np.ndarray) -> np.ndarray:
    """Return node rows as int64.

    Raises:
        DataError: they are not integers.
    """
    kind = np.asarray(nodes[:0]).dtype
    if len(nodes) and kind.kind not in "iu":
        raise DataError(f"nodes are rows, so integers; got {kind}")
    return np.ascontiguousarray(nodes, np.int64)
