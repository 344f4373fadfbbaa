"""The commands of `make demo` name settings that exist, with values of the right types. Nothing is trained."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hopstate.cli.compare import _settings
from hopstate.methods import get_method
from hopstate.methods.config import parse_words, parser_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[list[str]]]:
    """The words of each hopstate command that the demo runs, by the command's name."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    venv = tmp_path / "venv"
    dry = ["make", "-n", "demo-graph", "demo-stream", f"VENV={venv}", "RUN=runs/demo"]
    done = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[list[str]]] = {}
    for line in done.stdout.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        if words and words[0] == f"{venv}/bin/hopstate":
            found.setdefault(words[1], []).append(words[2:])
    return found


def test_every_setting_of_the_demo_exists(commands: dict[str, list[list[str]]]) -> None:
    wanted = [(words[0], words[1:]) for words in commands["fit"]]
    for words in commands["compare"]:
        names, cut = words[0].split(","), words.index("--")
        data = words[words.index("--data") + 1]
        wanted += [(name, ["--data", data, *_settings(name, words[cut + 1 :], names)]) for name in names]
    assert len(wanted) > 5
    for name, words in wanted:
        if "--out" in words:
            at = words.index("--out")
            words = words[:at] + words[at + 2 :]
        method = get_method(name)
        _, parse = parse_words(method, parser_of(method, prog=name), words)
        config = parse({})
        assert config.data in ("minesweeper-generated", "clubs-generated")
