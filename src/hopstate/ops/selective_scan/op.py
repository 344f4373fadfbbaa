"""The selective scan as two torch.library ops, so that torch.compile and torch.export see one node each way.

Inputs are packed and their shapes checked (`check.py`); values are checked inside, where the numbers are at hand. The
CPU and CUDA kernels are imported on first use. Both devices keep the state at
every CELL-th token as checkpoints.
"""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import torch
from torch import Tensor

from hopstate.ops.selective_scan import check
from hopstate.ops.selective_scan.layout import CELL, GPU_CELL, LANES


@torch.library.custom_op("hopstate::selective_scan", mutates_args=(), device_types="cpu")
def scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    offsets: Tensor,
    initial: Tensor | None,
    reverse: bool,
    zoh: bool,
    keep: bool,
    want_final: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, final states (no rows unless want_final) and checkpoints (no rows unless keep)."""
    from hopstate.ops.selective_scan import cpu

    check.check_values(delta, A, offsets)
    return cpu.forward(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final)


@scan.register_kernel("cuda")
def _scan_cuda(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final):  # type: ignore[no-untyped-def]
    from hopstate.ops.selective_scan import triton  # type: ignore[attr-defined]

    if check.checking():
        check.check_values(delta, A, offsets)
    return triton.forward(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final)


@scan.register_fake
def _scan_fake(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final):  # type: ignore[no-untyped-def]
    (tokens, channels), S = u.shape, A.shape[1]
    kind = torch.promote_types(u.dtype, torch.float32)
    if u.device.type == "cpu":
        cells = (tokens + CELL - 1) // CELL
        kept = u.new_empty(cells if keep else 0, (channels + LANES - 1) // LANES, S, LANES, dtype=kind)
    else:
        cells = (tokens + GPU_CELL - 1) // GPU_CELL
        kept = u.new_empty(cells if keep else 0, channels, S, dtype=kind)
    return (
        u.new_empty(tokens, channels),
        u.new_empty(offsets.shape[0] - 1 if want_final else 0, channels, S, dtype=kind),
        kept,
    )


@torch.library.custom_op("hopstate::selective_scan_backward", mutates_args=(), device_types="cpu")
def scan_backward(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    offsets: Tensor,
    initial: Tensor | None,
    checkpoints: Tensor,
    dy: Tensor,
    dfinal: Tensor | None,
    reverse: bool,
    zoh: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of u, delta, A, B, C, D, z, initial; without elements for absent inputs."""
    from hopstate.ops.selective_scan import cpu

    return cpu.backward(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh)  # type: ignore[return-value]


@scan_backward.register_kernel("cuda")
def _backward_cuda(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh):  # type: ignore[no-untyped-def]
    from hopstate.ops.selective_scan import triton  # type: ignore[attr-defined]

    return triton.backward(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh)


@scan_backward.register_fake
def _backward_fake(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh):  # type: ignore[no-untyped-def]
    likes = (u, delta, A, B, C, D, z, initial)
    return [u.new_empty(0) if x is None else torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in likes]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, _, want_final = inputs
    ctx.save_for_backward(u, delta, A, B, C, D, z, offsets, initial, output[2])
    ctx.reverse, ctx.zoh, ctx.want_final = reverse, zoh, want_final
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor | None, dfinal: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    u, delta, A, B, C, D, z, offsets, initial, checkpoints = ctx.saved_tensors
    dy = torch.zeros_like(u) if dy is None else dy
    dfinal = dfinal if ctx.want_final else None
    grads = scan_backward(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, ctx.reverse, ctx.zoh)
    *rest, dD, dz, dinitial = grads
    return (
        *rest,
        None if D is None else dD,
        None if z is None else dz,
        None,
        None if initial is None else dinitial,
        *(None,) * 4,
    )


scan.register_autograd(_backward, setup_context=_keep_for_backward)
