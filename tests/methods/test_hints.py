"""Errors of the parser, and suggestions for unknown options."""

import pytest

from hopstate.cli.main import main
from hopstate.methods import get_method
from hopstate.methods.config import hint, parser_of


def test_a_mistyped_option_has_a_hint_as_typed(capsys):
    for typed, meant in (("--no-atuo", "--no-auto"), ("--no_auto", "--no-auto"), ("--modle.dim=3", "--model.dim")):
        assert main(["fit", "graphmixer", "--data=x", typed]) == 2
        assert f"'{meant}'" in capsys.readouterr().err, typed
    assert "'--loop.optim.lr'" in hint("unrecognized arguments: --model.lr 3", ["model", "model.dim", "loop.optim.lr"])
    inside = hint("Group 'model' does not accept option 'dmi'", ["model.dim"])
    assert "'model.dim'" in inside  # a settings file has no dashes


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--max_events none", "max_events"),
        ("--evaluation.max_events none", "evaluation.max_events"),
        ("--loop.patience few", "loop.patience"),
        ("--loop.epochs many", "loop.epochs"),
        ("--loop.epochs=", "loop.epochs"),
        ("--evaluation.strategies random", "evaluation.strategies"),
        ("--read.edge_columns amount", "read.edge_columns"),
        ("--evaluation.select_by last", "evaluation.select_by"),
        ("--split.kind x", "split.kind"),
    ],
)
def test_a_value_of_the_wrong_type_is_rejected_by_name(words, option, capsys):
    assert main(["fit", "graphmixer", "--data=x", *words.split()]) == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize(
    ("group", "option"),
    [
        ("loop={epochs: x}", "loop.epochs"),
        ("loop={optim: {lr: high}}", "loop.optim.lr"),
        ("loop.optim={lr: high}", "loop.optim.lr"),
        ("loop={patience: few}", "loop.patience"),
        ("split={kind: x}", "split.kind"),
        ("loop={optim: 3}", "loop.optim"),
        ("loop={optim: null}", "loop.optim"),
        ("loop={epochs: 3", "loop"),
    ],
)
def test_a_wrong_value_within_a_group_is_rejected_by_name(group, option, capsys):
    assert main(["fit", "graphmixer", "--data=x", f"--{group}"]) == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("loop: 3", "loop"),
        ("loop: {optim: [1]}", "loop.optim"),
        ("split: time", "split"),
        ("model: null", "model"),
        ("loop: {epochs: 3}\nloop: {epochs: 5}", "loop"),
        ('{"loop": {"epochs": 3, "epochs": 5}}', "epochs"),
        ("[" * 100_000, "deep"),
        ("loop: {epochs: 010}", "base 8"),
        ("loop: {epochs: 1:30}", "base 8 or 60"),
    ],
)
def test_a_settings_file_with_a_bad_group_is_rejected_by_name(text, option, tmp_path, capsys):
    path = tmp_path / "settings.yaml"
    path.write_text(f"{text}\n")
    assert main(["fit", "graphmixer", "--data=x", f"--config={path}"]) == 2
    error = capsys.readouterr().err
    assert option in error
    assert path.name in error


def test_a_long_value_is_shortened(capsys):
    assert main(["fit", "graphmixer", "--data=x", f"--loop.epochs={'x' * 3000}"]) == 2
    assert len(capsys.readouterr().err) < 300


def test_a_missing_required_option_is_named_as_typed(capsys):
    assert main(["fit", "graphmixer"]) == 2
    assert "--data" in capsys.readouterr().err


def test_a_pair_over_two_lines_is_rejected(capsys):
    assert main(["score", "nowhere", "--pairs=1\n,7"]) == 2
    assert "--pairs" in capsys.readouterr().err


def test_a_boolean_option_needs_no_value():
    parser = parser_of(get_method("recency"))
    given = parser.parse_args(["--read.drop_missing_time", "--data", "x.csv", "--directed"])
    assert (given.read.drop_missing_time, given.directed) == (True, True)
