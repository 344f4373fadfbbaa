# mypy: ignore-errors
"""Compiled loops of neighbor statistics, imported on first use. A unit is sixteen channels of all rows.

Threads never share an output and each row is summed in stored order, so the number of threads does not matter.
"""

from __future__ import annotations

from numba import njit

from hopstate.ops.cpu.simd import LANES, filled, fma, load_first, store_first, where_less

fast = njit(cache=True, nogil=True, error_model="numpy")


@fast
def forward(first, last, indptr, indices, x, width, mean, low, high, std):
    """Write the four aggregates of each row; zeros if it has no neighbor."""
    n = indptr.size - 1
    for unit in range(first, last):
        at = unit * LANES
        count = min(LANES, width - at)
        for i in range(n):
            here, begin, end = i * width + at, indptr[i], indptr[i + 1]
            if begin == end:
                for c in range(here, here + count):
                    mean[c] = low[c] = high[c] = std[c] = 0
                continue
            least = load_first(x, indices[begin] * width + at, count)
            most, total = least, least - least
            for e in range(begin, end):
                value = load_first(x, indices[e] * width + at, count)
                total = total + value
                least = where_less(value, least, value, least)
                most = where_less(most, value, value, most)
            size = filled(total, end - begin)
            middle = total / size
            squares = total - total
            for e in range(begin, end):
                apart = load_first(x, indices[e] * width + at, count) - middle
                squares = fma(apart, apart, squares)
            store_first(mean, here, middle, count)
            store_first(low, here, least, count)
            store_first(high, here, most, count)
            store_first(std, here, squares / size, count)
            for c in range(here, here + count):
                std[c] = std[c] ** 0.5 if std[c] > 1e-5 else 0


@fast
def backward(first, last, indptr, indices, x, width, mean, low, high, std, gmean, glow, ghigh, gspread, dx):
    """Gradient of `forward`; dx comes in as zeros."""
    n = indptr.size - 1
    for unit in range(first, last):
        at = unit * LANES
        count = min(LANES, width - at)
        for i in range(n):
            here, begin, end = i * width + at, indptr[i], indptr[i + 1]
            if begin == end:
                continue
            middle, deviation = load_first(mean, here, count), load_first(std, here, count)
            least, most = load_first(low, here, count), load_first(high, here, count)
            zero = middle - middle
            one, size = filled(zero, 1.0), filled(zero, end - begin)
            lows, highs = zero, zero
            for e in range(begin, end):  # how many share the ends
                value = load_first(x, indices[e] * width + at, count)
                lows = lows + where_less(least, value, zero, one)
                highs = highs + where_less(value, most, zero, one)
            to_all = load_first(gmean, here, count) / size
            safe = where_less(zero, deviation, deviation, one)
            to_apart = where_less(zero, deviation, load_first(gspread, here, count) / (safe * size), zero)
            to_low = load_first(glow, here, count) / where_less(zero, lows, lows, one)
            to_high = load_first(ghigh, here, count) / where_less(zero, highs, highs, one)
            for e in range(begin, end):
                there = indices[e] * width + at
                value = load_first(x, there, count)
                more = fma(to_apart, value - middle, to_all)
                more = more + where_less(least, value, zero, to_low) + where_less(value, most, zero, to_high)
                store_first(dx, there, load_first(dx, there, count) + more, count)
