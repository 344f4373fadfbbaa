# mypy: ignore-errors
"""Compiled powers of the random-walk matrix, sixteen start nodes at a time. Imported by `returns.py` on first use."""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.simd import LANES, fma, load, splat, store


@njit(cache=True, nogil=True)
def _apply(indptr, indices, scale, x, y):
    """y = S x for x of N rows of LANES numbers, S = scale A scale."""
    for i in range(indptr.size - 1):
        total = splat(np.float32(0.0))
        for e in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[e])
            total = fma(splat(scale[j]), load(x, j * LANES), total)
        store(y, i * LANES, total * splat(scale[i]))


@njit(cache=True, nogil=True)
def _column(indptr, indices, scale, i, lane, y):
    for e in range(indptr[i], indptr[i + 1]):
        j = np.int64(indices[e])
        y[j * LANES + lane] += scale[i] * scale[j]


@njit(cache=True, nogil=True)
def _dot(x, y, total):
    total[:] = 0.0
    for i in range(0, x.size, LANES):
        for lane in range(LANES):
            total[lane] += np.float64(x[i + lane]) * np.float64(y[i + lane])


@njit(cache=True, nogil=True)
def diagonals(first, last, indptr, indices, scale, symmetric, steps, out):
    """out[i, k - 1] = (S^k)_ii; where S is symmetric, from half the products: (S^2k)_ii = |S^k e_i|^2."""
    n = indptr.size - 1
    x, y = np.empty(n * LANES, np.float32), np.empty(n * LANES, np.float32)
    total = np.empty(LANES)
    for unit in range(first, last):
        lo = unit * LANES
        count = min(LANES, n - lo)
        x[:] = 0.0
        for lane in range(count):
            x[(lo + lane) * LANES + lane] = 1.0
        k = 0
        while k < steps:
            if symmetric and k == 0:
                y[:] = 0.0
                for lane in range(count):
                    _column(indptr, indices, scale, lo + lane, lane, y)
            else:
                _apply(indptr, indices, scale, x, y)
            if symmetric:
                _dot(x, y, total)
                out[lo : lo + count, k] = total[:count]
                if k + 1 < steps:
                    _dot(y, y, total)
                    out[lo : lo + count, k + 1] = total[:count]
                k += 2
            else:
                for lane in range(count):
                    out[lo + lane, k] = y[(lo + lane) * LANES + lane]
                k += 1
            x, y = y, x
