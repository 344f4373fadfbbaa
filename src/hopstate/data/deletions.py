"""What deletions do to the edges of a stream: which deletion ends which edge, and the edges that go with a node.

The k-th deletion of a pair ends its k-th edge. A node that is deleted takes its edges with it: each has a deletion of
its own (`IMPLIED`) just before the node's event, in the order in which they were added, so that whoever reads deletions
of edges needs to know nothing of nodes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hopstate.data.event_record import ADD, GONE, IMPLIED, EventRecord, holds
from hopstate.io.scratch import folder_beside, let_go, mapped_array

S = TypeVar("S", bound=EventRecord)
_CHUNK = 1 << 20  # events looked at together
LASTS = np.iinfo(np.int64).max  # the end of an edge that nothing ends


def edge_ends(src: np.ndarray, dst: np.ndarray, kind: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (E,) int64 the position of the deletion that ends each edge, `LASTS` for none, -1 for other events.

    Args:
        src, dst: (E,) int64 nodes, in order of time.
        kind: (E,) as in `EventStream`.
        num_nodes: N.
    """
    return _ends(src * num_nodes + dst, kind)


def _ends(group: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Return the same for events of groups (E,): the k-th deletion of a group ends its k-th edge."""
    deletes, known = kind & 1 == 1, kind != GONE
    at = np.flatnonzero(known)
    _, group = np.unique(group[at], return_inverse=True)
    order = np.lexsort((deletes[at], group))  # of a group: its additions, then its deletions, each in time's order
    sizes, added = np.bincount(group), np.bincount(group, ~deletes[at]).astype(np.int64)
    start = np.cumsum(sizes) - sizes
    places = np.flatnonzero(deletes[at][order])
    of = group[order[places]]
    number = places - start[of] - added[of]
    ending = number < added[of]
    ends = np.where(kind == ADD, LASTS, -1)
    ends[at[order[(start[of] + number)[ending]]]] = at[order[places[ending]]]
    return ends


def expansion(src: np.ndarray, dst: np.ndarray, kind: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return events with a deletion before that of a node for each of its edges that stand then.

    Args:
        src, dst: (E,) int64 nodes, in order of time.
        kind: (E,) as in `EventStream`.
        num_nodes: N.

    Returns:
        (E',) the event whose ends each has; (E',) the event at whose place it is: the same, or that of the node.
    """
    E = len(src)
    going = np.flatnonzero(kind == GONE)
    leaves = np.minimum(*(_next(src[going], going, ends, E) for ends in (src, dst)))
    pair = src * num_nodes + dst
    _, group = np.unique(np.stack([pair, leaves]), axis=1, return_inverse=True)
    stands = (_ends(group.ravel(), kind) == LASTS) & (leaves < LASTS)
    taken = np.flatnonzero(stands)
    rows = np.concatenate([taken, np.arange(E)])
    place = np.concatenate([leaves[taken], np.arange(E)])
    order = np.lexsort((rows, np.arange(len(rows)) >= len(taken), place))
    return rows[order], place[order]


def _next(nodes: np.ndarray, at: np.ndarray, asked: np.ndarray, size: int) -> np.ndarray:
    """Return (E,) the first position after each event at which asked (E,) is among nodes (G,), which stand at (G,)."""
    keys = np.sort(nodes * size + at)
    found = np.searchsorted(keys, asked * size + np.arange(size), side="right")
    known = np.append(keys, -1)[found]
    return np.where((found < len(keys)) & (known // max(size, 1) == asked), known % max(size, 1), LASTS)


def expanded(stream: S) -> S:
    """Return a stream with a deletion for each edge of a node that is deleted; itself where no node is."""
    if not stream.has_gone or stream.kind is None:
        return stream
    told = stated(stream)
    assert told.kind is not None
    return taken(told, *expansion(told.src, told.dst, told.kind, told.num_nodes))


def stated(stream: S) -> S:
    """Return a stream without the deletions that follow from those of nodes; a mapped one stays mapped."""
    if stream.kind is None or not holds(stream.kind, IMPLIED):
        return stream
    kind, folder = stream.kind, folder_beside(stream.src)
    columns: dict[str, Any] = {
        name: _told(column, kind, folder)
        for name in ("src", "dst", "t", "kind", "edge_attr", "labels")
        if (column := getattr(stream, name)) is not None
    }
    if stream.edge_table is not None:
        table = stream.edge_table
        texts = tuple(text.take(np.flatnonzero(kind != IMPLIED)) for text in table.texts)
        columns["edge_table"] = replace(table, values=_told(table.values, kind, folder), texts=texts)
    if stream.file_rows is not None:
        columns |= {"file_rows": stream.file_rows[kind != IMPLIED], "file_length": stream.file_length}
    return stream.with_(**columns)


def _told(column: np.ndarray, kind: np.ndarray, folder: Path | None) -> np.ndarray:
    """Return the rows of a column that are not `IMPLIED`, in a file where a folder is given."""
    starts = range(0, len(kind), _CHUNK)
    shape = (sum(int((kind[i : i + _CHUNK] != IMPLIED).sum()) for i in starts), *column.shape[1:])
    if folder is None:
        found = np.empty(shape, column.dtype)
    else:
        found = mapped_array(folder, math.prod(shape), column.dtype).reshape(shape)
    at = 0
    for start in starts:
        some = column[start : start + _CHUNK][kind[start : start + _CHUNK] != IMPLIED]
        found[at : at + len(some)] = some
        at += len(some)
        let_go(column, kind, found)
    return found


def taken(stream: S, rows: np.ndarray, place: np.ndarray, **ends: np.ndarray) -> S:
    """Return the events at rows (E',), with their ends (or src and dst as given) at the places (E',) of others.

    What does not stand at its own place is an implied deletion, without features and of unknown label.
    """
    own = rows == place
    columns: dict[str, Any] = {"src": stream.src[rows], "dst": stream.dst[rows]} if not ends else dict(ends)
    columns |= {"t": stream.t[place]}
    if stream.kind is not None:
        columns["kind"] = np.where(own, stream.kind[place], IMPLIED).astype(np.int8)
    if stream.edge_attr is not None:
        columns["edge_attr"] = np.where(own[:, None], stream.edge_attr[place], 0).astype(np.float32)
    if stream.labels is not None:
        unknown = np.nan if stream.labels.dtype.kind == "f" else -1
        there = own if stream.labels.ndim == 1 else own[:, None]
        columns["labels"] = np.where(there, stream.labels[place], unknown).astype(stream.labels.dtype)
    if stream.edge_table is not None:
        table = stream.edge_table.take(place)
        columns["edge_table"] = replace(table, values=np.where(own[:, None], table.values, 0))
    columns["file_rows"] = np.where(own, stream.in_file(place), -1)
    columns["file_length"] = stream.file_length
    return stream.with_(**columns)
