"""Tables are complete: in a pipe for every value of COLUMNS, and with all columns on a terminal of 80 characters."""

from __future__ import annotations

import io
import re

import pytest

from hopstate.cli.main import main
from hopstate.datasets.registry import dataset_table
from hopstate.evaluation.labels import figure
from hopstate.runs.reproduce import all_recipes

HEADS = ("recipe", "local", "metric", "published", "runs", "from")


class Terminal(io.StringIO):
    """A text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", ["20"])
def test_a_piped_list_of_recipes_is_complete(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for recipe in all_recipes().values():
        (line,) = [line for line in lines if line.split(" ")[0] == recipe.name]
        assert f" {recipe.runs} " in line
        assert recipe.reference is None or recipe.reference.source in line


def test_a_piped_list_of_datasets_is_complete(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    assert main(["datasets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for row in dataset_table():
        assert any(all(str(row[key]) in line for key in ("name", "kind", "metric", "on_disk")) for line in lines)


def test_a_list_of_recipes_keeps_every_column_at_80_characters(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["reproduce", "--list"]) == 0
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in terminal.getvalue().splitlines()]
    assert tuple(lines[0].split()) == HEADS
    sources = dict(line.split(" ", 1) for line in lines if re.match(r"\[\d+\] ", line))
    fits = [recipe for recipe in all_recipes().values() if len(recipe.name) <= 32]
    assert len(fits) > 300
    for recipe in fits:  # one row each, without continuation lines
        (row,) = [line for line in lines if line.split(" ")[0] == recipe.name]
        assert len(row) <= 80
        assert f" {recipe.runs} " in f"{row} "
        if recipe.reference is not None:
            assert sources[row.split()[-1]] == recipe.reference.source
            assert figure(recipe.reference.metric, recipe.reference.mean, recipe.reference.std) in row
