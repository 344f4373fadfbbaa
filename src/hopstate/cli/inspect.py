"""`hopstate inspect DATA`: summarize a stream, a graph or a run, and warn about suspicious data."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hopstate.cli.commands import CommandParser, CommandResult, lines, split_group
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.datasets.registry import find_dataset, load_dataset
from hopstate.errors import ConfigError, FormatError
from hopstate.methods import get_method
from hopstate.methods.config import config_from, hint
from hopstate.methods.method import ReadOptions
from hopstate.methods.shared.link import EventReadOptions
from hopstate.runs.data import graph_set_kwargs, reader_kwargs


def run(argv: list[str]) -> CommandResult:
    """Look at data, or at a run."""
    how = "Options for reading files: --read.features FILE, --read.labels FILE, ... as in `hopstate fit METHOD --help`."
    parser = CommandParser(prog="hopstate inspect", description=__doc__, epilog=how, allow_abbrev=False)
    parser.add_argument("data", help="a file, a folder, the name of a dataset, or a run folder")
    parser.add_argument(
        "--kind",
        choices=("auto", "graph", "graphs", "events"),
        default="auto",
        help="content of the file (default: auto)",
    )
    parser.add_argument("--plot", metavar="FILE", help="also draw two charts of the data: .png, .pdf or .svg")
    words, read = split_group(argv[1:], "--read.")
    options = parser.parse_args(words)
    if (Path(options.data) / "config.json").is_file():
        from hopstate.runs.card import run_card

        if options.plot or read or options.kind != "auto":
            raise ConfigError(f"{options.data} is a run; --plot, --kind and --read apply to data only. Leave them out")
        text = run_card(options.data)
        return CommandResult({"run": options.data, "card": text}, lines(text))
    from hopstate.data.summary import summarize

    record = load(options.data, options.kind, read)
    summary = summarize(record)
    if options.plot:
        from hopstate.data.summary import plot_summary

        plot_summary(record, options.plot)
    plots = [f"plots: {options.plot}"] if options.plot else []
    return CommandResult({"data": options.data, "card": summary, "plot": options.plot}, lines(summary.text(), *plots))


def load(source: str, kind: str, read: Mapping[str, Any] | None = None) -> Graph | GraphSet | EventStream:
    """Return the record of a name or file; "auto" takes a table with sources, targets and times as events.

    A TU collection's folder or text file is a set of graphs, and so is the address of one.
    """
    from hopstate.data.readers.read_events import read_events
    from hopstate.data.readers.read_graph import is_set, read_graph, read_graph_set
    from hopstate.data.store import is_event_folder

    read = dict(read or {})
    if find_dataset(source) is not None and not read:
        return load_dataset(source)
    graphs, events = ({f.name for f in fields(options)} for options in (ReadOptions, EventReadOptions))
    if kind == "auto":
        _check_option_names(read, sorted(graphs | events))
        if read.keys() - graphs:  # what is wrong with them is said of a stream
            kind = "events"
        elif read.keys() - events:
            kind = "graph"
    if kind == "auto" and is_event_folder(Path(source)):  # what is wrong with it is said of a stream
        kind = "events"
    if kind == "graphs" or (kind == "auto" and is_set(source)):
        return read_graph_set(
            source, **graph_set_kwargs(config_from(get_method("gin-graphs"), _given(source, read)).read)
        )
    if kind == "events":
        return read_events(source, **_options("recency", source, read))
    if kind == "auto" and not source.endswith((".npz", ".pt")):
        with contextlib.suppress(FormatError, *((ConfigError,) if read else ())):
            return read_events(source, **_options("recency", source, read))
    return read_graph(source, **_options("mlp", source, read))


def _check_option_names(read: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ConfigError for an option of reading that neither graphs nor events have; the nearest of both is named."""
    for name in read:
        if name not in names:
            message = f"unrecognized arguments: --read.{name}"
            raise ConfigError(f"{message}{hint(message, [f'read.{known}' for known in names])}")


def _options(method: str, source: str, read: Mapping[str, Any]) -> dict[str, Any]:
    """Return reading options in their own types, as `fit` has them for a method that reads such data."""
    return reader_kwargs(config_from(get_method(method), _given(source, read)).read)


def _given(source: str, read: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": source, **({"read": dict(read)} if read else {})}
