"""Relative error of the last layer on node batches after full-batch training: TOP, Cluster-GCN and GAS.

    python benchmarks/top_error.py DATA KIND [--dim 128] [--epochs 100] [--norm layer] [--block plain] [--basis global]

DATA is a named data set or a file; networks have three residual blocks; one JSON line for each kind of batch. "top" has
a basis of the trained weights, "random" one of random weights; "gas" reads what one earlier pass (--passes) with the
trained weights has left. "stale_top" and "stale_gas" do so with the weights some epochs (here: steps) before, as in
training.
"""

from __future__ import annotations

import argparse
import copy
import json

import torch
import torch.nn.functional as F

from common import machine, require_green
from hopstate.compensation.top.config import TopConfig
from hopstate.data.graph import Graph
from hopstate.data.splits import random_split
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.message_passing.top_error import relative_errors
from hopstate.methods.method import ReadOptions
from hopstate.runs.data import load_data
from hopstate.sampling.subgraph import whole_graph

BATCHES = (("clusters", 0.5), ("clusters", 0.1), ("random", 0.5), ("saint-walk", 0.5))


def train(graph: Graph, model: Backbone, epochs: int, stale: int = 0) -> tuple[float, Backbone]:
    """Train with Adam; return the test accuracy, and the model as it was `stale` epochs before the end, or at first."""
    assert graph.y is not None
    rows = graph.split(0) if graph.num_splits else random_split(graph.y, (0.6, 0.2, 0.2), seed=0)
    inputs, y = whole_graph(graph), torch.tensor(graph.y)
    chosen, test = torch.tensor(rows["train"]), torch.tensor(rows["test"])
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    model.train()
    for epoch in range(epochs + 1):
        if epoch == max(0, epochs - stale):
            earlier = copy.deepcopy(model)
        if epoch == epochs:
            break
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs)[chosen], y[chosen]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return float((model(*inputs)[test].argmax(1) == y[test]).float().mean()), earlier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("kind", choices=["gcn", "sage", "gin", "gat", "pna", "gcnii"])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--norm", default="layer", choices=["layer", "batch", "none"])
    parser.add_argument("--block", default="plain", choices=["plain", "ffn"])
    parser.add_argument("--stale", type=int, default=5)
    parser.add_argument("--passes", type=int, default=1, help="that fill the cache of gas")
    parser.add_argument("--basis", default="global", choices=["global", "batch"], help="as batching.top.basis")
    parser.add_argument("--no-tests", action="store_true")
    o = parser.parse_args()
    if not o.no_tests:
        require_green("tests/compensation/top/test_top.py")
    graph = load_data(o.data, ReadOptions(), "graph")
    torch.manual_seed(0)
    config = Backbone.Config(dim=o.dim, num_layers=3, dropout=0.5, norm=o.norm, block=o.block)
    degrees = torch.tensor(graph.incoming.count)
    model = Backbone(config, kind=o.kind, in_dim=graph.num_features, num_classes=graph.num_classes, degrees=degrees)
    accuracy, earlier = train(graph, model, o.epochs, o.stale)
    for nodes, share in BATCHES:
        size = graph.num_nodes // 6 if nodes == "saint-walk" else round(share * graph.num_nodes)
        batching = Batching(
            nodes=nodes,
            num_clusters=200,
            clusters_per_batch=round(200 * share),
            batch_size=size,
            walk_length=3,
            top=TopConfig(basis=o.basis),
        )
        errors = relative_errors(graph, model, batching, most=5, passes=o.passes)
        aged = {"kinds": ("top", "gas"), "earlier": earlier, "passes": o.passes}
        stale = relative_errors(graph, model, batching, most=5, **aged)
        errors |= {f"stale_{kind}": error for kind, error in stale.items()}
        row = {"data": o.data, "kind": o.kind, "dim": o.dim, "norm": o.norm, "block": o.block, "basis": o.basis}
        row |= {"accuracy": round(accuracy, 4), "nodes": nodes, "share": share}
        row |= {f"{k}_percent": round(100 * v, 3) for k, v in errors.items()}
        print(json.dumps(row), flush=True)
    print(machine())


if __name__ == "__main__":
    main()
