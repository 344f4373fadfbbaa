"""Message-passing backbones: MLP, GCN, GraphSAGE, GIN, GAT, PNA, GCNII, RGCN, and convolutions per relation.

A block is x + W_2 GELU(conv(N(x))) ("ffn") or ReLU(N(conv(x) + W x)) ("conv"), with dropout. N is LayerNorm, BatchNorm
or nothing, and conv is torch-geometric's layer, or a linear map for the MLP. GCNII's layers have their own residuals
and are ReLU(conv(x, x_0)). The head reads the last block, or all of them (jumping knowledge). Edge weights enter the
sums of GCN and GCNII, edge features the messages of GAT, PNA and GIN (GIN-E). Models read the graph only through
`Adjacency.propagate`. Therefore the same model runs on a whole graph and on any kind of batch.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (ffn); Luo et al., NeurIPS 2024, arXiv:2406.08993 (conv); Xu et al.
2018, arXiv:1806.03536 (jumping knowledge); Shi et al. 2025 (TOP), appendix B.2 (the mean of perceptrons of all layers).
The layers' papers are in `backbones`.
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
from hopstate.layers.mpnn import BatchNorm
from hopstate.methods.message_passing.backbones import BACKBONES, LayerSpec, get_backbone
from hopstate.types import Float, shapecheck

__all__ = ["Backbone", "BackboneConfig", "ResidualBlock"]


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Settings of a backbone; the defaults are those of Platonov et al. (GCNII: of its own paper).

    Args:
        dim: hidden width.
        num_layers: number of blocks.
        dropout: probability that an element is dropped in training.
        norm: "layer", "batch" or "none": of the input of ffn blocks, of the sum in conv blocks. GCNII has none.
        block: "ffn", x + W_2 GELU(conv(N(x))), or "conv", ReLU(N(conv(x) + W x)), as in tuned classic networks.
        residual: add x (ffn) or W x (conv) to the output of the convolution.
        pre_linear: a linear map before the first block. Otherwise the first convolution reads the features (conv only).
        jumping_knowledge: what the head sees: the last block ("none"), the sum of all ("sum"), their concatenation
            ("cat"), their maximum ("max"), or the mean of a perceptron of each, the first block's input included
            ("mean", TOP's GCNII+JK).
        heads: attention heads of GAT, also per relation.
        num_bases: basis matrices that RGCN's relations combine; null for a matrix of each relation's own.
        alpha: GCNII's weight of the first representation.
        theta: GCNII's weight matrix in layer l has the weight log(1 + theta / l).
    """

    dim: int = 512
    num_layers: int = 5
    dropout: float = 0.2
    norm: Literal["layer", "batch", "none"] = "layer"
    block: Literal["ffn", "conv"] = "ffn"
    residual: bool = True
    pre_linear: bool = True
    jumping_knowledge: Literal["none", "sum", "cat", "max", "mean"] = "none"
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
        if not self.pre_linear and (self.block != "conv" or self.num_layers < 1 or self.jumping_knowledge == "mean"):
            raise ConfigError(
                "model.pre_linear=false needs model.block=conv, a layer and another model.jumping_knowledge than mean: "
                f"got model.block={self.block}, model.num_layers={self.num_layers}, "
                f"model.jumping_knowledge={self.jumping_knowledge}"
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
    """x + Dropout(W_2 GELU(Dropout(conv(N(x))))), or Dropout(ReLU(N(conv(x) + W x))) if config.block is "conv".

    Args:
        kind: a name in `BACKBONES`.
        config: width, dropout, norm, heads.
        layer: number of the block, from 0.
        degrees: (N,) or fewer in-degrees of the training graph, for PNA.
        edge_dim: columns of the edge features; 0 without.
        in_dim: width of the input; config.dim if None.
        num_relations: relations of edges, for layers with weights per relation.
    """

    def __init__(
        self,
        kind: str,
        config: BackboneConfig,
        layer: int = 0,
        degrees: Tensor | None = None,
        edge_dim: int = 0,
        in_dim: int | None = None,
        num_relations: int = 0,
    ) -> None:
        super().__init__(kind, layer, edge_dim)
        dim, dropout = config.dim, config.dropout
        in_dim = dim if in_dim is None else in_dim
        self.norm_first = config.block == "ffn"
        self.norm = NORMS[config.norm](dim)
        self.conv = get_backbone(kind).layer(
            LayerSpec(
                config=config,
                in_dim=in_dim,
                number=layer,
                edge_dim=edge_dim,
                degrees=degrees,
                num_relations=num_relations,
            )
        )
        self.residual: nn.Module | None = None
        if config.residual:
            self.residual = nn.Identity() if self.norm_first else nn.Linear(in_dim, dim)
        if self.norm_first:
            self.ffn = nn.Sequential(nn.Dropout(dropout), nn.GELU(), nn.Linear(dim, dim), nn.Dropout(dropout))
        else:
            self.ffn = nn.Sequential(nn.ReLU(), nn.Dropout(dropout))

    def sent(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.norm_first else x

    def received(self, sent: Tensor, adjacency: Propagator, first: Tensor) -> Tensor:
        if self.normalization is None:
            return self.conv(sent)
        return adjacency.propagate(self.conv, self.normalization, self.layer, sent)

    def combined(self, x: Tensor, z: Tensor) -> Tensor:
        added = 0 if self.residual is None else self.residual(x)
        return added + self.ffn(z) if self.norm_first else self.ffn(self.norm(z + added))


class InitialResidualBlock(_Block):
    """ReLU(conv(Dropout(x), x_0)) of a layer with a residual of its own, as GCNII's.

    conv(x, x_0) = ((1 - alpha) A_hat x + alpha x_0) ((1 - beta) I + beta W) in layer l, beta = log(1 + theta / l).
    """

    def __init__(self, kind: str, config: BackboneConfig, layer: int) -> None:
        super().__init__(kind, layer)
        self.drop = nn.Dropout(config.dropout)
        self.conv = get_backbone(kind).layer(LayerSpec(config=config, in_dim=config.dim, number=layer))

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


NORMS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "batch": BatchNorm, "none": nn.Identity}
STEP = 4096  # rows at a time where a function of single rows is applied to all nodes
HELD = 32  # times so many rows of files are in memory, about, where they are read from their starts to their ends
Cuts = Callable[[], Iterable[tuple[np.ndarray | None, Adjacency]]]
"""Blocks that cover all nodes as receivers: rows of the graph that the adjacency's nodes are (None: all of them)."""


class Backbone(nn.Module):
    """Blocks of message passing between a linear map of the features and a linear head.

    Args:
        config: settings of the model.
        kind: a name in `BACKBONES`.
        in_dim: node features.
        num_classes: width of the output.
        degrees: in-degrees of the training graph; only PNA looks at them.
        edge_dim: columns of the edge features; 0 where there are none.
        num_relations: relations of edges, for layers with weights per relation. Their one edge feature is its number.

    Raises:
        ConfigError: an unknown kind, a width that the heads do not divide, or edge features that it has no place for.

    Example:
        >>> from hopstate.layers.message import Adjacency
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> config = Backbone.Config(dim=16, num_layers=2)
        >>> model = Backbone(config, kind="gcn", in_dim=graph.num_features, num_classes=5)
        >>> model(torch.from_numpy(graph.x), Adjacency.of(graph.indptr, graph.indices)).shape
        torch.Size([120, 5])
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
        self.config, self.kind, self.in_dim, self.edge_dim = config, kind, in_dim, edge_dim
        self.normalization = backbone.normalization_of(edge_dim)
        if backbone.initial_residual and not config.pre_linear:
            raise ConfigError(f"{kind} keeps one width: got model.pre_linear=false. Set it to true")
        first_dim, dropout = config.dim, nn.Dropout(config.dropout)
        if config.block == "ffn":
            self.embed: nn.Module = nn.Sequential(nn.Linear(in_dim, config.dim), dropout, nn.GELU())
        elif config.pre_linear:
            self.embed = nn.Sequential(nn.Linear(in_dim, config.dim), dropout)
        else:
            first_dim, self.embed = in_dim, nn.Identity()
        self.blocks = nn.ModuleList(
            InitialResidualBlock(kind, config, i)
            if backbone.initial_residual
            else ResidualBlock(kind, config, i, degrees, edge_dim, config.dim if i else first_dim, num_relations)
            for i in range(config.num_layers)
        )
        width = config.dim * (max(1, config.num_layers) if config.jumping_knowledge == "cat" else 1)
        self.norm: nn.Module = nn.LayerNorm(width) if config.block == "ffn" else nn.Identity()
        self.head: nn.Module = nn.Linear(width, num_classes)
        if config.jumping_knowledge == "mean":
            self.jumps = nn.ModuleList(perceptron(config) for _ in range(config.num_layers + 1))
            self.head = nn.Sequential(perceptron(config), self.head)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def sent_dims(self) -> list[int]:
        """Width of what nodes send in each block."""
        dims = [self.config.dim] * self.config.num_layers
        return dims if self.config.pre_linear else [self.in_dim, *dims[1:]]

    @shapecheck
    def forward(self, x: Float[Tensor, "node feature"], adjacency: Propagator) -> Float[Tensor, "receiver class"]:
        """Return logits of every node that the adjacency's last layer has as a receiver."""
        return self.logits(self._head_inputs(self.embeddings(x, adjacency)))

    def _head_inputs(self, states: list[Tensor]) -> list[Tensor]:
        """Return the embeddings that the head reads, given those before the first block and after each."""
        return states if self.config.jumping_knowledge == "mean" else states[1:] or states

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
        layers = states[-1:] if self.config.jumping_knowledge == "none" else self._head_inputs(states)
        device, out = self.device, []
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
            if self.config.jumping_knowledge == "none":
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
        """Return the head's output from the representations it reads: all layers, or only the last."""
        count = layers[-1].shape[0]
        if self.config.jumping_knowledge == "none":
            joined = layers[-1]
        elif self.config.jumping_knowledge == "cat":
            joined = torch.cat([z[:count] for z in layers], 1)
        elif self.config.jumping_knowledge == "mean":
            joined = torch.stack([jump(z[:count]) for jump, z in zip(self.jumps, layers, strict=True)]).mean(0)
        else:
            stacked = torch.stack([z[:count] for z in layers])
            joined = stacked.sum(0) if self.config.jumping_knowledge == "sum" else stacked.amax(0)
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
        result = function(chunk.to(device)).cpu()
        if result.data_ptr() == chunk.data_ptr() and result.shape == chunk.shape:
            return x
        out = store(len(x), result.shape[1], result.dtype) if out is None else out
        out[start : start + STEP] = result
        if start % (HELD * STEP) == 0:
            store.release_pages(x, out)
    assert out is not None
    store.release_pages(x, out)
    return out
