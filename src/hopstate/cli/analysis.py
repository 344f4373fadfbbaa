"""`hopstate explain`: why a pair got its score, or a node its prediction."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

from hopstate.cli.commands import CommandParser, CommandResult, rows_of
from hopstate.errors import ConfigError


def run(argv: list[str]) -> CommandResult:
    """Explain a score or a prediction."""
    description = """Attribute a pair's score to the latest events of both endpoints, by leaving out one at a time, and
    to features (pair-trees) or members (ensemble). Or attribute a node's prediction to features, nodes and edges
    (gradient times input)."""
    parser = CommandParser(prog="hopstate explain", description=description, allow_abbrev=False)
    parser.add_run("--data", "--device", "--method")
    target_group = parser.add_mutually_exclusive_group(required=True)
    target_group.add_argument("--node", help="your id of a node, for a run on a graph")
    target_group.add_argument("--pair", help='your ids of source and target: alice,bob or "Smith, A",bob')
    time_help = "use only events strictly before it: a number, or a date (default: just after the last known event)"
    parser.add_argument("--time", help=time_help)
    parser.add_argument("--relation", metavar="NAME", help="relation of the pair, if events have relations")
    parser.add_argument("--out", help="write the table: .csv, .csv.gz, .tsv or .parquet")
    parser.add_argument("--plot", help="draw the timeline: .png, .pdf or .svg")
    parser.add_argument("--top", type=int, default=10, help="rows to print, largest first (default: 10)")
    o = parser.parse_args(argv[1:])
    if o.top < 0:
        raise ConfigError(f"--top is a number of rows, at least 0; got {o.top}")
    where = {name: getattr(o, name) for name in ("data", "out", "plot", "device")}
    if o.node is not None:
        return _explain_node(o.run, o.node, o.top, where)
    pair = next(csv.reader([o.pair], skipinitialspace=True), [])
    if len(pair) != 2:
        raise ConfigError(f"--pair takes two ids joined by a comma, e.g. alice,bob; got {o.pair!r}")
    from hopstate.runs.explain import explain, features_path

    explanation: Any = explain(o.run, pair[0], pair[1], o.time, relation=o.relation, **where)
    features = [str(features_path(o.out))] if o.out and len(explanation.features) else []
    written = [path for path in (o.out, *features, o.plot) if path]
    record = {"source": explanation.source, "target": explanation.target, "time": explanation.when, "written": written}
    record |= {"score": explanation.score, "probability": explanation.probability, "logit": explanation.logit}
    record |= {"rows": rows_of(explanation.table), "features": rows_of(explanation.features)}

    def show() -> None:
        _show(explanation, o.top)
        _show_written(written)

    return CommandResult(record, show)


def _explain_node(run: str, node: str, top: int, where: dict[str, Any]) -> CommandResult:
    from hopstate.runs.explain import explain, node_paths

    explanation: Any = explain(run, node=node, **where)
    written = [str(path) for path in node_paths(where["out"])] if where["out"] else []
    parts = {name: getattr(explanation, name) for name in ("features", "nodes", "edges")}
    record = {"node": node, "output": explanation.output, "logit": explanation.logit, "written": written}

    def show() -> None:
        from hopstate.io.output import screen

        screen().print(f"node {node}: {explanation.output!r}, logit {explanation.logit:+.4f}; gradient times input")
        for name, rows in parts.items():
            _show_rows(name, rows, top)
        _show_written(written)

    return CommandResult(record | {name: rows_of(rows) for name, rows in parts.items()}, show)


def _show_written(written: Sequence[str]) -> None:
    for path in written:
        print(f"written: {path}")


def _show(explanation: Any, top: int) -> None:
    from hopstate.io.output import screen
    from hopstate.runs.explain import feature_text

    pair = f"{explanation.source} - {explanation.target} at {explanation.when}"
    screen().print(f"{pair}: score {explanation.score:.4f}, logit {explanation.logit:+.4f}")
    rows = explanation.table
    rows = rows.reindex(rows.contribution.abs().sort_values(ascending=False, kind="stable").index)
    rows = rows.assign(end=rows.end.map({"source": explanation.source, "target": explanation.target}).astype(str))
    _show_rows("events: what the logit loses without each", rows, top)
    if len(explanation.features):
        features = explanation.features
        texts = [
            feature_text(name, value, explanation.time_unit)
            for name, value in zip(features.feature, features.value, strict=True)
        ]
        _show_rows("features: what each adds to the logit", features.assign(value=texts), top)


def _show_rows(title: str, rows: Any, top: int) -> None:
    """Print the first rows of a table, largest contributions first."""
    from rich.table import Table

    from hopstate.io.output import screen

    if not len(rows):
        screen().print(f"{title}: none")
        return
    table = Table(*rows.columns, title=title if len(rows) <= top else f"{title}; {top} of {len(rows)}")
    for row in rows.head(top).itertuples(index=False):
        table.add_row(*(_cell(cell) for cell in row))
    screen().print(table)


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "never" if value != value else f"{value:+.4f}"
