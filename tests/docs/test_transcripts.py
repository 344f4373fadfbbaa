"""Commands of tests/docs/transcripts.md that print the same everywhere print what the page shows."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path

import pytest

from hopstate.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests" / "docs" / "transcripts.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_prints_the_same_everywhere_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "made")
    made, rows = importlib.import_module("transcripts"), importlib.import_module("transcript_rows").ROWS
    titles = [row.title for row in rows]
    assert made._page(made.parts(PAGE, titles), titles) == PAGE, "run docs/made/transcripts.py"
    monkeypatch.chdir(tmp_path)
    steps = [step for row in rows for step in row.steps if step.same]
    assert len(steps) > 5
    for step in steps:
        capsys.readouterr()
        status = main(shlex.split(step.typed.removesuffix("2>/dev/null"))[1:])
        printed = capsys.readouterr()
        text = printed.out if step.typed.endswith("2>/dev/null") else printed.out + printed.err
        assert made.shown(step, made.cut(step, text, {}), status, 0.0) in PAGE, step.typed
