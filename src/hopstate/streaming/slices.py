"""Cooperative multitasking: long work in slices, between which the caller can do something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Steps = Generator[None, None, T]  # work that stops after each slice, and returns what it was for

TARGET_SECONDS = 0.005  # seconds of the processor that a slice is to take
INITIAL_ROWS, MIN_ROWS = 16, 4  # pairs of the first slice of all, and of any: models take long over the first of a call


def run_in_context(context: Callable[[], AbstractContextManager[object]], steps: Steps[T]) -> Steps[T]:
    """Run each slice inside a new context, which is closed between slices."""
    while True:
        with context():
            try:
                next(steps)
            except StopIteration as end:
                found: T = end.value
                return found
        yield


def run_to_completion(steps: Steps[T]) -> T:
    """Run sliced work without pauses and return its result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found


class SliceSizer:
    """Adapts the number of rows per slice to the measured speed.

    size: rows of the next slice.
    """

    def __init__(self) -> None:
        self.size = INITIAL_ROWS

    def took(self, rows: int, seconds: float) -> None:
        """Update the size with the time that some rows took."""
        fit = int(rows * TARGET_SECONDS / max(seconds, 1e-6))
        full_slice = rows >= self.size or fit < self.size
        # the time of a few rows is mostly the overhead of the call
        if full_slice and rows >= min(self.size, INITIAL_ROWS):
            self.size = max(MIN_ROWS, min(4 * rows, fit))


def map_sliced(work: Callable[[slice], np.ndarray], count: int, pace: SliceSizer | None = None) -> Steps[np.ndarray]:
    """Apply work, which computes the values of a slice of rows, to count rows; return all results (count, ...)."""
    if pace is None:
        return work(slice(0, count))
    parts, start = [np.empty(0)] * (not count), 0
    while start < count:
        part = slice(start, min(start + pace.size, count))
        begin = time.thread_time()
        parts.append(work(part))
        pace.took(part.stop - start, time.thread_time() - begin)
        start = part.stop
        if start < count:
            yield
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
