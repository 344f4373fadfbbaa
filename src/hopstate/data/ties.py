"""Events of one time in an order that follows from what they are, not from where they stood in a file.

E events, Q of them asked for. What a model sees lies strictly before its query, but which events are a node's last few,
the order of a sequence, the batches that move a memory and the pairs drawn beside events all go by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np

from hopstate.data.event_record import EventRecord

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
