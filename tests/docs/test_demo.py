"""`make demo` trains our methods beside their rivals with settings that they know; nothing is trained here."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hopstate.cli.compare import _settings
from hopstate.methods import get_method
from hopstate.methods.parser import parser_of
from hopstate.methods.settings import parse_words

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """The words of each hopstate command that the demo runs, by the command's name."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    venv = tmp_path_factory.mktemp("venv")
    asked = ["make", "-n", "demo-graph", "demo-stream", f"VENV={venv}", "RUN=runs/demo"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[list[str]]] = {}
    for line in done.stdout.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        if words and words[0] == f"{venv}/bin/hopstate":
            found.setdefault(words[1], []).append(words[2:])
    return found


def test_our_methods_stand_beside_their_rivals(commands: dict[str, list[list[str]]]) -> None:
    graph, stream = (words[0].split(",") for words in commands["compare"])
    assert graph == ["nagphormer", "gmn", "sage"]
    assert stream == ["recency", "pair-trees", "ctdg-ssm", "dyg-mamba"]
    (top,) = commands["fit"]
    assert top[0] == "sage"
    assert top[top.index("--batching") + 1] == "top"
    assert len(commands["rank"]) == len(commands["explain"]) == 1
    assert commands["rank"][0][0] == "runs/demo-stream/dyg-mamba-split0-seed0"  # what compare calls this run


def test_every_setting_is_known_to_its_method(commands: dict[str, list[list[str]]]) -> None:
    asked = [(words[0], words[1:]) for words in commands["fit"]]
    for words in commands["compare"]:
        names, cut = words[0].split(","), words.index("--")
        data = words[words.index("--data") + 1]
        asked += [(name, ["--data", data, *_settings(name, words[cut + 1 :], names)]) for name in names]
    for name, words in asked:
        if "--out" in words:
            at = words.index("--out")
            words = words[:at] + words[at + 2 :]
        method = get_method(name)
        config = parse_words(method, parser_of(method, prog=name), words)({})
        assert config.data in ("minesweeper-generated", "clubs-generated")
