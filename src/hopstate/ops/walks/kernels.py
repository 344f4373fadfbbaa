# mypy: ignore-errors
"""Compiled random walks, imported on first use.

A graph is one int32-sized table: node v's record starts at place[v] and holds v, its degree, and its neighbours'
*places* in ascending order. A step then touches one stretch of memory (degree and neighbours side by side) instead of
two random ones. All walks take a step before any takes the next one, so that memory loads overlap. Each walk prefetches
its next record and reads it after all other walks have done the same.

Random number t of a walk is splitmix64's output at counter t of the walk's own stream; half of it serves a step.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import STEP, mix, seeded
from hopstate.ops.cpu.simd import prefetch

BLOCK = 1024  # walks that advance together
LINE = np.uint64(12)  # offset of the next cache line of 16 entries
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@njit(cache=True, nogil=True)
def fill_table(indptr, indices, place, table):
    """Write every node's record."""
    for v in range(indptr.size - 1):
        at, degree = place[v], indptr[v + 1] - indptr[v]
        table[at], table[at + 1] = v, degree
        for j in range(degree):
            table[at + 2 + j] = place[indices[indptr[v] + j]]


@njit(cache=True, nogil=True)
def _uniform(table, state, length, start, places, ids):
    """Fill places[t] (and ids[t], unless ids has no rows) after step t + 1 of walks from start."""
    for i in range(start.size):
        prefetch(table, np.uint64(start[i]))
    for t in range(length):
        source = start if t == 0 else places[t - 1]
        counter, shift = np.uint64(t // 2 * 2 + 1) * STEP, np.uint64(32 - t % 2 * 32)
        naming = ids.shape[0] and t
        for i in range(source.size):
            s = np.uint64(source[i])
            degree = np.uint64(table[s + _ONE])
            r = (mix(state[i] + counter) >> shift) & _LOW
            drawn = np.uint64(table[s + _TWO + ((r * degree) >> _32)])
            drawn = drawn if degree > np.uint64(0) else s
            prefetch(table, drawn)
            prefetch(table, drawn + LINE)
            places[t, i] = np.uint32(drawn)
            if naming:
                ids[t - 1, i] = table[s]
    if ids.shape[0] and length:
        for i in range(start.size):
            ids[length - 1, i] = table[np.uint64(places[length - 1, i])]


@njit(cache=True, nogil=True)
def position_of(table, source, target):
    """Return target's position in source's record, or -1."""
    lo, hi = np.int64(source) + 2, np.int64(source) + 2 + np.int64(table[source + 1])
    end = hi
    while lo < hi:
        middle = (lo + hi) >> 1
        if table[middle] < target:
            lo = middle + 1
        else:
            hi = middle
    return lo if lo < end and table[lo] == target else -1


@njit(cache=True, nogil=True)
def _returning(table, back, state, length, start, places, ids):
    """As `_uniform`, but a step to the node before has the weight back. All other steps have the weight 1."""
    for i in range(start.size):
        s, before, stream = np.int64(start[i]), np.int64(start[i]), state[i]
        for t in range(length):
            degree, chosen = np.int64(table[s + 1]), s
            own = position_of(table, s, before) if t else -1
            stream += STEP
            u = (mix(stream) >> np.uint64(11)) / 9007199254740992.0
            if degree and own < 0:
                chosen = np.int64(table[s + 2 + np.int64(u * degree)])
            elif degree:
                r = u * (degree - 1 + back)
                chosen = before
                if r >= back and degree > 1:
                    at = s + 2 + min(np.int64(r - back), degree - 2)
                    chosen = np.int64(table[at + (at >= own)])
            before, s = s, chosen
            places[t, i] = s
            if ids.shape[0]:
                ids[t, i] = table[s]


@njit(cache=True, nogil=True)
def advance(table, back, state, length, start, places, ids):
    """Walk on by length steps from start, uniformly or with another weight of steps back, into places and ids."""
    if back != 1.0:
        _returning(table, back, state, length, start, places, ids)
    else:
        _uniform(table, state, length, start, places, ids)


@njit(cache=True, nogil=True)
def walks(first, last, place, table, back, nodes, names, per, length, seed, out):
    """Fill out (length + 1, walks) with node ids, drawn by names; units are blocks of BLOCK walks."""
    scratch = np.empty((max(length, 1), BLOCK), np.uint32)
    start, state = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint64)
    for block in range(first, last):
        lo, hi = block * BLOCK, min(out.shape[1], (block + 1) * BLOCK)
        node, walk = lo // per, lo % per
        for i in range(hi - lo):
            v = nodes[node]
            out[0, lo + i], start[i] = v, place[v]
            state[i] = seeded(seed, names[node] * per + walk)
            walk += 1
            if walk == per:
                node, walk = node + 1, 0
        n = hi - lo
        ids = out[1:, lo:hi]
        advance(table, back, state[:n], length, start[:n], scratch[:, :n], ids)


@njit(cache=True, nogil=True)
def walk_bits(first, last, table, walked, starts, window, ids, bits, arrived):
    """Of every step: node id, identity and adjacency bits, and the table position of the edge it took (or -1).

    bits[k, j - 1] is 1 where the node equals the one j steps earlier, bits[k, window + j - 1] where it is adjacent to
    it. Units are walks; walk w's steps are starts[w]..starts[w + 1] - 1.
    """
    for w in range(first, last):
        for k in range(starts[w], starts[w + 1]):
            s = walked[k]
            ids[k] = table[s]
            arrived[k] = -1
            for j in range(1, window + 1):
                same, near = 0, 0
                if k - j >= starts[w]:
                    earlier = walked[k - j]
                    same = earlier == s
                    at = position_of(table, earlier, s)
                    near = at >= 0
                    if j == 1:
                        arrived[k] = at
                bits[k, j - 1], bits[k, window + j - 1] = same, near
