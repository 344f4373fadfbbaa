"""CTT-HiPPO: a memory of polynomial coefficients over a changing graph, one layer of CTDG-SSM.

P = p(L), p(y) = 1 + sum_k alpha_k y^k. Learnable filters have alpha_k = softplus(.) >= 0, so that p >= 1 on [0, 2] by
construction.

Axes: S block, n active node, d channel.
Source: CTDG-SSM, arXiv:2606.04672, equations 5-6, algorithm 3 (lines 22-30).
Deviation: the filter starts at its critical coefficients (`hopstate.ops.filters.laplacian.critical_alpha`), where a
signal crosses a long path undiminished; the paper states no start. The constant coefficient is 1: a factor of p
changes nothing but the input's scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.ops.filters.laplacian import check_filter, critical_alpha
from hopstate.ops.filters.quadrature import NUM_QUADRATURE_NODES, evolve
from hopstate.ops.filters.transition import Transition
from hopstate.ops.span_step import inverse_softplus

FilterInit = Literal["critical"] | float | tuple[float, ...]


def filter_coefficients(order: int, start: FilterInit) -> list[float]:
    """Return the coefficients c_0 = 1, alpha_1..alpha_m of a filter of order m.

    Args:
        order: m >= 0; 0 is the topology-unaware model.
        start: "critical", one number for all alphas, or alpha_1..alpha_m.

    Raises:
        ConfigError: an unknown start, a wrong count, or a filter that is not positive on [0, 2].
    """
    if order < 0:
        raise ConfigError(f"order is the highest power of the Laplacian, at least 0; got {order}")
    if isinstance(start, str):
        if start != "critical":
            raise ConfigError(f"filter_init is 'critical', a number or {order} numbers; got {start!r}")
        alphas = [critical_alpha(order)] * order if order else []
    else:
        alphas = list(start) if isinstance(start, (tuple, list)) else [float(start)] * order
    if len(alphas) != order:
        raise ConfigError(f"a filter of order {order} has {order} coefficients alpha_1..; got {len(alphas)}")
    coefficients = [1.0, *map(float, alphas)]
    check_filter(coefficients)
    return coefficients


class PolynomialFilter(nn.Module):
    """The coefficients 1, alpha_1, ..., alpha_m of a graph filter, learnable or fixed.

    Args:
        order: m.
        start: see `filter_coefficients`.
        learn: False keeps the start, which may then have negative coefficients.

    Raises:
        ConfigError: see `filter_coefficients`; or a learnable start that is not above 0.
    """

    raw: Tensor

    def __init__(self, order: int, start: FilterInit = "critical", *, learn: bool = True) -> None:
        super().__init__()
        alphas = filter_coefficients(order, start)[1:]
        self.learn = learn
        if not learn or not order:
            self.register_buffer("raw", torch.tensor(alphas))
            return
        if any(a <= 0 for a in alphas):
            raise ConfigError(
                f"learnable filter coefficients stay above 0, but filter_init gives {alphas}; "
                "start above 0, or set learn_filter=false to keep them as they are"
            )
        self.raw = nn.Parameter(_raw(alphas))

    def forward(self) -> Tensor:
        """Return (m+1,) coefficients c_0 = 1, alpha_1..alpha_m."""
        one = self.raw.new_ones(1)
        return torch.cat([one, F.softplus(self.raw) if self.learn else self.raw])


def _raw(values: Sequence[float]) -> Tensor:
    return inverse_softplus(torch.tensor(values, dtype=torch.float64)).to(torch.get_default_dtype())


class HippoCell(nn.Module):
    """H <- exp(-G) (H * exp(step A)) + int_0^1 exp(-sG) P^-1 (step B RMS(x)) exp(s step A) ds.

    Args:
        dim: d, channels of memory and input.
        step_bias: softplus of it is the step that every node starts with; lower means longer memory.
        quadrature_nodes: Gauss-Legendre nodes of the integral.
        max_norm: largest Euclidean norm of a node's memory, rows above are scaled down; None for no bound.
        norm: scale inputs to unit root mean square.
    """

    def __init__(
        self,
        dim: int,
        *,
        step_bias: float,
        quadrature_nodes: int = NUM_QUADRATURE_NODES,
        max_norm: float | None = None,
        norm: bool = True,
    ) -> None:
        super().__init__()
        self.quadrature_nodes, self.max_norm = quadrature_nodes, max_norm
        self.norm = nn.RMSNorm(dim, eps=1e-6) if norm else nn.Identity()
        self.input = nn.Linear(dim, dim)
        self.step = nn.Linear(dim, 1)
        nn.init.constant_(self.step.bias, step_bias)
        self.log_decay = nn.Parameter(torch.zeros(dim))  # A = -exp(log_decay)

    def update(self, H: Tensor, x: Tensor, transition: Transition) -> Tensor:
        """Return the memory after one batch: H (S, n, d) that before, x (S, n, d) the input of the active nodes."""
        z = self.norm(x)
        step = F.softplus(self.step(z))  # (S, n, 1)
        rate = -step * self.log_decay.exp()
        H = evolve(transition, H, step * self.input(z), rate, count=self.quadrature_nodes)
        if self.max_norm is not None:
            H = H * (self.max_norm / H.norm(dim=-1, keepdim=True).clamp(min=self.max_norm))
        return H

    forward = update
