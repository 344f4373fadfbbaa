"""Combine finished link prediction runs by a logistic regression on their log-odds, fitted on validation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hopstate.cli.commands import CommandParser, CommandResult, split_group

if TYPE_CHECKING:
    from hopstate.runs.run import Run

EPILOG = """The result is a run: evaluate, predict, score, rank, explain, serve, report. Settings such as
--evaluation.strategies default to those of the first run.

Example: hopstate ensemble runs/dyg-mamba runs/pair-trees --out runs/both"""


def run(argv: list[str]) -> CommandResult:
    parser = CommandParser(prog="hopstate ensemble", description=__doc__, epilog=EPILOG)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a finished run")
    parser.add_argument("--out", help="new run folder (default: one under runs/)")
    parser.add_argument("--data", help="data of the runs, if they were moved (default: the path of the first run)")
    rest, evaluation = split_group(argv[1:], "--evaluation.")
    options = parser.parse_args(rest)
    from hopstate.runs.ensemble import ensemble

    settings = {f"evaluation.{key}": value for key, value in evaluation.items()}
    done = ensemble(options.runs, out=options.out, data=options.data, config=settings)
    record = {"method": done.method, "run": done.path, "metrics": done.metrics, "members": done.baselines}
    return CommandResult(record, partial(_print, done))


def _print(done: Run) -> None:
    from rich.table import Table

    from hopstate.cli.fit import print_warning
    from hopstate.evaluation.labels import cell
    from hopstate.io.output import screen

    print_warning(done, screen(), "Use the best run alone.")
    shown = {done.method: done.metrics["test"], **done.baselines}
    table = Table("test metric, shares in percent", *shown)
    for name in done.metrics["test"]:
        table.add_row(name, *(cell(name, own.get(name)) for own in shown.values()))
    screen().print(table)
    screen().print(f"run folder: {done.path}", soft_wrap=True)
