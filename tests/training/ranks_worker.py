"""The worker of multi-process tests, under torchrun or in one process: losses by step, metrics and weights of cases."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import hopstate
from hopstate.cli.main import main
from hopstate.training.devices import current_ranks
from hopstate.training.trainer import Trainer

LOOP: dict[str, Any] = {
    "epochs": 2, "patience": None, "progress": False, "logger": "none", "device": "cpu", "precision": "64",
}  # fmt: skip
LOOP |= {"optim": {"lr": 0.001}}
NODES = {"model": {"dim": 8, "dropout": 0.0}, "class_weights": "balanced"}
CLUSTERS = {"num_clusters": 8, "clusters_per_batch": 3}
MAMBA = {"model": {"channel_dim": 4, "time_dim": 8, "out_dim": 12, "block": {"dropout": 0.0}}}
HOPS = {"model": {"dim": 8, "dropout": 0.0, "attention_dropout": 0.0}}
EVENTS = {"batch_size": 31, "evaluation": {"strategies": ["random"], "batch_size": 50}}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nagphormer": ("nagphormer", "graph", HOPS | {"batch_size": 10, "tokens": {"num_hops": 2, "eigenvectors": 2}}),
    "kept-tokens": (  # in a file, of which each rank computes its rows
        "nagphormer", "graph",
        HOPS | {"batch_size": 12, "tokens": {"num_hops": 2, "eigenvectors": 2, "max_memory": 8000}},
    ),
    "neighbor": ("sage", "graph", NODES | {"batching": {"kind": "neighbor", "batch_size": 12, "fanouts": [3]}}),
    "top": ("gcn", "graph", NODES | {"batching": {"kind": "top", **CLUSTERS}}),
    "dyg-mamba": (
        "dyg-mamba", "events",
        EVENTS | MAMBA | {"history": {"max_length": 6}},
    ),
    "graphmixer": ("graphmixer", "events", EVENTS | {"model": {"num_links": 4, "dropout": 0.0}, "max_events": 124}),
    "sequences": (
        "ctdg-ssm-sequences", "path-sequences",
        {"read": {"length": 4, "count": 70}, "batch_size": 7, "model": {"dim": 6, "order": 1}},
    ),
    "gmn": (
        "gmn", "graph",
        NODES | {"batch_size": 12, "walks": {"max_length": 2, "repeats": 2, "walks": 2}, "encoding": {"kind": "none"}},
    ),
    "graph-links": (
        "gcn", "graph", {"task": "link", "model": {"dim": 8}, "batching": {"kind": "cluster", **CLUSTERS}},
    ),
    "other-data": ("graphmixer", "other", EVENTS | {"model": {"num_links": 4}}),
    "event-nodes": (
        "dyg-mamba-nodes", "classes",
        MAMBA | {"batch_size": 31},
    ),
}  # fmt: skip


def graph(kind: str = "graph") -> hopstate.Graph:
    """Return 101 nodes of three classes; regression values or labels, some of them missing."""
    rng = np.random.default_rng(0)
    n = 101
    y = rng.integers(0, 3, n)
    near = rng.integers(0, n, (400, 2))
    near = near[(y[near[:, 0]] == y[near[:, 1]]) | (rng.random(400) < 0.3)]
    near = near[near[:, 0] != near[:, 1]]
    x = (np.eye(3)[y] + rng.normal(size=(n, 3))).astype(np.float32)
    made = hopstate.Graph.from_edges(near.T, num_nodes=n, x=x, y=y.astype(np.int64), undirected=True)
    if kind == "graph":
        return made
    wide = np.stack([x[:, 0] * 2 + 1, x[:, 1] - x[:, 2]], 1).astype(np.float32)
    wide = (wide > 0).astype(np.float32) if kind == "labels" else wide
    wide[rng.random(wide.shape) < 0.2] = np.nan
    return made.with_(y=wide, class_names=None)


def events(labels: bool = False) -> hopstate.EventStream:
    """Return 400 events of 20 nodes, half of which repeat an earlier pair."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 10, 400), 10 + rng.integers(0, 10, 400)
    again = np.arange(20, 400)[rng.random(380) < 0.5]
    src[again], dst[again] = src[again - 5], dst[again - 5]
    attr = rng.standard_normal((400, 2)).astype(np.float32)
    y = {"labels": (src + (attr[:, 0] > 0)) % 3} if labels else {}
    return hopstate.EventStream(
        src=src, dst=dst, t=np.sort(rng.integers(0, 400, 400)), num_nodes=20, edge_attr=attr, **y
    )


def data_of(kind: str) -> Any:
    """Return a case's data."""
    if kind == "other":  # rank 1 reads another dataset
        return events(bool(current_ranks().rank))
    if kind in ("graph", "values", "labels"):
        return graph(kind)
    return kind if kind == "path-sequences" else events(kind == "classes")


def run(name: str, home: Path, batches: int = 1) -> None:
    """Run a case in home/name with `joined` batches per step; write its losses by step next to it."""
    method, kind, settings = CASES[name]
    if batches > 1:
        settings = settings | {"batch_size": batches * settings["batch_size"]}
    losses: list[float] = []
    learn = Trainer._learn
    Trainer._learn = lambda self, loss: (losses.append(float(loss)), learn(self, loss))[1]  # type: ignore[method-assign]
    try:
        hopstate.fit(method, data_of(kind), out=home / name, keep_data=False, config={**settings, "loop": LOOP})
    finally:
        Trainer._learn = learn  # type: ignore[method-assign]
    if current_ranks().is_first:
        (home / f"{name}.json").write_text(json.dumps(losses))


def killed(rank: int, step: int) -> None:
    """Kill a rank at the start of a step."""
    backward = Trainer._backward_on_ranks

    def step_or_die(self: Trainer, *rest: Any) -> Any:
        if (current_ranks().rank, self.progress.total_steps) == (rank, step):
            os.kill(os.getpid(), signal.SIGKILL)
        return backward(self, *rest)

    Trainer._backward_on_ranks = step_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1] == "killed":
        killed(int(sys.argv[2]), int(sys.argv[3]))
        sys.exit(main(sys.argv[4:]))
    for case in sys.argv[2:]:
        run(case, Path(sys.argv[1]))
