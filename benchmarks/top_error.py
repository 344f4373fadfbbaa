"""Relative error of the last layer on node batches after full-batch training: TOP, Cluster-GCN and GAS.

    python benchmarks/top_error.py DATA KIND [--dim 128] [--epochs 100] [--norm layer] [--block conv] [--basis global]

DATA is a named data set or a file; networks have three residual blocks; one JSON line for each kind of batch. "top" has
a basis of the trained weights, "random" one of random weights; "gas" reads what one earlier pass (--passes) with the
trained weights has left. "stale_top" and "stale_gas" do so with the weights some epochs (here: steps) before, as in
training.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from common import machine, require_green
from hopstate.compensation.gas import GasCache
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.data.splits import random_split
from hopstate.layers.message import Propagator
from hopstate.methods.message_passing.batching import Batching, node_sampler, prepared_top
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.method import ReadOptions
from hopstate.runs.data import load_data
from hopstate.sampling.samplers import NodeSet, SaintSampler
from hopstate.sampling.subgraph import NodeSetSource, features, full_graph, induced_adjacency, sampled_adjacency

KINDS = ("top", "random", "cluster", "cut", "gas")
BATCHES = (("clusters", 0.5), ("clusters", 0.1), ("random", 0.5), ("saint-walk", 0.5))


def train(graph: Graph, model: Backbone, epochs: int, stale: int = 0) -> tuple[float, Backbone]:
    """Train with Adam; return the test accuracy, and the model as it was `stale` epochs before the end, or at first."""
    assert graph.y is not None
    rows = graph.split(0) if graph.num_splits else random_split(graph.y, (0.6, 0.2, 0.2), seed=0)
    inputs, y = full_graph(graph), torch.tensor(graph.y)
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


@torch.no_grad()
def relative_errors(
    graph: Graph,
    model: Backbone,
    batching: Batching,
    *,
    kinds: Sequence[str] = KINDS,
    seed: int = 0,
    most: int = 10,
    earlier: Backbone | None = None,
    passes: int = 1,
) -> dict[str, float]:
    """Return the relative error of each kind of batch; model is put in eval mode.

    Args:
        graph: with features.
        model: trained weights, on the CPU.
        batching: which nodes make a batch, and TOP's settings; its kind is not looked at.
        kinds: "top" (its basis made from the trained weights, as a refresh does), "random" (TOP with a basis of random
            weights), "cluster" (degrees of the subgraph, as in Cluster-GCN), "cut" (the same edges with the whole
            graph's degrees), "gas".
        seed: fixes batches and TOP's initializations.
        most: batches looked at.
        earlier: model with its weights of some epochs ago, from which "top" then makes its basis and "gas" its
            cache, as in training; None takes the present ones.
        passes: over the batches, from empty tables, that fill the cache of "gas".
    """
    model.eval()
    source_model = model if earlier is None else earlier.eval()
    exact = model.embeddings(*full_graph(graph))[-1]
    settings = replace(batching, kind="cluster", inference="exact")
    sampler = node_sampler(graph, settings, None, model.config.num_layers, seed=seed)
    sets = [sampler.node_set(1, i) for i in range(min(most, sampler.num_batches(1)))]
    errors = {}
    for kind in kinds:
        missing: Top | GasCache | None = None
        if kind == "top":
            missing = prepared_top(graph, replace(batching.top, refresh=1), source_model, seed=seed)
        elif kind == "random":
            missing = prepared_top(graph, replace(batching.top, refresh=0), model, seed=seed)
        elif kind == "gas":
            missing = _filled_cache(graph, source_model, sampler, passes)
        source = NodeSetSource(graph, sampler, sets[0].nodes, missing)
        errors[kind] = _error(graph, model, source, sets, exact, kind)
    return errors


def _error(
    graph: Graph, model: Backbone, source: NodeSetSource, sets: list[NodeSet], exact: Tensor, kind: str
) -> float:
    wrong = right = 0.0
    for chosen in sets:
        found = model.embeddings(features(graph, chosen.nodes), _propagator(graph, source, chosen, kind))[-1]
        expected = exact[torch.from_numpy(chosen.nodes)]
        wrong += float((found - expected).double().square().sum())
        right += float(expected.double().square().sum())
    return (wrong / right) ** 0.5


def _propagator(graph: Graph, source: NodeSetSource, chosen: NodeSet, kind: str) -> Propagator:
    if kind not in ("cluster", "cut"):
        return source.propagator(chosen)
    local = source.cutter.induced(chosen.nodes)
    if kind == "cut":
        return sampled_adjacency(graph, local)
    if isinstance(source.sampler, SaintSampler):
        return source.propagator(chosen)
    return induced_adjacency(graph, local)


def _filled_cache(graph: Graph, model: Backbone, sampler: object, passes: int) -> GasCache:
    cache = GasCache(graph.num_nodes, model.sent_dims)
    source = NodeSetSource(graph, sampler, torch.arange(0).numpy(), cache)  # type: ignore[arg-type]
    for _ in range(passes):  # over batches other than those that are looked at
        for number in range(source.num_batches(0)):
            batch = source.batch(0, number)
            model(batch.x, batch.graph)
    return cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("kind", choices=["gcn", "sage", "gin", "gat", "pna", "gcnii"])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--norm", default="layer", choices=["layer", "batch", "none"])
    parser.add_argument("--block", default="conv", choices=["conv", "ffn"])
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
