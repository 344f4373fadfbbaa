"""Completion, asked of the shell itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hopstate.cli.main import COMMANDS, main
from hopstate.cli.option_table import names_of
from hopstate.methods import MODULES

ASK = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hopstate; printf '%s\\n' "${COMPREPLY[@]}" """


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
        pytest.skip("bash is not here to be asked")
    done = subprocess.run(
        [bash, "-c", ASK, "ask", script, "hopstate", *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands(script: Path) -> None:
    assert completed(script, "") == set(COMMANDS)
    assert completed(script, "check") == {"check-leak", "check-crash"}


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_methods_and_their_options(script: Path, command: str) -> None:
    assert completed(script, command, "") == set(MODULES)
    assert completed(script, command, "dyg") == {name for name in MODULES if name.startswith("dyg")}
    for method in ("gmn", "recency"):
        found = completed(script, command, method, "--data", "x.csv", "--")
        assert found >= {f"--{name}" for name in names_of(method)} | {"--json"}
    assert "--walks.walks" not in completed(script, command, "recency", "--walks")


def test_options_of_commands_and_files_for_the_rest(script: Path) -> None:
    assert {"--split", "--out", "--device", "--quiet"} <= completed(script, "predict", "RUN", "--")
    assert completed(script, "predict", "RUN", "--sp") == {"--split"}
    assert completed(script, "predict", "./r") == set()  # left to the shell, which knows files
    shown = subprocess.run(
        [shutil.which("bash") or "bash", "-c", f'source "{script}"; complete -p hopstate'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "-o default" in shown.stdout


@pytest.mark.parametrize(("shell", "told"), [("zsh", "bashcompinit"), ("fish", "complete -c hopstate")])
def test_other_shells_have_a_script(shell: str, told: str, capsys) -> None:
    assert main(["completion", shell]) == 0
    found = capsys.readouterr().out
    assert told in found
    assert all(name in found for name in (*COMMANDS, "walks.walks", "dyg-mamba"))
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=found, text=True, check=True)


def test_other_shells_are_refused(capsys) -> None:
    assert main(["completion", "--json", "cmd"]) == 2
    assert "invalid choice" in capsys.readouterr().err
