"""A rejected fit of any command creates and changes no file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.errors import HopstateError, MissingFileError
from hopstate.runs.report import collect
from hopstate.runs.reproduce import all_recipes, reproduce
from hopstate.runs.tune import tune
from hopstate.training.trainer import Trainer

QUICK = ["--loop.progress=false", "--loop.logger=none", "--loop.device=cpu", "--loop.epochs=2"]
SETTINGS = {
    "read": {"features": "features.csv", "labels": "labels.csv"},
    "loop": {"progress": False, "logger": "none", "device": "cpu", "epochs": 1},
}
RECIPE = "ctdg-ssm-sequences/length-3-first-order"  # its data are generated, not downloaded
REFUSED = {
    "an option of the method": ["--model.dim=-1"],
    "a device": ["--loop.device=abacus"],
    "a combination": ["--edges=directed", "--batching.nodes=saint-edge", "--batching.num_clusters=0"],
    "labels that are not there": ["--read.labels=nowhere.csv"],
    "labels of one class": ["--read.labels=one.csv"],
    "a metric": ["--metric=roc"],
    "a loop that cannot show itself": ["--loop.logger=maybe"],
}
QUICKLY = ("a device", "labels of one class", "a metric")


@pytest.fixture(autouse=True)
def graph(empty_folder: None) -> None:
    """edges.csv, labels.csv, features.csv and one.csv, labels of one class, in an empty folder."""
    rng = np.random.default_rng(0)
    names = np.array([f"n{i}" for i in range(30)])
    ends = rng.integers(0, 30, (90, 2))
    pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]]}).to_csv("edges.csv", index=False)
    pd.DataFrame({"id": names, "a": rng.normal(size=30)}).to_csv("features.csv", index=False)
    pd.DataFrame({"id": names, "label": np.arange(30) % 2}).to_csv("labels.csv", index=False)
    pd.DataFrame({"id": names, "label": 0}).to_csv("one.csv", index=False)


DATA = ["--data=edges.csv", "--read.features=features.csv"]


def words(changes: list[str]) -> list[str]:
    labels = [] if any(word.startswith("--read.labels") for word in changes) else ["--read.labels=labels.csv"]
    return [*DATA, *labels, *QUICK, *changes]


def tree(at: str = ".") -> dict[str, bytes | None]:
    """Return the content of a folder: files with their bytes, and folders."""
    return {
        str(p): p.read_bytes() if p.is_file() else None for p in sorted(Path(at).rglob("*")) if "cache" not in str(p)
    }


def called(argv: list[str]) -> int:
    try:
        return main(argv)
    except SystemExit as left:
        return int(left.code or 0)


@pytest.mark.parametrize(
    "wrong", [name if name in QUICKLY else pytest.param(name, marks=pytest.mark.slow) for name in REFUSED]
)
def test_a_rejected_fit_leaves_nothing(wrong: str) -> None:
    before = tree()
    assert called(["fit", "gcn", *words(REFUSED[wrong]), "--out=a/b/run"]) != 0
    assert tree() == before


@pytest.mark.slow
def test_a_rejected_comparison_leaves_nothing() -> None:
    before = tree()
    assert called(["compare", "gcn,mlp", "--data=edges.csv", "--", *words(REFUSED["a metric"])[1:]]) != 0
    assert tree() == before


@pytest.mark.slow
def test_a_search_on_unusable_data_leaves_nothing() -> None:
    pytest.importorskip("optuna")
    before = tree()
    assert called(["tune", "mlp", *words(["--split.source=file"]), "--trials=2"]) != 0
    assert tree() == before


@pytest.mark.slow
def test_rejected_trials_leave_a_line_and_no_folder() -> None:
    pytest.importorskip("optuna")
    found = tune("mlp", "edges.csv", trials=2, out="search", space=["loop.optim.lr=0.01,-1"], **SETTINGS)
    assert {Path(p).name for p in tree("search")} >= {"trials.csv"}
    refused = [row for row in found.trials if row["error"]]
    for row in found.trials:
        assert Path("search", f"trial-{row['trial']:04d}").exists() is (row not in refused)


def test_a_rejected_recipe_leaves_nothing() -> None:
    before = tree()
    recipe = all_recipes()[RECIPE]
    with pytest.raises(HopstateError):
        reproduce(recipe, [0], changes={"loop.device": "abacus"}, isolate=False)
    assert tree() == before


def test_an_existing_run_is_not_changed() -> None:
    assert main(["fit", "mlp", *words(["--out=run"])]) == 0
    before = tree()
    for wrong in ("--model.dim=12", "--loop.device=abacus", "--read.labels=one.csv"):
        assert called(["fit", "mlp", *words([wrong, "--out=run", "--resume"])]) != 0
        assert tree() == before
    assert called(["fit", "mlp", *words(["--out=run"])]) != 0
    assert tree() == before


def test_a_folder_of_other_files_is_not_changed() -> None:
    Path("mine/empty").mkdir(parents=True)
    Path("mine/metrics.csv").write_text("mine")
    before = tree()
    assert main(["fit", "mlp", *words(["--out=mine"])]) == 2
    assert tree() == before


def test_an_empty_folder_stays_empty() -> None:
    Path("mine").mkdir()
    assert main(["fit", "mlp", *words(["--out=mine", "--loop.device=abacus"])]) == 2
    assert list(Path("mine").iterdir()) == []


def test_a_run_stopped_in_its_first_epoch_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    def struck(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "fit", struck)
        assert main(["fit", "mlp", *words(["--out=run"])]) == 130
    with pytest.raises(MissingFileError, match="run"):
        collect(["run"])
    assert main(["fit", "mlp", *words(["--out=run", "--resume"])]) == 0
    assert len(collect(["run"])) == 1


def test_a_run_that_fails_after_a_checkpoint_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Trainer) -> None:
        self.save()
        raise RuntimeError("struck")

    monkeypatch.setattr(Trainer, "_final", broken)
    assert main(["fit", "mlp", *words(["--out=other"])]) == 1
    assert Path("other/checkpoint.safetensors").is_file()
    assert Path("other/config.json").is_file()
