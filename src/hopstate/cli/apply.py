"""`hopstate evaluate RUN` and `hopstate predict RUN`: a trained run on its own data or on others."""

from __future__ import annotations

import argparse
import json

from hopstate import api


def run(argv: list[str]) -> int:
    """Run the command."""
    return _evaluate(argv[1:]) if argv[0] == "evaluate" else _predict(argv[1:])


def _parser(command: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"hopstate {command}", description=what)
    parser.add_argument("run", help="run folder that `hopstate fit` left")
    parser.add_argument("--data", default=None, help="other data than it was trained on: a file, folder or name")
    parser.add_argument("--device", default=None, help="auto, cpu, cuda, ...; by default the run's own setting")
    return parser


def _evaluate(argv: list[str]) -> int:
    parser = _parser("evaluate", "Print the metrics of a trained run as JSON.")
    parser.add_argument("--split", default="test", help="train, val, test or all (default: test)")
    options = parser.parse_args(argv)
    metrics = api.evaluate(options.run, data=options.data, split=options.split, device=options.device)
    print(json.dumps({"split": options.split, **metrics}, indent=1))
    return 0


def _predict(argv: list[str]) -> int:
    parser = _parser("predict", "Write predictions with your own ids as CSV or Parquet.")
    parser.add_argument("--split", default="all", help="train, val, test or all (default: all)")
    parser.add_argument("--out", required=True, help="file to write: .csv, .csv.gz, .tsv or .parquet")
    options = parser.parse_args(argv)
    table = api.predict(options.run, data=options.data, split=options.split, out=options.out, device=options.device)
    print(f"{len(table):,} predictions written to {options.out}")
    return 0
