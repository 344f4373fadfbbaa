"""`hopstate explain`: what a trained run's score or prediction is made of."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

from hopstate.cli.answer import Answer, rows_of
from hopstate.cli.options import Options
from hopstate.errors import ConfigError
from hopstate.io.output import RAW


def run(argv: list[str]) -> Answer:
    """Explain a score or a prediction."""
    what = """What each past event (dyg-mamba), feature (pair-trees) or member (ensemble) added to a pair's score, as a
    table and a chart; or what a node's prediction owes to features, other nodes and edges (gradient times input)."""
    parser = Options(prog="hopstate explain", description=what, allow_abbrev=False)
    parser.add_argument("run", help="run folder that `hopstate fit` left")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--node", help="your id of a node, of a run on a graph")
    asked.add_argument("--pair", help='your ids of source and target: alice,bob or "Smith, A",bob')
    when = "only events strictly before it are seen: a number, or a date (default: just after the last event)"
    parser.add_argument("--time", default=None, help=when)
    parser.add_argument("--data", default=None, help="other events than it was trained on: a file, folder or name")
    parser.add_argument("--out", default=None, help="write the table: .csv, .csv.gz, .tsv or .parquet")
    parser.add_argument("--plot", default=None, help="draw the timeline: .png, .pdf or .svg")
    parser.add_argument("--raw", action="store_true", help=RAW)
    parser.add_argument("--top", type=int, default=10, help="rows to print, largest first (default: 10)")
    parser.add_argument("--device", default=None, help="auto, cpu, cuda, ...; by default the run's own setting")
    parser.add_argument("--method", default=None, help="module:NAME, where the run's method is code of your own")
    o = parser.parse_args(argv[1:])
    if o.top < 0:
        raise ConfigError(f"--top is a number of rows, at least 0; got {o.top}")
    where = {"data": o.data, "out": o.out, "plot": o.plot, "device": o.device, "method": o.method, "raw": o.raw}
    if o.node is not None:
        return _explain_node(o.run, o.node, o.top, where)
    ends = next(csv.reader([o.pair], skipinitialspace=True), [])
    if len(ends) != 2:
        raise ConfigError(f"--pair takes two ids joined by a comma, e.g. alice,bob; got {o.pair!r}")
    from hopstate.runs.analysis import questions
    from hopstate.runs.analysis.explain import Explanation

    found: Any = questions.explain(o.run, ends[0], ends[1], o.time, **where)
    told = found.features if isinstance(found, Explanation) else None
    more = [str(questions.features_path(o.out))] if o.out and told is not None and len(told) else []
    written = [path for path in (o.out, *more, o.plot) if path]
    record = {"source": found.source, "target": found.target, "time": found.when, "written": written}
    record |= {"probability": found.probability, "logit": found.logit, "rest": found.rest, "rows": rows_of(found.table)}
    record |= {"features": None if told is None else rows_of(told), "unit": found.unit}

    def show() -> None:
        (_show_features if told is None else _show)(found, o.top)
        if found.unit:
            print(found.unit)
        _show_written(written)

    return Answer(record, show)


def _explain_node(run: str, node: str, top: int, where: dict[str, Any]) -> Answer:
    from hopstate.runs.analysis import questions

    found: Any = questions.explain(run, node=node, **where)
    out = where["out"]
    written = [str(path) for path in (out, *questions.parts_paths(out))] if out else []
    parts = {name: getattr(found, name) for name in ("features", "nodes", "edges")}
    record = {"node": node, "output": found.output, "logit": found.logit, "written": written}

    def show() -> None:
        from rich.table import Table

        from hopstate.io.output import screen

        screen().print(f"node {node}: {found.output!r}, logit {found.logit:+.4f}; gradient times input", markup=False)
        for name, rows in parts.items():
            if not len(rows):
                screen().print(f"{name}: none that counts")
                continue
            table = Table(*rows.columns, title=name if len(rows) <= top else f"{name}: {top} of {len(rows)}")
            for row in rows.head(top).itertuples(index=False):
                table.add_row(*(f"{cell:+.4f}" if isinstance(cell, float) else str(cell) for cell in row))
            screen().print(table)
        _show_written(written)

    return Answer(record | {name: rows_of(rows) for name, rows in parts.items()}, show)


def _show_written(written: Sequence[str]) -> None:
    for path in written:
        print(f"written: {path}")


def _show(found: Any, top: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    from hopstate.io.output import screen

    rows, told = found.table, found.features
    rows = rows.reindex(rows.contribution.abs().sort_values(ascending=False, kind="stable").index)
    title = f"{found.source} - {found.target} at {found.when}: score {found.probability:.4f}"
    table = Table(title=f"{title}, logit {found.logit:+.4f}")
    for name in ("event, or feature of the pair", "time", "number", "adds"):
        table.add_column(name, justify="left" if "event" in name else "right")
    for row in rows.head(top).to_dict("records"):
        own = row["event_id"] < 0
        what = f"{row['end']} itself" if own else f"{row['end']} met {row['neighbor']}"
        number = "" if own else str(row["event_id"])
        table.add_row(escape(what), "" if own else str(row["t"]), number, f"{row['contribution']:+.4f}")
    if len(rows) > top:
        table.add_row(f"{len(rows) - top} more events", "", "", f"{rows.contribution[top:].sum():+.4f}")
    if len(told):
        table.add_section()
    for row in told.head(top).to_dict("records"):
        table.add_row(f"{row['feature']}: {_value(row)}", "", "", f"{row['contribution']:+.4f}")
    if len(told) > top:
        table.add_row(f"{len(told) - top} more features", "", "", f"{told.contribution[top:].sum():+.4f}")
    table.add_section()
    table.add_row("neither", "", "", f"{found.rest - told.contribution.sum():+.4f}")
    table.add_row("logit", "", "", f"{found.logit:+.4f}")
    screen().print(table)


def _value(row: dict[str, Any]) -> str:
    return "never" if row["value"] != row["value"] else f"{row['value']:.4g}"


def _show_features(found: Any, top: int) -> None:
    from rich.table import Table

    from hopstate.io.output import screen

    table = Table(title=f"{found.source} - {found.target} at {found.when}: score {found.probability:.4f}")
    for name in ("feature", "value", "adds to the logit"):
        table.add_column(name, justify="left" if name == "feature" else "right")
    for row in found.table.head(top).to_dict("records"):
        table.add_row(row["feature"], _value(row), f"{row['contribution']:+.4f}")
    left = found.table.contribution[top:]
    if len(left):
        table.add_row(f"{len(left)} more", "", f"{left.sum():+.4f}")
    table.add_row("no feature", "", f"{found.rest:+.4f}")
    table.add_section()
    table.add_row("logit", "", f"{found.logit:+.4f}")
    screen().print(table)
