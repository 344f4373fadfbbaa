# mypy: ignore-errors
"""Compiled token building: the nodes that walks visit, each once, and the edges among them. Imported on first use.

Walks of a few nodes are drawn into a buffer that stays in cache and turned into tokens there. A hash table has the
nodes of a token. It is not cleared between tokens, because an entry of an earlier token holds a smaller row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import seeded
from hopstate.ops.cpu.simd import prefetch
from hopstate.ops.walks.kernels import LINE, advance

HASH = np.uint64(2654435769)  # an odd multiplier; the highest bits of the product, modulo 2**32, are the slot
NODES = 32  # nodes whose walks are drawn together
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@njit(cache=True, nogil=True)
def _grown(array, used, needed, done, total):
    if used + needed <= array.size:
        return array
    likely = int(1.1 * (used + needed) * total / done)  # untouched memory costs nothing, copies do
    if done < 64:  # too few for an estimate
        likely = min(likely, 1 << 15)
    larger = np.empty(max(used + needed, likely), array.dtype)
    larger[:used] = array[:used]
    return larger


@njit(cache=True, nogil=True)
def _slot(key, shift):
    return ((np.uint64(key) * HASH) & _LOW) >> np.uint64(shift)


@njit(cache=True, nogil=True)
def _distinct(mark, shift, seen, total, first, nodes, table):
    """Write the distinct places of seen[:total] to nodes[first:] in order, and their rows + 1 to the hash table.

    Returns where they end, and whether every entry is at its own slot.
    """
    size, count, alone = np.uint64(mark.size - 1), first, True
    for i in range(total):
        s = np.uint64(seen[i])
        own = slot = _slot(s, shift)
        while (mark[slot] & _LOW) > np.uint64(first) and (mark[slot] >> _32) != s:
            slot = (slot + _ONE) & size
        if (mark[slot] & _LOW) <= np.uint64(first):  # stale: of an earlier token, or never used
            nodes[count] = seen[i]
            count += 1
            prefetch(table, s)  # for its edges
            prefetch(table, s + LINE)
            mark[slot] = (s << _32) | np.uint64(count)
            alone &= slot == own
    return count, alone


@njit(cache=True, nogil=True)
def _edges_one_probe(mark, shift, first, last, nodes, table, used, degree, target, position):
    """As `_edges`, if every entry is at its own slot; without branches on the neighbors."""
    at, keep, base, count = np.uint64(used), position.size > 0, np.uint64(first + 1), np.uint64(last - first)
    for i in range(first, last):
        s = np.uint64(nodes[np.uint64(i)])
        nodes[np.uint64(i)] = table[s]
        before = at
        for j in range(s + _TWO, s + _TWO + np.uint64(table[s + _ONE])):
            key = np.uint64(table[j])
            row = mark[_slot(key, shift)] - ((key << _32) | base)  # another place, or an earlier row: beyond count
            target[at] = row
            if keep:
                position[at] = j
            at += np.uint64(row < count)
        degree[i] = at - before
    return np.int64(at)


@njit(cache=True, nogil=True)
def _edges(mark, shift, first, last, nodes, table, used, degree, target, position):
    """Append the edges among nodes[first:last], places that become ids."""
    size, keep, least = np.uint64(mark.size - 1), position.size > 0, np.uint64(first)
    for i in range(first, last):
        s = np.uint64(nodes[np.uint64(i)])
        nodes[np.uint64(i)] = table[s]
        before = used
        for j in range(s + _TWO, s + _TWO + np.uint64(table[s + _ONE])):
            key = np.uint64(table[j])
            slot = _slot(key, shift)
            while (mark[slot] & _LOW) > least:
                if (mark[slot] >> _32) == key:
                    target[used] = np.int64(mark[slot] & _LOW) - 1 - first
                    if keep:
                        position[used] = j
                    used += 1
                    break
                slot = (slot + _ONE) & size
        degree[i] = used - before
    return used


@njit(cache=True, nogil=True)
def _walk_lengths(graph, batch, names, ladder, first, repeats, per, seed, scratch, start, state):
    """Fill scratch with the walks of all lengths from the nodes of batch, those of ladder[j] from row first[j]."""
    place, table, back = graph
    no_ids = np.empty((0, 0), np.int32)
    each = repeats * per
    n = batch.size * each
    for j in range(ladder.size):
        i = 0
        for k in range(batch.size):
            v, stream = batch[k], (names[k] * ladder.size + j) * each
            for w in range(each):
                start[i], state[i] = place[v], seeded(seed, stream + w)
                i += 1
        rows = scratch[first[j] : first[j + 1], :n]
        advance(table, back, state[:n], ladder[j], start[:n], rows, no_ids)


@njit(cache=True, nogil=True)
def _walk_by_walk(seen, h, per, walked, steps):
    """Append the walks of a token to walked, one after the other; seen holds them step after step."""
    for w in range(per):
        walked[steps] = seen[0]
        for t in range(h):
            walked[steps + t + 1] = seen[1 + t * per + w]
        steps += h + 1
    return steps


@njit(cache=True, nogil=True)
def _edge_capacity(nodes, first, last, table, widest, free):
    """Return a number of edges that these nodes cannot exceed; exact only where the quick answer is above free."""
    if (last - first) * widest <= free:
        return (last - first) * widest
    capacity = 1
    for j in range(first, last):
        capacity += table[nodes[j] + _ONE]
    return capacity


@njit(cache=True, nogil=True)
def subgraphs(graph, batch, names, ladder, repeats, per, seed, rows, widest, loops, positions, walks, bits):
    """Tokens of the nodes in batch, walks drawn by names, each node's longest walks first and the node itself last.

    ladder holds the lengths of walks, ascending. rows has room for the rows of all tokens and one more: nodes, degree
    (empty without edges), and room for some edges: target. widest is the largest degree, loops whether any node has an
    edge to itself. The hash table has 2**bits slots.

    Returns token sizes, nodes (ids), each row's number of edges, their targets (rows of the token), their table
    positions, and the walks as places, each token's one after the other, each walk's steps together.
    """
    (place, table), (nodes, degree, target) = graph[:2], rows
    first = np.zeros(ladder.size + 1, np.int64)
    for j in range(ladder.size):
        first[j + 1] = first[j] + ladder[j]
    each, lengths, shift = ladder.size * repeats + 1, first[ladder.size], 32 - bits
    longest = ladder[ladder.size - 1] if ladder.size else 0
    sizes, position, edges = np.empty(batch.size * each, np.int32), np.empty(0, np.int64), degree.size > 0
    walked = np.empty(batch.size * (1 + repeats * per * (lengths + ladder.size)) if walks else 0, np.uint32)
    width = min(NODES, max(1, batch.size)) * repeats * per
    scratch, seen = np.empty((lengths, width), np.uint32), np.empty(longest * per + 1, np.uint32)
    start, state = np.empty(width, np.uint32), np.empty(width, np.uint64)
    mark = np.zeros(1 << bits, np.uint64)
    begin, token, used, steps = 0, 0, 0, 0
    for i in range(batch.size):
        if i % NODES == 0:
            end = i + NODES
            _walk_lengths(graph, batch[i:end], names[i:end], ladder, first, repeats, per, seed, scratch, start, state)
        seen[0], own = place[batch[i]], begin
        for k in range(each):
            total, h = 1, 0
            if k < each - 1:
                j = ladder.size - 1 - k // repeats
                h, column = ladder[j], (i % NODES * repeats + k % repeats) * per
                for t in range(first[j], first[j + 1]):
                    seen[total : total + per] = scratch[t, column : column + per]
                    total += per
            if walks:
                steps = _walk_by_walk(seen, h, per if h else 1, walked, steps)
            end, alone = _distinct(mark, shift, seen, total, begin, nodes, table)
            sizes[token] = end - begin
            token += 1
            if edges and end - begin == 1 and not loops:
                nodes[begin], degree[begin] = table[place[batch[i]]], 0
            elif edges:
                capacity = _edge_capacity(nodes, begin, end, table, widest, target.size - used)
                target = _grown(target, used, capacity, i + 1, batch.size)
                if positions:
                    position = _grown(position, used, capacity, i + 1, batch.size)
                if alone:
                    used = _edges_one_probe(mark, shift, begin, end, nodes, table, used, degree, target, position)
                else:
                    used = _edges(mark, shift, begin, end, nodes, table, used, degree, target, position)
            begin = end
        if not edges:
            for k in range(own, begin):
                nodes[k] = table[np.uint64(nodes[k])]
    return (
        sizes,
        nodes[:begin],
        degree[: begin if edges else 0],
        target[:used],
        position[: used if positions else 0],
        walked[:steps],
    )
