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
            start, begin, end = i * width + at, indptr[i], indptr[i + 1]
            if begin == end:
                for c in range(start, start + count):
                    mean[c] = low[c] = high[c] = std[c] = 0
                continue
            minimum = load_first(x, indices[begin] * width + at, count)
            maximum, total = minimum, minimum - minimum
            for e in range(begin, end):
                value = load_first(x, indices[e] * width + at, count)
                total = total + value
                minimum = where_less(value, minimum, value, minimum)
                maximum = where_less(maximum, value, value, maximum)
            size = filled(total, end - begin)
            average = total / size
            squares = total - total
            for e in range(begin, end):
                deviation = load_first(x, indices[e] * width + at, count) - average
                squares = fma(deviation, deviation, squares)
            store_first(mean, start, average, count)
            store_first(low, start, minimum, count)
            store_first(high, start, maximum, count)
            store_first(std, start, squares / size, count)
            for c in range(start, start + count):
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
