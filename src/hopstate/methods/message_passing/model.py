"""Message-passing backbones in residual blocks: MLP, GCN, GraphSAGE, GIN, GAT, PNA, and GCNII.

A block is x + W_2 GELU(conv(N(x))) with dropout after both parts and N a LayerNorm, BatchNorm or nothing, or another of
`BackboneConfig.block`; conv is torch-geometric's layer, or a linear map for the MLP. GCNII's layers have their own
residuals and are ReLU(conv(x, x_0)) alone. A linear map to the hidden width comes first; the head sees the last block,
or all of them (jumping knowledge). Edge weights enter the sums of GCN and GCNII, edge features the messages of GAT, PNA
and GIN (GIN-E); the others have no place for them. Of the graph a model knows only `Adjacency.propagate`, so that the
same model runs on a whole graph and on any kind of batch.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (blocks); Kipf & Welling 2017, arXiv:1609.02907 (GCN);
Hamilton et al. 2017, arXiv:1706.02216 (GraphSAGE, mean); Xu et al. 2019, arXiv:1810.00826 (GIN); Hu et al. 2020,
arXiv:1905.12265 (GIN-E); Velickovic et al. 2018, arXiv:1710.10903 (GAT); Corso et al. 2020, arXiv:2004.05718 (PNA);
Chen et al. 2020, arXiv:2007.02133 (GCNII); Xu et al. 2018, arXiv:1806.03536 (jumping knowledge);
Shi et al. 2025 (TOP), appendix B.2 (the mean of perceptrons of all layers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, check_range, nearest
from hopstate.io.scratch import Scratch
from hopstate.layers.message import Adjacency, Normalization, Propagator
from hopstate.types import Float, shapecheck

__all__ = [
    "NORMALIZATION", "WITH_EDGES", "WITH_WEIGHTS", "Adjacency", "Backbone", "BackboneConfig", "ResidualBlock",
]  # fmt: skip

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


STEP = 4096  # rows at a time where a function of single rows is applied to all nodes
HELD = 32  # times so many rows of files are in memory, about, where they are read from their starts to their ends
Cuts = Callable[[], Iterable[tuple[np.ndarray | None, Adjacency]]]
"""Blocks that cover all nodes as receivers: rows of the graph that the adjacency's nodes are (None: all of them)."""


class Backbone(nn.Module):
    """Blocks of message passing between a linear map of the features and a linear head.

    Args:
        config: what a user chooses.
        kind: "mlp", "gcn", "sage", "gin", "gat", "pna" or "gcnii".
        in_dim: node features.
        num_classes: width of the output.
        degrees: in-degrees of the training graph; only PNA looks at them.
        edge_dim: columns of the edge features; 0 where there are none.

    Raises:
        ConfigError: an unknown kind, a width that the heads do not divide, or edge features that it has no place for.
    """

    Config = BackboneConfig

    def __init__(
        self,
        config: BackboneConfig,
        *,
        kind: str,
        in_dim: int,
        num_classes: int,
        degrees: Tensor | None = None,
        edge_dim: int = 0,
    ) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ConfigError(
                f"unknown backbone {kind!r}{nearest(kind, get_args(Kind))}; known: {', '.join(get_args(Kind))}"
            )
        if edge_dim and kind not in WITH_EDGES:
            raise ConfigError(f"{kind} has no place for edge features; {', '.join(WITH_EDGES)} have one")
        self.config, self.kind, self.edge_dim = config, kind, edge_dim
        self.normalization = normalization_of(kind, edge_dim)
        self.embed: nn.Module = nn.Sequential(nn.Linear(in_dim, config.dim), nn.Dropout(config.dropout), nn.GELU())
        if config.block == "convolutions":
            self._convolutions(in_dim, num_classes, edge_dim)
            return
        self.blocks = nn.ModuleList(
            GCNIIBlock(config, i) if kind == "gcnii" else ResidualBlock(kind, config, i, degrees, edge_dim)  # type: ignore[arg-type]
            for i in range(config.num_layers)
        )
        width = config.dim * (max(1, config.num_layers) if config.jump == "cat" else 1)
        self.norm: nn.Module = nn.LayerNorm(width)
        self.head: nn.Module = nn.Linear(width, num_classes)
        if config.block == "bare" and kind != "gcnii":
            first, last = nn.Linear(in_dim, config.dim, bias=False), nn.Linear(width, num_classes)
            for linear in (first, last):  # as the convolutions themselves begin
                nn.init.xavier_uniform_(linear.weight)
            self.embed, self.norm, self.head = nn.Sequential(first), nn.Identity(), last
        if config.jump == "mean":
            self.jumps = nn.ModuleList(perceptron(config) for _ in range(config.num_layers + 1))
            self.head = nn.Sequential(perceptron(config), self.head)

    def _convolutions(self, in_dim: int, num_classes: int, edge_dim: int) -> None:
        if self.kind not in ALONE:
            raise ConfigError(
                f"model.block=convolutions is for {', '.join(ALONE)}; {self.kind} keeps one width: give another block"
            )
        count = self.config.num_layers
        widths = [in_dim, *[self.config.dim] * (count - 1), num_classes]
        self.embed, self.norm, self.head = nn.Identity(), nn.Identity(), nn.Identity()
        self.blocks = nn.ModuleList(
            ResidualBlock(self.kind, self.config, i, None, edge_dim, (widths[i], widths[i + 1]))  # type: ignore[arg-type]
            for i in range(count)
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @shapecheck
    def forward(self, x: Float[Tensor, "node feature"], adjacency: Propagator) -> Float[Tensor, "receiver class"]:
        """Return logits of every node that the adjacency's last layer has as a receiver."""
        return self.logits(self._seen(self.embeddings(x, adjacency)))

    def _seen(self, kept: list[Tensor]) -> list[Tensor]:
        """Return what the head sees of the representations before the first block and after each."""
        return kept if self.config.jump == "mean" else kept[1:] or kept

    def embeddings(self, x: Tensor, adjacency: Propagator) -> list[Tensor]:
        """Return the representations before the first block and after each, (R_l, dim)."""
        kept = [self.embed(x)]
        for block in self.blocks:
            kept.append(block(kept[-1], adjacency, kept[0]))
        return kept

    def layerwise(self, x: Tensor, cuts: Cuts, store: Scratch | None = None) -> Tensor:
        """Return (N, C) logits exactly, layer after layer, with one block of nodes in work at a time.

        Args:
            x: (N, F) features.
            cuts: gives, each time it is called, blocks that cover all nodes (see `Cuts`).
            store: makes the arrays of a row a node; by default in memory.
        """
        store = store or Scratch()
        for _, kept in self.stages(x, cuts, store):  # noqa: B007  (the last of them is read below)
            pass
        layers, device = kept[-1:] if self.config.jump == "none" else self._seen(kept), self.device
        out = []
        for number, chunk in enumerate(zip(*(z.split(STEP) for z in layers))):
            out.append(self.logits([z.to(device) for z in chunk]).cpu())
            if number % HELD == HELD - 1:
                store.let_go(*layers)
        return torch.cat(out)

    def stages(
        self, x: Tensor, cuts: Cuts, store: Scratch | None = None
    ) -> Iterator[tuple[Tensor | None, list[Tensor]]]:
        """Yield, before every block, what all nodes send (N, dim) and representations so far; at the end (None, all).

        Without jumping knowledge only the last of the representations is kept (GCNII: and the first). See `layerwise`
        for x, store and cuts, blocks of receivers with their adjacency.
        """
        store = store or Scratch()
        device, dtype = self.device, next(self.parameters()).dtype
        kept = [_in_steps(lambda part: self.embed(part.to(dtype)), x, device, store)]
        for block in self.blocks:
            assert isinstance(block, (ResidualBlock, GCNIIBlock))
            sent = _in_steps(block.sent, kept[-1], device, store)
            yield sent, kept
            out = store(len(sent), sent.shape[1], sent.dtype)
            done = 0
            for nodes, adjacency in cuts():
                self._one_block(block, sent, kept, (nodes, adjacency.to(device)), out)
                done += adjacency.num_receivers
                if done >= HELD * STEP:  # what is sent is read all over, the others from their starts to their ends
                    store.let_go(out, *kept)
                    done = 0
            store.let_go(sent, out, *kept)
            del sent
            if self.config.jump == "none":
                kept = kept[:1] if self.kind == "gcnii" else []
            kept = [*kept, out]
        yield None, kept

    def _one_block(
        self,
        block: ResidualBlock | GCNIIBlock,
        sent: Tensor,
        kept: list[Tensor],
        cut: tuple[np.ndarray | None, Adjacency],
        out: Tensor,
    ) -> None:
        nodes, adjacency = cut
        rows = slice(None) if nodes is None else torch.from_numpy(nodes)
        receivers = adjacency.receiving().cpu()
        own = _consecutive(receivers if nodes is None else torch.from_numpy(nodes)[receivers])
        device = adjacency.indptr.device
        read = own if block.normalization is None else rows
        there = sent[read].to(device)
        if isinstance(block, GCNIIBlock):
            z = block.received(there, adjacency, kept[0][read].to(device))
        else:
            z = block.received(there, adjacency)
        out[own] = block.combined(kept[-1][own].to(device), z).cpu()

    def logits(self, layers: list[Tensor]) -> Tensor:
        """Return the head's output from the representations that it sees; only the last one counts without jump."""
        count = layers[-1].shape[0]
        if self.config.jump == "none":
            joined = layers[-1]
        elif self.config.jump == "cat":
            joined = torch.cat([z[:count] for z in layers], 1)
        elif self.config.jump == "mean":
            joined = torch.stack([jump(z[:count]) for jump, z in zip(self.jumps, layers, strict=True)]).mean(0)
        else:
            joined = torch.stack([z[:count] for z in layers]).amax(0)
        return self.head(self.norm(joined))


def _consecutive(rows: Tensor) -> Tensor | slice:
    if len(rows) and bool((rows.diff() == 1).all()):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _in_steps(function: Callable[[Tensor], Tensor], x: Tensor, device: torch.device, store: Scratch) -> Tensor:
    """Return a function of single rows of x, on the CPU, applied to a few at a time; x itself where it changes none."""
    out: Tensor | None = None
    for start in range(0, max(1, len(x)), STEP):
        chunk = x[start : start + STEP]
        made = function(chunk.to(device)).cpu()
        if made.data_ptr() == chunk.data_ptr() and made.shape == chunk.shape:
            return x
        out = store(len(x), made.shape[1], made.dtype) if out is None else out
        out[start : start + STEP] = made
        if start % (HELD * STEP) == 0:
            store.let_go(x, out)
    assert out is not None
    store.let_go(x, out)
    return out
