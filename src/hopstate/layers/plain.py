"""Packed sequences in operations that every program format has: what exported programs are made of.

The same sums, convolutions and scans as the compiled operators make, with a row a token and no loop over sequences.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Sequences:
    """Bounds of sequences whose tokens lie one after the other.

    Args:
        lengths: (S,) int64 tokens of each.
        count: T, all of them.

    rows, positions: (T,) int64 each token's sequence, and its place in it.
    """

    def __init__(self, lengths: Tensor, count: int) -> None:
        at, ends = torch.arange(count, device=lengths.device), lengths.cumsum(0)
        self.lengths = lengths
        self.rows = (at[:, None] >= ends[None]).sum(1)
        self.positions = at - (ends - lengths)[self.rows]
        self.left = ends[self.rows] - 1 - at  # tokens that follow

    def sum(self, x: Tensor) -> Tensor:
        """Return (S, d) sums of x (T, d)."""
        return x.new_zeros(self.lengths.shape[0], x.shape[1]).index_add(0, self.rows, x)

    def mean(self, x: Tensor) -> Tensor:
        """Return (S, d) means of x (T, d), 0 of an empty sequence."""
        return self.sum(x) / self.lengths.clamp(min=1).unsqueeze(-1)

    def largest(self, x: Tensor) -> Tensor:
        """Return (S,) the largest of x (T,), none of which is below 0; 0 of an empty sequence."""
        return x.new_zeros(self.lengths.shape[0]).scatter_reduce(0, self.rows, x, "amax")

    def padded(self, x: Tensor, size: int, *, last: bool = False) -> Tensor:
        """Return (S, size, d): x (T, d), zeros after it, or before it where the last token stands last."""
        place = self.positions + (size - self.lengths[self.rows] if last else 0)
        flat = x.new_zeros(self.lengths.shape[0] * size, x.shape[1])
        return flat.index_add(0, self.rows * size + place, x).view(-1, size, x.shape[1])

    def convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, reverse: bool) -> Tensor:
        """Return (T, d) of the causal convolution that `ops.conv1d` defines; weight (d, width)."""
        at, width = torch.arange(x.shape[0], device=x.device), weight.shape[1]
        room, sign = (self.left, 1) if reverse else (self.positions, -1)
        y = torch.zeros_like(x) if bias is None else bias.expand_as(x)
        for j in range(width):
            back = width - 1 - j
            inside = (room >= back)[:, None]
            y = y + torch.where(inside, x[torch.where(room >= back, at + sign * back, at)], 0.0) * weight[:, j]
        return y

    def scanned(self, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, *, reverse: bool) -> Tensor:
        """Return (T, d) of the recurrence that `ops.selective_scan` defines, by zero-order hold, step by step."""
        from torch._higher_order_ops.scan import scan

        keep = ((self.left if reverse else self.positions) > 0).to(u.dtype)

        def step(h: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            value, size, into, out, kept = token
            change = torch.expm1(size[:, None] * A)
            h = h * kept * (change + 1) + change / A * (into[None] * value[:, None])
            return h.clone(), (h * out[None]).sum(1)

        columns = [x.flip(0) if reverse else x for x in (u, delta, B, C, keep)]
        columns = [torch.cat([x, x.new_zeros(1, *x.shape[1:])]) for x in columns]  # a scan over nothing is refused
        y = scan(step, u.new_zeros(A.shape), tuple(columns))[1].narrow(0, 0, u.shape[0])
        return y.flip(0) if reverse else y


def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(d) + bias) v of (..., token, d)."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return F.softmax(scores if bias is None else scores + bias, -1) @ v


__all__ = ["Sequences", "attended"]
