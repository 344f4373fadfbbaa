"""What a label far away costs each method, and who reads it: paths, rings, boards and trees, by the range of the label.

Run: python benchmarks/gmn_range.py [--kinds path,ring,board,tree] [--methods gmn,gatedgcn,...] [--ranges 5,10,20,40,80]
         [--depths 3,4,5,6] [--seconds 10] [--parameters 20000] [--rates gmn=0.003,...] [--seed 0] [--choose 10]
A cell is a process of its own: processor seconds of training at one thread, then validation and test. All methods get
the range r, the same seconds and at most the same parameters (the widest network that has them): walks of r steps in
tokens of doubling lengths, walking back as good as never, four times as many as there are ends to reach; r layers of
message passing; r hops. A step is a block of 32 paths (rings, rows of the board, trees), the rate falls as a cosine of
the time that is spent. --choose prints validation by rate, at one range, from which --rates are taken. GMN's tokens are
the nodes visited, without message passing in them, pooled by their maximum and by attention of the asked node.

All paths are one graph: attention over all nodes sees every path of a block. "gps, own graphs" tells it which nodes are
one path's, as if each came as a graph of its own; a board is one graph and does not come apart.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common import machine, require_green
from gmn_scaling import resident
from hopstate.data.graph import Graph
from hopstate.datasets.generators import long_range
from hopstate.datasets.range_generators import far_clues, tree_match
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.nodes import induced, token_inputs
from hopstate.methods.gmn.walk_tokens import WalkSettings, token_order, walk_tokens
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.ops.propagate import hop_powers
from hopstate.ops.walks import WalkTable

COUNT, TOGETHER = 1536, 32
METHODS = ("gmn", "gatedgcn", "gcnii", "gps", "gps, own graphs", "sgformer", "nagphormer")
RATES = (1e-2, 3e-3, 1e-3)


class Block:
    """Paths, rings, rows or trees side by side: all blocks of a graph have the same edges, and other features.

    Args:
        graph: COUNT parts of equal size, one node of each asked.
        reach: hops to what the asked node must know.
        ends: that a walk of so many steps may come to.
    """

    def __init__(self, graph: Graph, reach: int, ends: int) -> None:
        self.reach, self.ends, self.size = reach, ends, graph.num_nodes // COUNT
        assert graph.x is not None
        self.x = torch.from_numpy(np.array(graph.x).reshape(-1, TOGETHER * self.size, graph.x.shape[1]))
        asked = np.flatnonzero(graph.y >= 0)
        self.y = torch.from_numpy(graph.y[asked]).view(-1, TOGETHER)
        self.masks = {
            part: torch.from_numpy(graph.masks[part][..., asked].reshape(-1, TOGETHER)) for part in graph.masks
        }
        self.rows = asked[:TOGETHER]
        self.indptr, self.indices, _ = induced(graph.indptr, graph.indices, np.arange(TOGETHER * self.size))
        self.classes = int(graph.y.max()) + 1

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.of(self.indptr, self.indices)

    @property
    def edge_index(self) -> Tensor:
        """(2, E), symmetric."""
        return torch.from_numpy(
            np.stack([np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr)), self.indices])
        )


def made(kind: str, reach: int, seed: int) -> Block:
    """Return the data of a cell."""
    if kind == "tree":
        return Block(tree_match(reach, COUNT, seed=seed), reach, 2**reach)
    if kind == "board":
        return Block(far_clues(reach, COUNT, seed=seed), reach, 1)
    ring = kind == "ring"
    graph = long_range(reach, COUNT, ring=ring, num_features=1, marked=True, seed=seed)
    return Block(graph, reach, 1 + ring)


class Tokens(nn.Module):
    """A GMN of tokens alone over the asked nodes of a block."""

    def __init__(self, block: Block, dim: int, **options: Any) -> None:
        super().__init__()
        walks = 4 * block.ends
        self.walks = WalkSettings(max_length=block.reach, repeats=1, walks=walks, p=1e6, lengths="doubling")
        config = GMN.Config(**{
            "dim": dim, "mpnn": "none", "local": "gin", "local_layers": 0, "pooling": "max", "token_heads": 1,
            "readout": "mean", "expand": 1.0, "state_dim": 8, "dropout": 0.0, **options,
        })  # fmt: skip
        self.gmn = GMN(config, in_dim=block.x.shape[-1], out_dim=block.classes, tokens=self.walks.tokens)
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
    """Message passing over a block, of as many layers as the range; an embedding before it and a head after it."""

    def __init__(self, block: Block, dim: int, kind: str) -> None:
        super().__init__()
        self.kind, width, layers = kind, block.x.shape[-1], block.reach
        self.rows, self.adjacency = torch.from_numpy(block.rows), block.adjacency
        self.edges, self.parts = block.edge_index, torch.arange(TOGETHER).repeat_interleave(block.size)
        self.embed, self.head = nn.Linear(width, dim), nn.Linear(dim, block.classes)
        if kind == "gatedgcn":
            self.layers: nn.Module = MPNN("gatedgcn", dim, num_layers=layers)
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
            self.layers = nn.ModuleList(
                GPSConv(dim, ResGatedGraphConv(dim, dim), heads=4, **attention) for _ in range(layers)
            )

    def forward(self, number: int, x: Tensor) -> Tensor:
        h = self.embed(x)
        if self.kind in ("gatedgcn", "gcnii"):
            h = self.layers(h, self.adjacency)
        elif self.kind == "sgformer":
            h = self.layers(h, self.edges, torch.zeros_like(self.parts))
        else:
            for layer in self.layers:
                h = layer(h, self.edges, self.parts if self.kind == "gps, own graphs" else None)
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
    make = makers.get(method, lambda dim: Messages(block, dim, method))
    low, high = 1, 32  # widths in fours
    while low < high:
        middle = (low + high + 1) // 2
        fits = size_of(make(4 * middle)) <= parameters
        low, high = (middle, high) if fits else (low, middle - 1)
    torch.manual_seed(0)
    return make(4 * low)


def size_of(net: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in net.parameters())


def accuracy(net: nn.Module, block: Block) -> dict[str, float]:
    """Return the accuracy in percent on each part of the asked nodes."""
    net.eval()
    with torch.no_grad():
        right = torch.stack([net(i, block.x[i]).argmax(1) == block.y[i] for i in range(len(block.x))])
    return {part: 100 * right[mask].double().mean().item() for part, mask in block.masks.items()}


def cell(kind: str, reach: int, method: str, rate: float, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a method reaches on made data after its seconds, and what a step took."""
    torch.set_num_threads(1)
    block = made(kind, reach, options["seed"])
    torch.manual_seed(options["seed"])
    net = network(method, block, options["parameters"])
    optimizer = torch.optim.AdamW(net.parameters(), rate, weight_decay=1e-4)
    rng, before, steps, spent = np.random.default_rng(options["seed"]), resident(), 0, 0.0
    start = time.process_time()
    while spent < options["seconds"]:
        for i in rng.permutation(len(block.x)):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * min(1.0, spent / options["seconds"]))) / 2
            mask = block.masks["train"][i]
            loss = nn.functional.cross_entropy(net(i, block.x[i])[mask], block.y[i][mask])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            steps, spent = steps + 1, time.process_time() - start
            if spent >= options["seconds"]:
                break
    peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        **accuracy(net, block),
        "steps": steps,
        "ms": 1000 * spent / steps,
        "mib": peak / 2**20,
        "parameters": size_of(net),
    }


def alone(*arguments: Any) -> dict[str, Any]:
    """Return `cell` of a process that shares nothing but what has been imported."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=lambda: its.send(cell(*arguments)))
    process.start()
    its.close()
    try:
        return mine.recv()
    finally:
        process.join()


def slope(reaches: list[int], values: list[float]) -> float:
    """Return the log-log slope over the ranges from 20 hops on (all of them where there are fewer than two)."""
    far = [i for i, r in enumerate(reaches) if r >= 20]
    chosen = far if len(far) > 1 else list(range(len(reaches)))
    x, y = np.log([reaches[i] for i in chosen]), np.log([max(values[i], 1e-3) for i in chosen])
    return float(np.polyfit(x, y, 1)[0]) if len(chosen) > 1 else math.nan


def show(kind: str, reaches: list[int], found: dict[str, list[dict[str, Any]]]) -> None:
    """Print three tables of a kind: accuracy, milliseconds and MiB of a step, by range."""
    head = f"| {kind} | " + " | ".join(map(str, reaches))
    bar = "|---" * (len(reaches) + 1)
    print(f"\n{head} |\n{bar}|")
    for method, cells in found.items():
        print(f"| {method} | " + " | ".join(f"{c['test']:.0f}" for c in cells) + " |")
    for name, unit in (("ms", "ms a step"), ("mib", "MiB")):
        print(f"\n{head.replace(kind, f'{kind}, {unit}')} | slope |\n{bar}|---|")
        for method, cells in found.items():
            values = [c[name] for c in cells]
            print(f"| {method} | " + " | ".join(f"{v:.0f}" for v in values) + f" | {slope(reaches, values):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="path,ring,board,tree")
    parser.add_argument("--methods", default=";".join(METHODS), help="joined by ;")
    parser.add_argument("--ranges", default="5,10,20,40,80")
    parser.add_argument("--depths", default="3,4,5,6", help="of trees")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--parameters", type=int, default=20_000)
    parser.add_argument("--rates", default="", help="METHOD=RATE;...; 0.003 where nothing is said")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--choose", action="store_true", help="print validation by rate instead")
    options = parser.parse_args()
    require_green("tests/datasets/test_range_generators.py", "tests/methods/gmn/test_walk_tokens.py")
    print(machine(), flush=True)
    shared = {"seconds": options.seconds, "parameters": options.parameters, "seed": options.seed}
    rates = {name: float(rate) for name, rate in (pair.split("=") for pair in options.rates.split(";") if pair)}
    for kind in options.kinds.split(","):
        reaches = [int(r) for r in (options.depths if kind == "tree" else options.ranges).split(",")]
        found: dict[str, list[dict[str, Any]]] = {}
        for method in options.methods.split(";"):
            if kind == "board" and method == "gps, own graphs":
                continue
            for reach in reaches:
                for rate in RATES if options.choose else [rates.get(method, 3e-3)]:
                    got = alone(kind, reach, method, rate, shared)
                    print(json.dumps({"kind": kind, "range": reach, "method": method, "rate": rate} | got), flush=True)
                found.setdefault(method, []).append(got)
        if not options.choose:
            show(kind, reaches, found)


if __name__ == "__main__":
    main()
