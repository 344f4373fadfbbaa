"""DyG-Mamba: state spaces over a node's past events, with the time between events as the step.

Source: DyG-Mamba, arXiv:2408.06966, equations 5-16, algorithms 1-3, table 9.
Deviation:
- A sequence holds the node itself as a token ("target first" unless the tokenizer says otherwise): the equations
  leave it out, and then "v stands in u's history" cannot be seen in v's own sequence. Standing
  first, its span is the whole tau - t_1, the largest step of all.
- encoders="shared" is the default; the text has one encoder for each end ("independent").
- Features that are zero throughout are not projected.
- Cross-attention, which the paper's table lists and its equations do not have, is symmetric: both ends attend to the
  other as it was. Returns logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, check_range, refuse_idle
from hopstate.layers.attention import CrossAttention
from hopstate.layers.decoders import LinkHead, NodeHead, PairHistory
from hopstate.layers.encodings import CountEncoding, TimeEncoding
from hopstate.methods.dyg_mamba.timespan import TimeSpanBlock, TimeSpanConfig
from hopstate.ops.rows import segment_sum
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES

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

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (token, 4 channel_dim) encodings after the blocks; errors as `check`."""
        z, plain = self.encode(tokens), self.config.block.step_function == "unnormalized"
        ratio = (tokens.spans if plain else tokens.span_ratios()).to(z.dtype)
        for block in self.blocks:
            z = block(z, tokens.offsets, ratio)
        return z

    def _project(self, name: str, values: Tensor | None, count: int) -> Tensor:
        if name not in self.project:
            return next(self.parameters()).new_zeros(count, self.config.channel_dim)
        linear = self.project[name]
        assert isinstance(linear, nn.Linear)
        return linear.bias.expand(count, -1) if values is None else linear(values.to(linear.weight.dtype))


class DyGMamba(HistoryModel):
    """Scores a pair: an encoder over each end's past, mean over its tokens, linear, link head (equations 10, 15).

    Args:
        config: what a user chooses.
        node_dim, edge_dim: features of a node and of an event, 0 for none.
    """

    Config = DyGMambaConfig

    def __init__(
        self,
        config: DyGMambaConfig,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
    ) -> None:
        super().__init__()
        self.feature_dims = node_dim, edge_dim
        self.config, dim = config, CHANNELS * config.channel_dim
        self.encoders = nn.ModuleList(
            HistoryEncoder(config, node_dim, edge_dim, counts=config.cooccurrence)
            for _ in range(1 if config.encoders == "shared" else 2)
        )
        self.cross = CrossAttention(dim, config.cross_attention) if config.cross_attention else None
        self.output = nn.Linear(dim, config.out_dim)
        self.head = LinkHead(config.out_dim, pair=PairHistory(len(NAMES)) if config.pair_history else None)

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (P,) logits of P pairs.

        Raises:
            ShapeError: tokens that are not those of pairs, or of other feature widths.
        """
        if tokens.num_sequences % 2:
            raise ShapeError("DyG-Mamba takes the tokens of pairs: the sequences of u, then as many of v")
        parts = [tokens] if len(self.encoders) == 1 else tokens.halves()
        encoded = [encoder(part) for encoder, part in zip(self.encoders, parts, strict=True)]
        z = encoded[0] if len(encoded) == 1 else tokens.joined(encoded)
        if self.cross is not None:
            z = self.cross(z, tokens.offsets, tokens.longest)
        u, v = self.output(segment_mean(z, tokens)).tensor_split(2)
        return self.head(u, v, tokens.pair)


class DyGMambaNodes(HistoryModel):
    """Classifies a node at a time: one encoder without co-occurrence, mean, linear, perceptron (algorithm 3).

    Args:
        config: what a user chooses; co-occurrence needs a second node and is left out whatever it says.
        num_classes: width of the result; 1 for a binary label.
        node_dim, edge_dim: features of a node and of an event, 0 for none.

    Raises:
        ConfigError: independent encoders, cross-attention or a pair's history, which take two ends.
    """

    def __init__(self, config: DyGMambaConfig, num_classes: int = 1, *, node_dim: int = 0, edge_dim: int = 0) -> None:
        super().__init__()
        if config.encoders != "shared" or config.cross_attention or config.pair_history:
            raise ConfigError(
                f"a node is classified by one history: model.encoders={config.encoders!r}, "
                f"model.cross_attention={config.cross_attention} and model.pair_history={config.pair_history} are for "
                "pairs; leave them at their defaults"
            )
        self.config, self.feature_dims = config, (node_dim, edge_dim)
        self.encoder = HistoryEncoder(config, node_dim, edge_dim, counts=False)
        self.output = nn.Linear(CHANNELS * config.channel_dim, config.out_dim)
        self.head = NodeHead(config.out_dim, num_classes, dropout=config.block.dropout)

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (S, num_classes) logits of S sequences."""
        z = self.encoder(tokens)
        return self.head(self.output(segment_mean(z, tokens)))


def segment_mean(z: Tensor, tokens: HistoryTokens) -> Tensor:
    """Return (S, channel): the mean of z (token, channel) over each sequence's tokens, 0 for an empty one."""
    return segment_sum(z, tokens.offsets) / tokens.lengths.clamp(min=1).unsqueeze(-1)
