"""`hopstate reproduce RECIPE ...`: run rows of the papers' tables and compare the results with the published ones.

Each run appends a line to a results file. --list shows all recipes and which datasets are on disk.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hopstate.cli.commands import INTERRUPTED, CommandParser, CommandResult, command_options, lines, say
from hopstate.cli.compare import numbers
from hopstate.datasets.registry import find_dataset, on_disk
from hopstate.errors import ConfigError
from hopstate.evaluation.labels import figure, metric_label
from hopstate.runs.reproduce import (
    Recipe,
    all_recipes,
    find_recipes,
    missing,
    read_lines,
    reproduce,
    show,
    write_markdown,
)

EPILOG = """Settings after -- replace the recipe's, e.g. -- --model.dim 64. Such results are marked as altered and are
not in the table of --table."""

COLUMNS = ("recipe", "local", "metric", "published", "runs", "source")  # of --list; local: data are on disk
ROOM = 130  # characters below which sources stand under the table


def run(argv: list[str]) -> CommandResult:
    """Run recipes, or list them; status 130 if Ctrl-C stopped it."""
    words, run_settings = (argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv[1:], [])
    runs = Path(os.environ.get("HOPSTATE_RUNS", "runs"))
    parser = CommandParser(prog="hopstate reproduce", description=__doc__, epilog=EPILOG, allow_abbrev=False)
    parser.add_argument(
        "recipes", nargs="*", help="names or patterns, e.g. gmn/minesweeper '*/uci'; without names, show the results"
    )
    parser.add_argument("--list", action="store_true", help="show the recipes, and how to get missing datasets")
    parser.add_argument("--seeds", help="number of runs, or their numbers, e.g. 3 or 0,2-4 (default: as in the paper)")
    parser.add_argument("--epochs", type=int, help="number of epochs; results are marked as altered")
    parser.add_argument("--out", default=runs / "reproduce", help="folder of run folders (default: %(default)s)")
    parser.add_argument("--results", default=runs / "results.jsonl", help="results file (default: %(default)s)")
    parser.add_argument("--table", metavar="FILE", help="write the table between the marks of a Markdown file")
    parser.add_argument("--device", help="device: auto, cpu, cuda or cuda:N (loop.device)")
    o = command_options(parser, words)
    chosen = [recipe for pattern in o.recipes for recipe in find_recipes(pattern)]
    if o.list:
        return _list(chosen or list(all_recipes().values()))
    if run_settings and not chosen:
        raise ConfigError("settings after -- need a recipe to go to; `hopstate reproduce --list` shows all")
    given = {"loop.epochs": o.epochs, "loop.device": o.device}
    changes = {**changes_of(run_settings), **{name: value for name, value in given.items() if value is not None}}
    return _answer(chosen, o, _run(chosen, changes, o))


def _run(chosen: list[Recipe], changes: dict[str, Any], o: argparse.Namespace) -> int:
    for recipe in chosen:
        count = f"{recipe.runs}" if o.seeds is None else o.seeds
        say(f"{recipe.name}: {recipe.note or recipe.method}")
        if reproduce(recipe, numbers_of(count), changes=changes, out=o.out, results_file=o.results) is None:
            say("stopped; everything is saved. The same command continues")
            return 130
    return 0


def _answer(chosen: list[Recipe], o: argparse.Namespace, status: int) -> CommandResult:
    results = read_lines(o.results)
    record: dict[str, Any] = {"results": o.results, "interrupted": status == INTERRUPTED}
    if o.table is not None:
        changed = write_markdown(o.table, results)
        text = f"{o.table}: {'written' if changed else 'up to date'}"
        return CommandResult(record | {"table": o.table, "changed": changed}, lines(text), status)
    names = {recipe.name for recipe in chosen}
    selected = [line for line in results if not names or line["recipe"] in names]

    def print_results() -> None:
        show(selected)
        print(f"results: {o.results}")

    return CommandResult(record | {"runs": selected}, print_results, status)


def numbers_of(text: str) -> list[int]:
    """Return 0, 1, ... of a count, or the numbers of a list such as 0,2-4."""
    if text.isdigit() and int(text) > 0:
        return list(range(int(text)))
    return numbers(text)


def changes_of(words: list[str]) -> dict[str, Any]:
    """Return dotted settings of words such as --model.dim 64 --loop.epochs=5."""
    changes: dict[str, Any] = {}
    name = None
    for word in words:
        if name is not None:
            changes[name], name = word, None
        elif word.startswith("--") and "=" in word:
            key, _, value = word[2:].partition("=")
            changes[key] = value
        elif word.startswith("--"):
            name = word[2:]
        else:
            raise ConfigError(f"{word!r} after -- does not belong to a setting. Write --NAME VALUE")
    if name is not None:
        raise ConfigError(f"--{name} after -- has no value. Write --{name} VALUE")
    return changes


def _list(recipes: list[Recipe]) -> CommandResult:
    rows = []
    for recipe in recipes:
        entry, reference = find_dataset(recipe.data), recipe.reference
        row: dict[str, Any] = {"recipe": recipe.name, "data": recipe.data, "method": recipe.method}
        row |= {"here": "no" if entry is None else on_disk(entry), "metric": recipe.metric, "runs": recipe.runs}
        rows.append(row | {"published": None if reference is None else asdict(reference)})
    ways = missing(recipe.data for recipe in recipes)
    return CommandResult({"recipes": rows, "missing": ways}, partial(_show_list, rows, ways))


def _show_list(rows: list[dict[str, Any]], ways: Sequence[str]) -> None:
    from rich.table import Table

    from hopstate.io.output import screen

    console = screen()
    sources = list(dict.fromkeys(row["published"]["source"] for row in rows if row["published"]))
    narrow = console.width < ROOM
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column("from" if narrow and name == "source" else name, no_wrap=name != "recipe", overflow="fold")
    for row in rows:
        reference = row["published"]
        published = figure(reference["metric"], reference["mean"], reference["std"]) if reference else ""
        source = "" if not reference else reference["source"]
        source = f"[{sources.index(source) + 1}]" if narrow and source else source
        metric = metric_label(row["metric"])  # of which negatives, the recipe's name says too
        metric = metric.partition(",")[0] if narrow else metric
        here = "yes" if row["here"] == "built in" else row["here"]
        table.add_row(row["recipe"], here, metric, published, str(row["runs"]), source)
    console.print(table)
    for number, source in enumerate(sources if narrow else (), 1):
        console.print(f"[{number}] {source}", highlight=False)
    if ways:
        console.print("Missing datasets:")
    for text in ways:
        console.print(f"  {text}", highlight=False)
    console.print(f"{len(rows)} recipes; `hopstate reproduce NAME --seeds 3` runs one.")
