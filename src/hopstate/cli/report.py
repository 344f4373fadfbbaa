"""`hopstate report RUN... --out report.html`: runs and results as one HTML page that needs nothing else."""

from __future__ import annotations

import argparse

from hopstate.report import write_report


def run(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="hopstate report", description=__doc__, allow_abbrev=False)
    parser.add_argument("runs", nargs="*", help="run folders, folders of them, CSV tables of hopstate explain")
    parser.add_argument("--results", default=None, help="results file of hopstate reproduce")
    parser.add_argument("--out", default="report.html", help="the page (default: report.html)")
    parser.add_argument("--title", default="hopstate report", help="title of the page")
    o = parser.parse_args(argv[1:])
    print(f"report: {write_report(o.runs, o.out, results_file=o.results, title=o.title)}")
    return 0
