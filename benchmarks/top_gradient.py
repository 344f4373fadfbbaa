"""How close the gradients of node batches are to exact ones of the same loss: TOP, perfect caches, plain clusters.

    python benchmarks/top_gradient.py FOLDER [--uniform 800] [--steps 0 100] [--directions 0 8] [--linear]

FOLDER holds a graph of `top_epoch.py make`. While a GCN trains under TOP, the gradient of the loss on each of six
batches of training nodes is compared, without dropout and right after a refresh, with that of a pass over the whole
graph: the cosine of every weight matrix (the features' map, the layers, the head), as a mean over batches ("each") and
of their sum ("all"). "gas" has what missing neighbours send exactly, but no gradient through them, as GAS at best.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common import machine, require_green
from hopstate.compensation.gas import GasCache
from hopstate.compensation.top.top import TopConfig
from hopstate.data.graph import Graph
from hopstate.methods.message_passing.batching import prepared_top
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.samplers import UniformSampler
from hopstate.sampling.subgraph import BatchSource, GraphBatch, NodeSetSource
from top_epoch import WholeSource

BATCHES = 6


def loss(model: Backbone, batch: GraphBatch, y: Tensor) -> Tensor:
    """Return the mean cross-entropy of a batch."""
    return F.cross_entropy(model(batch.x, batch.graph)[batch.rows], y[batch.nodes][batch.rows])


def gradients(model: Backbone, source: BatchSource, y: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the gradient of each weight matrix for some batches of a source."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    model.eval()
    numbers = range(min(BATCHES, source.num_batches(0)))
    found = [torch.autograd.grad(loss(model, source.batch(0, number), y), matrices) for number in numbers]
    model.train()
    return found


def cosines(found: list[tuple[Tensor, ...]], exact: list[tuple[Tensor, ...]]) -> dict[str, list[float]]:
    """Return cosines to the exact gradient of each matrix: mean over batches, and of the batches' sum."""

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0))

    each = np.mean([[cosine(a, b) for a, b in zip(*pair)] for pair in zip(found, exact)], 0)
    total = [[sum(matrices) for matrices in zip(*some)] for some in (found, exact)]
    return {"each": each.round(3).tolist(), "all": [round(cosine(a, b), 3) for a, b in zip(*total)]}


def measure(o: argparse.Namespace, graph: Graph) -> None:
    """Train, and print a JSON line at each of the requested steps."""
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    train = np.sort(order[: round(o.share * graph.num_nodes)])
    y = torch.from_numpy(np.array(graph.y))
    torch.manual_seed(0)
    model = Backbone(
        Backbone.Config(dim=o.dim, num_layers=3, dropout=0.2, block="conv"),
        kind="gcn",
        in_dim=graph.num_features,
        num_classes=graph.num_classes,
    )
    if o.linear:
        model.embed[2] = torch.nn.Identity()
    sampler = UniformSampler(train, o.uniform, seed=0)
    exact = WholeSource(graph, sampler)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(max(o.steps) + 1):
        epoch, number = divmod(step, sampler.num_batches(0))
        if number == 0 or step in o.steps:
            tops = {
                f"top, {d} directions": prepared_top(graph, TopConfig(directions=d), model, seed=0, rows=train)
                for d in (o.directions if step in o.steps else o.directions[:1])
            }
            source = NodeSetSource(graph, sampler, train, next(iter(tops.values())))
        if step in o.steps:
            expected = gradients(model, exact, y)
            for name, missing in {**tops, "gas": exact_gas_cache(model, exact), "cluster": None}.items():
                found = gradients(model, NodeSetSource(graph, sampler, train, missing), y)
                print(json.dumps({"step": step, "batches": name} | cosines(found, expected)), flush=True)
        optimizer.zero_grad()
        loss(model, source.batch(epoch, number), y).backward()
        optimizer.step()


def exact_gas_cache(model: Backbone, whole: WholeSource) -> GasCache:
    """Return the cache of what every node sends with the present weights."""
    cache = GasCache(len(whole.nodes), model.sent_dims)
    model.eval()
    with torch.no_grad():
        for layer, (block, h) in enumerate(zip(model.blocks, model.embeddings(whole.x, whole.adjacency))):
            cache.tables[layer][:] = block.sent(h)
    model.train()
    return cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uniform", type=int, default=800, help="nodes of a batch")
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 100])
    parser.add_argument("--directions", type=int, nargs="+", default=[0, 8])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.2, help="of the nodes, for training")
    parser.add_argument("--linear", action="store_true", help="no GELU between the features' map and the first layer")
    parser.add_argument("--no-tests", action="store_true")
    o = parser.parse_args()
    if not o.no_tests:
        require_green("tests/compensation/top/test_top.py")
    measure(o, Graph.load(o.folder))
    print(machine())


if __name__ == "__main__":
    main()
