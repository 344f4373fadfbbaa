"""Packed sequences in operations that every program format has: what exported programs are made of.

The same sums, convolutions and scans as the compiled operators make, with a row a token and no loop over sequences.
"""

from __future__ import annotations

from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.layers.mpnn import Pooling, Reading


class Sequences:
    """Bounds of sequences whose tokens lie one after the other.

    Args:
        lengths: (S,) int64 tokens of each.
        count: T, all of them.

    rows, positions: (T,) int64 each token's sequence, and its place in it.
    """

    def __init__(self, lengths: Tensor, count: int) -> None:
        at, ends = torch.arange(count, device=lengths.device), lengths.cumsum(0)
        starts = at.new_zeros(count + 1).index_add(0, ends - lengths, torch.ones_like(lengths))
        self.lengths = lengths
        self.rows = starts.narrow(0, 0, count).cumsum(0) - 1
        self.positions = at - (ends - lengths)[self.rows]
        self.left = ends[self.rows] - 1 - at  # tokens that follow

    def sum(self, x: Tensor) -> Tensor:
        """Return (S, d) sums of x (T, d)."""
        return x.new_zeros(self.lengths.shape[0], x.shape[1]).index_add(0, self.rows, x)

    def mean(self, x: Tensor) -> Tensor:
        """Return (S, d) means of x (T, d), 0 of an empty sequence."""
        return self.sum(x) / self.lengths.clamp(min=1).unsqueeze(-1)

    def pooled(self, x: Tensor, how: Reading) -> Tensor:
        """Return (S, d) of x (T, d), (S, 3 * d) of "all", as `layers.mpnn.pool` does; 0 of an empty sequence."""
        if how == "all":
            return torch.cat([self.pooled(x, one) for one in get_args(Pooling)], 1)
        if how != "max":
            return self.sum(x) if how == "sum" else self.mean(x)
        start = x.new_full((self.lengths.shape[0], x.shape[1]), float("-inf"))
        found = start.scatter_reduce(0, self.rows[:, None].expand_as(x), x, "amax")
        return torch.where((self.lengths > 0)[:, None], found, 0.0)

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
        kept = ((self.left if reverse else self.positions) > 0).to(u.dtype)
        return _stepped((u, delta, B, C, kept[:, None, None]), A, reverse=reverse)


class EqualSequences(Sequences):
    """Sequences of one length, which are read side by side: as many steps as one of them has tokens.

    Args:
        length: tokens of each.
        count: T, all of them.
    """

    def __init__(self, length: int, count: int, device: torch.device | None = None) -> None:
        at = torch.arange(count, device=device)
        self.length, self.rows, self.positions = length, at // length, at % length
        self.left = length - 1 - self.positions

    def scanned(self, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, *, reverse: bool) -> Tensor:
        """Return (T, d), as of any sequences."""
        side_by_side = (x.view(-1, self.length, x.shape[1]).transpose(0, 1) for x in (u, delta, B, C))
        kept = u.new_ones(self.length, 1, 1, 1)  # every sequence starts where the scan does
        y = _stepped((*side_by_side, kept), A, reverse=reverse)
        return y.transpose(0, 1).reshape(u.shape)


def _stepped(columns: tuple[Tensor, ...], A: Tensor, *, reverse: bool) -> Tensor:
    """Return (L, ..., d) outputs of L steps, each from what u, delta, B, C and kept, (L, ..., width), have there.

    kept (L, ...) is 0 where a state starts anew.
    """
    from torch._higher_order_ops.scan import scan

    def step(h: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        value, size, into, out, kept = token
        change = torch.expm1(size.unsqueeze(-1) * A)
        h = h * kept * (change + 1) + change / A * (into.unsqueeze(-2) * value.unsqueeze(-1))
        return h.clone(), (h * out.unsqueeze(-2)).sum(-1)

    u = columns[0]
    columns = tuple(x.flip(0) if reverse else x for x in columns)
    columns = tuple(torch.cat([x, x.new_zeros(1, *x.shape[1:])]) for x in columns)  # a scan over nothing is refused
    y = scan(step, u.new_zeros(*u.shape[1:], A.shape[1]), columns)[1].narrow(0, 0, u.shape[0])
    return y.flip(0) if reverse else y


def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(d) + bias) v of (..., token, d)."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return F.softmax(scores if bias is None else scores + bias, -1) @ v


__all__ = ["EqualSequences", "Sequences", "attended"]
