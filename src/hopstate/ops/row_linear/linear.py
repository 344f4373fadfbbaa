"""y_r = W x_r + b, each sum over the terms in their order, so that a row's bits depend on that row alone.

A matrix product of a library sums in an order that depends on how many rows there are and where one stands among them.
For inference on the CPU; there is no gradient.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

UNIT = 64  # rows that a thread takes at a time


def row_linear_naive(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return W x + b of rows x (..., k), weight (n, k), bias (n,): the definition."""
    y = (x.unsqueeze(-2) * weight).sum(-1)
    return y if bias is None else y + bias


def row_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (..., n) W x + b; a row has the same bits alone and among others, for any number of threads.

    Args:
        x: (..., k) float32 or float64 on the CPU.
        weight: (n, k).
        bias: (n,), or None.
    """
    from hopstate.ops.cpu.parallel import run_units
    from hopstate.ops.row_linear import kernels

    width, terms = weight.shape
    if x.dtype not in (torch.float32, torch.float64):
        return F.linear(x, weight, bias)
    rows = x.numel() // max(terms, 1) if terms else int(np.prod(x.shape[:-1]))
    kind = x.detach().dtype
    blocks = -(-width // kernels.LANES)
    packed = torch.zeros(blocks * kernels.LANES, terms, dtype=kind)
    packed[:width] = weight.detach()
    packed = packed.view(blocks, kernels.LANES, terms).transpose(1, 2).contiguous()
    shift = torch.zeros(blocks * kernels.LANES, dtype=kind)
    if bias is not None:
        shift[:width] = bias.detach()
    y = torch.empty(rows, width, dtype=kind)
    units = max(1, -(-rows // UNIT))
    bounds = np.minimum(np.arange(units + 1, dtype=np.int64) * UNIT, rows)
    arrays = [a.view(-1).numpy() for a in (x.detach().contiguous(), packed, shift, y)]
    run_units(kernels.linear, units, bounds, terms, width, *arrays)
    return y.view(*x.shape[:-1], width)
