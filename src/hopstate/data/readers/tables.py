"""CSV, TSV, whitespace-separated text and Parquet to data frames, with ids kept as the user wrote them."""

from __future__ import annotations

import csv
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hopstate.data.arrays import load_npy
from hopstate.data.opening import bounded, check_size, open_regular, reading
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, nearest

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "-nan", "<NA>", "#N/A")
IDS = ("id", "node", "node_id", "nodeid", "name")  # columns of node ids
SAMPLE = 1000  # lines looked at to tell separator, header and leading zeros
LONGEST = 1 << 24  # bytes of a line
WIDEST = 1 << 15  # columns
EXACT = 2**53  # beyond it float64 does not tell whole numbers apart


@dataclass(frozen=True)
class Table:
    """A table and where it came from.

    Args:
        frame: the columns; ids are int64 or str.
        path: the file.
        first_line: line of the file, from 1, that row 0 stands in; None where the file has no lines.
        rows: the file's own rows of those in frame, where some were left out; None where none was.
    """

    frame: pd.DataFrame
    path: Path
    first_line: int | None
    rows: np.ndarray | None = None

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
        """Return a column of ids as int64 or str.

        Raises:
            DataError: an id is missing or a fraction; its row is named.
        """
        values = self.frame[column]
        missing = np.flatnonzero(values.isna().to_numpy())
        if len(missing):
            raise DataError(
                f"{self.path}: no id in column {column!r}, {self.place(missing[0])}; fill it in or remove it"
            )
        array = values.to_numpy()
        if array.dtype.kind in "iu" or str(values.dtype).startswith(("Int", "UInt")):
            array = array.astype(np.uint64 if (array > np.iinfo(np.int64).max).any() else np.int64)
        if array.dtype.kind in "iuf":
            return whole_numbers(array, f"{self.path}: id", self.place)
        return array.astype(str)

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


def whole_numbers(array: np.ndarray, what: str, place: Callable[[int], str]) -> np.ndarray:
    """Return numbers that are ids as int64.

    Args:
        array: integers or floats.
        what: how messages call a number of it.
        place: from a row to how messages call it.

    Raises:
        DataError: a fraction, a number that float64 does not tell from its neighbours, or one beyond int64.
    """
    if array.dtype.kind == "f":
        broken = np.flatnonzero(~(array == np.floor(array)))
        if len(broken):
            row = int(broken[0])
            raise DataError(f"{what} {array[row]} in {place(row)} is no integer and no string")
        large = np.flatnonzero(np.abs(array) >= EXACT)
        if len(large):
            row = int(large[0])
            raise DataError(
                f"{what} {array[row]:.0f} in {place(row)} is read as a fraction, beyond 2^53, where neighbouring ids "
                "become one; write ids as integers without a decimal point, or as strings"
            )
    elif array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        row = int(np.argmax(array))
        raise DataError(
            f"{what} {array[row]} in {place(row)} is beyond 2^63 - 1; write ids as strings, e.g. n{array[row]}"
        )
    return array.astype(np.int64)


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
        groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
        columns = [group.column(i) for group in groups for i in range(group.num_columns)]
        cells = 8 * max(1, facts.num_columns) * facts.num_rows
        check_size(path, max(cells, sum(column.total_uncompressed_size for column in columns)))
        schema = file.schema_arrow
        twice = {name for name in schema.names if schema.names.count(name) > 1}
        if twice:
            raise FormatError(f"{path} has two columns of the same name: {', '.join(sorted(twice))}")
        nested = [field.name for field in schema if field.type.num_fields]
        if nested:
            raise FormatError(
                f"{path}: column {nested[0]!r} holds lists or records; a table has one value in each cell"
            )
    return pd.read_parquet(path, engine="pyarrow")


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
    import pandas as pd

    with bounded(path, text=True) as file:
        lines = [line.decode("utf-8-sig") for line in _first_lines(file, path)]
    skip = next((i for i, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"), len(lines))
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise FormatError(f"{path} is empty")
    if lines[0].lstrip().lower().startswith(("<html", "<!doctype", "<?xml")):
        raise FormatError(f"{path} is a web page, not a table; fetch the file itself")
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
    body = rows[1:] if header else rows
    kept = {k: str for k in keys if any(re.match(r"0\d", r[names.index(k)]) for r in body if len(r) > names.index(k))}
    missing = {name: [""] if name in keys else list(MISSING) for name in names}
    with warnings.catch_warnings(), bounded(path, text=True) as file:
        warnings.simplefilter("error", pd.errors.ParserWarning)  # a line with more fields than the header
        frame = pd.read_csv(
            file,
            sep=separator,
            header=None,
            names=names,
            index_col=False,
            skiprows=skip + header,
            dtype=kept or None,  # type: ignore[arg-type]
            keep_default_na=False,
            na_values=missing,
            low_memory=False,
            encoding="utf-8-sig",
            skipinitialspace=separator != r"\s+",
        )
    frame = frame.drop(columns=[name for name in names if not name])  # a row number that pandas wrote
    return Table(frame, path, skip + header + 1)


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
        MissingFileError, UnreadableFileError, FormatError: as `hopstate.data.arrays.load_npy`.
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
