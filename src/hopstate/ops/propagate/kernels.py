# mypy: ignore-errors
"""Compiled loop of `propagate`; needs numba, so it is imported only where it is used.

A row of the result is summed in registers, 64 features at a time, while the rows that the next entries will need are
already on their way from memory: on a graph larger than the cache that wait is most of the work.
"""

from numba import njit

from hopstate.ops.cpu.processor import prefetch
from hopstate.ops.cpu.simd import LANES, fma, load, load_first, splat, store, store_first

AHEAD = 16  # entries between asking for a row and using it
LINE = 16  # float32 of a cache line


@njit(cache=True, nogil=True)
def hop(first, last, cuts, tokens, k, indptr, indices, scale, weight):
    """Fill tokens[cuts[first]:cuts[last], k] with A_hat times tokens[:, k - 1]; weight is of the entries, or None."""
    hops, width = tokens.shape[1], tokens.shape[2]
    flat, stride, source = tokens.reshape(-1), hops * width, (k - 1) * width
    wide = width // (4 * LANES) * (4 * LANES)
    for i in range(cuts[first], cuts[last]):
        for f in range(0, wide, 4 * LANES):
            _wide_tile(flat, stride, source, width, i, f, indptr, indices, scale, weight)
        for f in range(wide, width, LANES):
            _narrow_tile(flat, stride, source, width, i, f, indptr, indices, scale, weight)


@njit(forceinline=True)
def _entry(both, weight, e):
    """Return both * weight[e], or both where weight is None: two functions, for numba compiles one for each type."""
    return both if weight is None else both * weight[e]


@njit(forceinline=True)
def _wide_tile(flat, stride, source, width, i, f, indptr, indices, scale, weight):
    """Sum features f..f + 63 of row i."""
    at = i * stride + source + f
    w = splat(scale[i] * scale[i])
    s0, s1 = load(flat, at) * w, load(flat, at + LANES) * w
    s2, s3 = load(flat, at + 2 * LANES) * w, load(flat, at + 3 * LANES) * w
    for e in range(indptr[i], indptr[i + 1]):
        if e + AHEAD < len(indices):
            later = indices[e + AHEAD] * stride + source + f
            for line in range(0, 4 * LANES, LINE):
                prefetch(flat, later + line)
        j = indices[e]
        w, x = splat(_entry(scale[i] * scale[j], weight, e)), j * stride + source + f
        s0, s1 = fma(w, load(flat, x), s0), fma(w, load(flat, x + LANES), s1)
        s2, s3 = fma(w, load(flat, x + 2 * LANES), s2), fma(w, load(flat, x + 3 * LANES), s3)
    at += width
    store(flat, at, s0)
    store(flat, at + LANES, s1)
    store(flat, at + 2 * LANES, s2)
    store(flat, at + 3 * LANES, s3)


@njit(forceinline=True)
def _narrow_tile(flat, stride, source, width, i, f, indptr, indices, scale, weight):
    """Sum the up to 16 features f.. of row i."""
    at, count = i * stride + source + f, min(LANES, width - f)
    total = load_first(flat, at, count) * splat(scale[i] * scale[i])
    for e in range(indptr[i], indptr[i + 1]):
        if e + AHEAD < len(indices):
            prefetch(flat, indices[e + AHEAD] * stride + source + f)
        j = indices[e]
        w = splat(_entry(scale[i] * scale[j], weight, e))
        total = fma(w, load_first(flat, j * stride + source + f, count), total)
    store_first(flat, at + width, total, count)
