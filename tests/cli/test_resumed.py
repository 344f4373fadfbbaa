"""`fit METHOD --resume --out RUN` continues with the data that RUN names, and with no other data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hopstate.cli.main import main
from made_events import table

SMALL = ["--loop.progress=false", "--loop.logger=none", "--loop.device=cpu"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two files of events and a finished run of recency on one of them."""
    home = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(home)
        for seed, name in enumerate(("events.csv", "others.csv")):
            table(0, 60, seed=seed).to_csv(name, index=False)
        assert main(["fit", "recency", "--data=events.csv", *SMALL, "--out=run"]) == 0
    return home


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the run, in the working folder of the test."""
    shutil.copytree(finished / "run", tmp_path / "run")
    shutil.copy(finished / "others.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_a_resumed_run_reads_its_own_data(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads((run / "config.json").read_text())
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    (run.parent / "elsewhere").mkdir()
    monkeypatch.chdir(run.parent / "elsewhere")
    for words in (["--out=../run"], ["--out", "../run"]):
        assert main(["fit", "recency", "--resume", *words]) == 0
        assert json.loads((run / "config.json").read_text()) == before | {"folder": str(run)}
        assert json.loads((run / "result.json").read_text())["metrics"] == metrics


def test_other_data_and_methods_are_rejected(run: Path, capsys: Capture) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for words, named in (
        (["recency", "--data=others.csv"], ("others", "run")),
        (["edgebank"], ("recency", "run")),
        (["edgebank", "--data=others.csv"], ("recency", "run")),
    ):
        assert main(["fit", *words, "--resume", "--out=run"]) != 0
        error = capsys.readouterr().err
        assert all(name in error for name in named)
        assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_first_start_needs_data(run: Path, capsys: Capture) -> None:
    assert main(["fit", "recency", "--resume", "--out=new"]) == 2
    assert "--data" in capsys.readouterr().err
    assert not Path("new").exists()
