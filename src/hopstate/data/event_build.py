"""From loose columns to an `EventStream`: ids to rows, times to one type, a stable sort by time."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from hopstate.data.deletions import expand_node_deletions
from hopstate.data.event_record import ADD, GONE, EventRecord, holds
from hopstate.data.validate import beyond_clock, why_beyond
from hopstate.data.vocabulary import TEXT, Vocabulary
from hopstate.errors import DataError
from hopstate.errors import warn as give_warning
from hopstate.io.scratch import let_go

__all__ = ["CHUNK", "PAIRS", "deletions_are_valid"]


CHUNK = 1 << 20  # events read together
PAIRS = 1 << 23  # events whose pairs are counted together


def deletions_are_valid(stream: EventRecord) -> bool:
    """Return whether every deletion of a stream without earlier events removes an edge that is active then.

    The pairs are counted in parts by a hash. The events are read once for each part.
    """
    from hopstate.data.kernels import count_active

    assert stream.kind is not None
    columns = (stream.src, stream.dst, stream.kind)
    parts, room = max(1, -(-len(stream) // PAIRS)), 2 * min(len(stream), PAIRS) + 1
    for part in range(parts):
        table = np.zeros(1 << room.bit_length(), np.uint64)
        counts = np.zeros(len(table), np.int32)
        for start in range(0, len(stream), CHUNK):
            some = (np.ascontiguousarray(column[start : start + CHUNK]) for column in columns)
            if not count_active(*some, stream.num_nodes, part, parts, table, counts):
                return False
            let_go(*columns)
    return True


S = TypeVar("S", bound=EventRecord)
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # of dates, in nanoseconds, coarsest first
NANOSECONDS = {"W": 604800 * 10**9, "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, **UNITS}
DATES_HELD = "1677-09-21 to 2262-04-11"


def from_columns(make: type[S], src: Any, dst: Any, t: Any, *, warn: bool = True, **fields: Any) -> S:
    """Build a stream from columns in any order; see `EventStream.from_arrays`.

    The deletion of a node becomes those of its edges, unless earlier events are unknown.
    """
    where = fields.get("source") or fields.get("name", "events")
    src, dst, t = np.asarray(src), np.asarray(dst), times_from(np.asarray(t), where)
    for name, column in (("dst", dst), ("t", t)):
        if column.shape != src.shape:
            raise DataError(f"{where}: src has shape {src.shape} but {name} has {column.shape}")
    src, dst, vocabulary = rows_from(src, dst, fields.pop("node_ids", None), where)
    columns = {"src": src, "dst": dst, "t": t}
    for name, dtype in (("kind", np.int8), ("edge_attr", np.float32), ("labels", None)):
        if fields.get(name) is not None:
            columns[name] = np.asarray(fields.pop(name), dtype)
            if len(columns[name]) != len(src):
                raise DataError(f"{where}: {name} has {len(columns[name])} rows, there are {len(src)} events")
    table = fields.get("edge_table")
    if fields.get("x") is not None:
        fields["x"] = np.asarray(fields["x"], np.float32)
    if np.any(t[1:] < t[:-1]):
        if warn:
            late = int(np.flatnonzero(t[1:] < t[:-1])[0]) + 1
            name = fields.get("name", where)  # not the path: a run knows its file by the whole of it
            message = f"{name}: events were not sorted by time (first at row {late}); they were sorted, ties kept"
            give_warning(message, stacklevel=3)
        order = np.argsort(t, kind="stable")
        rows = fields.get("file_rows")
        fields["file_rows"] = order if rows is None else rows[order]
        columns = {name: column[order] for name, column in columns.items()}
        if table is not None:
            fields["edge_table"] = table.take(order)
    fields["node_ids"] = vocabulary
    if not holds(columns.get("kind"), GONE) or not fields.get("from_start", True):
        return make(**columns, **fields)
    return expand_node_deletions(make(**columns, **fields | {"from_start": False})).with_(from_start=True)


def times_from(t: np.ndarray, where: str) -> np.ndarray:
    """Return times as int64 or float64, nothing narrowed.

    Raises:
        DataError: a time that is NaN, infinite, not a number, or at the end of what clocks count.
    """
    if t.dtype.kind == "M":
        if np.isnat(t).any():
            raise DataError(f"{where}: the time of row {int(np.argmax(np.isnat(t)))} is missing")
        t = t.astype("datetime64[D]") if np.datetime_data(t.dtype)[0] in "YM" else t
        beyond = np.abs(t.astype(np.int64)) > np.iinfo(np.int64).max // NANOSECONDS.get(np.datetime_data(t.dtype)[0], 1)
        if beyond.any():
            row = int(np.argmax(beyond))
            raise DataError(
                f"{where}: the time of row {row}, {t[row]}, is beyond what 64 bits of nanoseconds hold ({DATES_HELD})"
            )
        return _on_clock(t.astype("datetime64[ns]").astype(np.int64), where)
    if t.dtype.kind == "u" and t.dtype.itemsize == 8 and t.max(initial=0) > np.iinfo(np.int64).max:
        raise DataError(f"{where}: the time of row {int(np.argmax(t))}, {t.max()}, is over 2^63 - 1")
    if t.dtype.kind in "iub":
        return _on_clock(t.astype(np.int64, copy=False), where)
    try:
        t = t.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: times must be numbers or dates; got {t.dtype} ({error})") from None
    if not np.isfinite(t).all():
        row = int(np.argmin(np.isfinite(t)))
        raise DataError(f"{where}: the time of row {row} is {t[row]}; remove the row or give it a time")
    return _on_clock(t, where)


def _on_clock(t: np.ndarray, where: str) -> np.ndarray:
    """Return times; raise a DataError where no clock goes on from one."""
    beyond = beyond_clock(t)
    if beyond.any():
        row = int(np.argmax(beyond))
        raise DataError(f"{where}: the time of row {row}, {t[row]}, {why_beyond(t)}")
    return t


def rows_from(
    src: np.ndarray, dst: np.ndarray, vocabulary: Vocabulary | None, where: str
) -> tuple[np.ndarray, np.ndarray, Vocabulary | None]:
    """Return node rows and their vocabulary: integers are rows, other ids are collected in sorted order.

    Raises:
        DataError: ids that are missing, fractions, or not in a vocabulary that was given.
    """
    for name, column in (("src", src), ("dst", dst)):
        if column.dtype.kind == "u" and column.max(initial=0) > np.iinfo(np.int64).max:
            raise DataError(f"{where}: {name} names node {column.max()}, beyond 2^63 - 1; give such ids as strings")
    if all(column.dtype.kind in "iub" or not column.size for column in (src, dst)):
        return src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False), vocabulary
    for name, column in (("src", src), ("dst", dst)):
        if column.dtype.kind == "f":
            bad = np.flatnonzero(~(np.isfinite(column) & (column == np.floor(column))))
            detail = f"; row {bad[0]} is {column[bad[0]]}" if len(bad) else "; convert them to integers or strings"
            raise DataError(f"{where}: {name} holds fractions or missing ids{detail}")
    src, dst = src.astype(TEXT), dst.astype(TEXT)
    if vocabulary is None:
        vocabulary = Vocabulary.of(src, dst)
    rows = vocabulary.rows(src), vocabulary.rows(dst)
    for ids, found in zip((src, dst), rows, strict=True):
        if (found < 0).any():
            vocabulary.row(ids[int(np.argmax(found < 0))])  # raises, naming the nearest known id
    return *rows, vocabulary


def check_deletes(stream: EventRecord, *, before: int = 0) -> None:
    """Check that every deletion removes an edge that is active then, in its own direction.

    Args:
        stream: the events.
        before: so many events are not counted where one is named.

    Raises:
        DataError: a deletion of an edge that was never added or was already deleted, or of a node; the event is named.
    """
    if stream.kind is None or not stream.has_deletes:
        return
    if holds(stream.kind, GONE):
        event = int(np.argmax(stream.kind == GONE)) - before
        raise DataError(
            f"{stream.name}: event {event} deletes a node; EventStream.from_arrays deletes its edges for it"
        )
    if len(stream) > CHUNK and deletions_are_valid(stream):
        return  # what follows takes several times the stream's memory, and names the event
    pair = stream.src * stream.num_nodes + stream.dst
    order = np.argsort(pair, kind="stable")
    step = np.where(stream.kind[order] == ADD, 1, -1)
    total = np.cumsum(step)
    first = np.concatenate([np.ones(min(len(pair), 1), bool), pair[order][1:] != pair[order][:-1]])
    start = (total - step)[first]  # active edges before each pair's first event
    active = total - np.repeat(start, np.diff(np.append(np.flatnonzero(first), len(order))))
    if (active < 0).any():
        event = int(order[active < 0].min())
        raise DataError(
            f"{stream.name}: event {event - before} deletes the edge {_named(stream, stream.src[event])} -> "
            f"{_named(stream, stream.dst[event])}, which is not active then; remove the deletion or add the edge first"
        )


def _named(stream: EventRecord, node: np.integer) -> object:
    return node if stream.node_ids is None else stream.node_ids.names(np.array([node]))[0]
