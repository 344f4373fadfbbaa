"""Guarantees for callers: settings of other types, an unchanged random state, readable tables."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.cli.main import main
from hopstate.errors import CheckpointError, ConfigError
from hopstate.training.run_folder import RunFolder, flatten
from hopstate.training.trainer import Trainer

LOOP: dict[str, Any] = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    pd.DataFrame(rng.integers(0, 60, (200, 2)), columns=["source", "target"]).to_csv("edges.csv", index=False)
    pd.DataFrame(x, columns=list("abc")).assign(id=range(60)).to_csv("features.csv", index=False)
    pd.DataFrame({"id": range(60), "label": (x[:, 0] > 0).astype(int)}).to_csv("labels.csv", index=False)
    return {"features": Path("features.csv"), "labels": Path("labels.csv")}


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rows = [(f"u{i % 7}", f"v{i * i % 5}", 10 * i) for i in range(120)]
    pd.DataFrame(rows, columns=["source", "target", "time"]).to_csv("events.csv", index=False)
    return "events.csv"


@pytest.mark.parametrize(
    ("given", "name", "kept"),
    [
        ({"model": {"dim": np.array([8, 16])[0]}}, "model.dim", 8),
        ({"loop": {"optim": {"lr": np.float32(0.01)}}}, "loop.optim.lr", 0.01),
        ({"loop": {"optim": {"lr": np.array(0.01)}}}, "loop.optim.lr", 0.01),
        ({"loop": {"seed": np.int64(3)}}, "loop.seed", 3),
        ({"read": {"text_ids": np.bool_(True)}}, "read.text_ids", True),
    ],
)
def test_numpy_numbers_are_valid_settings(
    tables: dict[str, Path], given: dict[str, Any], name: str, kept: float
) -> None:
    run = hopstate.fit("mlp", "edges.csv", **tables, config={**given, "loop": LOOP | given.get("loop", {})})
    value = flatten(json.loads((run.path / "config.json").read_text()))[name]
    assert (value, type(value)) == (kept, type(kept))


def test_paths_are_valid_settings(tables: dict[str, Path]) -> None:
    run = hopstate.fit("mlp", Path("edges.csv"), read=tables, loop=LOOP)
    again = hopstate.predict(run.path, data=Path("edges.csv"), read={"features": Path("features.csv")})
    assert len(again) == 60


@pytest.mark.parametrize(
    "window", [timedelta(seconds=200), np.timedelta64(200, "s"), pd.Timedelta("200s"), np.int32(200)]
)
def test_durations_are_valid_settings(events: str, window: Any) -> None:
    split = {"kind": "window", "window": window}
    run = hopstate.fit("recency", events, read={"time_unit": "s"}, split=split, loop=LOOP)
    assert run.metrics["test"]["num_events"] == 20


def test_explaining_a_node_keeps_the_random_state(tables: dict[str, Path]) -> None:
    run = hopstate.fit("gcn", "edges.csv", **tables, loop=LOOP, model={"dim": 4})
    before = torch.get_rng_state()
    hopstate.explain(run.path, node=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_other_objects_are_rejected_by_type(tables: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"model\.dim.*complex"):
        hopstate.fit("mlp", "edges.csv", **tables, loop=LOOP, model={"dim": 8 + 1j})


def test_a_moved_project_resumes(tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, words = tmp_path / "p", ["--read.features", "features.csv", "--read.labels", "labels.csv"]
    project.mkdir()
    for name in ("edges.csv", "features.csv", "labels.csv"):
        (tmp_path / name).rename(project / name)
    monkeypatch.chdir(project)
    fit = ["fit", "mlp", "--data", "edges.csv", *words, "--loop.progress", "false", "--out", "run"]
    search = ["tune", "mlp", "--data", "edges.csv", *words, "--loop.epochs", "1", "--loop.progress", "false"]
    assert main([*fit, "--loop.epochs", "2"]) == 0
    assert main([*search, "--trials", "1", "--out", "search"]) == 0
    project.rename(tmp_path / "q")
    monkeypatch.chdir(tmp_path / "q")
    hopstate.predict("run")
    assert main([*fit, "--loop.epochs", "3", "--resume"]) == 0
    assert main(["fit", "mlp", "--resume", "--out", "run", "--loop.epochs", "4", "--loop.progress", "false"]) == 0
    assert main([*search, "--trials", "2", "--out", "search"]) == 0
    shutil.copytree("run", tmp_path / "copy")  # existing data are found by their path
    monkeypatch.chdir(tmp_path)
    hopstate.predict("copy")
    labels = pd.read_csv("q/labels.csv")
    labels.assign(label=1 - labels["label"]).to_csv("q/labels.csv", index=False)
    monkeypatch.chdir(tmp_path / "q")
    with pytest.raises(CheckpointError, match="run"):
        hopstate.fit("mlp", "edges.csv", **tables, loop=LOOP | {"epochs": 5}, out="run", resume=True)


def _drawn(call: Callable[[], Any]) -> list[tuple[float, float]]:
    np.random.seed(123)
    torch.manual_seed(123)
    found = []
    for _ in range(2):
        found.append((float(np.random.rand()), torch.rand(1).item()))
        call()
    return found


@pytest.mark.parametrize("method", ["recency", "graphmixer"])
def test_no_call_changes_the_random_state_of_its_caller(events: str, method: str) -> None:
    expected = _drawn(lambda: None)
    number = iter(range(100))

    def fit() -> hopstate.Run:
        return hopstate.fit(method, events, loop=LOOP, out=f"run{next(number)}")

    run = fit()
    pair, later = [("u0", "v1")], pd.DataFrame({"source": ["u0"], "target": ["v1"], "time": [5000]})
    calls: dict[str, Callable[[], Any]] = {
        "fit": fit, "score": lambda: run.score(pair), "rank": lambda: run.rank("u0", top=2), "predict": run.predict,
        "evaluate": run.evaluate, "model": lambda: run.model,
        "stream": lambda: hopstate.stream(run.path, later, save=f"s{next(number)}", allow_duplicates=True),
    }  # fmt: skip
    assert {name: _drawn(call) for name, call in calls.items()} == dict.fromkeys(calls, expected)


def test_finished_run_is_freed_without_the_garbage_collector(events: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    begin = Trainer.__init__

    def noted(self: Trainer, task: Any, *rest: Any, **more: Any) -> None:
        begin(self, task, *rest, **more)
        alive.extend(weakref.ref(part) for part in (self, task, task.model, task.stream, self.fabric))

    monkeypatch.setattr(Trainer, "__init__", noted)
    hopstate.fit("graphmixer", events, loop=LOOP)  # objects created once and cached
    alive.clear()
    gc.collect()
    gc.disable()
    try:
        hopstate.fit("graphmixer", events, loop=LOOP)
        assert [part() for part in alive] == [None] * 5
    finally:
        gc.enable()


def test_metrics_are_one_table_before_and_after_a_resume(
    tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = RunFolder.append_metrics

    def stop_after_three(self: RunFolder, row: dict[str, Any]) -> None:
        append(self, row)
        if row["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    def agree(epochs: int) -> None:
        table = pd.read_csv("run/metrics.csv")
        rows = pd.DataFrame([json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()])
        assert table["epoch"].tolist() == list(range(1, epochs + 1))
        pd.testing.assert_frame_equal(table[sorted(table)], rows[sorted(rows)], check_dtype=False)
        assert table["val_accuracy"].notna().tolist() == [e % 2 == 0 for e in range(1, epochs + 1)]

    loop = LOOP | {"epochs": 6, "eval_every": 2, "checkpoint_seconds": 0.0}
    with monkeypatch.context() as here:
        here.setattr(RunFolder, "append_metrics", stop_after_three)
        assert hopstate.fit("mlp", "edges.csv", **tables, loop=loop, out="run").interrupted
    agree(3)
    assert not hopstate.fit("mlp", "edges.csv", **tables, loop=loop, out="run", resume=True).interrupted
    agree(6)
