"""Trees on top of a frozen model's encodings: what they read, that nothing leaks, and that they stand alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.cli.main import main as run_command
from hopstate.errors import CheckpointError, ConfigError
from hopstate.evaluation.leak import check_leak
from hopstate.runs.api import Run, evaluate, fit, score_stream
from hopstate.runs.load import load_run
from hopstate.testing.asserts import F32_SUM
from hopstate.training.checkpoint import load_checkpoint
from made_events import cut, repeating

QUIET: dict[str, Any] = {"loop.progress": False, "loop.tensorboard": "no", "loop.device": "cpu"}
QUIET |= {"evaluation.strategies": ["random", "historical"]}
SMALL: dict[str, dict[str, Any]] = {
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4},
    "dyg-mamba": {
        "model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 5, "history.max_length": 6,
    },
}  # fmt: skip
TREES = {"model.max_trees": 20, "model.max_leaves": 6, "model.min_leaf": 10}


def frozen(folder: Path, method: str, **more: Any) -> str:
    given = {**QUIET, **SMALL[method], "loop.epochs": 1, "batch_size": 100, **more}
    fit(method, repeating(), out=folder, config=given)
    return str(folder)


def trees(folder: Path, encodings: str, **more: Any) -> Run:
    return fit("pair-trees", repeating(), out=folder, config={**QUIET, **TREES, "encodings": encodings, **more})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return frozen(tmp_path_factory.mktemp("runs") / "model", "graphmixer")


@pytest.fixture(scope="module")
def run(model: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trees(tmp_path_factory.mktemp("runs") / "trees", model)


@pytest.mark.slow
@pytest.mark.parametrize("method", SMALL)
def test_trees_read_the_logit_and_the_layer_that_it_is_made_from(method: str, tmp_path: Path) -> None:
    named = frozen(tmp_path / "model", method)
    made = trees(tmp_path / "trees", named)
    own = repeating()
    u, v, t = own.src[-60:], own.dst[-60:], own.t[-60:]
    with load_run(named, own) as (_, alone), load_run(made.path, own) as (_, task):
        expected = alone.scorer("test").score(u, v, t).numpy()
        rows = task.scorer("test").features.pairs(u, v, t)
        plain = task.features.of("test").features.pairs(u, v, t)
        score = task.trees.frozen.head.score
        for name, tensor in alone.model.state_dict().items():
            assert torch.equal(tensor, task.trees.frozen.state_dict()[name])  # nothing of it was trained on
    width = plain.shape[1]
    assert np.array_equal(rows[:, :width], plain, equal_nan=True)
    logit = rows[:, width].astype(np.float64)
    np.testing.assert_allclose(1 / (1 + np.exp(-logit)), expected, atol=F32_SUM)
    with torch.no_grad():
        again = score(torch.from_numpy(rows[:, width + 1 :])).squeeze(-1).numpy()
    np.testing.assert_allclose(again, logit, atol=F32_SUM)


def test_features_of_training_know_training_events_alone(run: Run) -> None:
    """The frozen model too: with all later events changed, what trees are grown from stays."""
    own = repeating()
    with load_run(run.path, own) as (_, task):
        rows = task.split.train[-30:]
        u, v = own.src[rows], own.dst[rows]
        late = np.full(len(rows), own.t[-1] + 1)
        known, whole = (task.features.of(split).pairs(u, v, late) for split in ("train", "val"))
        width = len(task.features.over(task.source.of("train").features.store, own).names)
        changed = own.with_(dst=np.where(np.arange(len(own)) < len(task.split.train), own.dst, 10))
    assert not np.array_equal(known[:, width:], whole[:, width:])
    with load_run(run.path, changed) as (_, task):
        again = task.features.of("train").pairs(u, v, late)
    assert np.array_equal(known, again, equal_nan=True)


def test_no_event_at_or_after_a_time_changes_a_score(run: Run) -> None:
    with load_run(run.path, repeating()) as (_, task):
        assert check_leak(task.scorer_over, repeating(), moments=3, queries=24).scores > 0


@pytest.mark.slow
def test_the_trees_do_without_the_folder_of_the_model(tmp_path: Path) -> None:
    """Evaluated, and followed live in calls of any size."""
    own, later, named = cut(repeating(), 0, 320), cut(repeating(), 320, 400), str(tmp_path / "model")
    fit("graphmixer", own, out=named, config={**QUIET, **SMALL["graphmixer"], "loop.epochs": 1, "batch_size": 100})
    made = fit("pair-trees", own, out=tmp_path / "trees", config={**QUIET, **TREES, "encodings": named})
    rmtree(named)
    assert evaluate(made.path, data=own) == made.metrics["test"]
    with load_run(made.path, own) as (_, task):
        expected = task.scorer_over(repeating()).score(later.src, later.dst, later.t)
    whole = score_stream(made.path, later, own=own).score.to_numpy()
    np.testing.assert_allclose(whole, expected, atol=F32_SUM)
    told = pd.read_csv(made.path / "importances.csv").feature
    assert {"logit of the frozen model", "encoding 0", "since the pair met"} <= set(told)


@pytest.mark.slow
def test_a_finished_run_is_taken_up_again_without_the_folder_of_the_model(model: str, tmp_path: Path) -> None:
    named = str(copytree(model, tmp_path / "model"))
    made = trees(tmp_path / "run", named)
    weights = load_checkpoint(made.path / "model.safetensors").tensors["model"]
    rmtree(named)
    again = fit("pair-trees", repeating(), out=made.path, resume=True)
    assert again.metrics == made.metrics
    now = load_checkpoint(made.path / "model.safetensors").tensors["model"]
    assert now.keys() == weights.keys()
    assert all(torch.equal(now[name], tensor) for name, tensor in weights.items())


@pytest.mark.slow
def test_a_run_that_was_stopped_grows_the_same_trees(
    model: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hopstate.methods.pair_trees.method.grow", stop)
        with pytest.raises(KeyboardInterrupt):
            trees(tmp_path / "run", model)
    assert fit("pair-trees", repeating(), out=tmp_path / "run", resume=True).metrics == run.metrics


@pytest.mark.slow
def test_the_commands_go_on_and_check_for_leaks_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, file = repeating(), tmp_path / "events.csv"
    pd.DataFrame({"src": own.src, "dst": own.dst, "t": own.t}).to_csv(file, index=False)
    settings = {**QUIET, "loop.epochs": 1, "batch_size": 100}
    monkeypatch.chdir(tmp_path)
    fit("graphmixer", file, out="model", config={**settings, **SMALL["graphmixer"]})
    made = fit("pair-trees", file, out="trees", config={**QUIET, **TREES, "encodings": "model"})
    assert run_command(["check-leak", "trees", "--moments", "2", "--queries", "16"]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = json.loads((tmp_path / "trees" / "config.json").read_text())
    assert Path(settings["encodings"]) == tmp_path / "model"
    assert fit("pair-trees", file, out=tmp_path / "trees", resume=True).metrics == made.metrics


@pytest.mark.slow
def test_only_a_finished_run_of_the_same_split_and_data_is_taken(model: str, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="split"):
        trees(tmp_path / "a", model, **{"split.test_ratio": 0.3})
    own = replace(repeating(), num_nodes=21)
    with pytest.raises(ConfigError, match="num_nodes"):
        fit("pair-trees", own, out=tmp_path / "b", config={**QUIET, **TREES, "encodings": model})
    with pytest.raises(ConfigError, match="pair-trees"):
        trees(tmp_path / "c", str(run.path))
    facts = json.loads((run.path / "data.json").read_text())
    assert facts["encodings"]["settings"]["method"] == "graphmixer"


@pytest.mark.slow
def test_damage_is_named(model: str, tmp_path: Path) -> None:
    made = trees(tmp_path / "run", model)
    facts = json.loads((made.path / "data.json").read_text())
    del facts["encodings"]
    (made.path / "data.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="encodings"):
        evaluate(made.path, data=repeating())
