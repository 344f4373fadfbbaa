"""Speed of the samplers on a power-law graph, one thread: sampled edges and subgraphs per second.

    python benchmarks/samplers.py [--scale 18] [--dgl]

Baseline: the same neighbour sample drawn with numpy calls for each seed (what plain Python can do without a compiler).
With --dgl also DGL's two-layer samplers, alternating with ours (pip install --no-deps dgl==1.1.3, and requests, tqdm,
networkx, setuptools: a release without its torch extension, which runs with any torch).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np
import torch

from common import machine, median_time, require_green, rmat_edges
from hopstate.data.graph import Graph
from hopstate.ops.sampling import Neighborhoods


def numpy_sample(graph: Graph, seeds: np.ndarray, fanout: int, rng: np.random.Generator) -> int:
    """Draw without replacement for every seed; return the number of edges."""
    kept = [
        rng.choice(row, min(fanout, len(row)), replace=False)
        for row in (graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in seeds)
    ]
    np.unique(np.concatenate(kept), return_inverse=True)
    return sum(map(len, kept))


def compare_dgl(graph: Graph, seeds: np.ndarray, ours: dict[str, Callable[[], int]]) -> dict[str, dict[str, object]]:
    """Return milliseconds of processor time of both for two layers of blocks, the median of five turns."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl

    columns = (torch.from_numpy(np.array(a, np.int64)) for a in (graph.indptr, graph.indices, np.arange(0)))
    other, starts = dgl.graph(("csc", tuple(columns)), num_nodes=graph.num_nodes), torch.from_numpy(seeds)
    loading, rows = dgl.dataloading, {}
    for name, kind in {"neighbour": loading.NeighborSampler, "LABOR": loading.LaborSampler}.items():
        sampler = kind([15, 10])

        def work(sampler=sampler) -> int:
            return sum(block.num_edges() for block in sampler.sample_blocks(other, starts)[2])

        turns = [
            [median_time(f, repeats=15, warmup=3, clock=time.process_time) for f in (work, ours[name])]
            for _ in range(5)
        ]
        theirs, mine = np.median(turns, 0)
        rows[f"{name}, DGL {dgl.__version__}"] = {
            "dgl_ms": round(1000 * theirs, 2),
            "ours_ms": round(1000 * mine, 2),
            "dgl_edges_per_s": round(work() / theirs),
            "ours_edges_per_s": round(ours[name]() / mine),
            "ratio": round(theirs / mine, 2),
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=18)
    parser.add_argument("--dgl", action="store_true")
    o = parser.parse_args()
    torch.set_num_threads(1)
    require_green("tests/ops/test_sampling.py")
    n = 1 << o.scale
    graph = Graph.from_edges(rmat_edges(n, 16 * n), n, self_loops="drop")
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
    if o.dgl:
        rows |= compare_dgl(graph, seeds, {"neighbour": lambda: two_layers(False), "LABOR": lambda: two_layers(True)})
    print(json.dumps({"graph": repr(graph), "rows": rows, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
