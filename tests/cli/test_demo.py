"""`hopstate demo`: its settings exist, its processes end with it, and a failed command is an error."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import hopstate
from hopstate.cli.demo import _train, commands_of, read_recipe
from hopstate.errors import HopstateError
from hopstate.io.output import screen
from hopstate.methods import get_method
from hopstate.methods.config import parse_words, parser_of
from hopstate.runs.compare import _settings


def test_every_setting_of_the_demo_exists() -> None:
    expected = []
    for task in read_recipe()["tasks"].values():
        for command, names, *words in commands_of(task, Path("runs/demo")):
            cut = words.index("--out")
            own = words[:cut] + words[cut + 2 :]
            if command == "fit":
                expected.append((names, own))
                continue
            end = own.index("--")
            methods = names.split(",")
            expected += [(name, [*own[:end], *_settings(name, own[end + 1 :], methods)]) for name in methods]
    assert len(expected) > 5
    for name, words in expected:
        method = get_method(name)
        _, parse = parse_words(method, parser_of(method, prog=name), words)
        assert parse({}).data in ("minesweeper-generated", "clubs-generated")


def _tasks(*lines: str) -> dict[str, dict[str, object]]:
    return {"task": {"about": "a task", "commands": list(lines)}}


def test_each_finished_model_prints_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"evaluation": {"strategies": ["random"]}, "loop": {"progress": False}}
    hopstate.fit("recency", "clubs-generated", out=tmp_path / "stream" / "recency-split0-seed0", **settings)
    assert _train(_tasks("--version", "--version"), tmp_path, screen(stderr=True))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("stream: recency")]
    assert len(lines) == 1
    assert "AP" in lines[0]


def test_a_failed_command_names_its_log_file(tmp_path: Path) -> None:
    with pytest.raises(HopstateError, match=r"task\.log"):
        _train(_tasks("no-such-command", "--version"), tmp_path, screen(stderr=True))
    assert "no-such-command" in (tmp_path / "task.log").read_text()


def test_ctrl_c_ends_the_processes(tmp_path: Path) -> None:
    fit = "fit ctdg-ssm --data clubs-generated --loop.epochs 1000 --out FOLDER/stream/run"

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(8.0, interrupt)
    timer.start()
    try:
        assert not _train(_tasks(fit, fit), tmp_path, screen(stderr=True))
    finally:
        timer.cancel()
