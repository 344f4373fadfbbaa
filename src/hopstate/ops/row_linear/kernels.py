# mypy: ignore-errors
"""The compiled loop of `row_linear`: four rows by thirty-two columns in registers, each sum in the order of its terms.

A row that is left over goes alone through the same fused multiply-adds, so how rows are grouped changes no bit.
"""

from numba import njit

from hopstate.ops.cpu.simd import LANES, fma, load, splat, store_first

kernel = njit(nogil=True, cache=True, error_model="numpy")


@kernel
def _four(t, at, second, terms, width, x, weight, bias, y):
    a0, a1, a2, a3 = load(bias, at * LANES), load(bias, at * LANES), load(bias, at * LANES), load(bias, at * LANES)
    b0, b1, b2, b3 = load(bias, second), load(bias, second), load(bias, second), load(bias, second)
    one, two = at * terms * LANES, second * terms
    row = t * terms
    for k in range(terms):
        w, v = load(weight, one + k * LANES), load(weight, two + k * LANES)
        x0, x1 = splat(x[row + k]), splat(x[row + terms + k])
        x2, x3 = splat(x[row + 2 * terms + k]), splat(x[row + 3 * terms + k])
        a0, b0 = fma(w, x0, a0), fma(v, x0, b0)
        a1, b1 = fma(w, x1, a1), fma(v, x1, b1)
        a2, b2 = fma(w, x2, a2), fma(v, x2, b2)
        a3, b3 = fma(w, x3, a3), fma(v, x3, b3)
    few, more = min(LANES, width - at * LANES), min(LANES, width - second)
    store_first(y, t * width + at * LANES, a0, few)
    store_first(y, (t + 1) * width + at * LANES, a1, few)
    store_first(y, (t + 2) * width + at * LANES, a2, few)
    store_first(y, (t + 3) * width + at * LANES, a3, few)
    if second > at * LANES:
        store_first(y, t * width + second, b0, more)
        store_first(y, (t + 1) * width + second, b1, more)
        store_first(y, (t + 2) * width + second, b2, more)
        store_first(y, (t + 3) * width + second, b3, more)


@kernel
def _one(t, at, terms, width, x, weight, bias, y):
    a = load(bias, at * LANES)
    for k in range(terms):
        a = fma(load(weight, (at * terms + k) * LANES), splat(x[t * terms + k]), a)
    store_first(y, t * width + at * LANES, a, min(LANES, width - at * LANES))


@kernel
def linear(first_unit, last_unit, rows, terms, width, x, weight, bias, y):
    """Write y (rows, width); weight is [block, term, lane] and bias [block, lane], padded with zeros."""
    blocks = (width + LANES - 1) // LANES
    for unit in range(first_unit, last_unit):
        begin, end = rows[unit], rows[unit + 1]
        whole = begin + (end - begin) // 4 * 4
        for at in range(0, blocks, 2):
            second = (at + 1) * LANES if at + 1 < blocks else at * LANES
            for t in range(begin, whole, 4):
                _four(t, at, second, terms, width, x, weight, bias, y)
        for t in range(whole, end):
            for at in range(blocks):
                _one(t, at, terms, width, x, weight, bias, y)
