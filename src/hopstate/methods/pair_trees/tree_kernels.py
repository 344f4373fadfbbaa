# mypy: ignore-errors
"""Compiled loops over trees as arrays. Imported on first use.

Nodes of all trees lie one after the other; a leaf's children are the leaf itself, so a walk can always take as many
steps as the deepest leaf needs. nodes holds the feature of each node, and its children for values up to the
threshold, above it, and missing.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK = 64  # rows that go through a tree side by side


@njit(cache=True, nogil=True)
def add_trees(x, first, deepest, nodes, threshold, value, out):
    """Add what each tree says of rows x (Q, F) to out (Q,), tree after tree."""
    at = np.empty(BLOCK, np.int64)
    for begin in range(0, len(x), BLOCK):
        count = min(BLOCK, len(x) - begin)
        rows, sums = x[begin : begin + count], out[begin : begin + count]
        for tree in range(len(deepest)):
            at[:count] = first[tree]
            for _ in range(deepest[tree]):
                for r in range(count):
                    i = at[r]
                    seen = np.float64(rows[r, nodes[i, 0]])
                    at[r] = nodes[i, 3] if seen != seen else (nodes[i, 1] if seen <= threshold[i] else nodes[i, 2])
            for r in range(count):
                sums[r] += value[at[r]]


@njit(cache=True, nogil=True)
def add_paths(x, first, deepest, nodes, threshold, value, out):
    """Add to out (Q, F) by how much each split on a feature moved the expected value, along every row's paths.

    value says of inner nodes what is expected there.
    """
    for q in range(len(x)):
        for tree in range(len(deepest)):
            i = first[tree]
            for _ in range(deepest[tree]):
                feature = nodes[i, 0]
                seen = np.float64(x[q, feature])
                to = nodes[i, 3] if seen != seen else (nodes[i, 1] if seen <= threshold[i] else nodes[i, 2])
                out[q, feature] += value[to] - value[i]
                i = to
