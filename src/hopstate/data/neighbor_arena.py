"""Histories of nodes in growing arrays: entries of a node side by side in time's order, with room to go on.

A history that outgrows its room moves to the end of the arena; once more than half of that is left behind, all are
packed again, so that an event costs O(1) amortised. What is asked of histories stands in `neighbor_store`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hopstate.data.event_times import EventTimes
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.io.scratch import Held, let_go, mapped_array
from hopstate.ops.rows import ranges

LIMIT = 2**31 - 1  # nodes, events and ids
ARRAYS = ("start", "length", "codes", "events", "times")
_CHUNK = 1 << 20  # events read together from a mapped stream
_HELD = 1 << 24  # entries that are put together in memory before they are written to a mapped arena
_NO_IDS = np.empty(0, np.int64)


class HistoryArena:
    """Room for the histories of num_nodes nodes.

    Args:
        num_nodes: N, under 2^31; `append` may raise it.
        time_dtype: int64 or float64, that of the times stored and returned.
        folder: where entries lie in files without names, mapped; None keeps them in memory.

    Raises:
        ConfigError: a negative or too large N, or another time type.
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
        self._folder, self._held = folder, Held()
        self._built_of: tuple[np.ndarray, ...] = ()  # columns of a mapped stream
        self._allocate(0)
        self._top = 0  # first free place of the arena
        self._left = 0  # places left behind by histories that moved
        self._num_nodes = num_nodes  # the node columns may have spare rows
        self._event_times: EventTimes | None = EventTimes()
        self.num_events = 0
        self.last_time: float | int | None = None

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
        """Bytes of memory held, spare room included; not `event_times`, at most 8 bytes an event."""
        arrays = (self._codes, self._events, self._times, self._start, self._length, self._capacity)
        return sum(array.nbytes for array in arrays)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what `of_arrays` takes; once events are appended, they may have room between histories."""
        columns = (self._start, self._length, self._codes, self._events, self._times)
        return dict(zip(ARRAYS, columns, strict=True))

    def event_times(self) -> EventTimes:
        """Return the times of all events; of a store that was made from arrays they are gathered once."""
        if self._event_times is None:
            entries = ranges(self._start, self._length)
            sent = entries[self._codes[entries] >= 0]  # an event stands with its source so, with itself once
            self._event_times = EventTimes([np.sort(self._times[sent])])
        return self._event_times

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
        self.event_times().append(t)
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
        columns = (self._codes, self._events, self._times)
        for part in chunks:
            ids = None if event_ids is None else event_ids[part]
            a, b, when, ids = self._events_in(src[part], dst[part], t[part], ids)
            if self._folder is None:
                fill(a, b, when, self.num_events, ids, self._start, self._length, *columns)
            self._note(when)
            let_go(src, dst, t)
        if self._folder is not None:
            self._fill_mapped(src, dst, t, event_ids)
            self._built_of = src, dst, t
        self._event_times = EventTimes([np.asarray(t, self.time_dtype)])  # itself, so that mapped times stay mapped

    def _fill_mapped(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, event_ids: np.ndarray | None) -> None:
        """Fill a mapped arena from its start to its end: entries in the order of events would fall all over the file.

        The events are gone through once for each stretch of nodes whose entries fit in memory together.
        """
        from hopstate.ops.neighbors.kernels import fill_some

        ends, low = np.append(self._start[1:], self._top), 0
        while low < self._num_nodes and (first := int(self._start[low])) < self._top:
            high = max(low + 1, int(np.searchsorted(ends, first + _HELD, side="right")))
            place = slice(first, int(ends[high - 1]))
            held = [np.empty(place.stop - first, kind) for kind in (np.int32, np.int32, self.time_dtype)]
            for i in range(0, len(src), _CHUNK):
                part = slice(i, i + _CHUNK)
                ids = _NO_IDS if event_ids is None else np.ascontiguousarray(event_ids[part], np.int64)
                a, b, when = _whole(src[part]), _whole(dst[part]), np.ascontiguousarray(t[part], self.time_dtype)
                fill_some(a, b, when, i, ids, low, high, self._start, self._length, *held)
                let_go(src, dst, t)
            for column, entries in zip((self._codes, self._events, self._times), held, strict=True):
                column[place] = entries
                let_go(column)
            low = high

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

    def _note(self, t: np.ndarray) -> None:
        self.num_events += len(t)
        self.last_time = t[-1].item() if len(t) else self.last_time

    def _allocate(self, size: int) -> None:
        kinds = (np.int32, np.int32, self.time_dtype)
        self._codes, self._events, self._times = (
            np.empty(size, kind) if self._folder is None else mapped_array(self._folder, size, kind) for kind in kinds
        )

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

    def _looked_up(self, count: int) -> None:
        """Give back what look-ups in a mapped arena have touched, once the process holds much: see `Held`."""
        if self._folder is not None:
            self._held.looked_up(count, *self._mapped())

    def let_go(self) -> None:
        """Give back the memory of what look-ups in a mapped arena have touched."""
        let_go(*self._mapped())

    def _mapped(self) -> list[np.ndarray]:
        """Return what may be given back, what is read in order before what is not."""
        times = self._event_times.pieces if self._event_times else ()
        return [*self._built_of, *times, self._codes, self._events, self._times]

    def _rows(self, nodes: np.ndarray) -> np.ndarray:
        nodes = _whole(nodes)
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= self.num_nodes):
            bad = int(np.argmax((nodes < 0) | (nodes >= self.num_nodes)))
            raise DataError(f"node {nodes[bad]} (row {bad}) is not in 0..{self.num_nodes - 1}")
        return nodes


def _whole(nodes: np.ndarray) -> np.ndarray:
    """Return node rows as int64.

    Raises:
        DataError: they are not integers.
    """
    kind = np.asarray(nodes[:0]).dtype
    if len(nodes) and kind.kind not in "iu":
        raise DataError(f"nodes are rows, so integers; got {kind}")
    return np.ascontiguousarray(nodes, np.int64)
