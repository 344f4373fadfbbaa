"""Tables in text files: separator, line of names and first row, found from the first lines."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import DataError, FormatError, HopstateError
from hopstate.io.opening import ZIP, bounded, names_in, open_regular

if TYPE_CHECKING:
    import pandas as pd

SPACES = r"\s+"  # the separator that is any white space
SAMPLE = 1000  # lines from which the layout is found
LONGEST = 1 << 24  # bytes of a line
WIDEST = 1 << 15  # columns
MATRIX_MARKET = "%%matrixmarket"  # beginning of such a file, in lower case
TAIL = 1 << 20  # bytes in which the last line is looked for

_FRAME = "networkx.to_pandas_edgelist(networkx.read_{how}('{name}')).to_csv('edges.csv', index=False)"
_OTHER_FORMATS = (  # name, what the beginning of the file matches, the line that converts it
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
    ("XML", r"\s*<\?xml", "write it as CSV or Parquet"),
    ("a web page", r"\s*<(html|!doctype)", "fetch the file itself"),
    ("JSON", r"\s*[{\[]", "write it as CSV or Parquet"),
    ("SQL", r"\s*(insert\s+into|create\s+table|copy\s+\S+\s*\()", "write it as CSV or Parquet"),
    ("a pointer of Git LFS", r"version https://git-lfs\b", "fetch the file itself: git lfs pull"),
    ("a document for printing", r"%(pdf-|!ps)", "fetch the table itself"),
)
_ADJLIST = "networkx.to_pandas_edgelist(networkx.read_adjlist('{name}')).to_csv('edges.csv', index=False)"
_LEADING_ZERO = re.compile(rb'[\r\n\t ,;"][+-]?0[0-9]')


@dataclass(frozen=True)
class Text:
    """The layout of a table in a text file, by which it can be read again as it is written."""

    path: Path
    names: tuple[str, ...]
    options: dict[str, Any]  # of pandas' reader
    notes: tuple[str, ...] = ()  # on what is not sure of it

    def frame(self, **options: Any) -> pd.DataFrame:
        """Return the table as pandas reads it."""
        import pandas as pd

        with bounded(self.path, text=True) as file:
            frame = pd.read_csv(file, header=None, names=list(self.names), index_col=False, **self.options, **options)
        # as objects: to look up a name among texts, pandas changes the warning settings of the process
        frame.columns = pd.Index([str(name) for name in frame.columns], dtype=np.dtype(object))
        return frame

    def column(self, name: str) -> pd.Series:
        return self.frame(usecols=[name], dtype=str, na_filter=False)[name]

    @cached_property
    def leading_zeros(self) -> bool:
        """Whether any number of the file may begin with a zero, as 007 does."""
        with bounded(self.path) as file:
            last = b"\n"
            while block := file.read(1 << 22):
                if _LEADING_ZERO.search(last + block):
                    return True
                last = (last + block)[-3:]
        return False


def looks_like_text(path: Path) -> bool:
    """Return whether the beginning of a file (unpacked, if .gz) is text."""
    import zlib

    try:
        with bounded(path) as file:
            head = file.read(4096)
    except HopstateError:
        raise
    except (OSError, EOFError, zlib.error):
        return False
    return b"\0" not in head and (not head or sum(b < 9 or 13 < b < 32 for b in head) == 0)


def is_matrix_market(path: Path) -> bool:
    """Return whether a file begins as the Matrix Market format does."""
    with bounded(path) as file:
        return file.read(len(MATRIX_MARKET)).decode("ascii", "replace").lower() == MATRIX_MARKET


def read_layout(
    path: Path, id_columns: Sequence[str], num_ids: int, header: bool | None = None
) -> tuple[Text, int, list[str]]:
    """Return the layout of a text file, the line of its first row, and its columns of ids."""
    with bounded(path, text=True) as file:
        lines = [line.decode("utf-8-sig") for line in _first_lines(file, path)]
    skip = next((i for i, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"), len(lines))
    remark = lines[0] if skip else ""
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise FormatError(f"{path} is empty: write it again, with a line a row")
    if remark.lower().startswith(MATRIX_MARKET):
        raise FormatError(
            f"{path} is a matrix in Matrix Market's format, not a table; read it as a graph: "
            f"hopstate.read_graph({path.name!r})"
        )
    for beginning in ([remark], lines):
        _check_other_formats(path, beginning)
    separator = _separator(lines, path, remark)
    rows = [_cells(line, separator) for line in lines]
    _check_lengths(path, rows, skip)
    found, sure = _header(path, rows, id_columns, num_ids, header, separator != SPACES and not remark)
    names = _names(path, rows, found, num_ids, id_columns)
    if found:
        _check_first_row(path, lines[1:], separator, len(names), skip + 2)
    _check_end(path, separator, len(names))
    lower = {name.lower() for name in id_columns}
    keys = [name for name in names if name.lower() in lower] or [name for name in names if name][:num_ids]
    options = {
        "sep": separator,
        "skiprows": skip + found,
        "keep_default_na": False,
        "low_memory": False,
        "encoding": "utf-8-sig",
        "skipinitialspace": separator != SPACES,
    }
    notes = () if sure else (_unsure(rows[0], found, num_ids),)
    return Text(path, tuple(names), options, notes), skip + found + 1, keys


def _first_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    for number in range(SAMPLE):
        line = file.readline(LONGEST)
        if not line:
            return
        if len(line) == LONGEST:
            raise FormatError(f"{path}: line {number + 1} is longer than {LONGEST:,} bytes; it is not a table")
        yield line


def _separator(lines: list[str], path: Path, remark: str) -> str:
    tabs, commas = ({line.count(sign) for line in lines} for sign in "\t,")
    tsv = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    if min(tabs) and (len(tabs) == 1 or tsv):
        parts = [line.split() for line in lines]
        more = {len(row) for row in parts} == {len(parts[0])} and len(parts[0]) > len(lines[0].rstrip("\n").split("\t"))
        numbers = more and all(_is_number(cell) for row in parts[1:] or parts for cell in row)
        return SPACES if more and (numbers or remark.startswith("%")) else "\t"
    head = lines[:20]
    for separator in (",", "\t", ";"):
        counts = [len(_cells(line, separator)) for line in head]
        if counts[0] > 1 and counts.count(counts[0]) >= 0.9 * len(counts):
            return separator
    return "," if min(commas) else SPACES if len(head[0].split()) > 1 else ","


def _cells(line: str, separator: str) -> list[str]:
    return line.split() if separator == SPACES else next(csv.reader([line.rstrip("\r\n")], delimiter=separator))


# ---- line of names -------------------------------------------------------------------------------------------
def _header(
    path: Path, rows: list[list[str]], known: Sequence[str], num_ids: int, header: bool | None, plain: bool
) -> tuple[bool, bool]:
    """Return whether the first line holds names of columns, and whether that is sure."""
    if header is not None:
        return header, True
    first, body = rows[0], rows[1:]
    if _is_numbered(first):
        if num_ids == 2 and first[0] and body and plain:
            raise DataError(
                f"{path}: its first line, {','.join(first)}, may be numbers of columns, as pandas writes them, or a "
                "row like the others; choose: --read.header true or --read.header false (header in Python)"
            )
        return not first[0], True
    if {cell.strip().lower() for cell in first} & {name.lower() for name in known}:
        return True, True
    if any(_is_number(cell) for cell in first):
        return False, True
    for place in range(len(first)):
        column = [row[place] for row in body if len(row) > place]
        if column and all(_is_number(cell) for cell in column):
            return True, True  # words above numbers
    if {cell for row in body for cell in row[:num_ids]} & set(first[:num_ids]):
        return False, True
    return ".csv" in path.name.lower(), not body


def _is_numbered(first: Sequence[str]) -> bool:
    """Return whether a line is 0,1,...,n-1, or the same behind an empty cell: a table without names from pandas."""
    cells = [cell.strip() for cell in first]
    cells = cells[1:] if not cells[0] else cells
    return len(first) > 1 and cells == [str(place) for place in range(len(cells))]


def _names(path: Path, rows: list[list[str]], header: bool, num_ids: int, known: Sequence[str]) -> list[str]:
    width = len(rows[0]) if header else max(map(len, rows))
    names = [name.strip() for name in rows[0]] if header else [f"column {i}" for i in range(width)]
    if header and _is_numbered(rows[0]):
        names = [name and f"column {name}" for name in names]
    lower = {name.lower() for name in known}
    if num_ids == 1 and not names[0] and not lower & {name.lower() for name in names}:
        names[0] = "id"  # the index of a table of nodes
    if len(names) > WIDEST:
        raise FormatError(f"{path} has {len(names):,} columns; tables of at most {WIDEST:,} are read")
    check_names(names, str(path))
    return names


def check_names(names: Sequence[str], where: str) -> None:
    """Raise FormatError if two columns have one name."""
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise FormatError(f"{where} has two columns of the same name, {', '.join(map(repr, twice))}; rename one")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unsure(first: Sequence[str], header: bool, num_ids: int) -> str:
    what, other = ("names of columns", "false") if header else ("a row", "true")
    how = f"--read.header {other} changes that" if num_ids == 2 else "a first line of names such as id leaves no doubt"
    return f"the first line was read as {what}: {', '.join(first[:10])}; it could be either ({how})"


# ---- checks --------------------------------------------------------------------------------------------------
def _check_first_row(path: Path, lines: list[str], separator: str, width: int, line: int) -> None:
    """Raise FormatError if the first row has more cells than there are names: pandas would only drop them."""
    cells = lines[0].split() if separator == SPACES and lines else next(csv.reader(lines, delimiter=separator), [])
    if len(cells) > width and any(cell.strip() for cell in cells[width:]):
        raise _unequal(path, line, len(cells), width)


def _check_end(path: Path, separator: str, cells: int) -> None:
    """Raise FormatError if a file that is not packed stops within a row; only the last line break may be missing."""
    with open_regular(path) as file:
        magic = file.read(4)
        packed = magic == ZIP or magic[:2] == b"\x1f\x8b"
        file.seek(max(0, file.seek(0, 2) - TAIL))
        _, newline, last = file.read().rpartition(b"\n")
    if packed or not newline or not last.strip() or last.lstrip()[:1] in (b"#", b"%"):
        return
    found = len(_cells(last.decode("utf-8", "replace"), separator))
    if found < cells:
        raise FormatError(
            f"{path} stops within its last line: {found} of {cells} cells, and no end of line; it was cut off, or is "
            "still being written. Fetch it again, or remove that line"
        )


def short_lines(text: Text) -> tuple[str, ...]:
    """Return a note on lines with fewer cells than there are columns; none if there is no such line."""
    separator, count, first, total = text.options["sep"], 0, 0, 0
    with bounded(text.path, text=True) as file:
        lines = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
        for _ in range(text.options["skiprows"]):
            next(lines, None)
        rows = (line.split() for line in lines) if separator == SPACES else csv.reader(lines, delimiter=separator)
        for row in rows:
            total += bool(row)
            if 0 < len(row) < len(text.names):
                count, first = count + 1, first or total
    if not count:
        return ()
    return (
        f"{count:,} of {total:,} rows have fewer cells than there are columns, the first is row {first - 1}; their "
        "last cells are empty",
    )


def check_archive(path: Path) -> None:
    """Raise FormatError for a zip archive that is a workbook, or that holds anything but one table."""
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


def _check_other_formats(path: Path, lines: Sequence[str]) -> None:
    """Raise FormatError if the first lines are of another known format; the message has the line that converts it."""
    head = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines[:100])
    for kind, begins, how in _OTHER_FORMATS:
        if re.match(begins, head, re.IGNORECASE | (re.DOTALL if "xml" in begins else 0)):
            how = f"write a list of edges, in Python: {how.replace('{name}', path.name)}" if "(" in how else how
            raise FormatError(f"{path} is {kind}, not a table; {how}")


def _check_lengths(path: Path, rows: Sequence[Sequence[str]], skipped: int) -> None:
    """Raise FormatError if the first lines differ in length, as in a list of neighbors."""
    lengths = [len(row) for row in rows]
    if len(rows) > 2 and 2 * lengths.count(max(set(lengths), key=lengths.count)) <= len(rows) and max(lengths) > 2:
        other = next(at for at, length in enumerate(lengths) if length != lengths[0])
        raise _unequal(path, skipped + other + 1, lengths[other], lengths[0])


@contextmanager
def named_lines(path: Path) -> Iterator[None]:
    """Turn pandas' error of a line with more cells than those before into a FormatError that names it."""
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
        f"{expected} before it. If it is an adjacency list (a node and its neighbors), write a list of edges, in "
        f"Python: {_ADJLIST.replace('{name}', path.name)}"
    )
