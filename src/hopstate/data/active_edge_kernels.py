# mypy: ignore-errors
"""Compiled loop of `active_edges`, over some events after others. Imported on first use."""

from __future__ import annotations

import numpy as np
from numba import njit

_ADD = 0  # as in `event_record`


@njit(cache=True, nogil=True)
def count_active(src, dst, kind, num_nodes, part, parts, table, counts):
    """Return whether each deleted edge is active then, of the pairs whose hash falls in one part of all.

    Args:
        src, dst, kind: (E,) events.
        num_nodes: N, up to 2^31.
        part, parts: which, and of how many.
        table: a power of two of uint64, open addressing: the pair and 1; 0 is none.
        counts: int32 for each place of the table, how many edges of the pair are active.
    """
    one, high = np.uint64(1), np.uint64(32)
    mask, nodes = np.uint64(len(table) - 1), np.uint64(num_nodes)
    part, parts = np.uint64(part), np.uint64(parts)
    for i in range(len(src)):
        pair = np.uint64(src[i]) * nodes + np.uint64(dst[i]) + one
        mixed = (pair ^ (pair >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        if ((mixed >> high) * parts) >> high != part:
            continue
        slot = mixed & mask
        while table[slot] != 0 and table[slot] != pair:
            slot = (slot + one) & mask
        table[slot] = pair
        counts[slot] += 1 if kind[i] == _ADD else -1
        if counts[slot] < 0:
            return False
    return True
