"""Long work in slices, between which whoever drives it may do something else."""

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


def run_to_completion(steps: Steps[T]) -> T:
    """Return what work returns, done without a stop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def run_in_context(context: Callable[[], AbstractContextManager[object]], steps: Steps[T]) -> Steps[T]:
    """Do each slice of work within a context of its own; between them there is none."""
    while True:
        with context():
            try:
                next(steps)
            except StopIteration as end:
                found: T = end.value
                return found
        yield


class SliceSizer:
    """How many rows make a slice, which it learns as it goes.

    size: rows of the next one.
    """

    def __init__(self) -> None:
        self.size = INITIAL_ROWS

    def took(self, rows: int, seconds: float) -> None:
        """Take in how long some rows took."""
        fit = int(rows * TARGET_SECONDS / max(seconds, 1e-6))
        whole = rows >= self.size or fit < self.size
        if whole and rows >= min(
            self.size, INITIAL_ROWS
        ):  # few rows, of which the call is most, tell nothing of how many do
            self.size = max(MIN_ROWS, min(4 * rows, fit))


def map_sliced(work: Callable[[slice], np.ndarray], count: int, pace: SliceSizer | None = None) -> Steps[np.ndarray]:
    """Stop between slices of work, and return (count, ...) of all of them.

    Args:
        work: gives values of some of them, each of which depends on its own alone.
        count: of them.
        pace: of work of this kind; None does all at once.
    """
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
