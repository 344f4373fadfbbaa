"""Graph Mamba Networks: nodes as sequences of random-walk tokens, then all nodes of a graph as one sequence.

    tokens --local encoder--> sequence a node --blocks--> last row --blocks over nodes in order--> + Psi(G, X) --head-->

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Algorithm 1.
Deviation: LayerNorm before the head; the paper states none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from hopstate.errors import ConfigError, ShapeError, nearest
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN, READS_EDGES, MessageBlock, MessageKind, Pooling, WalkEncoder, pool
from hopstate.layers.ssm import BidirectionalMamba
from hopstate.methods.gmn.gps import GPSLayer, in_order, recomputed
from hopstate.methods.gmn.inputs import GMNInputs

Variant = Literal["gmn", "gmn-", "gps-mamba"]


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
        degrees: (N,) edges of each node of the training graph; only message passing of kind "pna" looks at them.
        recompute: make the inside of a layer of "gps-mamba" again in the backward pass instead of keeping it.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of a Graph Mamba Network.

        Args:
            variant: "gmn" in full; "gmn-" without encodings and without message passing, in tokens too (local "auto" is
                "rwf" there); "gps-mamba": layers of a message-passing block beside blocks over the nodes (no walks).
            dim: width.
            local: encoder of a token: message passing on the induced subgraph, or "rwf", random-walk features; "auto"
                is "gatedgcn".
            local_layers: message-passing blocks of the local encoder.
            walk_norm: normalise random-walk features over all steps; runs of 0.1.0 did not.
            pooling: over the rows of a token, and of graphs in graph tasks.
            token_layers: blocks over each node's tokens.
            node_layers: blocks over the nodes; in "gps-mamba", of each layer.
            mpnn: message passing whose output is added, or "none".
            mpnn_layers: its blocks; layers of "gps-mamba".
            bidirectional: False scans in one direction only.
            expand: inner width of a branch, in multiples of dim.
            state_dim: numbers of state a channel.
            conv_width: taps of the short convolution.
            dropout: in all blocks.
            input_dropout: of the features, before both embeddings.
        """

        variant: Variant = "gmn"
        dim: int = 64
        local: Literal["auto", "gatedgcn", "gcn", "gin", "gine", "sage", "rwf"] = "auto"
        local_layers: int = 1
        walk_norm: bool = True
        pooling: Pooling = "mean"
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
            for name in ("dropout", "input_dropout"):
                if not 0 <= (share := getattr(self, name)) < 1:
                    raise ConfigError(f"model.{name} lies in [0, 1); got {share}")
            if self.variant == "gps-mamba" and (self.mpnn == "none" or not self.mpnn_layers or not self.node_layers):
                raise ConfigError(
                    "model.variant=gps-mamba needs model.mpnn, and at least 1 of model.mpnn_layers (its layers) and of "
                    "model.node_layers (blocks over the nodes in each)"
                )

        @property
        def uses_mpnn(self) -> bool:
            """Whether Psi is added."""
            return self.variant == "gmn" and self.mpnn != "none" and self.mpnn_layers > 0

        def reads_edges(self, *, walks: bool = True) -> bool:
            """Return whether something in the network has a place for edge features; walks: nodes have tokens."""
            local = self.encoder == "rwf" or (self.local_layers > 0 and self.encoder in READS_EDGES)
            psi = (self.uses_mpnn or self.variant == "gps-mamba") and self.mpnn in READS_EDGES
            return psi or (walks and self.variant != "gps-mamba" and local)

        @property
        def encoder(self) -> Literal["gatedgcn", "gcn", "gin", "gine", "sage", "rwf"]:
            """What encodes a token: local, "auto" resolved."""
            if self.local == "auto":
                return "rwf" if self.variant == "gmn-" else "gatedgcn"
            return self.local

        @property
        def token_kind(self) -> Literal["subgraph", "walk"]:
            """What the local encoder reads."""
            return "walk" if self.encoder == "rwf" else "subgraph"

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
        degrees: Tensor | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        c, self.config, self.tokens, self.level, self.in_dim = config, config, tokens, level, in_dim
        self.edge_dim = edge_dim
        self.recompute, gps = recompute, c.variant == "gps-mamba"
        if gps and tokens != 1:
            raise ConfigError("model.variant=gps-mamba takes each node as one token; set walks.max_length=0")
        self.embed = nn.Linear(in_dim, c.dim)
        walks = tokens > 1
        self.local = _local_encoder(c, window, bool(edge_dim)) if walks else None
        needs_edges = walks and (c.encoder == "rwf" or (c.local_layers > 0 and c.encoder in ("gatedgcn", "gine")))
        needs_edges = edge_dim > 0 and (needs_edges or (gps and c.mpnn in READS_EDGES))
        self.embed_edge = nn.Linear(edge_dim, c.dim) if needs_edges else None
        self.token_blocks = nn.ModuleList(_block(c) for _ in range(0 if gps else c.token_layers))
        self.node_blocks = nn.ModuleList(_NodeLayer(_block(c)) for _ in range(0 if gps else c.node_layers))
        self.gps = nn.ModuleList(_gps_layers(c, edge_dim > 0, degrees) if gps else [])
        self.mpnn = _Augmentation(c, in_dim, edge_dim, degrees) if c.uses_mpnn else None
        self.norm = nn.LayerNorm(c.dim)
        width = 2 * c.dim if level == "edge" else c.dim
        self.head = nn.Sequential(nn.Linear(width, c.dim), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.dim, out_dim))

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
        return self.head(pool(y[inputs.order], inputs.sequences, self.config.pooling))

    def outputs(self, y: Tensor) -> Tensor:
        """Return (n, out_dim) of nodes from the sum of both halves, (n, dim)."""
        return self.head(self.norm(y))

    def _over_nodes(self, inputs: GMNInputs) -> Tensor:
        """Return (n, dim) after the blocks over the nodes."""
        if self.config.variant != "gps-mamba":
            return in_order(self.node_blocks, self.encode(inputs), inputs.order, inputs.sequences)
        h, e = self.encode(replace(inputs, targets=None)), self._edges(inputs)
        for layer in self.gps:
            given = (h, e, inputs.graph, inputs.order, inputs.sequences)
            h, e = recomputed(layer, *given) if self.recompute and torch.is_grad_enabled() else layer(*given)
        return h if inputs.targets is None else h[inputs.targets]

    def _edges(self, inputs: GMNInputs) -> Tensor | None:
        return None if self.embed_edge is None or inputs.edge_attr is None else self.embed_edge(inputs.edge_attr)

    def encode(self, inputs: GMNInputs) -> Tensor:
        """Return (n, dim): each node's last row after the blocks over its tokens; inputs.graph and order are not read.

        Raises:
            ShapeError: another number of features than the model was made for.
        """
        if inputs.x.shape[1] != self.in_dim:
            raise ShapeError(f"expected {self.in_dim} features a node, got {inputs.x.shape[1]}")
        h = self.embed(functional.dropout(inputs.x, self.config.input_dropout, self.training))
        if self.local is None:
            phi = h if inputs.targets is None else h[inputs.targets]
        else:
            phi = self.local(h, self._edges(inputs), inputs)[inputs.token_order]
        offsets = torch.arange(len(phi) // self.tokens + 1, device=phi.device) * self.tokens
        for block in self.token_blocks:
            phi = block(phi, offsets)
        return phi.view(-1, self.tokens, phi.shape[1])[:, -1]


class _SubgraphEncoder(nn.Module):
    """Message passing inside each token, pooled."""

    def __init__(self, c: GMN.Config, edges: bool) -> None:
        super().__init__()
        self.pooling: Pooling = c.pooling
        kind: MessageKind = c.encoder  # type: ignore[assignment]
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
        self.encoder = WalkEncoder(c.dim, window=window, edges=edges, pooling=c.pooling, norm=c.walk_norm)

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
    return _WalkTokens(c, window, edges) if c.encoder == "rwf" else _SubgraphEncoder(c, edges)


def _block(c: GMN.Config) -> BidirectionalMamba:
    return BidirectionalMamba(
        c.dim, expand=c.expand, state_dim=c.state_dim, conv_width=c.conv_width, dropout=c.dropout,
        bidirectional=c.bidirectional,
    )  # fmt: skip


class _NodeLayer(nn.Module):
    """A block over all nodes; it stands by itself for the names that weights are kept under."""

    def __init__(self, block: BidirectionalMamba) -> None:
        super().__init__()
        self.block = block

    def forward(self, y: Tensor, offsets: Tensor) -> Tensor:
        return self.block(y, offsets)


def _gps_layers(c: GMN.Config, edges: bool, degrees: Tensor | None) -> list[GPSLayer]:
    kind: MessageKind = c.mpnn  # type: ignore[assignment]
    return [
        GPSLayer(
            MessageBlock(
                kind, c.dim, edges=edges, dropout=c.dropout, last=number == c.mpnn_layers, degrees=degrees
            ),
            [_block(c) for _ in range(c.node_layers)], c.dim, c.dropout,
        )
        for number in range(1, c.mpnn_layers + 1)
    ]  # fmt: skip


class _Augmentation(nn.Module):
    """Psi(G, X || P): a linear map, then message passing over the whole graph."""

    def __init__(self, c: GMN.Config, in_dim: int, edge_dim: int, degrees: Tensor | None) -> None:
        super().__init__()
        kind: MessageKind = c.mpnn  # type: ignore[assignment]
        edges = edge_dim > 0 and kind in READS_EDGES
        self.embed, self.dropout = nn.Linear(in_dim, c.dim), nn.Dropout(c.input_dropout)
        self.embed_edge = nn.Linear(edge_dim, c.dim) if edges else None
        self.mpnn = MPNN(kind, c.dim, num_layers=c.mpnn_layers, edges=edges, dropout=c.dropout, degrees=degrees)

    def forward(self, x: Tensor, graph: Adjacency, edge_attr: Tensor | None) -> Tensor:
        e = None if self.embed_edge is None or edge_attr is None else self.embed_edge(edge_attr)
        return self.mpnn(self.embed(self.dropout(x)), graph, e)


__all__ = ["GMN", "GMNInputs"]
