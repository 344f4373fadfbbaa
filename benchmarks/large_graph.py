"""A graph larger than memory: memory and CPU time per edge of each stage of a run.

    python benchmarks/large_graph.py --nodes 1e6 --edges 1e7 --features 128 --folder FOLDER
    python benchmarks/large_graph.py --nodes 1e7 --edges 1e8 --features 128 --folder FOLDER --stages hops nagphormer

Synthetic graphs with uniform endpoints (--edges counts stored edges, both directions) are written once as a store in
FOLDER and memory-mapped. 1% of the nodes are training nodes. Each stage is a separate process with one thread, sampled
50 times per second: "allocated" is its own memory, "mapped" the pages of mapped files, "resident" their sum. TOP's
epoch uses random nodes, and clusters if the stage "partition" has stored them in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import machine, require_green
from hopstate.data.graph import Graph
from hopstate.io.files import reserve_array
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.runs.data import preprocess
from hopstate.sampling.partition import cut_fraction, first_installed, partition
from hopstate.sampling.samplers import ClusterSampler
from hopstate.sampling.subgraph import NodeSetSource
from hopstate.training.tasks.task import Microbatches

STAGES = ("hops", "nagphormer", "partition", "top", "layerwise")
TRAIN, EVALUATED = 0.01, 0.001  # fractions of the nodes
STEP = 1 << 18  # rows of features generated at a time
BATCH = 50_000  # nodes of a batch of TOP


class Watch(threading.Thread):
    """Peak bytes of this process, as the kernel counts them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = {"allocated": 0, "mapped": 0, "resident": 0}, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            own, files, shared = (int(lines[k].split()[0]) * 1024 for k in ("RssAnon", "RssFile", "RssShmem"))
            for name, size in (("allocated", own), ("mapped", files + shared), ("resident", own + files + shared)):
                self.most[name] = max(self.most[name], size)


class Clock:
    """Prints the CPU time of its block, and the peak memory since the previous block."""

    def __init__(self, edges: int) -> None:
        self.edges = edges

    def __call__(self, name: str, share: float = 1.0) -> Clock:
        self.name, self.share = name, share
        return self

    def __enter__(self) -> None:
        self.watch = Watch()
        self.watch.start()
        self.begin, self.wall = time.process_time(), time.perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds, wall = (time.process_time() - self.begin) / self.share, time.perf_counter() - self.wall
        self.watch.ended.set()
        self.watch.join()
        peaks = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in self.watch.most.items())
        part = "" if self.share == 1 else f" (from {self.share:.3g} of it)"
        print(
            f"  {self.name}: {seconds:.1f} s of the processor{part}, clock {wall:.1f} s, "
            f"{1e9 * seconds / self.edges:.0f} ns an edge; peak GiB: {peaks}",
            flush=True,
        )


def make(folder: Path, nodes: int, edges: int, features: int) -> None:
    """Write the store, features in blocks."""
    rng = np.random.default_rng(0)
    bare = Graph.from_edges(rng.integers(0, nodes, (edges // 2, 2)), nodes)
    place = rng.permutation(nodes)
    count, evaluated = int(TRAIN * nodes), int(EVALUATED * nodes)
    masks, y = {}, np.full(nodes, -1)
    for name, rows in zip(("train", "val", "test"), np.split(place, [count, count + evaluated]), strict=True):
        masks[name] = np.zeros(nodes, bool)
        masks[name][rows[:evaluated] if name == "test" else rows] = True
        y[masks[name]] = rng.integers(0, 8, int(masks[name].sum()))
    bare.with_(y=y, masks=masks, name="made").save(str(folder))
    start = reserve_array(folder / "x.npy", (nodes, features))
    with (folder / "x.npy").open("r+b") as file:
        file.seek(start)
        for first in range(0, nodes, STEP):
            rng.standard_normal((min(STEP, nodes - first), features), np.float32).tofile(file)
    header = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(header | {"arrays": [*header["arrays"], "x"]}))


def settings(stage: str, budget: str) -> tuple[str, dict[str, Any]]:
    """Return a method and its settings."""
    quiet = {"data": "made", "loop.logger": "none", "loop.device": "cpu"}
    if stage == "nagphormer":
        return "nagphormer", quiet | {"tokens.num_hops": 3, "tokens.eigenvectors": 0, "tokens.max_memory": budget}
    top = {"batching.kind": "top", "batching.max_memory": budget, "model.dim": 64, "model.num_layers": 2}
    return "gcn", quiet | top | {"batching.nodes": "random", "batching.batch_size": BATCH}


def measure(stage: str, folder: Path, budget: str, most: int) -> None:
    """Print the parts of a stage, run in this process."""
    torch.set_num_threads(1)
    graph = Graph.load(str(folder / "store"))
    clock = Clock(graph.num_edges)
    if stage == "partition":
        with clock("clusters"):
            cluster = partition(graph, 10 * graph.num_nodes // BATCH)
        np.save(folder / "clusters.npy", cluster)
        print(f"  {first_installed()}, {cut_fraction(graph, cluster):.3f} of the edges cut", flush=True)
        return
    name, chosen = settings("nagphormer" if stage == "hops" else stage, budget)
    config = config_from(get_method(name), chosen)
    config = replace(config, loop=replace(config.loop, progress=False))
    with clock("read (the store's checks)"):
        graph = Graph.load(str(folder / "store"))
    if stage == "layerwise":
        config = replace(config, batching=replace(config.batching, kind="neighbor"))
    with clock("hops 0 to 3 into a file" if stage == "hops" else "prepare"):
        context = Context(run=folder, cache=folder / "cache", metrics=())
        ready, _ = preprocess(graph, config, context)
        task: Any = get_method(name).build(ready, config, context)
    if stage == "hops":
        return
    if stage != "layerwise":
        epoch(task, clock, most)
    if stage == "top":
        if (folder / "clusters.npy").is_file():
            task.source.source = by_clusters(task.source.source, np.load(folder / "clusters.npy"))
            epoch(task, clock, most, " of clusters")
        return
    task.model.eval()
    with clock("scores of validation nodes" if stage == "nagphormer" else "inference of all nodes"), torch.no_grad():
        task.evaluate("val")


def by_clusters(source: Any, cluster: np.ndarray) -> NodeSetSource:
    """Return a source of clusters, ten per batch, that compensates missing neighbors as another source does."""
    train, ahead = np.flatnonzero(source.is_train), source.ahead
    return NodeSetSource(
        source.graph, ClusterSampler(cluster, 10, seed=0), train, source.compensation, prefetch_bytes=ahead
    )


def epoch(task: Any, clock: Clock, most: int, kind: str = "") -> None:
    """Time an epoch with a fixed basis of TOP, extrapolated from at most `most` batches."""
    optimizer = torch.optim.Adam([p for p in task.model.parameters() if p.requires_grad])
    task.model.train()
    count = task.num_batches(3)
    measured = min(most, count)
    batches = task.batches(3, count - measured)
    with clock(f"an epoch ({measured} of {count} batches{kind})", measured / count):
        for batch in islice(batches, measured):
            optimizer.zero_grad(set_to_none=True)
            for part in batch if isinstance(batch, Microbatches) else (batch,):
                loss = task.loss(part)
                if loss is not None:
                    loss.backward()
            optimizer.step()


def main() -> None:
    """Run the given stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=float, default=1e6)
    parser.add_argument("--edges", type=float, default=1e7)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--folder", type=Path, required=True, help="where store and tokens go; the store is kept")
    parser.add_argument("--budget", default="6GiB", help="tokens.max_memory and batching.max_memory")
    parser.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    parser.add_argument("--batches", type=int, default=50, help="of an epoch that are timed, at most")
    parser.add_argument("--in-process", action="store_true", help="of one stage, in this process")
    o = parser.parse_args()
    if o.in_process:
        measure(o.stages[0], o.folder, o.budget, o.batches)
        return
    require_green("tests/methods/nagphormer/test_hops.py", "tests/methods/message_passing/test_batching.py")
    print(machine(), f"load {os.getloadavg()[0]:.1f}")
    if not (o.folder / "store" / "x.npy").is_file():
        make(o.folder / "store", int(o.nodes), int(o.edges), o.features)
    for stage in o.stages:
        sizes = f"{o.nodes:.3g} nodes, {o.edges:.3g} edges, {o.features} features"
        print(f"{stage}: {sizes}, budget {o.budget}", flush=True)
        command = [sys.executable, __file__, "--folder", str(o.folder), "--budget", o.budget]
        command += ["--batches", str(o.batches), "--stages", stage, "--in-process"]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    shutil.rmtree(o.folder / "tokens", ignore_errors=True)


if __name__ == "__main__":
    main()
