"""Every command of README and docs runs.

Blocks in sh, bash and python are taken from the pages in order and run in one scratch folder a page, which holds small
files of the names that the pages use. A comment before a block marks it:

    <!-- run: slow -->       minutes; run with the tests marked slow
    <!-- run: network -->    fetches something
    <!-- run: gpu -->        needs a CUDA device
    <!-- run: no, REASON --> for another reason, which must be given

Unmarked blocks run here with every training cut to one epoch and every search to two trials (appended to the command,
where the last setting counts), on generated data of a smaller size; and as they are written in the test marked slow.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.datasets import registry

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs" / "notebooks"  # pages of notebooks, which run in test_notebooks
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != MADE)]
MARKS = ("slow", "network", "gpu", "no")
SMALL = {
    "minesweeper-generated": {"size": 30},
    "messages-generated": {"num_events": 2000},
    "sbm": {"num_nodes": 500},
    "clubs-generated": {"num_nodes": 200, "num_events": 1000},
}
BLOCK = re.compile(
    r"(?:^<!-- run: (?P<mark>[^>]*?) -->\n+)?^```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, mark ("" for none), text and line."""

    language: str
    mark: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that can be run; what the page includes from a file is that file's matter."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(m["language"], m["mark"] or "", m["text"], text[: m.start("text")].count("\n"))
        for m in BLOCK.finditer(text)
    ]
    return [b for b in found if b.language in ("sh", "bash", "shell", "console", "python") and "--8<--" not in b.text]


def commands(text: str) -> list[str]:
    """Return the commands of a shell block, continued lines joined, comments left out."""
    lines = (line.strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


NAMED = {page.relative_to(ROOT).as_posix(): page for page in PAGES if blocks(page)}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files of the names that the pages use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    rng = np.random.default_rng(0)
    names = np.array([f"user {i:02d}" for i in range(60)])
    side = np.arange(60) % 2
    pairs = rng.integers(0, 60, (400, 2))
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) | (rng.random(400) < 0.1)]
    pd.DataFrame({"source": names[pairs[:, 0]], "target": names[pairs[:, 1]]}).to_csv("edges.csv", index=False)
    x = rng.normal(size=(60, 4)) + side[:, None]
    pd.DataFrame({"id": names, **{f"f{i}": x[:, i] for i in range(4)}}).to_csv("features.csv", index=False)
    pd.DataFrame({"id": names, "label": np.array(["cat", "dog"])[side]}).to_csv("labels.csv", index=False)
    papers = pd.DataFrame({"id": names, "venue": np.array(["KDD", "VLDB", "ICML"])[rng.integers(0, 3, 60)]})
    papers["published"] = pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d")
    papers["price"] = np.where(rng.random(60) < 0.2, np.nan, rng.uniform(5, 90, 60).round(2))
    papers.assign(volume=rng.integers(1, 4, 60), title=names).to_csv("papers.csv", index=False)
    scores = pd.DataFrame({"id": names, "score": x[:, 0] * 3 + 20, "spam": side, "bot": (x[:, 1] > 0) * 1.0})
    scores["topics"] = np.where(side == 1, "graphs; texts", "images")
    scores.loc[::9, ["score", "bot", "topics"]] = None
    scores.assign(stars=rng.integers(1, 6, 60)).to_csv("scores.csv", index=False)
    people = np.array([*("alice", "bob"), *(f"person {i}" for i in range(18))])
    source = rng.integers(0, 20, 700)
    target = (source + rng.integers(1, 4, 700)) % 20
    events = pd.DataFrame({"src": people[source], "dst": people[target], "t": np.sort(rng.integers(0, 400, 700))})
    events[events.t < 360].to_csv("events.csv", index=False)
    events[events.t >= 360].to_csv("new-events.csv", index=False)
    return tmp_path


def smaller(name: str) -> registry.Dataset:
    """Return the entry of a generated data set that makes it smaller."""
    entry, size = registry.find_dataset(name), SMALL[name]

    def make(**options: Any) -> Any:
        assert entry is not None
        assert entry.make is not None
        return entry.make(**{**size, **options})

    assert entry is not None
    return replace(entry, make=make)


def cut(words: list[str]) -> list[str]:
    """Return a hopstate command with its training cut to one epoch, its search to two trials."""
    short = ["--loop.epochs=1", "--loop.progress=false", "--loop.tensorboard=no"]
    if words[0] == "compare":
        return [*words, *([] if "--" in words else ["--"]), *short]
    if words[0] in ("fit", "tune") and "--help" not in words:
        return [*words, *short, *(["--trials=2"] if words[0] == "tune" else [])]
    return words


def run_shell(command: str, monkeypatch: pytest.MonkeyPatch, *, whole: bool) -> None:
    """Run a command: hopstate's own in this process, others in bash."""
    words = shlex.split(command, comments=True)
    with monkeypatch.context() as here:
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            name, _, value = words.pop(0).partition("=")
            here.setenv(name, value)
            if name == "PYTHONPATH":
                here.syspath_prepend(value)
        if words and words[0] == "hopstate" and not {"|", ">", "&&"} & set(words):
            try:
                status = main(words[1:] if whole else cut(words[1:]))
            except SystemExit as leave:  # --help
                status = leave.code or 0
        else:
            status = subprocess.run(["bash", "-ec", command], check=False).returncode
    assert status == 0, command


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch, *, whole: bool) -> None:
    """Run a page's blocks in order."""
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        if block.mark and not (whole and block.mark == "slow"):
            continue
        if block.language == "python":
            # torch-geometric imports the file's name as a module, which that of a page is not
            exec(compile("\n" * block.line + block.text, str(page / "__main__.py"), "exec"), names)
            continue
        for command in commands(block.text):
            run_shell(command, monkeypatch, whole=whole)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_commands_run(name: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BY_NAME", registry._BY_NAME | {name: smaller(name) for name in SMALL})
    run_page(NAMED[name], monkeypatch, whole=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_commands_run_as_they_are_written(name: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(NAMED[name], monkeypatch, whole=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_marks_are_known_and_stand_before_a_block(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    marks = re.findall(r"<!-- run: ([^>]*?) -->", text)
    assert len(marks) == sum(bool(b.mark) for b in blocks(page)), "a mark with no block after it"
    for mark in marks:
        word, _, reason = mark.partition(",")
        assert word in MARKS, mark
        assert word != "no" or reason.strip(), "say why"


def test_a_command_that_does_not_run_is_found(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    for command in ("hopstate fit mlp --data edges.csv --no.such.option 1", "hopstate evaluate nowhere", "false"):
        page.write_text(f"```sh\n{command}\n```\n")
        with pytest.raises(AssertionError, match=re.escape(command)):
            run_page(page, monkeypatch, whole=False)
    page.write_text("<!-- run: network -->\n```sh\nfalse\n```\n")
    run_page(page, monkeypatch, whole=False)
