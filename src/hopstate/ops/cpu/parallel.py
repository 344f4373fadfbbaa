"""Runs the units of a compiled kernel on as many threads as torch uses.

Kernels release the interpreter lock and are cut into units by shape alone, so which thread runs which unit changes
nothing. The threads are plain ones: numba's own pools abort when two Python threads enter them or after a fork.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hopstate.ops.threads import usual_threads

MIN_GROUP = 16_384  # numbers (tokens x channels) that make a unit worth a thread of its own
MAX_GROUPS = 64  # partial sums to keep
TURNS = 8  # of each thread


def run_units(kernel: Callable[..., Any], units: int, *arguments: Any) -> None:
    """Call kernel(first, last, *arguments) until every unit in 0..units - 1 has been run once."""
    threads = min(usual_threads(), units)
    if threads <= 1:
        kernel(0, units, *arguments)
        return
    size = max(1, units // (TURNS * threads))  # a call costs tens of microseconds, and one thread at a time makes it
    turn = itertools.count(0, size)  # next() on it is atomic: a thread that is done takes the next units

    def work() -> None:
        for unit in turn:
            if unit >= units:
                return
            kernel(unit, min(unit + size, units), *arguments)

    waiting = [_pool(threads - 1, os.getpid()).submit(work) for _ in range(threads - 1)]
    work()
    for future in waiting:
        future.result()


def group_sequences(bounds: np.ndarray, channels: int) -> np.ndarray:
    """Cut packed sequences into groups of about equal tokens, by shape alone; return group bounds in sequences."""
    tokens, sequences = int(bounds[-1]), bounds.size - 1
    wanted = max(1, min(sequences, MAX_GROUPS, tokens * channels // MIN_GROUP))
    if wanted == 1:
        return np.array([0, sequences])
    inner = np.searchsorted(bounds, np.arange(1, wanted) * (tokens / wanted))
    return np.unique(np.concatenate([[0], inner, [sequences]])).astype(np.int64)


def flat_array(x: Tensor | None, kind: torch.dtype) -> np.ndarray:
    """x as one flat array of kind, without a copy where it already is one; an absent x is empty."""
    return (torch.empty(0, dtype=kind) if x is None else x.detach().to(kind).contiguous().view(-1)).numpy()


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads kept between calls; a forked process, which inherits none, gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hopstate")
