"""Tables in text files: separator, line of names and first row, found from the first lines."""

from __future__ import annotations

import csv as python_csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from hopstate.data.vocabulary import PRINTED, consist_of
from hopstate.errors import ConfigError, DataError, FormatError, listed
from hopstate.io.opening import ZIP, BoundedFile, open_bounded, open_regular, zip_members

_DIGIT = re.compile(r"\d")
SPACES = r"\s+"  # the separator that is any white space
SAMPLE = 1000  # lines from which the layout is found
LONGEST = 1 << 24  # bytes of a line
WIDEST = 1 << 15  # columns
MATRIX_MARKET = "%%matrixmarket"  # beginning of such a file, in lower case
TAIL = 1 << 20  # bytes in which the last line is looked for
BLOCK = 1 << 22  # bytes of text that are parsed at a time

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
_UNEVEN = (b"  ", b"\t", b" \n", b"\n ", b"\r", b"\v", b"\f")  # white space other than one space between cells


@dataclass(frozen=True)
class Text:
    """The layout of a table in a text file."""

    path: Path
    names: tuple[str, ...]  # "" where pandas wrote row numbers
    separator: str
    skip: int  # lines before the first row
    notes: tuple[str, ...] = ()  # on what is not sure of it

    @property
    def first_line(self) -> int:
        """The line of row 0, from 1."""
        return self.skip + 1

    @property
    def delimiter(self) -> str:
        return " " if self.separator == SPACES else self.separator

    def batches(
        self, uneven: list[tuple[int, str]], columns: Sequence[str] | None = None, size: int = BLOCK
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Yield cells as they are written, without white space around them, and the numbers of their rows, from 0.

        uneven is filled with numbers and texts of the rows with more or fewer cells than there are columns.
        """
        names = [name or f"\0{place}" for place, name in enumerate(self.names)]

        def leave_out(row: csv.InvalidRow) -> str:
            uneven.append((row.number - 1 - self.skip, row.text))
            return "skip"

        # one thread: with more, pyarrow does not tell the numbers of rows
        read = csv.ReadOptions(use_threads=False, block_size=size, column_names=names, skip_rows=self.skip)
        parse = csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=leave_out)
        texts = dict.fromkeys(names, pa.string())
        convert = csv.ConvertOptions(column_types=texts, include_columns=names if columns is None else list(columns))
        count = 0
        with open_bounded(self.path, text=True) as file:
            try:
                for batch in csv.open_csv(self._rows(file), read, parse, convert):
                    cells = [_trim(column) for column in batch.columns]
                    rows = np.arange(count, count + len(batch))
                    left_out = np.array([row for row, _ in uneven], np.int64)
                    rows += np.searchsorted(left_out - np.arange(len(left_out)), rows, side="right")
                    yield (
                        pa.table(cells, names=["" if name[0] == "\0" else name for name in batch.column_names]),
                        rows,
                    )
                    count += len(batch)
            except pa.ArrowInvalid as error:
                if "Empty CSV" not in str(error):
                    raise _unparsed(self.path, str(error)) from None
            num_lines = cast(BoundedFile, file.raw).num_lines
            has_breaks = num_lines - self.skip > count + len(uneven)  # or empty lines
        if has_breaks:
            self._check_quotes()

    def _rows(self, file: IO[bytes]) -> IO[bytes]:
        return io.BufferedReader(_SingleSpacedFile(file), 1 << 18) if self.separator == SPACES else file

    def _check_quotes(self) -> None:
        """Raise FormatError if a quotation mark is missing, which makes a cell of the rows up to the next one."""
        with open_bounded(self.path) as file:
            text = io.TextIOWrapper(self._rows(file), "utf-8-sig", newline="")
            for _ in range(self.skip):
                text.readline()
            rows, line = python_csv.reader(text, delimiter=self.delimiter, strict=True), 0
            try:
                for _ in rows:
                    line = rows.line_num
            except python_csv.Error as error:
                raise FormatError(
                    f"a cell over several lines without an end: got {str(error)!r} in {self.path}, "
                    f"line {line + self.first_line}. Look for a quotation mark that is missing or too many"
                ) from None

    def read(self) -> tuple[pa.Table, tuple[str, ...]]:
        """Return all cells, and a note on rows with fewer cells than there are columns: their last cells are empty."""
        uneven: list[tuple[int, str]] = []
        parts = list(self.batches(uneven))
        schema = pa.schema([(name, pa.string()) for name in self.names])
        cells = pa.concat_tables([part for part, _ in parts]) if parts else schema.empty_table()
        if not uneven:
            return cells, ()
        width = len(self.names)
        rows = [(row, _split_line(text, self.separator)) for row, text in uneven]
        for row, own in rows:
            if any(cell.strip() for cell in own[width:]):
                raise _unequal(self.path, row + self.first_line, len(own), width)
        short = [row for row, own in rows if len(own) < width]
        columns = zip(*((own + [""] * width)[:width] for _, own in rows), strict=True)
        filled = pa.table([_trim(pa.array(column, pa.string())) for column in columns], schema=schema)
        numbers = np.concatenate([*(numbers for _, numbers in parts), [row for row, _ in rows]])
        note = (
            f"{len(short):,} of {len(numbers):,} rows have fewer cells than there are columns, the first is row "
            f"{min(short, default=0)}; their last cells are empty"
        )
        return pa.concat_tables([cells, filled]).take(np.argsort(numbers)), (note,) if short else ()


class _SingleSpacedFile(io.RawIOBase):
    """A text file with white space within lines reduced to one space."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._lines = file, io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._lines.readinto(buffer)
        if count:
            return count
        block = self._file.read(len(buffer)) + self._file.readline(LONGEST)
        uneven = block[:1] == b" " or any(space in block for space in _UNEVEN)
        self._lines = io.BytesIO(b"".join(map(_single_spaces, block.splitlines(True))) if uneven else block)
        return self._lines.readinto(buffer)


def _single_spaces(line: bytes) -> bytes:
    return b" ".join(re.findall(rb'"[^"]*"?|[^\s"]+', line) if b'"' in line else line.split()) + b"\n"


def _trim(column: pa.Array) -> pa.Array:
    """Return texts without white space around them, and without quotation marks behind a space."""
    if consist_of(column, PRINTED):
        return column
    text = pc.utf8_trim_whitespace(column)
    if pc.any(pc.match_substring(column, ' "')).as_py():
        quoted = pc.match_substring_regex(column, '^\\s+"[^"]*"\\s*$')
        text = pc.if_else(quoted, pc.utf8_trim(text, '"'), text)
    return text


def _unparsed(path: Path, error: str) -> FormatError:
    if "Could not skip" in error:
        return FormatError(f"{path} has a line of names and no rows: write it again, with a line a row")
    if "straddling" in error or "too large" in error:
        return FormatError(f"{path} has a row of over {BLOCK:,} bytes: look for a quotation mark that is missing")
    return FormatError(f"{path} could not be read as a table: {error[:200]}; repair it")


def is_text_file(path: Path) -> bool:
    """Return whether the beginning of a file (unpacked, if .gz) is text."""
    with open_bounded(path) as file:
        head = file.read(4096)
    return b"\0" not in head and (not head or sum(b < 9 or 13 < b < 32 for b in head) == 0)


def is_matrix_market(path: Path) -> bool:
    """Return whether a file begins as the Matrix Market format does."""
    with open_bounded(path) as file:
        return file.read(len(MATRIX_MARKET)).decode("ascii", "replace").lower() == MATRIX_MARKET


def read_layout(
    path: Path, id_columns: Sequence[str], num_ids: int, header: bool | None = None, separator: str | None = None
) -> tuple[Text, list[str]]:
    """Return the layout of a text file, and its columns of ids."""
    given = parse_separator(separator)
    with open_bounded(path, text=True) as file:
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
    separator = given or _separator(lines, path, remark)
    rows = [_split_line(line, separator) for line in lines]
    _check_lengths(path, rows, skip)
    header_lines, certain = _header(path, rows, id_columns, num_ids, header, separator != SPACES and not remark)
    names = _names(path, rows, header_lines, num_ids, id_columns)
    _check_end(path, separator, len(names))
    known = set(map(role_name, id_columns))
    keys = [name for name in names if role_name(name) in known] or [name for name in names if name][:num_ids]
    notes = () if certain else (_ambiguous_header_note(rows[0], header_lines, num_ids),)
    return Text(path, tuple(names), separator, skip + header_lines, notes), keys


def parse_separator(separator: str | None) -> str | None:
    """Return a separator that a user names, such as ";", "tab" or "space" (any white space); None stays None."""
    if separator is None:
        return None
    sign = {"tab": "\t", "space": SPACES, "\\t": "\t"}.get(separator, separator)
    if sign != SPACES and (len(sign) != 1 or sign.isalnum() or sign in '"\r\n'):
        raise ConfigError(f"read.separator must be one sign such as ';', or tab, or space; got {separator!r}")
    return sign


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
        counts = [len(_split_line(line, separator)) for line in head]
        if counts[0] > 1 and counts.count(counts[0]) >= 0.9 * len(counts):
            return separator
    return "," if min(commas) else SPACES if len(head[0].split()) > 1 else ","


def _split_line(line: str, separator: str) -> list[str]:
    if separator == SPACES:
        return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|([^\s"]+)', line)]
    lines = line.rstrip("\r\n").splitlines(keepends=True) or [""]
    return next(python_csv.reader(lines, delimiter=separator, skipinitialspace=True), [])


# ---- line of names -------------------------------------------------------------------------------------------
def role_name(column: str) -> str:
    """Return the name of a column as lists of usual names have it: "Source Node" is source_node."""
    return re.sub(r"[\s-]+", "_", column.strip().lower())


def _header(
    path: Path, rows: list[list[str]], id_columns: Sequence[str], num_ids: int, header: bool | None, plain: bool
) -> tuple[bool, bool]:
    """Return whether the first line is a header, and whether that is certain."""
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
    if set(map(role_name, first)) & set(map(role_name, id_columns)):
        return True, True
    if any(_is_number(cell) for cell in first):
        return False, True
    for place in range(len(first)):
        column = [row[place] for row in body if len(row) > place]
        if column and all(_is_number(cell) for cell in column):
            return True, True  # words above numbers
    if {cell for row in body for cell in row[:num_ids]} & set(first[:num_ids]):
        return False, True
    named = ".csv" in path.name.lower()
    return named, not body or (named and _has_numbered_column(first, body))


def _has_numbered_column(first: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Return whether some column has a digit in every cell that is not empty, and none in the first line."""
    columns = zip(first, zip(*body))
    return any(
        not _DIGIT.search(name) and any(cells) and all(map(_DIGIT.search, filter(None, cells)))
        for name, cells in columns
    )


def _is_numbered(first: Sequence[str]) -> bool:
    """Return whether a line is 0,1,...,n-1, or the same behind an empty cell: a table without names from pandas."""
    cells = [cell.strip() for cell in first]
    cells = cells[1:] if not cells[0] else cells
    return len(first) > 1 and cells == [str(place) for place in range(len(cells))]


def _names(path: Path, rows: list[list[str]], header: bool, num_ids: int, id_columns: Sequence[str]) -> list[str]:
    width = len(rows[0]) if header else max(map(len, rows))
    names = [name.strip() for name in rows[0]] if header else [f"column {i}" for i in range(width)]
    if header and _is_numbered(rows[0]):
        names = [name and f"column {name}" for name in names]
    if num_ids == 1 and not names[0] and not set(map(role_name, names)) & set(map(role_name, id_columns)):
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


def _ambiguous_header_note(first: Sequence[str], header: bool, num_ids: int) -> str:
    what, other = ("names of columns", "false") if header else ("a row", "true")
    how = f"--read.header {other} changes that" if num_ids == 2 else "a first line of names such as id leaves no doubt"
    return f"the first line was read as {what}: {', '.join(first[:10])}; it could be either ({how})"


# ---- checks --------------------------------------------------------------------------------------------------
def _check_end(path: Path, separator: str, num_cells: int) -> None:
    """Raise FormatError if a file that is not packed stops within a row; only the last line break may be missing."""
    with open_regular(path) as file:
        magic = file.read(4)
        packed = magic == ZIP or magic[:2] == b"\x1f\x8b"
        file.seek(max(0, file.seek(0, 2) - TAIL))
        _, newline, last = file.read().rpartition(b"\n")
    if packed or not newline or not last.strip() or last.lstrip()[:1] in (b"#", b"%"):
        return
    found = len(_split_line(last.decode("utf-8", "replace"), separator))
    if found < num_cells:
        raise FormatError(
            f"{path} stops within its last line: {found} of {num_cells} cells, and no end of line; it was cut off, "
            "or is still being written. Fetch it again, or remove that line"
        )


def check_archive(path: Path) -> None:
    """Raise FormatError for a zip archive that is a workbook, or that holds anything but one table."""
    names = zip_members(path)
    if "xl/workbook.xml" in names or "xl/workbook.bin" in names:
        raise FormatError(
            f"{path} is a workbook (Excel), not a table; save its sheet as CSV, or in Python: "
            f"pandas.read_excel('{path.name}').to_csv('{path.stem}.csv', index=False)"
        )
    tables = [name for name in names if name.lower().endswith((".csv", ".tsv", ".txt", ".parquet"))]
    if len(names) > 1 and tables:
        raise FormatError(f"{path} is a zip of {len(names)} files ({listed(names)}); unzip it and give one of them")
    if path.suffix.lower() == ".zip" and names and not any(name.endswith(".npy") for name in names):
        raise FormatError(f"{path} is a zip of {listed(names)}; unzip it and give the file itself")


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


def _unequal(path: Path, line: int, found: int, expected: int) -> FormatError:
    return FormatError(
        f"{path} could not be read as a table: its lines are of unequal length, {found} cells in line {line}, "
        f"{expected} before it. If it is an adjacency list (a node and its neighbors), write a list of edges, in "
        f"Python: {_ADJLIST.replace('{name}', path.name)}"
    )
