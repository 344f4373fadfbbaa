"""How far columns of numbers reach and how they are spread, from goes over blocks of rows: for mapped tables too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopstate.io.scratch import let_go

BLOCK = 1 << 22  # entries looked at together
FAR_APART = 1000.0  # scales of two columns that are worth a word
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What (N, F) numbers are like, column by column, NaN and infinities left out; 0 where a column has no number.

    Args:
        known: (F,) int64 how many are numbers.
        low, high, mean, deviation: (F,) float64.
        constant: (F,) bool whether all numbers are one but for rounding.
        two: (F,) bool whether they are two and not constant.
    """

    known: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    constant: np.ndarray
    two: np.ndarray


def column_facts(values: np.ndarray) -> ColumnFacts:
    """Return the facts of (N, F) floats, in three goes over them.

    Each column is divided by a power of two of about its largest value, so that no square is infinite or 0.
    """
    width, finest = values.shape[1], np.finfo(values.dtype).eps
    known, low, high = np.zeros(width, np.int64), np.full(width, np.inf), np.full(width, -np.inf)
    for _, block in row_blocks(values):
        finite = np.isfinite(block)
        known += finite.sum(0)
        low = np.minimum(low, block.min(0, initial=np.inf, where=finite))
        high = np.maximum(high, block.max(0, initial=-np.inf, where=finite))
    low, high = np.where(known, low, 0), np.where(known, high, 0)
    power = np.frexp(np.maximum(np.abs(low), np.abs(high)))[1]
    low, high = np.ldexp(low, -power), np.ldexp(high, -power)
    total, square, two = np.zeros(width), np.zeros(width), np.ones(width, bool)
    for block, finite in _divided(values, power):
        total += block.sum(0)
        two &= (~finite | (block == low) | (block == high)).all(0)
    mean = total / np.maximum(known, 1)
    for block, finite in _divided(values, power):
        square += np.where(finite, (block - mean) ** 2, 0).sum(0)
    constant = high - low <= 8 * finest
    with np.errstate(over="ignore"):
        deviation = np.ldexp(np.sqrt(square / np.maximum(known, 1)), power).clip(-_LARGEST, _LARGEST)
        own = [np.ldexp(one, power).clip(-_LARGEST, _LARGEST) for one in (low, high, mean)]
    return ColumnFacts(
        known=known, low=own[0], high=own[1], mean=own[2], deviation=deviation, constant=constant, two=two & ~constant
    )


def scale_ratio(values: np.ndarray) -> tuple[float, int, int]:
    """Return how far the scales of columns that change lie apart, and the columns with the largest and the smallest.

    The largest root mean square is compared with the smallest standard deviation (with the distance, where a column
    has two values): a year, about 2,000 everywhere, is far from a column of standard normal values.
    """
    facts = column_facts(values)
    with np.errstate(over="ignore"):
        own = np.where(facts.two, facts.high - facts.low, facts.deviation)
        size = np.where(facts.constant, 0, np.hypot(facts.mean, facts.deviation))
    spread = np.where(facts.constant | (own == 0), np.inf, own)
    if not np.isfinite(spread).any():
        return 1.0, 0, 0
    with np.errstate(over="ignore"):
        return float(size.max() / spread.min()), int(size.argmax()), int(spread.argmin())


def row_blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, rows) of (N, F) values, F any, so many that their entries fit; mapped pages are given back."""
    step = max(1, BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        yield start, values[start : start + step]
        let_go(values)


def _divided(values: np.ndarray, power: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks as float64, divided by powers of two (F,), 0 where one is no number, and which are numbers."""
    for _, block in row_blocks(values):
        finite = np.isfinite(block)
        yield np.ldexp(np.where(finite, block, 0).astype(np.float64), -power), finite


__all__ = ["FAR_APART", "ColumnFacts", "column_facts", "row_blocks", "scale_ratio"]
