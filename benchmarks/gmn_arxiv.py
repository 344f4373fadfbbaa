"""A training step and a pass over all nodes of a Graph Mamba Network on a synthetic graph of ogbn-arxiv's size.

Run: python benchmarks/gmn_arxiv.py [--variant gmn|gmn-|gps-mamba] [--budget 4GiB] [--mpnn gatedgcn] [--nodes 169343]
Defaults but for the encoding (none). Prints seconds (wall and CPU time) and the peak growth of
resident memory, pages of mapped files included; one line each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from common import machine, require_green
from gmn_scaling import peak, resident
from hopstate.data.graph import Graph
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import EncodingConfig, GMNRun, WalksConfig, build
from hopstate.methods.method import Context

EDGES, FEATURES, CLASSES = 1_166_243 / 169_343, 128, 40  # edges per node


def made(nodes: int) -> Graph:
    """Return a graph of skewed degrees with random features and classes."""
    rng = np.random.default_rng(0)
    pairs = (rng.random((round(EDGES * nodes), 2)) ** 2 * nodes).astype(np.int64)
    part, x = rng.permutation(nodes) % 3, rng.normal(size=(nodes, FEATURES)).astype(np.float32)
    masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
    return Graph.from_edges(pairs, nodes, x=x, y=rng.integers(0, CLASSES, nodes), masks=masks)


def measured(name: str, work: Callable[[], object], before: float) -> None:
    """Print the cost of a function."""
    wall, own = time.perf_counter(), time.process_time()
    work()
    spent = time.perf_counter() - wall, time.process_time() - own
    print(f"{name}: {spent[0]:.1f} s, processor {spent[1]:.1f} s, peak {(peak() - before) / 1e6:,.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="gmn")
    parser.add_argument("--mpnn", default="gatedgcn")
    parser.add_argument("--budget", default="4GiB")
    parser.add_argument("--nodes", type=int, default=169_343)
    options = parser.parse_args()
    require_green("tests/methods/gmn/test_gmn_inference.py", "tests/methods/gmn/test_gps.py")
    torch.set_num_threads(1)
    print(machine())
    graph = made(options.nodes)
    with tempfile.TemporaryDirectory() as folder:
        config = GMNRun(
            data="made", model=GMN.Config(variant=options.variant, mpnn=options.mpnn),
            encoding=EncodingConfig(kind="none"), walks=WalksConfig(max_memory=options.budget),
        )  # fmt: skip
        task = build(graph, config, Context(run=Path(folder), cache=Path(folder)))
        print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {options}, {type(task).__name__}", flush=True)
        optimizer, before = torch.optim.AdamW(task.model.parameters(), 1e-3), resident()

        def step() -> None:
            task.loss(next(iter(task.batches(0)))).backward()  # type: ignore[arg-type]
            optimizer.step()

        with torch.no_grad():
            task.model.eval()
            measured("pass over all nodes", lambda: task.evaluate("val"), before)
        task.model.train()
        measured("training step", step, before)


if __name__ == "__main__":
    main()
