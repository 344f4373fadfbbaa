"""Tables from files and from memory: CSV, TSV, Parquet, Arrow and DataFrames, with ids as the user wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from hopstate.data.preprocessing import MISSING as MISSING_OPTIONS
from hopstate.data.readers.text import Text, check_names, read_layout, role_name
from hopstate.data.validate import dense_array
from hopstate.data.vocabulary import PRINTED, TEXT, Vocabulary, as_texts, consist_of, unusable_ids
from hopstate.errors import ConfigError, DataError, FormatError, nearest
from hopstate.io.opening import MIN_TABLE_BYTES, check_size, first_bytes, open_regular, reading
from hopstate.io.tensors import load_npy

if TYPE_CHECKING:
    import pandas as pd

IDS = ("id", "node", "node_id", "nodeid", "name")  # columns of node ids
SEPARATORS = "cells are separated by a comma, a tab, a semicolon or spaces; --read.separator names another sign"
_LARGEST = float(np.finfo(np.float32).max)
_PANDAS_INDEX = "__index_level_"  # beginning of the columns in which pandas writes an index without a name
_MAGIC = {"Parquet": b"PAR1", "Arrow": b"ARROW1", "gzip": b"\x1f\x8b"}
_ENDS = {"Parquet": (".parquet", ".pq"), "Arrow": (".arrow", ".feather"), "gzip": (".gz",)}
_BATCH = 1 << 16  # rows of Parquet that are read at a time
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "-nan", "<NA>", "#N/A")
NO_ID = (r"\N", "NULL", "-", "--", "?", "<NA>", "#N/A")  # the others are names too: NA is Namibia
NO_LABEL = (*MISSING[1:], r"\N", "?")
EXACT = 2**53  # beyond it float64 does not tell whole numbers apart
INTEGER = r"[+-]?[0-9]+(?:\.0*)?"
LEADING_ZEROS = r"[+-]?0[0-9]"  # beginning of a number with leading zeros
NO_ID_REMEDY = "Fill it in or remove the row; call a node of that name otherwise."
BINARY_TABLES = (_MAGIC["Parquet"], _MAGIC["Arrow"])  # first bytes of binary tables


@dataclass(frozen=True)
class Table:
    """A table and where it came from."""

    frame: pd.DataFrame
    path: Path | str  # or how messages call a table in memory
    first_line: int | None  # line of the file, from 1, of row 0; None if the table has no lines
    rows: np.ndarray | None = None  # the file's own rows of those in frame, if some were left out
    written: Mapping[str, Any] = field(default_factory=dict)  # cells of a text file as they are written, by column
    text_ids: bool = False  # ids are texts even if all of a column look like numbers
    notes: tuple[str, ...] = ()  # on how the file was read
    separator: str = ","  # of a text file
    bad: dict[int, str] | None = None  # filled with rows and what is wrong with them, in place of an error

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def origin(self, rows: np.ndarray) -> np.ndarray:
        """Return the file's own numbers of rows of the frame."""
        return rows if self.rows is None else self.rows[rows]

    def place(self, row: int) -> str:
        """Return "row 3 (line 5)" for messages."""
        row = int(self.origin(np.asarray(row)))
        return f"row {row}" if self.first_line is None else f"row {row} (line {row + self.first_line})"

    def column(self, name: str | None, aliases: Sequence[str], position: int | None, option: str) -> str | None:
        """Return the column called name, else one of the aliases, else the one at a position."""
        names = self.names
        if name is not None:
            if name not in names:
                hint = nearest(name, names)
                raise DataError(f"{self.path} has no column {name!r} ({option}){hint}; it has: {', '.join(names)}")
            return name
        found = next((one for alias in aliases for one in names if one.lower() == alias), None)
        if found is not None or position is None:
            return found
        if position >= len(names):
            raise self.too_narrow(option)
        return names[position]

    def too_narrow(self, option: str) -> FormatError:
        hint = f"; {SEPARATORS}" if len(self.names) == 1 else ""
        have = f"{len(self.names)} columns ({', '.join(self.names)})"
        return FormatError(f"{self.path} has only {have}; {option} is missing{hint}")

    def ids(self, column: str) -> np.ndarray:
        """Return a column of ids as an array of int64 or of texts."""
        ids = ids_of(self, column)
        return ids if isinstance(ids, np.ndarray) else ids.to_numpy(zero_copy_only=False).astype(TEXT)

    def text(self, column: str) -> pd.Series | None:
        """Return a column as it is written, row by row; None if the table is not text."""
        cells = self.written.get(column)
        return None if cells is None else cells.to_pandas()

    def worded(self, column: str) -> pd.Series:
        """Return a column with markers such as NA as texts; empty cells stay missing."""
        values = self.frame[column]
        text = self.text(column) if values.isna().any() else None
        return values if text is None or (text[values.isna()] == "").all() else text.where(text != "")

    def keep_leading_zeros(self, column: str) -> pd.Series:
        """Return a column, as it is written if a number of it has leading zeros."""
        values = self.worded(column)
        text = self.text(column) if values.dtype.kind in "iuf" else None
        if text is None or not text.str.match(LEADING_ZEROS).any():
            return values
        return text.replace("", None)

    def check(self, bad: Any, column: str, wrong: str, remedy: str) -> None:
        """Raise DataError that names the first bad row of (rows,) and its cell in a column."""
        rows = np.flatnonzero(np.asarray(bad, bool))
        if self.bad is not None:
            for row in rows.tolist():
                self.bad.setdefault(row, f"{wrong} in column {column!r}")
        elif len(rows):
            first = int(rows[0])
            text = self.text(column)
            cell = (self.frame[column] if text is None else text).iloc[first]
            cell_text = repr(cell[:60]) if isinstance(cell, str) else str(cell)
            more = f" ({len(rows):,} such rows)" if len(rows) > 1 else ""
            raise DataError(
                f"{wrong}: got {cell_text} in {self.path}, column {column!r}, {self.place(first)}{more}. {remedy}"
            )

    def numbers(self, columns: Sequence[str], what: str, missing: str) -> np.ndarray:
        """Return columns of numbers as (rows, columns) float64; messages call them `what`.

        missing "error" rejects what is missing or infinite, "auto" what is infinite; others leave it as it is.
        """
        import pandas as pd

        if missing not in MISSING_OPTIONS:
            raise ConfigError(f"missing is one of {', '.join(MISSING_OPTIONS)}; got {missing!r}")
        words = [name for name in columns if not is_numeric(self.frame[name])]
        for name in words:
            column = self.frame[name]
            bad = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            declare = f"--read.columns '[{name}=category]' or '[{name}=drop]'"
            self.check(bad, name, f"a text among {what}", f"Correct it, or declare the column: {declare}.")
        texts = {name: pd.to_numeric(self.frame[name], errors="coerce") for name in columns if name in words}
        values = self.frame[list(columns)].assign(**texts).to_numpy(np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        large = ~bad & (np.abs(values) > _LARGEST)
        refused = bad if missing == "error" else np.isinf(values) & (missing == "auto")
        unusable = "NaN or infinities" if missing == "error" else "infinities"
        fill = "--read.missing mean, median or zero, with a column that marks them"
        for at, name in enumerate(columns):
            self.check(large[:, at], name, f"{what} beyond {_LARGEST:.1e}, the most of 32 bits", "Scale the column.")
            self.check(refused[:, at], name, f"{unusable} among {what}", f"Fill them in, or choose {fill}.")
        return values


def is_numeric(values: pd.Series) -> bool:
    """Return whether a column holds numbers, or nothing."""
    import pandas as pd

    return pd.api.types.is_numeric_dtype(values.dtype) or bool(values.isna().all())


# ---- reading ---------------------------------------------------------------------------------------------------
def read_table(
    source: Any,
    id_columns: Sequence[str] = (),
    num_ids: int = 1,
    header: bool | None = None,
    separator: str | None = None,
    what: str = "the table",
) -> Table:
    """Return a table of a file or in memory.

    The format of a file is found from its content, and so is the separator of text. Text has a line of names if that
    line names known columns, is not numeric above numeric ids or values, or, in a .csv, holds nothing that recurs as
    an id (then a note says so). Lines before it that start with # or % are skipped. Ids such as "007" or "NA" stay
    strings. A table in memory keeps its types; a named index is a column.

    Args:
        source: path of a .csv, .tsv, .txt (any of them .gz, or alone in a .zip), .parquet or .arrow file, or a table of
            pandas, pyarrow, polars or DuckDB, or a dictionary of columns.
        id_columns: names that mark a header, and whose columns hold ids.
        num_ids: how many leading columns hold ids if no name is known; 2 for edges and events.
    """
    if is_frame(source) or isinstance(source, Mapping):
        table = Table(_normalize_frame(source, what), what, None)
    else:
        path = Path(source)
        magic = first_bytes(path)
        _check_name(path, magic)
        with reading(path, "a table"):
            if magic.startswith(BINARY_TABLES):
                table = Table(_from_arrow(_read_arrow(path, magic), str(path)), path, None)
            else:
                table = _read_text(path, id_columns, num_ids, header, separator)
    if num_ids > 1 and not set(map(role_name, table.names)) & set(map(role_name, id_columns)):
        _check_no_matrix(table)
    return table


def _check_name(path: Path, magic: bytes) -> None:
    """Raise FormatError if a file is called Parquet, Arrow or gzip, but does not begin as these do."""
    for what, ends in _ENDS.items():
        if magic and path.name.lower().endswith(ends) and not magic.startswith(_MAGIC[what]):
            raise FormatError(
                f"{path} begins with {magic[:4]!r}, which is not {what}, as its name says; fetch it again, "
                "or rename it to what it is (.csv, .tsv, .txt)"
            )


def _read_text(
    path: Path, id_columns: Sequence[str], num_ids: int, header: bool | None, separator: str | None
) -> Table:
    text, keys = read_layout(path, id_columns, num_ids, header, separator)
    cells, notes = text.read()
    return table_of_text(text, cells, keys, text.notes + notes)


def table_of_text(
    text: Text, columns: pa.Table, keys: Collection[str], notes: tuple[str, ...] = (), rows: np.ndarray | None = None
) -> Table:
    """Return the table of cells of a text file; only an empty cell is missing in columns of keys."""
    written = {name: columns.column(name) for name in columns.column_names}
    names = [name for name in written if name]  # without a row number that pandas wrote
    frame = _frame({name: infer_types(written[name], [""] if name in keys else MISSING) for name in names})
    return Table(frame, text.path, text.first_line, rows, written, notes=notes, separator=text.separator)


def infer_types(column: pa.ChunkedArray, missing: Sequence[str]) -> Any:
    """Return a column of texts for pandas: whole numbers, else numbers, else truth values, else texts."""
    absent = pc.is_in(column, pa.array(missing, pa.string()))
    known = pc.if_else(absent, pa.scalar(None, pa.string()), column) if pc.any(absent).as_py() else column
    first = next((text for chunk in known.drop_null().chunks for text in chunk[:1].to_pylist()), None)
    if first is None:
        return np.full(len(column), np.nan)
    if re.match(r"[+-]?([0-9.]|inf)", first, re.IGNORECASE) and (numbers := _numbers_of(known)) is not None:
        return numbers
    if first.lower() in ("true", "false") and not known.null_count:
        truth = pc.index_in(pc.utf8_lower(known), pa.array(["false", "true"]))
        if not truth.null_count:
            return truth.cast(pa.bool_()).to_pandas()
    return known.to_pandas()


_DIGITS = b"0123456789+-.eE"


def _numbers_of(texts: pa.ChunkedArray) -> Any:
    import pandas as pd

    if not consist_of(texts, _DIGITS):  # pyarrow reads 0x10 and nan as numbers too
        words = texts.filter(pc.match_substring_regex(texts, "[^0-9+.eE-]"))
        if len(words.filter(pc.invert(pc.match_substring_regex(words, "(?i)^[+-]?inf(inity)?$")))):
            return None
    for kind in (pa.int64(), pa.uint64(), pa.float64()):
        try:
            return _column_of_arrow(pc.cast(texts, kind), "", "")
        except pa.ArrowInvalid:
            continue
    try:  # +5, or 1e400
        return pd.to_numeric(texts.to_pandas())
    except ValueError:
        return None


def read_batches(path: Path, columns: Sequence[str] | None, rows: int) -> Iterator[pa.Table]:
    """Yield rows of a Parquet file, some at a time; what dictionaries unpack to is bounded before it is unpacked."""
    with pq.ParquetFile(path) as file:
        facts, schema = file.metadata, file.schema_arrow
        # facts of a single column are not read: damaged ones end the process inside of pyarrow
        unpacked = sum(max(facts.row_group(i).total_byte_size, 0) for i in range(facts.num_row_groups))
        check_size(path, max(8 * max(1, facts.num_columns) * facts.num_rows, unpacked), min_bytes=MIN_TABLE_BYTES)
        check_names(schema.names, str(path))
    texts = [field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts, memory_map=False, pre_buffer=False) as file:
        size = 0
        for batch in file.iter_batches(rows, columns=columns, use_threads=False):
            for column in batch.columns:
                if types.is_dictionary(column.type) and not types.is_primitive(column.type.value_type):
                    lengths = pc.binary_length(column.dictionary).take(column.indices)
                    size += pc.sum(lengths).as_py() or 0
            check_size(path, size, what="its texts", min_bytes=MIN_TABLE_BYTES)
            yield pa.Table.from_batches([batch])


def _read_arrow(path: Path, magic: bytes) -> pa.Table:
    if magic.startswith(_MAGIC["Parquet"]):
        parts = [decode_dictionaries(part) for part in read_batches(path, None, _BATCH)]
        return pa.concat_tables(parts) if parts else pq.read_table(path)
    with open_regular(path) as file, pa.ipc.open_file(file) as reader:
        table = reader.read_all()
    table.validate(full=True)  # offsets of a damaged file would be followed anywhere
    check_size(path, table.nbytes)
    return table


def decode_dictionaries(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries."""
    plain = [f.with_type(f.type.value_type) if types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(plain))


def table_of_arrow(table: pa.Table, path: Path) -> Table:
    return Table(_from_arrow(decode_dictionaries(table), str(path)), path, None)


def _from_arrow(table: pa.Table, where: str) -> pd.DataFrame:
    names = [str(name) for name in table.column_names]
    check_names(names, where)
    kept = [at for at, name in enumerate(names) if not name.startswith(_PANDAS_INDEX)]
    return _frame({names[at]: _column_of_arrow(table.column(at), names[at], where) for at in kept})


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    """Return a frame with object names, because pandas changes warning filters to look up string names."""
    import pandas as pd

    names = pd.Index(list(columns), dtype=np.dtype(object))
    return pd.DataFrame(dict(enumerate(columns.values())), copy=False).set_axis(names, axis=1)


def _column_of_arrow(column: pa.ChunkedArray, name: str, where: str) -> Any:
    """Return a column for pandas. Integers with gaps stay integers: as floats, large ones would be rounded."""
    import pandas as pd

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:  # a fraction, or beyond 64 bits
            column = column.cast(pa.float64())
        kind = column.type
    if kind.num_fields or "binary" in str(kind):
        holds = "lists or records" if kind.num_fields else "bytes"
        raise FormatError(f"{where}: column {name!r} holds {holds}; a table has one text, number or date in each cell")
    if types.is_time(kind):
        column = column.cast(pa.string())
    if types.is_integer(kind) and column.null_count:
        whole = pd.Int64Dtype() if types.is_signed_integer(kind) else pd.UInt64Dtype()
        return column.to_pandas(types_mapper=lambda _: whole)
    return column.to_pandas()


def _check_no_matrix(table: Table) -> None:
    """Raise DataError if a table is an adjacency matrix: as many rows as columns, of the same names or symmetric."""
    frame, rows = table.frame, len(table.frame)
    corner = next(iter(table.written), None) == ""  # such a column of names is not in the frame
    in_front = not corner and len(table.names) == rows + 1 and rows > 1
    cells = frame.iloc[:, 1:] if in_front else frame
    if cells.shape[1] != rows or not all(kind.kind in "iufb" for kind in cells.dtypes if hasattr(kind, "kind")):
        return
    front = table.text("") if corner else frame.iloc[:, 0] if in_front else None
    named = rows > 1 and front is not None and _same(front, [str(name) for name in cells.columns])
    values = cells.to_numpy(np.float64, na_value=np.nan)
    if in_front and not named:
        return
    if not named and (rows < 4 or not (np.isin(values, (0, 1)).all() or np.array_equal(values, values.T))):
        return
    options = f"index_col={0 if corner or in_front else None}, sep={table.separator!r}"
    options += ", header=None" if table.written and table.names[0] == "column 0" else ""
    raise DataError(
        f"{table.path} looks like an adjacency matrix (as many rows as columns, "
        f"{'the same names' if named else 'numbers'}); give a list of edges: "
        f"frame = pandas.read_csv({Path(table.path).name!r}, {options}); "
        "frame.stack()[lambda s: s != 0].rename_axis(['source', 'target']).reset_index(name='weight')"
        f".to_csv('edges.csv', index=False), or scipy.sparse.csr_array(frame) in Python "
        f"({'frame.columns' if named else 'range(len(frame))'} are the nodes)"
    )


def _same(column: pd.Series, names: Sequence[str]) -> bool:
    return column.astype(str).str.strip().tolist() == [name.strip() for name in names]


# ---- in memory -------------------------------------------------------------------------------------------------
def is_frame(value: Any) -> bool:
    """Return whether a value is a table: of pandas, or one that gives its columns as Arrow does."""
    if hasattr(value, "iloc"):
        return hasattr(value, "columns")
    arrow = hasattr(value, "to_pandas") or hasattr(value, "__arrow_c_stream__")
    return arrow and (hasattr(value, "columns") or hasattr(value, "schema"))


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "detach") and hasattr(value, "numpy"))


def as_frame(value: Any) -> Any:
    """Return what can be read more than once as a table or array: columns and streams too; others as they are."""
    if hasattr(value, "read_next_batch"):
        return value.read_all()
    if is_frame(value) or not hasattr(value, "to_frame"):
        return value
    index = value.index
    if index.name is not None or index.dtype.kind not in "iu":
        return value.to_frame()
    if np.array_equal(index, np.arange(len(index))):
        return value.to_numpy()
    return value.rename_axis("id").to_frame("value" if value.name in (None, *IDS) else value.name)


def plain_array(value: Any, what: str) -> np.ndarray:
    """Return an array or a tensor as an array of numbers or texts."""
    array = dense_array(value, what)
    if array.dtype.kind in "OUST" and array.ndim == 1:
        return array if array.dtype.kind == "U" else np.array([str(cell) for cell in array.tolist()], object)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} is an array of {array.dtype}; give numbers, or a table")
    return array


def read_npy(path: Path) -> np.ndarray:
    """Return the array of a .npy file, memory-mapped."""
    array = load_npy(path, mmap=True)
    if array.dtype.kind not in "biufUS" or array.ndim not in (1, 2):
        raise DataError(f"{path} holds {array.dtype} of shape {array.shape}; a vector or a matrix is needed")
    return array


def write_frame(value: Any, path: Path, what: str) -> None:
    """Write a table in memory as a Parquet file that `read_table` reads as it reads the table itself."""
    frame = _normalize_frame(value, what)
    mixed = [name for name in frame.columns if frame[name].dtype == object]
    frame = frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in mixed})
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)


def _normalize_frame(frame: Any, what: str) -> pd.DataFrame:
    """Return a table of pandas with plain columns, rows from 0, and a named index as a column."""
    import pandas as pd

    if isinstance(frame, Mapping):
        frame = pd.DataFrame(frame)
    if not hasattr(frame, "iloc"):
        frame = _from_arrow(frame if isinstance(frame, pa.Table) else pa.table(frame), what)
    if frame.columns.nlevels > 1 or frame.index.nlevels > 1:
        which = "names of columns" if frame.columns.nlevels > 1 else "the index"
        raise DataError(f"{what}: {which} have several levels (MultiIndex); flatten them, e.g. by reset_index()")
    index = frame.index
    if index.name is not None:
        if index.name in frame.columns:
            raise DataError(f"{what}: the index and a column are both called {index.name!r}; rename one of them")
        frame = frame.reset_index()
    elif index.dtype.kind not in "iu" and len(index):
        raise DataError(
            f"{what}: its index holds {pd.api.types.infer_dtype(index)} such as {index[0]!r} and has no name; "
            "name it (rename_axis('id')) to use it as a column, or leave it out (reset_index(drop=True))"
        )
    if not len(frame.columns):
        raise DataError(f"{what} has no columns")
    numbered = [str(name) for name in frame.columns] == [str(place) for place in range(frame.shape[1])]
    names = [f"column {n}" if numbered or isinstance(n, (int, np.integer)) else str(n) for n in frame.columns]
    check_names(names, what)
    frame = frame.reset_index(drop=True)
    return _frame({name: _normalize_column(frame.iloc[:, at], name, what) for at, name in enumerate(names)})


def _normalize_column(column: pd.Series, name: str, what: str) -> Any:
    """Return a column of a table in memory as a column of a Parquet file is read; an empty text is a missing value."""
    try:
        cells = pa.array(column, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if column.dtype != object or any(isinstance(cell, bytes | list | dict | set | complex) for cell in column):
            raise DataError(
                f"{what}: column {name!r} holds {column.dtype} ({error}); a table has one text, number or date in each "
                "cell"
            ) from None
        cells = pa.array(column.map(str, na_action="ignore"), pa.string(), from_pandas=True)
    if types.is_string(cells.type) or types.is_large_string(cells.type):
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
    return _column_of_arrow(pa.chunked_array([cells] if isinstance(cells, pa.Array) else cells.chunks), name, what)


# ---- ids of a column, as the user wrote them -------------------------------------------------------------------
# Whole numbers are int64, whether written 5, +5 or 5.0, as tables with gaps have them. If one of a column is written
# with leading zeros or is not a number, the whole column is text. Spaces around an id are not part of it.
def ids_of(table: Table, column: str) -> Any:
    """Return a column of ids as int64, or as a string array of pyarrow."""
    values = table.worded(column)
    table.check(values.isna(), column, "an id is missing", "Fill it in or remove the row.")
    if values.dtype == object and len(values) and isinstance(values.iloc[0], Decimal):
        values = _numbers(values)
    numeric = values.dtype.kind in "iuf"
    if values.dtype.kind in "mM":
        raise DataError(f"{table.path}: column {column!r} holds {values.dtype}, which are not ids; write texts")
    cells = table.written.get(column)
    if cells is None:
        if not numeric:
            return _texts(table, column, pa.array(as_text(values), pa.large_string()))
    elif table.text_ids or not numeric or pc.any(pc.match_substring_regex(cells, f"^{LEADING_ZEROS}")).as_py():
        return _texts(table, column, cells)
    elif values.dtype.kind == "f":
        remedy = "Write ids in full (a spreadsheet: format the column as text), or as strings."
        cut = pc.match_substring(cells, "e", ignore_case=True)
        table.check(cut, column, "an id with an exponent, by which long ids lose digits", remedy)
    kind = float if values.dtype.kind == "f" else np.uint64 if values.max() > np.iinfo(np.int64).max else np.int64
    numbers = values.to_numpy(kind, na_value=0)
    for wrong, what, remedy in unusable_numbers(numbers):
        table.check(wrong, column, what, remedy)
        numbers = np.where(wrong, 0, numbers)
    return numbers.astype(np.int64)


def _numbers(decimals: pd.Series) -> pd.Series:
    """Return decimals as integers if all are whole, such as 2.00, else as floats."""
    try:
        whole = decimals.astype(np.int64)
    except (OverflowError, ValueError):
        return decimals.astype(float)
    return whole if (whole == decimals).all() else decimals.astype(float)


def unusable_numbers(numbers: np.ndarray) -> Iterator[tuple[np.ndarray, str, str]]:
    """Yield which integers or floats cannot be ids, what is wrong with them, and what to do."""
    remedy = "Write ids as integers without a decimal point, or as strings such as n7."
    if numbers.dtype.kind == "f":
        as_written = "--read.text_ids true takes ids as they are written (text_ids=True in Python)."
        yield ~(np.isfinite(numbers) & (numbers == np.floor(numbers))), "an id that is not an integer", as_written
        yield np.abs(numbers) >= EXACT, "an id beyond 2^53 beside fractions or gaps, where neighbors become one", remedy
    else:
        yield numbers > np.iinfo(np.int64).max, "an id beyond 2^63 - 1", remedy


def to_integer_ids(array: np.ndarray, what: str, place: Callable[[int], str]) -> np.ndarray:
    """Return integers or floats that are ids as int64."""
    for wrong, why, remedy in unusable_numbers(array):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"{what}: {why}: got {array[row]} in {place(row)}. {remedy}")
    return array.astype(np.int64)


def _texts(table: Table, column: str, texts: Any) -> Any:
    texts = texts.cast(pa.large_string())
    texts = texts.combine_chunks() if hasattr(texts, "chunks") else texts
    if not consist_of(texts, PRINTED):
        texts = pc.utf8_trim_whitespace(texts)
        quote = "Look for a quotation mark that is missing or too many."
        table.check(pc.match_substring_regex(texts, r"[\r\n]"), column, "an id over several lines", quote)
        separator = "Separate all cells by one sign, in a .tsv by tabs."
        table.check(pc.match_substring(texts, "\t"), column, "an id with a tab in it", separator)
    table.check(pc.equal(texts, ""), column, "an id is missing", "Fill it in or remove the row.")
    for wrong, what, remedy in unusable_ids(texts):
        table.check(wrong, column, what, remedy)
    if table.first_line is not None:
        _check_lines(table, column, texts)
    words = pc.is_in(texts, pa.array(NO_ID))
    replace(table, bad=None).check(words, column, "a word for nothing among ids", NO_ID_REMEDY)
    return texts


def _check_lines(table: Table, column: str, texts: Any) -> None:
    """Raise DataError for lines that are not rows: a repeated header, comments or missing-value markers."""
    for row in np.flatnonzero(pc.equal(texts, column))[:9].tolist():
        if all(str(cell).strip() == str(name) for name, cell in table.frame.iloc[row].items()):
            raise DataError(f"{table.path}: {table.place(row)} is the line of names once more; remove it")
    word, remark = pc.is_in(texts, pa.array(MISSING)), pc.match_substring_regex(texts, "^[#%]")
    odd = pc.or_(word, remark)
    if not pc.any(odd).as_py() or not pc.all(pc.or_(odd, pc.match_substring_regex(texts, f"^{INTEGER}$"))).as_py():
        return
    if not pc.all(odd).as_py():
        table.check(word, column, "a word for nothing among numbers", NO_ID_REMEDY)
        table.check(remark, column, "a remark among numbers", "Remarks stand before the table: remove it.")


def as_text(values: pd.Series) -> pd.Series:
    import pandas as pd

    # str would do, but pandas changes the warning settings of the process to look up what it means
    return values if values.dtype == "str" else values.astype(pd.StringDtype(na_value=np.nan))


def check_not_negative(table: Table, column: str, ids: Any) -> None:
    """Raise DataError for an id below 0, which could be meant as "no node"."""
    if isinstance(ids, np.ndarray) and ids.min(initial=0) < 0:
        table.check(ids < 0, column, "a negative id", "Ids are at least 0, or texts.")


def to_common_type(*columns: Any) -> list[Any]:
    """Return columns of ids, all as texts unless all are numbers."""
    if all(column is None or isinstance(column, np.ndarray) for column in columns):
        return list(columns)
    return [column if column is None or not isinstance(column, np.ndarray) else as_texts(column) for column in columns]


def node_ids(table: Table, column: str, named: str | None) -> tuple[Any, tuple[str, ...]]:
    """Return the ids of a table of nodes, which must be unique, and a note if nobody named their column."""
    unnamed = named is None and column == "column 0"
    try:
        ids = ids_of(table, column)
        try:
            Vocabulary(ids)
        except DataError as error:
            raise DataError(f"{table.path}: {error}") from None
    except DataError as error:
        raise DataError(f"{error}; {rows_are_nodes(table.path)}" if unnamed else str(error)) from None
    note = f"{table.path} has no line of names: 'column 0' was taken as the id of nodes; {rows_are_nodes(table.path)}"
    return ids, (note,) if unnamed else ()


def rows_are_nodes(path: Path | str) -> str:
    """Return the hint for tables without ids, in which rows are the nodes."""
    path = Path(path)
    return (
        f"if rows are the nodes 0..N-1, save it as .npy: numpy.save('{stem_of(path)}.npy', "
        f"pandas.read_csv('{path.name}', header=None).to_numpy())"
    )


def stem_of(path: Path) -> str:
    """Return a file's name before its first dot."""
    return path.name.split(".")[0]
