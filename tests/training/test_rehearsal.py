"""Timing the first batches before a run starts changes no bit of the run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.datasets.generators import stochastic_block_model
from hopstate.runs.run import fit
from hopstate.training import trainer
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.progress import Reporter
from hopstate.training.trainer import Trainer

LINKS = {"evaluation.strategies": ["random"], "batch_size": 20}
WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6, "history.max_length": 6}
BATCHED = {"batching.num_clusters": 6, "batching.clusters_per_batch": 2}
CASES: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {**LINKS, "model.dim": 6, "model.time_dim": 6},
    "dyg-mamba": {**LINKS, **WIDTHS},
    "nagphormer": {"batch_size": 16},
    "sage": {"model.dropout": 0.5, "model.norm": "batch"},
    "sage-clusters": {**BATCHED, "batching.kind": "cluster", "model.norm": "batch"},
    "sage-gas": {**BATCHED, "batching.kind": "gas"},
    "sage-top": {**BATCHED, "batching.kind": "top"},
    "gmn": {},
}
QUICK = ("ctdg-ssm", "sage")


def data_of(name: str) -> EventStream | Graph:
    rng = np.random.default_rng(0)
    if "-" in name and not name.startswith("sage"):
        src, dst = rng.integers(0, 9, 140), rng.integers(9, 16, 140)
        return EventStream.from_arrays(src, dst, np.sort(rng.integers(0, 400, 140)), num_nodes=16)
    return stochastic_block_model(90, 3, degree=6, num_features=5, seed=0)


def run_of(name: str, out: Path, progress: bool, **more: Any) -> dict[str, dict[str, torch.Tensor]]:
    loop = {"loop.epochs": 1, "loop.tensorboard": "no", "loop.device": "cpu", "loop.checkpoint_seconds": 0.0}
    method = name if name in ("ctdg-ssm", "dyg-mamba") else name.split("-")[0]
    fit(method, data_of(name), out=out, **loop, **{"loop.progress": progress}, **CASES[name], **more)
    return load_checkpoint(out / "checkpoint.safetensors").tensors


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_timing_batches_changes_no_weight(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(trainer, "SHARE", 1.0)
    done: list[int] = []
    begin, step = Reporter.begin, Trainer._step
    monkeypatch.setattr(Reporter, "begin", lambda *a, **k: (done.append(-1), begin(*a, **k)))
    monkeypatch.setattr(Trainer, "_step", lambda *a: (done.append(1), step(*a)))
    told = run_of(name, tmp_path / "told", True)
    said = capsys.readouterr().err
    assert done[0] == -1
    assert 1 in done
    assert said.strip()
    quiet = run_of(name, tmp_path / "quiet", False)
    assert told.keys() == quiet.keys()
    for group, tensors in quiet.items():
        assert tensors.keys() == told[group].keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, told[group][key]), (group, key)


def test_the_first_batch_which_compiles_is_not_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 60.0, 61.5])
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    assert trainer._timed(iter("abc"), lambda batch: None, 3) == 1.5
    moments = iter([0.0, 60.0])
    assert trainer._timed(iter("abc"), lambda batch: None, 1) == 60.0  # a run of few steps has no time for a second
