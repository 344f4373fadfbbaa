# mypy: ignore-errors
"""Compiled loops of `standing`, over some events after others. Imported on first use.

What stands is in arrays of nodes and a table of pairs.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_ADD, _GONE = 0, 2  # as in `event_record`; an odd kind ends an edge


@njit(cache=True, nogil=True)
def follow_nodes(src, dst, kind, met, standing):
    """Return whether each node that is deleted has met somebody since it last was, and no edge of it is left.

    Args:
        src, dst, kind: (E,) events.
        met: (N,) bool, whether a node has met somebody since it was deleted.
        standing: (N,) int64 edges at each node.
    """
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if kind[i] == _GONE:
            if not met[u] or standing[u] != 0:
                return False
            met[u] = False
            continue
        step = 1 if kind[i] == _ADD else -1
        standing[u] += step
        if u != v:
            standing[v] += step
        if step > 0:
            met[u] = True
            met[v] = True
    return True


@njit(cache=True, nogil=True)
def follow_pairs(src, dst, kind, num_nodes, part, parts, table, counts):
    """Return whether each edge that is deleted stands then, of the pairs whose hash falls in one part of all.

    Args:
        src, dst, kind: (E,) events.
        num_nodes: N, up to 2^31.
        part, parts: which, and of how many.
        table: a power of two of uint64, open addressing: the pair and 1; 0 is none.
        counts: int32 for each place of the table, how many edges of the pair stand.
    """
    one, high = np.uint64(1), np.uint64(32)
    mask, nodes = np.uint64(len(table) - 1), np.uint64(num_nodes)
    part, parts = np.uint64(part), np.uint64(parts)
    for i in range(len(src)):
        if kind[i] == _GONE:
            continue
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
