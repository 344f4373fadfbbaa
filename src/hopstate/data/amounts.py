"""Amounts to be predicted, in float32 where its rounding is nothing beside their spread, else in float64."""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-6  # of a column's standard deviation


def as_amounts(y: np.ndarray) -> np.ndarray:
    """Return amounts (n,) or (n, T), NaN where unknown, as float32, or float64 where that would tell on a column.

    >>> as_amounts(np.array([1.5, 2.25])).dtype, as_amounts(np.array([1.7e9, 1.7e9 + 60])).dtype
    (dtype('float32'), dtype('float64'))
    """
    if y.dtype == np.float32:
        return y
    y = y.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        small = y.astype(np.float32)
    for wide, near in zip(y.reshape(len(y), -1).T, small.reshape(len(y), -1).T):
        known = ~np.isnan(wide)
        exact, rounded = wide[known], near[known].astype(np.float64)
        if not len(exact) or np.array_equal(exact, rounded):
            continue
        if not np.isfinite(rounded).all() or np.abs(exact - rounded).max() > ROUNDING * exact.std():
            return y
    return small


def default_names(count: int) -> tuple[str, ...]:
    """Return names of targets that have none."""
    return ("value",) if count == 1 else tuple(f"value_{t}" for t in range(count))


__all__ = ["as_amounts", "default_names"]
