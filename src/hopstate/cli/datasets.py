"""`hopstate datasets`: list the datasets of the papers, their sources, and which are on disk."""

from __future__ import annotations

from functools import partial
from typing import Any

from hopstate.cli.commands import FAILED, CommandParser, CommandResult, lines
from hopstate.datasets.registry import dataset_table
from hopstate.errors import nearest
from hopstate.io.files import cache_folder


def run(argv: list[str]) -> CommandResult:
    """List datasets; status 1 if none has that name."""
    parser = CommandParser(prog="hopstate datasets", description=__doc__)
    parser.add_argument(
        "name", nargs="?", default="", help="show all details of this dataset, or the datasets whose names contain this"
    )
    options = parser.parse_args(argv[1:])
    everything, query = dataset_table(), options.name.lower()
    rows = [row for row in everything if row["name"].lower() == query] or [
        row for row in everything if query in row["name"].lower()
    ]
    record = {"datasets": rows, "cache": cache_folder()}
    if not rows:
        known = nearest(query, [row["name"] for row in everything])
        message = f"no dataset is called {options.name!r}{known or '; `hopstate datasets` lists all'}"
        return CommandResult(record, lines(message), FAILED)
    return CommandResult(record, partial(_show, rows, options.name))


def _show(rows: list[dict[str, Any]], name: str) -> None:
    from rich.table import Table

    from hopstate.io.output import screen

    console = screen()
    if name and len(rows) <= 5:
        for row in rows:
            for key, value in row.items():
                console.print(f"{key.replace('_', ' '):<10} {value}", highlight=False)
            console.print()
    else:
        columns = ("name", "kind", "split", "metric", "on_disk")
        table = Table(*(name.replace("_", " ") for name in columns))
        for row in rows:
            table.add_row(*(str(row[c]) for c in columns))
        console.print(table)
        summary = f"{len(rows)} datasets; `hopstate datasets NAME` shows its address, license and papers."
        console.print(summary, highlight=False)
    console.print(f"cache: {cache_folder()}", highlight=False)
