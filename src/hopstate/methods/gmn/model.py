"""Graph Mamba Networks: nodes as sequences of random-walk tokens, then all nodes of a graph as one sequence.

    tokens --local encoder--> sequence a node --blocks--> last row --blocks over nodes in order--> + Psi(G, X) --head-->

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Algorithm 1.
Deviation: LayerNorm before the head; the paper states none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from hopstate.errors import ConfigError, ShapeError, check_range, nearest, refuse_idle
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import (
    MPNN,
    READS_EDGES,
    MessageBlock,
    MessageKind,
    Pooling,
    Reading,
    WalkEncoder,
    pool,
    read_width,
)
from hopstate.layers.ssm import BidirectionalMamba

__all__ = ["GMN", "GMNInputs"]

Variant = Literal["gmn", "gmn-", "gps-mamba"]
Readout = Literal["last", "mean"]
Encoder = Literal["gatedgcn", "gcn", "gin", "gine", "sage", "rwf"]


@dataclass(frozen=True, kw_only=True)
class GMNConfig:
    """Settings of a Graph Mamba Network.

    Args:
        variant: "gmn": the full model. "gmn-": without encodings and message passing, also in tokens (local "auto" is
            then "rwf"). "gps-mamba": message passing in parallel with blocks over nodes, without walks.
        dim: width.
        local: token encoder: message passing on the induced subgraph, or "rwf" for random-walk features. "auto":
            "gatedgcn".
        local_layers: message-passing layers of the token encoder.
        mark_center: add a learned vector to the center node of a token, so that the encoder can distinguish it.
        pooling: pooling of token rows, and of nodes in graph tasks.
        graph_pooling: pooling of a graph's nodes. "all" concatenates mean, sum and maximum. null: same as pooling.
        input_readout: add a linear map of a graph's pooled features and encodings to its output, as in GIN's readout.
        node_token: append the node itself to its tokens (section 4.1); false keeps only walk tokens (Equation 7).
        readout: output of the token blocks: the "last" token or the "mean" of all.
        token_layers: blocks over each node's tokens.
        node_layers: blocks over the nodes, per layer in "gps-mamba".
        mpnn: message passing whose output is added, or "none".
        mpnn_layers: its layers, or the layers of "gps-mamba".
        bidirectional: scan in both directions.
        expand: inner width of a branch, in multiples of dim.
        state_dim: state size per channel.
        conv_width: kernel size of the short convolution.
        dropout: dropout in all blocks.
        input_dropout: dropout of the features before both embeddings.
    """

    variant: Variant = "gmn"
    dim: int = 64
    local: Literal["auto", "gatedgcn", "gcn", "gin", "gine", "sage", "rwf"] = "auto"
    local_layers: int = 1
    mark_center: bool = True
    pooling: Pooling = "mean"
    graph_pooling: Reading | None = None
    input_readout: bool = False
    node_token: bool = True
    readout: Readout = "last"
    token_layers: int = 1
    node_layers: int = 1
    mpnn: Literal["gatedgcn", "gcn", "gin", "gine", "pna", "sage", "none"] = "gatedgcn"
    mpnn_layers: int = 4
    bidirectional: bool = True
    expand: float = 2.0
    state_dim: int = 16
    conv_width: int = 4
    dropout: float = 0.1
    input_dropout: float = 0.0

    def __post_init__(self) -> None:
        kinds = {"variant": Variant, "pooling": Pooling, "readout": Readout}
        kinds |= {} if self.graph_pooling is None else {"graph_pooling": Reading}
        for name, kind in kinds.items():
            known = get_args(kind)
            if (value := getattr(self, name)) not in known:
                near = nearest(str(value), known)
                raise ConfigError(f"unknown model.{name} {value!r}{near}; known: {', '.join(known)}")
        check_range("model.", minimum=1, dim=self.dim, state_dim=self.state_dim)
        check_range("model.", above=0, expand=self.expand)
        check_range("model.", minimum=0, local_layers=self.local_layers, token_layers=self.token_layers)
        check_range("model.", minimum=0, node_layers=self.node_layers, mpnn_layers=self.mpnn_layers)
        check_range("model.", minimum=0, conv_width=self.conv_width)
        check_range("model.", minimum=0, below=1, dropout=self.dropout, input_dropout=self.input_dropout)
        if self.variant == "gps-mamba" and (self.mpnn == "none" or not self.mpnn_layers or not self.node_layers):
            raise ConfigError(
                "model.variant=gps-mamba needs model.mpnn, and at least 1 of model.mpnn_layers (its layers) and of "
                "model.node_layers (blocks over the nodes in each)"
            )
        why = self.variant == "gps-mamba" and "model.variant=gps-mamba has no tokens of walks"
        refuse_idle(self, mark_center=why, node_token=why, readout=why)

    @property
    def uses_mpnn(self) -> bool:
        """Whether Psi is added."""
        return self.variant == "gmn" and self.mpnn != "none" and self.mpnn_layers > 0

    @property
    def reading(self) -> Reading:
        """How a graph's rows are pooled."""
        return self.graph_pooling or self.pooling

    def reads_edges(self, *, walks: bool = True) -> bool:
        """Return whether the network reads edge features; walks: nodes have walk tokens."""
        local = self.encoder == "rwf" or (self.local_layers > 0 and self.encoder in READS_EDGES)
        psi = (self.uses_mpnn or self.variant == "gps-mamba") and self.mpnn in READS_EDGES
        return psi or (walks and self.variant != "gps-mamba" and local)

    @property
    def encoder(self) -> Encoder:
        """What encodes a token: local, "auto" resolved."""
        if self.local == "auto":
            return "rwf" if self.variant == "gmn-" else "gatedgcn"
        return self.local

    @property
    def token_kind(self) -> Literal["subgraph", "walk"]:
        """What the local encoder reads."""
        return "walk" if self.encoder == "rwf" else "subgraph"


@dataclass(frozen=True, kw_only=True)
class GMNInputs:
    """Inputs of a forward pass: N node rows in G graphs, with outputs for n of them.

    Args:
        x: (N, F) features and encodings.
        graph: adjacency over the N rows.
        edge_attr: (E, D) in the order of graph.indices, or None.
        targets: (n,) int64 rows with outputs, None for all.
        order: (n,) int64 positions in targets in sequence order, graph by graph. In "gps-mamba": all rows of x.
        sequences: (G + 1,) int64 bounds of the graphs in order.
        token_offsets: (n*K + 1,) int64 bounds of the tokens in token_nodes, None if K = 1.
        token_order: (n*K,) int64 order of the tokens in their nodes' sequences, None to keep it.
        token_nodes: rows of x for every token node or walk step.
        token_graph: induced edges of the tokens (subgraph tokens).
        token_edges: rows of edge_attr for the tokens' edges, or for the steps' edges (-1 for none).
        bits: (step, 2 * window) uint8 walk features (walk tokens).
        walks: (W + 1,) int64 bounds of walks (walk tokens).
        pairs: (B, 2) int64 positions in targets, for edge tasks.
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
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: v.to(device) for name, v in present.items() if v is not None})


def token_owners(inputs: GMNInputs, tokens: int) -> Tensor:
    """Return (n*K,) the row of x that each token belongs to."""
    assert inputs.token_offsets is not None
    node = torch.arange(inputs.token_offsets.shape[0] - 1, device=inputs.token_offsets.device) // tokens
    return node if inputs.targets is None else inputs.targets[node]


class SubgraphEncoder(nn.Module):
    """Message passing inside each token, pooled (Algorithm 1, line 14)."""

    def __init__(self, c: GMNConfig, *, edges: bool) -> None:
        super().__init__()
        self.pooling = c.pooling
        kind: MessageKind = c.encoder  # type: ignore[assignment]
        self.mpnn = MPNN(kind, c.dim, num_layers=c.local_layers, edges=edges, norm="layer")

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        """Return (token, dim) from rows of nodes (N, dim) and of edges (E, dim)."""
        assert inputs.token_graph is not None
        assert inputs.token_offsets is not None
        e = None if e is None or inputs.token_edges is None else e.index_select(0, inputs.token_edges)
        return pool(self.mpnn(h, inputs.token_graph, e, inputs.token_nodes), inputs.token_offsets, self.pooling)


class WalkFeatureEncoder(nn.Module):
    """Random-walk features of each token, pooled."""

    def __init__(self, c: GMNConfig, *, window: int, edges: bool) -> None:
        super().__init__()
        self.encoder = WalkEncoder(c.dim, window=window, edges=edges, pooling=c.pooling)

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> Tensor:
        """Return (token, dim) from rows of nodes (N, dim) and of edges (E, dim)."""
        assert inputs.token_nodes is not None
        assert inputs.token_offsets is not None
        assert inputs.bits is not None
        assert inputs.walks is not None
        if e is not None and inputs.token_edges is not None:
            none = inputs.token_edges < 0  # not along an edge: starts, and steps of walks that stay
            places = torch.where(none, e.shape[0], inputs.token_edges)
            e = torch.cat([e, e.new_zeros(1, e.shape[1])]).index_select(0, places)
        rows = h.index_select(0, inputs.token_nodes)
        return self.encoder(rows, inputs.bits, inputs.walks, inputs.token_offsets, e)


class CenterMark(nn.Module):
    """Add a learned vector to the center node in each of its tokens.

    The paper does not mention it. Without it, a pooled token does not identify its node.
    """

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__()
        self.tokens, self.vector = tokens, nn.Parameter(torch.randn(dim) / 2)

    def forward(self, h: Tensor, inputs: GMNInputs) -> tuple[Tensor, GMNInputs]:
        """Return (2N, dim) plain and marked rows, and inputs whose token_nodes point to the marked rows."""
        assert inputs.token_offsets is not None
        assert inputs.token_nodes is not None
        token_rows = inputs.token_nodes
        owner = token_owners(inputs, self.tokens)
        is_center = token_rows == torch.repeat_interleave(
            owner, inputs.token_offsets.diff(), output_size=token_rows.shape[0]
        )
        marked = torch.where(is_center, token_rows + h.shape[0], token_rows)
        return torch.cat([h, h + self.vector]), replace(inputs, token_nodes=marked)


class GPSLayer(nn.Module):
    """One layer of "gps-mamba": message passing and a scan over all nodes in parallel, then a feed-forward part.

        z = Norm(message block(h, e)) + Norm(blocks over the nodes(h))      h' = Norm(z + FFN(z))      e' of the block

    Source: Rampasek et al. 2022, arXiv:2205.12454, equations 2-5, its Transformer replaced as in arXiv:2402.08678,
    section 5.1 ("GPS + Mamba").
    Deviation: LayerNorm instead of BatchNorm; no edge states if edges have no features (relative encodings give some).
    """

    def __init__(self, c: GMNConfig, message: MessageBlock) -> None:
        super().__init__()
        dim, drop = c.dim, c.dropout
        self.message = message
        self.blocks = nn.ModuleList(_block(c) for _ in range(c.node_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.ffn = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(drop), nn.Linear(2 * dim, dim), nn.Dropout(drop)
        )

    def forward(self, h: Tensor, e: Tensor | None, inputs: GMNInputs) -> tuple[Tensor, Tensor | None]:
        """Return nodes (N, dim), and edges (E, dim) or None, after the layer."""
        local, e = self.message(h, inputs.graph, e)
        return self.joined(local, in_order(self.blocks, h, inputs.order, inputs.sequences)), e

    def joined(self, local: Tensor, everywhere: Tensor) -> Tensor:
        """Return (n, dim) from the results of the two halves for some nodes, (n, dim) each."""
        z = self.norms[0](local) + self.norms[1](everywhere)
        return self.norms[2](z + self.ffn(z))


def in_order(blocks: nn.ModuleList, y: Tensor, order: Tensor, sequences: Tensor) -> Tensor:
    """Return (n, dim): the rows of y after blocks that read them in the given order."""
    for block in blocks:
        out = block(y.index_select(0, order), sequences)
        y = torch.empty_like(out).index_copy(0, order, out)
    return y


class GMN(nn.Module):
    """Graph Mamba Network for nodes, edges or graphs.

    Args:
        config: settings of the model.
        in_dim: columns of x.
        out_dim: number of classes or targets.
        edge_dim: columns of edge_attr, 0 if there are none.
        tokens: K, tokens per node.
        window: number of earlier steps that the walk features compare with.
        level: whether an output row is a node, an edge or a graph.
        degrees: (N,) degrees of the training graph, which only message passing of kind "pna" needs.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> config = hopstate.GMN.Config(dim=16, mpnn_layers=2)
        >>> model = hopstate.GMN(config, in_dim=graph.num_features, out_dim=5, tokens=3)
        >>> model(hopstate.gmn_inputs(graph, config, max_length=2, walks=2)).shape
        torch.Size([120, 5])
    """

    Config: TypeAlias = GMNConfig

    def __init__(
        self,
        config: GMNConfig,
        *,
        in_dim: int,
        out_dim: int,
        edge_dim: int = 0,
        tokens: int = 1,
        window: int = 8,
        level: Literal["node", "edge", "graph"] = "node",
        degrees: Tensor | None = None,
    ) -> None:
        super().__init__()
        c, gps, walks = config, config.variant == "gps-mamba", tokens > 1
        self.config, self.tokens, self.level, self.in_dim, self.edge_dim = config, tokens, level, in_dim, edge_dim
        if gps and walks:
            raise ConfigError("model.variant=gps-mamba takes each node as one token; set walks.max_length=0")
        if level != "graph" and (c.graph_pooling is not None or c.input_readout):
            raise ConfigError(f"model.graph_pooling and model.input_readout read whole graphs; outputs are of {level}s")
        self.embed = nn.Linear(in_dim, c.dim)
        self.local: nn.Module | None = None
        if walks and c.encoder == "rwf":
            self.local = WalkFeatureEncoder(c, window=window, edges=edge_dim > 0)
        elif walks:
            self.local = SubgraphEncoder(c, edges=edge_dim > 0)
        self.mark = CenterMark(c.dim, tokens) if walks and c.mark_center else None
        tokens_read = walks and (c.encoder == "rwf" or (c.local_layers > 0 and c.encoder in ("gatedgcn", "gine")))
        needs_edges = edge_dim > 0 and (tokens_read or (gps and c.mpnn in READS_EDGES))
        self.embed_edge = nn.Linear(edge_dim, c.dim) if needs_edges else None
        self.token_blocks = nn.ModuleList(_block(c) for _ in range(0 if gps else c.token_layers))
        self.node_blocks = nn.ModuleList(_block(c) for _ in range(0 if gps else c.node_layers))
        self.gps = nn.ModuleList(_gps_layers(c, edge_dim > 0, degrees) if gps else [])
        self.mpnn = Augmentation(c, in_dim, edge_dim, degrees) if c.uses_mpnn else None
        self.norm = nn.LayerNorm(c.dim)
        width = {"node": c.dim, "edge": 2 * c.dim, "graph": read_width(c.dim, c.reading)}[level]
        self.head = nn.Sequential(nn.Linear(width, c.dim), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.dim, out_dim))
        self.features = nn.Linear(read_width(in_dim, c.reading), out_dim) if c.input_readout else None

    def forward(self, inputs: GMNInputs) -> Tensor:
        """Return (n, out_dim) outputs of nodes, (B, out_dim) of edges or (G, out_dim) of graphs."""
        y = self._over_nodes(inputs)
        if self.mpnn is not None:
            psi = self.mpnn(inputs.x, inputs.graph, inputs.edge_attr)
            y = y + (psi if inputs.targets is None else psi[inputs.targets])
        if self.level == "node":
            return self.outputs(y)
        y = self.norm(y)
        if self.level == "edge":
            if inputs.pairs is None:
                raise ShapeError("a model of edges needs inputs.pairs")
            return self.head(y[inputs.pairs].flatten(1))
        order, bounds, how = inputs.order, inputs.sequences, self.config.reading
        out = self.head(pool(y[order], bounds, how))
        return out if self.features is None else out + self.features(pool(inputs.x[order], bounds, how))

    def outputs(self, y: Tensor) -> Tensor:
        """Return (n, out_dim) of nodes from the sum of both halves, (n, dim)."""
        return self.head(self.norm(y))

    def _over_nodes(self, inputs: GMNInputs) -> Tensor:
        if self.config.variant != "gps-mamba":
            return in_order(self.node_blocks, self.encode(inputs), inputs.order, inputs.sequences)
        h, e = self.encode(replace(inputs, targets=None)), self._edges(inputs)
        for layer in self.gps:
            h, e = layer(h, e, inputs)
        return h if inputs.targets is None else h[inputs.targets]

    def _edges(self, inputs: GMNInputs) -> Tensor | None:
        return None if self.embed_edge is None or inputs.edge_attr is None else self.embed_edge(inputs.edge_attr)

    def encode(self, inputs: GMNInputs) -> Tensor:
        """Return (n, dim): each node's row after the blocks over its tokens; inputs.graph and order are not read."""
        if inputs.x.shape[1] != self.in_dim:
            raise ShapeError(f"expected {self.in_dim} features a node, got {inputs.x.shape[1]}")
        h = self.embed(functional.dropout(inputs.x, self.config.input_dropout, self.training))
        if self.local is None:
            phi = h if inputs.targets is None else h[inputs.targets]
        else:
            phi = self._tokens(h, inputs)
        count = self.tokens if self.local is None or self.config.node_token else self.tokens - 1
        rows = phi.view(-1, count, phi.shape[1])
        for block in self.token_blocks:
            rows = block(rows)
        return rows[:, -1] if self.config.readout == "last" else rows.mean(1)

    def _tokens(self, h: Tensor, inputs: GMNInputs) -> Tensor:
        """Return (n * K, dim), or (n * (K - 1), dim) without the nodes themselves: encoded tokens in their order."""
        assert self.local is not None
        edges = self._edges(inputs)
        if self.mark is not None:
            h, inputs = self.mark(h, inputs)
        phi = self.local(h, edges, inputs)
        phi = phi if inputs.token_order is None else phi[inputs.token_order]
        if self.config.node_token:
            return phi
        return phi.view(-1, self.tokens, phi.shape[1])[:, :-1].reshape(-1, phi.shape[1])


def _block(c: GMNConfig) -> BidirectionalMamba:
    return BidirectionalMamba(
        c.dim, expand=c.expand, state_dim=c.state_dim, conv_width=c.conv_width, dropout=c.dropout,
        bidirectional=c.bidirectional,
    )  # fmt: skip


def _gps_layers(c: GMNConfig, edges: bool, degrees: Tensor | None) -> list[GPSLayer]:
    kind: MessageKind = c.mpnn  # type: ignore[assignment]
    layers = []
    for number in range(1, c.mpnn_layers + 1):
        last = number == c.mpnn_layers
        message = MessageBlock(kind, c.dim, edges=edges, dropout=c.dropout, last=last, degrees=degrees)
        layers.append(GPSLayer(c, message))
    return layers


class Augmentation(nn.Module):
    """Psi(G, X || P): a linear map, then message passing over the whole graph."""

    def __init__(self, c: GMNConfig, in_dim: int, edge_dim: int, degrees: Tensor | None) -> None:
        super().__init__()
        kind: MessageKind = c.mpnn  # type: ignore[assignment]
        edges = edge_dim > 0 and kind in READS_EDGES
        self.embed, self.dropout = nn.Linear(in_dim, c.dim), nn.Dropout(c.input_dropout)
        self.embed_edge = nn.Linear(edge_dim, c.dim) if edges else None
        self.mpnn = MPNN(kind, c.dim, num_layers=c.mpnn_layers, edges=edges, dropout=c.dropout, degrees=degrees)

    def forward(self, x: Tensor, graph: Adjacency, edge_attr: Tensor | None) -> Tensor:
        e = None if self.embed_edge is None or edge_attr is None else self.embed_edge(edge_attr)
        return self.mpnn(self.embed(self.dropout(x)), graph, e)
