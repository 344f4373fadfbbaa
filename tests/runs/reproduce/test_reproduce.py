"""`hopstate reproduce` from end to end: runs, resumes, records each run once, compares, writes the table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import made_events
import made_tables
from hopstate.cli.main import main
from hopstate.cli.reproduce import changes_of, numbers_of
from hopstate.errors import ConfigError, DownloadError, FormatError, MissingFileError
from hopstate.evaluation.labels import figure
from hopstate.methods.config import as_dict
from hopstate.runs.reproduce import (
    BEGIN,
    END,
    Line,
    Trial,
    all_recipes,
    append_line,
    compared,
    find_recipes,
    markdown,
    missing,
    read_lines,
    reproduce,
    show,
    write_markdown,
)
from hopstate.training.checkpoint import load_checkpoint

GCN = "gcn/minesweeper-small"
QUICK = {"data": "minesweeper-generated", "model.dim": 8, "model.num_layers": 1, "loop.epochs": 2, "loop.eval_every": 1}
TABLES = ("edges", "features", "labels")
QUIET = {"loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}


@pytest.fixture(autouse=True)
def _folders(empty_folder: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSTATE_RUNS", str(tmp_path / "runs"))


def test_runs_are_executed_once_and_recorded_once(tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"{name}.csv") for name in TABLES}
    for table, file in zip(made_tables.tables(), files.values(), strict=True):
        table.to_csv(file, index=False)
    own = {"data": files["edges"], "read.features": files["features"], "read.labels": files["labels"]}
    changes = QUICK | own | {"split.kind": "random"}
    options = {
        "changes": changes | QUIET,
        "out": tmp_path / "out",
        "results_file": tmp_path / "r.jsonl",
        "isolate": False,
    }
    recipe = all_recipes()[GCN]
    first = reproduce(GCN, [0, 1], **options)
    with pytest.raises(ConfigError, match="one name"):
        reproduce("gcn/*", [0], **options)
    assert first is not None
    assert [(line["run"], line["seed"], line["split"]) for line in first] == [(0, 0, 0), (1, 1, 1)]
    assert first[0]["altered"].items() >= {"model.dim": 8, "loop.epochs": 2}.items()
    assert "loop.device" not in first[0]["altered"]
    assert first[0]["metrics"]["test"]["roc_auc"] != first[1]["metrics"]["test"]["roc_auc"]
    assert reproduce(recipe, [0, 1], **options) == first
    assert [line["run"] for line in read_lines(tmp_path / "r.jsonl")] == [0, 1]
    again = reproduce(recipe, [0], **options | {"results_file": tmp_path / "lost.jsonl"})  # recorded, not trained again
    assert again is not None
    assert again[0]["started"] == first[0]["started"]
    assert len(read_lines(tmp_path / "lost.jsonl")) == 1


def test_the_hash_covers_what_determines_the_result() -> None:
    recipe = all_recipes()[GCN]
    plain = Trial(recipe=recipe)
    assert plain.altered == {}
    assert Trial(recipe=recipe, changes={"loop.epochs": 250}).altered == {}  # as in the recipe
    assert Trial(recipe=recipe, changes={"loop.device": "cpu", "loop.progress": False}).hash == plain.hash
    shorter = Trial(recipe=recipe, changes={"loop.epochs": 3})
    assert shorter.altered == {"loop.epochs": 3}
    assert shorter.hash != plain.hash
    with pytest.raises(ConfigError, match=r"loop\.seed"):
        Trial(recipe=recipe, changes={"loop.seed": 3})


@pytest.mark.slow
def test_an_isolated_run_measures_its_own_memory_and_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [part for key, value in (QUICK | QUIET).items() for part in (f"--{key}", str(value).lower())]
    assert main(["reproduce", GCN, "--seeds", "1", "--", *words]) == 0
    line = read_lines(tmp_path / "runs" / "results.jsonl")[0]
    assert line["peak_memory_mb"] > 50
    assert line["cpu_seconds"] > 0
    assert line["wall_seconds"] > 0
    assert line["altered"]["model.dim"] == 8
    assert "ROC AUC" in capfd.readouterr().out


EVENTS = {"data": "messages-generated", "model.dim": 8, "model.time_dim": 4, "loop.epochs": 1}


@pytest.mark.slow
def test_a_recipe_keeps_its_settings_without_automatic_ones(tmp_path: Path) -> None:
    """In a separate process; other runs get automatic settings."""
    changes = EVENTS | QUIET | {"evaluation.strategies": ["random"]}
    options = {"changes": changes, "out": tmp_path / "out", "results_file": tmp_path / "r.jsonl"}
    (line,) = reproduce(all_recipes()["ctdg-ssm/uci"], [0], **options)
    kept = json.loads((tmp_path / "out" / f"ctdg-ssm/uci-{line['settings']}" / "run-0" / "config.json").read_text())
    expected = as_dict(Trial(recipe=all_recipes()["ctdg-ssm/uci"], changes=changes).config(0))
    assert {k: v for k, v in kept.items() if k in expected} == expected
    assert kept["batch_size"] == 128


@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_recipe_of_two_stages_trains_links_then_a_head(isolate: bool, tmp_path: Path) -> None:
    recipe = all_recipes()["ctdg-ssm/wikipedia-nodes-frozen"]
    file = tmp_path / "events.csv"
    table = made_events.table(0, 400)
    table.assign(label=(table["src"] < "u5").astype(int)).to_csv(file, index=False)
    changes = EVENTS | QUIET | {"data": str(file), "read.label_column": "label", "model.num_layers": 1}
    options = {"changes": changes, "out": tmp_path / "out", "results_file": tmp_path / "r.jsonl"}
    (line,) = reproduce(recipe, [1], isolate=isolate, **options)
    names = [row["recipe"] for row in read_lines(tmp_path / "r.jsonl")]
    assert names == ["ctdg-ssm/wikipedia", "ctdg-ssm/wikipedia-nodes-frozen"]
    links, head = (next((tmp_path / "out").rglob(f"{name}-????????????/run-1")) for name in names)
    assert not set(line["altered"]) & {"init", "freeze"}
    kept = json.loads((head / "config.json").read_text())
    assert (kept["init"], kept["freeze"], kept["time_scale"]) == (str(links), True, "seconds")
    a, b = (load_checkpoint(folder / "model.safetensors").tensors["model"] for folder in (links, head))
    assert all(torch.equal(a[k], b[k]) for k in b if k.startswith(("cells.", "encoder.", "filter.")))
    before = Trial(recipe=recipe, changes=EVENTS).hash
    assert Trial(recipe=recipe, changes=EVENTS, out=tmp_path).hash == before  # its location does not matter
    assert reproduce(recipe, [1], isolate=isolate, **options) == [line]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dyg-mamba/enron-state-4", {"data": "messages-generated", "model.channel_dim": 4, "history.max_length": 6}),
        ("ctdg-ssm/mooc-max-delta-20", EVENTS),
        ("ctdg-ssm-sequences/order-1-second-last-node", {"read.length": 31, "read.count": 30, "model.dim": 4}),
    ],
)
@pytest.mark.slow
def test_ablations_train_one_epoch(name: str, changes: dict, tmp_path: Path) -> None:
    changes = {**changes, **QUIET, "loop.epochs": 1}
    (line,) = reproduce(
        all_recipes()[name], [0], changes=changes, out=tmp_path, results_file=tmp_path / "r.jsonl", isolate=False
    )
    assert 0 <= line["metrics"]["test"][line["metric"]] <= 1


def test_missing_data_are_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"ml_lastfm\.csv"):
        reproduce(all_recipes()["recency/lastfm"], [0], out=tmp_path / "out", results_file=tmp_path / "r.jsonl")
    assert not (tmp_path / "out").exists()
    together = missing(["lastfm", "mooc", "cora", "lastfm", "messages-generated"])
    assert [text.split(":")[0] for text in together] == ["lastfm, mooc", "cora"]


def test_the_list_names_recipes_and_a_wrong_name_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "edgebank/*"]) == 0
    assert "edgebank/uci-historical" in capsys.readouterr().out
    for wrong, near in (("no/such", "no/such"), ("gmn/minesweper", "gmn/minesweeper"), ("uci", "recency/uci")):
        assert main(["reproduce", "--list", wrong]) == 2
        assert near in capsys.readouterr().err


def test_numbers_and_settings_of_the_command_line() -> None:
    assert numbers_of("3") == [0, 1, 2]
    assert numbers_of("0,4-5") == [0, 4, 5]
    assert changes_of(["--a.b", "-1", "--c=x=y", "--d", "[1, 2]"]) == {"a.b": "-1", "c": "x=y", "d": "[1, 2]"}
    for wrong in (["x"], ["--a"], ["--a", "1", "2"]):
        with pytest.raises(ConfigError):
            changes_of(wrong)
    assert main(["reproduce", "--", "--model.dim", "8"]) == 2


def stored(recipe: str, run: int, value: float, **more: object) -> Line:
    """A line of a results file."""
    known = find_recipes(recipe)[0]
    return {
        "recipe": recipe, "method": known.method, "data": known.data, "metric": known.metric, "settings": "abc",
        "altered": {}, "run": run, "metrics": {"val": {}, "test": {known.metric: value}}, "seconds": 0.5,
        "wall_seconds": 3.0, "cpu_seconds": 2.0, "peak_memory_mb": 400.0, "version": "0.1.0",
        "processor": "a processor", "threads": 1, "gpu": None, **more,
    }  # fmt: skip


def test_generating_the_table_is_idempotent(tmp_path: Path) -> None:
    file, page = tmp_path / "r.jsonl", tmp_path / "README.md"
    for run, value in enumerate((0.90, 0.91, 0.93)):
        append_line(file, stored("gcn/minesweeper", run, value))
    append_line(file, stored("edgebank/uci", 0, 0.762))
    append_line(file, stored("gcn/minesweeper", 0, 0.5, altered={"loop.epochs": 1}, settings="other"))
    page.write_text(f"# A\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    assert main(["reproduce", "--table", str(page), "--results", str(file)]) == 0
    once = page.read_text()
    rows = {cells[1]: cells for cells in (line.strip("| ").split(" | ") for line in once.splitlines() if " | " in line)}
    assert rows["gcn/minesweeper"][2:6] == ["ROC AUC", "89.75 ± 0.52", "91.33 ± 1.53", "3"]
    assert rows["edgebank/uci"][2:6] == ["AP", "76.20", "76.20", "1"]
    assert rows["edgebank/uci"][-2:] == ["2 s", "400 MB"]
    assert "50.00" not in once  # an altered run
    assert "old" not in once
    assert once.startswith("# A\n\nbefore\n")
    assert once.endswith("\n\nafter\n")
    assert not write_markdown(page, read_lines(file))
    assert page.read_text() == once


def test_altered_runs_are_marked_and_other_data_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        stored("gcn/minesweeper", 0, 0.5, altered={"loop.epochs": 1}, settings="one"),
        stored("gcn/minesweeper", 0, 0.6, altered={"data": "sbm"}, settings="two", data="sbm"),
    ]
    first, second = compared(lines)
    assert first.published is not None
    assert second.published is None
    show(lines)
    shown = capsys.readouterr().out
    assert "loop.epochs=1" in shown
    assert "data=sbm" in shown
    assert "gcn/minesweeper" not in markdown(lines)


def test_results_under_another_protocol_are_shown_without_a_test() -> None:
    for recipe, is_tested in (("gcn/minesweeper", True), ("ctdg-ssm/uci-short", False)):
        lines = [stored(recipe, run, value, metric="roc_auc") for run, value in enumerate((0.90, 0.91, 0.93))]
        result = compared(lines)[0]
        assert result.published is not None
        assert ("p =" in result.test()) == is_tested


@pytest.mark.parametrize("text", ["no marks", BEGIN, f"{END}{BEGIN}", BEGIN * 2 + END])
def test_a_page_without_markers_is_not_changed(tmp_path: Path, text: str) -> None:
    page = tmp_path / "README.md"
    page.write_text(text)
    with pytest.raises(FormatError, match=r"README\.md"):
        write_markdown(page, [])
    assert page.read_text() == text
    with pytest.raises(MissingFileError):
        write_markdown(tmp_path / "none.md", [])


def test_ratios_are_percentages_and_errors_are_not() -> None:
    assert figure("mae", 0.2473, 0.0025) == "0.2473 ± 0.0025"
    assert figure("average_precision", 0.9679, 0.0008) == "96.79 ± 0.08"


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_resumes(tmp_path: Path) -> None:
    words = ["--loop.epochs", "2000", "--model.dim", "16", "--data", "minesweeper-generated", "--loop.patience", "null"]
    command = [sys.executable, "-m", "hopstate.cli.main", "reproduce", GCN, "--seeds", "1", "--", *words]
    child = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"})
    until = time.monotonic() + 200
    while not list((tmp_path / "runs").rglob("metrics.jsonl")) and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=120) == 130
    folder = next((tmp_path / "runs").rglob("checkpoint.safetensors")).parent
    done = len((folder / "metrics.jsonl").read_text().splitlines())
    assert 0 < done < 2000
    assert not (tmp_path / "runs" / "results.jsonl").exists()
    shorter = [word if word != "2000" else str(done + 2) for word in command]
    assert subprocess.run(shorter, cwd=tmp_path, check=False).returncode == 0
    assert read_lines(tmp_path / "runs" / "results.jsonl")[0]["epochs"] == done + 2
    assert json.loads((folder.parent.parent / folder.parent.name / "run-0" / "config.json").read_text())["loop"]
