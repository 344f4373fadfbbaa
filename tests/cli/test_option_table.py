"""The table of options has what the parsers have."""

from __future__ import annotations

import json

import pytest

from hopstate.cli import option_table
from hopstate.errors import ConfigError
from hopstate.methods import MODULES, get_method

STALE = "the options have changed: python -m hopstate.cli.option_table writes the table anew"


def test_the_table_has_what_the_parsers_have() -> None:
    made = option_table.table_of([get_method(name) for name in MODULES])
    assert json.loads(option_table.PLACE.read_text(encoding="utf-8")) == made, STALE
    parser = option_table.fit_parser(get_method("gmn"))
    assert option_table.help_of("gmn") == parser.format_help(), STALE
    assert option_table.names_of("gmn") == parser.keys(), STALE


def test_wrong_options_are_refused_and_right_ones_left_to_the_parser() -> None:
    for words, named in (
        (["--modle.dim", "3"], "model.dim"),
        (["--data", "x", "--lop.epochs=3", "--modle.dim", "3"], "loop.epochs"),
        (["--data=x", "left", "over"], "left over"),
        (["--data", "x", "over", "--resume", "too", "--nonsense"], "over too --nonsense"),
        (["--metric", "roc_auc"], "--metric"),
    ):
        with pytest.raises(ConfigError, match=named):
            option_table.check_names("recency" if "--metric" in words else "gmn", words)
    for words in (
        ["--data", "x", "--loop.epochs=3", "--split", "random", "--resume", "--out", "run"],
        ["--read.columns.a", "text", "--loop.seed", "-1"],
        ["--config", "file", "--nonsense"],  # the parser knows in which file it may be
        [],
    ):
        option_table.check_names("gmn", words)
