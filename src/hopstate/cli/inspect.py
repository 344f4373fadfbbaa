"""`hopstate inspect DATA`: what a stream or a graph holds, and what about it looks suspicious; plots on request."""

from __future__ import annotations

import argparse
import contextlib

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.datasets.registry import find_dataset, load_dataset
from hopstate.errors import FormatError


def run(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="hopstate inspect", description=__doc__)
    parser.add_argument("data", help="a file, a folder, or the name of a data set")
    parser.add_argument("--kind", choices=("auto", "graph", "events"), default="auto", help="what the file holds")
    parser.add_argument("--plot", default=None, metavar="FILE.png", help="also draw degrees, times and gaps")
    options = parser.parse_args(argv[1:])
    from hopstate.data.inspect import inspect_graph, inspect_stream

    record = load(options.data, options.kind)
    card = inspect_graph(record) if isinstance(record, Graph) else inspect_stream(record)
    print(card.text())
    if options.plot:
        from hopstate.data.card_plots import plot_card

        plot_card(record, options.plot)
        print(f"plots: {options.plot}")
    return 0


def load(source: str, kind: str) -> Graph | EventStream:
    """Return the record of a name or file; "auto" takes a table with sources, targets and times as events."""
    from hopstate.data.event_io import read_events
    from hopstate.data.io import read_graph

    if find_dataset(source) is not None:
        return load_dataset(source)
    if kind == "events":
        return read_events(source)
    if kind == "auto" and not source.endswith((".npz", ".pt")):
        with contextlib.suppress(FormatError):
            return read_events(source)
    return read_graph(source)
