"""`hopstate evaluate RUN` and `hopstate predict RUN`: a trained run on its own data or on others."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hopstate import api


def run(argv: list[str]) -> int:
    """Run the command."""
    return _evaluate(argv[1:]) if argv[0] == "evaluate" else _predict(argv[1:])


def _parser(command: str, what: str) -> argparse.ArgumentParser:
    how = "How other data are read: --read.labels FILE, --read.features FILE, ... as in `hopstate fit METHOD --help`."
    parser = argparse.ArgumentParser(prog=f"hopstate {command}", description=what, epilog=how, allow_abbrev=False)
    parser.add_argument("run", help="run folder that `hopstate fit` left")
    parser.add_argument("--data", default=None, help="other data than it was trained on: a file, folder or name")
    parser.add_argument("--device", default=None, help="auto, cpu, cuda, ...; by default the run's own setting")
    return parser


def _parse(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the options, and those of --read.KEY VALUE or --read.KEY=VALUE as a dict."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--read.") else [word])]
    own, read = [], {}
    rest = iter(words)
    for word in rest:
        if word.startswith("--read."):
            read[word.removeprefix("--read.")] = next(rest, "")
        else:
            own.append(word)
    return parser.parse_args(own), read


def _evaluate(argv: list[str]) -> int:
    parser = _parser("evaluate", "Print the metrics of a trained run as JSON.")
    parser.add_argument("--split", default="test", help="train, val, test or all (default: test)")
    o, read = _parse(parser, argv)
    metrics = api.evaluate(o.run, data=o.data, split=o.split, read=read, device=o.device)
    print(json.dumps({"split": o.split, **metrics}, indent=1))
    return 0


def _predict(argv: list[str]) -> int:
    parser = _parser("predict", "Write predictions with your own ids as CSV or Parquet.")
    parser.add_argument("--split", default="all", help="train, val, test or all (default: all)")
    parser.add_argument("--out", required=True, help="file to write: .csv, .csv.gz, .tsv or .parquet")
    o, read = _parse(parser, argv)
    table = api.predict(o.run, data=o.data, split=o.split, out=o.out, read=read, device=o.device)
    print(f"{len(table):,} predictions written to {o.out}")
    return 0
