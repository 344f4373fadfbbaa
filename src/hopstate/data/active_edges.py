"""Whether every deletion of a long stream removes an active edge, in memory for a table only."""

from __future__ import annotations

import numpy as np

from hopstate.data.event_record import EventRecord
from hopstate.io.scratch import let_go

CHUNK = 1 << 20  # events read together
PAIRS = 1 << 23  # events whose pairs are counted together


def deletions_are_valid(stream: EventRecord) -> bool:
    """Return whether every deletion of a stream without earlier events removes an edge that is active then.

    The pairs are counted in parts by a hash. The events are read once for each part.
    """
    from hopstate.data.active_edge_kernels import count_active

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


__all__ = ["CHUNK", "PAIRS", "deletions_are_valid"]
