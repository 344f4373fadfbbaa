"""Graph Mamba Networks: nodes as sequences of random-walk tokens, then all nodes of a graph as one sequence.

    tokens --local encoder--> sequence a node --blocks--> last row --blocks over nodes in order--> + Psi(G, X) --head-->

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Algorithm 1.
Deviation: LayerNorm before the head; the paper states none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from hopstate.errors import ConfigError, ShapeError
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN, READS_EDGES, MessageBlock, MessageKind, pool, read_width
from hopstate.layers.ssm import BidirectionalMamba
from hopstate.methods.gmn.config import GMNConfig
from hopstate.methods.gmn.gps import GPSLayer, in_order, recomputed
from hopstate.methods.gmn.inputs import GMNInputs
from hopstate.methods.gmn.local import OwnMark, local_encoder


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
        self.local = local_encoder(c, window, bool(edge_dim), tokens) if walks else None
        self.mark = OwnMark(c.dim, tokens) if walks and c.mark else None
        needs_edges = walks and (c.encoder == "rwf" or (c.local_layers > 0 and c.encoder in ("gatedgcn", "gine")))
        needs_edges = edge_dim > 0 and (needs_edges or (gps and c.mpnn in READS_EDGES))
        self.embed_edge = nn.Linear(edge_dim, c.dim) if needs_edges else None
        self.token_blocks = nn.ModuleList(_block(c) for _ in range(0 if gps else c.token_layers))
        self.node_blocks = nn.ModuleList(_NodeLayer(_block(c)) for _ in range(0 if gps else c.node_layers))
        self.gps = nn.ModuleList(_gps_layers(c, edge_dim > 0, degrees) if gps else [])
        self.mpnn = _Augmentation(c, in_dim, edge_dim, degrees) if c.uses_mpnn else None
        self.norm = nn.LayerNorm(c.dim)
        if level != "graph" and (c.graph_pooling is not None or c.features_out):
            raise ConfigError(f"model.graph_pooling and model.features_out read whole graphs; outputs are of {level}s")
        width = {"node": c.dim, "edge": 2 * c.dim, "graph": read_width(c.dim, c.reading)}[level]
        self.head = nn.Sequential(nn.Linear(width, c.dim), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.dim, out_dim))
        self.features = nn.Linear(read_width(in_dim, c.reading), out_dim) if c.features_out else None

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
        return self.of_graphs(y, inputs.x, lambda rows: pool(rows[order], bounds, how))

    def outputs(self, y: Tensor) -> Tensor:
        """Return (n, out_dim) of nodes from the sum of both halves, (n, dim)."""
        return self.head(self.norm(y))

    def of_graphs(self, y: Tensor, x: Tensor, pooled: Callable[[Tensor], Tensor]) -> Tensor:
        """Return (G, out_dim) from y after the norm, and x, the features; pooled makes a row a graph of either."""
        out = self.head(pooled(y))
        return out if self.features is None else out + self.features(pooled(x))

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
        """Return (n, dim): each node's row after the blocks over its tokens; inputs.graph and order are not read.

        Raises:
            ShapeError: another number of features than the model was made for.
        """
        if inputs.x.shape[1] != self.in_dim:
            raise ShapeError(f"expected {self.in_dim} features a node, got {inputs.x.shape[1]}")
        h = self.embed(functional.dropout(inputs.x, self.config.input_dropout, self.training))
        if self.local is None:
            phi = h if inputs.targets is None else h[inputs.targets]
        else:
            phi = self._tokens(h, inputs)
        count = self.tokens if self.local is None or self.config.own_token else self.tokens - 1
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
        if self.config.own_token:
            return phi
        return phi.view(-1, self.tokens, phi.shape[1])[:, :-1].reshape(-1, phi.shape[1])


def _block(c: GMNConfig) -> BidirectionalMamba:
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


def _gps_layers(c: GMNConfig, edges: bool, degrees: Tensor | None) -> list[GPSLayer]:
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


__all__ = ["GMN", "GMNInputs"]
