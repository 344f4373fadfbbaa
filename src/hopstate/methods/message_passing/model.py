"""Message-passing backbones in residual blocks: MLP, GCN, GraphSAGE, GIN, GAT, PNA, GCNII, and RGCN.

A block is x + W_2 GELU(conv(N(x))) with dropout after both parts and N a LayerNorm, BatchNorm or nothing, or another of
`BackboneConfig.block`; conv is torch-geometric's layer, or a linear map for the MLP. GCNII's layers have their own
residuals and are ReLU(conv(x, x_0)) alone. A linear map to the hidden width comes first; the head sees the last block,
or all of them (jumping knowledge). Edge weights enter the sums of GCN and GCNII, edge features the messages of GAT, PNA
and GIN (GIN-E), and relations choose the matrices of RGCN; the others have no place for them. Of the graph a model
knows only `Adjacency.propagate`, so that the same model runs on a whole graph and on any kind of batch.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (blocks); Xu et al. 2018, arXiv:1806.03536 (jumping knowledge);
Shi et al. 2025 (TOP), appendix B.2 (the mean of perceptrons of all layers). The layers' papers are in `backbones`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, check_range
from hopstate.io.scratch import Scratch
from hopstate.layers.message import Adjacency, Propagator
from hopstate.methods.message_passing.backbones import BACKBONES, LayerSpec, get_backbone
from hopstate.types import Float, shapecheck

__all__ = ["Backbone", "BackboneConfig", "ResidualBlock"]


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
        num_bases: basis matrices that RGCN's relations combine; null for a matrix of each relation's own.
        alpha, theta: GCNII's weight of the first representation, and of its identity map.
    """

    dim: int = 512
    num_layers: int = 5
    dropout: float = 0.2
    norm: Literal["layer", "batch", "none"] = "layer"
    block: Literal["ffn", "plain", "bare", "convolutions"] = "ffn"
    jump: Literal["none", "cat", "max", "mean"] = "none"
    heads: int = 8
    num_bases: int | None = None
    alpha: float = 0.1
    theta: float = 0.5

    def __post_init__(self) -> None:
        check_range("model.", minimum=1, dim=self.dim, heads=self.heads, num_bases=self.num_bases)
        check_range("model.", minimum=0, num_layers=self.num_layers)
        check_range("model.", minimum=0, below=1, dropout=self.dropout)
        check_range("model.", minimum=0, maximum=1, alpha=self.alpha)
        check_range("model.", above=0, theta=self.theta)
        if self.block == "convolutions" and (self.num_layers < 1 or self.jump != "none"):
            raise ConfigError(
                "model.block=convolutions has a layer at least, the last of which gives the output (model.jump=none); "
                f"got model.num_layers={self.num_layers}, model.jump={self.jump}"
            )


class _Block(nn.Module):
    """One layer, cut where batches need it: what nodes send, what receivers make of it, and what they become."""

    def __init__(self, kind: str, layer: int, edge_dim: int = 0) -> None:
        super().__init__()
        self.normalization, self.layer = get_backbone(kind).normalization_of(edge_dim), layer

    def forward(self, x: Tensor, adjacency: Propagator, first: Tensor | None = None) -> Tensor:
        """Return (R, dim) after one block; the R receivers are the first rows of x, and first is x_0."""
        z = self.received(self.sent(x), adjacency, x if first is None else first)
        return self.combined(x[: z.shape[0]], z)

    def sent(self, x: Tensor) -> Tensor:
        """Return what nodes send their neighbors."""
        raise NotImplementedError

    def received(self, sent: Tensor, adjacency: Propagator, first: Tensor) -> Tensor:
        """Return (R, dim) the layer's output at the receivers of what nodes sent (S, dim), first (S, dim) their x_0."""
        raise NotImplementedError

    def combined(self, x: Tensor, z: Tensor) -> Tensor:
        """Return (R, dim) the block's output from its receivers' input x and what they received, z, both (R, dim)."""
        raise NotImplementedError


class ResidualBlock(_Block):
    """x + Dropout(W_2 GELU(Dropout(conv(N(x))))), or x + Dropout(ReLU(N(conv(x)))) if blocks are plain.

    Bare ones, and convolutions, are Dropout(ReLU(conv(x))), and the last of them conv(x).

    Args:
        kind: a name in `BACKBONES`.
        config: width, dropout, norm, heads.
        layer: number of the block, from 0.
        degrees: (N,) or fewer in-degrees of the training graph, for PNA.
        edge_dim: columns of the edge features; 0 without.
        widths: in and out; the configuration's if None.
        num_relations: relations of edges, for RGCN.
    """

    def __init__(
        self,
        kind: str,
        config: BackboneConfig,
        layer: int = 0,
        degrees: Tensor | None = None,
        edge_dim: int = 0,
        widths: tuple[int, int] | None = None,
        num_relations: int = 0,
    ) -> None:
        super().__init__(kind, layer, edge_dim)
        dim, drop = config.dim, config.dropout
        self.plain, self.bare = config.block != "ffn", config.block in ("bare", "convolutions")
        norm = "none" if self.bare else config.norm
        self.norm = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "none": nn.Identity}[norm](dim)
        in_dim, out_dim = widths or (dim, dim)
        spec = LayerSpec(
            config=config,
            in_dim=in_dim,
            out_dim=out_dim,
            number=layer,
            edge_dim=edge_dim,
            degrees=degrees,
            num_relations=num_relations,
        )
        self.conv = get_backbone(kind).layer(spec)
        if self.bare and layer == config.num_layers - 1:
            self.ffn = nn.Sequential()
        elif self.plain:
            self.ffn = nn.Sequential(nn.ReLU(), nn.Dropout(drop))
        else:
            self.ffn = nn.Sequential(nn.Dropout(drop), nn.GELU(), nn.Linear(dim, dim), nn.Dropout(drop))

    def sent(self, x: Tensor) -> Tensor:
        return x if self.plain else self.norm(x)

    def received(self, sent: Tensor, adjacency: Propagator, first: Tensor) -> Tensor:
        if self.normalization is None:
            return self.conv(sent)
        return adjacency.propagate(self.conv, self.normalization, self.layer, sent)

    def combined(self, x: Tensor, z: Tensor) -> Tensor:
        if self.bare:
            return self.ffn(z)
        return x + self.ffn(self.norm(z) if self.plain else z)


class InitialResidualBlock(_Block):
    """ReLU(conv(Dropout(x), x_0)) of a layer with a residual of its own, as GCNII's.

    conv(x, x_0) = ((1 - alpha) A_hat x + alpha x_0) ((1 - beta) I + beta W) in layer l, beta = log(1 + theta / l).
    """

    def __init__(self, kind: str, config: BackboneConfig, layer: int) -> None:
        super().__init__(kind, layer)
        self.drop = nn.Dropout(config.dropout)
        spec = LayerSpec(config=config, in_dim=config.dim, out_dim=config.dim, number=layer)
        self.conv = get_backbone(kind).layer(spec)

    def sent(self, x: Tensor) -> Tensor:
        return self.drop(x)

    def received(self, sent: Tensor, adjacency: Propagator, first: Tensor) -> Tensor:
        assert self.normalization is not None
        return adjacency.propagate(self.conv, self.normalization, self.layer, sent, first[: sent.shape[0]])

    def combined(self, x: Tensor, z: Tensor) -> Tensor:
        return z.relu()


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
        kind: a name in `BACKBONES`.
        in_dim: node features.
        num_classes: width of the output.
        degrees: in-degrees of the training graph; only PNA looks at them.
        edge_dim: columns of the edge features; 0 where there are none.
        num_relations: relations of edges, for RGCN, whose one edge feature is the relation's number.

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
        num_relations: int = 0,
    ) -> None:
        super().__init__()
        backbone = get_backbone(kind)
        if edge_dim and backbone.edges not in ("features", "relations"):
            able = ", ".join(name for name, other in BACKBONES.items() if other.edges == "features")
            raise ConfigError(f"{kind} has no place for edge features; {able} have one")
        self.config, self.kind, self.edge_dim = config, kind, edge_dim
        self.normalization = backbone.normalization_of(edge_dim)
        self.embed: nn.Module = nn.Sequential(nn.Linear(in_dim, config.dim), nn.Dropout(config.dropout), nn.GELU())
        if config.block == "convolutions":
            self._convolutions(in_dim, num_classes, edge_dim, num_relations)
            return
        self.blocks = nn.ModuleList(
            InitialResidualBlock(kind, config, i)
            if backbone.initial_residual
            else ResidualBlock(kind, config, i, degrees, edge_dim, num_relations=num_relations)
            for i in range(config.num_layers)
        )
        width = config.dim * (max(1, config.num_layers) if config.jump == "cat" else 1)
        self.norm: nn.Module = nn.LayerNorm(width)
        self.head: nn.Module = nn.Linear(width, num_classes)
        if config.block == "bare" and not backbone.initial_residual:
            first, last = nn.Linear(in_dim, config.dim, bias=False), nn.Linear(width, num_classes)
            for linear in (first, last):  # as the convolutions themselves begin
                nn.init.xavier_uniform_(linear.weight)
            self.embed, self.norm, self.head = nn.Sequential(first), nn.Identity(), last
        if config.jump == "mean":
            self.jumps = nn.ModuleList(perceptron(config) for _ in range(config.num_layers + 1))
            self.head = nn.Sequential(perceptron(config), self.head)

    def _convolutions(self, in_dim: int, num_classes: int, edge_dim: int, num_relations: int) -> None:
        if not BACKBONES[self.kind].changes_width:
            able = ", ".join(name for name, kind in BACKBONES.items() if kind.changes_width)
            raise ConfigError(
                f"model.block=convolutions is for {able}; {self.kind} keeps one width: give another block"
            )
        count = self.config.num_layers
        widths = [in_dim, *[self.config.dim] * (count - 1), num_classes]
        self.embed, self.norm, self.head = nn.Identity(), nn.Identity(), nn.Identity()
        self.blocks = nn.ModuleList(
            ResidualBlock(self.kind, self.config, i, None, edge_dim, (widths[i], widths[i + 1]), num_relations)
            for i in range(count)
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @shapecheck
    def forward(self, x: Float[Tensor, "node feature"], adjacency: Propagator) -> Float[Tensor, "receiver class"]:
        """Return logits of every node that the adjacency's last layer has as a receiver."""
        return self.logits(self._head_inputs(self.embeddings(x, adjacency)))

    def _head_inputs(self, states: list[Tensor]) -> list[Tensor]:
        """Return the embeddings that the head reads, given those before the first block and after each."""
        return states if self.config.jump == "mean" else states[1:] or states

    def embeddings(self, x: Tensor, adjacency: Propagator) -> list[Tensor]:
        """Return the embeddings before the first block and after each, (R_l, dim)."""
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1], adjacency, states[0]))
        return states

    def layerwise(self, x: Tensor, cuts: Cuts, store: Scratch | None = None) -> Tensor:
        """Return exact (N, C) logits, computed layer by layer in blocks of nodes.

        Args:
            x: (N, F) features.
            cuts: returns, on each call, blocks that cover all nodes (see `Cuts`).
            store: allocates arrays with one row per node, in memory by default.
        """
        store = store or Scratch()
        for _, states in self.stages(x, cuts, store):  # noqa: B007  (the last of them is read below)
            pass
        layers, device = states[-1:] if self.config.jump == "none" else self._head_inputs(states), self.device
        out = []
        for number, chunk in enumerate(zip(*(z.split(STEP) for z in layers))):
            out.append(self.logits([z.to(device) for z in chunk]).cpu())
            if number % HELD == HELD - 1:
                store.release_pages(*layers)
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
        states = [_in_steps(lambda part: self.embed(part.to(dtype)), x, device, store)]
        for block in self.blocks:
            assert isinstance(block, _Block)
            sent = _in_steps(block.sent, states[-1], device, store)
            yield sent, states
            out = store(len(sent), sent.shape[1], sent.dtype)
            done = 0
            for nodes, adjacency in cuts():
                self._apply_block(block, sent, states, (nodes, adjacency.to(device)), out)
                done += adjacency.num_receivers
                if done >= HELD * STEP:  # what is sent is read all over, the others from their starts to their ends
                    store.release_pages(out, *states)
                    done = 0
            store.release_pages(sent, out, *states)
            del sent
            if self.config.jump == "none":
                states = states[:1] if isinstance(block, InitialResidualBlock) else []
            states = [*states, out]
        yield None, states

    def _apply_block(
        self,
        block: _Block,
        sent: Tensor,
        states: list[Tensor],
        cut: tuple[np.ndarray | None, Adjacency],
        out: Tensor,
    ) -> None:
        nodes, adjacency = cut
        rows = slice(None) if nodes is None else torch.from_numpy(nodes)
        receivers = adjacency.receiver_ids().cpu()
        block_rows = _consecutive(receivers if nodes is None else torch.from_numpy(nodes)[receivers])
        device = adjacency.indptr.device
        read = block_rows if block.normalization is None else rows
        sent_rows = sent[read].to(device)
        first_rows = states[0][read].to(device) if isinstance(block, InitialResidualBlock) else sent_rows
        z = block.received(sent_rows, adjacency, first_rows)
        out[block_rows] = block.combined(states[-1][block_rows].to(device), z).cpu()

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
            store.release_pages(x, out)
    assert out is not None
    store.release_pages(x, out)
    return out
