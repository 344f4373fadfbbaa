# mypy: ignore-errors
"""Compiled gated neighbour sums; units are spans of sixteen channels, so that threads never share an output.

Imported by `gated.py` on first use.
"""

from __future__ import annotations

from numba import njit

from hopstate.ops.cpu.simd import LANES, exp_parts, filled, fma, load_first, store_first, where_less


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
def forward(first, last, indptr, indices, rows, a, b, v, c, width, out, total):
    """out_i = sum_j g_ij v_j / (sum_j g_ij + eps), total_i = sum_j g_ij + eps, g_ij = sigmoid(a_i + b_j + c_ij).

    Row i of the graph reads row rows[i] of a, b and v; i itself where rows is empty.
    """
    n = indptr.size - 1
    for unit in range(first, last):
        at = unit * LANES
        count = min(LANES, width - at)
        for i in range(n):
            here = (rows[i] if rows.size else i) * width + at
            a_i = load_first(a, here, count)
            top = a_i - a_i
            bottom = filled(a_i, 1e-6)
            for e in range(indptr[i], indptr[i + 1]):
                there = (rows[indices[e]] if rows.size else indices[e]) * width + at
                x = a_i + load_first(b, there, count)
                if c.size:
                    x = x + load_first(c, e * width + at, count)
                g = _sigmoid(x)
                top = fma(g, load_first(v, there, count), top)
                bottom = bottom + g
            store_first(out, i * width + at, top / bottom, count)
            store_first(total, i * width + at, bottom, count)


@njit(cache=True, nogil=True)
def backward(first, last, indptr, indices, rows, a, b, v, c, width, out, total, grad, da, db, dv, dc):
    """Gradients of `forward`; da, db and dv come in as zeros."""
    n = indptr.size - 1
    for unit in range(first, last):
        at = unit * LANES
        count = min(LANES, width - at)
        for i in range(n):
            here = (rows[i] if rows.size else i) * width + at
            a_i = load_first(a, here, count)
            mean = load_first(out, i * width + at, count)
            zero = a_i - a_i
            one = filled(a_i, 1.0)
            bottom = where_less(
                zero, load_first(total, i * width + at, count), load_first(total, i * width + at, count), one
            )
            scaled = load_first(grad, i * width + at, count) / bottom
            sum_ = zero
            for e in range(indptr[i], indptr[i + 1]):
                there = (rows[indices[e]] if rows.size else indices[e]) * width + at
                x = a_i + load_first(b, there, count)
                if c.size:
                    x = x + load_first(c, e * width + at, count)
                g = _sigmoid(x)
                value = load_first(v, there, count)
                store_first(dv, there, fma(g, scaled, load_first(dv, there, count)), count)
                dx = scaled * (value - mean) * g * (one - g)
                store_first(db, there, load_first(db, there, count) + dx, count)
                if c.size:
                    store_first(dc, e * width + at, dx, count)
                sum_ = sum_ + dx
            store_first(da, here, load_first(da, here, count) + sum_, count)
