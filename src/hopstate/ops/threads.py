"""One thread for linear algebra whose results are kept in files and compared.

BLAS and LAPACK choose how to sum by the number of their threads, so equal input gives other last digits under another
number. What is written down once and used by later runs is made inside `one_thread`. Kernels of this library cut their
work by shape alone and keep all threads there (`usual_threads`): no result of theirs depends on how many there are.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


class _ThreadState(threading.local):
    """What `one_thread` holds for this thread: how many threads there were, None outside; whether numpy has one too."""

    usual: int | None = None
    numpy = False


_state = _ThreadState()
_numpy = threading.Lock()  # the number of threads of numpy's BLAS is the whole process's


def usual_threads() -> int:
    """Return the number of threads that torch uses here outside `one_thread`."""
    return _state.usual or torch.get_num_threads()


@contextmanager
def one_thread(*, numpy: bool = False) -> Iterator[None]:
    """Within it BLAS and LAPACK run on one thread; also a decorator.

    Args:
        numpy: those of numpy and scipy too, not of torch alone. They are limited for the whole process, where
            threadpoolctl is installed (it comes with hopstate), and one caller at a time has them.
    """
    if _state.usual is not None:
        with numpy_on_one_thread() if numpy else nullcontext():
            yield
        return
    _state.usual = torch.get_num_threads()
    try:
        _set_torch_threads(1, _state.usual)
        with numpy_on_one_thread() if numpy else nullcontext():
            yield
    finally:
        torch.set_num_threads(_state.usual)
        _state.usual = None


def _set_torch_threads(count: int, others: int) -> None:
    """Set torch's number of threads here; threads that start later get others.

    torch keeps a number for each thread, and that of the last call for those that have none yet.
    """
    torch.set_num_threads(count)
    if count != others:
        helper = threading.Thread(target=lambda: torch.set_num_threads(others))
        helper.start()
        helper.join()


@contextmanager
def numpy_on_one_thread() -> Iterator[None]:
    """Within it numpy's and scipy's BLAS run on one thread, torch's on as many as before; also a decorator.

    For products too small to be shared out: threads that wait for each other spin. See `one_thread` of whom it limits.
    """
    controller = None if _state.numpy else _controller()
    if controller is None:
        yield
        return
    with _numpy, controller.limit(limits=1, user_api="blas"):
        _state.numpy = True
        try:
            yield
        finally:
            _state.numpy = False


@lru_cache(maxsize=1)
def _controller() -> Any:
    """Return what sets the threads of numpy's and scipy's BLAS; None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    with suppress(ImportError):
        import scipy.linalg  # noqa: F401  only libraries that are loaded are found
    return ThreadpoolController()
