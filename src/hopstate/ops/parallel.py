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

import torch


def run_units(kernel: Callable[..., Any], units: int, *arguments: Any) -> None:
    """Call kernel(first, last, *arguments) until every unit in 0..units - 1 has been run once."""
    threads = min(torch.get_num_threads(), units)
    if threads <= 1:
        kernel(0, units, *arguments)
        return
    turn = itertools.count()  # next() on it is atomic: a thread that is done takes the next unit

    def work() -> None:
        for unit in turn:
            if unit >= units:
                return
            kernel(unit, unit + 1, *arguments)

    waiting = [_pool(threads - 1, os.getpid()).submit(work) for _ in range(threads - 1)]
    work()
    for future in waiting:
        future.result()


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads kept between calls; a forked process, which inherits none, gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hopstate")
