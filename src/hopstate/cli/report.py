"""`hopstate report RUN... --out report.html`: write runs and results as one self-contained HTML page."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from hopstate.cli.commands import CommandParser, CommandResult, lines


def run(argv: list[str]) -> CommandResult:
    """Write the page."""
    parser = CommandParser(prog="hopstate report", description=__doc__, allow_abbrev=False)
    parser.add_argument("runs", nargs="*", help="run folders, or folders that contain them")
    parser.add_argument("--results", default=None, help="results file of `hopstate reproduce`")
    parser.add_argument("--out", default="report.html", help="file to write (default: report.html)")
    parser.add_argument("--title", default="hopstate report", help="title of the page")
    parser.add_argument("--open", action="store_true", help="open the page in a browser, if there is a display")
    o = parser.parse_args(argv[1:])
    from hopstate.runs.report import write_report

    path = write_report(o.runs, o.out, results_file=o.results, title=o.title)
    if o.open:
        open_page(path)
    return CommandResult({"out": path}, lines(f"report: {path}"))


def print_verdicts(texts: Mapping[str, Sequence[str]]) -> None:
    """Print the sentences of each dataset, the first in bold."""
    from hopstate.io.output import screen

    console = screen()
    for data, sentences in texts.items():
        if len(texts) > 1:
            console.print(f"\n{data}", style="bold")
        console.print(sentences[0], style="bold", highlight=False)
        for sentence in sentences[1:]:
            console.print(sentence, highlight=False)


def open_page(path: Path) -> None:
    """Open a page in a browser if there is a display; without one, some browsers take over the terminal."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(path.resolve().as_uri())
