"""A memory run saves its state after its own data; commands start there and are bit-identical to a full replay."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.errors import HopstateWarning, StorageError
from hopstate.runs import load
from hopstate.runs.run import Run, fit, score_stream

PAIRS = [("u1", "v2"), ("u3", "v3"), ("unknown", "v1")]
CONFIG: dict[str, Any] = {
    "model": {"dim": 6, "time_dim": 4, "hidden": 8},
    "loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"},
    "evaluation": {"strategies": ["random"], "batch_size": 16},
    "read": {"edge_columns": ["amount"]},
}


def table(first: int, count: int) -> pd.DataFrame:
    rng = np.random.default_rng(first)
    ends = {"src": [f"u{i}" for i in rng.integers(0, 9, count)], "dst": [f"v{i}" for i in rng.integers(0, 7, count)]}
    return pd.DataFrame({**ends, "t": first + np.arange(count) * 2 // 3, "amount": rng.normal(size=count).round(3)})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("kept")
    table(0, 150).to_csv(home / "own.csv", index=False)
    fit("ctdg-ssm", home / "own.csv", out=home / "run", config=CONFIG).score([("u1", "v1")])
    return home


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Run:
    shutil.copytree(fitted / "run", tmp_path / "run")
    return Run(tmp_path / "run", "ctdg-ssm")


def answers(run: Run, out: Path) -> list[list[float]]:
    with pytest.warns(HopstateWarning, match="unknown"):
        scores = run.score(PAIRS)["score"].tolist()
    later = score_stream(run.path, table(200, 40), ignore_state=True, save=out)
    return [scores, later["score"].tolist()]


def test_the_saved_state_is_bit_identical_to_a_full_replay(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = run.path / "past"
    kept = {file.name: file.read_bytes() for file in past.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(load, "state_after_stream", lambda *_: pytest.fail("replayed from the start"))
        begun = answers(run, tmp_path / "a")
    assert {file.name: file.read_bytes() for file in past.iterdir()} == kept
    shutil.move(past, tmp_path / "away")
    assert answers(run, tmp_path / "b") == begun


def test_a_damaged_state_is_ignored(run: Run, tmp_path: Path) -> None:
    expected = answers(run, tmp_path / "a")
    (layer,) = (run.path / "past").glob("events-*")
    whole = bytearray(layer.read_bytes())
    whole[len(whole) // 2] ^= 1
    layer.write_bytes(whole)
    assert answers(run, tmp_path / "b") == expected


@pytest.mark.slow
def test_a_state_of_other_weights_is_ignored(run: Run, tmp_path: Path) -> None:
    expected = answers(run, tmp_path / "a")
    again = fit("ctdg-ssm", run.path.parent / "own.csv", out=tmp_path / "more", config=other(run.path.parent, epochs=1))
    shutil.rmtree(again.path / "past")
    own = answers(again, tmp_path / "c")
    shutil.copytree(run.path / "past", again.path / "past")
    assert answers(again, tmp_path / "d") == own
    assert own != expected


def other(home: Path, epochs: int) -> dict[str, Any]:
    table(0, 150).to_csv(home / "own.csv", index=False)
    return CONFIG | {"loop": CONFIG["loop"] | {"epochs": epochs, "seed": 9}}


@pytest.mark.slow
def test_changed_data_are_replayed_again(tmp_path: Path) -> None:
    own = table(0, 150)
    own.to_csv(tmp_path / "own.csv", index=False)
    run = fit("ctdg-ssm", tmp_path / "own.csv", out=tmp_path / "run", config=CONFIG)
    run.score(PAIRS[:2])
    before = run.score(PAIRS[:2])["score"].tolist()
    own[:-1].to_csv(tmp_path / "own.csv", index=False)
    with pytest.warns(HopstateWarning, match=r"own\.csv"):
        assert run.score(PAIRS[:2])["score"].tolist() != before


@pytest.mark.slow
def test_a_fit_succeeds_if_the_state_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr("hopstate.data.stream_checkpoint.save_stream_state", full)
    with pytest.warns(HopstateWarning, match="the disk is full"):
        run = fit("ctdg-ssm", table(0, 150), out=tmp_path / "run", config=CONFIG, keep_data=True)
    assert run.metrics["test"]
    assert not (run.path / "past").exists()
    assert len(run.score(PAIRS[:2])) == 2
