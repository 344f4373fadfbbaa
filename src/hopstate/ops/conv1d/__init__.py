"""Depthwise causal convolution on packed tokens: reference, operator and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import silu

from hopstate.errors import ConfigError, ShapeError
from hopstate.ops.dispatch import LANES, check_offsets, check_packing, check_same, choose_path, warn_slow
from hopstate.ops.threads import flat_array, group_sequences, run_units
from hopstate.types import Float, Int, shapecheck

__all__ = ["conv1d", "conv1d_naive"]


@shapecheck
def conv1d_naive(
    x: Float[Tensor, "token channel"],
    weight: Float[Tensor, "channel width"],
    bias: Float[Tensor, " channel"] | None,
    offsets: Int[Tensor, " _"],
    *,
    reverse: bool,
) -> Float[Tensor, "token channel"]:
    """Sum the shifted copies with plain torch operations; autograd gives the gradients."""
    kind = torch.promote_types(x.dtype, torch.float32)
    tokens, width = x.shape[0], weight.shape[1]
    wide, position = x.to(kind), torch.arange(tokens, device=x.device)
    sequence = token_sequences(offsets, tokens)
    bound = offsets[sequence + 1] if reverse else offsets[sequence]
    y = wide.new_zeros(x.shape)
    for j in range(width):
        source = position + (width - 1 - j) * (1 if reverse else -1)
        inside = source < bound if reverse else source >= bound
        shifted = torch.where(inside[:, None], wide[torch.where(inside, source, position)], 0.0)
        y = y + shifted * weight[:, j].to(kind)
    return (y if bias is None else y + bias.to(kind)).to(x.dtype)


def token_sequences(offsets: Tensor, tokens: int) -> Tensor:
    """Return each token's sequence, (token,)."""
    sequences = torch.arange(offsets.shape[0] - 1, device=offsets.device)
    return torch.repeat_interleave(sequences, offsets.diff(), output_size=tokens)


@torch.library.custom_op("hopstate::conv1d", mutates_args=(), device_types="cpu")
def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, reverse: bool, act: bool) -> Tensor:
    """Return y, or SiLU(y) where act, of checked, packed x."""
    from hopstate.ops.conv1d import cpu_kernels

    check_offsets(offsets, x.shape[0])
    bounds, kind = offsets.detach().numpy(), torch.promote_types(x.dtype, torch.float32)
    groups, y = group_sequences(bounds, weight.shape[0]), torch.empty(x.shape, dtype=kind)
    arrays = (flat_array(x, kind), *_by_lane(weight, bias, kind), y.view(-1).numpy())
    run_units(cpu_kernels.convolve, groups.size - 1, groups, bounds, *weight.shape, reverse, act, *arrays)
    return y.to(x.dtype)


def _by_lane(weight: Tensor, bias: Tensor | None, kind: torch.dtype) -> Iterator[np.ndarray]:
    """Yield weight and bias as flat [block, width, lane], zero past the last channel."""
    channels = weight.shape[0]
    bias = torch.zeros(channels, dtype=kind) if bias is None else bias
    for values in (weight, bias[:, None]):
        padded = torch.zeros(-(-channels // LANES) * LANES, values.shape[1], dtype=kind)
        padded[:channels] = values.detach()
        yield padded.view(-1, LANES, values.shape[1]).transpose(1, 2).reshape(-1).numpy()


@convolve.register_kernel("cuda")
def _forward_cuda(x, weight, bias, offsets, reverse, act):  # type: ignore[no-untyped-def]
    from hopstate.ops.conv1d import triton  # type: ignore[attr-defined]

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
    from hopstate.ops.conv1d import cpu_kernels

    (channels, width), kind = weight.shape, torch.promote_types(x.dtype, torch.float32)
    bounds = offsets.detach().numpy()
    groups = group_sequences(bounds, channels)
    arrays = (flat_array(x, kind), flat_array(dy, kind), *_by_lane(weight, bias, kind))
    shape = (groups.size - 1, -(-channels // LANES))
    dx = torch.empty(x.shape, dtype=kind)
    dweight, dbias = (torch.zeros(*shape, w, LANES, dtype=kind) for w in (width, 1))
    sums = (s.view(-1).numpy() for s in (dx, dweight, dbias))
    run_units(cpu_kernels.gradients, shape[0], groups, bounds, channels, width, reverse, act, arrays, *sums)
    by_channel = (s.sum(0).transpose(1, 2).reshape(-1, s.shape[2])[:channels] for s in (dweight, dbias))
    in_weight, in_bias = (s.contiguous() for s in by_channel)
    return dx.to(x.dtype), in_weight, in_bias[:, 0].clone()


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


def conv1d(
    x: Float[Tensor, "*token channel"],
    weight: Float[Tensor, "channel width"],
    bias: Float[Tensor, " channel"] | None = None,
    *,
    offsets: Int[Tensor, " _"] | None = None,
    reverse: bool = False,
    activation: Literal["none", "silu"] = "none",
) -> Float[Tensor, "*token channel"]:
    """Compute y_t = bias + sum_j weight_j x_{t - (width - 1 - j)} per sequence, with zeros before its first token.

    Args:
        x: (token, channel) packed or (batch, length, channel); float16, bfloat16, float32 or float64.
        weight: (channel, width); the last column multiplies the token itself, as in torch's Conv1d.
        bias: (channel,).
        offsets: int64 (sequence + 1,), see `selective_scan`. Without them, packed input is one sequence.
        reverse: use the tokens after t instead of those before.
        activation: "silu" returns SiLU(y) and recomputes y in the backward pass.

    Returns:
        y with x's shape and dtype.

    Raises:
        ShapeError: shapes, dtypes or devices disagree.
        ConfigError: the activation is unknown.
        DataError: offsets decrease or do not cover the tokens (not checked on a GPU).

    Example:
        >>> x = torch.ones(1, 4, 2)  # one sequence of four tokens
        >>> conv1d(x, torch.ones(2, 3))[0, :, 0].tolist()
        [1.0, 2.0, 3.0, 3.0]
    """
    if activation not in ("none", "silu"):
        raise ConfigError(f"activation is 'none' or 'silu'; got {activation!r}")
    if x.dim() not in (2, 3):
        raise ShapeError(f"x has shape {tuple(x.shape)}, expected (token, channel) or (batch, length, channel)")
    channels = x.shape[-1]
    if weight.dim() != 2 or weight.shape[0] != channels or weight.shape[1] == 0:
        raise ShapeError(
            f"weight has shape {tuple(weight.shape)}, expected (channel, width) with x's {channels} channels"
        )
    check_same("x", x, tuple(x.shape), "itself", x)
    check_same("weight", weight, tuple(weight.shape), "itself", x)
    if bias is not None:
        check_same("bias", bias, (channels,), "(channel,)", x)
    sequences = check_packing(x, offsets)
    if offsets is None:
        offsets = torch.arange(sequences + 1, device=x.device) * x.shape[-2]
    flat = x.flatten(0, -2)
    path = choose_path(x.device.type, x.dtype)
    if path.name == "naive":
        warn_slow("conv1d", path.reason)
        check_offsets(offsets, flat.shape[0])
        y = conv1d_naive(flat, weight, bias, offsets, reverse=reverse).view(x.shape)
        return silu(y) if activation == "silu" else y
    return convolve(flat, weight, bias, offsets, reverse, activation == "silu").view(x.shape)
