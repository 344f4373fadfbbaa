"""Thread control for linear algebra whose results are stored and compared.

BLAS and LAPACK choose the order of summation by the number of threads. Therefore rounding differs between numbers of
threads. Results that are stored and reused are computed inside `one_thread`. This library's kernels split work by shape
only, so they keep all threads there (`usual_threads`).
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

MIN_GROUP = 16_384  # minimum size (tokens x channels) of a unit
MAX_GROUPS = 64  # maximum number of partial sums
TURNS = 8  # calls per thread


def run_units(kernel: Callable[..., Any], units: int, *arguments: Any) -> None:
    """Run kernel(first, last, *arguments) on all units 0..units - 1, split over threads."""
    threads = min(usual_threads(), units)
    if threads <= 1:
        kernel(0, units, *arguments)
        return
    size = max(1, units // (TURNS * threads))  # a call takes tens of microseconds under the interpreter lock
    turn = itertools.count(0, size)  # next() is atomic: an idle thread takes the next units

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
    """Split packed sequences into groups of similar size, by shape only; return the group bounds."""
    tokens, sequences = int(bounds[-1]), bounds.size - 1
    num_groups = max(1, min(sequences, MAX_GROUPS, tokens * channels // MIN_GROUP))
    if num_groups == 1:
        return np.array([0, sequences])
    inner = np.searchsorted(bounds, np.arange(1, num_groups) * (tokens / num_groups))
    return np.unique(np.concatenate([[0], inner, [sequences]])).astype(np.int64)


def flat_array(x: Tensor | None, kind: torch.dtype) -> np.ndarray:
    """Return x as a flat array of a dtype, without a copy if possible; None gives an empty array."""
    return (torch.empty(0, dtype=kind) if x is None else x.detach().to(kind).contiguous().view(-1)).numpy()


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return a cached thread pool; a forked process gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hopstate")


class _ThreadState(threading.local):
    """Thread-local state of `one_thread`: the usual number of threads, or None outside; whether NumPy is limited."""

    usual: int | None = None
    numpy = False


_state = _ThreadState()
_numpy = threading.Lock()  # NumPy's BLAS threads are global to the process


def usual_threads() -> int:
    """Return torch's number of threads outside `one_thread`."""
    return _state.usual or torch.get_num_threads()


@contextmanager
def one_thread(*, numpy: bool = False) -> Iterator[None]:
    """Run BLAS and LAPACK on one thread inside the block; also a decorator.

    Args:
        numpy: also limit NumPy and SciPy, for the whole process. This needs threadpoolctl, and one caller at a time
            holds the limit.
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
    """Set torch's number of threads here; threads that start later get `others`.

    torch stores a number per thread. The last call also sets the number of new threads.
    """
    torch.set_num_threads(count)
    if count != others:
        helper = threading.Thread(target=lambda: torch.set_num_threads(others))
        helper.start()
        helper.join()


@contextmanager
def numpy_on_one_thread() -> Iterator[None]:
    """Run NumPy's and SciPy's BLAS on one thread inside the block, without limiting torch; also a decorator.

    Small products are slower on several threads, which spin while they wait. `one_thread` describes the scope.
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
    """Return the controller of NumPy's and SciPy's BLAS threads, or None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    with suppress(ImportError):
        import scipy.linalg  # noqa: F401  the controller finds only loaded libraries
    return ThreadpoolController()
