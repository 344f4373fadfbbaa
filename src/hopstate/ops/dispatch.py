"""Path selection for operators: numba kernels on CPUs, Triton kernels on GPUs, or the reference in plain torch.

| condition | path |
|---|---|
| CPU with numba | numba kernels; float16 and bfloat16 are computed in float32 |
| CUDA with Triton, except float64 | Triton kernels |
| otherwise | reference, with one SlowPathWarning per reason |
| within `use_reference_ops` | reference |
| forward-mode derivatives (jvp) | reference, because kernels only define backward gradients |
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from hopstate.errors import ConfigError, DataError, ShapeError, SlowPathWarning, nearest


def check_same(name: str, x: Tensor, shape: tuple[int, ...], legend: str, u: Tensor) -> None:
    """Check that x is floating-point, has this shape and is on u's device."""
    if tuple(x.shape) != tuple(shape):
        expected = f"expected {legend} = {tuple(shape)} where u has {tuple(u.shape)}"
        raise ShapeError(f"{name} has shape {tuple(x.shape)}, {expected}")
    if not x.dtype.is_floating_point:
        raise ShapeError(
            f"{name} has dtype {x.dtype}, expected a floating dtype: float32, float64, bfloat16 or float16"
        )
    if x.device != u.device:
        raise ShapeError(f"{name} is on {x.device} and u on {u.device}; move one of them")


def check_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,
    offsets: Tensor | None, initial_state: Tensor | None,
) -> int:  # fmt: skip
    """Check shapes, dtypes and devices of all arguments, and return the number of sequences."""
    if u.dim() not in (2, 3):
        raise ShapeError(f"u has shape {tuple(u.shape)}, expected (token, channel) or (batch, length, channel)")
    rows, channels = tuple(u.shape[:-1]), u.shape[-1]
    if A.dim() != 2 or A.shape[0] != channels or A.shape[1] == 0:
        raise ShapeError(f"A has shape {tuple(A.shape)}, expected (channel, state) with u's {channels} channels")
    S = A.shape[1]
    check_same("u", u, tuple(u.shape), "itself", u)
    check_same("delta", delta, tuple(u.shape), "u's", u)
    check_same("A", A, (channels, S), "(channel, state)", u)
    check_same("B", B, (*rows, S), "(..., state)", u)
    check_same("C", C, (*rows, S), "(..., state)", u)
    if D is not None:
        check_same("D", D, (channels,), "(channel,)", u)
    if z is not None:
        check_same("z", z, tuple(u.shape), "u's", u)
    sequences = check_packing(u, offsets)
    if initial_state is not None:
        check_same("initial_state", initial_state, (sequences, channels, S), "(sequence, channel, state)", u)
    return sequences


def check_packing(u: Tensor, offsets: Tensor | None) -> int:
    """Check offsets against packed or padded u without reading values, and return the number of sequences."""
    if offsets is None:
        return u.shape[0] if u.dim() == 3 else 1
    if u.dim() == 3:
        raise ShapeError(f"offsets go with packed (token, channel) input, but u has shape {tuple(u.shape)}")
    if offsets.dim() != 1 or offsets.shape[0] == 0 or offsets.dtype != torch.int64:
        found = f"offsets have shape {tuple(offsets.shape)} and dtype {offsets.dtype}"
        raise ShapeError(f"{found}, expected (sequence + 1,) and torch.int64")
    if offsets.device != u.device:
        raise ShapeError(f"offsets are on {offsets.device} and u on {u.device}; move one of them")
    return offsets.shape[0] - 1


def check_values(A: Tensor, offsets: Tensor, tokens: int) -> None:
    """Check rates, and offsets against the number of tokens."""
    check_offsets(offsets, tokens)
    check_rates(A)


def check_offsets(offsets: Tensor, tokens: int) -> None:
    """Check that offsets rise from 0 to the number of tokens; skipped during export."""
    if torch.compiler.is_exporting():  # no values yet
        return
    offsets = offsets if offsets.device.type == "cpu" else offsets.cpu()
    # numpy: a tenth of torch's cost for each small call; not `Tensor.numpy`, which fails within torch.func.jvp
    bounds = np.from_dlpack(offsets)
    if bounds[0] != 0 or bounds[-1] != tokens:
        raise DataError(f"offsets run from {bounds[0]} to {bounds[-1]}, expected from 0 to u's {tokens} tokens")
    falls = bounds[1:] < bounds[:-1]
    if falls.any():
        at = int(falls.argmax())
        left, right = bounds[at : at + 2]
        raise DataError(f"offsets decrease: offsets[{at}] = {left} > offsets[{at + 1}] = {right}")


def check_rates(A: Tensor) -> None:
    """Check that all rates are negative and not NaN."""
    if A.numel() and not float(A.amax()) < 0:  # the maximum is NaN if any entry is
        bad = ~(A < 0)
        channel, state = bad.nonzero()[0].tolist()
        raise DataError(f"A[{channel}, {state}] = {float(A[channel, state]):.6g}, expected A < 0 so that states decay")


def check_steps(delta: Tensor) -> None:
    """Check that no step is negative."""
    bad = delta < 0
    if bool(bad.any()):
        token, channel = bad.nonzero()[0].tolist()
        value = float(delta[token, channel])
        raise DataError(f"delta at token {token}, channel {channel} is {value:.6g}, expected a step >= 0")


SEGMENT, LANES = 16, 16  # of the CPU kernels: tokens between checkpoints, channels in a block
GPU_SEGMENT = 8  # of the Triton kernels: tokens between checkpoints


NUMBA, TRITON = (importlib.util.find_spec(name) is not None for name in ("numba", "triton"))


class Path(NamedTuple):
    """The selected path and the reason."""

    name: str  # "numba", "triton" or "naive"
    reason: str


_reference_depth = 0  # open `use_reference_ops` blocks; a plain int, which torch.compile can trace


@contextmanager
def use_reference_ops() -> Iterator[None]:
    """Run each operator's reference in plain torch, for debugging and double-precision checks.

    The setting applies to all threads of the process.

    Example:
        >>> import torch
        >>> u, delta, B, C = torch.rand(4, 6, 2, dtype=torch.float64)  # 6 tokens, 2 channels, 2 states
        >>> with hopstate.ops.use_reference_ops():
        ...     y = hopstate.selective_scan(u, delta, -torch.ones(2, 2).double(), B, C)
        >>> y.shape
        torch.Size([6, 2])
    """
    global _reference_depth
    _reference_depth += 1
    try:
        yield
    finally:
        _reference_depth -= 1


def choose_path(device: str, dtype: torch.dtype) -> Path:
    """Return the path for a dtype and device type ("cpu", "cuda", ...).

    The reason is empty if the reference was requested.
    """
    if _reference_depth or forward_ad._current_level >= 0:
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
    """Warn once per op and reason that the reference runs; no warning if the reason is empty."""
    if not reason:
        return
    warnings.warn(f"{op} runs as a plain torch loop, which is slow: {reason}", SlowPathWarning, stacklevel=4)


Discretization = Literal["zoh", "euler"]


def check_discretization(name: str) -> str:
    """Return name if it is a valid rule, otherwise raise ConfigError."""
    known = get_args(Discretization)
    if name not in known:
        raise ConfigError(f"discretization={name!r} is not one of {known}{nearest(str(name), known)}")
    return name
