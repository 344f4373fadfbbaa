"""`hopstate reproduce RECIPE ...`: run rows of the papers' tables, and hold what comes out against what was published.

Results are added to a file, one line a run; --list shows all recipes and which data are here.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from hopstate.errors import ConfigError
from hopstate.runs.reproduce.recipes import Recipe, find_recipes
from hopstate.runs.reproduce.recipes import all_recipes as known_recipes

EPILOG = """Settings after -- replace the recipe's, e.g. -- --model.dim 64; such results are marked as altered and stay
out of the table of --table."""

# of --list, with the width of each where a terminal has 80 characters
COLUMNS = {"recipe": 36, "data here": 4, "metric": 10, "published": 9, "runs": 4, "source": 11}


def run(argv: list[str]) -> int:
    """Run the command."""
    own, rest = (argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv[1:], [])
    runs = Path(os.environ.get("HOPSTATE_RUNS", "runs"))
    parser = argparse.ArgumentParser(prog="hopstate reproduce", description=__doc__, epilog=EPILOG, allow_abbrev=False)
    parser.add_argument(
        "recipes", nargs="*", help="names or patterns, e.g. gmn/minesweeper '*/uci'; none shows results"
    )
    parser.add_argument("--list", action="store_true", help="show the recipes, and how to get what data are missing")
    parser.add_argument("--seeds", default=None, help="how many runs, or which, e.g. 3 or 0,2-4 (default: the paper's)")
    parser.add_argument("--epochs", type=int, default=None, help="train this long only; marked as altered")
    parser.add_argument("--out", default=runs / "reproduce", help="run folders (default: %(default)s)")
    parser.add_argument("--results", default=runs / "results.jsonl", help="results file (default: %(default)s)")
    parser.add_argument("--table", default=None, metavar="FILE", help="write the table into a Markdown file's marks")
    o = parser.parse_args(own)
    chosen = [recipe for pattern in o.recipes for recipe in find_recipes(pattern)]
    if o.list:
        _list(chosen or list(known_recipes().values()))
        return 0
    if rest and not chosen:
        raise ConfigError("settings after -- need a recipe to go to; `hopstate reproduce --list` shows all")
    changes = {**changes_of(rest), **({} if o.epochs is None else {"loop.epochs": o.epochs})}
    status = _run(chosen, changes, o)
    _show(chosen, o)
    return status


def _run(chosen: list[Recipe], changes: dict[str, Any], o: argparse.Namespace) -> int:
    from hopstate.runs.reproduce.runner import reproduce

    for recipe in chosen:
        count = f"{recipe.runs}" if o.seeds is None else o.seeds
        print(f"{recipe.name}: {recipe.note or recipe.method}", file=sys.stderr)
        if reproduce(recipe, numbers_of(count), changes=changes, out=o.out, results_file=o.results) is None:
            print("stopped; everything is saved. The same command continues", file=sys.stderr)
            return 130
    return 0


def _show(chosen: list[Recipe], o: argparse.Namespace) -> None:
    from hopstate.runs.reproduce import results, tables

    lines = results.read(o.results)
    if o.table is not None:
        changed = tables.write_markdown(o.table, lines)
        print(f"{o.table}: {'written' if changed else 'up to date'}")
        return
    names = {recipe.name for recipe in chosen}
    tables.show([line for line in lines if not names or line["recipe"] in names])
    print(f"results: {o.results}")


def numbers_of(text: str) -> list[int]:
    """Return 0, 1, ... of a count, or the numbers of a list such as 0,2-4.

    Raises:
        ConfigError: text is neither.
    """
    from hopstate.cli.compare import numbers

    if text.isdigit() and int(text) > 0:
        return list(range(int(text)))
    return numbers(text)


def changes_of(words: list[str]) -> dict[str, Any]:
    """Return dotted settings of words such as --model.dim 64 --loop.epochs=5.

    Raises:
        ConfigError: a value without a name, or a name without a value.
    """
    found: dict[str, Any] = {}
    name = None
    for word in words:
        if name is not None:
            found[name], name = word, None
        elif word.startswith("--") and "=" in word:
            key, _, value = word[2:].partition("=")
            found[key] = value
        elif word.startswith("--"):
            name = word[2:]
        else:
            raise ConfigError(f"{word!r} after -- belongs to no setting; write --name value")
    if name is not None:
        raise ConfigError(f"--{name} after -- has no value")
    return found


def _list(recipes: list[Recipe]) -> None:
    from rich.table import Table

    from hopstate.datasets.registry import find_dataset, on_disk
    from hopstate.io.screen import screen
    from hopstate.runs.reproduce.availability import missing
    from hopstate.runs.reproduce.tables import figure, metric_words

    console = screen()
    narrow = console.width < sum(COLUMNS.values()) * 3 // 2
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name, width in COLUMNS.items():
        table.add_column(name, width=width if narrow else None, no_wrap=not narrow, overflow="fold")
    for recipe in recipes:
        entry, reference = find_dataset(recipe.data), recipe.reference
        published = "" if reference is None else figure(reference.metric, reference.mean, reference.std)
        here = "no" if entry is None else on_disk(entry)
        source = "" if reference is None else reference.source
        table.add_row(recipe.name, here, metric_words(recipe.metric), published, str(recipe.runs), source)
    console.print(table)
    ways = missing(recipe.data for recipe in recipes)
    if ways:
        console.print("Data that are not here:")
    for text in ways:
        console.print(f"  {text}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"{len(recipes)} recipes; `hopstate reproduce NAME --seeds 3` runs one.")
