"""Deletions in a stream of events: which deletion ends which edge, and deletions of nodes as those of their edges.

The k-th deletion of a pair ends its k-th edge. A node that is deleted takes its edges with it: its event is replaced by
a deletion of each edge that is active then, in the order in which they were added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from hopstate.data.event_record import ADD, DELETE, GONE, EventRecord, holds
from hopstate.errors import DataError

S = TypeVar("S", bound=EventRecord)
NEVER = np.iinfo(np.int64).max  # the end of an edge that nothing ends


def edge_ends(src: np.ndarray, dst: np.ndarray, kind: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (E,) int64 the position of the deletion that ends each edge, `NEVER` for none, -1 for other events.

    Args:
        src, dst: (E,) int64 nodes, in order of time.
        kind: (E,) as in `EventStream`.
        num_nodes: N.
    """
    return _ends(src * num_nodes + dst, kind)


def _ends(group: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Return the same for events of groups (E,): the k-th deletion of a group ends its k-th edge."""
    deletes = kind == DELETE
    at = np.flatnonzero(kind != GONE)
    _, group = np.unique(group[at], return_inverse=True)
    order = np.lexsort((deletes[at], group))  # of a group: its additions, then its deletions, each in time's order
    sizes, added = np.bincount(group), np.bincount(group, ~deletes[at]).astype(np.int64)
    start = np.cumsum(sizes) - sizes
    places = np.flatnonzero(deletes[at][order])
    of = group[order[places]]
    number = places - start[of] - added[of]
    ending = number < added[of]
    ends = np.where(kind == ADD, NEVER, -1)
    ends[at[order[(start[of] + number)[ending]]]] = at[order[places[ending]]]
    return ends


def expand_node_deletions(
    stream: S, earlier: tuple[np.ndarray, np.ndarray] | None = None, known: np.ndarray | None = None
) -> S:
    """Return a stream with a deletion of each active edge of a node in place of the node's; itself if there is none.

    Args:
        stream: the events.
        earlier: sources and destinations of edges that are active before it.
        known: (N,) bool, nodes that had an edge before it.

    Raises:
        DataError: a node is deleted that never had an edge.
    """
    if stream.kind is None or not holds(stream.kind, GONE):
        return stream
    _check_known(stream, known)
    none = np.empty(0, np.int64)
    before_src, before_dst = (none, none) if earlier is None else earlier
    front = len(before_src)
    src, dst = np.concatenate([before_src, stream.src]), np.concatenate([before_dst, stream.dst])
    kind = np.concatenate([np.zeros(front, np.int8), stream.kind])
    rows, place = _expansion(src, dst, kind, stream.num_nodes)
    rows, place = rows[front:], place[front:] - front  # earlier edges come first, and none of them is deleted there
    return _at(stream, src[rows], dst[rows], rows == place + front, place)


def _check_known(stream: EventRecord, known: np.ndarray | None) -> None:
    assert stream.kind is not None
    first = np.full(stream.num_nodes, NEVER)
    if known is not None:
        first[known] = -1
    added = np.flatnonzero(stream.kind == ADD)
    for nodes in (stream.src[added], stream.dst[added]):
        np.minimum.at(first, nodes, added)
    gone = np.flatnonzero(stream.kind == GONE)
    unknown = gone[first[stream.src[gone]] > gone]
    if len(unknown):
        node = stream.src[unknown[0]]
        name = node if stream.node_ids is None else stream.node_ids.names(np.array([node]))[0]
        raise DataError(
            f"{stream.name}: event {unknown[0]} deletes node {name}, which has met nobody by then; remove the deletion "
            "or add its edges first"
        )


def _expansion(src: np.ndarray, dst: np.ndarray, kind: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (E',) events whose ends the expanded ones have, and (E',) the events at whose places they are."""
    E, gone = len(src), np.flatnonzero(kind == GONE)
    leaves = np.minimum(*(_next(src[gone], gone, ends, E) for ends in (src, dst)))
    pair = src * num_nodes + dst
    _, group = np.unique(np.stack([pair, leaves]), axis=1, return_inverse=True)
    taken = np.flatnonzero((_ends(group.ravel(), kind) == NEVER) & (leaves < NEVER))
    own = np.flatnonzero(kind != GONE)
    rows, place = np.concatenate([taken, own]), np.concatenate([leaves[taken], own])
    order = np.lexsort((rows, place))
    return rows[order], place[order]


def _next(nodes: np.ndarray, at: np.ndarray, queried: np.ndarray, size: int) -> np.ndarray:
    """Return (E,) the first position after each event at which queried (E,) is among nodes (G,), which are at (G,)."""
    keys = np.sort(nodes * size + at)
    found = np.searchsorted(keys, queried * size + np.arange(size), side="right")
    known = np.append(keys, -1)[found]
    return np.where((found < len(keys)) & (known // max(size, 1) == queried), known % max(size, 1), NEVER)


def _at(stream: S, src: np.ndarray, dst: np.ndarray, own: np.ndarray, place: np.ndarray) -> S:
    """Return events src, dst (E',) at the places of others; those that are not themselves there are deletions.

    Such a deletion has features of zeros, an unknown label and no row of the file.
    """
    assert stream.kind is not None
    columns: dict[str, Any] = {"src": src, "dst": dst, "t": stream.t[place]}
    columns["kind"] = np.where(own, stream.kind[place], DELETE).astype(np.int8)
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
    columns["file_length"] = stream.file_length if stream.file_length >= 0 else len(stream)
    return stream.with_(**columns)
