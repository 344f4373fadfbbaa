"""Nodes classified as published: a backbone trained on links is loaded and frozen, and a head trained on it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.cli.main import main
from hopstate.errors import CheckpointError, ConfigError, HopstateWarning
from hopstate.runs.api import evaluate, fit, predict, score_stream
from hopstate.training.checkpoint import load_checkpoint

LOOP = {"loop": {"epochs": 2, "progress": False, "tensorboard": "no", "device": "cpu", "optim.lr": 1e-2}}
LINKS: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 4, "model.order": 2, "num_neighbors": 3, "gap_unit": "raw"},
    "dyg-mamba": {
        "model.channel_dim": 4,
        "model.time_dim": 8,
        "model.out_dim": 12,
        "model.cooccurrence": False,
        "history.max_length": 6,
    },
}
HEADS = {"ctdg-ssm": ("decoder", "gap_out", "read_norm"), "dyg-mamba": ("head",)}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "events.csv"
    ends, label = rng.integers(0, 10, (2, 200)), rng.integers(0, 2, 200)
    table = {"source": ends[0], "target": 10 + ends[1], "time": np.arange(200), "label": label}
    pd.DataFrame(table).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def links(events: Path) -> dict[str, Path]:
    config = {**LOOP, "evaluation.strategies": ["random"]}
    return {
        name: fit(name, events, out=events.parent / name, config={**config, **settings}).path
        for name, settings in LINKS.items()
    }


def weights(run: Path) -> dict[str, torch.Tensor]:
    held = load_checkpoint(run / "model.safetensors").tensors["model"]
    return {name.replace("encoders.0.", "encoder."): tensor for name, tensor in held.items()}


@pytest.mark.parametrize("name", LINKS)
def test_the_backbone_stays_and_the_head_learns(
    name: str, events: Path, links: dict[str, Path], tmp_path: Path
) -> None:
    own = shutil.copytree(links[name], tmp_path / "links")
    config = {**LOOP, "init": str(own)}
    frozen = fit(f"{name}-nodes", events, out=tmp_path / "frozen", config={**config, "freeze": True})
    whole = fit(f"{name}-nodes", events, out=tmp_path / "whole", config=config)
    before, after, trained = weights(own), weights(frozen.path), weights(whole.path)
    backbone = [key for key in after if key.split(".")[0] not in HEADS[name]]
    assert len(backbone) > 5
    assert all(torch.equal(after[key], before[key]) for key in backbone)
    assert not all(torch.equal(trained[key], before[key]) for key in backbone)
    again = fit(f"{name}-nodes", events, out=tmp_path / "again", config={**config, "freeze": True, "loop.epochs": 0})
    assert any(not torch.equal(after[key], value) for key, value in weights(again.path).items())
    shutil.rmtree(own)  # a finished run needs the other no more
    assert evaluate(frozen.path) == frozen.metrics["test"]
    later = pd.DataFrame(
        {"source": [1, 2], "target": [12, 13], "time": [300, 301]}
    )  # ids that stand for rows: none is new
    assert predict(frozen.path, data=later)["score"].equals(score_stream(frozen.path, later)["score"])


def test_what_cannot_be_begun_from_is_refused(events: Path, links: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name its run too \(--init RUN\)"):
        fit("ctdg-ssm-nodes", events, out=tmp_path / "a", config={**LOOP, "freeze": True})
    with pytest.raises(CheckpointError, match="is a run of dyg-mamba; a backbone for this method comes from"):
        fit("ctdg-ssm-nodes", events, out=tmp_path / "b", config={**LOOP, "init": str(links["dyg-mamba"])})
    wrong = {**LOOP, "init": str(links["ctdg-ssm"]), "model.dim": 8}
    with pytest.raises(CheckpointError, match="no weights of this shape for"):
        fit("ctdg-ssm-nodes", events, out=tmp_path / "c", config=wrong)
    pairs = {**LINKS["dyg-mamba"], "model.cooccurrence": True, "evaluation.strategies": ["random"]}
    both = fit("dyg-mamba", events, out=tmp_path / "both", config={**LOOP, **pairs, "loop.epochs": 0})
    with pytest.warns(HopstateWarning, match="what two nodes have in common"):
        fit("dyg-mamba-nodes", events, out=tmp_path / "d", config={**LOOP, "init": str(both.path), "freeze": True})


def test_from_the_command_line(events: Path, links: dict[str, Path], tmp_path: Path) -> None:
    flags = ["--loop.epochs=1", "--loop.progress=false", "--loop.tensorboard=no"]
    command = ["fit", "ctdg-ssm-nodes", "--data", str(events), "--init", str(links["ctdg-ssm"]), "--freeze"]
    assert main([*command, *flags, "--out", str(tmp_path / "run")]) == 0
    assert '"freeze": true' in (tmp_path / "run" / "config.json").read_text()
    assert '"dim": 6' in (tmp_path / "run" / "config.json").read_text()  # as the backbone's


def test_a_backbone_gets_features_in_the_scale_that_it_was_trained_in(tmp_path: Path) -> None:
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
    config = {**LOOP, **LINKS["ctdg-ssm"], "evaluation.strategies": ["random"]}
    links = fit("ctdg-ssm", tmp_path / "small.csv", out=tmp_path / "links", config=config)
    heads = {**LOOP, "init": str(links.path), "freeze": True}
    nodes = fit("ctdg-ssm-nodes", tmp_path / "large.csv", out=tmp_path / "nodes", config=heads)
    kept = [json.loads((run.path / "data.json").read_text())["features"] for run in (links, nodes)]
    assert kept[0] == kept[1] != {}
