"""A DyG-Mamba model of pairs with its weights as they are now: what it says within `alike`, to the bit, sooner.

A pair has some sixty tokens, and torch takes longer to begin its few hundred operations than these take. Here weights
are packed once, and each of the compiled loops behind those operations is called by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.layers.alike import padded
from hopstate.layers.cooccurrence import CountEncoding
from hopstate.layers.heads import LinkHead
from hopstate.layers.kept import Kept
from hopstate.layers.pair_history import PackedPairHistory
from hopstate.layers.time import TimeEncoding
from hopstate.methods.dyg_mamba.encoder import DyGMambaConfig, HistoryEncoder
from hopstate.methods.dyg_mamba.timespan import BoundedLinear, SpanStep, TimeSpanBlock, TimeSpanConfig, _Direction
from hopstate.ops.row_linear import RowLinear
from hopstate.ops.rows import segment_sum
from hopstate.ops.selective_scan.dispatch import choose_path
from hopstate.tokens.history import HistoryTokens

Cuts = tuple[np.ndarray, ...]  # bounds of the sequences, then how the scan and the steps are cut into units


def compiled(
    model: nn.Module, config: DyGMambaConfig, encoders: Iterable[nn.Module], output: nn.Linear, head: LinkHead
) -> CompiledPairs | None:
    """Return a model of pairs as it is now; of one that has not changed, what was made the last time.

    None where it has parts that are not written out here (other steps and maps than the paper's, attention between the
    ends), or there are no compiled loops.

    Args:
        model: what the others are parts of.
        config, encoders, output, head: see `methods.dyg_mamba.model.DyGMamba`.
    """
    weight = output.weight
    if choose_path(weight.device.type, weight.dtype).name != "numba" or not _is_written(config.block):
        return None
    if config.cross_attention or weight.dtype not in (torch.float32, torch.float64):
        return None
    return _kept.of(model, lambda: CompiledPairs(encoders, output, head))


def _is_written(c: TimeSpanConfig) -> bool:
    step = c.step == "span" and c.step_function in ("forgetting", "unnormalized")
    return step and c.maps == "data" and c.conv_width > 0


class CompiledPairs:
    """Logits (P,) of P pairs; see `compiled`.

    Args:
        encoders, output, head: with weights in single or double precision on the CPU; later changes are not seen.
    """

    def __init__(self, encoders: Iterable[nn.Module], output: nn.Linear, head: LinkHead) -> None:
        self._encoders = [_Encoder(cast(HistoryEncoder, encoder)) for encoder in encoders]
        self._output, self._head = _linear(output), _Head(head)

    def __call__(self, tokens: HistoryTokens) -> Tensor:
        """Return what the model returns."""
        if len(self._encoders) == 1:
            z = self._encoders[0](tokens)
        else:
            halves = (tokens.half(second=second) for second in (False, True))
            z = np.concatenate([encoder(part) for encoder, part in zip(self._encoders, halves, strict=True)])
        mean = segment_sum(torch.from_numpy(z), tokens.offsets) / tokens.lengths.clamp(min=1).unsqueeze(-1)
        u, v = np.split(self._output(mean.numpy()), 2)
        return self._head(u, v, tokens.pair)


class _Encoder:
    """Encodings of tokens and the blocks over them, `HistoryEncoder`."""

    def __init__(self, encoder: HistoryEncoder) -> None:
        c, self.check = encoder.config, encoder.check
        self.dim, self.plain = c.channel_dim, c.block.step_function == "unnormalized"
        self.time: TimeEncoding | None = encoder.time
        self.count = None if encoder.count is None else _Counts(encoder.count)
        self.project = {name: _linear(cast(nn.Linear, linear)) for name, linear in encoder.project.items()}
        self.bias = {name: cast(nn.Linear, linear).bias.detach().numpy() for name, linear in encoder.project.items()}
        self.blocks = [_Block(cast(TimeSpanBlock, block)) for block in encoder.blocks]
        self.kind = next(encoder.parameters()).dtype

    def __call__(self, tokens: HistoryTokens) -> np.ndarray:
        """Return (token, 4 channel_dim).

        Raises:
            ShapeError: see `HistoryEncoder.check`.
        """
        self.check(tokens)  # loops would read beyond rows that are too short
        z = np.zeros((len(tokens.nodes), 4 * self.dim), torch.empty(0, dtype=self.kind).numpy().dtype)
        for k, (name, values) in enumerate(self._encodings(tokens).items()):
            if name in self.project:
                part = self.bias[name] if values is None else self.project[name](values)
                z[:, k * self.dim : (k + 1) * self.dim] = part
        ratio = (tokens.spans if self.plain else tokens.span_ratios()).to(self.kind).numpy()
        if self.blocks:
            cuts = self.blocks[0].cuts(tokens.offsets.numpy())
            for block in self.blocks:
                z = block(z, ratio, cuts)
        return z

    def _encodings(self, tokens: HistoryTokens) -> dict[str, np.ndarray | None]:
        time, count = None, None
        if self.time is not None:
            angle = tokens.gaps.to(self.time.omega.dtype).unsqueeze(-1) * self.time.omega
            time = padded(torch.cos, angle).to(self.kind).numpy()
        if self.count is not None:
            assert tokens.counts is not None
            count = self.count(tokens.counts.numpy(), tokens.longest)
        x, edge_attr = (
            None if v is None else v.to(self.kind).contiguous().numpy() for v in (tokens.x, tokens.edge_attr)
        )
        return {"node": x, "edge": edge_attr, "time": time, "count": count}


class _Counts:
    """`CountEncoding`, with its table kept."""

    def __init__(self, encoding: CountEncoding) -> None:
        first, _, second = encoding
        self.layers = _linear(cast(nn.Linear, first)), _linear(cast(nn.Linear, second))
        self.kind = cast(nn.Linear, first).weight.detach().numpy().dtype
        self.table = np.empty((0, self.layers[1].width), self.kind)

    def __call__(self, counts: np.ndarray, largest: int) -> np.ndarray:
        """Return (token, dim) of counts (token, 2)."""
        table = self.table
        if largest >= len(table):
            first, second = self.layers
            self.table = table = second(_relu(first(np.arange(2 * largest + 1, dtype=self.kind)[:, None])))
        return table[counts[:, 0]] + table[counts[:, 1]]


class _Block:
    """`TimeSpanBlock`."""

    def __init__(self, block: TimeSpanBlock) -> None:
        self.norm, self.residual = block.norm, block.residual
        self.input, self.output = _linear(block.input), _linear(block.output)
        self.gate = None if block.gate is None else _linear(block.gate)
        self.ways = [_Way(cast(_Direction, direction)) for direction in block.directions]

    def cuts(self, bounds: np.ndarray) -> Cuts:
        """Return how work over sequences is cut, which shapes alone decide."""
        from hopstate.ops.selective_scan.cpu import cut
        from hopstate.ops.span_step.step import unit_rows

        inner = self.input.width
        return bounds, *cut(bounds, inner, self.ways[0].state_dim), unit_rows(int(bounds[-1]), inner)

    def __call__(self, z: np.ndarray, ratio: np.ndarray, cuts: Cuts) -> np.ndarray:
        """Return the tokens after the block."""
        n = self.norm
        normed = F.layer_norm(torch.from_numpy(z), n.normalized_shape, n.weight, n.bias, n.eps).detach().numpy()
        x = self.input(normed)
        gate = x[:0] if self.gate is None else self.gate(normed)
        y = self.ways[0](x, gate, ratio, cuts)
        for way in self.ways[1:]:
            y = y + way(x, gate, ratio, cuts)
        out = self.output(y)
        return z + out if self.residual else out


class _Way:
    """One direction of a block."""

    def __init__(self, way: _Direction) -> None:
        from hopstate.ops.conv1d.cpu import by_lane
        from hopstate.ops.span_step.step import padded as whole

        conv, maps, step, S = way.conv, way.to_maps, way.span_step, way.state_dim
        assert conv is not None
        assert conv.bias is not None
        assert maps is not None
        assert isinstance(step, SpanStep)
        assert step.speed is not None
        kind = way.A_log.dtype
        weight = maps.bounded() if isinstance(maps, BoundedLinear) else maps.weight
        self.reverse, self.state_dim, self.shape = way.reverse, S, (conv.weight.shape[0], conv.weight.shape[2])
        self.conv = by_lane(conv.weight.squeeze(1), kind), by_lane(conv.bias[:, None], kind)
        self.B, self.C = RowLinear(weight[:S], maps.bias[:S]), RowLinear(weight[S:], maps.bias[S:])
        self.steps = whole(F.softplus(step.size), kind), whole(F.softplus(step.speed), kind)
        self.A = (-way.A_log.exp()).detach().reshape(-1).numpy()

    def __call__(self, x: np.ndarray, gate: np.ndarray, ratio: np.ndarray, cuts: Cuts) -> np.ndarray:
        """Return (token, inner), gated."""
        from hopstate.ops.conv1d.cpu import convolved
        from hopstate.ops.cpu.parallel import run_units
        from hopstate.ops.selective_scan.cpu_forward import scan_forward
        from hopstate.ops.span_step import kernels

        bounds, groups, spans, rows = cuts
        u = convolved(x.reshape(-1), *self.conv, bounds, self.shape, self.reverse, True)
        known, channels = u.reshape(x.shape), self.shape[0]
        delta, y, none = np.empty_like(u), np.empty_like(u), u[:0]
        run_units(kernels.forward, len(rows) - 1, rows, channels, ratio, *self.steps, delta)
        least = np.zeros((groups.size - 1) * (spans.size - 1), u.dtype)
        flags = (channels, self.state_dim, self.reverse, True, False, bool(gate.size), False, False)
        inputs = (u, delta, self.A, self.B(known).reshape(-1), self.C(known).reshape(-1), none, gate.reshape(-1), none)
        run_units(scan_forward, least.size, groups, spans, bounds, *flags, *inputs, y, none, none, least)
        return y.reshape(x.shape)


class _Head:
    """`LinkHead`."""

    def __init__(self, head: LinkHead) -> None:
        self.merge, self.score = _linear(head.merge), _linear(head.score)
        self.pair = None if head.pair is None else PackedPairHistory(head.pair)

    def __call__(self, u: np.ndarray, v: np.ndarray, features: Tensor | None) -> Tensor:
        """Return (P,) logits."""
        parts = [u, v]
        if self.pair is not None:
            parts.append(self.pair(features))
        return torch.from_numpy(self.score(_relu(self.merge(np.concatenate(parts, 1))))).squeeze(-1)


def _linear(linear: nn.Linear) -> RowLinear:
    return RowLinear(linear.weight, linear.bias)


def _relu(x: np.ndarray) -> np.ndarray:
    return torch.relu(torch.from_numpy(x)).numpy()


_kept: Kept[CompiledPairs] = Kept()
