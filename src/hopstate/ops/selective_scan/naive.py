"""The selective scan as its recurrence, one token at a time: the definition that every faster path is held to.

    h_k = exp(delta_k A) h_{k-1} + gain_k B_k u_k        y_k = (C_k . h_k + D u_k) silu(z_k)

Axes: token (packed, or batch length), channel, state, sequence.
Source: DyG-Mamba, Theorem 4.1 (zero-order hold); Gu & Dao 2023, arXiv:2312.00752, Algorithm 2 (Euler).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import silu

from hopstate.ops.discretize import Discretization, discretize
from hopstate.types import Float, Int, shapecheck


@shapecheck
def selective_scan_naive(
    u: Float[Tensor, "token channel"],
    delta: Float[Tensor, "token channel"],
    A: Float[Tensor, "channel state"],
    B: Float[Tensor, "token state"],
    C: Float[Tensor, "token state"],
    D: Float[Tensor, " channel"] | None,
    z: Float[Tensor, "token channel"] | None,
    offsets: Int[Tensor, " _"],
    initial_state: Float[Tensor, "sequence channel state"] | None,
    *,
    reverse: bool,
    discretization: Discretization,
) -> tuple[Float[Tensor, "token channel"], Float[Tensor, "sequence channel state"]]:
    """Run the recurrence over packed sequences with plain torch operations; autograd gives the gradients.

    Args: as `selective_scan`, packed; offsets holds one more entry than there are sequences.

    Returns:
        y in u's dtype; the last states in float32, or float64 for float64 inputs.
    """
    kind = torch.promote_types(u.dtype, torch.float32)
    wide = [x.to(kind) for x in (u, delta, A, B, C)]
    outputs: list[Tensor] = [u.new_zeros(0, u.shape[1], dtype=kind)]
    order: list[int] = []
    finals: list[Tensor] = []
    bounds = offsets.tolist()
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        h = wide[2].new_zeros(A.shape) if initial_state is None else initial_state[sequence].to(kind)
        for t in reversed(range(start, end)) if reverse else range(start, end):
            h, y = advance(h, wide[0][t], wide[1][t], wide[2], wide[3][t], wide[4][t], discretization)
            outputs.append(y[None])
            order.append(t)
        finals.append(h)
    y = torch.cat(outputs)[torch.tensor(order, dtype=torch.int64, device=u.device).argsort()]
    if D is not None:
        y = y + D.to(kind) * wide[0]
    if z is not None:
        y = y * silu(z.to(kind))
    final = torch.stack(finals) if finals else wide[2].new_zeros(0, *A.shape)
    return y.to(u.dtype), final


def advance(
    h: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, discretization: Discretization
) -> tuple[Tensor, Tensor]:
    """Return (next h, C . h) for one token: h (..., channel, state), u, delta (..., channel), B, C (..., state)."""
    decay, gain = discretize(delta[..., None], A, discretization)
    h = decay * h + gain * (B[..., None, :] * u[..., None])
    return h, (h * C[..., None, :]).sum(-1)
