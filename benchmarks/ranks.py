"""Two ranks on two cores compared with one process on one core: batches per second of NAGphormer and DyG-Mamba.

    python benchmarks/ranks.py [--methods nagphormer dyg-mamba] [--ranks 2] [--steps 40] [--repeats 3]

Each rank has one thread and its own batch in a step. The baseline is `hopstate fit` in one process. Steps are
timed from the fourth on, evaluation is not; runs of either kind alternate, and the median counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import hopstate
from common import machine, require_green
from hopstate.training.devices import current_ranks
from hopstate.training.trainer import Trainer

FIRST = 3  # steps that compile and fill caches


def graph(nodes: int) -> hopstate.Graph:
    """Return nodes of 5 classes with 32 features and ten neighbors each."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, nodes)
    x = (np.eye(5)[y] @ rng.normal(size=(5, 32)) + rng.normal(size=(nodes, 32))).astype(np.float32)
    edges = rng.integers(0, nodes, (2, 5 * nodes))
    return hopstate.Graph.from_edges(edges, num_nodes=nodes, x=x, y=y, undirected=True)


def events(count: int) -> hopstate.EventStream:
    """Return events of 1,000 nodes; nodes with low numbers are the most frequent."""
    rng = np.random.default_rng(0)
    src, dst = (500 * rng.random((2, count)) ** 2).astype(np.int64)
    return hopstate.EventStream(src=src, dst=500 + dst, t=np.arange(count), num_nodes=1000)


def case(method: str, steps: int) -> tuple[Any, dict[str, Any]]:
    """Return data and settings with a given number of steps per epoch."""
    if method == "nagphormer":
        settings = {"batch_size": 2000, "model": {"dim": 128}, "tokens": {"num_hops": 7, "eigenvectors": 0}}
        return graph(int(2000 * steps / 0.6)), settings
    return events(int(200 * steps / 0.7)), {"batch_size": 200, "evaluation": {"strategies": ["random"]}}


class EnoughError(Exception):
    """All steps are timed."""


def worker(method: str, steps: int, out: str) -> None:
    """Train for an epoch and write the steps per second."""
    times: list[float] = []
    step = Trainer._step

    def timed(self: Trainer, *rest: Any) -> None:
        step(self, *rest)
        times.append(time.perf_counter())
        if len(times) == steps:
            raise EnoughError

    Trainer._step = timed  # type: ignore[method-assign]
    data, settings = case(method, steps + 1)
    loop = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu", "checkpoint_seconds": 1e6}
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EnoughError):
        hopstate.fit(method, data, out=Path(folder) / "run", keep_data=False, config={**settings, "loop": loop})
    if current_ranks().is_first:
        Path(out).write_text(json.dumps((len(times) - 1 - FIRST) / (times[-1] - times[FIRST])))


def measured(method: str, ranks: int, steps: int) -> float:
    """Return batches per second of a number of ranks, one core each."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rate.json"
        words = [__file__, "--worker", method, "--steps", str(steps), "--out", str(out)]
        start = [sys.executable]
        if ranks > 1:
            start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:ranks]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        subprocess.run(["taskset", "-c", cores, *start, *words], check=True, env=environment, stderr=subprocess.DEVNULL)
        return ranks * json.loads(out.read_text())


def main() -> None:
    """Measure, or run as one of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["nagphormer", "dyg-mamba"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--worker", help="a method, which this process trains")
    parser.add_argument("--out", help="of a worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.steps, options.out)
        return
    require_green("tests/training/test_ranks.py")
    print(machine())
    print(f"load of the last minute before the first run: {os.getloadavg()[0]:.2f}")
    for method in options.methods:
        rates: dict[int, list[float]] = {1: [], options.ranks: []}
        for _ in range(options.repeats):
            for ranks, found in rates.items():
                found.append(measured(method, ranks, options.steps))
        one, many = (statistics.median(found) for found in rates.values())
        print(
            f"{method}: {one:.2f} batches/s in one process on one core, {many:.2f} of {options.ranks} ranks on "
            f"{options.ranks} cores, {many / one:.2f} times ({options.repeats} runs each, {options.steps} steps)"
        )


if __name__ == "__main__":
    main()
