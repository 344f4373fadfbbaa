# mypy: ignore-errors
"""The depthwise causal convolution's GPU path: a program per (token block, channel block), whatever the lengths.

Each token knows its sequence's bounds, so tokens of many short sequences share a program. The weight's gradient is
summed within fixed blocks of tokens and then over blocks in one order: no atomics.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hopstate.ops.conv1d import token_sequences

TOKENS, CHANNELS = 32, 64  # of a program
SPAN = 1024  # tokens of one partial sum of the weight's gradient


@triton.jit
def convolve(
    x, weight, bias, starts, ends, y, tokens, channels,
    WIDTH: tl.constexpr, REVERSE: tl.constexpr, HAS_BIAS: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """y = bias + sum_j weight_j x shifted by WIDTH - 1 - j, zero across sequence bounds."""
    t = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real, inside = t < tokens, channel < channels
    start = tl.load(starts + t, mask=real, other=0)
    end = tl.load(ends + t, mask=real, other=0)
    total = tl.zeros((TOKENS, CHANNELS), tl.float32)
    if HAS_BIAS:
        total += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)[None, :]
    for shift in tl.static_range(WIDTH):
        source = t - shift
        if REVERSE:
            source = t + shift
        w = tl.load(weight + channel * WIDTH + (WIDTH - 1 - shift), mask=inside, other=0.0).to(tl.float32)
        mask = (real & (source >= start) & (source < end))[:, None] & inside[None, :]
        total += w[None, :] * tl.load(x + source[:, None] * channels + channel[None, :], mask=mask, other=0.0).to(
            tl.float32
        )
    tl.store(y + t[:, None] * channels + channel[None, :], total, mask=real[:, None] & inside[None, :])


@triton.jit
def weight_sums(
    x, dy, starts, ends, dweight, dbias, tokens, channels,
    WIDTH: tl.constexpr, REVERSE: tl.constexpr, SPAN: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sums over SPAN tokens: dweight [span, width, channel] and dbias [span, channel]."""
    span = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < channels
    for shift in tl.static_range(WIDTH):
        total = tl.zeros((CHANNELS,), tl.float32)
        in_bias = tl.zeros((CHANNELS,), tl.float32)
        for block in range(0, SPAN, TOKENS):
            t = span * SPAN + block + tl.arange(0, TOKENS)
            real = t < tokens
            start = tl.load(starts + t, mask=real, other=0)
            end = tl.load(ends + t, mask=real, other=0)
            source = t - shift
            if REVERSE:
                source = t + shift
            here = real[:, None] & inside[None, :]
            mask = (real & (source >= start) & (source < end))[:, None] & inside[None, :]
            grad = tl.load(dy + t[:, None] * channels + channel[None, :], mask=here, other=0.0).to(tl.float32)
            value = tl.load(x + source[:, None] * channels + channel[None, :], mask=mask, other=0.0).to(tl.float32)
            total += tl.sum(grad * value, 0)
            in_bias += tl.sum(grad, 0)
        tl.store(dweight + (span * WIDTH + WIDTH - 1 - shift) * channels + channel, total, mask=inside)
        if shift == 0:
            tl.store(dbias + span * channels + channel, in_bias, mask=inside)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, reverse: bool) -> Tensor:
    x, weight = x.contiguous(), weight.contiguous()
    (tokens, channels), y = x.shape, torch.empty_like(x)
    if y.numel():
        grid = (triton.cdiv(tokens, TOKENS), triton.cdiv(channels, CHANNELS))
        bounds, has_bias = _bounds(offsets, tokens), bias is not None
        shape = (weight.shape[1], reverse, has_bias, TOKENS, CHANNELS)
        convolve[grid](x, weight, bias if has_bias else weight, *bounds, y, tokens, channels, *shape)
    return y


def weight_grad(x: Tensor, dy: Tensor, offsets: Tensor, width: int, reverse: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients of weight and bias in float32."""
    x, dy = x.contiguous(), dy.contiguous()
    tokens, channels = x.shape
    spans = triton.cdiv(tokens, SPAN)
    dweight = torch.empty(spans, width, channels, dtype=torch.float32, device=x.device)
    dbias = torch.empty(spans, channels, dtype=torch.float32, device=x.device)
    if x.numel():
        bounds, shape = _bounds(offsets, tokens), (width, reverse, SPAN, TOKENS, CHANNELS)
        weight_sums[(spans, triton.cdiv(channels, CHANNELS))](x, dy, *bounds, dweight, dbias, tokens, channels, *shape)
    return dweight.sum(0).T.contiguous(), dbias.sum(0)


def _bounds(offsets: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """First token and end of each token's own sequence."""
    sequence = token_sequences(offsets, tokens)
    return offsets[sequence], offsets[sequence + 1]
