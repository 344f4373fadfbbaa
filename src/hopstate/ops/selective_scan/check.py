"""What the selective scan refuses: shapes, dtypes and devices at the door, values where the numbers are read anyway.

Checks that need values run inside the op, not in Python around it, so that torch.compile and torch.export meet no
branch on data. On the CPU they are always on, but for NaN in delta, which flows through to y as NaN does in torch and
is named, with its first position, when the environment variable HOPSTATE_CHECK is 1. On a GPU values are read only
then: looking at them would make the host wait.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import DataError, ShapeError


def checking() -> bool:
    """Whether HOPSTATE_CHECK=1 asks for checks that cost time."""
    return os.environ.get("HOPSTATE_CHECK") == "1"


def check_same(name: str, x: Tensor, shape: tuple[int, ...], legend: str, u: Tensor) -> None:
    """Require x to be floating, of this shape and on u's device."""
    if tuple(x.shape) != tuple(shape):
        wanted = f"expected {legend} = {tuple(shape)} where u has {tuple(u.shape)}"
        raise ShapeError(f"{name} has shape {tuple(x.shape)}, {wanted}")
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
    """Check shapes, dtypes and devices of all arguments; return the number of sequences."""
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
    """Check offsets against packed or padded u, without reading values; return the number of sequences."""
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


def check_values(delta: Tensor, A: Tensor, offsets: Tensor) -> None:
    """Check offsets and rates, and where HOPSTATE_CHECK=1 each step."""
    check_offsets(offsets, delta.shape[0])
    check_rates(A)
    if checking():
        check_steps(delta)


def check_offsets(offsets: Tensor, tokens: int) -> None:
    """Require offsets to run from 0 to the number of tokens without decreasing; nothing while a model is exported."""
    if torch.compiler.is_exporting():  # there are no values yet
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
    """Require every rate to decay (A < 0); a NaN fails too."""
    if A.numel() and not float(A.amax()) < 0:  # the largest is NaN where any is
        bad = ~(A < 0)
        channel, state = bad.nonzero()[0].tolist()
        raise DataError(f"A[{channel}, {state}] = {float(A[channel, state]):.6g}, expected A < 0 so that states decay")


def check_steps(delta: Tensor) -> None:
    """Require every step to be a number >= 0, naming the first that is not."""
    bad = ~(delta >= 0)
    if bool(bad.any()):
        token, channel = bad.nonzero()[0].tolist()
        value = float(delta[token, channel])
        raise DataError(f"delta at token {token}, channel {channel} is {value:.6g}, expected a step >= 0")
