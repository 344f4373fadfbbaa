# mypy: ignore-errors
"""Compiled token building: the nodes that walks visit, each once, and the edges among them. Imported by `walks.py`.

Walks of a few nodes are drawn into a buffer that stays in cache and turned into tokens there. Which nodes a token
holds is looked up in an array over all places where that is small, else in a hash table; neither is cleared between
tokens, because an entry of an earlier token holds a smaller row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.propagate_kernels import prefetch
from hopstate.ops.random_kernels import seeded
from hopstate.ops.walk_kernels import LINE, advance

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
def _distinct_direct(mark, seen, total, first, nodes):
    """Write the different places of seen[:total] to nodes[first:], in order; mark then holds where each stands.

    Three passes of which none reads what it has just written: that would cost a stall at every place seen twice.
    """
    for k in range(total):  # backwards, so that the first of equal places has the last word
        i = np.uint64(total - 1 - k)
        mark[seen[i]] = i
    count = np.uint64(first)
    for k in range(total):
        i = np.uint64(k)
        s = seen[i]
        nodes[count] = s
        count += np.uint64(mark[s] == k)
    for k in range(first, np.int64(count)):
        mark[nodes[np.uint64(k)]] = k
    return np.int64(count) - first


@njit(cache=True, nogil=True)
def _edges_direct(mark, first, count, nodes, table, used, degree, target, position):
    """Append the edges among nodes[first:first + count]; no branch depends on whether a neighbour is one of them."""
    at, keep, least = np.uint64(used), position.size > 0, np.int32(first)
    for i in range(first, first + count):
        lo = np.uint64(nodes[np.uint64(i)]) + _TWO
        before = at
        for j in range(lo, lo + np.uint64(table[lo - _ONE])):
            stands = mark[table[j]]
            target[at] = stands - least
            if keep:
                position[at] = j
            at += np.uint64(stands >= least)
        degree[i] = at - before
    return np.int64(at)


@njit(cache=True, nogil=True)
def _slot(key, shift):
    return ((np.uint64(key) * np.uint64(2654435769)) & _LOW) >> np.uint64(shift)


@njit(cache=True, nogil=True)
def _distinct_hashed(mark, shift, seen, total, first, nodes, table):
    """As `_distinct_direct`, for graphs too large to mark: an entry holds a place and one more than where it stands."""
    last, count = np.uint64(mark.size - 1), first
    for i in range(total):
        s = np.uint64(seen[i])
        slot = _slot(s, shift)
        while (mark[slot] & _LOW) > np.uint64(first) and (mark[slot] >> _32) != s:
            slot = (slot + _ONE) & last
        if (mark[slot] & _LOW) <= np.uint64(first):  # stale: of an earlier token, or never used
            nodes[count] = seen[i]
            count += 1
            prefetch(table, s)  # for its edges
            prefetch(table, s + LINE)
            mark[slot] = (s << _32) | np.uint64(count)
    return count - first


@njit(cache=True, nogil=True)
def _edges_hashed(mark, shift, first, count, nodes, table, used, degree, target, position, near):
    """As `_edges_direct`. Few neighbours belong to a token: those whose own slot is free are dropped unseen first."""
    last, keep, least = np.uint64(mark.size - 1), position.size > 0, np.uint64(first)
    for i in range(first, first + count):
        lo = np.uint64(nodes[np.uint64(i)]) + _TWO
        found = np.uint64(0)
        for j in range(lo, lo + np.uint64(table[lo - _ONE])):
            near[found] = j
            found += np.uint64((mark[_slot(table[j], shift)] & _LOW) > least)
        before = used
        for k in range(found):
            j = np.uint64(near[k])
            key = np.uint64(table[j])
            slot = _slot(key, shift)
            while (mark[slot] & _LOW) > least:
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
def _walk_lengths(graph, batch, longest, repeats, per, seed, scratch, start, state):
    """Fill scratch with the walks of all lengths from the nodes of batch: row h(h-1)/2 + t is step t + 1."""
    place, table, threshold, other, weights, back, out = graph
    no_ids = np.empty((0, 0), np.int32)
    each = repeats * per
    n = batch.size * each
    for h in range(1, longest + 1):
        i = 0
        for v in batch:
            stream = (v * longest + h - 1) * each
            for w in range(each):
                start[i], state[i] = place[v], seeded(seed, stream + w)
                i += 1
        rows = scratch[h * (h - 1) // 2 : h * (h + 1) // 2, :n]
        advance(table, threshold, other, weights, back, out, state[:n], h, start[:n], rows, no_ids)


@njit(cache=True, nogil=True)
def _steps(scratch, h, column, per, seen):
    """Write what per walks of h steps visited to seen[1:], step after step; return how many places seen holds."""
    at = np.uint64(1)
    for row in range(h * (h - 1) // 2, h * (h + 1) // 2):
        for w in range(column, column + per):
            seen[at] = scratch[np.uint64(row), np.uint64(w)]
            at += _ONE
    return np.int64(at)


@njit(cache=True, nogil=True)
def _walk_by_walk(seen, h, per, walked, steps):
    """Append the walks that `_steps` laid out to walked, each walk's start and steps together."""
    for w in range(per):
        walked[steps] = seen[0]
        for t in range(h):
            walked[steps + t + 1] = seen[1 + t * per + w]
        steps += h + 1
    return steps


@njit(cache=True, nogil=True)
def _room(nodes, first, count, table, widest, free):
    """Return a number of edges that these nodes cannot exceed; exact only where the quick answer is above free."""
    if count * widest <= free:
        return count * widest
    room = 1
    for j in range(first, first + count):
        room += table[nodes[j] + _ONE]
    return room


@njit(cache=True, nogil=True)
def subgraphs(graph, batch, longest, repeats, per, seed, bound, widest, edges, positions, walks, direct, bits):
    """Tokens of the nodes in batch, each node's longest walks first and the node itself last.

    bound is the most rows that a node's tokens can have, widest the largest degree. Returns token sizes, nodes (ids),
    each row's number of edges, their targets (rows of the token), their table positions, and the walks as places, each
    token's one after the other, each walk's steps together.
    """
    place, table = graph[0], graph[1]
    each, lengths, shift = longest * repeats + 1, longest * (longest + 1) // 2, 32 - bits
    sizes, nodes = np.empty(batch.size * each, np.int32), np.empty(batch.size * bound + 1, np.uint32)
    degree, target = np.empty(nodes.size if edges else 0, np.int32), np.empty(0, np.uint16)
    position = np.empty(0, np.int64)
    walked = np.empty(batch.size * (1 + repeats * per * (lengths + longest)) if walks else 0, np.uint32)
    width = min(NODES, max(1, batch.size)) * repeats * per
    scratch, seen = np.empty((lengths + 1, width), np.uint32), np.empty(longest * per + 1, np.uint32)
    start, state = np.empty(width, np.uint32), np.empty(width, np.uint64)
    mark = np.full(table.size if direct else 0, -1, np.int32)
    hashed, near = np.zeros(0 if direct else 1 << bits, np.uint64), np.empty(widest + 1, np.uint32)
    token, first, used, steps = 0, 0, 0, 0
    for i in range(batch.size):
        if i % NODES == 0:
            _walk_lengths(graph, batch[i : i + NODES], longest, repeats, per, seed, scratch, start, state)
        seen[0] = place[batch[i]]
        for k in range(each):
            h = longest - k // repeats if k < each - 1 else 0
            total = _steps(scratch, h, (i % NODES * repeats + k % repeats) * per, per, seen)
            if direct:
                count = _distinct_direct(mark, seen, total, first, nodes)
            else:
                count = _distinct_hashed(hashed, shift, seen, total, first, nodes, table)
            if edges:
                room = _room(nodes, first, count, table, widest, target.size - used)
                target = _grown(target, used, room, i + 1, batch.size)
                if positions:
                    position = _grown(position, used, room, i + 1, batch.size)
                if direct:
                    used = _edges_direct(mark, first, count, nodes, table, used, degree, target, position)
                else:
                    used = _edges_hashed(
                        hashed, shift, first, count, nodes, table, used, degree, target, position, near
                    )
            if walks:
                steps = _walk_by_walk(seen, h, per if h else 1, walked, steps)
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
