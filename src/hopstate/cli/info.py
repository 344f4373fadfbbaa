"""`hopstate info`: versions, devices, cache folder, and the path each fast operator takes here."""

from __future__ import annotations

from functools import partial
from typing import Any

from hopstate.cli.commands import Answer, Options
from hopstate.io.files import cache_folder
from hopstate.training.run_folder import environment

FACTS = ("python", "platform", "processor", "threads", "gpu", "revision")
COLUMNS = ("operator", "path", "why")


def run(argv: list[str]) -> Answer:
    """Look at the machine and what is installed."""
    from hopstate.ops.selective_scan.dispatch import describe_paths

    Options(prog="hopstate info", description=__doc__, allow_abbrev=False).parse_args(argv[1:])
    facts = environment(None)
    record = {name: facts[name] for name in (*FACTS, "versions")} | {"cache": cache_folder()}
    record["paths"] = [dict(zip(COLUMNS, row, strict=True)) for row in describe_paths()]
    return Answer(record, partial(_show, record))


def _show(record: dict[str, Any]) -> None:
    from rich.table import Table

    from hopstate.io.output import screen

    console = screen()
    for name in FACTS:
        console.print(f"{name:<10} {record[name]}", soft_wrap=True, highlight=False)
    console.print(
        "versions   " + ", ".join(f"{k} {v}" for k, v in record["versions"].items()), soft_wrap=True, highlight=False
    )
    console.print(f"cache      {record['cache']}", soft_wrap=True, highlight=False)
    table = Table(*COLUMNS)
    for row in record["paths"]:
        table.add_row(*row.values())
    console.print(table)
