"""Completion by the shell itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hopstate.cli.fit import fit_parser
from hopstate.cli.main import COMMANDS, main
from hopstate.methods import MODULES, get_method

ASK = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_hopstate; printf '%s\\n' "${COMPREPLY[@]}" """


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of bash, as the command prints it."""
    from hopstate.cli.completion import run

    path = tmp_path_factory.mktemp("completion") / "hopstate.bash"
    path.write_text(run(["completion", "bash"]).record["script"])
    return path


def completed(script: Path, *words: str) -> set[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    done = subprocess.run(
        [bash, "-c", ASK, "ask", script, "hopstate", *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_methods_and_options(script: Path) -> None:
    assert completed(script, "") == set(COMMANDS)
    assert completed(script, "check") == {"check-leak"}
    assert completed(script, "fit", "") == set(MODULES)
    assert completed(script, "tune", "dyg") == {name for name in MODULES if name.startswith("dyg")}
    found = completed(script, "fit", "recency", "--data", "x.csv", "--")
    known = fit_parser(get_method("recency")).keys()
    assert found >= {f"--{name}" for name in known} | {"--json"}
    assert "--walks.walks" not in found
    assert completed(script, "predict", "RUN", "--sp") == {"--split"}


def test_values_are_completed_as_files(script: Path) -> None:
    folder = script.parent
    (folder / "events.csv").touch()
    assert completed(script, "inspect", f"{folder}/ev") == {f"{folder}/events.csv"}
    assert completed(script, "fit", "recency", "--data", f"{folder}/ev") == {f"{folder}/events.csv"}


def test_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("zsh", "fish"):
        assert main(["completion", shell]) == 0
        found = capsys.readouterr().out
        assert all(name in found for name in (*COMMANDS, "walks.walks", "dyg-mamba"))
        program = shutil.which(shell)
        if program is not None:
            subprocess.run([program, "-n"], input=found, text=True, check=True)
    assert main(["completion", "--json", "cmd"]) == 2
    assert "cmd" in capsys.readouterr().out
