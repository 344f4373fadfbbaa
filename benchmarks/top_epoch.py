"""Time, memory and accuracy of training on a block-model graph of 200,000 nodes: full batch, METIS parts, TOP.

A 3-layer GCN (plain residual blocks) of width 256, 128 features, 2.4 million undirected edges, a fifth of the nodes for
training. One kind a run, so that memory is its own:

    python benchmarks/top_epoch.py top|cluster|full [--epochs 5] [--nodes 200000]

Memory is resident memory, of which importing torch and torch-geometric alone takes what "imports_gb" says.
"""

from __future__ import annotations

import argparse
import json
import threading
import time

import numpy as np
import psutil
import torch

from common import machine, require_green
from hopstate.batching.partition import partition
from hopstate.batching.refresh import Refresher
from hopstate.batching.samplers import PartSampler
from hopstate.batching.subgraph import NodeSetSource, whole_graph
from hopstate.batching.top import TopConfig
from hopstate.datasets.generators import stochastic_block_model
from hopstate.methods.batching import embedder, exact_inference, prepared_top
from hopstate.models.backbones import Backbone
from hopstate.training.batch_graph_task import SubgraphTask
from hopstate.training.node_task import FullGraphTask, NodeLabels

BLOCK = 200_000  # nodes in work at a time in inference and refreshes


class Resident:
    """Largest resident memory while it runs, sampled every 20 ms."""

    def __enter__(self) -> Resident:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, process.memory_info().rss)

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["top", "cluster", "full"])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--homophily", type=float, default=0.3)
    parser.add_argument("--signal", type=float, default=1.0)
    parser.add_argument("--parts", type=int, default=40)
    parser.add_argument("--per-batch", type=int, default=1)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--rank", type=int, help="k; by default the width")
    parser.add_argument("--refresh", type=int, default=TopConfig.refresh)
    parser.add_argument("--all-nodes", action="store_true", help="batches of all nodes, not of training nodes alone")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--no-tests", action="store_true")
    o = parser.parse_args()
    if not o.no_tests:
        require_green("tests/batching/test_top.py")
    from torch_geometric.nn import GCNConv  # noqa: F401  (imported here, so that memory without it can be told)

    imports = psutil.Process().memory_info().rss
    graph = stochastic_block_model(
        o.nodes, o.classes, degree=24, homophily=o.homophily, num_features=128, signal=o.signal, seed=0
    )
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    cut = graph.num_nodes // 5
    split = {"train": np.sort(order[:cut]), "val": np.sort(order[cut : 2 * cut]), "test": np.sort(order[2 * cut :])}
    labels = NodeLabels(
        y=np.array(graph.y), split=split, metrics=("accuracy",), class_names=tuple(map(str, range(o.classes)))
    )
    torch.manual_seed(0)
    settings = Backbone.Config(dim=o.dim, num_layers=3, dropout=0.2, block="plain")
    model = Backbone(settings, kind="gcn", in_dim=128, num_classes=o.classes)
    row: dict[str, object] = {"kind": o.kind, "nodes": graph.num_nodes, "stored_edges": graph.num_edges}
    row["imports_gb"] = round(imports / 1e9, 2)
    with Resident() as seen:
        task = make_task(o, graph, labels, model, split["train"], row)
    row["preparation_gb"] = round(seen.peak / 1e9, 2)
    optimizer = torch.optim.Adam(model.parameters(), o.lr)
    times = []
    with Resident() as seen:
        for epoch in range(o.epochs):
            begin, processor = time.perf_counter(), time.process_time()
            model.train()
            for batch in task.batches(epoch):  # a refresh, where one is due, is part of the epoch
                optimizer.zero_grad()
                task.loss(batch).backward()
                optimizer.step()
            times.append((time.perf_counter() - begin, time.process_time() - processor))
    row["epochs_processor_s"] = np.round(times, 2)[:, 1].tolist()  # those that begin with a refresh take longer
    row["median_epoch_s"], row["mean_epoch_s"] = np.median(times, 0)[0].round(2), np.mean(times, 0)[0].round(2)
    row["epochs_gb"] = round(seen.peak / 1e9, 2)
    model.eval()
    with torch.no_grad():
        row["test_accuracy"] = round(task.evaluate("test")["accuracy"], 4)
    print(json.dumps(row | {"epochs": o.epochs, "machine": machine()}))


def make_task(o, graph, labels, model, train, row):
    if o.kind == "full":
        return FullGraphTask(model, whole_graph(graph), labels, seed=0)
    begin = time.perf_counter()
    part = partition(graph, o.parts)
    row["partition_s"] = round(time.perf_counter() - begin, 2)
    missing, rows, refresher = None, None if o.all_nodes else train, None
    if o.kind == "top":
        begin = time.perf_counter()
        config = TopConfig(rank=o.rank, refresh=o.refresh)
        missing = prepared_top(graph, config, model, seed=0, rows=rows, block_size=BLOCK)
        row["compensation_s"] = round(time.perf_counter() - begin, 2)
        if o.refresh:
            refresher = Refresher(missing, model, embedder(graph, missing, BLOCK), o.refresh)
    source = NodeSetSource(graph, PartSampler(part, o.per_batch, seed=0, rows=rows), train, missing)
    predict = exact_inference(graph, BLOCK)
    return SubgraphTask(model, source, labels, predict, seed=0, ahead=0, refresh=refresher)


if __name__ == "__main__":
    main()
