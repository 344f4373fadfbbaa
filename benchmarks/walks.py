"""Random walks and token building on one core, compared with a plain step-major numba loop: million steps per second.

Run: python benchmarks/walks.py [--minesweeper FILE.npz] [--nodes 1000000] [--edges 10000000]
Baseline: every walk advanced one step before the next, CSR arrays, numba's own generator. The bare walks of a token
ratio draw the same numbers of walks and steps as the tokens do. Processor time, so that other programs count little.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
import torch
from numba import njit

from common import machine, median_time, require_green
from hopstate.data.graph import Graph
from hopstate.ops.walks import WalkTable, random_walks, walk_subgraphs

median_time = partial(median_time, clock=time.process_time)
once = partial(median_time, repeats=1, warmup=0)


@njit(cache=True)
def plain(indptr, indices, per, out):
    for w in range(out.shape[1]):
        out[0, w] = w // per
    for t in range(out.shape[0] - 1):
        for w in range(out.shape[1]):
            v = out[t, w]
            degree = indptr[v + 1] - indptr[v]
            out[t + 1, w] = indices[indptr[v] + np.random.randint(0, degree)] if degree > 0 else v  # noqa: NPY002


def measure(graph: Graph, name: str, token_nodes: int) -> None:
    steps = graph.num_nodes * 100
    table, nodes = WalkTable.of(graph.indptr, graph.indices), np.arange(graph.num_nodes)

    def baseline() -> None:
        plain(graph.indptr, graph.indices, 10, np.empty((11, graph.num_nodes * 10), np.int32))

    ours = steps / median_time(lambda: random_walks(table, nodes, 10, walks=10)) / 1e6
    base = steps / median_time(baseline) / 1e6
    print(f"{name}: {ours:.0f} M steps/s, plain step-major numba {base:.0f}, ratio {ours / base:.1f}", flush=True)
    some = nodes[:token_nodes]
    for m, s, M in ((10, 1, 10), (4, 2, 4)):
        compare_tokens(table, some, name, m, s, M)


def compare_tokens(table: WalkTable, nodes: np.ndarray, name: str, m: int, s: int, M: int) -> None:
    walks, tokens = [], []
    for _ in range(7):  # in turn, so that what else the machine does falls on both
        walks.append(once(lambda: [random_walks(table, nodes, h, walks=M * s) for h in range(1, m + 1)]))
        tokens.append(once(lambda: walk_subgraphs(table, nodes, max_length=m, repeats=s, walks=M)))
    bare, made = np.median(walks[1:]), np.median(tokens[1:])
    print(f"{name}: tokens m={m} s={s} M={M}: {made:.3f} s, bare walks {bare:.3f} s, ratio {made / bare:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minesweeper", help="the data set's .npz file; a generated grid where it is not given")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000, help="stored edges of the random graph")
    options = parser.parse_args()
    torch.set_num_threads(1)
    require_green("tests/ops/test_walks.py")
    print(machine())
    if options.minesweeper:
        from hopstate.data.readers.read_graph import read_graph

        board = read_graph(options.minesweeper)
    else:
        cells = np.arange(10_000).reshape(100, 100)
        shifts = (
            (cells[:, 1:], cells[:, :-1]),
            (cells[1:], cells[:-1]),
            (cells[1:, 1:], cells[:-1, :-1]),
        )
        shifts += ((cells[1:, :-1], cells[:-1, 1:]),)
        board = Graph.from_edges(np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in shifts]), 10_000)
    measure(board, "minesweeper" if options.minesweeper else "grid", board.num_nodes)
    pairs = np.random.default_rng(0).integers(0, options.nodes, (options.edges // 2, 2))
    measure(Graph.from_edges(pairs, options.nodes, duplicates="keep"), f"random {options.nodes:,}", 100_000)


if __name__ == "__main__":
    main()
