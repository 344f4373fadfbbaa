"""Long work in slices, between which whoever drives it may do something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Steps = Generator[None, None, T]  # work that stops after each slice, and returns what it was for

AIM = 0.008  # seconds of the processor that a slice is to take
FIRST = LEAST = 16  # pairs of a slice: models take long over the first of a call


def finished(steps: Steps[T]) -> T:
    """Return what work returns, done without a stop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def in_slices(work: Callable[[slice], np.ndarray], count: int) -> Steps[np.ndarray]:
    """Stop between slices of work, and return (count,) float64 of all of them.

    Args:
        work: gives values of some of them, each of which depends on its own alone.
        count: of them.
    """
    found, start, size = np.empty(count), 0, FIRST
    while start < count:
        begin = time.thread_time()
        found[start : start + size] = work(slice(start, start + size))
        took = time.thread_time() - begin
        start += size
        size = max(LEAST, min(4 * size, int(size * AIM / max(took, 1e-6))))
        if start < count:
            yield
    return found
