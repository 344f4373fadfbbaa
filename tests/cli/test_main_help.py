"""Help of a command needs no torch; that of a method, which has to be looked at, nothing that only training needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hopstate.cli.main import COMMANDS

LOOKED_AT = {"inspect", "top-error", "reproduce"}  # their options name what records and methods have


def imported(*words: str) -> set[str]:
    code = (
        "import sys; from hopstate.cli.main import main\n"
        f"try: main({list(words)})\n"
        "except SystemExit: pass\n"
        "print('modules:', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("modules:", 1)[1].split())


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - LOOKED_AT - {"info", "datasets"}))
def test_help_of_a_command_imports_no_torch(command):
    assert not imported(command, "--help") & {"torch", "pandas", "numba", "lightning_fabric"}


def test_help_of_a_method_imports_nothing_that_trains():
    assert "torch" not in imported("fit", "gmn", "--help")  # which the table of options answers
    found = imported("fit", "gmn", "--data", "x", "--print_config")
    assert "hopstate.methods.gmn.method" in found
    assert not found & {"lightning_fabric", "hopstate.training.trainer", "pandas"}
