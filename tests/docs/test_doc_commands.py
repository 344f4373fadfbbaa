"""The commands of README and docs run.

Blocks in sh, bash and python run in the order of the pages in one scratch folder per page, which holds
small files of the names that the pages use. A comment before a block marks it:

    <!-- run: slow -->       minutes; run with the tests marked slow
    <!-- run: network -->    fetches something
    <!-- run: gpu -->        needs a CUDA device
    <!-- run: no, REASON --> not run; the reason is required

The options and names of all pages are checked without running anything. The unmarked blocks of README and the
quickstart run with small models on small generated data, every training cut to one epoch and every search to two trials
(appended to the command, because the last setting counts). A slow test runs the other pages like this, and another one
runs all pages as they are written.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.commands import CommandParser
from hopstate.cli.fit import fit_parser
from hopstate.cli.main import Flags, main
from hopstate.cli.tune import tune_parser
from hopstate.datasets import registry
from hopstate.errors import ConfigError
from hopstate.methods import MODULES, get_method
from hopstate.methods.config import SHORT_OPTIONS, Parser
from hopstate.runs.compare import _settings

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs" / "notebooks"  # pages of notebooks, which run in test_notebooks
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != MADE)]
QUICK = ("README.md", "docs/quickstart.md")
MARKS = ("slow", "network", "gpu", "no")
SMALL = {
    "minesweeper-generated": {"size": 16},
    "messages-generated": {"num_events": 600},
    "sbm": {"num_nodes": 300},
    "clubs-generated": {"num_nodes": 100, "num_events": 600},
}
MODELS = {  # settings that reduce the model of a page
    "dygformer": ["--model.channel_dim=8", "--model.time_dim=8", "--model.out_dim=8", "--model.max_length=4"],
    "ctdg-ssm": ["--model.dim=8", "--model.time_dim=4", "--model.hidden=8"],
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
    """Return the runnable blocks of a page, without those included from a file."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(m["language"], m["mark"] or "", m["text"], text[: m.start("text")].count("\n"))
        for m in BLOCK.finditer(text)
    ]
    return [b for b in found if b.language in ("sh", "bash", "shell", "console", "python") and "--8<--" not in b.text]


def commands(text: str) -> list[str]:
    """Return the commands of a shell block, continued lines joined, without comments."""
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
    """Return a smaller entry of a generated dataset."""
    entry = registry.find_dataset(name)
    assert entry is not None
    return replace(entry, options={**entry.options, **SMALL[name]})


def cut(words: list[str]) -> list[str]:
    """Return a hopstate command with a shorter training, search or check."""
    if words[0] == "check-leak":
        return [*words, "--times=1", "--queries=4"]
    short = ["--loop.epochs=1", "--loop.progress=false", "--loop.logger=none"]
    if words[0] == "compare":
        return [*words, *([] if "--" in words else ["--"]), *short]
    if words[0] in ("fit", "tune") and "--help" not in words:
        model = [] if any(word.startswith("--model") for word in words) else MODELS.get(words[1], [])
        return [*words, *short, *model, *(["--trials=2"] if words[0] == "tune" else [])]
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
            # torch-geometric imports the file's name as a module; a page's name is not one
            exec(compile("\n" * block.line + block.text, str(page / "__main__.py"), "exec"), names)
            continue
        for command in commands(block.text):
            run_shell(command, monkeypatch, whole=whole)


class Parsed(BaseException):
    """Raised when the options of a command have been parsed, so that nothing runs."""


def stop_after_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands with their own parser raise `Parsed` where their work would start."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))  # --method imports while options are parsed

    def parsed(self: CommandParser, words: list[str]) -> NoReturn:
        argparse.ArgumentParser.parse_args(self, words)
        raise Parsed

    monkeypatch.setattr(CommandParser, "parse_args", parsed)
    monkeypatch.setattr("hopstate.cli.compare.command_options", parsed)
    monkeypatch.setattr("hopstate.cli.reproduce.command_options", parsed)


def check_names(parser: Parser, words: Iterable[str]) -> None:
    """Raise ConfigError for an unknown option of a method; values are not checked."""
    known = parser.keys()
    groups = {key.rpartition(".")[0] for key in known if "." in key}
    more = (*SHORT_OPTIONS, "--config", "--print_config", "--help", "--help-all")
    for word in words:
        option = word.partition("=")[0].rstrip("+")
        name = option.removeprefix("--")
        inside = any(name.startswith(f"{key}.") for key in known if key not in groups)  # of a setting that is a mapping
        if word.startswith("--") and name not in (*known, *groups) and option not in more and not inside:
            raise ConfigError(f"{parser.prog} has no option {word}")


def check_command(words: list[str]) -> None:
    """Raise for a hopstate command with an unknown option; nothing runs.

    Custom methods and placeholders (`PATH`, `$RUN`) pass.
    """
    command, *rest = Flags.split(words)[1]
    parsers = {"fit": fit_parser, "tune": tune_parser}
    if command in parsers:
        if rest and rest[0] in MODULES:
            check_names(parsers[command](get_method(rest[0])), rest[1:])
        return
    try:
        status = main(words)
    except Parsed:
        status = 0
    if status:
        raise ConfigError(" ".join(words))
    if command == "compare" and "--" in rest:
        at, names = rest.index("--"), rest[0].split(",")
        for name in filter(MODULES.__contains__, names):
            check_names(fit_parser(get_method(name)), ["--data", "x", *_settings(name, rest[at + 1 :], names)])


def dry(page: Path) -> list[str]:
    """Return the errors of a page's blocks, without running them."""
    wrong = []
    for block in blocks(page):
        mark, _, reason = block.mark.partition(",")
        if mark not in ("", *MARKS) or (mark == "no" and not reason.strip()):
            wrong.append(f"{page.name}: {block.mark}")
        if mark == "no":  # it may be meant to fail
            continue
        if block.language == "python":
            wrong += [f"{page.name}: {name}" for name in unknown_names(block.text)]
            continue
        for command in commands(block.text):
            words = shlex.split(re.split(r" \| | > | && | 2>", command)[0], comments=True)
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words.pop(0)
            if words[:1] == ["hopstate"] and words[1:]:
                try:
                    check_command(words[1:])
                except (Exception, SystemExit) as error:
                    wrong.append(f"{page.name}: {command}: {error}")
    return wrong


def unknown_names(code: str) -> list[str]:
    """Return missing hopstate names that a Python block uses."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hopstate":
            found += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hopstate":
            found.append(("hopstate", node.attr))
    return [f"{module}.{name}" for module, name in found if not hasattr(import_module(module), name)]


def test_pages_name_options_and_functions_that_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stop_after_parsing(monkeypatch)
    assert len(NAMED) > 10
    assert [wrong for page in NAMED.values() for wrong in dry(page)] == []
    page = tmp_path / "page.md"
    bad = ["hopstate fit gcn --data x --modle.dim 3", "hopstate predict run --outt p.csv", "hopstate nothing run"]
    bad += ["hopstate compare gcn,mlp --data x -- --mlp.model.dimm 3", "hopstate rank run --sourec a | head"]
    page.write_text("".join(f"```sh\n{command}\n```\n\n" for command in bad) + "```python\nhopstate.nothing()\n```\n")
    assert len(dry(page)) == len(bad) + 1


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NAMED])
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_commands_run(name: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = registry.catalogue() | {name: smaller(name) for name in SMALL}
    monkeypatch.setattr(registry, "catalogue", lambda: entries)
    run_page(NAMED[name], monkeypatch, whole=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_commands_run_verbatim(name: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(NAMED[name], monkeypatch, whole=True)
