"""The networks that are compared where labels stand far away, each of at most so many parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN
from hopstate.methods.gmn.batches import token_inputs
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.tokens import WalkSettings, token_order, walk_tokens
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.ops.propagate import hop_powers
from hopstate.ops.walks import WalkTable


class Block(Protocol):
    """Nodes and symmetric edges that a network is asked over.

    reach: hops to what an asked node must know; ends: that a walk of so many steps may come to; x: of the nodes, in the
    last two dimensions; rows: the asked nodes; marks: (E, 1) of the edges, or None; parts: of which each node is.
    """

    reach: int
    ends: int
    classes: int
    x: Tensor
    rows: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    marks: Tensor | None

    @property
    def adjacency(self) -> Adjacency: ...

    @property
    def edge_index(self) -> Tensor: ...

    @property
    def parts(self) -> Tensor: ...


def token_config(dim: int, **options: Any) -> GMN.Config:
    """Return the settings of a GMN of tokens alone: the nodes visited, pooled by their maximum."""
    return GMN.Config(**{
        "dim": dim, "mpnn": "none", "local": "gin", "local_layers": 0, "pooling": "max",
        "readout": "mean", "expand": 1.0, "state_dim": 8, "dropout": 0.0, **options,
    })  # fmt: skip


class Tokens(nn.Module):
    """A GMN of tokens alone over the asked nodes of a block."""

    def __init__(self, block: Block, dim: int, **options: Any) -> None:
        super().__init__()
        walks = 4 * block.ends
        self.walks = WalkSettings(max_length=block.reach, repeats=1, walks=walks, p=1e6, lengths="doubling")
        self.gmn = GMN(
            token_config(dim, **options), in_dim=block.x.shape[-1], out_dim=block.classes, tokens=self.walks.tokens
        )
        self.table, self.rows, self.adjacency = WalkTable.of(block.indptr, block.indices), block.rows, block.adjacency
        self.drawn = 0

    def forward(self, number: int, x: Tensor) -> Tensor:
        self.drawn += self.training
        count, kind = len(self.rows), self.gmn.config.token_kind
        tokens = walk_tokens(
            self.table, self.rows, self.walks, kind=kind, seed=self.drawn if self.training else -number
        )
        return self.gmn(GMNInputs(
            x=x, graph=self.adjacency, targets=torch.from_numpy(self.rows), order=torch.arange(count),
            sequences=torch.tensor([0, count]), token_order=token_order(count, self.walks, None),
            **token_inputs(tokens),
        ))  # fmt: skip


class Messages(nn.Module):
    """Message passing over a block, of as many layers as the range; an embedding before it and a head after it.

    Marks of edges, where there are any, are edge features of GatedGCN and GPS, and weights in GCNII and SGFormer.
    """

    def __init__(self, block: Block, dim: int, kind: str) -> None:
        super().__init__()
        self.kind, width, layers = kind, block.x.shape[-1], block.reach
        self.over(block)
        edges = self.marks is not None
        self.embed, self.head = nn.Linear(width, dim), nn.Linear(dim, block.classes)
        self.embed_edge = nn.Linear(1, dim) if edges and kind == "gatedgcn" else None
        if kind == "gatedgcn":
            self.layers: nn.Module = MPNN("gatedgcn", dim, num_layers=layers, edges=edges)
        elif kind == "gcnii":
            config = Backbone.Config(dim=dim, num_layers=layers, dropout=0.0)
            self.layers = Backbone(config, kind="gcnii", in_dim=dim, num_classes=dim)
        elif kind == "sgformer":
            from torch_geometric.nn.models import SGFormer

            options = {"gnn_num_layers": layers, "trans_dropout": 0.0, "gnn_dropout": 0.0}
            self.layers = SGFormer(width, dim, block.classes, **options)
            self.embed, self.head = nn.Identity(), nn.Identity()
        else:
            from torch_geometric.nn import GPSConv, ResGatedGraphConv

            attention = {"attn_type": "performer", "attn_kwargs": {"head_channels": max(2, dim // 4)}}
            own = {"edge_dim": 1} if edges else {}
            self.layers = nn.ModuleList(
                GPSConv(dim, ResGatedGraphConv(dim, dim, **own), heads=4, **attention) for _ in range(layers)
            )

    def over(self, block: Block) -> None:
        """Take another block's nodes and edges."""
        self.rows, self.adjacency, self.marks = torch.from_numpy(block.rows), block.adjacency, block.marks
        self.edges, self.parts = block.edge_index, block.parts

    def forward(self, number: int, x: Tensor) -> Tensor:
        h, marks = self.embed(x), self.marks
        if self.kind == "gatedgcn":
            h = self.layers(h, self.adjacency, None if self.embed_edge is None else self.embed_edge(marks))
        elif self.kind == "gcnii":
            h = self.layers(h, self.adjacency)
        elif self.kind == "sgformer":
            edges = self.edges
            if marks is not None:  # the only way to give its GCN weights
                edges = torch.sparse_coo_tensor(self.edges.flip(0), marks[:, 0], (len(x), len(x))).to_sparse_csr()
            h = self.layers(h, edges, torch.zeros_like(self.parts))
        else:
            own = {} if marks is None else {"edge_attr": marks}
            for layer in self.layers:
                h = layer(h, self.edges, self.parts if self.kind == "gps, own graphs" else None, **own)
        return self.head(h[self.rows])


class Hops(nn.Module):
    """NAGphormer on the hop averages of the asked nodes, made once for every block."""

    def __init__(self, block: Block, dim: int) -> None:
        super().__init__()
        config = NAGphormer.Config(dim=dim, num_heads=4, dropout=0.0, attention_dropout=0.0)
        self.net = NAGphormer(config, in_dim=block.x.shape[-1], num_classes=block.classes, num_hops=block.reach)
        self.rows, self.made, self.block = torch.from_numpy(block.rows), {}, block

    def forward(self, number: int, x: Tensor) -> Tensor:
        if number not in self.made:
            hops = np.zeros((len(x), self.block.reach + 1, x.shape[1]), np.float32)
            hops[:, 0] = x.numpy()
            hop_powers(self.block.indptr, self.block.indices, hops)
            self.made[number] = torch.from_numpy(hops)[self.rows]
        return self.net(self.made[number])


def network(method: str, block: Block, parameters: int) -> nn.Module:
    """Return the widest network of a method with at most so many parameters (or its narrowest)."""
    makers: dict[str, Callable[[int], nn.Module]] = {
        "gmn": lambda dim: Tokens(block, dim), "nagphormer": lambda dim: Hops(block, dim),
    }  # fmt: skip
    return widest(makers.get(method, lambda dim: Messages(block, dim, method)), parameters)


def widest(make: Callable[[int], nn.Module], parameters: int) -> nn.Module:
    """Return what is made of the widest width, in fours, that has at most so many parameters (or of 4)."""
    low, high = 1, 32
    while low < high:
        middle = (low + high + 1) // 2
        fits = size_of(make(4 * middle)) <= parameters
        low, high = (middle, high) if fits else (low, middle - 1)
    torch.manual_seed(0)
    return make(4 * low)


def size_of(net: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in net.parameters())
