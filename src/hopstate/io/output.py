"""Output: tables and plots as files, the console, and the progress of long loops."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO
from unicodedata import category

from hopstate.errors import FormatError
from hopstate.io.files import replace_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.text import Text

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ProgressCallback = Callable[[int, int], None]
_LISTENER: ContextVar[ProgressCallback | None] = ContextVar("listener", default=None)


# ---- tables ----------------------------------------------------------------------------------------------------
def write_table(table: pd.DataFrame, path: Path, *, csv_escape: bool = True) -> None:
    """Write a table as .csv, .csv.gz, .tsv, .parquet or .jsonl.

    csv_escape puts an apostrophe before texts of .csv and .tsv that a spreadsheet would run as a formula.
    """
    name = check_table_path(path)

    def write(part: Path) -> None:
        if name.endswith(".parquet"):
            table.to_parquet(part, index=False)
        elif name.endswith(".jsonl"):
            whole = table.astype(object).where(table.notna(), None)  # to_json would round numbers
            rows = (json.dumps(row, ensure_ascii=False, default=str) for row in whole.to_dict("records"))
            part.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        else:
            compression: Any = "gzip" if name.endswith(".gz") else None
            separator = "\t" if name.endswith(".tsv") else ","
            cells = without_formulas(table) if csv_escape else table
            cells.to_csv(part, sep=separator, index=False, compression=compression, lineterminator="\n")

    replace_file(path, write)


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which no text, nor name of a column, is a formula to a spreadsheet."""
    texts = {name: column for name, column in table.items() if column.dtype.kind not in "biufMm"}
    changed = table.assign(**{str(name): column.map(_escaped) for name, column in texts.items()}) if texts else table
    return changed.rename(columns=_escaped)


def _escaped(cell: Any) -> Any:
    """Return a text that a spreadsheet would run as a formula with an apostrophe in front, anything else as it is."""
    if not isinstance(cell, str) or not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return cell
    return cell if NUMBER.fullmatch(cell) else f"'{cell}"


def check_table_path(path: str | Path) -> str:
    """Return a file's name in lower case; raise FormatError if its extension is not of a table."""
    name = Path(path).name.lower()
    if not name.endswith((".csv", ".csv.gz", ".tsv", ".parquet", ".jsonl")):
        raise FormatError(f"cannot write a table as {Path(path).name!r}; use .csv, .csv.gz, .tsv, .parquet or .jsonl")
    return name


# ---- the terminal ----------------------------------------------------------------------------------------------
def printable(text: str) -> str:
    r"""Escape control characters and characters that reorder a line.

    >>> printable("a\x1b]0;title\x07")
    'a\\x1b]0;title\\x07'
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    plain = (c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else repr(c)[1:-1] for c in text)
    return "".join(plain)


class PrintableStream:
    """A text stream that writes `printable` texts: names and texts of files are not commands to a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def wrapped(text: str, stream: TextIO) -> str:
    """Break lines between words at the width of a terminal; for a file or a pipe the text stays as it is."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    fill = partial(textwrap.fill, width=width, break_on_hyphens=False, break_long_words=False)
    indents = ((line, " " * (len(line) - len(line.lstrip(" -")))) for line in text.split("\n"))
    return "\n".join(fill(line, subsequent_indent=indent) for line, indent in indents)


def screen(*, stderr: bool = False) -> Console:
    """Return a console of the terminal's width that prints `printable` texts without markup.

    Output to a file or a pipe is never cut.
    """
    from rich.console import Console

    class Screen(Console):
        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(printable(text), **how)

    stream = sys.stderr if stderr else sys.stdout
    file = stream.stream if isinstance(stream, PrintableStream) else None  # rich's own colors are sequences
    width = None if stream.isatty() else 10_000
    return Screen(file=file, stderr=stderr, width=width, markup=False, emoji=False)


@contextmanager
def progress_callback(callback: ProgressCallback) -> Iterator[None]:
    """Make `report_progress` call callback(done, total) within the context."""
    token = _LISTENER.set(callback)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def report_progress(done: int, total: int) -> None:
    """Pass on how many rounds of a loop are done."""
    tell = _LISTENER.get()
    if tell is not None:
        tell(done, total)


# ---- figures ---------------------------------------------------------------------------------------------------
def draw_figure(path: str | Path, size: tuple[float, float], paint: Callable[[Figure], None]) -> None:
    """Write a plot of size inches, drawn by paint, as .png, .pdf or .svg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    kind = check_figure_path(path)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    paint(figure)
    replace_file(path, lambda part: figure.savefig(part, format=kind, dpi=120))


def check_figure_path(path: str | Path) -> str:
    """Return the extension of a file; raise FormatError if it is not an image format."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in ("png", "pdf", "svg"):
        raise FormatError(f"charts are written as .png, .pdf or .svg, not as {Path(path).name!r}")
    return kind


def format_number_ticks(
    axes: Axes, which: Literal["x", "y"] = "x", *, max_ticks: int = 5, integers: bool = False
) -> None:
    """Format ticks of a linear axis in full, with commas; use fewer ticks if numbers are long."""
    from matplotlib.ticker import MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        digits = len(f"{max(map(abs, axis.get_view_interval())):,.0f}")
        max_ticks = max(1, min(max_ticks, 48 // digits))
    axis.set_major_locator(MaxNLocator(nbins=max_ticks, steps=[1, 2, 2.5, 5, 10], min_n_ticks=2, integer=integers))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}")


def limit_date_ticks(axes: Axes, *, max_ticks: int = 6) -> None:
    """Write at most so many dates at the x axis."""
    from matplotlib.dates import AutoDateLocator

    axes.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=max_ticks))


def label_points(axes: Axes, labels: Sequence[tuple[float, float, str]]) -> None:
    """Write labels (x, y, text) next to points, the most important first; those without free space are left out."""
    taken: list[Any] = []
    frame = axes.get_window_extent()
    for x, y, text in labels:
        for right, up in ((True, True), (True, False), (False, True), (False, False)):
            label = axes.annotate(
                text, (x, y), (4 if right else -4, 3 if up else -3), textcoords="offset points",
                ha="left" if right else "right", va="bottom" if up else "top",
            )  # fmt: skip
            box = label.get_window_extent()
            if frame.x0 <= box.x0 and box.x1 <= frame.x1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()
