"""Loss curves of one method of each kind, small enough to run under every setting of `make test-portable`.

Two promises, both to TOLERANCE: a curve is the stored one (`curves.json`) on any processor, and that of one thread for
any number of threads. Dropout is off: what torch drops depends on the processor's maker. After a change that is meant
to move them: `HOPSTATE_WRITE_CURVES=1 pytest tests/test_curves.py`.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate import load_dataset
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.methods import get_method
from hopstate.methods.settings import config_from
from hopstate.runs import api

pytestmark = pytest.mark.portable

# relative. Adam moves a weight whose gradient is rounding alone (a bias before a batch norm) by whole steps either way,
# which training does not see and evaluation, by running means, does.
TOLERANCE = {"train_loss": 1e-3, "val_loss": 1e-2}
STORED = Path(__file__).with_name("curves.json")
LOOP = {
    "loop__epochs": 2,
    "loop__optim__lr": 5e-3,
    "loop__progress": False,
    "loop__tensorboard": "no",
    "loop__device": "cpu",
    "loop__checkpoint_seconds": 60,
}


def groups(n: int = 120) -> Graph:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    ends = rng.integers(0, n, (4 * n, 2))
    ends = ends[((y[ends[:, 0]] == y[ends[:, 1]]) | (rng.random(len(ends)) < 0.2)) & (ends[:, 0] != ends[:, 1])]
    x = (rng.normal(size=(n, 4)) + y[:, None]).astype(np.float32)
    part = rng.permutation(n) % 3
    masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
    return Graph.from_edges(ends, n, x=x, y=y.astype(np.int64), masks=masks, name="groups")


def rings(count: int = 30) -> GraphSet:
    rng, parts = np.random.default_rng(0), []
    y = np.arange(count) % 2
    sizes = rng.integers(4, 9, count)
    for label, size, first in zip(y, sizes, np.cumsum(sizes) - sizes):
        ring = np.stack([np.arange(size), (np.arange(size) + 1) % size], 1)
        parts.append(first + (ring if label else ring[:-1]))
    total = int(sizes.sum())
    x = rng.normal(size=(total, 3)).astype(np.float32)
    union = Graph.from_edges(np.concatenate(parts), total, x=x)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return GraphSet(union=union, offsets=offsets, y=y, masks=folds([np.arange(20)], [np.arange(20, 30)], count))


def events() -> Any:
    return load_dataset("messages-generated").slice(0, 300)


EVENTS = {"batch_size": 50, "evaluation__strategies": ["random"]}
HISTORIES = {"model__channel_dim": 6, "model__time_dim": 8, "model__out_dim": 8} | EVENTS
WALKS = {
    "model__dim": 12,
    "model__state_dim": 4,
    "model__dropout": 0.0,
    "walks__max_length": 2,
    "walks__repeats": 2,
    "walks__walks": 2,
}
BATCHES = {
    "batching": {
        "kind": "top",
        "num_clusters": 6,
        "clusters_per_batch": 2,
        "partitioner": "bisection",
        "top": {"refresh": 2, "rank": 8},
    },
}
BACKBONE = {"model__dim": 12, "model__num_layers": 2, "model__dropout": 0.0}
METHODS: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {
    "hop tokens": (
        "nagphormer",
        groups,
        {"model__dim": 16, "model__dropout": 0.0, "model__attention_dropout": 0.0, "tokens__num_hops": 3,
         "tokens__eigenvectors": 3, "batch_size": 20},
    ),
    "message passing": ("gcn", groups, BACKBONE),
    "compensated batches": ("sage", groups, BACKBONE | BATCHES),
    "walk tokens": ("gmn", groups, WALKS | {"batch_size": None}),
    "sets of graphs": ("gmn-graphs", rings, WALKS | {"batch_size": 8}),
    "event histories": ("dyg-mamba", events, HISTORIES | {"history__max_length": 8, "model__block__state_dim": 4}),
    "event attention": ("dygformer", events, HISTORIES | {"model__max_length": 6}),
    "node memory": ("ctdg-ssm", events, {"model__dim": 8, "model__time_dim": 4} | EVENTS),
    "sequences": (
        "ctdg-ssm-sequences", lambda: "path-sequences",
        {"read__length": 5, "read__count": 60, "model__dim": 8, "model__order": 1, "batch_size": 16},
    ),
}  # fmt: skip


def curve(kind: str, folder: Path) -> dict[str, list[float]]:
    """Train with the settings told and each class's own defaults: those that suit the data may be chosen otherwise."""
    method, data, settings = METHODS[kind]
    chosen, record = get_method(method), data()
    named = {key.replace("__", "."): value for key, value in {**LOOP, **settings}.items()}
    config = config_from(chosen, {**named, "data": record if isinstance(record, str) else "memory:curves"})
    run = api.fit_config(chosen, config, out=folder, record=None if isinstance(record, str) else record)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return {name: [row[name] for row in rows] for name in ("train_loss", "val_loss") if name in rows[0]}


@pytest.fixture(params=METHODS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_curve_is_the_stored_one(kind: str, tmp_path: Path) -> None:
    found = curve(kind, tmp_path / "run")
    stored = json.loads(STORED.read_text()) if STORED.is_file() else {}
    if os.environ.get("HOPSTATE_WRITE_CURVES"):
        stored[kind] = found
        STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n")
    for name, losses in stored[kind].items():
        assert found[name] == pytest.approx(losses, rel=TOLERANCE[name]), name


def test_two_threads_give_the_curve_of_one_to_rounding(kind: str, tmp_path: Path) -> None:
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(curve(kind, tmp_path / str(count)))
    for name, losses in found[0].items():
        assert found[1][name] == pytest.approx(losses, rel=TOLERANCE[name]), name
