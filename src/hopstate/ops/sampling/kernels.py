# mypy: ignore-errors
"""Compiled loops of `sampling`; need numba, so they are imported only where they are used.

`local` is a caller's int32 workspace, one entry per node and -1 between calls: the node's row in the batch.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import STEP, below, mix, seeded


@njit(cache=True, nogil=True)
def induced(indptr, indices, nodes, local, halo):
    """Return (indptr, local indices, positions of the edges, nodes with the halo's after them).

    Without halo only edges inside nodes are kept; with it every edge of nodes is, and its far ends are added.
    """
    b = len(nodes)
    for i in range(b):
        local[nodes[i]] = i
    out = np.zeros(b + 1, np.int64)
    for i in range(b):
        count = 0
        lo, hi = indptr[nodes[i]], indptr[nodes[i] + 1]
        if halo:
            count = hi - lo
        else:
            for e in range(lo, hi):
                count += local[indices[e]] >= 0
        out[i + 1] = out[i] + count
    columns, edges = np.empty(out[b], np.int64), np.empty(out[b], np.int64)
    far = np.empty(min(out[b], len(local) - b) if halo else 0, np.int64)
    at, found = 0, 0
    for i in range(b):
        for e in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            u = indices[e]
            if local[u] < 0:
                if not halo:
                    continue
                local[u] = b + found
                far[found] = u
                found += 1
            columns[at], edges[at] = local[u], e
            at += 1
    for i in range(b):
        local[nodes[i]] = -1
    for j in range(found):
        local[far[j]] = -1
    return out, columns, edges, np.concatenate((nodes, far[:found]))


@njit(cache=True, nogil=True)
def sample_neighbors(indptr, indices, seeds, fanout, seed, local):
    """Return (indptr, local indices, weight and position of each edge, seeds and then the others) of a uniform sample.

    A seed's min(fanout, degree) neighbours are drawn without replacement (Floyd's algorithm); weights are degree / k.
    """
    b = len(seeds)
    out = np.zeros(b + 1, np.int64)
    for i in range(b):
        local[seeds[i]] = i
        out[i + 1] = out[i] + min(fanout, indptr[seeds[i] + 1] - indptr[seeds[i]])
    columns, weight, edges = np.empty(out[b], np.int64), np.empty(out[b], np.float32), np.empty(out[b], np.int64)
    nodes = np.empty(b + min(out[b], len(local)), np.int64)
    nodes[:b] = seeds
    total, chosen = b, np.empty(max(fanout, 0), np.int64)
    for i in range(b):
        v = seeds[i]
        lo, degree = indptr[v], indptr[v + 1] - indptr[v]
        count, state = out[i + 1] - out[i], seeded(seed, v)
        for j in range(count):
            pick = j
            if degree > fanout:
                top = degree - count + j
                pick, state = below(state, top + 1)
                for s in range(j):
                    if chosen[s] == pick:
                        pick = top
                        break
                chosen[j] = pick
            u = indices[lo + pick]
            if local[u] < 0:
                local[u] = total
                nodes[total] = u
                total += 1
            at = out[i] + j
            columns[at], weight[at], edges[at] = local[u], degree / count, lo + pick
    for j in range(total):
        local[nodes[j]] = -1
    return out, columns, weight, edges, nodes[:total].copy()


@njit(cache=True, nogil=True)
def sample_labor(indptr, indices, seeds, fanout, seed, local):
    """Return what `sample_neighbors` does for LABOR-0: edge (v, u) is kept where u's one number r_u < fanout / degree.

    All seeds look at the same r_u, so that they choose the same neighbours; weights are 1 / probability.
    """
    b, key = len(seeds), mix(np.uint64(seed) + STEP)
    out = np.zeros(b + 1, np.int64)
    widest = 0
    for i in range(b):
        local[seeds[i]] = i
        widest = max(widest, indptr[seeds[i] + 1] - indptr[seeds[i]])
    columns, weight = np.empty(2 * b * fanout + widest, np.int64), np.empty(2 * b * fanout + widest, np.float32)
    edges = np.empty(2 * b * fanout + widest, np.int64)
    nodes = np.empty(len(local), np.int64)
    nodes[:b] = seeds
    total, at, kept = b, 0, np.empty(widest, np.bool_)
    for i in range(b):
        lo, hi = indptr[seeds[i]], indptr[seeds[i] + 1]
        degree = hi - lo
        if at + degree > len(columns):
            columns, weight, edges = _longer(columns, degree), _longer(weight, degree), _longer(edges, degree)
        every = degree <= fanout
        if not every:
            _below_limit(indices[lo:hi], key, np.uint64(fanout / degree * 9007199254740992.0), kept)
        for j in range(degree):
            if every or kept[j]:
                u = indices[lo + j]
                if local[u] < 0:
                    local[u] = total
                    nodes[total] = u
                    total += 1
                columns[at], weight[at], edges[at] = local[u], max(1.0, degree / fanout), lo + j
                at += 1
        out[i + 1] = at
    for j in range(total):
        local[nodes[j]] = -1
    return out, columns[:at].copy(), weight[:at].copy(), edges[:at].copy(), nodes[:total].copy()


@njit(cache=True, nogil=True)
def _below_limit(nodes, key, limit, below):
    """Write to below[j] whether the number of nodes[j], 53 bits under a scattered seed, is below limit.

    Nothing but arithmetic, so that the compiler makes vector instructions of it.
    """
    for j in range(len(nodes)):
        below[j] = (mix(key ^ (np.uint64(nodes[j]) * STEP)) >> np.uint64(11)) < limit


@njit(cache=True, nogil=True)
def _longer(array, least):
    """Return a copy with at least `least` and at least half its own length more room."""
    new = np.empty(len(array) + max(least, len(array) // 2), array.dtype)
    new[: len(array)] = array
    return new


@njit(cache=True, nogil=True)
def ppr_neighborhoods(indptr, indices, roots, size, alpha, epsilon):
    """Return (offsets, nodes): each root and the up to size - 1 other nodes of largest approximate PPR from it.

    Andersen, Chung & Lang 2006: residuals are pushed until all are below epsilon times the degree.
    """
    n = len(indptr) - 1
    rank, residual, seen = np.zeros(n), np.zeros(n), np.zeros(n, np.bool_)
    queue, queued = np.empty(n, np.int64), np.zeros(n, np.bool_)
    offsets = np.zeros(len(roots) + 1, np.int64)
    nodes = np.empty(len(roots) * size, np.int64)
    touched = np.empty(n, np.int64)
    for r in range(len(roots)):
        root = roots[r]
        residual[root], touched[0], seen[root], count = 1.0, root, True, 1
        queue[0], queued[root], head, waiting = root, True, 0, 1
        while waiting:
            v = queue[head]
            head, waiting, queued[v] = (head + 1) % n, waiting - 1, False
            degree, mass = indptr[v + 1] - indptr[v], residual[v]
            residual[v] = 0.0
            rank[v] += alpha * mass
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if not seen[u]:
                    seen[u], touched[count] = True, u
                    count += 1
                residual[u] += (1 - alpha) * mass / degree
                if not queued[u] and residual[u] >= epsilon * max(1, indptr[u + 1] - indptr[u]):
                    queue[(head + waiting) % n], queued[u] = u, True
                    waiting += 1
        rank[root] = np.inf  # the root always comes first
        found = touched[:count]
        best = found[np.argsort(-rank[found], kind="mergesort")[: min(size, count)]]
        kept = 0
        for u in best:
            if rank[u] > 0:
                nodes[offsets[r] + kept] = u
                kept += 1
        offsets[r + 1] = offsets[r] + kept
        for u in found:
            rank[u], residual[u], seen[u] = 0.0, 0.0, False
    return offsets, nodes[: offsets[-1]].copy()


@njit(cache=True, nogil=True)
def hop_neighborhoods(indptr, indices, roots, depth, fanout, seed, local):
    """Return (offsets, nodes): each root and the nodes reached in depth steps over fanout sampled neighbours a node."""
    offsets = np.zeros(len(roots) + 1, np.int64)
    limit, level = 1, 1
    for _ in range(depth):
        level *= fanout
        limit += level
    limit = min(limit, len(indptr) - 1)
    nodes = np.empty(len(roots) * limit, np.int64)
    for r in range(len(roots)):
        first, begin, end = offsets[r], offsets[r], offsets[r] + 1
        nodes[first] = roots[r]
        for hop in range(depth):
            key = mix(seeded(seed, hop) ^ (np.uint64(roots[r]) * STEP)) >> np.uint64(1)
            rim = nodes[begin:end].copy()  # expand only the nodes that the last step added
            _, _, _, _, near = sample_neighbors(indptr, indices, rim, fanout, np.int64(key), local)
            for i in range(first, end):
                local[nodes[i]] = 1
            begin = end
            for u in near[len(rim) :]:
                if local[u] < 0:
                    nodes[end] = u
                    end += 1
            for i in range(first, begin):
                local[nodes[i]] = -1
        offsets[r + 1] = end
    return offsets, nodes[: offsets[-1]].copy()


@njit(cache=True, nogil=True)
def disjoint_union(indptr, indices, offsets, nodes, local):
    """Return (indptr, indices, edge positions) of the subgraphs induced by nodes[offsets[r]:offsets[r+1]], stacked."""
    total = len(nodes)
    out = np.zeros(total + 1, np.int64)
    columns, edges = np.empty(0, np.int64), np.empty(0, np.int64)
    for fill in (False, True):
        if fill:
            columns, edges = np.empty(out[total], np.int64), np.empty(out[total], np.int64)
        at = 0
        for r in range(len(offsets) - 1):
            for i in range(offsets[r], offsets[r + 1]):
                local[nodes[i]] = i
            for i in range(offsets[r], offsets[r + 1]):
                for e in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
                    if local[indices[e]] >= 0:
                        if fill:
                            columns[at], edges[at] = local[indices[e]], e
                        at += 1
                out[i + 1] = at
            for i in range(offsets[r], offsets[r + 1]):
                local[nodes[i]] = -1
    return out, columns, edges


@njit(cache=True, nogil=True)
def bisect(indptr, indices, nodes, want, passes, side, order):
    """Cut nodes in two, the first of about `want` nodes: side[v] becomes 0 or 1. side is -1 for all other nodes.

    The first half is a breadth-first ball around a far node; then nodes with more edges to the other half change
    sides where the sizes stay within 2 % of the wish.
    """
    n = len(nodes)
    start, place = nodes[0], 0
    for _ in range(2):  # the last node of a search lies at the rim; a search from there ends at the opposite rim
        for v in nodes:
            side[v] = 2
        place = 0
        for first in range(-1, n):
            s = start if first < 0 else nodes[first]
            if side[s] != 2:
                continue
            head, order[place], side[s] = place, s, 1
            place += 1
            while head < place:
                v = order[head]
                head += 1
                for e in range(indptr[v], indptr[v + 1]):
                    u = indices[e]
                    if side[u] == 2:
                        order[place], side[u] = u, 1
                        place += 1
            if first < 0:
                start = order[place - 1]
    for i in range(want):
        side[order[i]] = 0
    size, slack = want, max(1, n // 50)
    for _ in range(passes):
        moves = 0
        for i in range(n):
            v = order[i]
            gain = 0
            for e in range(indptr[v], indptr[v + 1]):
                u = side[indices[e]]
                if u >= 0 and indices[e] != v:
                    gain += 1 if u != side[v] else -1
            if gain > 0 and abs(size + (1 if side[v] else -1) - want) <= slack:
                size += 1 if side[v] else -1
                side[v] = 1 - side[v]
                moves += 1
        if moves == 0:
            break
    return size
