# mypy: ignore-errors
"""Compiled loop that peels a graph down to its cores. Imported on first use."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def core_numbers(starts, sources, degree):
    """Return (N,) int64 core numbers in O(N + E): nodes leave by rising degree, and lower that of who points at them.

    starts (N+1,) and sources (E,): who points at each node, itself left out; degree (N,) out-degrees, written over.
    """
    n = len(degree)
    place = np.zeros(int(degree.max()) + 2, np.int64)  # where the nodes of each degree begin, in `nodes`
    for v in range(n):
        place[degree[v] + 1] += 1
    for d in range(1, len(place)):
        place[d] += place[d - 1]
    nodes, position, free = np.empty(n, np.int64), np.empty(n, np.int64), place.copy()
    for v in range(n):
        position[v] = free[degree[v]]
        nodes[position[v]] = v
        free[degree[v]] += 1
    for i in range(n):
        v = nodes[i]
        for k in range(starts[v], starts[v + 1]):
            u = sources[k]
            if degree[u] > degree[v]:  # it becomes the last of those with one less
                first = place[degree[u]]
                w, at = nodes[first], position[u]
                nodes[first], nodes[at], position[u], position[w] = u, w, first, at
                place[degree[u]] = first + 1
                degree[u] -= 1
    return degree
