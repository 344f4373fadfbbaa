"""Commands that use a trained run: `evaluate`, `predict`, `stream`, `score` and `rank`."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopstate.cli.commands import CommandParser, CommandResult, lines, rows_of, say, split_group
from hopstate.errors import ConfigError

_HOW = "Options for reading --data: --read.labels FILE, --read.features FILE, ... as in `hopstate fit METHOD --help`."


def run(argv: list[str]) -> CommandResult:
    commands = {"evaluate": _evaluate, "predict": _predict, "stream": _stream, "score": _score, "rank": _rank}
    return commands[argv[0]](argv[1:])


def _parser(command: str, what: str, *options: str, how: str = _HOW) -> CommandParser:
    parser = CommandParser(prog=f"hopstate {command}", description=what, epilog=how, allow_abbrev=False)
    parser.add_run(*options)
    return parser


def _parse(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the options, and those of --read.KEY VALUE or --read.KEY=VALUE as a dict."""
    own, read = split_group(argv, "--read.")
    return parser.parse_args(own), read


def _chosen(o: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return options by name, as arguments of a function."""
    return {name: getattr(o, name) for name in names}


def _evaluate(argv: list[str]) -> CommandResult:
    what = "Print the metrics of a run as JSON. For links, --evaluation.protocol and similar settings apply."
    parser = _parser("evaluate", what, "--data", "--device", "--method")
    parser.add_argument("--split", default="test", help="train, val, test or all (default: test)")
    cold_start = "evaluate other events without the history of the run's own events"
    parser.add_argument("--cold-start", action="store_true", help=cold_start)
    rest, evaluation = split_group(argv, "--evaluation.")
    o, read = _parse(parser, rest)
    from hopstate.runs.run import evaluate
    from hopstate.runs.summary import self_negative_note
    from hopstate.training.run_folder import plain

    options = _chosen(o, "data", "split", "cold_start", "device")
    metrics = evaluate(o.run, read=read, evaluation=evaluation, **options)
    remark = self_negative_note(metrics)
    if remark:
        say(remark)
    record = {"split": o.split, **metrics}
    return CommandResult(record, lines(json.dumps(plain(record), indent=1)))


def _predict(argv: list[str]) -> CommandResult:
    what = "Write predictions with your own ids as CSV or Parquet."
    parser = _parser("predict", what, "--data", "--device", "--method")
    parser.add_argument("--split", default="all", help="train, val, test or all (default: all)")
    parser.add_argument("--out", required=True, help="file to write: .csv, .csv.gz, .tsv or .parquet")
    cold_start = "score other events without the history of the run's own events (default: with it)"
    parser.add_argument("--cold-start", action="store_true", help=cold_start)
    o, read = _parse(parser, argv)
    from hopstate.runs.run import predict

    table = predict(o.run, read=read, **_chosen(o, "data", "split", "out", "cold_start", "device"))
    dropped = ", without the history of the run's own events (--cold-start)" if o.cold_start and o.data else ""
    return CommandResult(
        {"out": o.out, "rows": len(table)}, lines(f"{len(table):,} predictions written to {o.out}{dropped}")
    )


def _stream(argv: list[str]) -> CommandResult:
    what = "Score new events one by one, each before the model sees it, and save the state."
    how = "Tables are read with the options of the run; --read.time_column NAME, ... overrides them."
    parser = _parser("stream", what, "--data", "--device", "--method", "--state", "--ignore-state", how=how)
    parser.add_argument("--out", required=True, help="file of scores to write: .csv, .csv.gz, .tsv or .parquet")
    parser.add_argument("--save", help="folder for the state after the events (default: RUN/state)")
    parser.add_argument(
        "--allow-duplicates", action="store_true", help="accept a file that repeats the last events, as new events"
    )
    o, read = _parse(parser, argv)
    if o.data is None:
        raise ConfigError("events are missing. Give --data FILE")
    from hopstate.runs.run import score_stream

    options = _chosen(o, "state", "ignore_state", "save", "out", "allow_duplicates", "device")
    table = score_stream(o.run, o.data, read=read, **options)
    state = o.save or f"{o.run}/state"
    scored = int(table.iloc[:, -1].notna().sum())  # deletions and events left out are rows without a score
    text = f"{scored:,} events scored: {o.out}; state: {state}"
    return CommandResult({"out": o.out, "rows": len(table), "state": state}, lines(text))


# ---- score and rank -------------------------------------------------------------------------------------------
_EXIT_STATUS = "Exit status: 0 success, 1 error in the data or the run, 2 wrong usage, 130 interrupted."


def _query_parser(command: str, what: str) -> CommandParser:
    how = f"Tables are read with the options of the run; --read.source_column NAME, ... overrides them. {_EXIT_STATUS}"
    return _parser(command, what, how=how)


def _add_query_options(parser: CommandParser) -> None:
    when = "a number in the time unit of the run, or a date (default: just after the last known event)"
    parser.add_argument("--time", help=when)
    parser.add_argument("--relation", metavar="NAME", help="relation of the queried events, if events have relations")
    more = "further events to add to the history first, in order of time; can be repeated"
    parser.add_argument("--events", action="append", metavar="FILE", help=more)
    parser.add_argument(
        "--explain", action="store_true", help="add the events or features that contributed most to each score"
    )
    parser.add_argument("--out", help="file to write: .csv, .csv.gz, .tsv, .parquet or .jsonl")
    parser.add_shared("--device", "--method", "--state", "--ignore-state")


def _score(argv: list[str]) -> CommandResult:
    parser = _query_parser(
        "score", "Print the probability of each pair, as if its event came next. The state does not change."
    )
    pairs = "a table with columns source, target and optionally time, or one pair: alice,bob"
    parser.add_argument("--pairs", required=True, help=pairs)
    _add_query_options(parser)
    o, read = _parse(parser, argv)
    from hopstate.runs.queries import score

    table = score(o.run, _pairs(o.pairs), o.time, **_query_options(o, read))
    return _answer(table, o.out, "pairs scored")


def _rank(argv: list[str]) -> CommandResult:
    parser = _query_parser("rank", "Rank the most likely next destinations of a node. The state does not change.")
    parser.add_argument(
        "--source",
        action="append",
        metavar="ID",
        help="node to rank destinations for; can be repeated; required without --source-file",
    )
    parser.add_argument("--source-file", metavar="FILE", help="file with a column of sources")
    parser.add_argument(
        "--top", type=int, default=10, help="number of candidates to print for each source (default: 10)"
    )
    pool = "file with a column of ids (default: all destinations, or all nodes if a node can be source and destination)"
    parser.add_argument("--candidates", metavar="FILE", help=pool)
    exclude = "exclude the source itself and all nodes it interacted with before the time, in either direction"
    parser.add_argument("--exclude-seen", action="store_true", help=exclude)
    predict = "target (default): rank candidates; relation: rank the relations of each source with each candidate"
    parser.add_argument("--predict", choices=("target", "relation"), default="target", help=predict)
    prefilter = "score only the N best candidates by recency, common neighbors and popularity"
    parser.add_argument("--prefilter", type=int, metavar="N", help=prefilter)
    _add_query_options(parser)
    o, read = _parse(parser, argv)
    if (o.source is None) == (o.source_file is None):
        raise ConfigError("a source is missing. Give --source ID, or --source-file FILE")
    sources: Any = Path(o.source_file) if o.source_file is not None else o.source
    chosen = _chosen(o, "top", "time", "exclude_seen", "prefilter", "predict")
    chosen["candidates"] = None if o.candidates is None else Path(o.candidates)
    from hopstate.runs.queries import rank

    table = rank(o.run, sources, **chosen, **_query_options(o, read))
    recall = table.attrs.get("prefilter_recall")
    if recall is None:
        return _answer(table, o.out, "candidates ranked")
    text = f"prefilter of {o.prefilter}: keeps the destinations of {recall:.1%} of validation events"
    return _answer(table, o.out, "candidates ranked", text, {"candidates": o.prefilter, "recall": recall})


def _query_options(o: argparse.Namespace, read: dict[str, Any]) -> dict[str, Any]:
    chosen = _chosen(o, "relation", "events", "explain", "out", "state", "ignore_state", "device")
    return chosen | {"read": read}


def _pairs(given: str) -> Any:
    import csv

    from hopstate.errors import MissingFileError

    try:
        ends = next(csv.reader([given], skipinitialspace=True), [])
    except csv.Error as error:
        raise ConfigError(f"--pairs {given!r} is not a pair ({error}). Write it on one line, alice,bob") from None
    if len(ends) == 2 and not Path(given).expanduser().exists():
        return [tuple(ends)]
    if not Path(given).expanduser().exists():
        raise MissingFileError(f"no file at {given}; --pairs is a table, or one pair written out: alice,bob")
    return given


def _answer(
    table: Any, out: str | None, what: str, more: str = "", prefilter: Mapping[str, Any] | None = None
) -> CommandResult:
    record = {"count": len(table), "probability": table.attrs["probability"], "out": out, "prefilter": prefilter}
    record["rows"] = rows_of(table) if out is None else None

    def show() -> None:
        if out is None:
            show_queries(table)
        else:
            print(f"{len(table):,} {what}, written to {out}")
        if more:
            print(more)

    return CommandResult(record, show)


def show_queries(table: Any) -> None:
    """Print a table of `score` or `rank`: what all rows share above it, and reasons below each row."""
    from hopstate.io.output import screen

    console = screen()
    constant = (name for name in ("src", "relation", "t") if name in table and table[name].nunique() == 1)
    shared = list(constant) if len(table) > 1 else []
    if shared:
        console.print(", ".join(f"{name} {table[name].iloc[0]}" for name in shared), highlight=False)
    shown = table.drop(columns=[*shared, "why"], errors="ignore")
    columns = [_aligned(name, shown[name]) for name in shown.columns]
    reasons = ["", *table["why"]] if "why" in table.columns else [""] * (len(table) + 1)
    for cells, reason in zip(zip(*columns, strict=True), reasons, strict=True):
        console.print("  ".join(cells).rstrip(), highlight=False)
        if reason:
            text = textwrap.fill(reason, console.width - 4, break_on_hyphens=False)
            console.print(textwrap.indent(text, "    "), soft_wrap=True, highlight=False)
    console.print(f"probability: {table.attrs['probability']}", highlight=False)


def _aligned(name: str, column: Any) -> list[str]:
    """Return the name and the values of a column as texts of one width, numbers to the right."""
    cells = [name, *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in column)]
    width = max(map(len, cells))
    return [cell.rjust(width) if column.dtype.kind in "iuf" else cell.ljust(width) for cell in cells]
