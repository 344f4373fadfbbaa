"""`--json` of every command: one object on stdout with the documented keys; errors too."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.commands import json_text
from hopstate.cli.main import COMMANDS, Flags, main
from hopstate.runs.run import Run, load
from made_events import table
from made_tables import tables

Capture = pytest.CaptureFixture[str]

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
QUICK = ["--loop.epochs=1", "--loop.logger=none", "--loop.device=cpu"]
NODES = ["--data=edges.csv", "--read.features=features.csv", "--read.labels=labels.csv", *QUICK]
CALLS = {
    "fit": ["recency", "--data=own.csv", "--out=new", *QUICK],
    "evaluate": ["recency"],
    "predict": ["recency", "--out=predicted.csv"],
    "stream": ["recency", "--data=later.csv", "--out=scored.csv"],
    "score": ["recency", "--pairs=u1,v1"],
    "rank": ["recency", "--source=u1", "--top=3"],
    "serve": ["recency", "--port=0", "--folder=served"],
    "replay": ["recency", "--out=again.csv"],
    "explain": ["pair-trees", "--pair=u1,v1", "--time=80"],
    "ensemble": ["recency", "pair-trees", "--out=both"],
    "compare": ["recency,edgebank", "--data=own.csv", "--out=compared", "--", *QUICK],
    "tune": ["mlp", *NODES, "--model.dim=8", "--trials=1", "--out=search"],
    "reproduce": ["--list"],
    "report": ["recency", "--out=page.html"],
    "demo": ["--out=shown"],
    "inspect": ["own.csv"],
    "export": ["gcn", "--to=torch", "--out=exported"],
    "prepare": ["own.csv", "--out=store"],
    "check-leak": ["recency", "--times=2", "--queries=4"],
    "datasets": ["karate"],
    "info": [],
    "completion": ["bash"],
}
VALUES: dict[str, dict[str, Any]] = {  # some values of the calls above
    "fit": {"method": "recency", "run": "new", "interrupted": False, "best_epoch": 0},
    "predict": {"out": "predicted.csv", "rows": 160},
    "stream": {"out": "scored.csv", "rows": 20},
    "score": {"count": 1},
    "rank": {"count": 3, "prefilter": None},
    "replay": {"out": "again.csv", "rows": 0, "first": 0},
    "tune": {"method": "mlp", "interrupted": False, "metric": "accuracy", "mode": "max"},
    "compare": {"data": "own.csv", "folder": "compared", "interrupted": False},
    "inspect": {"data": "own.csv", "plot": None},
    "export": {"format": "torch", "check": None},
    "demo": {"folder": "shown", "interrupted": False, "report": "shown/report.html"},
    "prepare": {"store": "store", "kind": "events", "rows": 160, "nodes": 18, "bad": 0},
    "check-leak": {"run": "recency", "leak": False},
    "completion": {"shell": "bash"},
}
DEMO = {  # in place of the recipe of `hopstate demo`
    "tasks": {
        "stream": {"about": "one model", "commands": [f"fit recency --data own.csv --out FOLDER/run {' '.join(QUICK)}"]}
    },
    "question": {"run": "run", "source": "u1"},
}
NEEDS = {"tune": "optuna", "prepare": "duckdb", "serve": "uvicorn", "replay": "fastapi"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, trained: Callable[[str], Run]) -> Path:
    """A folder with copies of four trained runs, events of their kind, and a graph with features and labels."""
    made = tmp_path_factory.mktemp("home")
    for method in ("recency", "pair-trees", "graphmixer", "gcn"):
        shutil.copytree(trained(method).path, made / method)
    table(0, 160).to_csv(made / "own.csv", index=False)
    table(200, 20, amount=True).to_csv(made / "later.csv", index=False)
    for name, content in zip(("edges", "features", "labels"), tables(), strict=True):
        content.to_csv(made / f"{name}.csv", index=False)
    return made


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def strict(text: str) -> Any:
    """Parse strict JSON: no NaN, nothing before or after."""

    def no_number(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=no_number)


def listed(command: str) -> set[str]:
    """Return the keys that the page lists for a command."""
    (row,) = re.findall(rf"^\| `{command}` \| (.*) \|$", PAGE, re.M)
    row = re.sub(r"\([^()]*\)", "", row).partition(";")[0]
    return set(re.findall(r"`([\w-]+)`", row))


@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_one_json_object(command: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    if command in NEEDS:
        pytest.importorskip(NEEDS[command])
    if command == "serve":
        import uvicorn

        monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    if command == "demo":
        monkeypatch.setattr("hopstate.cli.demo.read_recipe", lambda: DEMO)
    if command == "replay":
        from hopstate.serving.live import LiveRun

        with LiveRun("recency"):
            pass
    capsys.readouterr()
    status = main([command, "--json", *CALLS[command]])
    found = strict(capsys.readouterr().out)
    assert status == (1 if command in ("serve", "datasets") else 0), found
    assert "error" not in found
    keys = listed(command) if command != "reproduce" else {"recipes", "missing"}
    more = command == "evaluate"  # a key for each metric
    assert keys <= found.keys() if more else keys == found.keys()
    assert found | VALUES.get(command, {}) == found


def json_output(capsys: Capture, *words: str) -> Any:
    """Return the object of a command that succeeds."""
    capsys.readouterr()
    assert main([words[0], "--json", *words[1:]]) == 0
    return strict(capsys.readouterr().out)


def same_rows(found: list[dict[str, Any]], expected: pd.DataFrame) -> None:
    """Compare the rows of an object with a table of the library."""
    pd.testing.assert_frame_equal(pd.DataFrame(found), expected, check_dtype=False, rtol=1e-5)


def test_query_commands_agree_with_the_library(capsys: Capture) -> None:
    run = load("graphmixer")
    pair, soon = [("u1", "v2")], json_output(capsys, "score", "graphmixer", "--pairs=u1,v2")
    same_rows(soon["rows"], run.score(pair))
    late = json_output(capsys, "score", "graphmixer", "--pairs=u1,v2", "--time=300")
    same_rows(late["rows"], run.score(pair, 300))
    assert soon["rows"] != late["rows"]
    found = json_output(capsys, "rank", "graphmixer", "--source=u1", "--top=3", "--time=300", "--exclude-seen")
    same_rows(found["rows"], run.rank("u1", top=3, time=300, exclude_seen=True))
    assert found["rows"] != json_output(capsys, "rank", "graphmixer", "--source=u1", "--top=3", "--time=300")["rows"]
    explained = json_output(capsys, "explain", "pair-trees", "--pair=u1,v1", "--time=80")
    assert (explained["source"], explained["target"]) == ("u1", "v1")
    expected = hopstate.explain("pair-trees", "u1", "v1", 80)
    assert (explained["score"], explained["logit"]) == (pytest.approx(expected.score), pytest.approx(expected.logit))
    same_rows(explained["rows"], expected.table)
    same_rows(explained["features"], expected.features)


def test_metrics_equal_those_of_the_run(capsys: Capture) -> None:
    for split in ("val", "test"):
        metrics = json.loads(Path("recency/result.json").read_text())["metrics"][split]
        assert json_output(capsys, "evaluate", "recency", f"--split={split}") == {"split": split} | metrics
    found = json_output(capsys, "fit", "recency", "--data=own.csv", "--out=fitted", *QUICK)
    assert found["metrics"] == json.loads(Path("fitted/result.json").read_text())["metrics"]
    assert found["run"] == "fitted"
    assert not found["interrupted"]


@pytest.mark.parametrize("command", ["fit", "tune", "compare", "rank"])
def test_wrong_usage_prints_a_json_object_with_status_2(command: str, capsys: Capture) -> None:
    argv = [command, "--json", "mlp", "--data=x", "--no-such-option"] if command in ("fit", "tune") else None
    status = main(argv or [command, "--no-such-option", "--json"])
    printed = capsys.readouterr()
    found = strict(printed.out)
    assert found.keys() == {"error"}
    assert found["error"].keys() == {"kind", "message", "exit_code"}
    assert found["error"]["exit_code"] == status == 2
    assert found["error"]["message"]
    assert printed.err.count(found["error"]["message"]) == 1


def test_help_is_a_json_object_too(capsys: Capture) -> None:
    assert main(["predict", "--json", "--help"]) == 0
    assert "hopstate predict" in strict(capsys.readouterr().out)["help"]
    for argv in (["--help", "--json"], ["--json"]):
        assert main(argv) == 0
        assert "check-leak" in strict(capsys.readouterr().out)["help"]


@pytest.mark.parametrize(
    ("raised", "kind", "status"), [(KeyboardInterrupt(), "KeyboardInterrupt", 130), (KeyError("x"), "KeyError", 1)]
)
def test_every_exception_prints_a_json_object(
    raised: BaseException, kind: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def broken(argv: list[str]) -> None:
        print("to stdout")
        raise raised

    monkeypatch.setattr("hopstate.cli.info.run", broken)
    assert main(["info", "--json"]) == status
    printed = capsys.readouterr()
    error = strict(printed.out)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, status)
    assert "to stdout" in printed.err


def test_json_text_has_numbers_nulls_and_texts() -> None:
    record = {"a": np.float32(0.5), "b": np.int64(2**60), "c": [np.nan, np.inf, None], 1: pd.Timestamp("2026-01-02")}
    record |= {"d": np.arange(2), "e": Path("x"), "f": {"g": (True, np.bool_(False))}}
    assert strict(json_text(record)) == {
        "a": 0.5, "b": 2**60, "c": [None] * 3, "1": "2026-01-02 00:00:00", "d": [0, 1], "e": "x",
        "f": {"g": [True, False]},
    }  # fmt: skip


@pytest.mark.parametrize(("argv", "status"), [(["info"], 0), (["evaluate", "nowhere"], 1), (["nowhere"], 2)])
def test_exit_statuses(argv: list[str], status: int, capsys: Capture) -> None:
    assert main(argv) == status
    assert argv == ["info"] or "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "device"), [("fit", "abacus"), ("compare", "cuda:99"), ("evaluate", "cuda:99"), ("score", "cpu:x")]
)
def test_an_unknown_device_is_an_error_with_its_name(command: str, device: str, capsys: Capture) -> None:
    method, *more = (word for word in CALLS[command] if not word.startswith(("--out", "--loop.device")))
    assert main([command, method, "--json", "--device", device, *more]) in (1, 2)
    error = strict(capsys.readouterr().out)["error"]
    assert error["kind"] == "ConfigError"
    assert device in error["message"]


@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_quiet_prints_only_results_and_errors(capsys: Capture) -> None:
    assert main(["fit", "recency", "--data=own.csv", "--out=quiet", *QUICK, "-q"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "quiet" in printed.out
    assert main(["evaluate", "nowhere", "-q"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "nowhere" in printed.err
    assert main(["predict", "-q"]) == 2
    assert "--out" in capsys.readouterr().err


def test_verbose_adds_only_to_stderr(capsys: Capture) -> None:
    assert main(["evaluate", "recency"]) == 0
    plain = capsys.readouterr()
    assert main(["evaluate", "recency", "-v"]) == 0
    verbose = capsys.readouterr()
    assert verbose.out == plain.out
    assert "selective_scan" in verbose.err
    assert "selective_scan" not in plain.err


def test_no_color_without_a_terminal_or_with_no_color(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert main(["info"]) == 0
    assert "\x1b" not in "".join(capsys.readouterr())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["info"]) == 0
    assert not re.findall(r"\x1b\[[\d;]*3\d", "".join(capsys.readouterr()))


def test_words_after_two_dashes_are_unchanged() -> None:
    flags, rest = Flags.split(["compare", "-q", "a,b", "--", "--json", "-v"])
    assert (flags.quiet, flags.json, flags.verbose) == (True, False, False)
    assert rest == ["compare", "a,b", "--", "--json", "-v"]
