"""The table of options says what the parsers say; help and wrong options need no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hopstate.cli import option_table
from hopstate.cli.main import main
from hopstate.errors import ConfigError
from hopstate.methods import MODULES, get_method

STALE = "the options have changed: python -m hopstate.cli.option_table writes the table anew"


def test_table_is_what_the_parsers_say():
    made = option_table.table_of([get_method(name) for name in MODULES])
    assert json.loads(option_table.PLACE.read_text(encoding="utf-8")) == made, STALE


@pytest.mark.parametrize("width", [40, 80, 163])
@pytest.mark.parametrize("name", MODULES)
def test_help_and_names_are_the_parsers(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    parser = option_table.fit_parser(get_method(name))
    assert option_table.help_of(name) == parser.format_help(), STALE
    assert option_table.names_of(name) == parser.keys(), STALE


WRONG = [
    ["--modle.dim", "3"],
    ["--data", "x", "--lop.epochs=3", "--modle.dim", "3"],
    ["--data=x", "left", "over"],
    ["--data", "x", "over", "--resume", "too", "--nonsense"],
    ["--data", "x", "--loop.seeed", "-1", "--metirc=roc_auc"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_options_are_told_as_the_parser_tells_them(words):
    with pytest.raises(ConfigError) as live:
        option_table.fit_parser(get_method("gmn")).parse_args(words)
    with pytest.raises(ConfigError) as quick:
        option_table.check_names("gmn", words)
    assert str(quick.value) == str(live.value)


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "x", "--loop.epochs=3", "--split", "random", "--resume", "--out", "run"],
        ["--data=x", "--batching.histories=true", "--truncate", "3"],  # former names
        ["--read.columns.a", "text", "--loop.seed", "-1"],
        ["--config", "file", "--nonsense"],  # the parser says in which file, too
        ["--print_config", "--nonsense"],
        [],
    ],
    ids=" ".join,
)
def test_what_may_be_right_is_left_to_the_parser(words):
    option_table.check_names("gmn", words)


def test_links_are_told_how_they_are_judged():
    with pytest.raises(ConfigError, match="links are judged by all of their metrics"):
        option_table.check_names("recency", ["--metric", "roc_auc"])


@pytest.mark.parametrize(
    "words", [("gmn", "--help"), ("dyg-mamba", "--data", "x", "-h"), ("sage", "--dtaa", "x")], ids=" ".join
)
def test_neither_help_nor_a_wrong_option_imports_torch(words):
    code = (
        "import sys; from hopstate.cli.main import main\n"
        f"main(['fit', *{list(words)}])\n"
        "assert not {'torch', 'jsonargparse', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_a_method_of_ones_own_is_asked_itself(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_method_here.py").write_text(
        "from hopstate.methods.pair_trees.method import METHODS\nOWN = METHODS['pair-trees']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit):
        main(["fit", "own_method_here:OWN", "--help"])
    assert "usage: hopstate fit own_method_here:OWN" in capsys.readouterr().out
