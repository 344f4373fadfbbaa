# mypy: ignore-errors
"""Compiled loops of `pair_features` over moves: where nodes went on to after they had met the source's latest partner.

A move from an event is the next later event of the same node; events of one time are no moves from each other. Threads
may run the loops side by side: each writes to its own rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.tokens.pair_feature_kernels import NONE
from hopstate.tokens.pair_meeting_kernels import WIDE, _after

CAME = 32  # latest events of the partner, whose other ends are followed
SOON = 4  # moves of each


@njit(cache=True, nogil=True)
def next_moves(w, since, t, start, length, codes, times, put, went):
    """Find the first events of nodes w (E,) after times since (E,) and before t (E,).

    Args:
        w, since, t: the queries.
        start, length, codes, times: of a `NeighborStore`.
        put: (E,) out: how many there are, at most SOON.
        went: (E, SOON) out: the other ends of those.
    """
    for e in range(len(w)):
        begin = start[w[e]]
        end = begin + length[w[e]]
        put[e] = 0
        for i in range(_after(times, begin, end, since[e]), end):
            if put[e] == SOON or times[i] >= t[e]:
                break
            went[e, put[e]] = np.int64(codes[i] ^ (codes[i] >> 31))
            put[e] += 1


@njit(cache=True, nogil=True)
def _own_moves(partner, begin, end, codes, times, went):
    """Put where a node went on to from a partner, in its events begin..end, into went (WIDE,); return how often."""
    moves, after = 0, -1
    for i in range(end - 1, begin - 1, -1):
        if i + 1 < end and times[i] < times[i + 1]:
            after = np.int64(codes[i + 1] ^ (codes[i + 1] >> 31))
        if after >= 0 and (codes[i] ^ (codes[i] >> 31)) == partner:
            went[moves] = after
            moves += 1
    return moves


@njit(cache=True, nogil=True)
def _share(nodes, count, node):
    hits = 0
    for i in range(count):
        hits += nodes[i] == node
    return np.float32(hits / count) if count else NONE


@njit(cache=True, nogil=True)
def moves_of(u, v, t, codes, times, where, at, met, offsets, nodes, put, went, out, begin):
    """Write the features of moves.

    Args:
        u, v, t: (Q,) the queries.
        codes, times, where: see `pair_feature_kernels.latest_events`.
        at: (Q,) which of the latest partners the source's is, -1 where it has none.
        met: (R,) the latest partners.
        offsets, nodes: other ends of the latest CAME events of these, packed.
        put, went: for each of them, as `next_moves` leaves them.
        out: (Q, F) float32; see `pair_features.NAMES`.
        begin: the first column of the three.
    """
    mine, own, of = np.empty(WIDE, np.int64), 0, -1
    for q in range(len(u)):
        row, r = out[q, begin:], at[q]
        row[:3] = NONE
        if r < 0:
            continue
        if r != of:
            own = _own_moves(met[r], max(where[q, 0], where[q, 1] - WIDE), where[q, 1], codes, times, mine)
            of = r
        row[0] = _share(mine, own, v[q])
        moves, hits, soon = 0, 0, 0
        for e in range(offsets[r], offsets[r + 1]):
            if put[e] == 0 or nodes[e] == u[q] or nodes[e] == met[r]:
                continue
            moves += 1
            hits += went[e, 0] == v[q]
            found = False
            for k in range(put[e]):
                found |= went[e, k] == v[q]
            soon += found
        if moves:
            row[1], row[2] = np.float32(hits / moves), np.float32(soon / moves)
