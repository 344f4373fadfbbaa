"""`hopstate evaluate RUN`, `predict RUN`: a trained run on its own data or on others; `stream RUN`: on what follows."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from hopstate.cli.commands import Answer, Options, lines, plain
from hopstate.errors import ConfigError
from hopstate.io.output import RAW


def run(argv: list[str]) -> Answer:
    return {"evaluate": _evaluate, "predict": _predict, "stream": _stream}[argv[0]](argv[1:])


def _parser(command: str, what: str) -> argparse.ArgumentParser:
    how = "How other data are read: --read.labels FILE, --read.features FILE, ... as in `hopstate fit METHOD --help`."
    parser = Options(prog=f"hopstate {command}", description=what, epilog=how, allow_abbrev=False)
    parser.add_argument("run", help="run folder that `hopstate fit` left")
    parser.add_argument("--data", default=None, help="other data than it was trained on: a file, folder or name")
    parser.add_argument("--device", default=None, help="auto, cpu, cuda, ...; by default the run's own setting")
    parser.add_argument("--method", default=None, help="module:NAME, where the run's method is code of your own")
    return parser


def _parse(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the options, and those of --read.KEY VALUE or --read.KEY=VALUE as a dict."""
    own, read = grouped(argv, "--read.")
    return parser.parse_args(own), read


def grouped(argv: list[str], start: str) -> tuple[list[str], dict[str, Any]]:
    """Return the words without those of --GROUP.KEY VALUE or --GROUP.KEY=VALUE, and these as a dict."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith(start) else [word])]
    own, found = [], {}
    rest = iter(words)
    for word in rest:
        if word.startswith(start):
            found[word.removeprefix(start)] = next(rest, "")
        else:
            own.append(word)
    return own, found


def _evaluate(argv: list[str]) -> Answer:
    what = "Print the metrics of a trained run as JSON. Link evaluation may differ: --evaluation.protocol pooled, ..."
    parser = _parser("evaluate", what)
    parser.add_argument("--split", default="test", help="train, val, test or all (default: test)")
    fresh = "other events are a stream of their own: nothing that the run has seen is known"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    rest, evaluation = grouped(argv, "--evaluation.")
    o, read = _parse(parser, rest)
    from hopstate.runs.run import evaluate
    from hopstate.runs.summary import own_event_note

    settings = {"read": read, "evaluation": evaluation, "fresh": o.fresh, "device": o.device, "method": o.method}
    metrics = evaluate(o.run, data=o.data, split=o.split, **settings)
    remark = own_event_note(metrics)
    if remark:
        print(remark, file=sys.stderr)
    record = {"split": o.split, **metrics}
    return Answer(record, lines(json.dumps(plain(record), indent=1)))


def _predict(argv: list[str]) -> Answer:
    parser = _parser("predict", "Write predictions with your own ids as CSV or Parquet.")
    parser.add_argument("--split", default="all", help="train, val, test or all (default: all)")
    parser.add_argument("--out", required=True, help="file to write: .csv, .csv.gz, .tsv or .parquet")
    fresh = "score other events as a stream of their own; by default they follow the run's own, which are their past"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    parser.add_argument("--raw", action="store_true", help=RAW)
    o, read = _parse(parser, argv)
    from hopstate.runs.run import predict

    settings = {"read": read, "fresh": o.fresh, "device": o.device, "method": o.method, "raw": o.raw}
    table = predict(o.run, data=o.data, split=o.split, out=o.out, **settings)
    dropped = "; nothing that the run had seen was known to them (--fresh)" if o.fresh and o.data else ""
    return Answer({"out": o.out, "rows": len(table)}, lines(f"{len(table):,} predictions written to {o.out}{dropped}"))


def _stream(argv: list[str]) -> Answer:
    parser = _parser(
        "stream", "Let a temporal model go on over new events: score each before it is seen, keep the state."
    )
    parser.epilog = "New tables are read as the run's own; --read.time_column NAME, ... where they differ."
    parser.add_argument("--out", required=True, help="file of scores to write: .csv, .csv.gz, .tsv or .parquet")
    parser.add_argument("--raw", action="store_true", help=RAW)
    parser.add_argument("--state", default=None, help="folder of the state to go on from (default: RUN/state, if any)")
    parser.add_argument("--fresh", action="store_true", help="go on from the end of the run's own data")
    parser.add_argument("--save", default=None, help="folder for the state after the events (default: RUN/state)")
    parser.add_argument("--again", action="store_true", help="the very events taken last happened once more")
    o, read = _parse(parser, argv)
    if o.data is None:
        raise ConfigError("which events? give --data FILE")
    from hopstate.runs.run import score_stream

    options = {"state": o.state, "fresh": o.fresh, "save": o.save, "out": o.out, "again": o.again}
    options |= {"method": o.method, "raw": o.raw}
    table = score_stream(o.run, o.data, read=read, device=o.device, **options)
    state = o.save or f"{o.run}/state"
    scored = int(table.iloc[:, -1].notna().sum())  # deletions and events left out are rows without a score
    told = f"{scored:,} events scored into {o.out}; state kept in {state}"
    return Answer({"out": o.out, "rows": len(table), "state": state}, lines(told))
