"""Which path a scan or convolution takes: compiled CPU kernels, Triton kernels, or plain torch, and why.

CPU, numba present                  numba kernels: float32 and float64 as they are, float16 and bfloat16 in float32
CUDA, Triton present, not float64   Triton kernels; short or long sequences have their own (see triton.py)
everything else                     the naive loop, with one SlowPathWarning that names the reason
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from functools import lru_cache
from typing import NamedTuple

import torch

from hopstate.errors import SlowPathWarning

NUMBA, TRITON = (importlib.util.find_spec(name) is not None for name in ("numba", "triton"))


class Path(NamedTuple):
    """The path in use and why."""

    name: str  # "numba", "triton" or "naive"
    reason: str


def choose_path(device: str, dtype: torch.dtype) -> Path:
    """Return the path for tensors of this dtype on this kind of device ("cpu", "cuda", ...)."""
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
    """Warn once for each op and reason that the naive loop runs."""
    warnings.warn(f"{op} runs as a plain torch loop, which is slow: {reason}", SlowPathWarning, stacklevel=4)
