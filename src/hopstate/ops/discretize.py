"""Zero-order hold and Euler for a diagonal system: from h' = A h + B u to h_k = decay h_{k-1} + gain B u_k.

Zero-order hold (u constant over the step):  decay = exp(delta A),  gain = (exp(delta A) - 1) / A
Euler in the input term (Mamba's own code):  decay = exp(delta A),  gain = delta

Both gains tend to delta as delta A -> 0, and neither value nor gradient loses digits there: the gain uses expm1, and
d gain / dA = delta^2 phi(delta A), phi(x) = (x e^x - expm1(x)) / x^2, uses phi's series near zero.
Source: DyG-Mamba, Theorem 4.1; Gu & Dao 2023, arXiv:2312.00752, equation 4 and section 3.6.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hopstate.errors import ConfigError, nearest


def inverse_softplus(value: Tensor) -> Tensor:
    """Return r with softplus(r) = value, for values above 0; exact far from 0 and near it."""
    return value + torch.log(-torch.expm1(-value))


Discretization = Literal["zoh", "euler"]
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


def check_discretization(name: str) -> str:
    """Return name if it is a known rule, else raise ConfigError."""
    known = get_args(Discretization)
    if name not in known:
        raise ConfigError(f"discretization={name!r} is not one of {known}{nearest(str(name), known)}")
    return name
