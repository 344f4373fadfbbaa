"""The depthwise causal convolution as torch.library ops.

All gradients come from one op: the CPU's kernel makes them in one pass over a sequence.
"""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import torch
from torch import Tensor

from hopstate.ops.selective_scan import check


@torch.library.custom_op("hopstate::conv1d", mutates_args=(), device_types="cpu")
def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, reverse: bool, act: bool) -> Tensor:
    """Return y, or SiLU(y) where act, of checked, packed x."""
    from hopstate.ops.conv1d import cpu

    check.check_offsets(offsets, x.shape[0])
    return cpu.forward(x, weight, bias, offsets, reverse, act)


@convolve.register_kernel("cuda")
def _forward_cuda(x, weight, bias, offsets, reverse, act):  # type: ignore[no-untyped-def]
    from hopstate.ops.conv1d import triton  # type: ignore[attr-defined]

    if check.checking():
        check.check_offsets(offsets, x.shape[0])
    y = triton.forward(x, weight, bias, offsets, reverse)
    return torch.nn.functional.silu(y, inplace=True) if act else y


@convolve.register_fake
def _forward_fake(x, weight, bias, offsets, reverse, act):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.custom_op("hopstate::conv1d_gradients", mutates_args=(), device_types="cpu")
def gradients(
    x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, reverse: bool, act: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, and of weight, (channel, width), and bias, (channel,), in float32 or float64."""
    from hopstate.ops.conv1d import cpu

    return cpu.gradients(x, dy, weight, bias, offsets, reverse, act)


@gradients.register_kernel("cuda")
def _gradients_cuda(x, dy, weight, bias, offsets, reverse, act):  # type: ignore[no-untyped-def]
    from hopstate.ops.conv1d import triton  # type: ignore[attr-defined]

    if act:
        dy = torch.ops.aten.silu_backward(dy, triton.forward(x, weight, bias, offsets, reverse))
    dx = triton.forward(dy, weight, None, offsets, not reverse)  # the same convolution in the other direction
    return dx, *triton.weight_grad(x, dy, offsets, weight.shape[1], reverse)


@gradients.register_fake
def _gradients_fake(x, dy, weight, bias, offsets, reverse, act):  # type: ignore[no-untyped-def]
    kind, (channels, width) = torch.promote_types(x.dtype, torch.float32), weight.shape
    return x.new_empty(x.shape), x.new_empty(channels, width, dtype=kind), x.new_empty(channels, dtype=kind)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, offsets, ctx.reverse, ctx.act = inputs
    ctx.save_for_backward(x, weight, bias, offsets)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, offsets = ctx.saved_tensors
    dx, dweight, dbias = gradients(x, dy, weight, bias, offsets, ctx.reverse, ctx.act)
    return dx, dweight.to(weight.dtype), None if bias is None else dbias.to(bias.dtype), None, None, None


convolve.register_autograd(_backward, setup_context=_keep_for_backward)
