"""Time and peak memory of a training step of a Graph Mamba Network against nodes and against tokens per node.

Run: python benchmarks/gmn_scaling.py [--out FILE] [--largest 1000000] [--tokens 1000]
Every point runs in a separate process; time is CPU time of one thread; memory is the peak of resident memory
minus the memory before the step (Linux). Slopes are least squares over the upper half of the points, on log-log.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from common import machine, require_green

SMALL = {"dim": 16, "expand": 1.0, "state_dim": 4, "mpnn_layers": 1}  # 1 M nodes in a few GB
WALKS = {"max_length": 1, "repeats": 1, "walks": 2}


def point(nodes: int, walks: dict[str, int], repeats: int) -> dict[str, float]:
    """Return seconds and bytes of a step on a random graph of mean degree 8."""
    from hopstate.data.graph import Graph
    from hopstate.layers.message import Adjacency
    from hopstate.methods.gmn.batches import token_inputs
    from hopstate.methods.gmn.model import GMN, GMNInputs
    from hopstate.methods.gmn.tokens import WalkSettings, token_order, walk_tokens
    from hopstate.ops.walks import WalkTable

    torch.set_num_threads(1)
    rng, settings = np.random.default_rng(0), WalkSettings(**walks)
    graph = Graph.from_edges(rng.integers(0, nodes, (4 * nodes, 2)), nodes, duplicates="keep")
    table, rows = WalkTable.of(graph.indptr, graph.indices), np.arange(nodes)

    def step(count: int) -> None:
        part = rows[:count]
        tokens = walk_tokens(table, part, settings, kind="subgraph", seed=0)
        inputs = GMNInputs(
            x=torch.ones(nodes, 16), graph=Adjacency.of(graph.indptr, graph.indices), targets=torch.from_numpy(part),
            order=torch.arange(count), sequences=torch.tensor([0, count]), **token_inputs(tokens),
            token_order=token_order(count, settings, None),
        )  # fmt: skip
        model(inputs).square().mean().backward()
        model.zero_grad()

    model = GMN(GMN.Config(**SMALL), in_dim=16, out_dim=2, tokens=settings.tokens)
    step(min(nodes, 50))  # compiles
    before = resident()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        step(nodes)
        times.append(time.process_time() - start)
    return {"seconds": float(np.median(times)), "bytes": peak() - before}


def resident() -> float:
    """Return the current resident memory, in bytes."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> float:
    """Return the peak of resident memory so far, in bytes."""
    from hopstate.training.devices import peak_memory_mb

    return 1e6 * (peak_memory_mb() or 0.0)


def run(nodes: int, walks: dict[str, int], prefix: str, repeats: int = 3) -> dict[str, float]:
    """Return `point` from a fresh process; `prefix` precedes its command, for example to pin it."""
    command = [*prefix.split(), sys.executable, __file__, "--point", json.dumps([nodes, walks, repeats])]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def slope(x: list[int], y: list[float]) -> float:
    """Return the log-log slope over the upper half of the points."""
    half = len(x) // 2
    return float(np.polyfit(np.log(x[half:]), np.log(y[half:]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="gmn_scaling.png")
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--prefix", default="", help="words before the command of every point")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(point(*json.loads(options.point))))
        return
    require_green("tests/layers/test_ssm.py", "tests/methods/gmn/test_walk_tokens.py")
    print(machine())
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sizes = [n for n in (1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000) if n <= options.largest]
    tokens = [k for k in (3, 11, 31, 101, 301, 1001) if k <= options.tokens + 1]
    by_nodes = [run(n, WALKS, options.prefix, 1 if n > 100_000 else 3) for n in sizes]
    by_tokens = [run(200, {"max_length": 1, "repeats": k - 1, "walks": 2}, options.prefix) for k in tokens]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for axis, x, found, label in ((axes[0], sizes, by_nodes, "nodes"), (axes[1], tokens, by_tokens, "tokens a node")):
        seconds, mib = [f["seconds"] for f in found], [max(f["bytes"], 1.0) / 2**20 for f in found]
        slopes = f"slopes: time {slope(x, seconds):.2f}, memory {slope(x, mib):.2f}"
        print(f"{label}: {x}\n  seconds {np.round(seconds, 4).tolist()}\n  MiB {np.round(mib, 1).tolist()}\n  {slopes}")
        axis.loglog(x, seconds, "o-", label="seconds a step")
        axis.loglog(x, mib, "s-", label="MiB")
        axis.set(xlabel=label, title=slopes)
        axis.legend()
    figure.tight_layout()
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=120)


if __name__ == "__main__":
    main()
