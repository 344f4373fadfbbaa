"""The page of transcripts holds what is typed, and commands that print the same everywhere print what stands there."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hopstate.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "transcripts.md").read_text(encoding="utf-8")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs" / "made")
    return importlib.import_module("transcripts")


def rows() -> Any:
    return importlib.import_module("transcript_rows").ROWS


def test_the_page_has_every_row_and_what_is_typed_in_order(made: ModuleType) -> None:
    known = made.parts(PAGE, [row.title for row in rows()])
    assert made._page(known, [row.title for row in rows()]) == PAGE, "rows are others: docs/made/transcripts.py"
    for row in rows():
        place = 0
        for step in row.steps:
            mark = f"<!-- run: {step.mark} -->\n" if step.mark else "\n"
            block = f"{mark}```{'python' if step.python else 'sh'}\n{step.typed.strip()}\n```\n"
            place = known[row.title].find(block, place)
            assert place >= 0, f"{row.title}: {step.typed} was not typed: docs/made/transcripts.py --only"
            place += len(block)


def test_what_prints_the_same_everywhere_is_what_stands_there(
    made: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [step for row in rows() for step in row.steps if step.same]
    assert len(steps) > 5
    for step in steps:
        capsys.readouterr()
        status = main(shlex.split(step.typed.removesuffix("2>/dev/null"))[1:])
        told = capsys.readouterr()
        text = told.out if step.typed.endswith("2>/dev/null") else told.out + told.err
        assert made.shown(step, made.cut(step, text, {}), status, 0.0) in PAGE, step.typed


def test_what_is_cut_is_told(made: ModuleType) -> None:
    step = made.Step("x", keep="a|c", first=2)
    assert made.cut(step, "a\nb\nc\na\n", {"c": "d"}) == ["a", "[...]", "a"]
    assert made.cut(made.Step("x"), "/home/me/a \n", {"/home/me": "~"}) == ["~/a"]
