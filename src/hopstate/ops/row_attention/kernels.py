# mypy: ignore-errors
"""The compiled loop of `row_attention`; a unit is one head of one sequence, and a query's sums run in one order.

Imported by `attention.py` on first use.
"""

import numpy as np
from numba import njit

from hopstate.ops.cpu.simd import LANES, filled, fma, lane_sum, load, splat, store, where_less
from hopstate.ops.cpu.simd_math import exp_parts

kernel = njit(nogil=True, cache=True, error_model="numpy")
NONE = -1e30  # a bias below it is -inf: no key stands there


@kernel
def attention(first_unit, last_unit, heads, queries, keys, dim, wide, q, k, v, bias, scale, y):
    """Write y [unit, query, channel]; q [unit, query, channel], k [unit, channel, key], v [unit, key, channel].

    keys and wide are the numbers of keys and channels filled up to whole vectors, as k, v, bias and y hold them.
    """
    share = np.empty(keys, q.dtype)
    for unit in range(first_unit, last_unit):
        own = (unit // heads) * keys
        for i in range(queries):
            row = (unit * queries + i) * dim
            for at in range(0, keys, LANES):
                score = load(bias, own + at)
                score = score - score
                for c in range(dim):
                    score = fma(load(k, (unit * dim + c) * keys + at), splat(q[row + c]), score)
                store(share, at, score)
            most = -np.inf
            for j in range(keys):
                if bias[own + j] > NONE:
                    share[j] = share[j] * scale + bias[own + j]
                    most = max(most, share[j])
            total = load(bias, own)
            total = filled(total, 0.0)
            for at in range(0, keys, LANES):
                there, lowest = load(bias, own + at), filled(total, NONE)
                less = load(share, at) - splat(q.dtype.type(most))
                weight = where_less(there, lowest, filled(total, 0.0), exp_parts(less)[0])
                store(share, at, weight)
                total = total + weight
            inverse = 1 / lane_sum(total)
            for at in range(0, wide, LANES):
                mixed = filled(total, 0.0)
                for j in range(keys):
                    if share[j] != 0:
                        mixed = fma(load(v, (unit * keys + j) * wide + at), splat(share[j]), mixed)
                store(y, (unit * queries + i) * wide + at, mixed * splat(q.dtype.type(inverse)))
