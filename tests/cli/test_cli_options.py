"""Options that a command does not have: the nearest of its own is named."""

import subprocess
import sys

import pytest

from hopstate.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rank", "run", "--candidate", "who.csv"], "--candidate who.csv; did you mean '--candidates'?"),
        (["rank", "run", "--source", "a", "--new_only"], "--new_only; did you mean '--new-only'?"),
        (["score", "run", "--pairs", "a,b", "--tiem", "3"], "--tiem 3; did you mean '--time'?"),
        (["score", "run", "--pair", "a,b"], "--pairs; unrecognized arguments: --pair; did you mean '--pairs'?"),
        (["explain", "run", "--pair=a,b", "--polt=a.png"], "--polt=a.png; did you mean '--plot'?"),
        (["serve", "run", "--snapshot_evry", "3"], "--snapshot_evry 3; did you mean '--snapshot-every'?"),
        (["evaluate", "run", "--spilt", "val"], "--spilt val; did you mean '--split'?"),
        (["compare", "recency", "--data", "x", "--seedz", "2"], "--seedz 2; did you mean '--seeds'?"),
        (["rank", "run", "--task", "link"], "--task link; --help lists all options"),
        (["rank", "run", "more"], "unrecognized arguments: more"),
        (["compare", "recency", "--loop.seed=1"], "the following arguments are required: --data"),
    ],
)
def test_the_nearest_option_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err.splitlines()[-1].endswith(told)


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"fit", "tune"}))
def test_every_command_has_hints(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, "--halp"])
    assert "did you mean '--help'?" in capsys.readouterr().err.splitlines()[-1]


def test_a_hint_imports_no_torch() -> None:
    code = (
        "import sys; from hopstate.cli.main import main\n"
        "try: main(['rank', 'run', '--sorce', 'a'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert "did you mean '--source'?" in done.stderr
