"""Epochs of the message-passing backbones with the settings of a plain fit, in full-batch training.

    python benchmarks/backbone_epoch.py [--nodes 12000] [--edges 260000] [--features 64] [--epochs 6]

A synthetic graph of six classes, edges stored both ways. An epoch is a full-batch step and the validation
after it, by the run's own clock; the first, which compiles, is excluded. For gat and pna the layer is also
compared with torch-geometric's on a list of edges, forward and backward, with the same width and parameters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import hopstate
from common import machine, median_time, require_green
from hopstate.layers.edge_layers import GAT, PNA
from hopstate.layers.message import Adjacency

KINDS = ("mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii")


def tables(nodes: int, edges: int, features: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return edges, features and labels of a homophilous graph."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 6, nodes)
    u, v = rng.integers(0, nodes, (2, 4 * edges))
    kept = (u != v) & ((label[u] == label[v]) | (rng.random(4 * edges) < 0.3))
    pairs = np.unique(np.sort(np.stack([u[kept], v[kept]], 1), 1), axis=0)
    pairs = pairs[rng.permutation(len(pairs))[:edges]]
    x = rng.normal(size=(nodes, features)) + 0.3 * rng.normal(size=(6, features))[label]
    named = pd.DataFrame(x, columns=[f"x{i}" for i in range(features)])
    named.insert(0, "id", np.arange(nodes))
    return pd.DataFrame(pairs, columns=["src", "dst"]), named, pd.DataFrame({"id": named["id"], "label": label})


def epoch(kind: str, data: tuple[pd.DataFrame, ...], epochs: int, out: Path) -> tuple[float, int]:
    """Return seconds of an epoch, the median of all but the first, and the width that was chosen."""
    edges, features, labels = data
    loop = {"epochs": epochs, "progress": False, "logger": "none", "device": "cpu"}
    hopstate.fit(kind, edges, features=features, labels=labels, loop=loop, out=out)
    rows = [json.loads(line)["seconds"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(rows[1:]), json.loads((out / "config.json").read_text())["model"]["dim"]


def layer(kind: str, graph: Adjacency, dim: int) -> tuple[float, float]:
    """Return seconds of a layer forward and backward, ours and on a list of edges."""
    torch.manual_seed(0)
    own: torch.nn.Module = GAT(dim, dim, 8) if kind == "gat" else PNA(dim, dim, torch.bincount(graph.indptr.diff()))
    h, edges = torch.randn(graph.num_nodes, dim, requires_grad=True), graph.edge_index()
    seconds = [median_time(lambda given=given: own(h, given).sum().backward(), repeats=3) for given in (graph, edges)]  # type: ignore[misc]
    return seconds[0], seconds[1]


def main() -> None:
    """Print a line for each backbone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=12_000)
    parser.add_argument("--edges", type=int, default=260_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    require_green(
        "tests/ops/test_edge_attention.py", "tests/ops/test_neighbor_statistics.py", "tests/layers/test_edge_layers.py"
    )
    torch.set_num_threads(1)
    data = tables(args.nodes, args.edges, args.features)
    ends = data[0].to_numpy(np.int64)
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[np.lexsort(both.T)]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(both[:, 1], minlength=args.nodes))])
    graph = Adjacency.of(indptr, both[:, 0])
    print(machine())
    print(f"{args.nodes:,} nodes, {len(both):,} stored edges, {args.features} features")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            seconds, dim = epoch(kind, data, args.epochs, Path(folder) / kind)
            print(f"{kind}: {seconds:.2f} s an epoch at width {dim}", end="")
            if kind in ("gat", "pna"):
                ours, theirs = layer(kind, graph, dim)
                print(f"; a layer {1e3 * ours:.0f} ms, torch-geometric's {1e3 * theirs:.0f} ms", end="")
                print(f", {theirs / ours:.1f} times", end="")
            print()


if __name__ == "__main__":
    main()
