"""`--json` of every command: one object on stdout, of the keys that the documentation lists; errors too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.answer import json_text
from hopstate.cli.main import COMMANDS, main
from made_events import small_run, table

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
QUICK = ["--loop.epochs=1", "--loop.tensorboard=no", "--loop.device=cpu"]
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
    "robustness": ["graphmixer", "--levels=0,0.5", "--noise=stream"],
    "compare": ["recency,edgebank", "--data=own.csv", "--out=compared", "--", *QUICK],
    "tune": ["mlp", *NODES, "--model.dim=8", "--trials=1", "--out=search"],
    "reproduce": ["--list"],
    "report": ["recency", "--out=page.html"],
    "inspect": ["own.csv"],
    "export": ["gcn", "--to=torch", "--out=exported"],
    "prepare": ["own.csv", "--out=store"],
    "plan": ["nagphormer", "--nodes=1e6", "--edges=1e7", "--features=128"],
    "check-leak": ["recency", "--moments=2", "--queries=4"],
    "check-crash": ["recency", "--kills=0", "--drops=0", "--tears=0", "--eio=0", "--enospc=0"],
    "datasets": ["karate"],
    "top-error": ["gcn", "--clusters=2", "--batches=1"],
    "info": [],
    "completion": ["bash"],
}
NEEDS = {"tune": "optuna", "prepare": "duckdb", "serve": "uvicorn", "replay": "fastapi", "check-crash": "fastapi"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a run each of recency, pair-trees, graphmixer and gcn, and their data."""
    made = tmp_path_factory.mktemp("home")
    for method in ("recency", "pair-trees", "graphmixer"):
        small_run(method, made)
    table(200, 20).to_csv(made / "later.csv", index=False)
    rng = np.random.default_rng(0)
    names = np.array([f"n{i}" for i in range(30)])
    ends = rng.integers(0, 30, (90, 2))
    pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]]}).to_csv(made / "edges.csv", index=False)
    pd.DataFrame({"id": names, "a": rng.normal(size=30)}).to_csv(made / "features.csv", index=False)
    pd.DataFrame({"id": names, "label": np.arange(30) % 2}).to_csv(made / "labels.csv", index=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(made)
        assert main(["fit", "gcn", *NODES, "--model.dim=8", "--out=gcn", "-q"]) == 0
    return made


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def strict(text: str) -> Any:
    """Read a text as JSON itself has it: no NaN, nothing before or after."""

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
def test_every_command_prints_one_object(command: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    if command in NEEDS:
        pytest.importorskip(NEEDS[command])
    if command == "serve":
        import uvicorn

        monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    if command == "replay":
        _live()
    capsys.readouterr()
    status = main([command, "--json", *CALLS[command]])
    found = strict(capsys.readouterr().out)
    assert status == (1 if command in ("serve", "datasets") else 0), found
    if "error" in found:
        pytest.fail(str(found))
    keys = listed(command) if command != "reproduce" else {"recipes", "missing"}
    more = command in ("evaluate", "top-error")  # a key for each metric
    assert keys <= found.keys() if more else keys == found.keys()


def _live() -> None:
    from hopstate.serving.live import LiveRun

    with LiveRun("recency"):
        pass


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_usage_is_an_object_too(command: str, capsys) -> None:
    argv = [command, "--json", "mlp", "--data=x", "--no-such-option"] if command in ("fit", "tune") else None
    status = main(argv or [command, "--no-such-option", "--json"])
    told = capsys.readouterr()
    found = strict(told.out)
    assert found.keys() == {"error"}
    assert found["error"].keys() == {"kind", "message", "exit_code"}
    assert found["error"]["exit_code"] == status == 2
    assert found["error"]["message"]
    assert told.err.count(found["error"]["message"]) == 1


def test_help_is_an_object_too(capsys) -> None:
    assert main(["predict", "--json", "--help"]) == 0
    assert "usage: hopstate predict" in strict(capsys.readouterr().out)["help"]
    for argv in (["--help", "--json"], ["--json"]):
        assert main(argv) == 0
        assert "usage: hopstate COMMAND" in strict(capsys.readouterr().out)["help"]


@pytest.mark.parametrize(
    ("raised", "kind", "status"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt", 130),
        (KeyError("x"), "KeyError", 1),
        (MemoryError(), "MemoryError", 1),
    ],
)
def test_whatever_is_raised_is_an_object(raised, kind, status, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def struck(argv: list[str]) -> None:
        print("to stdout")
        raise raised

    monkeypatch.setattr("hopstate.cli.info.run", struck)
    assert main(["info", "--json"]) == status
    told = capsys.readouterr()
    assert strict(told.out)["error"] == {"kind": kind, "exit_code": status} | {
        "message": strict(told.out)["error"]["message"]
    }
    assert "to stdout" in told.err


def test_figures_are_those_of_the_run(capsys) -> None:
    assert main(["evaluate", "recency", "--json"]) == 0
    found = strict(capsys.readouterr().out)
    kept = json.loads(Path("recency/result.json").read_text())["metrics"]["test"]
    assert found == {"split": "test"} | kept


def test_json_text_has_numbers_nulls_and_texts() -> None:
    record = {"a": np.float32(0.5), "b": np.int64(2**60), "c": [np.nan, np.inf, None], 1: pd.Timestamp("2026-01-02")}
    record |= {"d": np.arange(2), "e": Path("x"), "f": {"g": (True, np.bool_(False))}}
    assert strict(json_text(record)) == {
        "a": 0.5, "b": 2**60, "c": [None] * 3, "1": "2026-01-02 00:00:00", "d": [0, 1], "e": "x",
        "f": {"g": [True, False]},
    }  # fmt: skip


@pytest.mark.parametrize(("argv", "status"), [(["info"], 0), (["evaluate", "nowhere"], 1), (["nowhere"], 2)])
def test_statuses_are_those_of_the_page(argv: list[str], status: int, capsys) -> None:
    listed = re.findall(r"^\| (\d+) \| ", PAGE, re.M)
    assert listed == ["0", "1", "2", "130"]
    assert main(argv) == status


@pytest.mark.parametrize("device", ["abacus", "cuda:99", "cpu:x"])
@pytest.mark.parametrize("command", ["fit", "tune", "compare", "evaluate", "score", "explain", "check-leak"])
def test_a_device_that_is_not_there_is_named(command: str, device: str, capsys) -> None:
    if command == "tune":
        pytest.importorskip("optuna")
    call = [word for word in CALLS[command] if not word.startswith(("--out", "--loop.device"))]
    assert main([command, "--json", f"--device={device}", *call] if command not in ("fit", "tune") else
                [command, call[0], "--json", "--device", device, *call[1:]]) in (1, 2)  # fmt: skip
    told = strict(capsys.readouterr().out)["error"]
    assert device in told["message"]
    assert told["kind"] == ("HopstateError" if command == "tune" else "ConfigError")


@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_quiet_says_results_and_errors_alone(capsys) -> None:
    assert main(["fit", "recency", "--data=own.csv", "--out=quiet", *QUICK, "-q"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "run folder: quiet" in told.out
    assert main(["evaluate", "nowhere", "-q"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert main(["predict", "-q"]) == 2
    assert "required" in capsys.readouterr().err


def test_verbose_says_what_was_decided_and_why(capsys) -> None:
    assert main(["evaluate", "recency", "-v"]) == 0
    told = capsys.readouterr()
    assert strict(told.out)["split"] == "test"
    for what in ("device: auto takes", "threads: ", "selective_scan on cpu: ", "took "):
        assert what in told.err


@pytest.mark.parametrize("argv", [["info"], ["reproduce", "--list"], ["evaluate", "recency"]])
def test_no_colour_where_no_terminal_is_or_none_is_wanted(argv, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert main(argv) == 0
    assert "\x1b" not in "".join(capsys.readouterr())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(argv) == 0
    assert not re.findall(r"\x1b\[[\d;]*3\d", "".join(capsys.readouterr()))


def test_words_after_two_dashes_are_left_alone() -> None:
    from hopstate.cli.manner import Manner

    manner, rest = Manner.of(["compare", "-q", "a,b", "--", "--json", "-v"])
    assert (manner.quiet, manner.json, manner.verbose) == (True, False, False)
    assert rest == ["compare", "a,b", "--", "--json", "-v"]
