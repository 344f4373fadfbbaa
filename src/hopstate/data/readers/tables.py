"""Tables from files and from memory: CSV, TSV, Parquet, Arrow and DataFrames, with ids as the user wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.preprocessing import MISSING as MISSING_OPTIONS
from hopstate.data.readers.ids import MISSING, ids_of
from hopstate.data.readers.text import Text, check_names, named_lines, read_layout, short_lines
from hopstate.data.validate import dense_array
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, nearest
from hopstate.io.opening import check_size, first_bytes, open_regular, reading
from hopstate.io.tensors import load_npy

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

IDS = ("id", "node", "node_id", "nodeid", "name")  # columns of node ids
SEPARATORS = "cells are separated by a comma, a tab, a semicolon or spaces"
_LARGEST = float(np.finfo(np.float32).max)
_PANDAS_INDEX = "__index_level_"  # beginning of the columns in which pandas writes an index without a name
_MAGIC = {"Parquet": b"PAR1", "Arrow": b"ARROW1", "gzip": b"\x1f\x8b"}
_ENDS = {"Parquet": (".parquet", ".pq"), "Arrow": (".arrow", ".feather"), "gzip": (".gz",)}
BINARY_TABLES = (_MAGIC["Parquet"], _MAGIC["Arrow"])  # first bytes of tables that are no text


@dataclass(frozen=True)
class Table:
    """A table and where it came from."""

    frame: pd.DataFrame
    path: Path | str  # or how messages call a table in memory
    first_line: int | None  # line of the file, from 1, of row 0; None if the table has no lines
    rows: np.ndarray | None = None  # the file's own rows of those in frame, if some were left out
    source: Text | None = None  # the layout of a text file
    text_ids: bool = False  # ids are texts even if all of a column look like numbers
    filled: Mapping[str, pd.Series] = field(default_factory=dict)  # columns as written, but for cells filled in
    notes: tuple[str, ...] = ()  # on how the file was read

    @cached_property
    def names(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def origin(self, rows: np.ndarray) -> np.ndarray:
        """Return the file's own numbers of rows of the frame."""
        return rows if self.rows is None else self.rows[rows]

    def place(self, row: int) -> str:
        """Return "row 3 (line 5)" for messages."""
        row = int(self.origin(np.asarray(row)))
        return f"row {row}" if self.first_line is None else f"row {row} (line {row + self.first_line})"

    def column(self, given: str | None, known: Sequence[str], otherwise: int | None, option: str) -> str | None:
        """Return the name of a column: the one given, else one of the known names, else the one at a position."""
        names = self.names
        if given is not None:
            if given not in names:
                hint = nearest(given, names)
                raise DataError(f"{self.path} has no column {given!r} ({option}){hint}; it has: {', '.join(names)}")
            return given
        found = next((name for want in known for name in names if name.lower() == want), None)
        if found is not None or otherwise is None:
            return found
        if otherwise >= len(names):
            raise self.too_narrow(option)
        return names[otherwise]

    def too_narrow(self, option: str) -> FormatError:
        hint = f"; {SEPARATORS}" if len(self.names) == 1 else ""
        have = f"{len(self.names)} columns ({', '.join(self.names)})"
        return FormatError(f"{self.path} has only {have}; {option} is missing{hint}")

    def ids(self, column: str) -> np.ndarray:
        """Return a column of ids as int64 or str; see `hopstate.data.readers.ids.ids_of`."""
        return ids_of(self, column, text_ids=self.text_ids)

    def text(self, column: str) -> pd.Series | None:
        """Return a column as it is written, row by row; None if the table is not text."""
        if column in self.filled:
            return self.filled[column]
        if self.source is None:
            return None
        found = self.source.column(column)
        return found if self.rows is None else found.iloc[self.rows].reset_index(drop=True)

    def worded(self, column: str) -> pd.Series:
        """Return a column in which words for a missing value, such as NA, are texts; what is empty stays missing."""
        values = self.frame[column]
        if self.source is None or not values.isna().any() or (text := self.text(column)) is None:
            return values
        text = text.str.strip()
        words = values.isna() & (text != "")
        return text.where(text != "") if words.any() else values

    def kept(self, column: str) -> pd.Series:
        """Return a column, as it is written if a number of it has leading zeros."""
        values = self.worded(column)
        if values.dtype.kind not in "iuf" or not self.leading_zeros():
            return values
        text = self.text(column)
        zeros = text is not None and bool(text.str.match(r"\s*[+-]?0[0-9]").any())
        return text.str.strip().replace("", None) if text is not None and zeros else values

    def leading_zeros(self) -> bool:
        """Return whether anything in the file may be a number with leading zeros."""
        return self.source is not None and self.source.leading_zeros

    def check(self, bad: Any, column: str, wrong: str, remedy: str) -> None:
        """Raise DataError that names the first of the bad rows (rows,) with what stands in a column there."""
        rows = np.flatnonzero(np.asarray(bad, bool))
        if len(rows):
            first = int(rows[0])
            text = self.text(column)
            cell = (self.frame[column] if text is None else text).iloc[first]
            shown = repr(cell.strip()[:60]) if isinstance(cell, str) else str(cell)
            more = f" ({len(rows):,} such rows)" if len(rows) > 1 else ""
            raise DataError(
                f"{wrong}: got {shown} in {self.path}, column {column!r}, {self.place(first)}{more}. {remedy}"
            )

    def numbers(self, columns: Sequence[str], what: str, nan: str, missing: str) -> np.ndarray:
        """Return columns of numbers as (rows, columns) float64.

        Args:
            columns: their names.
            what: how messages call them.
            nan: "zero" puts 0 for what is missing or infinite.
            missing: "error" rejects what is missing or infinite, "auto" what is infinite; others leave it as it is.
        """
        import pandas as pd

        if nan not in ("error", "zero"):
            raise ConfigError(f"nan is 'error' or 'zero'; got {nan!r}")
        if missing not in MISSING_OPTIONS:
            raise ConfigError(f"missing is one of {', '.join(MISSING_OPTIONS)}; got {missing!r}")
        for name in columns:
            column = self.frame[name]
            if not is_numeric(column):
                bad = pd.to_numeric(column, errors="coerce").isna() & column.notna()
                declare = f"--read.columns '[{name}=category]' or '[{name}=drop]'"
                self.check(bad, name, f"a text among {what}", f"Correct it, or declare the column: {declare}.")
        values = self.frame[list(columns)].to_numpy(np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        if nan == "zero":
            return np.where(bad, 0, values)
        large = ~bad & (np.abs(values) > _LARGEST)
        refused = bad if missing == "error" else np.isinf(values) & (missing == "auto")
        unusable = "NaN or infinities" if missing == "error" else "infinities"
        fill = "--read.missing mean, median or zero, with a column that marks them"
        zero = "" if what == "event features" else ", or --read.nan zero"
        for at, name in enumerate(columns):
            self.check(large[:, at], name, f"{what} beyond {_LARGEST:.1e}, the most of 32 bits", "Scale the column.")
            self.check(refused[:, at], name, f"{unusable} among {what}", f"Fill them in, or choose {fill}{zero}.")
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
        header: whether the first line of a text holds names of columns; None finds it from the content.
        what: how messages call a table in memory.
    """
    if is_frame(source) or isinstance(source, Mapping):
        table = Table(_plain(source, what), what, None)
    else:
        path = Path(source)
        magic = first_bytes(path)
        _check_name(path, magic)
        with reading(path, "a table"):
            if magic.startswith(BINARY_TABLES):
                table = Table(_from_arrow(_read_arrow(path, magic), str(path)), path, None)
            else:
                table = _read_text(path, id_columns, num_ids, header)
    known = {name.lower() for name in id_columns}
    if num_ids > 1 and not any(name.lower() in known for name in table.names):
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


def _read_text(path: Path, id_columns: Sequence[str], num_ids: int, header: bool | None) -> Table:
    text, first_line, keys = read_layout(path, id_columns, num_ids, header)
    with named_lines(path):
        frame = text.frame(na_values={name: [""] if name in keys else list(MISSING) for name in text.names})
    notes = text.notes + (short_lines(text) if len(frame) and frame.iloc[:, -1].isna().any() else ())
    frame = frame.drop(columns=[name for name in text.names if not name])  # a row number that pandas wrote
    return Table(frame, path, first_line, source=text, notes=notes)


def _read_arrow(path: Path, magic: bytes) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if magic.startswith(_MAGIC["Arrow"]):
        with open_regular(path) as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        table.validate(full=True)  # offsets of a damaged file would be followed anywhere
        check_size(path, table.nbytes)
        return table
    with pq.ParquetFile(path) as file:
        facts = file.metadata
        # facts of a single column are not read: damaged ones end the process inside of pyarrow
        unpacked = sum(max(facts.row_group(i).total_byte_size, 0) for i in range(facts.num_row_groups))
        check_size(path, max(8 * max(1, facts.num_columns) * facts.num_rows, unpacked))
        check_names(file.schema_arrow.names, str(path))
        return file.read()


def _from_arrow(table: pa.Table, where: str) -> pd.DataFrame:
    names = [str(name) for name in table.column_names]
    check_names(names, where)
    kept = [at for at, name in enumerate(names) if not name.startswith(_PANDAS_INDEX)]
    return _frame({names[at]: _column_of_arrow(table.column(at), names[at], where) for at in kept})


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    """Return a frame whose names are objects: to look up texts, pandas changes the process's warning settings."""
    import pandas as pd

    names = pd.Index(list(columns), dtype=np.dtype(object))
    return pd.DataFrame(dict(enumerate(columns.values()))).set_axis(names, axis=1)


def _column_of_arrow(column: pa.ChunkedArray, name: str, where: str) -> Any:
    """Return a column for pandas. Integers with gaps stay integers: as floats, large ones would be rounded."""
    import pandas as pd
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], kind.value_type)
    column = whole_decimals(column)
    kind = column.type
    if kind.num_fields or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        holds = "bytes" if not kind.num_fields else "lists or records"
        raise FormatError(f"{where}: column {name!r} holds {holds}; a table has one text, number or date in each cell")
    if pa.types.is_integer(kind) and column.null_count:
        whole = pd.Int64Dtype() if pa.types.is_signed_integer(kind) else pd.UInt64Dtype()
        return column.to_pandas(types_mapper=lambda _: whole)
    return column.to_pandas()


def whole_decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals that are all whole, such as 2.00, as the integers that other columns have; others unchanged."""
    import pyarrow as pa

    if not pa.types.is_decimal(column.type):
        return column
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # a fraction, or beyond 64 bits
        return column


def _check_no_matrix(table: Table) -> None:
    """Raise DataError if a table is an adjacency matrix: as many rows as columns, of the same names or symmetric."""
    frame, rows, text = table.frame, len(table.frame), table.source
    corner = text is not None and text.names[0] == ""  # such a column of names is not in the frame
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
    options = f"index_col={0 if corner or in_front else None}"
    if text is not None and text.options["sep"] != ",":
        options += f", sep={text.options['sep']!r}"
    if text is not None and table.names[0] == "column 0":
        options += ", header=None"
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
    if array.dtype.kind in "OUS" and array.ndim == 1:
        return array.astype(str)
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = _plain(value, what)
    mixed = [name for name in frame.columns if frame[name].dtype == object]
    frame = frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in mixed})
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)


def _plain(frame: Any, what: str) -> pd.DataFrame:
    """Return a table of pandas with plain columns, rows from 0, and a named index as a column."""
    import pandas as pd
    import pyarrow as pa

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
    return _frame({name: _plain_column(frame.iloc[:, at], name, what) for at, name in enumerate(names)})


def _plain_column(column: pd.Series, name: str, what: str) -> pd.Series:
    import pandas as pd
    import pyarrow as pa

    kind: Any = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        column = column.astype(kind.categories.dtype)
    elif isinstance(kind, pd.ArrowDtype) or (
        isinstance(kind, pd.api.extensions.ExtensionDtype) and kind.kind in "iufb"
    ):
        arrow = pa.Table.from_pandas(column.to_frame("column"), preserve_index=False).column(0)
        column = pd.Series(_column_of_arrow(arrow, name, what))
    if column.dtype.kind == "c":
        raise DataError(f"{what}: column {name!r} holds complex numbers; give their parts as two columns")
    if column.dtype == object:
        column = _of_objects(column, name, what)
    if column.dtype.kind != "O":
        return column
    empty = (column == "").fillna(False).to_numpy(bool)  # as in a file, an empty text is a missing value
    return column.mask(empty) if empty.any() else column


def _of_objects(column: pd.Series, name: str, what: str) -> pd.Series:
    import pandas as pd

    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in ("bytes", "mixed"):
        for row, cell in enumerate(column):  # few: most mixtures are called by what they mix
            if isinstance(cell, bytes) or pd.api.types.is_list_like(cell):
                raise DataError(
                    f"{what}: column {name!r} holds a {type(cell).__name__} in row {row}; a table has one text, "
                    "number or date in each cell"
                )
    if inferred == "integer" and column.isna().any():
        return column.astype(pd.Int64Dtype())
    if column.isna().all():
        return column.astype(np.dtype(np.float64))
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return pd.to_numeric(column)
    return column.infer_objects()


def node_ids(table: Table, column: str, named: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the ids of a table of nodes, which must be unique, and a note if nobody named their column."""
    unnamed = named is None and column == "column 0"
    try:
        ids = table.ids(column)
        try:
            Vocabulary(ids)
        except DataError as error:
            raise DataError(f"{table.path}: {error}") from None
    except DataError as error:
        raise DataError(f"{error}; {rows_are_nodes(table.path)}" if unnamed else str(error)) from None
    note = f"{table.path} has no line of names: 'column 0' was taken as the id of nodes; {rows_are_nodes(table.path)}"
    return ids, (note,) if unnamed else ()


def rows_are_nodes(path: Path | str) -> str:
    """Return what to do with a table without ids whose rows are the nodes, for messages."""
    path = Path(path)
    return (
        f"if rows are the nodes 0..N-1, save it as .npy: numpy.save('{stem_of(path)}.npy', "
        f"pandas.read_csv('{path.name}', header=None).to_numpy())"
    )


def given(*values: Any) -> list[Any]:
    """Return those that are not None."""
    return [value for value in values if value is not None]


def stem_of(path: Path) -> str:
    """Return a file's name before its first dot."""
    return path.name.split(".")[0]
