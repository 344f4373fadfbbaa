# mypy: ignore-errors
"""Compiled sums over the neighbours of pairs, a first node's pairs together. Imported on first use."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pair_paths(indptr, indices, weights, half, roots, bounds, others, out):
    """Write, for pairs (roots[r], others[bounds[r]:bounds[r + 1]]), sums over their common neighbours and paths.

    Args:
        indptr, indices: (N+1,), (E,) links in both directions, without loops and duplicates.
        weights: (K, N) what a common neighbour counts.
        half: (N,) what an inner node of a path of three steps counts; the pair's own link is part of none.
        roots, bounds, others: (R,), (R+1,), (Q,).
        out: (Q, K + 2) the K sums, the paths' sum, and 1 where the pair is linked.
    """
    n, kinds = indptr.size - 1, weights.shape[0]
    near = np.zeros((n, kinds))
    reach = np.zeros(n)
    linked = np.zeros(n, np.bool_)
    for r in range(roots.size):
        u = roots[r]
        for e in range(indptr[u], indptr[u + 1]):
            a = indices[e]
            linked[a] = True
            for f in range(indptr[a], indptr[a + 1]):
                b = indices[f]
                reach[b] += half[a]
                for k in range(kinds):
                    near[b, k] += weights[k, a]
        for q in range(bounds[r], bounds[r + 1]):
            v = others[q]
            for k in range(kinds):
                out[q, k] = near[v, k]
            own = half[v] if linked[v] else 0.0
            total = 0.0
            for e in range(indptr[v], indptr[v + 1]):
                b = indices[e]
                if b != u:
                    left = reach[b] - own
                    if left > 1e-12:
                        total += half[b] * left
            out[q, kinds] = total
            out[q, kinds + 1] = 1.0 if linked[v] else 0.0
        for e in range(indptr[u], indptr[u + 1]):
            a = indices[e]
            linked[a] = False
            for f in range(indptr[a], indptr[a + 1]):
                b = indices[f]
                reach[b] = 0.0
                for k in range(kinds):
                    near[b, k] = 0.0
