"""`hopstate prepare SOURCE --out STORE`: convert a table of events or edges to a memory-mapped store for --data."""

from __future__ import annotations

import math
import time
from typing import Any

from hopstate.cli.commands import CommandParser, CommandResult, lines, say, split_group
from hopstate.errors import ConfigError

SECONDS = 5.0  # minimum time between two lines of rows read


def run(argv: list[str]) -> CommandResult:
    how = (
        "Options for columns: --read.source_column, target_column, time_column, label_column NAME, "
        "edge_columns LIST, separator CHARACTER, time_format FORMAT, unlabeled_value VALUE, header and bipartite true "
        "or false. For edges too: --read.features, labels FILE, undirected, duplicates, self_loops, num_nodes, as in "
        "fit."
    )
    parser = CommandParser(prog="hopstate prepare", description=__doc__, epilog=how, allow_abbrev=False)
    parser.add_argument("source", help="a file or folder of CSV or Parquet")
    parser.add_argument("--kind", default="events", choices=["events", "edges"], help="what a row is (default: events)")
    parser.add_argument("--out", required=True, help="folder of the store; the same command continues unfinished work")
    parser.add_argument("--engine", default="duckdb", help="duckdb (default) or spark; it numbers the ids and sorts")
    parser.add_argument("--memory", default="2GiB", help="maximum memory (default: 2GiB); Spark has its own setting")
    parser.add_argument(
        "--threads", type=int, help="threads that read the source, and of DuckDB (default: one per core)"
    )
    words, read = split_group(argv[1:], "--read.")
    o = parser.parse_args(words)
    from hopstate.data.prepare import prepare

    settings: dict[str, Any] = {key: _value(key, text) for key, text in read.items()}
    done = prepare(
        o.source, o.out, kind=o.kind, engine=o.engine, memory=o.memory, threads=o.threads, say=_Lines(), **settings
    )
    messages = [f"{done.path}: {done.events:,} {o.kind} of {done.nodes:,} nodes; use it with --data {done.path}"]
    messages += done.notes
    if done.bad:
        messages.append(f"{done.bad:,} rows were skipped; file and line are in {done.bad_rows}")
    record = {"store": done.path, "kind": o.kind, "rows": done.events, "nodes": done.nodes}
    return CommandResult(record | {"bad": done.bad, "bad_rows": done.bad_rows}, lines(*messages))


def _value(key: str, text: str) -> Any:
    if key == "edge_columns":
        return [name.strip() for name in text.strip("[] ").split(",") if name.strip()]
    if key in ("undirected", "header") and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if key in ("undirected", "header") or (key == "num_nodes" and not text.isdecimal()):
        raise ConfigError(f"--read.{key} is {'true or false' if key != 'num_nodes' else 'a number'}; got {text!r}")
    return int(text) if key == "num_nodes" else text


class _Lines:
    """Print lines of progress; of the many that count the rows read, one every few seconds."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, text: str) -> None:
        if text.endswith("rows read"):
            if time.monotonic() - self._last < SECONDS:
                return
            self._last = time.monotonic()
        say(text)
