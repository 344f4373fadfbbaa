"""The record behind `events.EventStream`: who met whom, when, and with which features; immutable, sorted by time.

An event's id is its position in the stream. Arrays are numpy and may be memory-mapped; slices are views.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

import numpy as np

from hopstate.data.graph_arrays import Copied
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.validate import beyond_clock, check_event_labels, why_beyond
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, TimeOrderError
from hopstate.io.scratch import let_go

__all__ = ["begins", "stretch"]


ADD, DELETE, GONE = 0, 1, 2
_CHUNK = 1 << 22  # events looked at together, so that checking a mapped stream needs little memory


@dataclass(frozen=True, eq=False, kw_only=True)
class EventBatch:
    """Some events of a stream, in stream order.

    Args:
        event_ids: (B,) int64 positions in the stream.
        src, dst: (B,) int64 node rows.
        t: (B,) int64 or float64.
        kind: (B,) int8 as in `EventStream`, or None where every event adds.
        edge_attr: (B, D) float32 or None.
        labels: (B,) or (B, T), or None.
    """

    event_ids: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    kind: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.src)

    def additions(self) -> EventBatch:
        """Return those events that add an edge."""
        return self if self.kind is None else self._where(self.kind == ADD)

    def _where(self, mask: np.ndarray) -> EventBatch:
        return self if mask.all() else self.take(mask)

    def take(self, rows: np.ndarray | slice) -> EventBatch:
        """Return the events at rows of the batch."""
        taken: dict[str, Any] = {k: v[rows] for k, v in vars(self).items() if v is not None}
        return EventBatch(**taken)


@dataclass(frozen=True, eq=False, kw_only=True)
class EventRecord(Copied):
    """What an `EventStream` holds and gives, its fields checked; how one is made of loose columns stands there."""

    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    kind: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    labels: np.ndarray | None = None
    x: np.ndarray | None = None
    num_nodes: int = -1
    node_ids: Vocabulary | None = None
    time_unit: str = ""
    name: str = "events"
    source: str = ""
    first_id: int = 0
    from_start: bool = True
    class_names: tuple[str, ...] | None = None
    edge_table: FeatureTable | None = None
    published: bool = False
    notes: tuple[str, ...] = ()
    dates: str = ""
    two_sets: bool = False
    file_rows: np.ndarray | None = None
    file_length: int = -1

    def __post_init__(self) -> None:
        if self.num_nodes < 0:
            object.__setattr__(self, "num_nodes", _default_num_nodes(self))
        object.__setattr__(self, "notes", tuple(self.notes))
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))
        _check(self)
        for array in (self.src, self.dst, self.t, self.kind, self.edge_attr, self.labels, self.x):
            if array is not None:
                array.flags.writeable = False

    # ---- sizes -----------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.src)

    @property
    def num_events(self) -> int:
        """E."""
        return len(self.src)

    @property
    def event_ids(self) -> np.ndarray:
        """(E,) int64 ids; they keep counting from the whole stream in a slice."""
        return np.arange(self.first_id, self.first_id + len(self))

    @cached_property
    def has_edge_features(self) -> bool:
        return _any_nonzero(self.edge_attr)

    @cached_property
    def has_node_features(self) -> bool:
        return _any_nonzero(self.x)

    @property
    def feature_dims(self) -> dict[str, int]:
        """How many features a node ("node_dim") and an event ("edge_dim") have, zeros or not."""
        widths = [0 if column is None else column.shape[1] for column in (self.x, self.edge_attr)]
        return {"node_dim": widths[0], "edge_dim": widths[1]}

    @property
    def used_features(self) -> dict[str, int]:
        """How many features a node ("node_dim") and an event ("edge_dim") have; 0 where all are zero."""
        node = self.x.shape[1] if self.x is not None and self.has_node_features else 0
        return {"node_dim": node, "edge_dim": self.edge_attr.shape[1] if self.has_edge_features else 0}  # type: ignore[union-attr]

    @cached_property
    def has_deletes(self) -> bool:
        """Whether an event removes an edge or a node."""
        return _any_nonzero(self.kind)

    @cached_property
    def is_bipartite(self) -> bool:
        """Whether no node is both a source and a destination."""
        sources = np.zeros(self.num_nodes, bool)
        destinations = np.zeros(self.num_nodes, bool)
        for start in range(0, len(self), _CHUNK):
            part = slice(start, start + _CHUNK)
            added = slice(None) if self.kind is None else self.kind[part] == ADD
            sources[self.src[part][added]] = True
            destinations[self.dst[part][added]] = True
            let_go(self.src, self.dst, self.kind)
        return not bool((sources & destinations).any())

    def in_file(self, rows: np.ndarray) -> np.ndarray:
        """Return (Q,) the rows of the file at which the events at rows (Q,) stood, -1 for implied deletions."""
        return rows if self.file_rows is None else self.file_rows[rows]

    # ---- parts -----------------------------------------------------------------------------------------
    def slice(self, start: int, stop: int) -> Self:
        """Return events start..stop-1 by position, as views; ids, nodes and node features stay those of the whole."""
        start, stop, _ = slice(start, stop).indices(len(self))
        columns = {name: column[start : max(start, stop)] for name, column in self._columns().items()}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in columns}
        rest["first_id"] = self.first_id + start
        if self.edge_table is not None:
            rest["edge_table"] = self.edge_table.take(slice(start, max(start, stop)))
        if self.file_rows is not None:
            rest["file_rows"] = self.file_rows[start : max(start, stop)]
        view = object.__new__(type(self))  # a view of checked columns needs no second check
        for name, value in (rest | columns).items():
            object.__setattr__(view, name, value)
        return view

    def between(self, t0: float, t1: float) -> Self:
        """Return the events with t0 <= t < t1, as views."""
        start, stop = np.searchsorted(self.t, [t0, t1], side="left")
        return self.slice(int(start), int(stop))

    def take(self, rows: np.ndarray) -> EventBatch:
        """Return the events at the given positions of this stream."""
        columns = {name: column[rows] for name, column in self._columns().items()}
        return EventBatch(event_ids=np.asarray(rows, np.int64) + self.first_id, **columns)

    def additions(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return those of the positions rows (P,), by default all, at which an edge is added: deletions never count."""
        rows = np.arange(len(self)) if rows is None else rows
        return rows[self.kind[rows] == ADD] if self.kind is not None and self.has_deletes else rows

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced (checked again); other features take the place of the table too."""
        dropped: dict[str, Any] = {"edge_table": None} if "edge_attr" in changes else {}
        dropped |= {"file_rows": None, "file_length": -1} if len(changes.get("src", self.src)) != len(self) else {}
        return replace(self, **dropped | changes)

    def _columns(self) -> dict[str, np.ndarray]:
        columns = ("src", "dst", "t", "kind", "edge_attr", "labels")
        return {name: getattr(self, name) for name in columns if getattr(self, name) is not None}

    # ---- identity --------------------------------------------------------------------------------------
    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over every array, hexadecimal; equal streams hash equally whatever file they came from."""
        digest = hashlib.sha256(f"events {self.num_nodes}".encode())
        for name, array in {**self._columns(), "x": self.x}.items():
            if array is None:
                continue
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            for start in range(0, len(array), _CHUNK):
                digest.update(np.ascontiguousarray(array[start : start + _CHUNK]).data)
            let_go(array)
        if self.edge_table is not None and self.edge_table.has_missing:
            digest.update(np.ascontiguousarray(~np.isfinite(self.edge_table.values)).data)
        for array in () if self.edge_table is None else self.edge_table.text_arrays():
            digest.update(np.ascontiguousarray(array).data)
        if self.class_names is not None:
            digest.update("\n".join(["classes", *self.class_names]).encode())
        if self.node_ids is not None:
            digest.update("\n".join(map(str, self.node_ids.ids.tolist())).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        span = f", t {self.t[0]}..{self.t[-1]} {self.time_unit}".rstrip() if len(self) else ""
        return f"EventStream({self.name!r}, {len(self):,} events, {self.num_nodes:,} nodes{span})"


def holds(kinds: np.ndarray | None, kind: int) -> bool:
    """Return whether some event of kinds (E,), None where every event adds, is of a kind."""
    return kinds is not None and any(bool((kinds[i : i + _CHUNK] == kind).any()) for i in range(0, len(kinds), _CHUNK))


def _any_nonzero(array: np.ndarray | None) -> bool:
    if array is None:
        return False
    return any(bool(np.any(array[i : i + _CHUNK])) for i in range(0, len(array), _CHUNK))


def _default_num_nodes(stream: EventRecord) -> int:
    if stream.node_ids is not None:
        return len(stream.node_ids)
    seen = int(max(stream.src.max(initial=-1), stream.dst.max(initial=-1))) + 1
    return seen if stream.x is None else max(seen, len(stream.x))


def _check(stream: EventRecord) -> None:
    where = f"{stream.name}{f' ({stream.source})' if stream.source else ''}"
    num_events = len(stream.src)
    for name, kinds in (("src", ("int64",)), ("dst", ("int64",)), ("t", ("int64", "float64"))):
        column = getattr(stream, name)
        if column.dtype not in kinds or column.shape != (num_events,):
            raise DataError(
                f"{where}: {name} must be ({num_events},) {' or '.join(kinds)}; got {column.shape} {column.dtype}"
            )
    for name, widths in (("kind", (1,)), ("edge_attr", (2,)), ("labels", (1, 2))):
        column = getattr(stream, name)
        if column is not None and (column.ndim not in widths or len(column) != num_events):
            raise DataError(f"{where}: {name} has shape {column.shape}, the stream has {num_events} events")
    if stream.labels is not None:
        check_event_labels(stream.labels, stream.class_names, where)
    table = stream.edge_table
    if table is not None and (stream.edge_attr is None or table.values.shape != stream.edge_attr.shape):
        raise DataError(f"{where}: the table of event features is {table.values.shape}, not that of edge_attr")
    for name, rows in (("x", stream.x), ("node_ids", stream.node_ids)):
        if rows is not None and len(rows) != stream.num_nodes:
            raise DataError(f"{where}: {name} has {len(rows)} rows, the stream has {stream.num_nodes} nodes")
    for name, array in (("edge_attr", stream.edge_attr), ("x", stream.x)):
        if array is not None and (array.dtype != np.float32 or array.ndim != 2):
            raise DataError(f"{where}: {name} must be two-dimensional float32; got {array.shape} {array.dtype}")
        if array is not None and not all(
            np.isfinite(array[i : i + _CHUNK]).all() for i in range(0, len(array), _CHUNK)
        ):
            row = int(np.flatnonzero(~np.isfinite(array).all(1))[0])
            raise DataError(f"{where}: {name} holds NaN or infinity, first in row {row}")
    if stream.kind is not None and stream.kind.dtype != np.int8:
        raise DataError(f"{where}: kind must be int8; got {stream.kind.dtype}")
    for start in range(0, num_events, _CHUNK):
        _check_kinds(stream, where, start, start + _CHUNK)
        let_go(stream.src, stream.dst, stream.kind)
    for start in range(0, num_events, _CHUNK):
        _check_rows(stream, where, start, min(start + _CHUNK, num_events))
        let_go(stream.src, stream.dst, stream.t)


def _check_kinds(stream: EventRecord, where: str, start: int, stop: int) -> None:
    if stream.kind is None:
        return
    kind = stream.kind[start:stop]
    if np.any((kind < 0) | (kind > GONE)):
        raise DataError(f"{where}: kind must be int8, 0 (add), 1 (delete) or 2 (delete the source)")
    two = start + np.flatnonzero((kind == GONE) & (stream.src[start:stop] != stream.dst[start:stop]))
    if len(two):
        ends = stream.src[two[0]], stream.dst[two[0]]
        raise DataError(f"{where}: event {two[0]} deletes node {ends[0]} but names {ends[1]} too; give it twice")


def _check_rows(stream: EventRecord, where: str, start: int, stop: int) -> None:
    for name in ("src", "dst"):
        column = getattr(stream, name)[start:stop]
        bad = np.flatnonzero((column < 0) | (column >= stream.num_nodes))
        if len(bad):
            value, row = column[bad[0]], start + bad[0]
            why = "negative" if value < 0 else f"not under {stream.num_nodes} (the number of nodes)"
            raise DataError(f"{where}: {name} of event {row} is {value}, which is {why}")
    t = stream.t[max(start - 1, 0) : stop]
    if t.dtype.kind == "f" and not np.isfinite(t).all():
        row = max(start - 1, 0) + int(np.flatnonzero(~np.isfinite(t))[0])
        raise DataError(f"{where}: the time of event {row} is {stream.t[row]}; remove the event or give it a time")
    if t.dtype.kind == "i" and len(t) and t[0] == np.iinfo(np.int64).min:  # NaT, as whole numbers have it
        raise DataError(
            f"{where}: the time of event {max(start - 1, 0)} is missing; remove the event or give it a time"
        )
    late = np.flatnonzero(t[1:] < t[:-1])
    if len(late):
        row = max(start - 1, 0) + int(late[0]) + 1
        raise TimeOrderError(
            f"{where}: event {row} has time {stream.t[row]}, before {stream.t[row - 1]} of the event above it; "
            "EventStream.from_arrays sorts"
        )
    if len(t) and beyond_clock(t[[0, -1]]).any():
        row = max(start - 1, 0) + int(np.argmax(beyond_clock(t)))
        raise DataError(f"{where}: the time of event {row}, {stream.t[row]}, {why_beyond(t)}")


def stretch(rows: np.ndarray) -> np.ndarray | slice:
    """Return rising rows (P,) as a slice where they follow each other.

    >>> stretch(np.array([3, 4, 5])), stretch(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    whole = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    return slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows


def begins(rows: np.ndarray) -> bool:
    """Return whether rising rows (P,) are the first P of a stream: look-ups at their times see nothing else."""
    return len(rows) > 0 and rows[0] == 0 and rows[-1] == len(rows) - 1


S = TypeVar("S", bound=EventRecord)
Ties = Literal["file", "sorted"]
TIES: tuple[Ties, ...] = ("file", "sorted")


def in_own_order(stream: S) -> S:
    """Return a stream whose events of one time stand by source, then destination, features and label.

    Rows of nodes stand for their ids in sorted order, as reading a table makes them. A stream with deletions stays as
    it is: of an edge that is added and deleted at one time, the order tells which came first.
    """
    size, t = len(stream), stream.t
    if stream.has_deletes:
        return stream
    order = _refined(np.arange(size), [t], [stream.dst, stream.src])
    later = [] if stream.labels is None else list(stream.labels.reshape(size, -1).T)
    if stream.edge_table is not None:
        later += [text.codes for text in stream.edge_table.texts] + list(stream.edge_table.values.T)
    elif stream.edge_attr is not None:
        later += list(stream.edge_attr.T)
    order = _refined(order, [t, stream.src, stream.dst], later) if later else order
    if (order == np.arange(size)).all():
        return stream
    columns = {
        name: column[order]
        for name in ("src", "dst", "kind", "edge_attr", "labels")
        if (column := getattr(stream, name)) is not None
    }
    table = None if stream.edge_table is None else stream.edge_table.take(order)
    return stream.with_(**columns, edge_table=table, file_rows=stream.in_file(order))


def _refined(order: np.ndarray, equal: Sequence[np.ndarray], keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return an order (E,) whose runs of equal columns are sorted by keys, the last key first."""
    same = np.ones(max(len(order) - 1, 0), bool)
    for column in equal:
        same &= column[order[1:]] == column[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if not len(tied):
        return order
    rows = order[tied]
    run = np.cumsum(np.append(True, ~same[tied[:-1]] | (np.diff(tied) > 1)))
    order = order.copy()
    order[tied] = rows[np.lexsort((*(key[rows] for key in keys), run))]
    return order
