"""Reference implementation of the selective scan: its recurrence, one token at a time.

    h_k = exp(delta_k A) h_{k-1} + gain_k B_k u_k        y_k = (C_k . h_k + D u_k) silu(z_k)

For a diagonal system h' = A h + B u, decay = exp(delta A) and

    gain = (exp(delta A) - 1) / A        zero-order hold: u constant over the step
    gain = delta                         Euler in the input term: Mamba's own code

Both gains tend to delta as delta A -> 0. To avoid cancellation there, the gain uses expm1. Its gradient
d gain / dA = delta^2 phi(delta A), phi(x) = (x e^x - expm1(x)) / x^2, uses phi's series near zero.

Axes: token (packed, or batch length), channel, state, sequence.
Source: DyG-Mamba, Theorem 4.1 (zero-order hold); Gu & Dao 2023, arXiv:2312.00752, equation 4,
section 3.6 and Algorithm 2 (Euler).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from hopstate.ops.dispatch import Discretization, check_discretization
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


NEAR_ZERO = 0.5  # the closed form of phi loses log2(2 / |x|) bits: one bit or two beyond this, all of them at zero
TERMS = 16  # of phi's series: the next one is 0.5**16 / 17! < 1e-19


def phi(x: Tensor) -> Tensor:
    """Return (x exp(x) - expm1(x)) / x^2, which is 1/2 at 0: the slope of expm1(x) / x."""
    near = x.abs() < NEAR_ZERO
    small = torch.where(near, x, torch.zeros_like(x))
    series = torch.zeros_like(x)
    factorial = float(torch.tensor(range(1, TERMS + 2), dtype=torch.float64).prod())
    for k in range(TERMS - 1, -1, -1):  # sum of x^k (k + 1) / (k + 2)!
        series = series * small + (k + 1) / factorial
        factorial /= k + 2
    large = torch.where(near, torch.ones_like(x), x)
    return torch.where(near, series, (large * torch.exp(large) - torch.expm1(large)) / (large * large))


class _ZohGain(torch.autograd.Function):
    """expm1(delta A) / A with gradients written out, since autograd's own cancel as delta A -> 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(delta: Tensor, A: Tensor) -> Tensor:
        return torch.expm1(delta * A) / A

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        delta, A = ctx.saved_tensors
        x = delta * A
        return (grad * torch.exp(x)).sum_to_size(delta.shape), (grad * delta * delta * phi(x)).sum_to_size(A.shape)

    @staticmethod
    def jvp(ctx: Any, by_delta: Tensor, by_A: Tensor) -> Tensor:
        delta, A = ctx.saved_tensors
        x = delta * A
        return by_delta * torch.exp(x) + by_A * delta * delta * phi(x)


def discretize(delta: Tensor, A: Tensor, discretization: Discretization = "zoh") -> tuple[Tensor, Tensor]:
    """Return (decay, gain) of h_k = decay h_{k-1} + gain B u_k for delta and A that broadcast against each other.

    Args:
        delta: step sizes >= 0, in units of 1/A.
        A: decay rates < 0.
        discretization: "zoh" for the exact rule, "euler" for Mamba's gain = delta.

    Raises:
        ConfigError: an unknown rule.

    >>> decay, gain = discretize(torch.tensor(0.5), torch.tensor(-2.0))
    >>> round(float(decay), 4), round(float(gain), 4)  # exp(-1) and (1 - exp(-1)) / 2
    (0.3679, 0.3161)
    """
    decay = torch.exp(delta * A)
    if check_discretization(discretization) == "zoh":
        return decay, _ZohGain.apply(delta, A)
    return decay, delta.expand_as(decay)
