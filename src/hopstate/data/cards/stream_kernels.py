# mypy: ignore-errors
"""Compiled loops of `stream_figures`, over some events after others. Imported on first use.

What they have seen is in arrays of nodes and in a table of pairs.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def count_ends(src, dst, degree, sends, receives):
    """Add events to their ends' degrees and mark the ends as source and destination; return how many are loops."""
    loops = 0
    for i in range(len(src)):
        u, v = src[i], dst[i]
        sends[u] = True
        receives[v] = True
        degree[u] += 1
        if u == v:
            loops += 1
        else:
            degree[v] += 1
    return loops


@njit(cache=True, nogil=True)
def gaps_of_ends(src, dst, t, never, last, gaps):
    """Write the time since the last event of each end that had one, and remember this one; return how many there are.

    last holds `never` for a node without an event; a loop has its node twice, so that a gap of 0 comes of it.
    """
    count = 0
    for i in range(len(src)):
        for node in (src[i], dst[i]):
            if last[node] != never:
                gaps[count] = t[i] - last[node]
                count += 1
            last[node] = t[i]
    return count


@njit(cache=True, nogil=True)
def meet(src, dst, num_nodes, part, parts, table):
    """Enter the pairs of one part of all into a table; return how many come first, and how many answer another.

    A part holds the pairs whose hash falls there, both directions of a pair together. An entry of the open-addressing
    table is four times the pair's number, smaller node first, plus 1 where it met so and plus 2 where the other way
    round; 0 is none.
    """
    one, two, high = np.uint64(1), np.uint64(2), np.uint64(32)
    mask, nodes = np.uint64(len(table) - 1), np.uint64(num_nodes)
    part, parts = np.uint64(part), np.uint64(parts)
    firsts = answers = 0
    for i in range(len(src)):
        u, v = np.uint64(src[i]), np.uint64(dst[i])
        way, other = (one, two) if u <= v else (two, one)
        pair = min(u, v) * nodes + max(u, v)
        mixed = (pair ^ (pair >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        if ((mixed >> high) * parts) >> high != part:
            continue
        slot = mixed & mask
        while table[slot] != 0 and table[slot] >> two != pair:
            slot = (slot + one) & mask
        seen = table[slot] & (one | two)
        firsts += (seen & way) == 0
        answers += (seen & other) != 0
        table[slot] = (pair << two) | seen | way
    return firsts, answers
