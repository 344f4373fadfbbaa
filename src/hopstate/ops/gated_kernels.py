# mypy: ignore-errors
"""Compiled gated neighbour sums; units are spans of sixteen channels, so that threads never share an output.

Imported by `gated.py` on first use.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.simd import LANES, exp_parts, filled, fma, load_first, splat, store_first, where_less


@njit(cache=True, nogil=True)
def _sigmoid(x):
    """1 / (1 + exp(-x)), through exp(-|x|)."""
    zero = x - x
    one = filled(x, 1.0)
    minus = where_less(x, zero, x, zero - x)
    small = exp_parts(minus)[0]
    share = one / (one + small)
    return where_less(x, zero, small * share, share)


@njit(cache=True, nogil=True)
def forward(first, last, indptr, indices, a, b, v, c, width, out, total):
    """out_i = sum_j g_ij v_j / (sum_j g_ij + eps), total_i = sum_j g_ij + eps, g_ij = sigmoid(a_i + b_j + c_ij)."""
    n = indptr.size - 1
    for unit in range(first, last):
        at = unit * LANES
        count = min(LANES, width - at)
        for i in range(n):
            own = load_first(a, i * width + at, count)
            top = own - own
            bottom = filled(own, 1e-6)
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                x = own + load_first(b, j * width + at, count)
                if c.size:
                    x = x + load_first(c, e * width + at, count)
                g = _sigmoid(x)
                top = fma(g, load_first(v, j * width + at, count), top)
                bottom = bottom + g
            store_first(out, i * width + at, top / bottom, count)
            store_first(total, i * width + at, bottom, count)


@njit(cache=True, nogil=True)
def backward(first, last, indptr, indices, a, b, v, c, width, out, total, grad, da, db, dv, dc):
    """Gradients of `forward`; db and dv come in as zeros."""
    n = indptr.size - 1
    for unit in range(first, last):
        at = unit * LANES
        count = min(LANES, width - at)
        for i in range(n):
            own = load_first(a, i * width + at, count)
            mean = load_first(out, i * width + at, count)
            zero = own - own
            one = filled(own, 1.0)
            bottom = where_less(
                zero, load_first(total, i * width + at, count), load_first(total, i * width + at, count), one
            )
            scaled = load_first(grad, i * width + at, count) / bottom
            sum_ = zero
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                x = own + load_first(b, j * width + at, count)
                if c.size:
                    x = x + load_first(c, e * width + at, count)
                g = _sigmoid(x)
                value = load_first(v, j * width + at, count)
                store_first(dv, j * width + at, fma(g, scaled, load_first(dv, j * width + at, count)), count)
                dx = scaled * (value - mean) * g * (one - g)
                store_first(db, j * width + at, load_first(db, j * width + at, count) + dx, count)
                if c.size:
                    store_first(dc, e * width + at, dx, count)
                sum_ = sum_ + dx
            store_first(da, i * width + at, sum_, count)
