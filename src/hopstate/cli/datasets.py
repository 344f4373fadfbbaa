"""`hopstate datasets`: every data set of the papers, where it comes from, whether it is on disk."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from hopstate.cli.answer import DONE, FAILED, Answer
from hopstate.datasets.registry import dataset_table
from hopstate.io.cache import cache_folder


def run(argv: list[str]) -> Answer:
    """List data sets; status 1 where none is of that name."""
    parser = argparse.ArgumentParser(prog="hopstate datasets", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="show only those whose name holds this, with all details")
    options = parser.parse_args(argv[1:])
    rows = [row for row in dataset_table() if options.name.lower() in row["name"].lower()]
    record = {"datasets": rows, "cache": cache_folder()}
    return Answer(record, partial(_show, rows, options.name), DONE if rows else FAILED)


def _show(rows: list[dict[str, Any]], name: str) -> None:
    from rich.table import Table

    from hopstate.io.screen import screen

    console = screen()
    if name and len(rows) <= 5:
        for row in rows:
            for key, value in row.items():
                console.print(f"{key:<10} {value}", soft_wrap=True, highlight=False)
            console.print()
    else:
        columns = ("name", "kind", "split", "metric", "on_disk")
        table = Table(*columns)
        for row in rows:
            table.add_row(*(str(row[c]) for c in columns))
        console.print(table)
    console.print(f"{len(rows)} data sets; `hopstate datasets NAME` shows address, licence and where it was read.")
    console.print(f"cache: {cache_folder()}", soft_wrap=True)
