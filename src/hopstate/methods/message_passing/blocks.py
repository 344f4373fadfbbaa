"""Blocks of the backbones, one per kind of layer; sources as in `model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, check_range
from hopstate.layers.message import Normalization, Propagator

Kind = Literal["mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii"]
NORMALIZATION: dict[str, Normalization | None] = {
    "mlp": None,
    "gcn": "symmetric",
    "sage": "mean",
    "gin": "sum",
    "gat": "edges",
    "pna": "edges",
    "gcnii": "symmetric",
}
ALONE = ("mlp", "gcn", "sage", "gin")  # whose layers may change the width
WITH_WEIGHTS, WITH_EDGES = ("gcn", "gcnii"), ("gin", "gat", "pna")  # what has a place for edge weights, edge features


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Settings of a backbone; the defaults are those of Platonov et al. (GCNII: of its own paper).

    Args:
        dim: hidden width.
        num_layers: residual blocks.
        dropout: probability that an element is dropped in training.
        norm: "layer", "batch" or "none", before each layer (in plain blocks after it); GCNII has none of its own.
        block: "ffn", x + W_2 GELU(conv(N(x))); "plain", x + ReLU(N(conv(x))), as TOP's authors use; "bare",
            ReLU(conv(x)), of the last one conv(x), with linear maps alone around them and no norm; or "convolutions",
            the same without the linear maps: the first takes the features and the last gives the output, as in
            torch-geometric's examples (gcn, sage, gin and mlp on the whole graph).
        jump: what the head sees: the last block ("none"), all of them joined ("cat"), their maximum ("max"), or the
            mean of a perceptron of each, what the first block receives included ("mean", as TOP's GCNII+JK).
        heads: attention heads of GAT.
        alpha, theta: GCNII's weight of the first representation, and of its identity map.
    """

    dim: int = 512
    num_layers: int = 5
    dropout: float = 0.2
    norm: Literal["layer", "batch", "none"] = "layer"
    block: Literal["ffn", "plain", "bare", "convolutions"] = "ffn"
    jump: Literal["none", "cat", "max", "mean"] = "none"
    heads: int = 8
    alpha: float = 0.1
    theta: float = 0.5

    def __post_init__(self) -> None:
        check_range("model.", least=1, dim=self.dim, heads=self.heads)
        check_range("model.", least=0, num_layers=self.num_layers)
        check_range("model.", least=0, below=1, dropout=self.dropout)
        check_range("model.", least=0, most=1, alpha=self.alpha)
        check_range("model.", above=0, theta=self.theta)
        if self.block == "convolutions" and (self.num_layers < 1 or self.jump != "none"):
            raise ConfigError(
                "model.block=convolutions has a layer at least, the last of which gives the output (model.jump=none); "
                f"got model.num_layers={self.num_layers}, model.jump={self.jump}"
            )


class ResidualBlock(nn.Module):
    """x + Dropout(W_2 GELU(Dropout(conv(N(x))))), or x + Dropout(ReLU(N(conv(x)))) where blocks are plain.

    Bare ones, and convolutions, are Dropout(ReLU(conv(x))), and the last of them conv(x).

    Args:
        kind: one of `Kind` but "gcnii".
        config: width, dropout, norm, heads.
        layer: number of the block, from 0.
        degrees: (N,) or fewer in-degrees of the training graph, for PNA.
        edge_dim: columns of the edge features; 0 where there are none.
        ends: widths that come in and go out; the configuration's where None.
    """

    def __init__(
        self,
        kind: Kind,
        config: BackboneConfig,
        layer: int = 0,
        degrees: Tensor | None = None,
        edge_dim: int = 0,
        ends: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.normalization, self.layer = normalization_of(kind, edge_dim), layer
        dim, drop = config.dim, config.dropout
        self.plain, self.bare = config.block != "ffn", config.block in ("bare", "convolutions")
        norm = "none" if self.bare else config.norm
        self.norm = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "none": nn.Identity}[norm](dim)
        self.conv = _conv(kind, config, degrees, edge_dim or None, ends or (dim, dim))
        if self.bare and layer == config.num_layers - 1:
            self.ffn = nn.Sequential()
            return
        if self.plain:
            self.ffn = nn.Sequential(nn.ReLU(), nn.Dropout(drop))
            return
        self.ffn = nn.Sequential(nn.Dropout(drop), nn.GELU(), nn.Linear(dim, dim), nn.Dropout(drop))

    def forward(self, x: Tensor, adjacency: Propagator, first: Tensor | None = None) -> Tensor:
        """Return (R, dim) after one block; the R receivers are the first rows of x."""
        z = self.received(self.sent(x), adjacency)
        return self.combined(x[: z.shape[0]], z)

    def sent(self, x: Tensor) -> Tensor:
        """Return what nodes send their neighbours."""
        return x if self.plain else self.norm(x)

    def received(self, sent: Tensor, adjacency: Propagator) -> Tensor:
        """Return (R, dim) the layer's output at the receivers of what nodes sent (S, dim)."""
        if self.normalization is None:
            return self.conv(sent)
        return adjacency.propagate(self.conv, self.normalization, self.layer, sent)

    def combined(self, x: Tensor, z: Tensor) -> Tensor:
        """Return (R, dim) the block's output from its receivers' input x and what they received, z, both (R, dim)."""
        if self.bare:
            return self.ffn(z)
        return x + self.ffn(self.norm(z) if self.plain else z)


class GCNIIBlock(nn.Module):
    """ReLU(((1 - alpha) A_hat x + alpha x_0) ((1 - beta) I + beta W)) of the dropped-out x, beta = log(1 + theta / l).

    Args:
        config: width, dropout, alpha, theta.
        layer: number of the block, from 0 (l = layer + 1).
    """

    def __init__(self, config: BackboneConfig, layer: int) -> None:
        from torch_geometric.nn import GCN2Conv

        super().__init__()
        self.normalization: Normalization = "symmetric"
        self.layer, self.drop = layer, nn.Dropout(config.dropout)
        self.conv = GCN2Conv(config.dim, config.alpha, config.theta, layer + 1, normalize=False)

    def forward(self, x: Tensor, adjacency: Propagator, first: Tensor | None = None) -> Tensor:
        """Return (R, dim) after one block; first is x_0, by default x."""
        return self.combined(x, self.received(self.sent(x), adjacency, x if first is None else first))

    def sent(self, x: Tensor) -> Tensor:
        """Return what nodes send their neighbours."""
        return self.drop(x)

    def received(self, sent: Tensor, adjacency: Propagator, first: Tensor) -> Tensor:
        """Return (R, dim) the layer's output at the receivers of what nodes sent (S, dim), first (S, dim) their x_0."""
        return adjacency.propagate(self.conv, "symmetric", self.layer, sent, first[: sent.shape[0]])

    def combined(self, x: Tensor, z: Tensor) -> Tensor:
        """Return (R, dim) the block's output from what its receivers received, z (R, dim)."""
        return z.relu()


def normalization_of(kind: str, edge_dim: int = 0) -> Normalization | None:
    """Return how a backbone's layers weigh neighbours.

    Args:
        kind: of the backbone.
        edge_dim: columns of the edge features.
    """
    return "edges" if kind == "gin" and edge_dim else NORMALIZATION[kind]


def _conv(
    kind: Kind, config: BackboneConfig, degrees: Tensor | None, edge_dim: int | None, ends: tuple[int, int]
) -> nn.Module:
    """Return the layer; where its adjacency holds the weights, it only sums."""
    dim, (before, after) = config.dim, ends
    if kind == "mlp":
        return nn.Linear(before, after)
    from torch_geometric.nn import GCNConv, GINConv, GINEConv, SAGEConv

    from hopstate.layers.edge_layers import GAT, PNA

    if kind == "gcn":
        return GCNConv(before, after, normalize=False)
    if kind == "sage":
        return SAGEConv(before, after, aggr="sum")
    if kind == "gin" and edge_dim:
        return GINEConv(nn.Linear(before, after), train_eps=True, edge_dim=edge_dim)
    if kind == "gin":
        return GINConv(nn.Linear(before, after), train_eps=True)
    if kind == "gat":
        if dim % config.heads:
            raise ConfigError(f"model.dim={dim} is not a multiple of model.heads={config.heads}")
        return GAT(dim, config.heads, edge_dim=edge_dim)
    counts = torch.bincount(torch.ones(1, dtype=torch.int64) if degrees is None else degrees.long())
    return PNA(dim, counts, edge_dim=edge_dim)


def perceptron(config: BackboneConfig) -> nn.Module:
    """Return two linear maps, as TOP's jumping knowledge has one for each layer."""
    dim = config.dim
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(dim, dim))
