"""The selective state-space branch over packed sequences, and the bidirectional block made of two of them.

Axes: token, channel (the block's width), inner (the branch's), state.
Source: Behrouz & Hashemi 2024 (Graph Mamba Networks), Algorithm 2 and equations 8-9; Gu & Dao 2023, arXiv:2312.00752
(low-rank step projection and its start, state matrix start).
Deviation: as in Mamba, there is a skip D u around the scan, which Algorithm 2 has not, and W_delta is of low rank.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.modes import StateSpace
from hopstate.ops.conv1d import conv1d
from hopstate.ops.selective_scan import selective_scan
from hopstate.ops.span_step import inverse_softplus

Carried = tuple[Tensor, Tensor | None]  # inputs of the convolution still in its window (< conv_width, inner); states
STEP_RANGE = (1e-3, 1e-1)  # steps at the start, log-uniform, as in Mamba


class SelectiveSSM(StateSpace):
    """W_1 (SSM(u) * SiLU(W_2 z)) with u = SiLU(Conv(W_input z)), the maps B, C and the step projected from u.

    Args:
        dim: width of input and output.
        inner_dim: width inside.
        state_dim: S, numbers of state a channel.
        conv_width: taps of the causal convolution; 0 leaves it out.
        reverse: run every sequence from its last token to its first.

    Raises:
        ConfigError: a width below 1.
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

    def state_parameters(self) -> list[nn.Parameter]:
        """Return A's parameter and the step projection's."""
        return [self.A_log, *self.step.parameters()]

    def forward(self, z: Tensor, offsets: Tensor | None = None) -> Tensor:
        """Return what z's shape is.

        Args:
            z: (token, channel), normalised; or (batch, length, channel) sequences of one length, without offsets.
            offsets: (sequence + 1,) int64 bounds of the sequences.
        """
        u, gate = self.input(z).chunk(2, -1)
        u = F.silu(self._convolved(u, offsets))
        return self.output(self._scanned(u, gate, offsets))

    def part(self, z: Tensor, before: Carried | None = None) -> tuple[Tensor, Carried]:
        """Return (token, channel) of one part of a sequence, and what its next part takes as before.

        The parts of a sequence follow each other in the branch's direction: a reversed branch takes the last one first.

        Args:
            z: (token, channel), normalised.
            before: what the part before returned; None for the first.
        """
        u, gate = self.input(z).chunk(2, -1)
        tail, state = (u[:0], None) if before is None else before
        both = torch.cat([u, tail] if self.reverse else [tail, u])
        u = self._convolved(both, torch.tensor([0, len(both)], device=z.device))
        u = F.silu(u[: len(z)] if self.reverse else u[len(tail) :]).contiguous()
        kept = 0 if self.conv is None else self.conv.kernel_size[0] - 1
        tail = both[:kept] if self.reverse else both[max(0, len(both) - kept) :]
        bounds = torch.tensor([0, len(z)], device=z.device)
        y, state = self._scanned(u, gate, bounds, initial_state=state, return_state=True)
        return self.output(y), (tail.clone(), state)

    def _convolved(self, u: Tensor, offsets: Tensor | None) -> Tensor:
        if self.conv is None:
            return u
        weights = self.conv.weight.squeeze(1), self.conv.bias
        return conv1d(u.contiguous(), *weights, offsets=offsets, reverse=self.reverse)

    def _scanned(self, u: Tensor, gate: Tensor, offsets: Tensor | None, **given: Any) -> Any:
        """Return (token, inner) gated outputs, with the states where return_state is given."""
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
    """softplus(W_up W_down u + b), with b such that the steps start log-uniform in STEP_RANGE."""

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
    """x + W_out (forward branch(LN(x)) + backward branch(LN(x))), each branch with its own weights.

    Args:
        dim: width.
        expand: inner width of a branch, in multiples of dim.
        state_dim, conv_width: see `SelectiveSSM`.
        dropout: probability that an element of what is added to x is dropped in training.
        bidirectional: False keeps the forward branch only.
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
        """Return what x's shape is, after one block.

        Args:
            x: (token, channel), packed; or (batch, length, channel) sequences of one length, without offsets.
            offsets: (sequence + 1,) int64.
        """
        z = self.norm(x)
        y = self.branches[0](z, offsets)
        for branch in self.branches[1:]:
            y = y + branch(z, offsets)
        return x + self.dropout(self.out(y))
