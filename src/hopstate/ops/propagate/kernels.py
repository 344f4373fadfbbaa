# mypy: ignore-errors
"""Compiled loop of `propagate`; needs numba, so it is imported only where it is used.

Each result row is summed in registers, 64 features at a time. Rows of later entries are prefetched, because memory
latency dominates on graphs larger than the cache.
"""

from numba import njit

from hopstate.ops.cpu.simd import LANES, fma, load, load_first, prefetch, splat, store, store_first

AHEAD = 32  # prefetch distance in entries
LINE = 16  # float32 of a cache line


@njit(cache=True, nogil=True)
def hop(first, last, cuts, before, step, after, stride, width, indptr, indices, scale, weight):
    """Fill rows cuts[first]:cuts[last] of after with A_hat times before; weight is of the entries, or None.

    Both are flat, the rows of before step elements apart and those of after stride.
    """
    wide = width // (4 * LANES) * (4 * LANES)
    for i in range(cuts[first], cuts[last]):
        for f in range(0, wide, 4 * LANES):
            _wide_tile(before, step, after, i * stride + f, i, f, indptr, indices, scale, weight)
        full = width // LANES * LANES
        for f in range(wide, full, LANES):
            _full_tile(before, step, after, i * stride + f, i, f, indptr, indices, scale, weight)
        if full < width:
            at = i * stride + full
            _narrow_tile(before, step, after, at, i, full, width - full, indptr, indices, scale, weight)


@njit(forceinline=True)
def _entry(both, weight, e):
    """Return both * weight[e], or both where weight is None: two functions, for numba compiles one for each type."""
    return both if weight is None else both * weight[e]


@njit(forceinline=True)
def _ask(before, step, scale, j, f, count):
    """Ask for what entry j gives: its scale, which lies all over memory too, and count features."""
    prefetch(scale, j)
    for line in range(0, count, LINE):
        prefetch(before, j * step + f + line)


@njit(forceinline=True)
def _wide_tile(before, step, after, to, i, f, indptr, indices, scale, weight):
    """Sum features f..f + 63 of row i, which go to after[to] on."""
    at = i * step + f
    w = splat(scale[i] * scale[i])
    s0, s1 = load(before, at) * w, load(before, at + LANES) * w
    s2, s3 = load(before, at + 2 * LANES) * w, load(before, at + 3 * LANES) * w
    for e in range(indptr[i], indptr[i + 1]):
        if e + AHEAD < len(indices):
            _ask(before, step, scale, indices[e + AHEAD], f, 4 * LANES)
        j = indices[e]
        w, x = splat(_entry(scale[i] * scale[j], weight, e)), j * step + f
        s0, s1 = fma(w, load(before, x), s0), fma(w, load(before, x + LANES), s1)
        s2, s3 = fma(w, load(before, x + 2 * LANES), s2), fma(w, load(before, x + 3 * LANES), s3)
    store(after, to, s0)
    store(after, to + LANES, s1)
    store(after, to + 2 * LANES, s2)
    store(after, to + 3 * LANES, s3)


@njit(forceinline=True)
def _full_tile(before, step, after, to, i, f, indptr, indices, scale, weight):
    """Sum features f..f + 15 of row i, which go to after[to] on; loads without a mask are faster."""
    total = load(before, i * step + f) * splat(scale[i] * scale[i])
    for e in range(indptr[i], indptr[i + 1]):
        if e + AHEAD < len(indices):
            _ask(before, step, scale, indices[e + AHEAD], f, LANES)
        j = indices[e]
        w = splat(_entry(scale[i] * scale[j], weight, e))
        total = fma(w, load(before, j * step + f), total)
    store(after, to, total)


@njit(forceinline=True)
def _narrow_tile(before, step, after, to, i, f, count, indptr, indices, scale, weight):
    """Sum the fewer than 16 features f.. of row i, which go to after[to] on."""
    total = load_first(before, i * step + f, count) * splat(scale[i] * scale[i])
    for e in range(indptr[i], indptr[i + 1]):
        if e + AHEAD < len(indices):
            _ask(before, step, scale, indices[e + AHEAD], f, LANES)
        j = indices[e]
        w = splat(_entry(scale[i] * scale[j], weight, e))
        total = fma(w, load_first(before, j * step + f, count), total)
    store_first(after, to, total, count)
