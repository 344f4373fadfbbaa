"""An option that a command does not have: the error names the nearest of its own."""

import pytest

from hopstate.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["rank", "run", "--candidate", "who.csv"], "'--candidates'"),
        (["rank", "run", "--source", "a", "--new_only"], "'--new-only'"),
        (["score", "run", "--pair", "a,b"], "'--pairs'"),  # a required one
        (["explain", "run", "--pair=a,b", "--polt=a.png"], "'--plot'"),
        (["compare", "recency", "--data", "x", "--seedz", "2"], "'--seeds'"),
        (["rank", "run", "--task", "link"], "--task"),
        (["rank", "run", "more"], "more"),
        (["compare", "recency", "--loop.seed=1"], "--data"),
    ],
)
def test_the_nearest_option_is_named(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    error = capsys.readouterr().err.splitlines()[-1]
    assert named in error
    assert ("'--" in named) == ("'--" in error)


def test_every_command_names_the_nearest_option(capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted(COMMANDS.keys() - {"fit", "tune"}):
        with pytest.raises(SystemExit, match="2"):
            main([command, "--halp"])
        assert "'--help'" in capsys.readouterr().err.splitlines()[-1], command
