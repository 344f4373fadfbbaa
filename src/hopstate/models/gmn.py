"""Graph Mamba Networks: nodes as sequences of random-walk tokens, then all nodes of a graph as one sequence.

    tokens --local encoder--> sequence a node --blocks--> last row --blocks over nodes in order--> + Psi(G, X) --head-->

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Algorithm 1; GPS layer: Rampasek et al. 2022, arXiv:2205.12454.
Deviation: LayerNorm before the head; the paper states none. In a GPS layer the two halves are normalised apart and
added, then a feed-forward part follows, as in GPS.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, nearest
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN, MessageBlock, MessageKind, Pooling, WalkEncoder, pool
from hopstate.layers.ssm import BidirectionalMamba

Variant = Literal["gmn", "gmn-", "gps-mamba"]


@dataclass(frozen=True, kw_only=True)
class GMNInputs:
    """What a forward pass reads: N node rows, n of which are asked for, in G sequences (graphs).

    Args:
        x: (N, F) features and encodings.
        graph: adjacency over the N rows.
        edge_attr: (E, D) in the order of graph.indices, or None.
        targets: (n,) int64 rows asked for; None asks for all.
        order: (n,) int64 positions in targets, graph after graph, in the order of the node sequence.
        sequences: (G + 1,) int64 bounds of the graphs in order.
        token_offsets: (n*K + 1,) int64 bounds of the tokens in token_nodes; None where K = 1.
        token_order: (n*K,) int64, the tokens in the order of their nodes' sequences.
        token_nodes: rows of x, of every token node or every walk step.
        token_graph: the tokens' induced edges (subgraph tokens).
        token_edges: rows of edge_attr of the tokens' edges, or of the steps' edges (-1 for none).
        bits: (step, 2 * window) uint8 and walks: (W + 1,) int64 bounds of walks (walk tokens).
        pairs: (B, 2) int64 positions in targets, for tasks on edges.
    """

    x: Tensor
    graph: Adjacency
    order: Tensor
    sequences: Tensor
    edge_attr: Tensor | None = None
    targets: Tensor | None = None
    token_offsets: Tensor | None = None
    token_order: Tensor | None = None
    token_nodes: Tensor | None = None
    token_graph: Adjacency | None = None
    token_edges: Tensor | None = None
    bits: Tensor | None = None
    walks: Tensor | None = None
    pairs: Tensor | None = None

    def to(self, device: torch.device | str) -> GMNInputs:
        """Return the inputs on a device."""
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: v.to(device) for name, v in present.items() if v is not None})


class GMN(nn.Module):
    """Graph Mamba Network for nodes, edges or graphs.

    Args:
        config: what a user chooses.
        in_dim: columns of x.
        out_dim: classes or targets.
        edge_dim: columns of edge_attr, 0 where there is none.
        tokens: K, tokens of a node.
        window: steps back of the walk features' bits.
        level: what an output row stands for.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of a Graph Mamba Network.

        Args:
            variant: "gmn" in full; "gmn-" without encodings and without the MPNN; "gps-mamba": layers of an MPNN block
                beside a Mamba block over the nodes (no walks).
            dim: width.
            local: encoder of a token: message passing on the induced subgraph, or "rwf", random-walk features.
            local_layers: message-passing blocks of the local encoder.
            pooling: over the rows of a token, and of graphs in graph tasks.
            token_layers: blocks over each node's tokens.
            node_layers: blocks over the nodes; layers of "gps-mamba".
            mpnn: message passing whose output is added, or "none".
            mpnn_layers: its blocks.
            bidirectional: False scans in one direction only.
            expand: inner width of a branch, in multiples of dim.
            state_dim: numbers of state a channel.
            conv_width: taps of the short convolution.
            dropout: in all blocks.
        """

        variant: Variant = "gmn"
        dim: int = 64
        local: Literal["gatedgcn", "gcn", "gin", "gine", "sage", "rwf"] = "gatedgcn"
        local_layers: int = 1
        pooling: Pooling = "mean"
        token_layers: int = 1
        node_layers: int = 1
        mpnn: Literal["gatedgcn", "gcn", "gin", "gine", "sage", "none"] = "gatedgcn"
        mpnn_layers: int = 4
        bidirectional: bool = True
        expand: float = 2.0
        state_dim: int = 16
        conv_width: int = 4
        dropout: float = 0.1

        def __post_init__(self) -> None:
            for name, known in (("variant", get_args(Variant)), ("pooling", get_args(Pooling))):
                if (value := getattr(self, name)) not in known:
                    raise ConfigError(
                        f"unknown model.{name} {value!r}{nearest(value, known)}; known: {', '.join(known)}"
                    )
            if min(self.dim, self.state_dim) < 1 or self.expand <= 0:
                raise ConfigError("model.dim and model.state_dim must be at least 1 and model.expand above 0")
            counts = (self.local_layers, self.token_layers, self.node_layers, self.mpnn_layers, self.conv_width)
            if min(counts) < 0:
                raise ConfigError("model's numbers of layers and conv_width must not be negative")
            if not 0 <= self.dropout < 1:
                raise ConfigError(f"model.dropout lies in [0, 1); got {self.dropout}")
            if self.variant == "gps-mamba" and (self.mpnn == "none" or not self.node_layers):
                raise ConfigError("model.variant=gps-mamba needs model.mpnn and at least one of model.node_layers")

        @property
        def uses_mpnn(self) -> bool:
            """Whether Psi is added."""
            return self.variant == "gmn" and self.mpnn != "none" and self.mpnn_layers > 0

        @property
        def token_kind(self) -> Literal["subgraph", "walk"]:
            """What the local encoder reads."""
            return "walk" if self.local == "rwf" else "subgraph"

    def __init__(
        self,
        config: Config,
        *,
        in_dim: int,
        out_dim: int,
        edge_dim: int = 0,
        tokens: int = 1,
        window: int = 8,
        level: Literal["node", "edge", "graph"] = "node",
    ) -> None:
        super().__init__()
        c, self.config, self.tokens, self.level, self.in_dim = config, config, tokens, level, in_dim
        if c.variant == "gps-mamba" and tokens != 1:
            raise ConfigError("model.variant=gps-mamba takes each node as one token; set tokens.max_length=0")
        self.embed = nn.Linear(in_dim, c.dim)
        walks = tokens > 1
        self.local = _local_encoder(c, window, bool(edge_dim)) if walks else None
        needs_edges = walks and (c.local == "rwf" or (c.local_layers > 0 and c.local in ("gatedgcn", "gine")))
        needs_edges = edge_dim > 0 and (needs_edges or (c.variant == "gps-mamba" and c.mpnn in ("gatedgcn", "gine")))
        self.embed_edge = nn.Linear(edge_dim, c.dim) if needs_edges else None
        self.token_blocks = nn.ModuleList(_block(c) for _ in range(0 if c.variant == "gps-mamba" else c.token_layers))
        layer = GPSLayer if c.variant == "gps-mamba" else _NodeLayer
        self.node_blocks = nn.ModuleList(layer(c, bool(edge_dim), i == c.node_layers - 1) for i in range(c.node_layers))
        self.mpnn = _Augmentation(c, in_dim, edge_dim) if c.uses_mpnn else None
        self.norm = nn.LayerNorm(c.dim)
        width = 2 * c.dim if level == "edge" else c.dim
        self.head = nn.Sequential(nn.Linear(width, c.dim), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.dim, out_dim))

    def forward(self, inputs: GMNInputs) -> Tensor:
        """Return (n, out_dim) outputs of nodes, (B, out_dim) of edges or (G, out_dim) of graphs."""
        if inputs.x.shape[1] != self.in_dim:
            raise ShapeError(f"expected {self.in_dim} features a node, got {inputs.x.shape[1]}")
        h = self.embed(inputs.x)
        e = None if self.embed_edge is None or inputs.edge_attr is None else self.embed_edge(inputs.edge_attr)
        y = self._from_tokens(h, e, inputs)
        for block in self.node_blocks:
            y = block(y, e, inputs)
        if self.mpnn is not None:
            psi = self.mpnn(inputs.x, inputs.graph, inputs.edge_attr)
            y = y + (psi if inputs.targets is None else psi[inputs.targets])
        y = self.norm(y)
        if self.level == "edge":
            if inputs.pairs is None:
                raise ShapeError("a model of edges needs inputs.pairs")
            y = y[inputs.pairs].flatten(1)
        elif self.level == "graph":
            y = pool(y[inputs.order], inputs.sequences, self.config.pooling)
        return self.head(y)

    def _from_tokens(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        """Return (n, dim): each node's last row after the blocks over its tokens."""
        if self.local is None:
            phi = h if inputs.targets is None else h[inputs.targets]
        else:
            phi = self.local(h, e, inputs)[inputs.token_order]
        offsets = torch.arange(len(phi) // self.tokens + 1, device=phi.device) * self.tokens
        for block in self.token_blocks:
            phi = block(phi, offsets)
        return phi.view(-1, self.tokens, phi.shape[1])[:, -1]


class _SubgraphEncoder(nn.Module):
    """Message passing inside each token, pooled."""

    def __init__(self, c: GMN.Config, edges: bool) -> None:
        super().__init__()
        self.pooling: Pooling = c.pooling
        kind: MessageKind = c.local  # type: ignore[assignment]
        self.mpnn = MPNN(kind, c.dim, num_layers=c.local_layers, edges=edges, norm="layer")

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        assert inputs.token_graph is not None
        assert inputs.token_offsets is not None
        e = None if e is None or inputs.token_edges is None else e.index_select(0, inputs.token_edges)
        return pool(self.mpnn(h, inputs.token_graph, e, inputs.token_nodes), inputs.token_offsets, self.pooling)


class _WalkTokens(nn.Module):
    """Random-walk features of each token."""

    def __init__(self, c: GMN.Config, window: int, edges: bool) -> None:
        super().__init__()
        self.encoder = WalkEncoder(c.dim, window=window, edges=edges, pooling=c.pooling)

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        assert inputs.token_nodes is not None
        assert inputs.bits is not None
        assert inputs.walks is not None
        assert inputs.token_offsets is not None
        if e is not None and inputs.token_edges is not None:
            came = (inputs.token_edges >= 0).nonzero()[:, 0]  # not along an edge: starts, and steps of walks that stay
            taken = e.index_select(0, inputs.token_edges[came])
            e = e.new_zeros(len(inputs.token_edges), e.shape[1]).index_copy(0, came, taken)
        rows = h.index_select(0, inputs.token_nodes)
        return self.encoder(rows, inputs.bits, inputs.walks, inputs.token_offsets, e)


def _local_encoder(c: GMN.Config, window: int, edges: bool) -> nn.Module:
    return _WalkTokens(c, window, edges) if c.local == "rwf" else _SubgraphEncoder(c, edges)


def _block(c: GMN.Config) -> BidirectionalMamba:
    return BidirectionalMamba(
        c.dim, expand=c.expand, state_dim=c.state_dim, conv_width=c.conv_width, dropout=c.dropout,
        bidirectional=c.bidirectional,
    )  # fmt: skip


class _NodeLayer(nn.Module):
    """A block over all nodes of each graph, in order."""

    def __init__(self, c: GMN.Config, edges: bool, last: bool) -> None:
        super().__init__()
        self.block = _block(c)

    def forward(self, y: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        out = self.block(y.index_select(0, inputs.order), inputs.sequences)
        return torch.empty_like(out).index_copy(0, inputs.order, out)


class GPSLayer(nn.Module):
    """Norm(MPNN block(h)) + Norm(Mamba block over the nodes(h)), then z + FFN(z)."""

    def __init__(self, c: GMN.Config, edges: bool, last: bool) -> None:
        super().__init__()
        kind: MessageKind = c.mpnn  # type: ignore[assignment]
        self.message = MessageBlock(kind, c.dim, edges=edges, dropout=c.dropout, last=True)
        self.nodes = _NodeLayer(c, edges, last)
        self.norms = nn.ModuleList(nn.LayerNorm(c.dim) for _ in range(2))
        self.ffn = nn.Sequential(
            nn.Linear(c.dim, 2 * c.dim), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(2 * c.dim, c.dim),
            nn.Dropout(c.dropout),
        )  # fmt: skip

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        """Return (N, dim) of node rows h (N, dim) and edge rows e, over the graph and the order of inputs."""
        if inputs.targets is not None:
            raise ShapeError("gps-mamba works on whole graphs: all rows are targets")
        z = self.norms[0](self.message(h, inputs.graph, e)[0]) + self.norms[1](self.nodes(h, e, inputs))
        return z + self.ffn(z)


class _Augmentation(nn.Module):
    """Psi(G, X || P): a linear map, then message passing over the whole graph."""

    def __init__(self, c: GMN.Config, in_dim: int, edge_dim: int) -> None:
        super().__init__()
        kind: MessageKind = c.mpnn  # type: ignore[assignment]
        edges = edge_dim > 0 and kind in ("gatedgcn", "gine")
        self.embed = nn.Linear(in_dim, c.dim)
        self.embed_edge = nn.Linear(edge_dim, c.dim) if edges else None
        self.mpnn = MPNN(kind, c.dim, num_layers=c.mpnn_layers, edges=edges, dropout=c.dropout)

    def forward(self, x: Tensor, graph: Adjacency, edge_attr: Tensor | None) -> Tensor:
        e = None if self.embed_edge is None or edge_attr is None else self.embed_edge(edge_attr)
        return self.mpnn(self.embed(x), graph, e)


__all__ = ["GMN", "GMNInputs", "GPSLayer"]
