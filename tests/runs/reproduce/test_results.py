"""The results file has only complete lines, from any number of writers."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from hopstate.errors import FormatError, StorageError
from hopstate.runs.reproduce import Line, append_line, read_lines, rows


def write(path: Path, count: int, number: int) -> None:
    for i in range(count):
        append_line(path, {"writer": number, "i": i, "long": "x" * 3000})


def line(recipe: str = "gcn/cora", run: int = 0, value: float = 0.8, **more: Any) -> Line:
    """A line of a run."""
    method, _, rest = recipe.partition("/")
    known = {
        "recipe": recipe,
        "method": method,
        "data": rest.split("-")[0],
        "metric": "accuracy",
        "settings": "abc",
        "altered": {},
        "run": run,
        "seed": run,
        "split": run,
        "metrics": {"val": {"accuracy": value}, "test": {"accuracy": value}},
        "best_epoch": 3,
        "epochs": 5,
        "parameters": 10,
        "seconds": 1.5,
        "seconds_per_epoch": 0.3,
        "wall_seconds": 4.0,
        "cpu_seconds": 3.0,
        "peak_memory_mb": 500.0,
        "version": "0.1.0",
        "revision": None,
        "processor": "a processor",
        "cores": 2,
        "threads": 1,
        "gpu": None,
        "started": f"2026-01-0{run + 1}T00:00:00+00:00",
        "date": "2026-01-01T00:00:00+00:00",
    }
    return known | more


def test_lines_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    for run in range(3):
        append_line(path, line(run=run))
    assert read_lines(path) == [line(run=run) for run in range(3)]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_nan_is_written_as_null(tmp_path: Path) -> None:
    append_line(tmp_path / "r.jsonl", line(value=float("nan")))
    assert read_lines(tmp_path / "r.jsonl")[0]["metrics"]["test"]["accuracy"] is None


def test_concurrent_writers_neither_lose_nor_mix_lines(tmp_path: Path) -> None:
    path, count, writers = tmp_path / "results.jsonl", 15, 3
    processes = multiprocessing.get_context("fork")
    started = [processes.Process(target=write, args=(path, count, number)) for number in range(writers)]
    for child in started:
        child.start()
    for child in started:
        child.join(240)
    assert [child.exitcode for child in started] == [0] * writers
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert sorted((one["writer"], one["i"]) for one in lines) == [(w, i) for w in range(writers) for i in range(count)]
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]


def test_a_crash_during_a_write_leaves_the_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    append_line(path, line())
    before = path.read_bytes()

    def half(part: Path, content: bytes) -> None:
        with part.open("wb") as file:
            file.write(content[: len(content) - 40])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(StorageError, match=r"results\.jsonl"):
        append_line(path, line(run=1))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["results.jsonl"]


def test_appending_to_a_file_without_a_final_newline_keeps_every_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(line()))
    append_line(path, line(run=1))
    assert [one["run"] for one in read_lines(path)] == [0, 1]


@pytest.mark.parametrize("bad", ['{"recipe": "a"', '{"recipe": "a"}', "[]", "7"])
def test_invalid_results_are_named_with_their_line(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(line()) + "\n" + bad + "\n")
    with pytest.raises(FormatError, match=r"line 2.*results\.jsonl"):
        read_lines(path)


def test_the_latest_line_of_a_run_and_settings_of_a_recipe_win() -> None:
    lines = [
        line(run=0, value=0.1, settings="old"),
        line(run=0, value=0.2),
        line(run=1, value=0.4),
        line(run=0, value=0.3),
        line(run=0, value=0.9, settings="other", altered={"loop.epochs": 1}),
    ]
    plain, altered = rows(lines)
    assert plain.values("accuracy") == [0.3, 0.4]
    assert plain.label == "gcn/cora"
    assert altered.values("accuracy") == [0.9]
    assert altered.label == "gcn/cora (altered: loop.epochs=1)"
    assert plain.mean("seconds") == 1.5
    assert plain.mean("nothing") is None
