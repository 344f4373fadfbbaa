"""DyG-Mamba written out, one sequence and one token at a time: what `dyg_mamba.DyGMamba` is tested against.

Source: DyG-Mamba, arXiv:2408.06966, equations 5-16 and algorithm 1; see `dyg_mamba` for the deviations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.methods.dyg_mamba.model import BoundedLinear, DyGMamba, HistoryEncoder
from hopstate.tokens.history import HistoryTokens


def dyg_mamba_naive(model: DyGMamba, tokens: HistoryTokens) -> Tensor:
    """Return (P,) logits with a model's own parameters."""
    count = tokens.num_sequences // 2
    return torch.stack([_pair(model, tokens, p, p + count) for p in range(count)])


def _pair(model: DyGMamba, tokens: HistoryTokens, first: int, second: int) -> Tensor:
    ends = []
    for end, s in enumerate((first, second)):
        encoder = model.encoders[end % len(model.encoders)]
        assert isinstance(encoder, HistoryEncoder)
        ends.append(_sequence(encoder, tokens, slice(int(tokens.offsets[s]), int(tokens.offsets[s + 1]))))
    if model.cross is not None:
        ends = [_cross(model.cross, ends[0], ends[1]), _cross(model.cross, ends[1], ends[0])]
    u, v = (model.output(z.mean(0) if len(z) else z.new_zeros(z.shape[1])) for z in ends)
    pair, own = model.head.pair, None if tokens.pair is None else tokens.pair[first : first + 1]
    encoded = [] if pair is None or own is None else [pair(own)[0]]
    return model.head.score(torch.relu(model.head.merge(torch.cat([u, v, *encoded])))).squeeze()


def _sequence(encoder: HistoryEncoder, tokens: HistoryTokens, rows: slice) -> Tensor:
    """Return (token, channel) after the blocks."""
    kind = next(encoder.parameters()).dtype
    gaps, spans = tokens.gaps[rows].to(kind), tokens.spans[rows]
    values: dict[str, Tensor | None] = {
        "node": None if tokens.x is None else tokens.x[rows].to(kind),
        "edge": None if tokens.edge_attr is None else tokens.edge_attr[rows].to(kind),
    }
    if encoder.time is not None:
        values["time"] = torch.cos(gaps[:, None] * encoder.time.omega.to(kind))
    if encoder.count is not None:
        assert tokens.counts is not None
        c = tokens.counts[rows].to(kind)
        values["count"] = encoder.count(c[:, :1]) + encoder.count(c[:, 1:])
    parts = []
    for name in ("node", "edge", "time", "count"):
        if name not in encoder.project:
            parts.append(torch.zeros(len(gaps), encoder.config.channel_dim, dtype=kind))
            continue
        linear: Any = encoder.project[name]
        found = values.get(name)
        parts.append(linear(torch.zeros(len(gaps), linear.in_features, dtype=kind) if found is None else found))
    z = torch.cat(parts, 1)
    if encoder.config.block.step_function != "unnormalized":
        total = tokens.gaps[rows].max() if len(gaps) else spans.new_zeros(())  # tau - t_1
        spans = spans / total if total > 0 else torch.zeros_like(spans)
    for block in encoder.blocks:
        z = block_naive(block, z, spans.to(kind))
    return z


def block_naive(block: Any, z: Tensor, r: Tensor) -> Tensor:
    """Return (token, channel) of one sequence after one block, token by token; r (token,) is the step's span."""
    normed = block.norm(z)
    x, y = block.input(normed), torch.zeros(())
    for d in block.directions:
        order = torch.arange(len(z)).flip(0) if d.reverse else torch.arange(len(z))
        u = x[order]
        if d.conv is not None:
            u = d.conv(F.pad(u.T[None], (d.conv.weight.shape[-1] - 1, 0)))[0].T if len(z) else u
        u, h, rows = F.silu(u), torch.zeros_like(d.A_log), []
        A = -d.A_log.exp()
        for k, span in enumerate(r[order]):
            delta = _step(d, u[k], span)
            B, C = _maps(d, u[k], span)
            decay = torch.exp(delta[:, None] * A)
            h = decay * h + (decay - 1) / A * B * u[k][:, None]  # theorem 4.1
            rows.append(h @ C)
        out = torch.stack(rows) if rows else u
        y = y + out[order.argsort()]
    if block.gate is not None:
        y = y * F.silu(block.gate(normed))
    out = block.output(y)
    return z + out if block.residual else out


def _step(d: Any, u: Tensor, span: Tensor) -> Tensor:
    step = torch.zeros(())
    if d.span_step is not None:
        w1 = F.softplus(d.span_step.size)
        if d.span_step.function == "linear":
            step = w1 * span
        else:
            w2 = F.softplus(d.span_step.speed)
            step = (
                w1
                * {
                    "log": lambda: torch.log(1 + w2 * span),
                    "sigmoid": lambda: 1 / (1 + torch.exp(-w2 * span)),
                    "exponential": lambda: torch.exp(w2 * span) - 1,
                }.get(d.span_step.function, lambda: 1 - torch.exp(-w2 * span))()
            )
    if d.data_step is not None:
        step = step + F.softplus(d.data_step.up.weight @ d.data_step.down.weight @ u + d.data_step.up.bias)
    return step if d.fixed_step is None else F.softplus(d.fixed_step)


def _maps(d: Any, u: Tensor, span: Tensor) -> tuple[Tensor, Tensor]:
    if d.fixed_maps is not None:
        B, C = d.fixed_maps.chunk(2)
        return B, C
    weight = d.to_maps.weight
    if isinstance(d.to_maps, BoundedLinear):
        weight = torch.cat([W / torch.linalg.matrix_norm(W, 2).clamp(min=1) for W in weight.chunk(2)])
    B, C = (weight @ (u if d.bc_source == "data" else span.reshape(1)) + d.to_maps.bias).chunk(2)
    return B, C


def _cross(attention: Any, x: Tensor, other: Tensor) -> Tensor:
    """Return x with every token having attended to the tokens of other."""
    q, _, _ = attention.qkv(attention.norm(x)).chunk(3, -1)
    _, k, v = attention.qkv(attention.norm(other)).chunk(3, -1)
    heads, width = attention.num_heads, x.shape[1] // attention.num_heads
    if not len(other):
        return x + attention.out(torch.zeros_like(x))
    mixed = []
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        weights = (q[:, part] @ k[:, part].T / math.sqrt(width)).softmax(-1)
        mixed.append(weights @ v[:, part])
    return x + attention.out(torch.cat(mixed, 1))
