"""`hopstate tune`: a search that can be interrupted and never sees the test split."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import hopstate
from hopstate.cli.main import main
from hopstate.errors import CheckpointError, ConfigError, DataError, HopstateError, MissingExtraError, StorageError
from hopstate.methods import get_method
from hopstate.methods.method import Range, parse_values, printable
from hopstate.runs.load import load_run
from hopstate.runs.run import Run, fit_config
from hopstate.runs.tune import space_of
from hopstate.testing.conformance import F64
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("empty_folder")

QUICK = {"loop__epochs": 2, "loop__progress": False, "loop__logger": "none", "loop__device": "cpu"}
SPACE = {"model.dim": [4, 8], "loop.optim.lr": "1e-3:1e-1:log", "model.num_layers": "1:2"}


def graph(*, shuffle_test: bool = False) -> hopstate.Graph:
    """Two classes that features separate; the labels of the test nodes shuffled on request."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 90)
    x = (rng.normal(size=(90, 3)) + y[:, None]).astype(np.float32)
    split = {part: np.zeros((90, 1), bool) for part in ("train", "val", "test")}
    for i, part in enumerate(split):
        split[part][30 * i : 30 * (i + 1)] = True
    if shuffle_test:
        y[60:] = 1 - y[60:]
    table = Path("shuffled" if shuffle_test else "plain")
    table.mkdir(exist_ok=True)
    ids = np.arange(90)
    pd.DataFrame({"source": ids, "target": np.roll(ids, 1)}).to_csv(table / "edges.csv", index=False)
    pd.DataFrame({"id": ids, "a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}).to_csv(table / "x.csv", index=False)
    parts = np.repeat(["train", "val", "test"], 30)
    pd.DataFrame({"id": ids, "label": y, "split": parts}).to_csv(table / "y.csv", index=False)
    return hopstate.read_graph(table / "edges.csv", features=str(table / "x.csv"), labels=str(table / "y.csv"))


def values(folder: str) -> pd.DataFrame:
    return pd.read_csv(Path(folder, "trials.csv")).drop(columns="seconds")


def test_a_search_never_sees_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    evaluate = Trainer.evaluate

    def recorded(self: Trainer, split: str) -> dict[str, float]:
        seen.append(split)
        return evaluate(self, split)

    monkeypatch.setattr(Trainer, "evaluate", recorded)
    hopstate.tune("mlp", graph(), trials=1, out="plain-search", space=SPACE, **QUICK)
    assert set(seen) == {"val"}
    hopstate.tune("mlp", graph(shuffle_test=True), trials=1, out="shuffled-search", space=SPACE, **QUICK)
    pd.testing.assert_frame_equal(values("plain-search"), values("shuffled-search"))  # other test labels, same search
    for path in Path("plain-search").rglob("*.json"):
        assert '"test"' not in path.read_text(), path
    assert "test" not in Path("plain-search/trial-0000/metrics.csv").read_text()


def test_the_trainer_rejects_the_test_split_during_a_search() -> None:
    method = get_method("mlp")
    run = hopstate.fit("mlp", graph(), out="run", **QUICK)
    with load_run(run.path, graph()) as (computation, task):
        blind = Trainer(task, computation.loop, RunFolder("run"), method=method.name, splits=("val",))
        assert blind.evaluate("val")
        with pytest.raises(ConfigError, match="test"):
            blind.evaluate("test")


def test_an_interrupted_search_resumes_to_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    hopstate.tune("mlp", graph(), trials=2, out="whole", space=SPACE, **QUICK)
    calls = []

    def cut(*args: object, **kwargs: object) -> Run:
        calls.append(kwargs["out"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit_config(*args, **kwargs)

    monkeypatch.setattr("hopstate.runs.tune.fit_config", cut)
    with pytest.raises(KeyboardInterrupt):
        hopstate.tune("mlp", graph(), trials=2, out="cut", space=SPACE, **QUICK)
    assert len(values("cut")) == 1
    found = hopstate.tune("mlp", graph(), trials=2, out="cut", space=SPACE, **QUICK)
    assert calls[1] == calls[2]
    assert len(found.trials) == len(values("whole")["loop.optim.lr"].unique()) == 2
    assert found.value == values("whole")["value"].max()
    pd.testing.assert_frame_equal(values("whole"), values("cut"))


@pytest.mark.slow
def test_from_the_shell_to_a_run_with_the_best_settings(capsys: pytest.CaptureFixture[str]) -> None:
    graph()
    read = ["--data=plain/edges.csv", "--read.features=plain/x.csv", "--read.labels=plain/y.csv"]
    quick = ["--loop.epochs=2", "--loop.progress=false", "--loop.logger=none"]
    search = ["tune", "mlp", *read, *quick, "--trials=2", "--space=model.dim=4,8", "--out=search"]
    assert main(search) == 0
    assert "search/best.yaml" in capsys.readouterr().out
    best = yaml.safe_load(Path("search/best.yaml").read_text())
    assert main(["fit", "mlp", "--config=search/best.yaml", "--out=run"]) == 0
    result, rows = json.loads(Path("run/result.json").read_text()), values("search")
    row = rows.loc[rows["value"].idxmax()]
    assert result["metrics"]["val"][result["metric"]] == pytest.approx(row["value"], abs=F64)
    assert best["model"]["dim"] == row["model.dim"]
    assert main([*search[:-1], "--out=search", "--model.num_layers=1"]) == 2
    assert "model.num_layers" in capsys.readouterr().err


def test_invalid_settings_are_failed_trials() -> None:
    space = {"model.dim": [30], "model.num_heads": [7]}
    with pytest.raises(HopstateError, match="1"):
        hopstate.tune("nagphormer", graph(), trials=1, out="search", space=space, **QUICK)
    assert not Path("search/best.yaml").exists()


def test_diverging_trials_fail_and_the_search_continues() -> None:
    """In full-batch training, NaN is first seen in validation."""
    space = {"loop.optim.lr": [1e30, 0.003], "model.dim": [4, 8]}
    options = {**QUICK, "model__norm": "none", "loop__epochs": 3}
    found = hopstate.tune("gin", graph(), trials=4, out="search", space=space, **options)
    failed = [row["loop.optim.lr"] for row in found.trials if row["error"]]
    assert failed == [1e30, 1e30]
    assert found.best["loop.optim.lr"] == 0.003
    assert len(values("search")) == 4
    assert Path("search/best.yaml").exists()


@pytest.mark.parametrize("error", [RuntimeError("singular"), MemoryError(), ZeroDivisionError(), DataError("no edges")])
def test_a_trial_that_raises_any_error_is_a_failed_trial(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(method: Any, config: Any, **options: Any) -> Run:
        if config.model.dim == 4:
            raise error
        return fit_config(method, config, **options)

    monkeypatch.setattr("hopstate.runs.tune.fit_config", failing)
    found = hopstate.tune("mlp", graph(), space={"model.dim": [4, 8]}, trials=2, out="search", **QUICK)
    assert found.best == {"model.dim": 8}
    failed = [row["error"] for row in found.trials if row["error"]]
    assert len(failed) == 1
    assert str(error) in failed[0]
    assert Path("search/best.yaml").is_file()


@pytest.mark.parametrize("error", [StorageError("disk full"), OSError(28, "No space left"), CheckpointError("damaged")])
def test_an_error_common_to_all_trials_ends_the_search(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, **options: Any) -> Run:
        raise error

    monkeypatch.setattr("hopstate.runs.tune.fit_config", failing)
    with pytest.raises(type(error)):
        hopstate.tune("mlp", graph(), space={"model.dim": [4, 8]}, trials=2, out="search", **QUICK)


def test_numpy_values_are_searched_like_python_values() -> None:
    space = {"model.dim": np.array([4, 8]), "loop.optim.lr": pd.Series([1e-3, 1e-2])}
    assert space_of(get_method("mlp"), space) == {"model.dim": [4, 8], "loop.optim.lr": [1e-3, 1e-2]}
    paths = {"read.labels": [Path("a.csv")], "model.num_layers": range(1, 3)}
    assert space_of(get_method("mlp"), paths) == {"read.labels": ["a.csv"], "model.num_layers": [1, 2]}
    found = hopstate.tune("mlp", graph(), space=space, trials=np.int64(1), seed=np.int64(3), **QUICK)
    assert found.best.keys() == space.keys()


def test_settings_of_reading_are_searched_too() -> None:
    graph()
    tables = {"features": "plain/x.csv", "labels": "plain/y.csv"}
    space = {"read.undirected": [True, False]}
    found = hopstate.tune("gcn", "plain/edges.csv", **tables, space=space, trials=2, out="search", **QUICK)
    assert [row["error"] for row in found.trials] == ["", ""]
    hashes = {RunFolder(f"search/trial-000{i}").read_json("data.json")["content_hash"] for i in range(2)}
    assert len(hashes) == 2


def test_no_settings_are_tried_twice() -> None:
    space = {"model.dim": [4, 8], "model.num_layers": "1:2"}
    options = {**QUICK, "loop__epochs": 1}
    first = hopstate.tune("mlp", graph(), trials=3, out="search", space=space, **options)
    assert not first.exhausted
    found = hopstate.tune("mlp", graph(), trials=9, out="search", space=space, **options)
    assert found.exhausted
    assert sorted((row["model.dim"], row["model.num_layers"]) for row in found.trials) == [
        (4, 1), (4, 2), (8, 1), (8, 2),
    ]  # fmt: skip


def test_equal_settings_written_in_two_ways_are_tried_once() -> None:
    space = {"model.dim": [4, "4", 4], "loop.optim.lr": [0.01, "1e-2"]}
    found = hopstate.tune("mlp", graph(), trials=5, out="search", space=space, **{**QUICK, "loop__epochs": 1})
    assert found.exhausted
    assert len(found.trials) == 1


def test_tables_in_memory_are_searched_like_their_files() -> None:
    graph()
    edges, features, labels = (pd.read_csv(f"plain/{name}.csv") for name in ("edges", "x", "y"))
    space, options = {"model.dim": [4, 8]}, {**QUICK, "loop__epochs": 1}
    hopstate.tune("mlp", edges, features=features, labels=labels, trials=2, out="memory", space=space, **options)
    hopstate.tune(
        "mlp", "plain/edges.csv", features="plain/x.csv", labels="plain/y.csv", trials=2, out="files", space=space,
        **options,
    )  # fmt: skip
    pd.testing.assert_frame_equal(values("memory"), values("files"))


def test_notes_on_the_data_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    graph()
    read = {"read__features": "plain/x.csv", "read__labels": "plain/y.csv", "loop__epochs": 1, "loop__progress": True}
    hopstate.tune("mlp", "plain/edges.csv", trials=3, out="search", space={"model.dim": [4, 8, 16]}, **read)
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert notes
    assert len(notes) == len(set(notes))


def test_without_optuna_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"hopstate\[tune\]"):
        hopstate.tune("mlp", graph(), space=SPACE, **QUICK)


def test_every_space_names_settings_of_its_method() -> None:
    for name in ("mlp", "nagphormer", "dyg-mamba", "ctdg-ssm"):
        space = space_of(get_method(name))
        assert space == space_of(get_method(name), printable(space)), name


def test_spaces_from_files_and_flags() -> None:
    method = get_method("mlp")
    Path("space.yaml").write_text("model.dim: [4, 8]\nloop.optim.lr: 1e-4:1e-2:log\n")
    assert space_of(method, ["space.yaml", "model.num_layers=1:3"]) == {
        "model.dim": [4, 8],
        "loop.optim.lr": Range(1e-4, 1e-2, log=True),
        "model.num_layers": Range(1, 3),
    }
    assert parse_values("model.norm", "layer,none") == ["layer", "none"]
    for given, named in (
        (["model.dims=4,8"], "model.dim"),
        (["loop.optim.lr=0:1:log"], "0:1:log"),
        (["model.dim=9:3"], "9:3"),
        ({"model.dim": [[1]]}, "model.dim"),
        ({"model.dim,model.num_layers": ["4"]}, "model.num_layers"),
    ):
        with pytest.raises(ConfigError, match=named):
            space_of(method, given)
