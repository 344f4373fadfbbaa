"""Whether every deletion of a long stream removes what stands then, in memory for its nodes and a table alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hopstate.data.event_record import EventRecord
from hopstate.io.scratch import let_go

CHUNK = 1 << 20  # events looked at together
PAIRS = 1 << 23  # events whose pairs are told apart together


def all_stand(stream: EventRecord) -> bool:
    """Return whether every deletion of a stream that begins with nothing removes an edge or a node that stands then.

    The pairs are told apart in parts by a hash, for each of which the events are gone through once.
    """
    from hopstate.data.standing_kernels import follow_nodes, follow_pairs

    nodes = stream.num_nodes
    met, standing = np.zeros(nodes, bool), np.zeros(nodes, np.int64)
    if not all(follow_nodes(*some, met, standing) for some in _events(stream)):
        return False
    parts, room = max(1, -(-len(stream) // PAIRS)), 2 * min(len(stream), PAIRS) + 1
    for part in range(parts):
        table = np.zeros(1 << room.bit_length(), np.uint64)
        counts = np.zeros(len(table), np.int32)
        if not all(follow_pairs(*some, nodes, part, parts, table, counts) for some in _events(stream)):
            return False
    return True


def _events(stream: EventRecord) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    assert stream.kind is not None
    columns = (stream.src, stream.dst, stream.kind)
    for start in range(0, len(stream), CHUNK):
        src, dst, kind = (np.ascontiguousarray(column[start : start + CHUNK]) for column in columns)
        yield src, dst, kind
        let_go(*columns)


__all__ = ["CHUNK", "PAIRS", "all_stand"]
