"""A million nodes in one connected graph whose labels stand 20 hops away: what each method takes, and reads, of it.

Run: python benchmarks/gmn_million.py [--nodes 1000000] [--reach 20] [--crossings 2] [--seconds 120] [--methods gmn,...]
         [--parameters 20000] [--rates gmn=0.003,...] [--seed 0] [--whole] [--limit 8]
The board of `range_graphs.far_clues` with crossings to cells drawn at random, so that 20 layers
of message passing reach all of it from any node. Edges along rows are marked by 1, crossings by 0.001. GMN walks along
rows; the methods that pass messages, of as many layers as there are hops, get them as edge features (GatedGCN, GPS) or
weights (GCNII, SGFormer) and pass messages over the nodes that the same walks have visited; NAGphormer averages over
the whole graph by weights. A method is a process of its own of one thread: processor seconds of what is done once, then
of training, steps of 512 asked nodes, the rate falling as a cosine of the time spent; at most the same parameters for
all.
--whole: one step over the whole graph instead, within --limit GiB, of the methods that pass messages.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common import machine, require_green
from gmn_range import alone
from gmn_scaling import resident
from hopstate.data.graph import Graph
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.batches import induced_subgraph, token_inputs
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.tokens import WalkSettings, token_order, walk_tokens
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.ops.propagate import hop_powers
from hopstate.ops.walks import WalkTable
from range_graphs import far_clues
from range_networks import Messages, size_of, token_config, widest

METHODS = ("gmn", "gatedgcn", "gcnii", "sgformer", "gps", "nagphormer")
SEEDS, CLASSES = 512, 2


class Visited:
    """Nodes with the edges among them, as networks of messages take them; rows are those asked for."""

    def __init__(self, graph: Graph, reach: int, nodes: np.ndarray, rows: np.ndarray) -> None:
        assert graph.x is not None
        assert graph.edge_attr is not None
        self.reach, self.ends, self.classes, self.rows = reach, 1, CLASSES, rows
        self.indptr, self.indices, ids = induced_subgraph(graph.indptr, graph.indices, nodes)
        self.x, self.marks = torch.from_numpy(graph.x[nodes]), torch.from_numpy(graph.edge_attr[ids])
        self.parts = torch.zeros(len(nodes), dtype=torch.int64)
        self.adjacency = Adjacency.of(self.indptr, self.indices, weight=graph.edge_attr[ids, 0])
        receivers = np.repeat(np.arange(len(nodes)), np.diff(self.indptr))
        self.edge_index = torch.from_numpy(np.stack([receivers, self.indices]))


class Walking(nn.Module):
    """What walks from the asked nodes find: tokens of a GMN, or messages over the nodes visited."""

    def __init__(self, graph: Graph, reach: int, method: str, parameters: int) -> None:
        super().__init__()
        self.graph, self.reach = graph, reach
        self.walks = WalkSettings(max_length=reach, repeats=1, walks=4, p=1e6, lengths="doubling")
        assert graph.edge_attr is not None
        rows = graph.edge_attr[:, 0] == 1  # walks take no crossings
        indptr = np.concatenate([[0], np.cumsum(rows)])[graph.indptr]
        self.table = WalkTable.of(indptr, graph.indices[rows])
        if method == "gmn":
            options = {"in_dim": 2, "out_dim": CLASSES, "tokens": self.walks.tokens}
            self.net = widest(lambda dim: GMN(token_config(dim), **options), parameters)
        else:
            few = Visited(graph, reach, np.arange(2), np.arange(2))
            self.net = widest(lambda dim: Messages(few, dim, method), parameters)

    def forward(self, asked: np.ndarray, seed: int) -> Tensor:
        tokens = walk_tokens(self.table, asked, self.walks, kind="subgraph", seed=seed)
        near, place = np.unique(np.concatenate([asked, tokens["nodes"].numpy()]), return_inverse=True)
        rows, count = place[: len(asked)], len(asked)
        if isinstance(self.net, Messages):
            part = Visited(self.graph, self.reach, near, rows)
            self.net.over(part)
            return self.net(0, part.x)
        assert self.graph.x is not None
        tokens["nodes"] = torch.from_numpy(place[count:])
        return self.net(GMNInputs(
            x=torch.from_numpy(self.graph.x[near]), graph=Adjacency.of(np.zeros(1, np.int64), np.zeros(0, np.int64)),
            targets=torch.from_numpy(rows), order=torch.arange(count), sequences=torch.tensor([0, count]),
            token_order=token_order(count, self.walks, None), **token_inputs(tokens),
        ))  # fmt: skip


class Averages(nn.Module):
    """NAGphormer on hop averages of the whole graph, made once."""

    def __init__(self, graph: Graph, reach: int, parameters: int) -> None:
        super().__init__()
        assert graph.x is not None
        assert graph.edge_attr is not None
        hops = np.zeros((graph.num_nodes, reach + 1, graph.x.shape[1]), np.float32)
        hops[:, 0] = graph.x
        hop_powers(graph.indptr, graph.indices, hops, np.ascontiguousarray(graph.edge_attr[:, 0]))
        self.hops = hops
        options = {"in_dim": hops.shape[2], "num_classes": CLASSES, "num_hops": reach}
        fixed = {"num_heads": 4, "dropout": 0.0, "attention_dropout": 0.0}
        self.net = widest(lambda dim: NAGphormer(NAGphormer.Config(dim=dim, **fixed), **options), parameters)

    def forward(self, asked: np.ndarray, seed: int) -> Tensor:
        return self.net(torch.from_numpy(self.hops[asked]))


def peak_of(before: float) -> float:
    """Return GiB that resident memory has grown by at its peak."""
    return (1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**30


def trained(graph: Graph, method: str, rate: float, o: argparse.Namespace) -> dict[str, Any]:
    """Return what a method takes and reaches within its seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(o.seed)
    before, start = resident(), time.process_time()
    net = Averages(graph, o.reach, o.parameters) if method == "nagphormer" else None
    net = net or Walking(graph, o.reach, method, o.parameters)
    made, rng = time.process_time() - start, np.random.default_rng(o.seed)
    y, train = torch.from_numpy(np.array(graph.y)), np.flatnonzero(graph.masks["train"])
    optimizer = torch.optim.AdamW(net.parameters(), rate, weight_decay=1e-4)
    net(train[:SEEDS], 0).sum().backward()  # compiles what is not compiled yet, before the clock starts
    steps, spent, start = 0, 0.0, time.process_time()
    while spent < o.seconds:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * min(1.0, spent / o.seconds))) / 2
        asked, steps = rng.choice(train, SEEDS, replace=False), steps + 1
        loss = nn.functional.cross_entropy(net(asked, steps), y[asked])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        spent = time.process_time() - start
    return {
        "once": made, "ms": 1000 * spent / steps, "steps": steps, "gib": peak_of(before),
        "parameters": size_of(net), "train_loss": float(loss.detach()), **accuracy(net, graph, y),
    }  # fmt: skip


def accuracy(net: nn.Module, graph: Graph, y: Tensor) -> dict[str, float]:
    """Return the accuracy in percent on the validation and test nodes."""
    net.eval()
    found = {}
    with torch.no_grad():
        for part in ("val", "test"):
            rows = np.flatnonzero(graph.masks[part])
            cuts = [rows[a : a + SEEDS] for a in range(0, len(rows), SEEDS)]
            right = torch.cat([net(cut, -1 - i).argmax(1) == y[cut] for i, cut in enumerate(cuts)])
            found[part] = 100 * right.double().mean().item()
    return found


def whole_step(graph: Graph, method: str, rate: float, o: argparse.Namespace) -> dict[str, Any]:
    """Return what a step over the whole graph takes, or that it does not fit."""
    torch.set_num_threads(1)
    limit = int(o.limit * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    before, start = resident(), time.process_time()
    asked = np.flatnonzero(graph.masks["train"])
    try:
        every = Visited(graph, o.reach, np.arange(graph.num_nodes), asked)
        net = widest(lambda dim: Messages(every, dim, method), o.parameters)
        made, start = time.process_time() - start, time.process_time()
        nn.functional.cross_entropy(net(0, every.x), torch.from_numpy(graph.y[asked])).backward()
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return {"fits": False, "limit": o.limit, "seconds": time.process_time() - start}
    return {"fits": True, "once": made, "seconds": time.process_time() - start, "gib": peak_of(before)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--reach", type=int, default=20)
    parser.add_argument("--crossings", type=int, default=2)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--parameters", type=int, default=20_000)
    parser.add_argument("--rates", default="", help="METHOD=RATE,...; 0.003 where nothing is said")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="a step over the whole graph instead")
    parser.add_argument("--limit", type=float, default=8.0, help="GiB of a step over the whole graph")
    o = parser.parse_args()
    require_green("tests/benchmarks/test_range_graphs.py", "tests/methods/gmn/test_walk_tokens.py")
    print(machine(), flush=True)
    rates = {name: float(rate) for name, rate in (pair.split("=") for pair in o.rates.split(",") if pair)}
    graph = far_clues(o.reach, o.nodes // (o.reach + 1), crossings=o.crossings, seed=o.seed)
    own = resident() / 2**30
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} entries, {own:.2f} GiB before any method", flush=True)
    for method in o.methods.split(","):
        if o.whole and method in ("gmn", "nagphormer"):
            continue
        rate = rates.get(method, 3e-3)
        got = alone(whole_step if o.whole else trained, graph, method, rate, o)
        print(json.dumps({"method": method, "rate": rate} | got), flush=True)


if __name__ == "__main__":
    main()
