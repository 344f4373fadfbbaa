"""Time, memory and accuracy of training on large block-model graphs: full batch, plain clusters, TOP, GAS.

    python benchmarks/top_epoch.py make FOLDER [--nodes 200000 --degree 24 --features 128]
    python benchmarks/top_epoch.py top|cluster|gas|exact|full FOLDER [--epochs 5] [--model gcn --layers 3 --dim 256]

The graph is written once and read as memory maps; one kind per run, so that memory is measured separately. Memory is
resident memory with the pages of the maps that were read; "imports_gb" is the part of importing torch and
torch-geometric. Batches are METIS clusters (stored with the graph), with --planted the generator's own blocks (if METIS
would take too long), or with --uniform that number of uniformly drawn nodes. Those of top and cluster contain only
training nodes, those of gas all nodes, because its cache would never be written otherwise. "exact" is the control for
top: the same batches, but a full-graph pass with the loss on the batch's nodes only.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import torch

from common import machine, require_green
from hopstate.compensation.gas import GasCache
from hopstate.compensation.top.top import Refresher, TopConfig
from hopstate.data.graph import Graph
from hopstate.datasets.generators import stochastic_block_model
from hopstate.methods.message_passing.batching import embedder, exact_inference, prepared_top
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.partition import partition
from hopstate.sampling.samplers import ClusterSampler, NodeSampler, UniformSampler
from hopstate.sampling.subgraph import BatchSource, GraphBatch, NodeSetSource, full_graph
from hopstate.training.tasks.node import FullGraph, NodeLabels, NodeTask, Subgraphs
from hopstate.training.tasks.target import Target

BLOCK = 16_384  # nodes in work at a time in inference and refreshes


class WholeSource(BatchSource):
    """The whole graph every time, with the loss on a batch's nodes: mini-batch gradients without any error.

    Args:
        graph: with features.
        sampler: draws training nodes.
    """

    def __init__(self, graph: Graph, sampler: NodeSampler) -> None:
        self.x, self.adjacency = full_graph(graph)
        self.sampler, self.nodes = sampler, np.arange(graph.num_nodes)

    def num_batches(self, epoch: int) -> int:
        """Return the sampler's number of batches."""
        return self.sampler.num_batches(epoch)

    def batch(self, epoch: int, number: int) -> GraphBatch:
        """Return one batch."""
        rows = torch.from_numpy(self.sampler.node_set(epoch, number).nodes)
        return GraphBatch(self.x, self.adjacency, self.nodes, rows)


class Resident:
    """Largest resident memory while it runs, in GB, sampled every 20 ms."""

    def __enter__(self) -> Resident:
        self.peak, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        process = psutil.Process()
        while True:
            self.peak = max(self.peak, round(process.memory_info().rss / 1e9, 2))
            if self._stop.wait(0.02):
                return

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["make", "top", "cluster", "gas", "exact", "full"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--degree", type=float, default=24)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--homophily", type=float, default=0.3)
    parser.add_argument("--signal", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.2, help="of the nodes, for training")
    parser.add_argument("--clusters", type=int, default=40)
    parser.add_argument("--per-batch", type=int, default=1)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--uniform", type=int, help="batches of so many uniformly drawn nodes")
    parser.add_argument("--model", default="gcn", choices=["gcn", "sage", "gin", "gcnii"])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--linear", action="store_true", help="no GELU between the features' map and the first layer")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--rank", type=int, help="k; by default the width")
    parser.add_argument("--refresh", type=int, default=TopConfig.refresh)
    parser.add_argument("--directions", type=int, default=TopConfig.directions)
    parser.add_argument("--all-nodes", action="store_true", help="batches of all nodes, not only of training nodes")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-accuracy", action="store_true")
    parser.add_argument("--no-tests", action="store_true")
    o = parser.parse_args()
    if not o.no_tests:
        require_green("tests/compensation/top/test_top.py")
    if o.kind == "make":
        settings = {"degree": o.degree, "homophily": o.homophily, "num_features": o.features, "signal": o.signal}
        stochastic_block_model(o.nodes, o.classes, seed=0, **settings).save(o.folder)
        return
    from torch_geometric.nn import GCNConv  # noqa: F401  (imported here, so that memory without it can be measured)

    imports = psutil.Process().memory_info().rss
    graph = Graph.load(o.folder)
    row: dict[str, object] = {"kind": o.kind, "nodes": graph.num_nodes, "stored_edges": graph.num_edges}
    print(json.dumps(row | {"imports_gb": round(imports / 1e9, 2)} | measure(o, graph) | {"machine": machine()}))


def measure(o: argparse.Namespace, graph: Graph) -> dict[str, object]:
    """Prepare and train; return times, memory and accuracy."""
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    cut, end = round(o.share * graph.num_nodes), round((o.share + 1) / 2 * graph.num_nodes)
    split = {"train": np.sort(order[:cut]), "val": np.sort(order[cut:end]), "test": np.sort(order[end:])}
    classes = tuple(map(str, range(graph.num_classes)))
    labels = NodeLabels(
        y=np.array(graph.y), split=split, target=Target(goal="classes", names=classes, metrics=("accuracy",))
    )
    torch.manual_seed(o.seed)
    settings = Backbone.Config(dim=o.dim, num_layers=o.layers, dropout=o.dropout, block="conv")
    model = Backbone(settings, kind=o.model, in_dim=graph.num_features, num_classes=len(classes))
    if o.linear:
        model.embed[2] = torch.nn.Identity()
    row: dict[str, object] = {}
    with Resident() as seen:
        task = make_task(o, graph, labels, model, split["train"], row)
    row["preparation_gb"] = seen.peak
    optimizer = torch.optim.Adam(model.parameters(), o.lr)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, o.epochs * task.num_batches(0))
    wall, processor, memory = [], [], []
    for epoch in range(o.epochs):
        with Resident() as seen:
            begin = time.perf_counter(), time.process_time()
            model.train()
            for batch in task.batches(epoch):  # a refresh, where one is due, is part of the epoch
                optimizer.zero_grad()
                task.loss(batch).backward()
                optimizer.step()
                falling.step()
            wall.append(round(time.perf_counter() - begin[0], 2))
            processor.append(round(time.process_time() - begin[1], 2))
        memory.append(seen.peak)
    row |= {"epochs_s": wall, "epochs_processor_s": processor, "epochs_gb": memory}
    row |= {"median_epoch_s": float(np.median(wall)), "mean_epoch_s": float(np.mean(wall))}
    model.eval()
    if not o.no_accuracy:
        with torch.no_grad():
            row["test_accuracy"] = round(task.evaluate("test")["accuracy"], 4)
    return row


def make_task(
    o: argparse.Namespace, graph: Graph, labels: NodeLabels, model: Backbone, train: np.ndarray, row: dict[str, object]
) -> NodeTask:
    """Return the task of a kind; write what its preparation took into row."""
    if o.kind == "full":
        return NodeTask(model, FullGraph(full_graph(graph), labels))
    sampler = make_sampler(o, graph, None if o.all_nodes or o.kind == "gas" else train, row)
    if o.kind == "exact":
        return NodeTask(model, Subgraphs(WholeSource(graph, sampler), labels, exact_inference(graph, BLOCK)))
    missing, rows, refresher = None, None if o.all_nodes else train, None
    if o.kind == "top":
        begin = time.perf_counter()
        config = TopConfig(rank=o.rank, refresh=o.refresh, directions=o.directions)
        missing = prepared_top(graph, config, model, seed=0, rows=rows, block_size=BLOCK)
        row["compensation_s"] = round(time.perf_counter() - begin, 2)
        if o.refresh:
            refresher = Refresher(missing, model, embedder(graph, missing, BLOCK), o.refresh)
    elif o.kind == "gas":
        missing = GasCache(graph.num_nodes, [o.dim] * o.layers)
    source = NodeSetSource(graph, sampler, train, missing)
    return NodeTask(model, Subgraphs(source, labels, exact_inference(graph, BLOCK), refresh=refresher))


def make_sampler(
    o: argparse.Namespace, graph: Graph, rows: np.ndarray | None, row: dict[str, object]
) -> ClusterSampler | UniformSampler:
    """Return what draws batches among rows (None: all nodes); write what the partition took into row."""
    if o.uniform:
        return UniformSampler(np.arange(graph.num_nodes) if rows is None else rows, o.uniform, seed=o.seed)
    begin = time.perf_counter()
    kept = o.folder.with_name(f"{o.folder.name}-{o.clusters}-clusters.npy")
    if o.planted:
        cluster = planted(graph, o.clusters)
    elif kept.exists():
        cluster = np.load(kept)
    else:
        cluster = partition(graph, o.clusters)
        np.save(kept, cluster)
    row["partition_s"] = round(time.perf_counter() - begin, 2)
    return ClusterSampler(cluster, o.per_batch, seed=o.seed, rows=rows)


def planted(graph: Graph, clusters: int) -> np.ndarray:
    """Return the cluster of each node: the block model's classes, each cut at random into equal clusters."""
    assert graph.y is not None
    each = -(-clusters // graph.num_classes)
    return np.asarray(graph.y) * each + np.random.default_rng(0).integers(each, size=graph.num_nodes)


if __name__ == "__main__":
    main()
