"""Nodes classified as published: a backbone trained on links is loaded and frozen, and a head trained on it."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.errors import CheckpointError, ConfigError, HopstateWarning
from hopstate.runs.run import Run, evaluate, fit, predict, score_stream
from hopstate.testing.conformance import F32_SUM
from hopstate.training.checkpoint import load_checkpoint

LOOP = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu", "optim.lr": 1e-2}}
LINKS: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 4, "model.order": 2, "num_neighbors": 3, "time_scale": "raw"},
    "dyg-mamba": {
        "model.channel_dim": 4,
        "model.time_dim": 8,
        "model.out_dim": 12,
        "model.cooccurrence": False,
        "history.max_length": 6,
    },
}
HEADS = {"ctdg-ssm": ("readout",), "dyg-mamba": ("head",)}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "events.csv"
    ends, label = rng.integers(0, 10, (2, 200)), rng.integers(0, 2, 200)
    table = {"source": ends[0], "target": 10 + ends[1], "time": np.arange(200), "label": label}
    pd.DataFrame(table).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def links(events: Path) -> Callable[[str], Path]:
    """Return a run of links, trained once."""

    @cache
    def run(name: str) -> Path:
        config = {**LOOP, "evaluation.strategies": ["random"], **LINKS[name]}
        return fit(name, events, out=events.parent / name, config=config).path

    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    found = load_checkpoint(run / "model.safetensors").tensors["model"]
    return {name.replace("encoders.0.", "encoder."): tensor for name, tensor in found.items()}


@pytest.mark.parametrize("name", ["ctdg-ssm", pytest.param("dyg-mamba", marks=pytest.mark.slow)])
def test_a_frozen_backbone_is_unchanged_and_the_head_trains(
    name: str, events: Path, links: Callable[[str], Path], tmp_path: Path
) -> None:
    own = shutil.copytree(links(name), tmp_path / "links")
    config = {**LOOP, "init": str(own)}
    frozen = fit(f"{name}-nodes", events, out=tmp_path / "frozen", config={**config, "freeze": True})
    before, after = weights(own), weights(frozen.path)
    backbone = [key for key in after if key.split(".")[0] not in HEADS[name]]
    assert len(backbone) > 5
    assert all(torch.equal(after[key], before[key]) for key in backbone)
    if name == "ctdg-ssm":
        start = {**config, "freeze": True, "loop.epochs": 0}
        again = fit(f"{name}-nodes", events, out=tmp_path / "again", config=start)
        assert any(not torch.equal(after[key], value) for key, value in weights(again.path).items())
        stored = json.loads((frozen.path / "config.json").read_text())
        assert (stored["freeze"], stored["model"]["dim"]) == (True, 6)  # as in the backbone
    shutil.rmtree(own)  # a finished run no longer needs the other one
    assert evaluate(frozen.path) == pytest.approx(frozen.metrics["test"])
    later = pd.DataFrame(
        {"source": [1, 2], "target": [12, 13], "time": [300, 301]}
    )  # ids that are row numbers: none is new
    live = score_stream(frozen.path, later)["score"]
    np.testing.assert_allclose(predict(frozen.path, data=later)["score"], live, rtol=F32_SUM)


def test_incompatible_initial_weights_are_rejected(
    events: Path, links: Callable[[str], Path], trained: Callable[[str], Run], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="init"):
        fit("ctdg-ssm-nodes", events, out=tmp_path / "a", config={**LOOP, "freeze": True})
    with pytest.raises(CheckpointError, match="dyg-mamba"):
        fit("ctdg-ssm-nodes", events, out=tmp_path / "b", config={**LOOP, "init": str(trained("dyg-mamba").path)})
    wrong = {**LOOP, "init": str(links("ctdg-ssm")), "model.dim": 8}
    with pytest.raises(CheckpointError, match="ctdg-ssm"):
        fit("ctdg-ssm-nodes", events, out=tmp_path / "c", config=wrong)


@pytest.mark.slow
def test_a_backbone_that_reads_pairs_together_warns(events: Path, tmp_path: Path) -> None:
    pairs = {**LINKS["dyg-mamba"], "model.cooccurrence": True, "evaluation.strategies": ["random"]}
    both = fit("dyg-mamba", events, out=tmp_path / "both", config={**LOOP, **pairs, "loop.epochs": 0})
    with pytest.warns(HopstateWarning):
        fit("dyg-mamba-nodes", events, out=tmp_path / "d", config={**LOOP, "init": str(both.path), "freeze": True})


def test_a_backbone_gets_features_in_its_training_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends, label = rng.integers(0, 10, (2, 200)), rng.integers(0, 2, 200)
    table = {
        "source": ends[0],
        "target": 10 + ends[1],
        "time": np.arange(200),
        "label": label,
        "feat_0": rng.random(200),
    }
    pd.DataFrame(table).to_csv(tmp_path / "small.csv", index=False)
    pd.DataFrame({**table, "feat_0": 1000 * table["feat_0"]}).to_csv(tmp_path / "large.csv", index=False)
    config = {**LOOP, **LINKS["ctdg-ssm"], "evaluation.strategies": ["random"], "loop.epochs": 0}
    links = fit("ctdg-ssm", tmp_path / "small.csv", out=tmp_path / "links", config=config)
    heads = {**LOOP, "init": str(links.path), "freeze": True, "loop.epochs": 0}
    nodes = fit("ctdg-ssm-nodes", tmp_path / "large.csv", out=tmp_path / "nodes", config=heads)
    kept = [json.loads((run.path / "data.json").read_text())["features"] for run in (links, nodes)]
    assert kept[0] == kept[1] != {}
