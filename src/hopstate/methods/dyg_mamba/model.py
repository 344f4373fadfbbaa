"""DyG-Mamba: state-space models over a node's past events, with the time between events as step size.

Source: DyG-Mamba, arXiv:2408.06966, equations 5-16, algorithms 1-3 (both directions share the input, gate and output
maps, and have their own convolution, A, B, C and step size); tables 5, 6, 9 and 13 (ablations).
Axes: token, channel (the block's width), inner, state.
Deviations:
- A sequence includes the node itself as a token, first by default. The equations omit it, but then v's own sequence
cannot show that v is in u's history. As first token, its span is tau - t_1, the largest step.
- encoders="shared" is the default. The text has one encoder for each endpoint ("independent").
- Features that are always zero are not projected.
- The spectral bound of equation 13 holds in every step, W / max(1, ||W||_2), not only initially. It limits how much B
and C change with their input. Biases and inputs of norm above 1 can still give B and C a norm above 1, unlike in
theorem 4.3.
- Cross-attention is in the paper's table but not in its equations. Here it is symmetric: both endpoints attend to the
other's input. Outputs are logits.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, check_range, refuse_idle
from hopstate.layers.attention import CrossAttention
from hopstate.layers.decoders import LinkHead, NodeHead, PairHistory
from hopstate.layers.encodings import AlignedProjections, CountEncoding, TimeEncoding, check_widths
from hopstate.layers.ssm import STEP_RANGE, StepProjection
from hopstate.ops.conv1d import conv1d
from hopstate.ops.rows import segment_sum
from hopstate.ops.selective_scan import selective_scan
from hopstate.ops.span_step import inverse_softplus, span_step
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.types import Float, Int, shapecheck

StepSource = Literal["span", "data", "both", "fixed"]
StepFunction = Literal["forgetting", "linear", "log", "sigmoid", "exponential", "unnormalized"]
BCSource = Literal["data", "span", "fixed"]
SPEED_RANGE = (0.1, 10.0)  # w2 at the start, log-uniform over the channels


@dataclass(frozen=True, kw_only=True)
class TimeSpanConfig:
    """Settings of a `TimeSpanBlock`. The defaults are the published ones.

    Args:
        expand: inner width, in multiples of the width.
        state_dim: S, state size per channel.
        conv_width: kernel size of the causal convolution, 0 for none.
        step: source of the step size: the time "span" (equation 11), the "data" (softplus of a linear map, as in
            Mamba), "both" (their sum), or "fixed" (one parameter per channel).
        step_function: step size as a function of the span: "forgetting" is equation 11. "linear", "log", "sigmoid" and
            "exponential" are from table 6. "unnormalized" is equation 11 without division by tau - t_1.
        bc_source: source of B and C: the "data" (equation 13), the "span", or "fixed" parameters.
        spectral_bound: bound ||W_B||_2 and ||W_C||_2 by 1, if bc_source is "data".
        gate: multiply by SiLU of the gate map (skip connection of equation 10).
        residual: add the block's input to its output.
        bidirectional: use both directions.
        dropout: dropout of the block's output before the residual sum.

    Raises:
        ConfigError: a value is out of range or unknown, or has no effect with the other settings.
    """

    expand: float = 2.0
    state_dim: int = 16
    conv_width: int = 4
    step: StepSource = "span"
    step_function: StepFunction = "forgetting"
    bc_source: BCSource = "data"
    spectral_bound: bool = True
    gate: bool = True
    residual: bool = True
    bidirectional: bool = True
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, kind in (("step", StepSource), ("step_function", StepFunction), ("bc_source", BCSource)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(f"{name} is one of {', '.join(get_args(kind))}; got {getattr(self, name)!r}")
        check_range(above=0, expand=self.expand)
        check_range(minimum=1, state_dim=self.state_dim)
        check_range(minimum=0, conv_width=self.conv_width)
        refuse_idle(
            self,
            step_function=self.step not in ("span", "both") and f"step={self.step} does not come from spans",
            spectral_bound=self.bc_source != "data" and f"bc_source={self.bc_source} is not the data",
        )
        if self.bc_source == "span" and self.step_function == "unnormalized":
            raise ConfigError(
                "bc_source=span takes the span's share of the history; step_function=unnormalized has none"
            )
        check_range(minimum=0, below=1, dropout=self.dropout)


class SpanStep(nn.Module):
    """Delta = w1 * (1 - exp(-w2 r)) of a span r, or another increasing function, with w1, w2 > 0 for each channel.

    Args:
        dim: channels.
        function: see `TimeSpanConfig`.
    """

    def __init__(self, dim: int, function: StepFunction) -> None:
        super().__init__()
        self.function = function
        low, high = map(math.log, SPEED_RANGE)
        self.size = nn.Parameter(inverse_softplus(torch.ones(dim)))
        self.speed = None if function == "linear" else nn.Parameter(inverse_softplus(_log_uniform(dim, low, high)))

    @shapecheck
    def forward(self, r: Float[Tensor, "token"]) -> Float[Tensor, "token inner"]:
        """Return steps >= 0 of spans r >= 0."""
        size = F.softplus(self.size)
        if self.speed is None:
            return r.unsqueeze(-1) * size
        speed = F.softplus(self.speed)
        if self.function in ("forgetting", "unnormalized"):
            return span_step(r, size, speed)
        angle = r.unsqueeze(-1) * speed
        if self.function == "log":
            return size * torch.log1p(angle)
        if self.function == "sigmoid":
            return size * torch.sigmoid(angle)
        return size * torch.expm1(angle)


def spectral_bound(weight: Float[Tensor, "row channel"], count: int = 1) -> Float[Tensor, "row channel"]:
    """Return W / max(1, ||W||_2) of each of count matrices laid out along the rows."""
    stack = weight.view(count, -1, weight.shape[1])
    with torch.autocast(weight.device.type, enabled=False):  # the bound is exact also in mixed precision
        # eigenvalues of the small Gram matrix: many times cheaper than the matrix's singular values
        largest = torch.linalg.eigvalsh(stack @ stack.mT)[:, -1]
        return (stack / largest.clamp(min=1).sqrt().view(-1, 1, 1)).view_as(weight)


class BoundedLinear(nn.Linear):
    """Linear maps with bounded spectral norms, laid out along the rows; see `spectral_bound`.

    Args:
        inputs, outputs: features of x, and of all maps together.
        count: maps.
    """

    def __init__(self, inputs: int, outputs: int, count: int) -> None:
        super().__init__(inputs, outputs)
        self.count = count
        self._bounded: tuple[tuple[int, int], Tensor] | None = None  # of a version of the weight

    def bounded(self) -> Tensor:
        """Return the bounded weight (outputs, inputs); without gradients it is kept until the weight changes."""
        if (torch.is_grad_enabled() and self.weight.requires_grad) or torch.compiler.is_compiling():
            return spectral_bound(self.weight, self.count)
        version = self.weight.data_ptr(), self.weight._version
        if self._bounded is None or self._bounded[0] != version:
            self._bounded = version, spectral_bound(self.weight, self.count)
        return self._bounded[1]

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., outputs) of x (..., inputs)."""
        return F.linear(x, self.bounded(), self.bias)

    def frozen(self) -> nn.Linear:
        """Return a linear map with the weight as it is bounded now, which costs no eigenvalues."""
        linear = nn.Linear(self.in_features, self.out_features).to(self.weight)
        linear.load_state_dict({"weight": self.bounded().detach(), "bias": self.bias.detach()})
        return linear


def frozen_bounds(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose bounded maps are plain ones; see `BoundedLinear.frozen`."""
    copy = deepcopy(model)
    for module in copy.modules():
        if isinstance(module, _Direction) and isinstance(module.to_maps, BoundedLinear):
            module.to_maps = module.to_maps.frozen()
    return copy


class _Direction(nn.Module):
    """SSM(SiLU(Conv(x))) from first to last token, or from last to first."""

    def __init__(self, inner: int, rank: int, config: TimeSpanConfig, *, reverse: bool) -> None:
        super().__init__()
        c, self.bc_source, self.reverse, self.state_dim = config, config.bc_source, reverse, config.state_dim
        self.conv = nn.Conv1d(inner, inner, c.conv_width, groups=inner) if c.conv_width else None
        self.span_step = SpanStep(inner, c.step_function) if c.step in ("span", "both") else None
        self.data_step = StepProjection(inner, rank) if c.step in ("data", "both") else None
        start = inverse_softplus(_log_uniform(inner, *map(math.log, STEP_RANGE)))
        self.fixed_step = nn.Parameter(start) if c.step == "fixed" else None
        self.fixed_maps = nn.Parameter(torch.randn(2 * c.state_dim)) if c.bc_source == "fixed" else None
        self.to_maps = None
        if c.bc_source != "fixed":
            inputs, outputs = inner if c.bc_source == "data" else 1, 2 * c.state_dim  # W_B above W_C
            bound = c.bc_source == "data" and c.spectral_bound
            self.to_maps = BoundedLinear(inputs, outputs, 2) if bound else nn.Linear(inputs, outputs)
        self.A_log = nn.Parameter(torch.arange(1, c.state_dim + 1).float().log().repeat(inner, 1))

    def forward(self, x: Tensor, gate: Tensor | None, offsets: Tensor, ratio: Tensor) -> Tensor:
        """Return (token, inner), gated; see `TimeSpanBlock.forward`."""
        u = self._inputs(x, offsets)
        B, C = self._maps(u, ratio)
        delta, A = self._steps(u, ratio), -self.A_log.exp()
        y = selective_scan(u, delta, A, B, C, z=gate, offsets=offsets, reverse=self.reverse)
        assert isinstance(y, Tensor)
        return y

    def _inputs(self, x: Tensor, offsets: Tensor) -> Tensor:
        if self.conv is None:
            return F.silu(x)
        weights = self.conv.weight.squeeze(1), self.conv.bias
        return conv1d(x, *weights, offsets=offsets, reverse=self.reverse, activation="silu")

    def _steps(self, u: Tensor, ratio: Tensor) -> Tensor:
        parts = [] if self.span_step is None else [self.span_step(ratio)]
        if self.data_step is not None:
            parts.append(self.data_step(u))
        if self.fixed_step is not None:
            parts.append(F.softplus(self.fixed_step).expand(u.shape))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _maps(self, u: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
        if self.to_maps is not None:
            both = self.to_maps(u if self.bc_source == "data" else ratio.unsqueeze(-1))
        else:
            assert self.fixed_maps is not None
            both = self.fixed_maps.expand(u.shape[0], -1)
        return both[:, : self.state_dim].contiguous(), both[:, self.state_dim :].contiguous()


class TimeSpanBlock(nn.Module):
    """z + W_T((y_forward + y_backward) * SiLU(W_z LN(z))), y_o = SSM_o(SiLU(Conv_o(W_x LN(z)))), steps from time spans.

    Args:
        dim: width of input and output.
        config: settings of the model.
    """

    def __init__(self, dim: int, config: TimeSpanConfig) -> None:
        super().__init__()
        inner = max(1, round(config.expand * dim))
        self.residual = config.residual
        self.norm = nn.LayerNorm(dim)
        self.input = nn.Linear(dim, inner)
        self.gate = nn.Linear(dim, inner) if config.gate else None
        rank = math.ceil(dim / 16)
        directions = (False, True) if config.bidirectional else (False,)
        self.directions = nn.ModuleList(_Direction(inner, rank, config, reverse=reverse) for reverse in directions)
        self.output = nn.Linear(inner, dim)
        self.dropout = nn.Dropout(config.dropout)

    @shapecheck
    def forward(
        self,
        z: Float[Tensor, "token channel"],
        offsets: Int[Tensor, "bound"],
        ratio: Float[Tensor, "token"],
    ) -> Float[Tensor, "token channel"]:
        """Return the packed tokens after one block.

        ratio is the span of each token, (t_{k+1} - t_k) / (tau - t_1), t_{L+1} = tau; or what step_function takes.
        """
        normed = self.norm(z)
        x = self.input(normed)
        gate = None if self.gate is None else self.gate(normed)
        y = self.directions[0](x, gate, offsets, ratio)
        for direction in self.directions[1:]:
            y = y + direction(x, gate, offsets, ratio)
        out = self.dropout(self.output(y))
        return z + out if self.residual else out


def _log_uniform(dim: int, low: float, high: float) -> Tensor:
    return torch.empty(dim).uniform_(low, high).exp()


CHANNELS = 4  # node, edge, time, co-occurrence


@dataclass(frozen=True, kw_only=True)
class DyGMambaConfig:
    """Settings of DyG-Mamba; the published ones.

    Args:
        channel_dim: width of each of the four encodings.
        time_dim: frequencies of the time encoding.
        out_dim: width of an embedding.
        num_layers: blocks.
        block: settings of the blocks.
        encoders: "shared" by both endpoints, or "independent".
        time_encoding: use the encoding of time differences.
        cooccurrence: use the encoding of neighbor co-occurrence.
        cross_attention: heads of an attention layer between the two endpoints after the blocks, 0 for none.
        pair_features: the head also reads features of the pair's history.
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
    pair_features: bool = False

    def __post_init__(self) -> None:
        check_range("model.", minimum=1, channel_dim=self.channel_dim, time_dim=self.time_dim, out_dim=self.out_dim)
        check_range("model.", minimum=0, num_layers=self.num_layers)
        if self.encoders not in ("shared", "independent"):
            raise ConfigError(f"model.encoders is 'shared' or 'independent'; got {self.encoders!r}")
        refuse_idle(self, time_dim=not self.time_encoding and "time_encoding=false leaves the encoding out")
        if self.cross_attention < 0 or (self.cross_attention and CHANNELS * self.channel_dim % self.cross_attention):
            raise ConfigError(f"model.cross_attention={self.cross_attention} heads do not divide 4 x channel_dim")


class HistoryEncoder(nn.Module):
    """Aligned encodings of packed past events, and time-span blocks over them.

    Args:
        config: settings of the model.
        node_dim, edge_dim: features of a node and of an event, 0 for none.
        counts: encode co-occurrence.
        num_relations, num_node_types: types of events and nodes, 0 for none.
    """

    def __init__(
        self,
        config: DyGMambaConfig,
        node_dim: int,
        edge_dim: int,
        *,
        counts: bool,
        num_relations: int = 0,
        num_node_types: int = 0,
    ) -> None:
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
        types = {"node": num_node_types, "edge": num_relations, "count": num_relations if counts else 0}
        self.project = AlignedProjections(widths, c.channel_dim, types=types)
        self.blocks = nn.ModuleList(TimeSpanBlock(CHANNELS * c.channel_dim, c.block) for _ in range(c.num_layers))

    def check(self, tokens: HistoryTokens) -> None:
        """Raise ShapeError if tokens have no counts although they are encoded, or have other feature widths."""
        check_widths((self.node_dim, self.edge_dim), tokens.x, tokens.edge_attr)
        if self.count is not None and tokens.counts is None:
            raise ShapeError("the model encodes co-occurrence, and these tokens have no counts: make them as pairs")
        if "edge_type" in self.project and tokens.relation is None:
            raise ShapeError("the model was trained on typed events, and these tokens have no relations")

    def encode(self, tokens: HistoryTokens) -> Tensor:
        """Return (token, 4 channel_dim): node, edge, time and co-occurrence encodings side by side, equations 5-6."""
        self.check(tokens)
        encodings = {"node": tokens.x, "edge": tokens.edge_attr}
        encodings |= {"node_type": tokens.node_type, "edge_type": tokens.relation, "count_type": tokens.query_types()}
        if self.time is not None:
            encodings["time"] = self.time(tokens.gaps)
        if self.count is not None and tokens.counts is not None:
            encodings["count"] = self.count.of(tokens.counts, tokens.longest)
        return self.project(encodings, tokens.nodes.shape[0])

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (token, 4 channel_dim) encodings after the blocks; errors as `check`."""
        z, plain = self.encode(tokens), self.config.block.step_function == "unnormalized"
        ratio = (tokens.spans if plain else tokens.span_ratios()).to(z.dtype)
        for block in self.blocks:
            z = block(z, tokens.offsets, ratio)
        return z


class DyGMamba(HistoryModel):
    """DyG-Mamba for links: encode the history of both nodes, take the mean over tokens, score the pair (eq. 10, 15).

    Deviation: with relations, each token gets the vectors of its own and of the queried relation. The queried relation
    also modulates the head. With node types, each token gets a vector of the type.

    Args:
        config: settings of the model.
        node_dim, edge_dim: number of features of a node and of an event, 0 for none.
        num_relations, num_node_types: number of relations and of node types, 0 for none.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> store = hopstate.NeighborStore.from_stream(stream)
        >>> history = hopstate.HistoryTokenizer(store, stream, hopstate.HistoryConfig(max_length=8))
        >>> config = hopstate.DyGMamba.Config(channel_dim=8, time_dim=8, out_dim=8)
        >>> model = hopstate.DyGMamba(config, **stream.used_features)
        >>> model(history.pairs(stream.src[-2:], stream.dst[-2:], stream.t[-2:])).shape  # logits
        torch.Size([2])
    """

    Config = DyGMambaConfig

    def __init__(
        self,
        config: DyGMambaConfig,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
        num_relations: int = 0,
        num_node_types: int = 0,
    ) -> None:
        super().__init__()
        self.feature_dims = node_dim, edge_dim
        self.config, dim = config, CHANNELS * config.channel_dim
        types = {"num_relations": num_relations, "num_node_types": num_node_types}
        self.encoders = nn.ModuleList(
            HistoryEncoder(config, node_dim, edge_dim, counts=config.cooccurrence, **types)
            for _ in range(1 if config.encoders == "shared" else 2)
        )
        self.cross = CrossAttention(dim, config.cross_attention) if config.cross_attention else None
        self.output = nn.Linear(dim, config.out_dim)
        history = PairHistory(len(NAMES)) if config.pair_features else None
        self.head = LinkHead(config.out_dim, pair=history, num_relations=num_relations)

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
        return self.head(u, v, tokens.pair, tokens.query_relation)


class DyGMambaNodes(HistoryModel):
    """Classifies a node at a time: one encoder without co-occurrence, mean, linear, perceptron (algorithm 3).

    Args:
        config: settings of the model. Co-occurrence is ignored, because it needs a second node.
        num_classes: width of the result; 1 for a binary label.
        node_dim, edge_dim: number of features of a node and of an event, 0 for none.
        num_relations, num_node_types: number of relations and of node types, 0 for none.

    Raises:
        ConfigError: independent encoders, cross-attention or pair features, which need two nodes.
    """

    def __init__(
        self,
        config: DyGMambaConfig,
        num_classes: int = 1,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
        num_relations: int = 0,
        num_node_types: int = 0,
    ) -> None:
        super().__init__()
        if config.encoders != "shared" or config.cross_attention or config.pair_features:
            raise ConfigError(
                f"a node is classified by one history: model.encoders={config.encoders!r}, "
                f"model.cross_attention={config.cross_attention} and model.pair_features={config.pair_features} are "
                "for pairs; leave them at their defaults"
            )
        self.config, self.feature_dims = config, (node_dim, edge_dim)
        types = {"num_relations": num_relations, "num_node_types": num_node_types}
        self.encoder = HistoryEncoder(config, node_dim, edge_dim, counts=False, **types)
        self.output = nn.Linear(CHANNELS * config.channel_dim, config.out_dim)
        self.head = NodeHead(config.out_dim, num_classes, dropout=config.block.dropout)

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (S, num_classes) logits of S sequences."""
        z = self.encoder(tokens)
        return self.head(self.output(segment_mean(z, tokens)))


def segment_mean(z: Tensor, tokens: HistoryTokens) -> Tensor:
    """Return (S, channel): the mean of z (token, channel) over each sequence's tokens, 0 for an empty one."""
    return segment_sum(z, tokens.offsets) / tokens.lengths.clamp(min=1).unsqueeze(-1)
