"""Selective state-space branch over packed sequences, and the bidirectional block of two branches.

Axes: token, channel (the block's width), inner (the branch's width), state.
Source: Behrouz & Hashemi 2024 (Graph Mamba Networks), Algorithm 2 and equations 8-9; Gu & Dao 2023, arXiv:2312.00752
(low-rank step projection and its initialization, initial state matrix).
Deviation: as in Mamba, the scan has a skip connection D u, which Algorithm 2 lacks, and W_delta has low rank.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.ops.conv1d import conv1d
from hopstate.ops.selective_scan import selective_scan
from hopstate.ops.span_step import inverse_softplus

Carried = tuple[Tensor, Tensor | None]  # inputs still in the convolution's window (< conv_width, inner); states
STEP_RANGE = (1e-3, 1e-1)  # initial step sizes, log-uniform, as in Mamba


class SelectiveSSM(nn.Module):
    """W_1 (SSM(u) * SiLU(W_2 z)) with u = SiLU(Conv(W_input z)), where B, C and the step size are projections of u.

    Args:
        dim: input and output width.
        inner_dim: inner width.
        state_dim: S, state size per channel.
        conv_width: kernel size of the causal convolution; 0 disables it.
        reverse: scan each sequence from its last token to its first.

    Raises:
        ConfigError: a width is below 1.
    """

    def __init__(
        self,
        dim: int,
        *,
        inner_dim: int,
        state_dim: int = 16,
        conv_width: int = 4,
        reverse: bool = False,
    ) -> None:
        super().__init__()
        if min(dim, inner_dim, state_dim) < 1 or conv_width < 0:
            raise ConfigError(
                f"dim, inner_dim and state_dim must be at least 1 and conv_width at least 0; "
                f"got {dim}, {inner_dim}, {state_dim}, {conv_width}"
            )
        self.reverse = reverse
        self.input = nn.Linear(dim, 2 * inner_dim, bias=False)  # W_input above W_2
        self.conv = nn.Conv1d(inner_dim, inner_dim, conv_width, groups=inner_dim) if conv_width else None
        self.to_B = nn.Linear(inner_dim, state_dim, bias=False)
        self.to_C = nn.Linear(inner_dim, state_dim, bias=False)
        self.step = StepProjection(inner_dim, math.ceil(dim / 16))
        self.A_log = nn.Parameter(torch.arange(1, state_dim + 1).float().log().repeat(inner_dim, 1))
        self.D = nn.Parameter(torch.ones(inner_dim))
        self.output = nn.Linear(inner_dim, dim, bias=False)  # W_1

    def forward(self, z: Tensor, offsets: Tensor | None = None) -> Tensor:
        """Return a tensor of z's shape.

        Args:
            z: (token, channel) packed, normalized; or (batch, length, channel) without offsets.
            offsets: (sequence + 1,) int64 bounds of the sequences.
        """
        u, gate = self.input(z).chunk(2, -1)
        u = F.silu(self._convolved(u, offsets))
        return self.output(self._scanned(u, gate, offsets))

    def part(self, z: Tensor, before: Carried | None = None) -> tuple[Tensor, Carried]:
        """Process one part of a sequence; return (token, channel) and the `before` of the next part.

        Parts follow each other in the branch's direction, so a reversed branch starts with the last one.

        Args:
            z: (token, channel), normalized.
            before: carried state of the previous part. None for the first part.
        """
        u, gate = self.input(z).chunk(2, -1)
        tail, state = (u[:0], None) if before is None else before
        both = torch.cat([u, tail] if self.reverse else [tail, u])
        u = self._convolved(both, torch.tensor([0, len(both)], device=z.device))
        u = F.silu(u[: len(z)] if self.reverse else u[len(tail) :]).contiguous()
        context = 0 if self.conv is None else self.conv.kernel_size[0] - 1
        tail = both[:context] if self.reverse else both[max(0, len(both) - context) :]
        bounds = torch.tensor([0, len(z)], device=z.device)
        y, state = self._scanned(u, gate, bounds, initial_state=state, return_state=True)
        return self.output(y), (tail.clone(), state)

    def _convolved(self, u: Tensor, offsets: Tensor | None) -> Tensor:
        if self.conv is None:
            return u
        weights = self.conv.weight.squeeze(1), self.conv.bias
        return conv1d(u.contiguous(), *weights, offsets=offsets, reverse=self.reverse)

    def _scanned(self, u: Tensor, gate: Tensor, offsets: Tensor | None, **given: Any) -> Any:
        """Return (token, inner) gated outputs, and the states if return_state is set."""
        return selective_scan(
            u,
            self.step(u),
            -self.A_log.exp(),
            self.to_B(u),
            self.to_C(u),
            D=self.D,
            z=gate.contiguous(),
            offsets=offsets,
            reverse=self.reverse,
            **given,
        )


class StepProjection(nn.Module):
    """softplus(W_up W_down u + b), where b makes the initial steps log-uniform in STEP_RANGE."""

    def __init__(self, dim: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim)
        nn.init.uniform_(self.up.weight, -(rank**-0.5), rank**-0.5)
        low, high = map(math.log, STEP_RANGE)
        start = torch.empty(dim).uniform_(low, high).exp()
        with torch.no_grad():
            self.up.bias.copy_(inverse_softplus(start))

    def forward(self, u: Tensor) -> Tensor:
        """Return (token, inner) positive step sizes of u (token, inner)."""
        return F.softplus(self.up(self.down(u)))


class BidirectionalMamba(nn.Module):
    """x + W_out (forward(LN(x)) + backward(LN(x))), two branches with separate weights.

    Args:
        dim: width.
        expand: inner width of a branch, in multiples of dim.
        state_dim, conv_width: see `SelectiveSSM`.
        dropout: dropout probability of the residual branch.
        bidirectional: False keeps only the forward branch.
    """

    def __init__(
        self,
        dim: int,
        *,
        expand: float = 2.0,
        state_dim: int = 16,
        conv_width: int = 4,
        dropout: float = 0.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.branches = nn.ModuleList(
            SelectiveSSM(
                dim,
                inner_dim=max(1, round(expand * dim)),
                state_dim=state_dim,
                conv_width=conv_width,
                reverse=reverse,
            )
            for reverse in ((False, True) if bidirectional else (False,))
        )
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, offsets: Tensor | None = None) -> Tensor:
        """Return a tensor of x's shape after one block.

        Args:
            x: (token, channel) packed; or (batch, length, channel) without offsets.
            offsets: (sequence + 1,) int64 bounds of the sequences.
        """
        z = self.norm(x)
        y = self.branches[0](z, offsets)
        for branch in self.branches[1:]:
            y = y + branch(z, offsets)
        return x + self.dropout(self.out(y))
