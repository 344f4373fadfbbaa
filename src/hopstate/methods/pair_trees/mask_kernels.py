# mypy: ignore-errors
"""Compiled loops over trees as masks of leaves. Imported on first use; derivation in FEATURES.md.

A leaf is reached where no split above it leads away from it. So each split has a mask of the leaves that it leaves
over once it sends a row to the right, rows begin with all leaves, and the lowest that is left is the row's. No step
waits for another, and rows go side by side through the processor's wide registers.

Source: Lucchese et al. 2015, doi:10.1145/2766462.2767733 (QuickScorer, there a row at a time).
"""

from __future__ import annotations

import numpy as np
from numba import njit

ROWS = 64  # side by side
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_SPREAD = np.uint64(0x03F79D71B4CB0A89)  # de Bruijn: its top six bits differ by how far it is shifted
PLACE = np.zeros(64, np.int64)  # of a single bit, by these six
for _k in range(64):
    PLACE[((int(_SPREAD) << _k) & int(_ALL)) >> 58] = _k


@njit(cache=True, nogil=True)
def count_leaves(root, end, nodes, leaves):
    """Write how many leaves there are under nodes root .. end-1; return whether they are a tree of at most 64."""
    ways = np.zeros(end - root, np.int64)
    for i in range(end - 1, root - 1, -1):  # children come after their parent
        left, right, missing = nodes[i, 1], nodes[i, 2], nodes[i, 3]
        if left == i:
            leaves[i] = 1
            continue
        ways[left - root] += 1
        ways[right - root] += 1
        leaves[i] = min(leaves[left] + leaves[right], 65)
        if missing != left and missing != right:
            return False
    return leaves[root] <= 64 and (ways[1:] == 1).all()


@njit(cache=True, nogil=True)
def mask_trees(first, nodes, value, ends, middle, split, mask, leaf):
    """Write the masks of trees; return whether they have any: at most 64 leaves each, and one way to each node.

    Args:
        first: (T+1,) roots and the end.
        nodes: (n, 4) as in `tree_kernels`.
        value: (n,) of leaves.
        ends: (T+1,) where each tree's splits begin, and the end.
        middle: (T,) where those begin that send what is missing to the right.
        split: (m,) node of each split.
        mask: (m,) of the leaves that it leaves over.
        leaf: (T, 64) values of leaves from left to right.
    """
    leaves, begin, count = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64), 0
    for tree in range(len(first) - 1):
        root, end = first[tree], first[tree + 1]
        if not count_leaves(root, end, nodes, leaves):
            return False
        for is_right in (False, True):
            if is_right:
                middle[tree] = count
            for i in range(root, end):
                left, right = nodes[i, 1], nodes[i, 2]
                if left == i:
                    leaf[tree, begin[i]] = value[i]
                    continue
                begin[left], begin[right] = begin[i], begin[i] + leaves[left]
                if (nodes[i, 3] == right) == is_right:
                    away = (np.uint64(1) << np.uint64(leaves[left])) - np.uint64(1)  # a left side has 63 at most
                    split[count], mask[count] = i, ~(away << np.uint64(begin[i]))
                    count += 1
        ends[tree + 1] = count
    return True


@njit(cache=True, nogil=True)
def add_masked(x, ends, middle, feature, threshold, mask, leaf, place, out):
    """Add what each tree says of rows x (Q, F) to out (Q,), tree after tree.

    Args:
        ends, middle, mask, leaf: as `mask_trees` writes them, of all trees or of some that follow each other.
        feature: (m,) of each split.
        threshold: (m,) in the type of x.
        place: `PLACE`.
    """
    side, alive = np.zeros((x.shape[1], ROWS), x.dtype), np.empty(ROWS, np.uint64)
    for begin in range(0, len(x), ROWS):
        few = min(ROWS, len(x) - begin)
        for r in range(few):
            for f in range(x.shape[1]):
                side[f, r] = x[begin + r, f]
        for tree in range(len(leaf)):
            alive[:] = _ALL
            for k in range(ends[tree], middle[tree]):
                seen, most, over = side[feature[k]], threshold[k], mask[k]
                for r in range(ROWS):
                    alive[r] &= over if seen[r] > most else _ALL
            for k in range(middle[tree], ends[tree + 1]):
                seen, most, over = side[feature[k]], threshold[k], mask[k]
                for r in range(ROWS):
                    alive[r] &= _ALL if seen[r] <= most else over
            for r in range(few):
                lowest = alive[r] & (~alive[r] + np.uint64(1))
                out[begin + r] += leaf[tree, place[(lowest * _SPREAD) >> np.uint64(58)]]
