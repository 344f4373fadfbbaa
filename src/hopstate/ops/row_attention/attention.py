"""Softmax attention, each query summed in one order, so that its bits depend on it and on its own keys alone.

For inference on the CPU; there is no gradient.

Source: Vaswani et al. 2017, arXiv:1706.03762, equation 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def row_attention_naive(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(d) + bias) v: the definition; arguments as of `row_attention`."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(scores if bias is None else scores + bias, -1) @ v


def row_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (B, H, Q, d) softmax(q k^T / sqrt(d) + bias) v; a query has the same bits alone and in any batch.

    Args:
        q: (B, H, Q, d) float32 or float64 on the CPU.
        k, v: (B, H, K, d).
        bias: (B, 1, 1, K) what is added to a key's scores, -inf where no key stands; one key at least stands.
    """
    from hopstate.ops.cpu.parallel import run_units
    from hopstate.ops.row_attention import kernels

    batch, heads, queries, dim = q.shape
    keys, kind = k.shape[2], q.dtype
    if kind not in (torch.float32, torch.float64):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    rest, more = -keys % kernels.LANES, -dim % kernels.LANES
    units, wide = batch * heads, dim + more
    own = q.new_zeros(batch, 1, 1, keys) if bias is None else bias.to(kind).expand(batch, 1, 1, keys)
    parts = (
        q.detach(),
        F.pad(k.detach(), (0, 0, 0, rest)).transpose(-1, -2),
        F.pad(v.detach(), (0, more, 0, rest)),
        F.pad(own, (0, rest), value=-torch.inf),
    )
    y = torch.empty(units * queries * wide, dtype=kind)
    arrays = [part.contiguous().view(-1).numpy() for part in parts]
    scale = arrays[0].dtype.type(dim**-0.5)
    run_units(kernels.attention, units, heads, queries, keys + rest, dim, wide, *arrays, scale, y.numpy())
    return y.view(batch, heads, queries, wide)[..., :dim]
