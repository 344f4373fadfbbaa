"""A depthwise causal convolution over packed or padded sequences that never mixes two sequences.

Source: Gu & Dao 2023, arXiv:2312.00752, figure 3: the short convolution before the selective scan.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import silu

from hopstate.errors import ConfigError, ShapeError
from hopstate.ops.conv1d.naive import conv1d_naive
from hopstate.ops.conv1d.op import convolve
from hopstate.ops.selective_scan import check
from hopstate.ops.selective_scan.dispatch import choose_path, warn_slow
from hopstate.types import Float, Int


def conv1d(
    x: Float[Tensor, "*token channel"],
    weight: Float[Tensor, "channel width"],
    bias: Float[Tensor, " channel"] | None = None,
    *,
    offsets: Int[Tensor, " _"] | None = None,
    reverse: bool = False,
    activation: Literal["none", "silu"] = "none",
) -> Float[Tensor, "*token channel"]:
    """Compute y_t = bias + sum_j weight_j x_{t - (width - 1 - j)} within each sequence, zero before its first token.

    Args:
        x: (token, channel) packed or (batch, length, channel); float16, bfloat16, float32 or float64.
        weight: (channel, width); the last column weighs the token itself, as in torch's Conv1d.
        bias: (channel,).
        offsets: int64 (sequence + 1,), as in `selective_scan`; without them packed input is one sequence.
        reverse: look at the tokens after t instead of those before.
        activation: "silu" returns SiLU(y); y itself is then not kept for the backward pass but computed again.

    Returns:
        y of x's shape and dtype.

    Raises:
        ShapeError: shapes, dtypes or devices that disagree.
        ConfigError: an unknown activation.
        DataError: offsets that decrease or do not cover the tokens (on a GPU only where HOPSTATE_CHECK=1).
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
    check.check_same("x", x, tuple(x.shape), "itself", x)
    check.check_same("weight", weight, tuple(weight.shape), "itself", x)
    if bias is not None:
        check.check_same("bias", bias, (channels,), "(channel,)", x)
    sequences = check.check_packing(x, offsets)
    if offsets is None:
        offsets = torch.arange(sequences + 1, device=x.device) * x.shape[-2]
    flat = x.flatten(0, -2)
    path = choose_path(x.device.type, x.dtype)
    if path.name == "naive":
        warn_slow("conv1d", path.reason)
        check.check_offsets(offsets, flat.shape[0])
        y = conv1d_naive(flat, weight, bias, offsets, reverse=reverse).view(x.shape)
        return silu(y) if activation == "silu" else y
    return convolve(flat, weight, bias, offsets, reverse, activation == "silu").view(x.shape)
