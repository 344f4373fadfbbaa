"""The median of numbers that are too many to be held: exact, from a few goes over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

_SCALES = 44  # lowest bits of a float64 that its class of size leaves out: 2^-8 of the number
_HELD = 1 << 22  # numbers that are sorted in memory
_BITS = 20  # of the classes that a range with more numbers than that is cut into

Parts = Callable[[], Iterator[np.ndarray]]


def median_and_largest(parts: Parts) -> tuple[float, int | float] | None:
    """Return the median and the largest of numbers, or None where there are none.

    Args:
        parts: gives the same numbers, (n,) int64 and none negative or float64 without NaN, in parts each time it is
            called.
    """
    sizes, largest, kind = np.zeros(1 << (64 - _SCALES), np.int64), -1, np.dtype(np.int64)
    for numbers in parts():
        if len(numbers):
            keys, kind = _keys(numbers), numbers.dtype
            sizes += np.bincount(_sizes(keys, kind), minlength=len(sizes))
            largest = max(largest, int(keys.max()))
    if largest < 0:
        return None
    found = _numbers(np.array([*_middle(parts, sizes, kind), largest], np.uint64), kind)
    return float(np.median(found[:2])), found[2].item()


def _keys(numbers: np.ndarray) -> np.ndarray:
    """Return (n,) uint64 in the order of the numbers."""
    if numbers.dtype.kind != "f":
        return np.ascontiguousarray(numbers).view(np.uint64)
    bits = (numbers + 0.0).view(np.int64)  # no negative zeros
    turned = bits >> 63 | np.iinfo(np.int64).min  # all bits of a negative one, the sign of another
    return (bits ^ turned).view(np.uint64)


def _numbers(keys: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return (n,) the numbers that have such keys."""
    if kind.kind != "f":
        return keys.view(kind)
    bits = keys.view(np.int64)
    return (bits ^ (~(bits >> 63) | np.iinfo(np.int64).min)).view(kind)


def _sizes(keys: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return (n,) int64 the class of size of each key; it never falls where keys rise."""
    if kind.kind != "f":  # what float64 would round goes to the next below that it holds
        keys = np.where(keys >> 53, keys & ~np.uint64(2047), keys).astype(np.float64).view(np.uint64)
    return (keys >> _SCALES).astype(np.int64)


def _bounds(size: int, kind: np.dtype) -> tuple[int, int]:
    """Return the least and the greatest key of a class of size."""
    if kind.kind == "f":
        return size << _SCALES, ((size + 1) << _SCALES) - 1
    edges = (np.array([size, size + 1], np.uint64) << np.uint64(_SCALES)).view(np.float64)
    low, above = (math.ceil(edge) for edge in edges.tolist())
    return low, above - 1


def _middle(parts: Parts, sizes: np.ndarray, kind: np.dtype) -> tuple[int, int]:
    """Return the keys of the one or two numbers in the middle.

    The range that holds the first is made narrower until its numbers can be held or are all the same.
    """
    total = int(sizes.sum())
    first, second = (total - 1) // 2, total // 2
    place, below, inside = _class_of(sizes, first)
    low, high = _bounds(place, kind)
    while inside > _HELD and low < high:
        shift = max(0, (high - low).bit_length() - _BITS)
        counts = np.zeros(((high - low) >> shift) + 1, np.int64)
        for keys in _between(parts, low, high):
            counts += np.bincount(((keys - np.uint64(low)) >> np.uint64(shift)).astype(np.int64), minlength=len(counts))
        place, before, inside = _class_of(counts, first - below)
        low, below = low + (place << shift), below + before
        high = min(high, low + (1 << shift) - 1)
    if low == high:
        held = None
    else:
        held = np.sort(np.concatenate(list(_between(parts, low, high))))
    one = low if held is None else int(held[first - below])
    if second < below + inside:
        return one, low if held is None else int(held[second - below])
    return one, min(int(keys.min()) for keys in _between(parts, high + 1, 2**64 - 1) if len(keys))


def _class_of(counts: np.ndarray, rank: int) -> tuple[int, int, int]:
    """Return the class that holds a rank, how many stand in the classes below, and how many in it."""
    until = np.cumsum(counts)
    place = int(np.searchsorted(until, rank, side="right"))
    return place, int(until[place] - counts[place]), int(counts[place])


def _between(parts: Parts, low: int, high: int) -> Iterator[np.ndarray]:
    for numbers in parts():
        keys = _keys(numbers)
        yield keys[(keys >= np.uint64(low)) & (keys <= np.uint64(high))]


__all__ = ["median_and_largest"]
