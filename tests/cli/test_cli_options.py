"""An unknown option of a command: the error names the nearest known one."""

import json
import re

import pytest
import yaml

from hopstate.cli.fit import fit_parser
from hopstate.cli.main import COMMANDS, main
from hopstate.methods import MODULES, get_method


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["rank", "run", "--candidate", "who.csv"], "'--candidates'"),
        (["rank", "run", "--source", "a", "--exclude_seen"], "'--exclude-seen'"),
        (["score", "run", "--pair", "a,b"], "'--pairs'"),  # a required one
        (["explain", "run", "--pair=a,b", "--polt=a.png"], "'--plot'"),
        (["compare", "recency", "--data", "x", "--seedz", "2"], "'--seeds'"),
        (["rank", "run", "--task", "link"], "--task"),
        (["rank", "run", "more"], "more"),
        (["compare", "recency", "--loop.seed=1"], "--data"),
    ],
)
def test_the_nearest_option_is_named(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert named in error
    assert ("'--" in named) == ("'--" in error)


def test_every_command_names_the_nearest_option(capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted(COMMANDS.keys() - {"fit", "tune"}):
        assert main([command, "--halp"]) == 2
        assert "'--help'" in capsys.readouterr().err.splitlines()[-1], command


def test_every_setting_of_every_method_has_a_help_text() -> None:
    without = {
        option
        for method in MODULES
        for action in fit_parser(get_method(method))._actions
        for option in action.option_strings
        if not action.help
    }
    assert without == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_examples_of_known_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help", "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["help"]
    _, heading, examples = text.partition("Examples:\n")
    assert heading
    assert all(line.strip().startswith(f"hopstate {command}") for line in examples.strip().splitlines())


def test_help_shows_the_usual_settings_and_help_all_every_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "dyg-mamba", "--help"]) == 0
    basic = capsys.readouterr().out
    assert main(["fit", "dyg-mamba", "--help-all"]) == 0
    every = capsys.readouterr().out
    assert "--epochs" in basic
    assert "--help-all" in basic
    assert "--model.block.expand" not in basic
    assert "--model.block.expand" in every


@pytest.mark.parametrize("method", MODULES)
def test_help_has_no_python_types_and_fits_80_columns(
    method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["fit", method, "--help-all"]) == 0
    text = capsys.readouterr().out
    assert not re.search(r"Literal|Union|Optional|tuple|type:|None|True|False|default: \(|\\x", text)
    descriptions = [line for line in text.splitlines() if not line.lstrip().startswith(("-", "hopstate"))]
    assert max(map(len, descriptions)) <= 80


def printed_config(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    with pytest.raises(SystemExit):
        main([*words, "--print_config"])
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.parametrize("method", ["nagphormer", "gcn"])
def test_short_options_set_their_long_options(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"epochs": 7, "lr": 0.25, "seed": 3, "device": "cpu", "features": "f.csv", "batch-size": 9}
    short = [f"--{name}={value}" for name, value in given.items()]
    config = printed_config(["fit", method, "--data", "x", *short, "--labels", "l.csv"], capsys)
    loop = config["loop"]
    assert (loop["epochs"], loop["seed"], loop["device"]) == (7, 3, "cpu")
    assert loop["optim"]["lr"] == 0.25
    assert (config["read"]["features"], config["read"]["labels"]) == ("f.csv", "l.csv")
    assert (config if method == "nagphormer" else config["batching"])["batch_size"] == 9


def test_a_short_option_that_contradicts_its_setting_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "gcn", "--data", "x", "--epochs", "3"]
    assert main([*words, "--loop.epochs=4"]) == 2
    assert "--loop.epochs" in capsys.readouterr().err
    assert printed_config([*words, "--loop.epochs=3"], capsys)["loop"]["epochs"] == 3
    assert printed_config([*words, "--epochs=5"], capsys)["loop"]["epochs"] == 5
