# mypy: ignore-errors
"""Compiled loops of `pair_features` over paths of three events: source, partner, third node, partner of the target.

Threads may run them side by side: each writes to its own rows.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hopstate.tokens.pair_feature_kernels import LAST, NONE, SLOTS
from hopstate.tokens.pair_meeting_kernels import WIDE, age_of

PARTNERS = 8  # of the source, its latest, from which paths go on
ONWARD = 16  # latest events of each of them


@njit(cache=True, nogil=True)
def partners_of(u, t, codes, where, run, first, out):
    """Write the latest distinct partners of sources, one more than paths go on from: a target may be among them.

    Args:
        u, t: (Q,) sources and times; queries that follow each other with both the same share what is found.
        codes, where: see `pair_feature_kernels.latest_events`.
        run: (Q,) out: which of the sources that are told apart a query has.
        first: (Q+1,) out: where the partners of each begin, and after the last of them the end.
        out: (Q * (PARTNERS + 1), 2) out: partners, newest first, and the query that they were found for.

    Returns:
        How many sources are told apart.
    """
    runs, end = -1, 0
    first[0] = 0
    for q in range(len(u)):
        if q == 0 or u[q] != u[q - 1] or t[q] != t[q - 1]:
            runs += 1
            begin = end
            for i in range(where[q, 1] - 1, max(where[q, 0], where[q, 1] - LAST) - 1, -1):
                node = codes[i] ^ (codes[i] >> 31)
                again = node == u[q]
                for j in range(begin, end):
                    again |= out[j, 0] == node
                if not again:
                    out[end, 0], out[end, 1] = node, q
                    end += 1
                    if end - begin == PARTNERS + 1:
                        break
            first[runs + 1] = end
        run[q] = runs
    return runs + 1


@njit(cache=True, nogil=True)
def _slot(key, stamp, keys, stamps):
    slot = (key * 0x9E3779B1) & (SLOTS - 1)
    while stamps[slot] == stamp and keys[slot] != key:
        slot = (slot + 1) & (SLOTS - 1)
    return slot


@njit(cache=True, nogil=True)
def _targets(a, b, begin, end, codes, times, stamp, keys, stamps, counts, latest):
    """Put the partners of a target's latest events, both ends left out, into a table.

    Returns how many events those are, and how many partners.
    """
    events, nodes = 0, 0
    for i in range(end - 1, max(begin, end - WIDE) - 1, -1):
        node = np.int64(codes[i] ^ (codes[i] >> 31))
        if node in (a, b):
            continue
        slot = _slot(node, stamp, keys, stamps)
        if stamps[slot] != stamp:
            stamps[slot], keys[slot], counts[slot], latest[slot] = stamp, node, 0, times[i]
            nodes += 1
        counts[slot] += 1
        events += 1
    return events, nodes


@njit(cache=True, nogil=True)
def paths_of(u, v, t, codes, times, where, run, first, partners, offsets, nodes, when, unit, out, begin):
    """Write the features of paths of three events.

    Args:
        u, v, t: (Q,) the queries.
        codes, times, where: see `pair_feature_kernels.latest_events`.
        run, first, partners: of `partners_of`.
        offsets, nodes, when: the latest ONWARD events of each of the partners before its time, packed, oldest first.
        unit: the gap that counts as 1.
        out: (Q, F) float32; see `pair_features.NAMES`.
        begin: the first column of the seven.
    """
    keys, counts, latest = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64), np.empty(SLOTS, times.dtype)
    stamps, met = np.full(SLOTS, -1, np.int64), np.full(SLOTS, -1, np.int64)
    for q in range(len(u)):
        a, b, row = u[q], v[q], out[q, begin:]
        events, thirds = _targets(a, b, where[q, 2], where[q, 3], codes, times, q, keys, stamps, counts, latest)
        asked, hits, led, reached, found = 0, 0, 0, 0, False
        share, walk, newest = 0.0, 0.0, t[q]
        for p in range(first[run[q]], first[run[q] + 1]):
            if partners[p, 0] == b:
                continue
            if asked == PARTNERS:
                break
            asked += 1
            here, seen, both = 0, 0, 0
            for i in range(offsets[p + 1] - 1, offsets[p] - 1, -1):
                node = nodes[i]
                if node in (a, b):
                    continue
                seen += 1
                slot = _slot(node, q, keys, stamps)
                if stamps[slot] == q:
                    here += 1
                    both += counts[slot]
                    if met[slot] != q:
                        met[slot] = q
                        reached += 1
                    time = min(when[i], latest[slot])
                    if not found or time > newest:
                        newest, found = time, True
            hits += here
            led += here > 0
            if seen:
                share += here / seen
                walk += both / seen
        row[0] = np.float32(math.log1p(np.float64(hits)))
        row[1] = np.float32(share / asked) if asked else NONE
        row[2] = np.float32(walk / asked / events) if asked and events else NONE
        row[3], row[4] = np.float32(led), np.float32(reached)
        row[5] = np.float32(reached / thirds) if thirds else NONE
        row[6] = age_of(t[q], newest, unit) if found else NONE
