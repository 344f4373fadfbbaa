"""CSV, TSV, whitespace-separated text and Parquet to data frames, with ids kept as the user wrote them."""

from __future__ import annotations

import csv
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hopstate.data.readers.ids import MISSING, ids_of
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, nearest
from hopstate.io.arrays import load_npy
from hopstate.io.opening import bounded, check_size, open_regular, reading

if TYPE_CHECKING:
    import pandas as pd

IDS = ("id", "node", "node_id", "nodeid", "name")  # columns of node ids
SAMPLE = 1000  # lines looked at to tell separator, header and leading zeros
LONGEST = 1 << 24  # bytes of a line
WIDEST = 1 << 15  # columns
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Text:
    """How a table lies in a text file, to be read once more as it is written.

    Args:
        path: the file.
        names: of its columns.
        options: of pandas' reader.
    """

    path: Path
    names: tuple[str, ...]
    options: dict[str, Any]

    def frame(self, **options: Any) -> pd.DataFrame:
        """Return the table as pandas reads it."""
        import pandas as pd

        with warnings.catch_warnings(), bounded(self.path, text=True) as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a line with more fields than the header
            return pd.read_csv(file, header=None, names=list(self.names), index_col=False, **self.options, **options)

    def column(self, name: str) -> pd.Series:
        """Return a column as it is written."""
        return self.frame(usecols=[name], dtype=str, na_filter=False)[name]

    @cached_property
    def leading_zeros(self) -> bool:
        """Whether a number with zeros in front may stand anywhere."""
        with bounded(self.path) as file:
            last = b"\n\n"
            while block := file.read(1 << 22):
                text = np.frombuffer(last + block, np.uint8)
                at = np.flatnonzero(text[2:-1] == ord("0")) + 2
                at = at[(text[at + 1] >= ord("0")) & (text[at + 1] <= ord("9"))]
                signed = _SIGNS[text[at - 1]]
                if (_BEFORE[text[at - 1]] | (signed & _BEFORE[text[at - 2]])).any():
                    return True
                last = (last + block)[-3:]
        return False


_SIGNS, _BEFORE = (np.isin(np.arange(256), np.frombuffer(chars, np.uint8)) for chars in (b"+-", b'\r\n\t ,;"'))


@dataclass(frozen=True)
class Table:
    """A table and where it came from.

    Args:
        frame: the columns; ids are int64 or str.
        path: the file.
        first_line: line of the file, from 1, that row 0 stands in; None where the file has no lines.
        rows: the file's own rows of those in frame, where some were left out; None where none was.
        source: the text that it was read from, None where there is none.
    """

    frame: pd.DataFrame
    path: Path
    first_line: int | None
    rows: np.ndarray | None = None
    source: Text | None = None

    def origin(self, rows: np.ndarray) -> np.ndarray:
        """Return the file's own numbers of rows of the frame."""
        return rows if self.rows is None else self.rows[rows]

    def place(self, row: int) -> str:
        """Return "row 3 (line 5)" for messages."""
        row = int(self.origin(np.asarray(row)))
        return f"row {row}" if self.first_line is None else f"row {row} (line {row + self.first_line})"

    def column(self, given: str | None, known: Sequence[str], otherwise: int | None, option: str) -> str | None:
        """Return the name of a column: the one given, else one of the known names, else the one at a position.

        Raises:
            DataError: the given column does not exist, or the table has too few.
        """
        names = [str(name) for name in self.frame.columns]
        if given is not None:
            if given not in names:
                hint = nearest(given, names)
                raise DataError(f"{self.path} has no column {given!r} ({option}){hint}; it has: {', '.join(names)}")
            return given
        found = next((name for want in known for name in names if name.lower() == want), None)
        if found is not None or otherwise is None:
            return found
        if otherwise >= len(names):
            raise DataError(f"{self.path} has only {len(names)} columns ({', '.join(names)}); {option} is missing")
        return names[otherwise]

    def ids(self, column: str) -> np.ndarray:
        """Return a column of ids as int64 or str; see `hopstate.data.readers.ids.ids_of`."""
        return ids_of(self, column)

    def text(self, column: str) -> pd.Series | None:
        """Return a column as it is written, row by row; None where the file is no text."""
        if self.source is None:
            return None
        found = self.source.column(column)
        return found if self.rows is None else found.iloc[self.rows].reset_index(drop=True)

    def kept(self, column: str) -> pd.Series:
        """Return a column, as it is written where a number of it has zeros in front."""
        values = self.frame[column]
        if values.dtype.kind not in "iuf" or not self.leading_zeros():
            return values
        text = self.text(column)
        zeros = text is not None and bool(text.str.match(r"\s*[+-]?0[0-9]").any())
        return text.str.strip().replace("", None) if text is not None and zeros else values

    def leading_zeros(self) -> bool:
        """Return whether anything in the file may be a number with zeros in front."""
        return self.source is not None and self.source.leading_zeros

    def numbers(self, columns: Sequence[str], what: str, nan: str, missing: str) -> np.ndarray:
        """Return columns of numbers as (rows, columns) float64.

        Args:
            columns: their names.
            what: how messages call them.
            nan: "zero" puts 0 for what is missing or infinite.
            missing: "error" refuses what is missing or infinite, others leave it as it is.

        Raises:
            DataError: text in a column, or a missing number; column and row are named.
            ConfigError: another nan or missing.
        """
        if nan not in ("error", "zero"):
            raise ConfigError(f"nan is 'error' or 'zero'; got {nan!r}")
        if missing not in ("error", "mean", "median"):
            raise ConfigError(f"missing is 'error', 'mean' or 'median'; got {missing!r}")
        for name in columns:
            if not is_numeric(self.frame[name]):
                self._refuse_text(name, what)
        values = self.frame[list(columns)].to_numpy(np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        if nan == "zero":
            return np.where(bad, 0, values)
        large = np.isfinite(values) & (np.abs(values) > _LARGEST)
        if large.any():
            row, at = map(int, np.argwhere(large)[0])
            raise DataError(
                f"{self.path}: {what} hold {values[row, at]:g} in {self.place(row)} of column {columns[at]!r}, beyond "
                f"{_LARGEST:.1e}, the largest number of 32 bits; scale the column"
            )
        if missing == "error" and bad.any():
            named = f"{', '.join(columns[:3])}{', ...' * (len(columns) > 3)}"
            fill = "say how: --read.missing mean or median (of the training rows, with a column that marks them)"
            either = f"{fill}, or --read.nan zero"
            hints = {"node features": either, "edge features": either, "event features": fill}
            raise DataError(
                f"{self.path}: {what} ({named}) hold NaN or infinities in {self._gaps(bad, columns)}; fill them in, "
                f"or {hints.get(what, '--read.nan zero')}"
            )
        return values

    def _refuse_text(self, name: str, what: str) -> None:
        import pandas as pd

        bad = pd.to_numeric(self.frame[name], errors="coerce").isna() & self.frame[name].notna()
        row = int(np.argmax(bad.to_numpy()))
        raise DataError(
            f"{self.path}: column {name!r} of {what} holds {self.frame[name].iloc[row]!r} in {self.place(row)}; "
            f"encode it as numbers or leave the column out"
        )

    def _gaps(self, bad: np.ndarray, columns: Sequence[str]) -> str:
        """Return "row 3 (line 5) of column 'age' (12 rows in all)" for the columns that bad (rows, columns) marks."""
        counts = bad.sum(0)
        where = np.flatnonzero(counts)
        parts = []
        for at in where[:5].tolist():
            rows = np.flatnonzero(bad[:, at])
            more = f" ({len(rows)} rows in all)" if len(rows) > 1 else ""
            parts.append(f"{', '.join(self.place(int(row)) for row in rows[:3])} of column {columns[at]!r}{more}")
        return "; ".join(parts) + (f"; and {len(where) - 5} more columns" if len(where) > 5 else "")


def read_table(path: Path, id_columns: Sequence[str] = (), num_ids: int = 1) -> Table:
    """Return a table from a .csv, .tsv, .txt (any of them .gz) or .parquet file, told apart by content.

    The separator is read from the first lines. Text has a header where the first line names known columns, is not
    numeric above numeric ids or values, or, in a .csv, holds nothing that recurs as an id. Lines before it that start
    with # or % are skipped. Ids such as "007" or "NA" stay strings.

    Args:
        path: the file.
        id_columns: names that mark a header, and whose columns hold ids.
        num_ids: how many leading columns hold ids where no name is known.

    Raises:
        MissingFileError: no such file.
        FormatError: neither text nor Parquet, empty, or lines of unequal length.
    """

    with open_regular(path) as file:
        magic = file.read(4)
    with reading(path, "a table"):
        if magic == b"PAR1":
            return Table(read_parquet(path), path, None)
        return _read_text(path, id_columns, num_ids)


def read_parquet(path: Path) -> pd.DataFrame:
    """Return the table of a Parquet file.

    Raises:
        FormatError: it claims more rows than the file can hold, or columns of one name, or of lists or records.
    """
    import pandas as pd
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        facts = file.metadata
        # facts of a single column are not asked for: damaged ones end the process inside of pyarrow
        held = sum(max(facts.row_group(i).total_byte_size, 0) for i in range(facts.num_row_groups))
        cells = 8 * max(1, facts.num_columns) * facts.num_rows
        check_size(path, max(cells, held))
        schema = file.schema_arrow
        twice = {name for name in schema.names if schema.names.count(name) > 1}
        if twice:
            raise FormatError(f"{path} has two columns of the same name: {', '.join(sorted(twice))}")
        nested = [field.name for field in schema if field.type.num_fields]
        if nested:
            raise FormatError(
                f"{path}: column {nested[0]!r} holds lists or records; a table has one value in each cell"
            )
    frame = pd.read_parquet(path, engine="pyarrow")
    for field in schema:  # whole numbers with gaps: not by way of fractions, which would round large ones
        if (
            field.name in frame
            and frame[field.name].dtype.kind == "f"
            and str(field.type).lstrip("u").startswith("int")
        ):
            column = pq.read_table(path, columns=[field.name])[field.name]
            whole = pd.UInt64Dtype() if str(field.type)[0] == "u" else pd.Int64Dtype()
            frame[field.name] = column.to_pandas(types_mapper={field.type: whole}.get)
    return frame


def looks_like_text(path: Path) -> bool:
    """Return whether the beginning of a file (unpacked, if .gz) is text."""
    try:
        with bounded(path) as file:
            head = file.read(4096)
    except HopstateError:
        raise
    except (OSError, EOFError, zlib.error):
        return False
    return b"\0" not in head and (not head or sum(b < 9 or 13 < b < 32 for b in head) == 0)


def _read_text(path: Path, id_columns: Sequence[str], num_ids: int) -> Table:
    with bounded(path, text=True) as file:
        lines = [line.decode("utf-8-sig") for line in _first_lines(file, path)]
    skip = next((i for i, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"), len(lines))
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise FormatError(f"{path} is empty")
    if lines[0].lstrip().lower().startswith(("<html", "<!doctype", "<?xml")):
        raise FormatError(f"{path} is a web page, not a table; fetch the file itself")
    if lines[0].lstrip().startswith(("{", "[")):
        raise FormatError(f"{path} is JSON, not a table; write it as CSV or Parquet")
    separator = _separator(lines)
    rows = [_fields(line, separator) for line in lines]
    header = _has_header(rows, id_columns, num_ids, path)
    names = [name.strip() for name in rows[0]] if header else [f"column {i}" for i in range(len(rows[0]))]
    if len(names) > WIDEST:
        raise FormatError(f"{path} has {len(names):,} columns; tables of at most {WIDEST:,} are read")
    if len(set(names)) < len(names):
        raise FormatError(f"{path} has two columns of the same name: {', '.join(names)}")
    lower = {name.lower() for name in id_columns}
    keys = [name for name in names if name.lower() in lower] or [name for name in names if name][:num_ids]
    text = Text(
        path,
        tuple(names),
        {
            "sep": separator,
            "skiprows": skip + header,
            "keep_default_na": False,
            "low_memory": False,
            "encoding": "utf-8-sig",
            "skipinitialspace": separator != r"\s+",
        },
    )
    frame = text.frame(na_values={name: [""] if name in keys else list(MISSING) for name in names})
    frame = frame.drop(columns=[name for name in names if not name])  # a row number that pandas wrote
    return Table(frame, path, skip + header + 1, source=text)


def _first_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    for number in range(SAMPLE):
        line = file.readline(LONGEST)
        if not line:
            return
        if len(line) == LONGEST:
            raise FormatError(f"{path}: line {number + 1} is longer than {LONGEST:,} bytes; it is no table")
        yield line


def _separator(lines: list[str]) -> str:
    """Return the separator that cuts most of the first lines into the same number of fields, at least two."""
    head = lines[:20]
    for separator in (",", "\t", ";"):
        counts = [len(_fields(line, separator)) for line in head]
        if counts[0] > 1 and counts.count(counts[0]) >= 0.9 * len(counts):
            return separator
    return r"\s+" if len(head[0].split()) > 1 else ","


def _fields(line: str, separator: str) -> list[str]:
    return line.split() if separator == r"\s+" else next(csv.reader([line.rstrip("\r\n")], delimiter=separator))


def _has_header(rows: list[list[str]], known: Sequence[str], num_ids: int, path: Path) -> bool:
    first, body = rows[0], rows[1:]
    names = [field.strip().lower() for field in first]
    if any(name in {k.lower() for k in known} for name in names):
        return True
    if any(_is_number(field) for field in first):
        return False
    for i in range(len(first)):
        column = [row[i] for row in body if len(row) > i]
        if column and all(_is_number(field) for field in column):
            return True  # words above numbers
    seen = {field for row in body for field in row[:num_ids]}
    return ".csv" in path.name.lower() and not seen & set(first[:num_ids])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_npy(path: Path) -> np.ndarray:
    """Return the array of a .npy file, memory-mapped.

    Raises:
        MissingFileError, UnreadableFileError, FormatError: as `hopstate.io.arrays.load_npy`.
        DataError: neither a vector nor a matrix, or of neither numbers nor strings.
    """
    array = load_npy(path, mmap=True)
    if array.dtype.kind not in "biufUS" or array.ndim not in (1, 2):
        raise DataError(f"{path} holds {array.dtype} of shape {array.shape}; a vector or a matrix is needed")
    return array


def is_numeric(values: pd.Series) -> bool:
    """Return whether a column holds numbers, or nothing."""
    import pandas as pd

    return pd.api.types.is_numeric_dtype(values.dtype) or bool(values.isna().all())


def check_unique(ids: np.ndarray, where: str) -> None:
    """Raise DataError, naming it, where an id stands more than once."""
    try:
        Vocabulary(ids)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def given(*values: Any) -> list[Any]:
    """Return those that are not None."""
    return [value for value in values if value is not None]
