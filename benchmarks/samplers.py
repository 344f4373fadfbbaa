"""Speed of the samplers on a power-law graph, one thread: sampled edges a second, and subgraphs a second.

    python benchmarks/samplers.py [--scale 18]

Baseline: the same neighbour sample drawn with numpy calls for each seed (what plain Python can do without a compiler).
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from common import machine, median_time, require_green
from hopstate.data.graph import Graph
from hopstate.datasets.generators import rmat
from hopstate.ops.sampling import Neighborhoods


def numpy_sample(graph: Graph, seeds: np.ndarray, fanout: int, rng: np.random.Generator) -> int:
    """Draw without replacement for every seed; return the number of edges."""
    kept = [
        rng.choice(row, min(fanout, len(row)), replace=False)
        for row in (graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in seeds)
    ]
    np.unique(np.concatenate(kept), return_inverse=True)
    return sum(map(len, kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=18)
    o = parser.parse_args()
    require_green("tests/ops/test_sampling.py")
    graph = rmat(o.scale, 16.0)
    cutter, rng = Neighborhoods(graph.indptr, graph.indices), np.random.default_rng(0)
    seeds = rng.permutation(graph.num_nodes)[:1024]
    rows = {}

    def two_layers(labor: bool) -> int:
        first = cutter.sample(seeds, 10, seed=1, labor=labor)
        second = cutter.sample(first.nodes, 15, seed=2, labor=labor)
        return len(first.indices) + len(second.indices)

    for name, work in {
        "neighbour (10, 15)": lambda: two_layers(False),
        "LABOR (10, 15)": lambda: two_layers(True),
        "induced, 1% of nodes": lambda: len(
            cutter.induced(np.sort(rng.permutation(graph.num_nodes)[: graph.num_nodes // 100])).indices
        ),
        "induced with halo, 1024 nodes": lambda: len(cutter.induced(seeds, halo=True).indices),
        "ShaDow PPR, 64 seeds": lambda: len(cutter.union(*cutter.ppr(seeds[:64], 64, epsilon=1e-3)).indices),
    }.items():
        edges, seconds = work(), median_time(work, repeats=5)
        rows[name] = {"edges": edges, "ms": round(1000 * seconds, 2), "edges_per_s": round(edges / seconds)}
    first = cutter.sample(seeds, 10, seed=1).nodes
    seconds = median_time(lambda: numpy_sample(graph, first, 15, rng), repeats=3)
    second = cutter.sample(first, 15, seed=2)
    ours = median_time(lambda: cutter.sample(first, 15, seed=2), repeats=5)
    rows["last layer against numpy"] = {"ratio": round(seconds / ours, 1), "edges": len(second.indices)}
    print(json.dumps({"graph": repr(graph), "rows": rows, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
