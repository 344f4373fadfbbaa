"""Which path an operator takes: compiled CPU kernels, Triton kernels, or its reference in plain torch, and why.

CPU, numba present                  numba kernels: float32 and float64 as they are, float16 and bfloat16 in float32
CUDA, Triton present, not float64   Triton kernels; short or long sequences have their own (see triton.py)
everything else                     the reference, with one SlowPathWarning that names the reason
within `use_reference_ops`          the reference
forward-mode derivatives (jvp)      the reference: kernels have gradients for the backward pass alone
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from hopstate.errors import SlowPathWarning
from hopstate.ops.products import pays


def describe_paths() -> list[tuple[str, str, str]]:
    """Return (op and device, path in use, reason) for every op that has more than one path."""
    devices = [("cpu", torch.float32)]
    if torch.cuda.is_available():
        devices += [("cuda", torch.float32), ("cuda", torch.float64)]
    lines = []
    for op in ("selective_scan", "conv1d"):
        for device, dtype in devices:
            path = choose_path(device, dtype)
            label = f"{op} on {device}" + (", float64" if dtype == torch.float64 else "")
            lines.append((label, path.name, path.reason))
        if not torch.cuda.is_available():
            lines.append((f"{op} on cuda", "none", "torch sees no CUDA device"))
    why = "its 512-bit vectors, which MKL leaves unused here" if pays() else "MKL is as fast here, or the only one"
    return [*lines, ("linear maps in training on cpu", "oneDNN" if pays() else "torch", why)]


CELL, LANES = 16, 16  # of the CPU kernels: tokens between checkpoints, channels in a block
GPU_CELL = 8  # of the Triton kernels: tokens between checkpoints


NUMBA, TRITON = (importlib.util.find_spec(name) is not None for name in ("numba", "triton"))


class Path(NamedTuple):
    """The path in use and why."""

    name: str  # "numba", "triton" or "naive"
    reason: str


_asked = 0  # how many `use_reference_ops` are open; a plain number, which torch.compile can look at


@contextmanager
def use_reference_ops() -> Iterator[None]:
    """Compute every operator by its reference in plain torch, for debugging and checks in double precision.

    It holds for all threads of the process.

    Example:
        with hopstate.ops.use_reference_ops():
            y = selective_scan(u, delta, A, B, C)
    """
    global _asked
    _asked += 1
    try:
        yield
    finally:
        _asked -= 1


def choose_path(device: str, dtype: torch.dtype) -> Path:
    """Return the path for tensors of this dtype on this kind of device ("cpu", "cuda", ...).

    The reason is empty where the reference is what was asked for.
    """
    if _asked or forward_ad._current_level >= 0:
        return Path("naive", "")
    if device == "cpu":
        if not NUMBA:
            return Path("naive", "numba is not installed (pip install numba)")
        if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
            return Path("naive", "NUMBA_DISABLE_JIT switches numba's compiler off")
        return Path("numba", "compiled CPU kernels, first call compiles and caches them")
    if device == "cuda":
        if not TRITON:
            return Path("naive", "Triton is not installed (pip install 'hopstate[gpu]')")
        if dtype == torch.float64:
            return Path("naive", "the Triton kernels keep float32 states and the input is float64")
        return Path("triton", "Triton kernels, first call of a shape compiles and caches them")
    return Path("naive", f"there are no kernels for device {device!r}")


@lru_cache
def warn_slow(op: str, reason: str) -> None:
    """Warn once for each op and reason that the naive loop runs; "" warns of nothing."""
    if not reason:
        return
    warnings.warn(f"{op} runs as a plain torch loop, which is slow: {reason}", SlowPathWarning, stacklevel=4)
