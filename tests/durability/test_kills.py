"""Every method, killed three times by SIGKILL and resumed, is bit-identical to an uninterrupted run.

Every start is a fork of a process with all imports, so that a start is cheap. It kills itself after a random time,
wherever it is: in a step, in the middle of a file, or before the first one.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.methods import MODULES, get_method
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import RunFolder

LOOP = {"epochs": 5, "checkpoint_seconds": 0.001, "progress": False, "logger": "none", "device": "cpu"}
GMN = {"dim": 8, "expand": 1.0, "state_dim": 4}
WALKS = {"max_length": 2, "repeats": 1, "walks": 2}
FEW = {"batch_size": 40, "evaluation": {"batch_size": 40, "strategies": ["random"]}}
MEMORY = {"dim": 6, "time_dim": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "nagphormer": {"model": {"dim": 8}, "tokens": {"num_hops": 2, "eigenvectors": 2}},
    "gmn": {"model": GMN, "walks": WALKS},
    "gmn-graphs": {"model": GMN, "walks": WALKS, "batch_size": 10},
    "gin-graphs": {"model": {"dim": 8}, "batch_size": 10},
    "recency": {"evaluation": FEW["evaluation"]},
    "edgebank": {"evaluation": FEW["evaluation"]},
    "pair-trees": {"model": {"num_trees": 20, "max_leaves": 4, "min_leaf": 5}, "evaluation": FEW["evaluation"]},
    "event-trees": {"model": {"num_trees": 20, "max_leaves": 4, "min_leaf": 5}},
    "dygformer": {"model": {"max_length": 6, "channel_dim": 4, "time_dim": 4, "out_dim": 4}, **FEW},
    "graphmixer": {"model": {"num_links": 4, "dim": 6, "time_dim": 4, "out_dim": 4}, **FEW},
    "dyg-mamba": {"model": {"channel_dim": 4, "time_dim": 8, "out_dim": 8}, "history": {"max_length": 6}, **FEW},
    "dyg-mamba-nodes": {
        "model": {"channel_dim": 4, "time_dim": 8, "out_dim": 8},
        "history": {"max_length": 6},
        "batch_size": 40,
    },
    "ctdg-ssm": {"model": {**MEMORY, "static": "random", "static_dim": 4}, **FEW},
    "ctdg-ssm-nodes": {"model": MEMORY, "batch_size": 40},
    "ctdg-ssm-sequences": {"model": {"dim": 6}, "read": {"length": 5, "count": 40}, "batch_size": 20},
}
IMPORTED = ["hopstate.runs.run", "lightning_fabric", "sklearn.metrics", "matplotlib.figure", "pyarrow", "numba"]
IMPORTED += ["filelock", "matplotlib.backends.backend_agg", "docstring_parser", "attrs"]
BATCHED = {"kind": "gas", "num_clusters": 6, "clusters_per_batch": 2}


def data_of(method: str) -> Any:
    """Return a small record that a method can read."""
    rng, kind = np.random.default_rng(0), get_method(method).data
    if kind == "graph":
        y = np.arange(60) % 2
        x = rng.normal(size=(60, 5)).astype(np.float32) + y[:, None]
        types = {"relation": np.arange(150) % 2} if method == "rgcn" else {}
        return Graph.from_edges(rng.integers(0, 60, (150, 2)), 60, x=x.astype(np.float32), y=y, **types)
    if kind == "graphs":
        offsets = np.arange(0, 121, 4)
        ring = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
        pairs = np.concatenate([first + ring[: 3 + first % 8 // 4] for first in offsets[:-1]])  # rings against paths
        union = Graph.from_edges(pairs, 120, x=np.ones((120, 1), np.float32))
        masks = {name: np.arange(30) % 3 == i for i, name in enumerate(("train", "val", "test"))}
        return GraphSet(union=union, offsets=offsets, y=np.arange(30) % 2, masks=masks)
    if kind == "sequences":
        return "path-sequences"
    ends = rng.integers(0, 10, (2, 300))
    labels = {"labels": rng.integers(0, 2, 300).astype(np.float32)}
    return EventStream(src=ends[0], dst=10 + ends[1], t=np.sort(rng.integers(0, 900, 300)), num_nodes=20, **labels)


def start(method: str, settings: dict[str, Any], out: Path, resume: bool, after: float | None) -> None:
    """Train in this process, which kills itself after some seconds."""
    import hopstate

    torch.set_num_threads(1)
    if after is not None:
        threading.Thread(target=_kill, args=(after,), daemon=True).start()
    config = {**settings, "loop": {**LOOP, **settings.get("loop", {})}}
    begin = time.perf_counter()
    hopstate.fit(method, data_of(method), out=out, resume=resume, config=config)
    (out.parent / "seconds").write_text(str(time.perf_counter() - begin))


def _kill(after: float) -> None:
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)


def process(*arguments: Any) -> int:
    """Return how a training process ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, *sorted(set(MODULES.values()))])
    child = context.Process(target=start, args=arguments)
    with contextlib.closing(child):
        child.start()
        child.join()
        assert child.exitcode is not None
        return child.exitcode


def campaign(tmp_path: Path, method: str, settings: dict[str, Any], kills: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert process(method, settings, whole, False, None) == 0
    seconds, rng, count = float((tmp_path / "seconds").read_text()), np.random.default_rng(len(method)), 0
    for _ in range(20):
        ended = process(method, settings, cut, (cut / "metrics.jsonl").exists(), seconds * rng.uniform(0.05, 0.9))
        assert ended in (0, -signal.SIGKILL), f"a start after {count} kills ended with {ended}"
        if ended == 0:  # too late
            seconds *= 0.6
        count += ended == -signal.SIGKILL
        if count == kills:
            break
    assert count == kills
    assert process(method, settings, cut, (cut / "metrics.jsonl").exists(), None) == 0
    one, two = (load_checkpoint(folder / "model.safetensors").tensors.get("model", {}) for folder in (whole, cut))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    ends = [RunFolder(folder).read_json("result.json") for folder in (whole, cut)]
    assert ends[0]["metrics"] == ends[1]["metrics"]
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in RunFolder(f).history()] for f in (whole, cut)]
    assert rows[0] == rows[1]
    assert not list(cut.rglob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("method", MODULES)
def test_every_method_resumes_bit_identically(tmp_path: Path, method: str) -> None:
    campaign(tmp_path, method, SETTINGS.get(method, {"model": {"dim": 8}}), 3)


@pytest.mark.slow
def test_historical_embeddings_resume_bit_identically(tmp_path: Path) -> None:
    campaign(tmp_path, "gcn", {"model": {"dim": 8}, "batching": BATCHED}, 3)
