"""DyG-Mamba's settings, and its encoder: aligned encodings of packed past events, time-span blocks over them.

Source: DyG-Mamba, arXiv:2408.06966, equations 5-6, table 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, check_range, refuse_idle
from hopstate.layers.cooccurrence import CountEncoding
from hopstate.layers.time import TimeEncoding
from hopstate.methods.dyg_mamba.timespan import TimeSpanBlock, TimeSpanConfig
from hopstate.tokens.history import HistoryTokens

CHANNELS = 4  # node, edge, time, co-occurrence


@dataclass(frozen=True, kw_only=True)
class DyGMambaConfig:
    """Settings of DyG-Mamba; the published ones.

    Args:
        channel_dim: width of each of the four encodings.
        time_dim: frequencies of the time encoding.
        out_dim: width of an embedding.
        num_layers: blocks.
        block: the blocks' settings, the ablations of the state space among them.
        encoders: "shared" by both ends of a pair, or "independent".
        time_encoding, cooccurrence: leave out an encoding with false.
        cross_attention: heads of one attention layer between the two ends, after the blocks; 0 for none.
        pair_history: the head also reads what the pair's own history tells.
    """

    channel_dim: int = 50
    time_dim: int = 100
    out_dim: int = 172
    num_layers: int = 2
    block: TimeSpanConfig = field(default_factory=TimeSpanConfig)
    encoders: Literal["shared", "independent"] = "shared"
    time_encoding: bool = True
    cooccurrence: bool = True
    cross_attention: int = 0
    pair_history: bool = False

    def __post_init__(self) -> None:
        check_range("model.", least=1, channel_dim=self.channel_dim, time_dim=self.time_dim, out_dim=self.out_dim)
        check_range("model.", least=0, num_layers=self.num_layers)
        if self.encoders not in ("shared", "independent"):
            raise ConfigError(f"model.encoders is 'shared' or 'independent'; got {self.encoders!r}")
        refuse_idle(self, time_dim=not self.time_encoding and "time_encoding=false leaves the encoding out")
        if self.cross_attention < 0 or (self.cross_attention and CHANNELS * self.channel_dim % self.cross_attention):
            raise ConfigError(f"model.cross_attention={self.cross_attention} heads do not divide 4 x channel_dim")


class HistoryEncoder(nn.Module):
    """Aligned encodings of packed past events, and time-span blocks over them.

    Args:
        config: what a user chooses.
        node_dim, edge_dim: features of a node and of an event, 0 for none.
        counts: encode co-occurrence.
    """

    def __init__(self, config: DyGMambaConfig, node_dim: int, edge_dim: int, *, counts: bool) -> None:
        super().__init__()
        c, self.config, self.node_dim, self.edge_dim = config, config, node_dim, edge_dim
        self.time = TimeEncoding.geometric(c.time_dim) if c.time_encoding else None
        self.count = CountEncoding(c.channel_dim) if counts else None
        widths = {
            "node": node_dim,
            "edge": edge_dim,
            "time": c.time_dim if c.time_encoding else 0,
            "count": c.channel_dim if counts else 0,
        }
        self.project = nn.ModuleDict({name: nn.Linear(w, c.channel_dim) for name, w in widths.items() if w})
        self.blocks = nn.ModuleList(TimeSpanBlock(CHANNELS * c.channel_dim, c.block) for _ in range(c.num_layers))

    def check(self, tokens: HistoryTokens) -> None:
        """Raise ShapeError where tokens are without counts that are encoded, or of other feature widths."""
        for what, values, dim in (("node", tokens.x, self.node_dim), ("edge", tokens.edge_attr, self.edge_dim)):
            if values is not None and values.shape[1] != dim:
                raise ShapeError(f"tokens have {values.shape[1]} {what} features, the model was built for {dim}")
        if self.count is not None and tokens.counts is None:
            raise ShapeError("the model encodes co-occurrence, and these tokens have no counts: make them as pairs")

    def encode(self, tokens: HistoryTokens) -> Tensor:
        """Return (token, 4 channel_dim): node, edge, time and co-occurrence encodings side by side, equations 5-6.

        Raises:
            ShapeError: see `check`.
        """
        self.check(tokens)
        encodings = {
            "node": tokens.x,
            "edge": tokens.edge_attr,
            "time": None if self.time is None else self.time(tokens.gaps),
            "count": None
            if self.count is None or tokens.counts is None
            else self.count.of(tokens.counts, tokens.longest),
        }
        return torch.cat([self._project(name, values, tokens.nodes.shape[0]) for name, values in encodings.items()], 1)

    def forward(self, z: Tensor, tokens: HistoryTokens, *, detach_gates: bool = False) -> Tensor:
        """Return z (token, 4 channel_dim) after the blocks; `TimeSpanBlock.forward` says what detach_gates is."""
        plain = self.config.block.step_function == "unnormalized"
        ratio = (tokens.spans if plain else tokens.span_ratios()).to(z.dtype)
        for block in self.blocks:
            z = block(z, tokens.offsets, ratio, detach_gates)
        return z

    def _project(self, name: str, values: Tensor | None, count: int) -> Tensor:
        if name not in self.project:
            return next(self.parameters()).new_zeros(count, self.config.channel_dim)
        linear = self.project[name]
        assert isinstance(linear, nn.Linear)
        return linear.bias.expand(count, -1) if values is None else linear(values.to(linear.weight.dtype))
