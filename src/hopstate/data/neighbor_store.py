"""Per-node histories of an event stream, for queries strictly before a time; an event costs O(1) amortized.

Both ends see an event: u's history holds v and v's holds u; a self-loop is once in its node's history. A query sees
exactly the events with a smaller time, whatever was appended since, so one store serves training, evaluation and
online scoring. 16 bytes per entry: 32 per event, plus 24 per node.

The entries of a node lie together in the order of time, with room for more. A history that outgrows its room moves to
the end. Once more than half of the entries are left behind, all histories are packed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from hopstate.data.events import as_slice
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.io.scratch import mapped_array, release_pages, scratch_folder_of
from hopstate.ops.neighbors import PackedNeighbors
from hopstate.ops.rows import ranges

if TYPE_CHECKING:
    from hopstate.data.events import EventStream


class Rows(Protocol):
    """Rows of features, or kinds, by the numbers (q,) of nodes or events: an array, or what a state keeps of them."""

    def __getitem__(self, numbers: np.ndarray, /) -> np.ndarray:
        """Return the rows (q, ...) of numbers (q,)."""


MAPPED = 1 << 28  # bytes of entries from which the store of a mapped stream is mapped
LIMIT = 2**31 - 1  # nodes, events and ids
_CHUNK = 1 << 20  # events read together from a mapped stream
_STRETCH = 1 << 24  # entries that are put together in memory before they are written to a mapped file
_NO_IDS = np.empty(0, np.int64)


def folder_of(stream: EventStream) -> Path | None:
    """Return where the store of a stream is mapped; None if it stays in memory."""
    return scratch_folder_of(stream.src) if 32 * len(stream) >= MAPPED else None


class Column:
    """Rows that only grow, in an array that at least doubles when it is full; rows that are there never change place.

    Args:
        rows: the first rows; they are not copied before more come.
    """

    def __init__(self, rows: np.ndarray | None = None) -> None:
        self._room, self._size = rows, 0 if rows is None else len(rows)

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> np.ndarray:
        """All rows, as a view."""
        return np.empty(0, np.int64) if self._room is None else self._room[: self._size]

    def append(self, rows: np.ndarray) -> None:
        """Add rows after all others."""
        if self._room is None or not self._size:
            self._room, self._size = rows, len(rows)
            return
        size = self._size + len(rows)
        if size > len(self._room):
            room = np.empty((max(size, 2 * self._size), *self._room.shape[1:]), self._room.dtype)
            room[: self._size] = self.rows
            self._room = room
        self._room[self._size : size] = rows
        self._size = size


class EventTimes(NamedTuple):
    """Times of events, and how many of them lie between two: a clock that counts events.

    Args:
        times: (E,) not decreasing.
        hidden: time of an event among them that is not counted; None for none.
    """

    times: np.ndarray
    hidden: float | None = None

    def between(self, after: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return int64 events strictly after `after` and strictly before `before`, never less than 0.

        Args:
            after, before: (Q, ...) of shapes that broadcast, of the type of the times.
        """
        counts = np.searchsorted(self.times, before, "left") - np.searchsorted(self.times, after, "right")
        if self.hidden is not None:
            counts = counts - ((after < self.hidden) & (self.hidden < before))
        return np.maximum(counts, 0)


class EventRelations(NamedTuple):
    """Relations of events by their ids.

    Args:
        codes: (E,) int32 relations of the events.
        first_id: id of the first event.
    """

    codes: np.ndarray
    first_id: int = 0

    @classmethod
    def of(cls, stream: EventStream) -> EventRelations | None:
        """Return the relations of a stream; None without."""
        return None if stream.relation is None else cls(np.asarray(stream.relation), stream.first_id)


class Histories(ABC):
    """Look-ups in the histories of nodes, strictly before a time; times are in the unit of the events'."""

    num_nodes: int
    time_dtype: np.dtype[Any]

    @abstractmethod
    def _of(self, *nodes: np.ndarray) -> NeighborStore:
        """Return the store with the histories of nodes (q,), ready for queries."""

    @abstractmethod
    def event_times(self) -> EventTimes:
        """Return the times of all stored events."""

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k events of each node strictly before its time, oldest first, packed.

        Args:
            nodes: (Q,) int64.
            times: (Q,).
            k: maximum number of entries per query.

        >>> store = NeighborStore.from_events(np.array([0, 0, 0]), np.array([1, 2, 1]), np.array([10, 20, 30]))
        >>> seen = store.last(np.array([0, 0]), np.array([30, 31]), k=2)
        >>> seen.offsets.tolist(), seen.times.tolist()  # the event at 30 is not before 30
        ([0, 2, 4], [10, 20, 20, 30])

        Raises:
            ShapeError: nodes and times differ in length.
            DataError: a node is not in 0..num_nodes-1.
        """
        from hopstate.ops.neighbors.kernels import copy_out, find

        store = self._of(nodes)
        nodes, times = store._query(nodes, times, k)
        first, offsets = np.empty(len(nodes), np.int64), np.empty(len(nodes) + 1, np.int64)
        find(nodes, times, k, store._start, store._length, store._times, first, offsets)
        out = store._empty(offsets)
        copy_out(first, offsets, store._codes, store._events, store._times, out.nodes, out.event_ids, out.times)
        return out

    def last_active(
        self, nodes: np.ndarray, times: np.ndarray, k: int, ends: np.ndarray, until: np.ndarray, first_id: int = 0
    ) -> PackedNeighbors:
        """Return the last k edges of each node before its time that are not deleted, oldest first, packed.

        An edge counts as deleted if an event up to `until` ends it. Costs a scan of the history back to the k-th edge.

        Args:
            nodes, times, k: as `last`.
            ends: (E,) int64 id of the event that ends each event's edge, larger than all ids if there is none.
            until: (Q,) ids; edges that end at or before the query's id are ignored.
            first_id: the id of the first event of ends.
        """
        from hopstate.ops.neighbors.kernels import find_active, gather

        store = self._of(nodes)
        nodes, times = store._query(nodes, times, k)
        offsets = np.empty(len(nodes) + 1, np.int64)
        positions = np.empty(int(np.minimum(store._length[nodes], k).sum()), np.int64)
        entries = (store._start, store._length, store._times, store._events)
        find_active(nodes, times, k, *entries, ends, first_id, until, positions, offsets)
        out = store._empty(offsets)
        positions = positions[: offsets[-1]]
        gather(positions, store._codes, store._events, store._times, out.nodes, out.event_ids, out.times)
        return out

    def all_of(self, nodes: np.ndarray) -> PackedNeighbors:
        """Return all events of each of nodes (Q,), oldest first, packed."""
        end = np.iinfo(np.int64).max if self.time_dtype == np.int64 else np.inf
        return self.last(nodes, np.full(len(nodes), end, self.time_dtype), LIMIT)

    def last_meeting(
        self,
        src: np.ndarray,
        dst: np.ndarray,
        times: np.ndarray,
        directed: bool = False,
        *,
        relation: np.ndarray | None = None,
        relations: EventRelations | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the time of each pair's last event strictly before its query time, and whether there is one.

        Costs one scan of the less busy end's history.

        Args:
            src, dst: (Q,) int64.
            times: (Q,).
            directed: count only events from src to dst.
            relation: (Q,) count only events of each pair's own relation; relations are those of the events.

        Returns:
            (Q,) times, 0 if there is none; (Q,) bool.
        """
        from hopstate.ops.neighbors.kernels import last_meeting_kernel, last_typed_meeting_kernel

        store = self._of(src, dst)
        src, dst, times = store.checked(src, dst, times)
        last, has_event = np.empty(len(src), self.time_dtype), np.empty(len(src), bool)
        entries, found = (store._start, store._length, store._codes), (store._times, last, has_event)
        if relation is None or relations is None:
            last_meeting_kernel(src, dst, times, directed, *entries, *found)
        else:
            typed = relation, *relations, directed, *entries, store._events
            last_typed_meeting_kernel(src, dst, times, *typed, *found)
        return last, has_event

    def count_meetings(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False) -> np.ndarray:
        """Return (Q,) int64: event count of each pair strictly before its query time; directed as in `last_meeting`."""
        from hopstate.ops.neighbors.kernels import count_meetings_kernel

        store = self._of(src, dst)
        src, dst, times = store.checked(src, dst, times)
        count = np.empty(len(src), np.int64)
        entries = (store._start, store._length, store._codes, store._times)
        count_meetings_kernel(src, dst, times, directed, *entries, count)
        return count

    def arrays_of(self, nodes: np.ndarray) -> dict[str, np.ndarray]:
        """Return start, length (N,), codes, events and times, as compiled loops read them, with histories of nodes."""
        return self._of(nodes).arrays()

    def checked(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs and times as compiled loops over `arrays_of` take them."""
        store = self._of(src, dst)
        src, times = store._query(src, times, 0)
        return src, store._query(dst, times, 0)[0], times


class NeighborStore(Histories):
    """The events of each node in order of time. Queries return the events strictly before a time.

    Args:
        num_nodes: N, less than 2^31; `append` may increase it.
        time_dtype: dtype of the times, int64 or float64.
        folder: folder of unnamed memory-mapped files for the entries. Default: in memory.

    Raises:
        ConfigError: N is negative or too large, or the dtype is another one.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> store = hopstate.NeighborStore.from_stream(stream)
        >>> found = store.last(np.array([0]), np.array([120]), 3)  # the last 3 events of node 0 before time 120
        >>> found.times.tolist()
        [111, 114, 117]
    """

    def __init__(
        self, num_nodes: int, *, time_dtype: np.dtype | type | str = np.float64, folder: Path | None = None
    ) -> None:
        if not 0 <= num_nodes <= LIMIT:
            raise ConfigError(f"num_nodes is {num_nodes}; a store holds 0 to {LIMIT} nodes")
        self.time_dtype = np.dtype(time_dtype)
        if self.time_dtype not in (np.int64, np.float64):
            raise ConfigError(f"times are int64 or float64, not {self.time_dtype}")
        self._start, self._length, self._capacity = (np.zeros(num_nodes, np.int64) for _ in range(3))
        self._folder = folder
        self._built_of: tuple[np.ndarray, ...] = ()  # columns of a mapped stream
        self._allocate(0)
        self._top = 0  # first free place of the arena
        self._left = 0  # places left behind by histories that moved
        self.num_nodes = num_nodes  # grows with `append`; the node columns may have spare rows
        self._event_column = Column(np.empty(0, self.time_dtype))
        self.num_events = 0
        self.last_id = -1
        self.last_time: float | int | None = None

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

        A large store of a memory-mapped stream is an unnamed file in the folder of the stream.

        Args:
            stream: the events.
            rows: (P,) sorted positions of the events to store. Default: all.
            deletions: store deletions as events, too. By default queries return added edges only.
        """
        if stream.has_deletes and not deletions:
            rows = stream.additions(rows)
        folder = folder_of(stream)
        if rows is None:
            ids = stream.event_ids if stream.first_id else None
            return cls.from_events(stream.src, stream.dst, stream.t, ids, stream.num_nodes, folder)
        part = as_slice(rows)
        ids = None if isinstance(part, slice) and part.start + stream.first_id == 0 else rows + stream.first_id
        return cls.from_events(stream.src[part], stream.dst[part], stream.t[part], ids, stream.num_nodes, folder)

    # ---- queries ---------------------------------------------------------------------------------------
    def _of(self, *nodes: np.ndarray) -> NeighborStore:
        return self

    def _query(self, nodes: np.ndarray, times: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        nodes, times = self._rows(nodes), np.asarray(times)
        if len(nodes) != len(times):
            raise ShapeError(f"{len(nodes)} nodes but {len(times)} times")
        if k < 0:
            raise ConfigError(f"k is {k}; it must be at least 0")
        return nodes, times_as_stored(times, self.time_dtype)

    def _empty(self, offsets: np.ndarray) -> PackedNeighbors:
        size = int(offsets[-1])
        return PackedNeighbors(
            offsets, np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, self.time_dtype)
        )

    def restricted(self, nodes: np.ndarray, before: int, hidden: int | None = None) -> NeighborStore:
        """Return a store for queries of nodes (q,) only, without the events from id `before` on and a hidden one.

        It shares the entries if none is hidden; otherwise those of the nodes are copied. It is outdated by `append`.
        """
        from hopstate.ops.neighbors.kernels import lengths_before

        nodes = np.unique(self._rows(nodes))
        start, length = self._start[nodes], np.empty(len(nodes), np.int64)
        lengths_before(nodes, before, self._start, self._length, self._events, length)
        store = copy(self)
        if hidden is not None:
            entries = ranges(start, length)
            entries_kept = self._events[entries] != hidden
            length = np.bincount(np.repeat(np.arange(len(nodes)), length)[entries_kept], minlength=len(nodes))
            start, entries = np.cumsum(length) - length, entries[entries_kept]
            store._codes, store._events = self._codes[entries], self._events[entries]
            store._times = self._times[entries]
        store._start, store._length = np.zeros((2, self.num_nodes), np.int64)  # takes no memory until it is written
        store._start[nodes], store._length[nodes] = start, length
        return store

    # ---- growing ---------------------------------------------------------------------------------------
    def degrees_of(self, nodes: np.ndarray) -> np.ndarray:
        """Return (Q,) int64 lengths of the whole histories of nodes (Q,)."""
        return self._length[nodes]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return start, length (N,), codes, events, times (T,); there may be room between histories."""
        names = ("start", "length", "codes", "events", "times")
        columns = (self._start, self._length, self._codes, self._events, self._times)
        return dict(zip(names, columns, strict=True))

    def event_times(self) -> EventTimes:
        """Return the times of all events."""
        return EventTimes(self._event_column.rows)

    def append(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None = None) -> None:
        """Add events after all that are stored; new nodes raise num_nodes.

        Args:
            src, dst: (B,) int64.
            t: (B,), not decreasing and not before the last time stored.
            event_ids: (B,) int64; by default they continue from the number of stored events.

        Raises:
            TimeOrderError: a time before an earlier one; nothing was added.
            DataError: a negative row, or too many events.
        """
        from hopstate.ops.neighbors.kernels import count_events, fill, move_segments, reserve

        src, dst, t, ids = self._events_in(src, dst, t, event_ids)
        if not len(src):
            return
        self.reserve_nodes(int(max(src.max(), dst.max())) + 1)
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
        self._event_column.append(t)
        self._note(t, ids)
        self._compact()

    def _build(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None) -> None:
        from hopstate.ops.neighbors.kernels import count_events

        if not len(src) == len(dst) == len(t):
            raise ShapeError(f"src, dst and t differ in length: {len(src)}, {len(dst)}, {len(t)}")
        for i in range(0, len(src), _CHUNK):
            part = slice(i, i + _CHUNK)
            ids = None if event_ids is None else event_ids[part]
            a, b, when, ids = self._events_in(src[part], dst[part], t[part], ids)
            count_events(self._rows(a), self._rows(b), self._capacity)
            self._note(when, ids)
            release_pages(src, dst, t)
        self._top = int(self._capacity.sum())
        self._start[1:] = np.cumsum(self._capacity)[:-1]
        self._allocate(self._top)
        self._fill(src, dst, t, event_ids)
        if self._folder is not None:
            self._built_of = src, dst, t
        self._event_column = Column(np.asarray(t, self.time_dtype))  # itself, so that mapped times stay mapped

    def _fill(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None) -> None:
        """Fill the arena; a mapped one from its start to its end, since entries in order of time are all over it.

        Then the events are read once for each range of nodes that fits in memory.
        """
        from hopstate.ops.neighbors.kernels import fill_node_range

        columns = (self._codes, self._events, self._times)
        size = self._top if self._folder is None else _STRETCH
        ends, low = np.append(self._start[1:], self._top), 0
        while low < self.num_nodes and (first := int(self._start[low])) < self._top:
            high = max(low + 1, int(np.searchsorted(ends, first + size, side="right")))
            place = slice(first, int(ends[high - 1]))
            entries = [column[place] if self._folder is None else np.empty_like(column[place]) for column in columns]
            for i in range(0, len(src), _CHUNK):
                part = slice(i, i + _CHUNK)
                ids = _NO_IDS if event_ids is None else np.ascontiguousarray(event_ids[part], np.int64)
                a, b = _as_int64_rows(src[part]), _as_int64_rows(dst[part])
                when = np.ascontiguousarray(t[part], self.time_dtype)
                fill_node_range(a, b, when, i, ids, low, high, self._start, self._length, *entries)
                release_pages(src, dst, t)
            for column, filled in zip(columns, entries, strict=True):
                if self._folder is not None:
                    column[place] = filled
                    release_pages(column)
            low = high

    def _events_in(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Check a batch of events and return its columns in the types stored."""
        ids = _NO_IDS if event_ids is None else np.ascontiguousarray(event_ids, np.int64)
        if not len(src) == len(dst) == len(t) or (event_ids is not None and len(ids) != len(src)):
            raise ShapeError(f"columns differ in length: src {len(src)}, dst {len(dst)}, t {len(t)}, ids {len(ids)}")
        a, b = _as_int64_rows(src), _as_int64_rows(dst)
        if len(a) and min(a.min(), b.min()) < 0:
            raise DataError(f"event {int(np.argmax((a < 0) | (b < 0)))} of the batch has a negative node")
        if len(a) and max(a.max(), b.max()) >= LIMIT:
            raise DataError(f"a node row reaches {max(a.max(), b.max())}; a store holds up to {LIMIT} nodes")
        if self.num_events + len(a) > LIMIT or ids.max(initial=0) > LIMIT:
            raise DataError(f"a store holds up to {LIMIT} events, with ids up to {LIMIT}")
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

    def _note(self, t: np.ndarray, ids: np.ndarray) -> None:
        self.num_events += len(t)
        if len(t):
            self.last_id = int(ids[-1]) if len(ids) else self.num_events - 1
            self.last_time = t[-1].item()

    def _allocate(self, size: int) -> None:
        kinds = (np.int32, np.int32, self.time_dtype)
        self._codes, self._events, self._times = (
            np.empty(size, kind) if self._folder is None else mapped_array(self._folder, size, kind) for kind in kinds
        )

    def reserve_nodes(self, num_nodes: int) -> None:
        """Let there be at least so many nodes."""
        self.num_nodes = max(num_nodes, self.num_nodes)
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

    def release_pages(self) -> None:
        """Give back the memory of what look-ups in a mapped arena have touched."""
        release_pages(*self._mapped())

    def _mapped(self) -> list[np.ndarray]:
        """Return what may be given back, what is read in order before what is not."""
        return [*self._built_of, self._event_column.rows, self._codes, self._events, self._times]

    def _rows(self, nodes: np.ndarray) -> np.ndarray:
        nodes = _as_int64_rows(nodes)
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= self.num_nodes):
            bad = int(np.argmax((nodes < 0) | (nodes >= self.num_nodes)))
            raise DataError(f"node {nodes[bad]} (row {bad}) is not in 0..{self.num_nodes - 1}")
        return nodes


class NeighborView(Histories):
    """What a `NeighborStore` answers about its events before an id; later ones may be appended to it meanwhile.

    Args:
        store: the histories.
        num_nodes: N, of the nodes that may be queried.
        before: an id; events from it on are not seen.
        count: events of the store that are seen.
        hidden: id and time of an event that is not seen either, or None.
    """

    def __init__(
        self, store: NeighborStore, num_nodes: int, before: int, count: int, hidden: tuple[int, float] | None = None
    ) -> None:
        store.reserve_nodes(num_nodes)
        self.store, self.num_nodes, self.before, self.count, self.hidden = store, num_nodes, before, count, hidden
        self.time_dtype = store.time_dtype

    def _of(self, *nodes: np.ndarray) -> NeighborStore:
        if self.hidden is None and self.store.last_id < self.before:
            return self.store
        hidden = None if self.hidden is None else self.hidden[0]
        return self.store.restricted(np.concatenate(nodes), self.before, hidden)

    def event_times(self) -> EventTimes:
        times = self.store.event_times().times[: self.count]
        return EventTimes(times, None if self.hidden is None else self.hidden[1])


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


def _as_int64_rows(nodes: np.ndarray) -> np.ndarray:
    kind = np.asarray(nodes[:0]).dtype
    if len(nodes) and kind.kind not in "iu":
        raise DataError(f"nodes are rows, so integers; got {kind}")
    return np.ascontiguousarray(nodes, np.int64)
