"""A dry run reports the cost of a run, leaves no file, and does not change a later run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hopstate.cli.main import main
from hopstate.runs.run import fit

QUICK = ["--loop.progress", "false"]
SETTINGS = {"loop": {"epochs": 2, "progress": False, "device": "cpu"}}


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{i % 7},v{i * i % 5},{10 * i}" for i in range(200)]
    (tmp_path / "events.csv").write_text("\n".join(["source,target,time", *rows]) + "\n")
    return tmp_path / "events.csv"


@pytest.mark.parametrize("method", ["graphmixer", "recency"])
def test_a_dry_run_reports_costs_without_a_run_folder(
    events: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(events.parent.rglob("*"))
    assert main(["fit", method, "--data", str(events), "--dry-run", "--json", *QUICK]) == 0
    cost = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted(events.parent.rglob("*")) == before
    trained = method == "graphmixer"
    assert (cost["parameters"] > 0, cost["steps"] > 0, cost["seconds"] is not None) == (trained, trained, trained)
    assert cost["memory_mb"] > 0


def test_parameters_and_steps_agree_with_the_run(events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(events), "--no-auto", "--loop.epochs", "2", "--batch_size", "20", *QUICK]
    assert main(["fit", "graphmixer", "--data", *words, "--dry-run", "--json"]) == 0
    cost = json.loads(capsys.readouterr().out.splitlines()[-1])
    done = fit("graphmixer", str(events), out="run", batch_size=20, **SETTINGS)
    assert cost["parameters"] == json.loads((done.path / "result.json").read_text())["parameters"]
    steps = (done.path / "metrics.csv").read_text().splitlines()[1].split(",")[1]
    assert cost["steps"] == int(steps)


def test_random_state_of_the_caller_is_kept(events: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert main(["fit", "graphmixer", "--data", str(events), "--dry-run", *QUICK]) == 0
    assert torch.equal(torch.rand(3), expected)
