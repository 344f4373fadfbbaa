"""Help and wrong options need no torch."""

from __future__ import annotations

import subprocess
import sys

from hopstate.cli.main import COMMANDS

# their options name what records and methods have
LIBRARY = {"inspect", "reproduce", "info", "datasets"}


def imported(*calls: list[str]) -> set[str]:
    """Return the modules that are loaded after command lines in one process of their own."""
    code = f"""
import sys
from hopstate.cli.main import main
for words in {calls!r}:
    try:
        main(words)
    except SystemExit:
        pass
print('modules:', *sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("modules:", 1)[1].split())


def test_help_and_wrong_options_import_no_torch() -> None:
    calls = [[command, "--help"] for command in sorted(COMMANDS.keys() - LIBRARY)]
    calls += [["fit", "gmn", "--help"], ["fit", "sage", "--dtaa", "x"], ["rank", "run", "--sorce", "a"]]
    found = imported(*calls)
    assert "hopstate.cli.option_table" in found
    assert not found & {"torch", "pandas", "numba", "jsonargparse", "lightning_fabric"}
