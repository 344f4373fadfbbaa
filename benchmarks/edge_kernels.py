"""Compiled sums over edges against torch-geometric's layers and scipy, on a graph of 12,000 nodes and 520,000 edges.

A kernel is kept if it is at least twice as fast as the library's in the same run. Prints milliseconds of a forward and
backward pass, and their ratio.

    python benchmarks/edge_kernels.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, PNAConv, ResGatedGraphConv
from torch_geometric.transforms import AddRandomWalkPE

from common import machine, require_green
from hopstate.data.graph import Graph
from hopstate.layers.edge_layers import AGGREGATORS, GAT, PNA, SCALERS
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import GatedGCN
from hopstate.ops.proximity import Proximity
from hopstate.ops.returns import return_probabilities

NODES, EDGES, DIM, HEADS, PAIRS, STEPS, ROUNDS = 12_000, 520_000, 64, 4, 20_000, 3, 5


def made() -> Graph:
    """Return an undirected graph with a heavy tail of degrees."""
    rng = np.random.default_rng(0)
    weight = rng.pareto(2.0, NODES) + 1
    ends = rng.choice(NODES, (EDGES // 2 + 40_000, 2), p=weight / weight.sum())
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], 1), axis=0)
    return Graph.from_edges(rng.permutation(ends)[: EDGES // 2], NODES, undirected=True)


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int = ROUNDS) -> None:
    """Print medians of both, measured alternately, and their ratio."""
    seconds: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        for work, found in zip((ours, theirs), seconds):
            begin = time.perf_counter()
            work()
            if number:  # the first compiles
                found.append(time.perf_counter() - begin)
    mine, other = (float(np.median(found)) for found in seconds)
    print(f"| {name} | {1000 * mine:,.1f} | {1000 * other:,.1f} | {other / mine:.2f} |", flush=True)


def step(layer: torch.nn.Module, h: torch.Tensor, graph: object) -> Callable[[], object]:
    """Return a forward and a backward pass."""

    def work() -> None:
        found = layer(h, graph)
        (found[0] if isinstance(found, tuple) else found).square().mean().backward()

    return work


def scipy_paths(near: Proximity, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return `Proximity.paths` by scipy, without excluding the pair's own link in paths of three steps."""
    a, weights, half = near.adjacency, near._weights, near._half
    own, other = a[u], a[v]
    common = own.multiply(other).tocsr() @ weights.T
    d = scipy.sparse.diags_array(half)
    through = np.asarray(((own @ d) @ a).multiply(other @ d).sum(1)).reshape(-1, 1)
    linked = np.asarray(a[u, v]).reshape(-1, 1)
    return np.concatenate([common, through, linked], 1)


def main() -> None:
    """Measure and print a table."""
    require_green("tests/layers/test_edge_layers.py", "tests/ops")
    torch.set_num_threads(1)
    graph = made()
    print(machine())
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} stored edges, width {DIM}, one thread\n")
    print("| kernel | ours, ms | library, ms | library / ours |\n|---|---|---|---|")
    adjacency = Adjacency.of(graph.indptr, graph.indices)
    edges = torch.from_numpy(graph.edge_index())
    h = torch.randn(NODES, DIM, requires_grad=True)
    degrees = torch.bincount(torch.from_numpy(graph.degree))
    compare(
        "edge_attention (GATConv)",
        step(GAT(DIM, DIM, HEADS), h, adjacency),
        step(GATConv(DIM, DIM // HEADS, HEADS), h, edges),
    )
    theirs = PNAConv(DIM, DIM, AGGREGATORS, SCALERS, degrees)
    compare("neighbor_statistics (PNAConv)", step(PNA(DIM, DIM, degrees), h, adjacency), step(theirs, h, edges))
    compare(
        "gated_mean (ResGatedGraphConv)", step(GatedGCN(DIM), h, adjacency), step(ResGatedGraphConv(DIM, DIM), h, edges)
    )
    near, rng = Proximity(graph.indptr, graph.indices), np.random.default_rng(1)
    u, v = rng.integers(0, NODES, (2, PAIRS))
    compare(f"proximity of {PAIRS:,} pairs (scipy)", lambda: near.paths(u, v), lambda: scipy_paths(near, u, v), 1)
    data, walk = Data(edge_index=edges, num_nodes=NODES), AddRandomWalkPE(STEPS)
    compare(
        f"return_probabilities, {STEPS} steps (AddRandomWalkPE)",
        lambda: return_probabilities(graph.indptr, graph.indices, STEPS),
        lambda: walk(data.clone()),
        1,
    )


if __name__ == "__main__":
    main()
