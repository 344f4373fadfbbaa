"""Laplacian eigenvectors compared with one call of scipy's eigsh and of its shift-invert mode, which pass all checks.

    python benchmarks/eigenvectors.py

Graphs: Minesweeper's grid (10,000 nodes), a skewed random graph of 11,758 nodes and about 519,000 edges, a road-like
grid of 40,000 nodes. The baselines often miss vectors of a repeated eigenvalue; ours checks.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from common import machine, median_time, require_green
from hopstate.data.graph import Graph
from hopstate.ops.eigenvectors import laplacian_eigenvectors


def grid(side: int, *, diagonals: bool) -> Graph:
    """side x side cells, each joined to its 4 or 8 neighbours."""
    at = np.arange(side * side).reshape(side, side)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    if diagonals:
        pairs += [(at[:-1, :-1], at[1:, 1:]), (at[:-1, 1:], at[1:, :-1])]
    return Graph.from_edges(np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in pairs]), side * side)


def skewed(nodes: int = 11_758, edges: int = 700_000) -> Graph:
    """Endpoints with Pareto weights; duplicates and self-loops are dropped."""
    generator = np.random.default_rng(0)
    weight = generator.pareto(1.5, nodes) + 1
    ends = generator.choice(nodes, (edges, 2), p=weight / weight.sum())
    return Graph.from_edges(ends, nodes, self_loops="drop")


def main() -> None:
    """Print seconds."""
    graphs = {
        "minesweeper grid": lambda: grid(100, diagonals=True),
        "skewed": skewed,
        "road-like grid": lambda: grid(200, diagonals=False),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=[*graphs], choices=[*graphs])
    chosen = parser.parse_args().graphs
    import scipy.sparse as sp
    from scipy.sparse.linalg import eigsh

    require_green("tests/ops/test_eigenvectors.py")
    torch.set_num_threads(1)
    print(machine())
    for name in chosen:
        graph = graphs[name]()
        scale = sp.diags_array(1 / np.sqrt(np.maximum(graph.degree, 1)))
        mixing = (scale @ graph.to_scipy(np.float64) @ scale).tocsr()
        seconds = {"hopstate": median_time(lambda g=graph: laplacian_eigenvectors(g.indptr, g.indices, 15), repeats=3)}
        if name != "road-like grid":  # minutes there
            seconds["eigsh"] = median_time(lambda m=mixing: eigsh(m, 16, which="LA", tol=0), repeats=3)
        if name != "skewed":  # its factor fills in: minutes
            laplacian = (sp.eye_array(graph.num_nodes) - mixing).tocsc()
            seconds["shift-invert"] = median_time(lambda a=laplacian: eigsh(a, 16, sigma=-1e-4, which="LM"), repeats=3)
        print(f"{name}, {graph}: " + ", ".join(f"{k} {v:.3f} s" for k, v in seconds.items()))


if __name__ == "__main__":
    main()
