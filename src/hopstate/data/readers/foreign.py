"""Files of other kinds: what they are, and the line that makes a list of edges of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hopstate.errors import FormatError
from hopstate.io.opening import names_in

_FRAME = "networkx.to_pandas_edgelist(networkx.read_{how}('{name}')).to_csv('edges.csv', index=False)"
_TEXTS = (  # name, what the beginning of the file matches, the line that converts it
    ("GraphML", r"\s*(<\?xml.*?\?>)?(\s|<!--.*?-->)*<graphml\b", _FRAME.replace("{how}", "graphml")),
    ("GEXF", r"\s*(<\?xml.*?\?>)?(\s|<!--.*?-->)*<gexf\b", _FRAME.replace("{how}", "gexf")),
    ("GML", r"\s*((creator|version|comment)\b.*\n\s*)*graph\s*\[", _FRAME.replace("{how}", "gml")),
    ("Pajek's format", r"\s*\*(vertices|network)\b", _FRAME.replace("{how}", "pajek")),
    (
        "DIMACS",
        r"(c\b.*\n)*p\s+[a-z]+\s+\d+\s+\d+",
        "pandas.DataFrame([line.split()[1:] for line in open('{name}') if line[:1] in 'ae']).to_csv('edges.csv', "
        "index=False, header=False)",
    ),
    ("a DOT file of Graphviz", r"\s*(strict\s+)?(di)?graph\b[^\n,;\t]*\{", "networkx.nx_pydot.read_dot('{name}')"),
)
_ADJLIST = "networkx.to_pandas_edgelist(networkx.read_adjlist('{name}')).to_csv('edges.csv', index=False)"


def check_foreign(path: Path) -> None:
    """Check that a zip archive is no workbook and no bundle of tables.

    Raises:
        FormatError: it is, or a single file that is no table; the message says what to do.
    """
    names = names_in(path)
    if "xl/workbook.xml" in names or "xl/workbook.bin" in names:
        raise FormatError(
            f"{path} is a workbook (Excel), not a table; save its sheet as CSV, or in Python: "
            f"pandas.read_excel('{path.name}').to_csv('{path.stem}.csv', index=False)"
        )
    tables = [name for name in names if name.lower().endswith((".csv", ".tsv", ".txt", ".parquet"))]
    if len(names) > 1 and tables:
        shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        raise FormatError(f"{path} is a zip of {len(names)} files ({shown}); unzip it and give one of them")
    if path.suffix.lower() == ".zip" and names and not any(name.endswith(".npy") for name in names):
        raise FormatError(f"{path} is a zip of {', '.join(names[:5])}; unzip it and give the file itself")


def check_foreign_text(path: Path, lines: Sequence[str]) -> None:
    """Check that a text is a table, by its first lines.

    Raises:
        FormatError: it is of a known other kind; the message has the line that converts it.
    """
    head = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines[:100])
    for kind, begins, how in _TEXTS:
        if re.match(begins, head, re.IGNORECASE | (re.DOTALL if "xml" in begins else 0)):
            raise FormatError(
                f"{path} is {kind}, not a table; write a list of edges, in Python: {how.replace('{name}', path.name)}"
            )
    if head.lstrip().lower().startswith("<?xml"):
        raise FormatError(f"{path} is XML, not a table; write it as CSV or Parquet")
    if head.lstrip().lower().startswith(("<html", "<!doctype")):
        raise FormatError(f"{path} is a web page, not a table; fetch the file itself")


def check_lengths(path: Path, rows: Sequence[Sequence[str]], skipped: int) -> None:
    """Check that the first lines of a text are of one length, but for a few.

    Args:
        path: the file.
        rows: their cells.
        skipped: lines before the first.

    Raises:
        FormatError: they are not, as in a list of neighbours.
    """
    lengths = [len(row) for row in rows]
    if len(rows) > 2 and 2 * lengths.count(max(set(lengths), key=lengths.count)) <= len(rows) and max(lengths) > 2:
        other = next(at for at, length in enumerate(lengths) if length != lengths[0])
        raise _unequal(path, skipped + other + 1, lengths[other], lengths[0])


@contextmanager
def ragged(path: Path) -> Iterator[None]:
    """Within it a line with more cells than those before becomes a FormatError that names it."""
    import pandas as pd

    try:
        yield
    except pd.errors.ParserError as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise
        raise _unequal(path, int(found[2]), int(found[3]), int(found[1])) from None


def _unequal(path: Path, line: int, found: int, expected: int) -> FormatError:
    return FormatError(
        f"{path} could not be read as a table: its lines are of unequal length, {found} cells in line {line}, "
        f"{expected} before it. If it is an adjacency list (a node and its neighbours), write a list of edges, in "
        "Python: "
        f"{_ADJLIST.replace('{name}', path.name)}"
    )


__all__ = ["check_foreign", "check_foreign_text", "check_lengths", "ragged"]
