"""`fit METHOD --resume --out RUN` goes on with the data that RUN names, and with no other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main

SMALL = ["--loop.progress=false", "--loop.tensorboard=no", "--loop.device=cpu"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of recency on events.csv, named by a relative path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for name in ("events.csv", "others.csv"):
        pairs = rng.integers(0, 9, (60, 2))
        frame = pd.DataFrame({"u": [f"u{i}" for i in pairs[:, 0]], "v": [f"v{i}" for i in pairs[:, 1]], "t": range(60)})
        frame.to_csv(name, index=False)
    assert main(["fit", "recency", "--data=events.csv", *SMALL, "--out=run"]) == 0
    return tmp_path / "run"


@pytest.mark.parametrize("words", [["--out=run"], ["--out", "run"]])
def test_the_data_of_the_run_are_gone_on_with(run: Path, words: list[str], monkeypatch) -> None:
    before = json.loads((run / "config.json").read_text())
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    (run.parent / "elsewhere").mkdir()
    monkeypatch.chdir(run.parent / "elsewhere")
    words = [word.replace("run", "../run") for word in words]
    assert main(["fit", "recency", "--resume", *words]) == 0
    assert json.loads((run / "config.json").read_text()) == before
    assert json.loads((run / "result.json").read_text())["metrics"] == metrics


def test_other_data_are_refused_by_name(run: Path, capsys) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert main(["fit", "recency", "--resume", "--out=run", "--data=others.csv"]) != 0
    told = capsys.readouterr().err
    assert "events.csv" in told
    assert "others.csv" in told
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("words", [[], ["--data=events.csv"]])
def test_a_run_of_another_method_is_named(run: Path, words: list[str], capsys) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert main(["fit", "edgebank", "--resume", "--out=run", *words]) == 2
    assert "run is a run of recency; hopstate fit recency --resume --out run goes on with it" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_first_start_still_asks_for_data(run: Path, capsys) -> None:
    assert main(["fit", "recency", "--resume", "--out=new"]) == 2
    assert "data" in capsys.readouterr().err
    assert not Path("new").exists()
