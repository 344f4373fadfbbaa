"""The depthwise causal convolution's CPU path: the weight laid out by lanes, compiled kernels on threads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hopstate.ops.conv1d import cpu_kernels as kernels
from hopstate.ops.cpu.simd import LANES
from hopstate.ops.threads import flat_array, group_sequences, run_units


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, reverse: bool, act: bool) -> Tensor:
    """Return y, or SiLU(y) where act, in x's dtype."""
    channels, width = weight.shape
    kind = torch.promote_types(x.dtype, torch.float32)
    bias = torch.zeros(channels, dtype=kind) if bias is None else bias
    arrays = flat_array(x, kind), by_lane(weight, kind), by_lane(bias[:, None], kind)
    y = convolved(*arrays, offsets.detach().numpy(), (channels, width), reverse, act)
    return torch.from_numpy(y).view(x.shape).to(x.dtype)


def convolved(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    bounds: np.ndarray,
    shape: tuple[int, int],
    reverse: bool,
    act: bool,
) -> np.ndarray:
    """Return flat y of flat x; weight and bias `by_lane`, shape: channels and width."""
    groups, y = group_sequences(bounds, shape[0]), np.empty_like(x)
    run_units(kernels.convolve, groups.size - 1, groups, bounds, *shape, reverse, act, x, weight, bias, y)
    return y


def gradients(
    x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, reverse: bool, act: bool
) -> tuple[Tensor, Tensor, Tensor]:
    channels, width = weight.shape
    kind = torch.promote_types(x.dtype, torch.float32)
    bias = torch.zeros(channels, dtype=kind) if bias is None else bias
    bounds = offsets.detach().numpy()
    groups = group_sequences(bounds, channels)
    arrays = flat_array(x, kind), flat_array(dy, kind), by_lane(weight, kind), by_lane(bias[:, None], kind)
    shape, dx = (groups.size - 1, -(-channels // LANES)), np.empty_like(arrays[0])
    dweight, dbias = (np.zeros((*shape, w, LANES), dx.dtype) for w in (width, 1))
    sums = (dx, dweight.reshape(-1), dbias.reshape(-1))
    run_units(kernels.gradients, shape[0], groups, bounds, channels, width, reverse, act, arrays, *sums)
    by_channel = (s.sum(0).transpose(0, 2, 1).reshape(-1, s.shape[2])[:channels] for s in (dweight, dbias))
    in_weight, in_bias = (torch.from_numpy(np.ascontiguousarray(s)) for s in by_channel)
    return torch.from_numpy(dx).view(x.shape).to(x.dtype), in_weight, in_bias[:, 0].clone()


def by_lane(weight: Tensor, kind: torch.dtype) -> np.ndarray:
    """Return (channel, width) as flat [block, width, lane], zero past the last channel."""
    channels, width = weight.shape
    padded = np.zeros((-(-channels // LANES) * LANES, width), flat_array(weight[:0], kind).dtype)
    padded[:channels] = weight.detach().to(kind).numpy()
    return padded.reshape(-1, LANES, width).transpose(0, 2, 1).reshape(-1)
