# mypy: ignore-errors
"""Compiled loops of `attention.py`, imported on first use; each lane of a vector is a head by itself.

Forward, a unit is a span of receivers; backward, a span of a row's vectors, so that threads never share an output. A
row's sums run in stored order, the node itself last: the number of threads changes no bit.
"""

from __future__ import annotations

import math

from numba import njit

from hopstate.ops.cpu.simd import LANES, exp_parts, filled, fma, load, store, where_less

fast = njit(cache=True, nogil=True, error_model="numpy")


@njit(forceinline=True)
def _score(receiver, b, j, slope):
    """LeakyReLU(receiver + b_j)."""
    x = receiver + load(b, j * LANES)
    return where_less(x - x, x, x, x * filled(x, slope))


@fast
def forward(first, last, span, indptr, indices, receivers, a, b, v, width, slope, out, level):
    """out_i = sum_j exp(s_ij - level_i) v_j with s_ij = LeakyReLU(a_i + b_j) and level_i = log sum_j exp s_ij.

    out comes in as zeros.
    """
    for unit in range(first, last):
        for i in range(unit * span, min(receivers.size, unit * span + span)):
            me, at = receivers[i], i * width
            a_i = load(a, me * LANES)
            maximum = _score(a_i, b, me, slope)
            for e in range(indptr[i], indptr[i + 1]):
                score = _score(a_i, b, indices[e], slope)  # a self-loop does not change the maximum
                maximum = where_less(maximum, score, score, maximum)
            total = a_i - a_i
            for e in range(indptr[i], indptr[i + 1] + 1):
                j = me if e == indptr[i + 1] else indices[e]
                if j == me and e < indptr[i + 1]:
                    continue
                weight = exp_parts(_score(a_i, b, j, slope) - maximum)[0]
                total = total + weight
                for c in range(0, width, LANES):
                    store(out, at + c, fma(weight, load(v, j * width + c), load(out, at + c)))
            for c in range(0, width, LANES):
                store(out, at + c, load(out, at + c) / total)
            store(level, i * LANES, total)
            for lane in range(i * LANES, i * LANES + LANES):
                level[lane] = math.log(level[lane])
            store(level, i * LANES, load(level, i * LANES) + maximum)


@fast
def backward(first, last, span, indptr, indices, receivers, a, b, v, out, level, grad, width, slope, da, db, dv):
    """Gradients of `forward`; da, db and dv come in as zeros, da and db with a part for each unit."""
    for unit in range(first, last):
        low, high = unit * span * LANES, min(width, (unit + 1) * span * LANES)
        part = unit * (da.size // (-(-width // (span * LANES))))
        for i in range(receivers.size):
            me, at = receivers[i], i * width
            a_i, height = load(a, me * LANES), load(level, i * LANES)
            mean = a_i - a_i
            for c in range(low, high, LANES):
                mean = fma(load(grad, at + c), load(out, at + c), mean)
            sum_ = a_i - a_i
            for e in range(indptr[i], indptr[i + 1] + 1):
                j = me if e == indptr[i + 1] else indices[e]
                if j == me and e < indptr[i + 1]:
                    continue
                x = a_i + load(b, j * LANES)
                zero, one = x - x, filled(x, 1.0)
                weight = exp_parts(where_less(zero, x, x, x * filled(x, slope)) - height)[0]
                weight_grad = zero
                for c in range(low, high, LANES):
                    g = load(grad, at + c)
                    weight_grad = fma(g, load(v, j * width + c), weight_grad)
                    store(dv, j * width + c, fma(weight, g, load(dv, j * width + c)))
                dx = weight * (weight_grad - mean) * where_less(zero, x, one, filled(x, slope))
                store(db, part + j * LANES, load(db, part + j * LANES) + dx)
                sum_ = sum_ + dx
            store(da, part + me * LANES, load(da, part + me * LANES) + sum_)
