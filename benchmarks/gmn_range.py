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
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.batches import induced_subgraph
from range_graphs import far_clues, long_range, tree_match
from range_networks import network, size_of

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
        self.indptr, self.indices, _ = induced_subgraph(graph.indptr, graph.indices, np.arange(TOGETHER * self.size))
        self.classes = int(graph.y.max()) + 1

    marks = None  # of edges

    @property
    def parts(self) -> Tensor:
        """The part of each node."""
        return torch.arange(TOGETHER).repeat_interleave(self.size)

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
    net(0, block.x[0]).sum().backward()  # compiles what is not compiled yet, before the clock starts
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


def alone(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return what work returns in a process that shares nothing but what stands already."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=lambda: its.send(work(*arguments)))
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
    require_green("tests/benchmarks/test_range_graphs.py", "tests/methods/gmn/test_walk_tokens.py")
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
                    got = alone(cell, kind, reach, method, rate, shared)
                    print(json.dumps({"kind": kind, "range": reach, "method": method, "rate": rate} | got), flush=True)
                found.setdefault(method, []).append(got)
        if not options.choose:
            show(kind, reaches, found)


if __name__ == "__main__":
    main()
