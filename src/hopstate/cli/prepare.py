"""`hopstate prepare SOURCE --out STORE`: a table of events of any size as a memory-mapped store for --data STORE."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from hopstate.cli.apply import grouped


def run(argv: list[str]) -> int:
    """Run the command."""
    how = (
        "How columns are found: --read.source_column, target_column, time_column, label_column NAME, edge_columns LIST."
    )
    parser = argparse.ArgumentParser(prog="hopstate prepare", description=__doc__, epilog=how, allow_abbrev=False)
    parser.add_argument("source", help="a file or folder of CSV or Parquet, a row an event")
    parser.add_argument(
        "--out", required=True, help="folder of the store; the same command goes on with unfinished work"
    )
    parser.add_argument("--engine", default="duckdb", help="what numbers the ids and sorts (default: duckdb)")
    parser.add_argument("--memory", default="2GiB", help="most memory in use (default: 2GiB)")
    parser.add_argument("--threads", type=int, default=None, help="of the engine; by default one a core")
    own, read = grouped(argv[1:], "--read.")
    o = parser.parse_args(own)
    from hopstate.data.prepare import prepare

    settings: dict[str, Any] = dict(read)
    if "edge_columns" in read:
        settings["edge_columns"] = [
            name.strip() for name in read["edge_columns"].strip("[] ").split(",") if name.strip()
        ]
    done = prepare(o.source, o.out, engine=o.engine, memory=o.memory, threads=o.threads, say=_say, **settings)
    print(f"{done.path}: {done.events:,} events of {done.nodes:,} nodes; take it with --data {done.path}")
    if done.bad:
        print(f"{done.bad:,} rows were left out, with file and line in {done.bad_rows}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
