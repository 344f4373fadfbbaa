"""`hopstate compare METHOD,METHOD --data DATA`: train methods over splits and seeds and print one table."""

from __future__ import annotations

import math
from functools import partial

from hopstate.cli.commands import INTERRUPTED, CommandParser, CommandResult, command_options, say
from hopstate.errors import ConfigError
from hopstate.io.files import locked
from hopstate.runs.compare import Comparison, Row

EPILOG = """Settings after -- apply to every method that has them, e.g. -- --loop.epochs 50. A method's name in front
restricts a setting to that method, e.g. -- --nagphormer.model.dim 64."""


def run(argv: list[str]) -> CommandResult:
    """Train what is not trained yet; status 130 if Ctrl-C stopped it."""
    words, run_settings = (argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv[1:], [])
    parser = CommandParser(prog="hopstate compare", description=__doc__, epilog=EPILOG)
    parser.add_argument("methods", help="names, separated by commas")
    parser.add_argument("--data", required=True, help="a file, a folder, or the name of a dataset")
    parser.add_argument("--splits", default="0", help="split numbers of graphs, e.g. 0,1,2 or 0-9 (default: 0)")
    parser.add_argument("--seeds", default="0", help="numbers of training seeds, e.g. 0-4 for five runs (default: 0)")
    parser.add_argument("--out", help="folder for all runs and the table; an existing one is continued")
    parser.add_argument("--device", help="device: auto, cpu, cuda or cuda:N (loop.device)")
    options = command_options(parser, words)
    run_settings = run_settings if options.device is None else [*run_settings, f"--loop.device={options.device}"]
    from hopstate.cli.report import print_verdicts
    from hopstate.runs.report import collect, verdicts
    from hopstate.runs.run import output_folder

    comparison = Comparison(
        options.methods.split(","), numbers(options.splits), numbers(options.seeds), options.data, run_settings
    )
    with output_folder(options.out, "compare", options.data) as folder, locked(folder):
        rows = comparison.run(folder)
    failed = comparison.failed
    record = {"data": options.data, "folder": folder, "interrupted": rows is None, "methods": rows or []}
    record |= {"failed": failed}
    if rows is None:
        again = f"stopped; everything is saved. Continue with the same command and --out {folder}"
        return CommandResult(record, partial(say, again), INTERRUPTED)

    def print_all() -> None:
        print_verdicts(verdicts(collect([folder])))
        show(rows, options.data)
        for failure in failed:
            print(f"{failure['method']}, split {failure['split']}, seed {failure['seed']} failed: {failure['error']}")
        print(f"runs and table.json: {folder}")

    return CommandResult(record, print_all)


def numbers(text: str) -> list[int]:
    """Return the whole numbers of a list such as 0,2,5-7, each once.

    >>> numbers("0,2,5-7")
    [0, 2, 5, 6, 7]
    """
    values: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            span = range(int(first), int(last or first) + 1)
            if not span or len(span) > 100_000:
                raise ValueError(part)
            values += span
    except ValueError:
        raise ConfigError(f"{text!r} is not a list of rising numbers. Write, for example, 0,1,2 or 0-9") from None
    return list(dict.fromkeys(values))


def show(rows: list[Row], data: str) -> None:
    """Print a table for each metric, best mean first."""
    from rich.table import Table

    from hopstate.evaluation.labels import figure, is_error, metric_label, sort_key
    from hopstate.io.output import screen

    show_kinds(rows, data)
    rows = [row for row in rows if not row.get("baseline")]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        unit = "" if is_error(metric) else " in percent"
        group = [row for row in rows if row["metric"] == metric]
        events = next((count for row in group if (count := row.get("num_events", {}).get(metric))), None)
        of = "" if events is None else f", of {events:,} test events"
        label = metric_label(metric, next((p for row in group if (p := row.get("positive_class"))), None))
        table = Table(title=f"{data}: {label}{unit}{of}")
        for name in ("method", "test", "validation", "runs", "s/epoch", "parameters"):
            table.add_column(name, justify="left" if name == "method" else "right")
        for row in sorted(group, key=lambda row: sort_key(metric, row["test_mean"])):
            table.add_row(
                row["method"],
                *(figure(metric, row[f"{split}_mean"], row[f"{split}_std"]) for split in ("test", "val")),
                str(row["runs"]),
                f"{row['seconds_per_epoch']:.2f}",
                f"{row['parameters']:,}",
            )
        screen().print(table)
        _show_pairs(metric, group)


def show_kinds(rows: list[Row], data: str) -> None:
    """Print links by kind of negatives, baselines below; the last row has the number of events of each column."""
    from rich.table import Table

    from hopstate.evaluation.labels import baseline_label, figure, links_label, negatives_label
    from hopstate.io.output import screen
    from hopstate.runs.summary import small_sample_note

    metrics = list(dict.fromkeys(metric for row in rows for metric in row.get("kinds", {})))
    if len(metrics) < 2:
        return
    table = Table(title=f"{data}: AP (ranking: MRR) in percent, by kind of negatives")
    table.add_column("method")
    for metric in metrics:
        table.add_column(negatives_label(metric), justify="right")
    table.add_column("does not outperform")
    for row in rows:
        figures = [figure(m, *row["kinds"][m]) if m in row["kinds"] else "" for m in metrics]
        name = f"{baseline_label(row['method'])} (baseline)" if row.get("baseline") else row["method"]
        table.add_row(name, *figures, row["not_outperformed"])
    events = {m: count for row in rows for m, count in row.get("num_events", {}).items() if count is not None}
    if events:
        table.add_section()
        table.add_row("test events", *(f"{events[m]:,}" if m in events else "" for m in metrics), "")
    screen().print(table)
    new = {links_label(m): count for m, count in events.items() if m.startswith("new_")}  # the verdict has the others
    for label, count in new.items():
        note = small_sample_note(count, label)
        if note:
            print(note)


def _show_pairs(metric: str, rows: list[Row]) -> None:
    """Print how the method that validation puts first differs from each other one, run by run."""
    from hopstate.evaluation.labels import figure, sort_key
    from hopstate.runs.summary import paired

    if not all("values" in row for row in rows):
        return
    first, *others = sorted(rows, key=lambda row: sort_key(metric, row["val_mean"]))
    for other in others:
        for split, name in (("val", "validation"), ("test", "test")):
            values = [[math.nan if v is None else v for v in row["values"][split]] for row in (first, other)]
            test = paired(*values)
            if test is not None:
                p = "no spread" if test.p is None else f"paired t test p = {test.p:.2g}"
                text = figure(metric, test.difference, test.error)
                methods = f"{first['method']} - {other['method']}"
                print(f"{methods}, {name}: {text} (standard error), {test.runs} pairs, {p}")
