"""GraphMixer on a user's event stream.

Source: Cong et al., ICLR 2023, arXiv:2302.11636; settings of DyGLib (arXiv:2303.13047), in `GraphMixer.Config`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream, type_codes
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError, ShapeError, check_range, refuse_idle
from hopstate.layers.decoders import LinkHead, PairHistory
from hopstate.layers.encodings import TimeEncoding, check_widths
from hopstate.layers.typed import TypeEmbedding, add_types
from hopstate.methods.baselines.dygformer import DYGLIB_DROPOUT
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import link_baselines
from hopstate.methods.shared.link import HistoryLinkRun, feature_dims, history_features, history_method, history_task
from hopstate.methods.shared.programs import ExportSpec, Tensors, history_spec, packed_tokens
from hopstate.ops.rows import segment_sum
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import Deletions, HistoryConfig, HistoryTokenizer, HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.devices import bare
from hopstate.training.tasks.link import LinkTask
from hopstate.types import Float, shapecheck

if TYPE_CHECKING:
    from hopstate.data.dates import Clock
    from hopstate.data.events import EventStream
    from hopstate.data.neighbor_store import Histories, Rows
    from hopstate.data.stream_state import StreamState


class MixerBlock(nn.Module):
    """x + MLP over tokens of LN(x), then x + MLP over channels of LN(x); a perceptron is Linear, GELU, Linear.

    Args:
        num_tokens: tokens of every sequence.
        dim: channels of a token.
        token_ratio, channel_ratio: inner widths, in multiples of num_tokens and of dim.
        dropout: probability that an element is dropped in training, after each layer of a perceptron.
    """

    def __init__(
        self, num_tokens: int, dim: int, *, token_ratio: float = 0.5, channel_ratio: float = 4.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(num_tokens), nn.LayerNorm(dim)
        self.token_mlp = _perceptron(num_tokens, int(token_ratio * num_tokens), dropout)
        self.channel_mlp = _perceptron(dim, int(channel_ratio * dim), dropout)

    @shapecheck
    def forward(self, x: Float[Tensor, "sequence token channel"]) -> Float[Tensor, "sequence token channel"]:
        x = x + self.token_mlp(self.token_norm(x.transpose(1, 2))).transpose(1, 2)
        return x + self.channel_mlp(self.channel_norm(x))


def _perceptron(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout)
    )


class RecentLinks(NamedTuple):
    """Distinct endpoints (S) and the pairs (P) made of them.

    Args:
        tokens: each endpoint's most recent links as a sequence.
        ends: (2, P) int64 sequences of the pairs' sources and destinations.
        x: (S, F) float32 features of each endpoint plus the mean over its neighbors, or None if all are zero.
        pair: see `HistoryTokens`.
        node_type: (S,) int64 codes of the endpoints' types; None if nodes are untyped.
        query_relation: see `HistoryTokens`.
    """

    tokens: HistoryTokens
    ends: Tensor
    x: Tensor | None
    pair: Tensor | None = None
    node_type: Tensor | None = None
    query_relation: Tensor | None = None


class RecentLinkTokenizer:
    """Tokenize pairs as the most recent links of both endpoints.

    Args:
        store: histories.
        stream: source of features.
        num_links: links per sequence.
        num_neighbors: most recent neighbors, whose features are averaged.
        window: maximum age of these neighbors' events, None for no limit.
        clock, deletions, dtype: see `HistoryTokenizer`.

    Raises:
        ConfigError: num_links or num_neighbors is below 1, or the window is not positive.
    """

    def __init__(
        self,
        store: Histories,
        stream: EventStream,
        *,
        num_links: int = 20,
        num_neighbors: int = 2000,
        window: float | None = None,
        clock: Clock | None = None,
        deletions: Deletions = "drop",
        dtype: type[np.floating] = np.float32,
    ) -> None:
        check_range(minimum=1, num_links=num_links, num_neighbors=num_neighbors)
        recent = HistoryConfig(max_length=num_links, target="none")
        self.inner = HistoryTokenizer(store, stream, recent, clock, deletions, dtype)
        self.inner.x, self.marked = None, self.inner.marked  # a link has no node features
        self.node_type: Rows | None = stream.node_type
        self.inner.node_type = None
        average = HistoryConfig(max_length=num_neighbors, window=window, target="none")
        self._averaged = HistoryTokenizer(store, stream, average, clock, deletions, dtype)
        self._neighbors = self._averaged if stream.has_node_features else None

    def over(self, past: StreamState) -> RecentLinkTokenizer:
        """Return a tokenizer over all events of a stream state, with its features."""
        tokenizer = copy(self)
        tokenizer.inner, tokenizer._averaged = self.inner.over(past), self._averaged.over(past)
        tokenizer.inner.x = None
        tokenizer.node_type, tokenizer.inner.node_type = past.types_of_nodes, None
        tokenizer._neighbors = tokenizer._averaged if past.x is not None else None
        return tokenizer

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> RecentLinks:
        """Return the model input for pairs u (P,), v (P,) at times t (P,), of a relation (P,)."""
        if not len(u) == len(v) == len(t):
            raise ShapeError(f"{len(u)} sources, {len(v)} destinations and {len(t)} times")
        nodes, times = np.concatenate([u, v]), np.concatenate([t, t])
        order = np.lexsort((nodes, times))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(nodes[order]) != 0) | (np.diff(times[order]) != 0)
        sequence_of = np.empty(len(order), np.int64)
        sequence_of[order] = np.cumsum(new) - 1
        ends, end_times = nodes[order[new]], times[order[new]]
        tokens = self.inner.nodes(ends, end_times)
        return RecentLinks(
            tokens,
            torch.from_numpy(sequence_of.reshape(2, -1)),
            self._features(ends, end_times),
            node_type=None if self.node_type is None else type_codes(self.node_type[ends]),
            query_relation=None if relation is None else type_codes(relation),
        )

    def _features(self, nodes: np.ndarray, times: np.ndarray) -> Tensor | None:
        if self._neighbors is None:
            return None
        neighbors = self._neighbors.nodes(nodes, times)
        assert self._neighbors.x is not None
        assert neighbors.x is not None
        mean = segment_sum(neighbors.x, neighbors.offsets)
        return torch.from_numpy(self._neighbors.x[nodes]) + mean / neighbors.lengths.clamp_min(1).unsqueeze(-1)


class GraphMixer(HistoryModel):
    """A linear map of each link's features and time encoding, MLP-Mixer blocks, mean, linear with node features, head.

    Deviation: typed events add a vector per relation to their links and modulate the head by the pair's relation; typed
    nodes add a vector per type to their embedding.

    Args:
        config: settings of the model.
        node_dim: features of a node, 0 for none.
        edge_dim: features of an event, 0 for none.
        num_relations, num_node_types: types of events and nodes, 0 for none.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> store = hopstate.NeighborStore.from_stream(stream)
        >>> links = RecentLinkTokenizer(store, stream, num_links=4)
        >>> model = GraphMixer(GraphMixer.Config(time_dim=8, num_links=4), **stream.used_features)
        >>> model(links.pairs(stream.src[-2:], stream.dst[-2:], stream.t[-2:])).shape
        torch.Size([2])
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of GraphMixer; DyGLib's.

        Args:
            num_links: most recent links per endpoint, padded at the start.
            dim: channels of a token. DyGLib pads event features to 172 and uses the same width.
            time_dim: frequencies of the fixed time encoding.
            out_dim: width of an embedding.
            num_layers: MLP-Mixer blocks.
            token_ratio: inner width of a block over tokens, in multiples of num_links.
            channel_ratio: inner width of a block over channels, in multiples of dim.
            dropout: probability that an element is dropped in training.
            pair_features: the head also reads features of the pair's history.
        """

        num_links: int = 20
        dim: int = 172
        time_dim: int = 100
        out_dim: int = 172
        num_layers: int = 2
        token_ratio: float = 0.5
        channel_ratio: float = 4.0
        dropout: float = 0.1
        pair_features: bool = False

        def __post_init__(self) -> None:
            check_range("model.", minimum=1, num_links=self.num_links, time_dim=self.time_dim)
            check_range("model.", minimum=1, dim=self.dim, out_dim=self.out_dim)
            check_range("model.", minimum=0, num_layers=self.num_layers)
            if not (self.token_ratio * self.num_links >= 1 and self.channel_ratio > 0):
                raise ConfigError(
                    f"model.token_ratio={self.token_ratio} of {self.num_links} links leaves no inner token, "
                    f"or model.channel_ratio={self.channel_ratio} no channel"
                )
            check_range("model.", minimum=0, below=1, dropout=self.dropout)

    def __init__(
        self,
        config: Config,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
        num_relations: int = 0,
        num_node_types: int = 0,
    ) -> None:
        super().__init__()
        c, self.config = config, config
        self.feature_dims = self.node_dim, self.edge_dim = node_dim, edge_dim
        dim, out = c.dim, c.out_dim
        self.time = TimeEncoding.between(c.time_dim, 1e-9, 1.0, learn=False)
        self.project = nn.Linear(edge_dim + c.time_dim, dim)
        ratios = {"token_ratio": c.token_ratio, "channel_ratio": c.channel_ratio}
        self.blocks = nn.Sequential(
            *(MixerBlock(c.num_links, dim, dropout=c.dropout, **ratios) for _ in range(c.num_layers))
        )
        self.output = nn.Linear(dim + node_dim, out)
        self.relation = TypeEmbedding(num_relations, dim) if num_relations else None
        self.node_type = TypeEmbedding(num_node_types, out) if num_node_types else None
        history = PairHistory(len(NAMES)) if c.pair_features else None
        self.head = LinkHead(out, pair=history, num_relations=num_relations)

    def forward(self, links: RecentLinks) -> Tensor:
        """Return (P,) logits of P pairs.

        Raises:
            ShapeError: a sequence longer than num_links, or features other than the model's.
        """
        u, v = self.embed(links)[links.ends]
        return self.head(u, v, links.pair, links.query_relation)

    def embed(self, links: RecentLinks) -> Tensor:
        """Return (S, out_dim) embeddings of the ends; errors as `forward`."""
        self._check(links)
        mixed = self.blocks(self._lay_out(links.tokens)).mean(1)
        return add_types(self._embed(mixed, links.x), self.node_type, links.node_type)

    def _embed(self, mixed: Tensor, x: Tensor | None) -> Tensor:
        if not self.node_dim:
            return self.output(mixed)
        if x is None:  # the features are zero: what they would be multiplied with does not matter
            return F.linear(mixed, self.output.weight[:, : mixed.shape[1]], self.output.bias)
        return self.output(torch.cat([mixed, x.to(mixed.dtype)], -1))

    def _lay_out(self, tokens: HistoryTokens) -> Tensor:
        """Return (S, num_links, dim) projected links, the latest last; padding is the projection of zeros."""
        size, bias = self.config.num_links, self.project.bias
        encoded = self.time(tokens.gaps)
        if tokens.edge_attr is None:
            values = F.linear(encoded, self.project.weight[:, self.edge_dim :], bias)
        else:
            values = self.project(torch.cat([tokens.edge_attr.to(encoded.dtype), encoded], -1))
        values = add_types(values, self.relation, tokens.relation)
        rows = tokens.rows()
        slot = (rows + 1) * size - tokens.lengths[rows] + tokens.positions()
        padded = bias.expand(tokens.num_sequences * size, -1).index_copy(0, slot, values)
        return padded.view(tokens.num_sequences, size, bias.shape[0])

    def _check(self, links: RecentLinks) -> None:
        if links.tokens.longest > self.config.num_links:
            raise ShapeError(f"a sequence has {links.tokens.longest} links, the model takes {self.config.num_links}")
        check_widths(self.feature_dims, links.x, links.tokens.edge_attr)


@dataclass(frozen=True, kw_only=True)
class GraphMixerRun(HistoryLinkRun):
    """Configuration of a GraphMixer run.

    Args:
        model: the MLP-Mixer over recent links; its num_links is also how many are looked up.
        num_neighbors: most recent neighbors, whose features are averaged.
        window: maximum age of these neighbors' events, in the stream's time unit; null for no limit.
    """

    model: GraphMixer.Config = field(default_factory=GraphMixer.Config)
    num_neighbors: int = 2000
    window: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(minimum=1, num_neighbors=self.num_neighbors)
        check_range(above=0, window=self.window)


def build(stream: EventStream, config: GraphMixerRun, context: Context) -> LinkTask:
    if context.trained is None and len(stream) and not stream.has_node_features:
        why = "they choose whose features are averaged, and this stream has no node features"
        refuse_idle(config, num_neighbors=why, window=why)
    links, neighbors, window = config.model.num_links, config.num_neighbors, config.window

    def tokenizer(
        store: NeighborStore, events: EventStream, clock: Clock, deletions: Deletions, dtype: type[np.floating]
    ) -> RecentLinkTokenizer:
        sizes = {"num_links": links, "num_neighbors": neighbors}
        return RecentLinkTokenizer(store, events, **sizes, window=window, clock=clock, deletions=deletions, dtype=dtype)

    widths = history_features(feature_dims(stream, context), stream, config.deletions, context)
    return history_task(
        stream,
        config,
        context,
        model=GraphMixer(config.model, **widths),
        tokenizer=tokenizer,
    )


def export_spec(task: LinkTask) -> ExportSpec:
    """Return what is exported of a trained task: tokens of past events in, logits of pairs out."""
    about = (
        "the last model.num_links events of each node strictly before the query, oldest first, the node itself left out"
    )

    def record(given: Tensors) -> RecentLinks:
        tokens, nodes = packed_tokens(given), given.get("nodes")
        ends = torch.arange(tokens.num_sequences).view(2, -1)
        return RecentLinks(tokens, ends, None if nodes is None else nodes.flatten(0, 1), tokens.pair)

    names = ("gaps", "edge_attr", "nodes", "pair")
    return history_spec(bare(task.model), names, clock=task.clock, preprocessing=about, record=record)


METHODS = {
    "graphmixer": history_method(
        "graphmixer",
        GraphMixerRun,
        build,
        summary="an MLP-Mixer over each node's most recent links",
        source="arXiv:2302.11636",
        baselines=link_baselines,
        space={"model.num_links": [10, 20, 30], "model.dropout": DYGLIB_DROPOUT},
        budget=600_000,
        export=export_spec,
    )
}
