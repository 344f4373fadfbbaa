# mypy: ignore-errors
"""Compiled token building: the nodes that walks visit, each once, and the edges among them. Imported by `walks.py`.

Walks of a few nodes are drawn into a buffer that stays in cache and turned into tokens there. Which nodes a token
holds is looked up in an array over all places where that is small, else in a hash table; neither is cleared between
tokens, because an entry of an earlier token holds a smaller row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.random_kernels import seeded
from hopstate.ops.walk_kernels import advance

NODES = 32  # nodes whose tokens are made together
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@njit(cache=True, nogil=True)
def _grown(array, used, needed, done, total):
    """Return array, or a larger copy with room for needed more and for what total - done further nodes may need."""
    if used + needed <= array.size:
        return array
    likely = int(1.1 * (used + needed) * total / done)  # untouched memory costs nothing, copies do
    if done < 64:
        likely = min(likely, 1 << 20)
    larger = np.empty(max(used + needed, likely), array.dtype)
    larger[:used] = array[:used]
    return larger


@njit(cache=True, nogil=True)
def _insert_direct(mark, first, count, nodes, visited):
    """Append to nodes (from first + count on) the places not yet among nodes[first:]; mark holds where each stands."""
    for i in range(visited.size):
        s = visited[i]
        at = first + count
        stands = mark[s]
        new = stands < first
        nodes[np.uint64(at)] = s
        mark[s] = at if new else stands
        count += new
    return count


@njit(cache=True, nogil=True)
def _edges_direct(mark, first, count, nodes, table, used, degree, target, position):
    """Append the edges among nodes[first:first + count]; no branch depends on whether a neighbour is one of them."""
    at, keep = np.uint64(used), position.size > 0
    for i in range(first, first + count):
        lo = np.uint64(nodes[np.uint64(i)]) + _TWO
        before = at
        for j in range(lo, lo + np.uint64(table[lo - _ONE])):
            stands = mark[table[j]]
            target[at] = stands - first
            if keep:
                position[at] = j
            at += np.uint64(stands >= first)
        degree[i] = at - before
    return np.int64(at)


@njit(cache=True, nogil=True)
def _slot(key, shift):
    return ((np.uint64(key) * np.uint64(2654435769)) & _LOW) >> np.uint64(shift)


@njit(cache=True, nogil=True)
def _insert_hashed(mark, shift, first, count, nodes, visited):
    """As `_insert_direct`, for graphs too large to mark: an entry holds a place and one more than where it stands."""
    last = np.uint64(mark.size - 1)
    for i in range(visited.size):
        s = np.uint64(visited[i])
        slot = _slot(s, shift)
        while (mark[slot] & _LOW) > np.uint64(first) and (mark[slot] >> _32) != s:
            slot = (slot + _ONE) & last
        if (mark[slot] & _LOW) <= np.uint64(first):  # stale: of an earlier token, or never used
            nodes[first + count] = visited[i]
            count += 1
            mark[slot] = (s << _32) | np.uint64(first + count)
    return count


@njit(cache=True, nogil=True)
def _edges_hashed(mark, shift, first, count, nodes, table, used, degree, target, position):
    last, keep = np.uint64(mark.size - 1), position.size > 0
    for i in range(first, first + count):
        lo = np.uint64(nodes[i]) + _TWO
        before = used
        for j in range(lo, lo + np.uint64(table[lo - _ONE])):
            key = np.uint64(table[j])
            slot = _slot(key, shift)
            while (mark[slot] & _LOW) > np.uint64(first):
                if (mark[slot] >> _32) == key:
                    target[used] = np.int64(mark[slot] & _LOW) - 1 - first
                    if keep:
                        position[used] = j
                    used += 1
                    break
                slot = (slot + _ONE) & last
        degree[i] = used - before
    return used


@njit(cache=True, nogil=True)
def _insert(mark, hashed, shift, first, count, nodes, visited):
    if mark.size:
        return _insert_direct(mark, first, count, nodes, visited)
    return _insert_hashed(hashed, shift, first, count, nodes, visited)


@njit(cache=True, nogil=True)
def _visited(scratch, h, t, column, per):
    return scratch[h * (h - 1) // 2 + t, column : column + per]


@njit(cache=True, nogil=True)
def _walk_lengths(graph, batch, longest, repeats, per, seed, scratch, start, state):
    """Fill scratch with the walks of all lengths from the nodes of batch: row h(h-1)/2 + t is step t + 1."""
    place, table, threshold, other, weights, back, out = graph
    no_ids = np.empty((0, 0), np.int32)
    each = repeats * per
    n = batch.size * each
    for h in range(1, longest + 1):
        for i in range(n):
            v = batch[i // each]
            start[i] = place[v]
            state[i] = seeded(seed, (v * longest + h - 1) * each + i % each)
        rows = scratch[h * (h - 1) // 2 : h * (h + 1) // 2, :n]
        advance(table, threshold, other, weights, back, out, state[:n], h, start[:n], rows, no_ids)


@njit(cache=True, nogil=True)
def subgraphs(graph, batch, longest, repeats, per, seed, bound, edges, positions, walks, direct, bits):
    """Tokens of the nodes in batch, each node's longest walks first and the node itself last.

    Returns token sizes, nodes (ids), each row's number of edges, their targets (rows of the token), their table
    positions, and the walks as places, each token's one after the other, each walk's steps together.
    """
    place, table = graph[0], graph[1]
    each, lengths = longest * repeats + 1, longest * (longest + 1) // 2
    sizes, nodes = np.empty(batch.size * each, np.int32), np.empty(batch.size * bound + 1, np.uint32)
    degree, target = np.empty(nodes.size if edges else 0, np.int32), np.empty(0, np.uint16)
    position = np.empty(0, np.int64)
    walked = np.empty(batch.size * (1 + repeats * per * (lengths + longest)) if walks else 0, np.uint32)
    width = min(NODES, max(1, batch.size)) * repeats * per
    scratch = np.empty((lengths + 1, width), np.uint32)
    start, state = np.empty(width, np.uint32), np.empty(width, np.uint64)
    mark = np.full(table.size if direct else 0, -1, np.int32)
    hashed = np.zeros(0 if direct else 1 << bits, np.uint64)
    own = np.empty(1, np.uint32)
    token, first, used, steps = 0, 0, 0, 0
    for i in range(batch.size):
        if i % NODES == 0:
            _walk_lengths(graph, batch[i : i + NODES], longest, repeats, per, seed, scratch, start, state)
        own[0] = place[batch[i]]
        for k in range(each):
            h = longest - k // repeats if k < each - 1 else 0
            column = (i % NODES * repeats + k % repeats) * per
            count = _insert(mark, hashed, 32 - bits, first, 0, nodes, own)
            for t in range(h):
                count = _insert(mark, hashed, 32 - bits, first, count, nodes, _visited(scratch, h, t, column, per))
            if edges:
                room = 1
                for j in range(first, first + count):
                    room += table[nodes[j] + _ONE]
                target = _grown(target, used, room, i + 1, batch.size)
                if positions:
                    position = _grown(position, used, room, i + 1, batch.size)
                if direct:
                    used = _edges_direct(mark, first, count, nodes, table, used, degree, target, position)
                else:
                    used = _edges_hashed(hashed, 32 - bits, first, count, nodes, table, used, degree, target, position)
            for w in range((per if h else 1) if walks else 0):
                walked[steps] = own[0]
                for t in range(h):
                    walked[steps + t + 1] = _visited(scratch, h, t, column, per)[w]
                steps += h + 1
            sizes[token] = count
            token, first = token + 1, first + count
    for k in range(first):
        nodes[k] = table[np.uint64(nodes[k])]
    return (
        sizes,
        nodes[:first],
        degree[: first if edges else 0],
        target[:used],
        position[: used if positions else 0],
        walked[:steps],
    )
