"""Compiled half of `rmat`: one quadrant a level, from counter-based random numbers."""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import STEP, mix, seeded


@njit(cache=True, nogil=True)
def rmat_edges(scale, num_nodes, num_edges, a, ab, abc, seed):  # type: ignore[no-untyped-def]
    """Return (num_edges, 2) ids; a, ab, abc are the cumulated probabilities of the quadrants."""
    edges = np.empty((num_edges, 2), np.int64)
    for e in range(num_edges):
        state = seeded(seed, e)
        source = target = 0
        for _ in range(scale):
            state = state + STEP
            r = (mix(state) >> np.uint64(11)) / 9007199254740992.0
            source = 2 * source + (r >= ab)
            target = 2 * target + (a <= r < ab or r >= abc)
        edges[e, 0] = source % num_nodes
        edges[e, 1] = target % num_nodes
    return edges
