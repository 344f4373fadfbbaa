"""Baseline loops of the selective scan, padded float32, Euler rule as in Mamba's published code.

`textbook` is the shape of the mamba-ssm package's pure-torch reference: decays and inputs of all steps formed at once
(tokens x channels x S, twice), the states kept by autograd. `recomputing` has its own backward: it saves the states
and computes decays and inputs step by step, twice; it is the fastest plain-torch form known to us.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def textbook(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Unrolled loop over (batch, length, channel) input with every state stored by autograd."""
    decay = torch.exp(delta[..., None] * A)
    drive = (delta * u)[..., None] * B[:, :, None, :]
    h, outputs = u.new_zeros(u.shape[0], *A.shape), []
    # unbind, not indexing: indexing's backward writes a full-size tensor per step, quadratic in length
    for a, b, c in zip(decay.unbind(1), drive.unbind(1), C.unbind(1)):
        h = a * h + b
        outputs.append((h @ c[:, :, None])[..., 0])
    return torch.stack(outputs, 1)


class _Recomputing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        batch, length, _ = u.shape
        states, y = u.new_empty(length, batch, *A.shape), torch.empty_like(u)
        h = u.new_zeros(batch, *A.shape)
        for t in range(length):
            step = delta[:, t, :, None]
            drive = (delta[:, t] * u[:, t])[..., None] * B[:, t, None, :]
            h = torch.addcmul(drive, torch.exp(step * A), h, out=states[t])
            y[:, t] = (h @ C[:, t, :, None])[..., 0]
        ctx.save_for_backward(u, delta, A, B, C, states)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        u, delta, A, B, C, states = ctx.saved_tensors
        du, ddelta, dB, dC = (torch.empty_like(x) for x in (u, delta, B, C))
        dA, g = torch.zeros_like(A), torch.zeros_like(states[0])
        nothing = torch.zeros_like(g)
        for t in range(u.shape[1] - 1, -1, -1):
            step, scaled = delta[:, t, :, None], delta[:, t] * u[:, t]
            before = states[t - 1] if t else nothing
            decay = torch.exp(step * A)
            g.addcmul_(dy[:, t, :, None], C[:, t, None, :])
            dC[:, t] = (dy[:, t, None] @ states[t])[:, 0]
            dB[:, t] = (scaled[:, None] @ g)[:, 0]
            gB = (g @ B[:, t, :, None])[..., 0]
            g.mul_(decay)
            through = g * before
            du[:, t] = gB * delta[:, t]
            ddelta[:, t] = gB * u[:, t] + (through * A).sum(-1)
            dA += (through * step).sum(0)
        return du, ddelta, dA, dB, dC


def recomputing(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Plain-torch loop with its own backward: states saved, decays recomputed."""
    return _Recomputing.apply(u, delta, A, B, C)
