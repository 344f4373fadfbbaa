"""CSV, TSV, whitespace-separated text and Parquet to data frames, with ids kept as the user wrote them."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hopstate.data.readers.foreign import check_foreign_text, check_lengths, ragged
from hopstate.data.readers.ids import MISSING
from hopstate.data.readers.table import Table, Text
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, HopstateError
from hopstate.io.opening import ZIP, bounded, check_size, open_regular, reading
from hopstate.io.tensors import load_npy

if TYPE_CHECKING:
    import pandas as pd

IDS = ("id", "node", "node_id", "nodeid", "name")  # columns of node ids
SPACES = r"\s+"  # the separator that is any white space
SAMPLE = 1000  # lines looked at to tell separator, header and leading zeros
LONGEST = 1 << 24  # bytes of a line
WIDEST = 1 << 15  # columns
TAIL = 1 << 20  # bytes in which the last line is looked for


def read_table(path: Path, id_columns: Sequence[str] = (), num_ids: int = 1, header: bool | None = None) -> Table:
    """Return a table from a .csv, .tsv, .txt (any of them .gz) or .parquet file, told apart by content.

    The separator is read from the first lines. Text has a header where the first line names known columns, is not
    numeric above numeric ids or values, or, in a .csv, holds nothing that recurs as an id, which a note says. Lines
    before it that start with # or % are skipped. Ids such as "007" or "NA" stay strings.

    Args:
        path: the file.
        id_columns: names that mark a header, and whose columns hold ids.
        num_ids: how many leading columns hold ids where no name is known; 2 for edges and events.
        header: whether the first line of a text holds names of columns; None goes by what stands in it.

    Raises:
        MissingFileError: no such file.
        FormatError: neither text nor Parquet, empty, or lines of unequal length.
        DataError: a first line 0,1,... of edges or events, which may be names or a row.
    """
    with open_regular(path) as file:
        magic = file.read(4)
    _check_name(path, magic)
    with reading(path, "a table"):
        if magic == b"PAR1":
            return Table(read_parquet(path), path, None)
        return _read_text(path, id_columns, num_ids, header)


def _check_name(path: Path, magic: bytes) -> None:
    """Raise FormatError where a file is called Parquet or gzip, but does not begin as these do."""
    for ends, begins, what in (((".parquet", ".pq"), b"PAR1", "Parquet"), ((".gz",), b"\x1f\x8b", "gzip")):
        if magic and path.name.lower().endswith(ends) and not magic.startswith(begins):
            raise FormatError(
                f"{path} begins with {magic!r}, which is not {what}, as its name says; fetch it again, "
                "or rename it to what it is (.csv, .tsv, .txt)"
            )


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
        unpacked = sum(max(facts.row_group(i).total_byte_size, 0) for i in range(facts.num_row_groups))
        cells = 8 * max(1, facts.num_columns) * facts.num_rows
        check_size(path, max(cells, unpacked))
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


def _check_end(path: Path, separator: str, cells: int) -> None:
    """Raise FormatError where a file that is not packed stops within a line; a last line may lack its end alone."""
    with open_regular(path) as file:
        magic = file.read(4)
        packed = magic == ZIP or magic[:2] == b"\x1f\x8b"
        file.seek(max(0, file.seek(0, 2) - TAIL))
        _, newline, last = file.read().rpartition(b"\n")
    if packed or not newline or not last.strip() or last.lstrip()[:1] in (b"#", b"%"):
        return
    found = len(_fields(last.decode("utf-8", "replace"), separator))
    if found < cells:
        raise FormatError(
            f"{path} stops within its last line: {found} of {cells} cells, and no end of line; it was cut off, or is "
            "still being written. Fetch it again, or take that line out"
        )


def _read_text(path: Path, id_columns: Sequence[str], num_ids: int, header: bool | None) -> Table:
    text, first_line, keys = read_layout(path, id_columns, num_ids, header)
    with ragged(path):
        frame = text.frame(na_values={name: [""] if name in keys else list(MISSING) for name in text.names})
    notes = text.notes + (_short_lines(text) if len(frame) and frame.iloc[:, -1].isna().any() else ())
    known = {name.lower() for name in id_columns}
    if num_ids > 1 and not any(name.lower() in known for name in text.names):
        _check_no_matrix(frame, path)
    frame = frame.drop(columns=[name for name in text.names if not name])  # a row number that pandas wrote
    return Table(frame, path, first_line, source=text, notes=notes)


def _check_no_matrix(frame: pd.DataFrame, path: Path) -> None:
    """Raise DataError where a table is an adjacency matrix: as many rows as columns, of the same names or symmetric."""
    names, rows = [str(name) for name in frame.columns], len(frame)
    named = len(names) == rows + 1 and rows > 1 and _same(frame.iloc[:, 0], names[1:])
    if not named and len(names) != rows:
        return
    cells = frame.iloc[:, 1:] if named else frame
    if not all(kind.kind in "iufb" for kind in cells.dtypes if hasattr(kind, "kind")):
        return
    values = cells.to_numpy(np.float64, na_value=np.nan)
    if not named and (rows < 4 or not (np.isin(values, (0, 1)).all() or np.array_equal(values, values.T))):
        return
    start, names_of = ("0", "frame.columns") if named else ("None", "range(len(frame))")
    raise DataError(
        f"{path} looks like an adjacency matrix (as many rows as columns, {'the same names' if named else 'numbers'}); "
        f"give a list of edges: frame = pandas.read_csv('{path.name}', index_col={start}); "
        "frame.stack()[lambda s: s != 0].rename_axis(['source', 'target']).reset_index(name='weight')"
        f".to_csv('edges.csv', index=False), or scipy.sparse.csr_array(frame) in Python ({names_of} are the nodes)"
    )


def _same(column: pd.Series, names: Sequence[str]) -> bool:
    return column.astype(str).str.strip().tolist() == [name.strip() for name in names]


def read_layout(
    path: Path, id_columns: Sequence[str], num_ids: int, header: bool | None = None
) -> tuple[Text, int, list[str]]:
    """Return how a table lies in a text file, the line of its first row, and its columns of ids; see `read_table`."""
    with bounded(path, text=True) as file:
        lines = [line.decode("utf-8-sig") for line in _first_lines(file, path)]
    skip = next((i for i, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"), len(lines))
    remark = lines[0] if skip else ""
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise FormatError(f"{path} is empty: write it again, with a line a row")
    _check_table(path, remark, lines)
    separator = _separator(lines, path, remark)
    rows = [_fields(line, separator) for line in lines]
    check_lengths(path, rows, skip)
    numbered = _are_places(rows[0])
    if header is None:
        asked = numbered and num_ids == 2 and rows[0][0] and len(rows) > 1 and separator != SPACES and not remark
        if asked:
            raise DataError(
                f"{path}: its first line, {','.join(rows[0])}, may be numbers of columns, as pandas writes them, or a "
                "row like the others; say which: --read.header true or --read.header false (header in Python)"
            )
        found, sure = _has_header(rows, id_columns, num_ids, path)
        found |= numbered and not rows[0][0]
    else:
        found, sure = header, True
    width = len(rows[0]) if found else max(map(len, rows))
    names = [name.strip() for name in rows[0]] if found else [f"column {i}" for i in range(width)]
    if found and numbered:
        names = [name and f"column {name}" for name in names]
    lower = {name.lower() for name in id_columns}
    if num_ids == 1 and not names[0] and not lower & {name.lower() for name in names}:
        names[0] = "id"  # the index of a table of nodes
    if len(names) > WIDEST:
        raise FormatError(f"{path} has {len(names):,} columns; tables of at most {WIDEST:,} are read")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise FormatError(
            f"{path} has two columns of the same name, {', '.join(map(repr, twice))}; rename one in the first line"
        )
    _check_end(path, separator, len(names))
    keys = [name for name in names if name.lower() in lower] or [name for name in names if name][:num_ids]
    text = Text(
        path,
        tuple(names),
        {
            "sep": separator,
            "skiprows": skip + found,
            "keep_default_na": False,
            "low_memory": False,
            "encoding": "utf-8-sig",
            "skipinitialspace": separator != SPACES,
        },
        () if sure else (_unsure(rows[0], found, num_ids),),
    )
    return text, skip + found + 1, keys


def _check_table(path: Path, remark: str, lines: Sequence[str]) -> None:
    """Raise FormatError where a file's first remark or lines say that it is no table."""
    if remark.lower().startswith("%%matrixmarket"):
        raise FormatError(
            f"{path} is a matrix in Matrix Market's format, not a table; read it in Python, "
            f"scipy.io.mmread({path.name!r}), and give hopstate the matrix, or write its entries as a table "
            "source,target,weight"
        )
    check_foreign_text(path, lines)
    if lines[0].lstrip().startswith(("{", "[")):
        raise FormatError(f"{path} is JSON, not a table; write it as CSV or Parquet")


def _are_places(first: Sequence[str]) -> bool:
    """Return whether a line is 0,1,...,n-1, or the same behind an empty cell: the header of a table without names."""
    cells = [cell.strip() for cell in first]
    cells = cells[1:] if not cells[0] else cells
    return len(first) > 1 and cells == [str(place) for place in range(len(cells))]


def _unsure(first: Sequence[str], header: bool, num_ids: int) -> str:
    """Return the note on a first line of which nothing tells whether it holds names or a row."""
    what, other = ("names of columns", "false") if header else ("a row", "true")
    how = (
        f"--read.header {other} reads it otherwise"
        if num_ids == 2
        else "a first line of names such as id leaves no doubt"
    )
    return f"the first line was read as {what}: {', '.join(first[:10])}; nothing tells names from a row there ({how})"


def _short_lines(text: Text) -> tuple[str, ...]:
    """Return a note on lines with fewer cells than there are columns; none where there is none."""
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


def _first_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    for number in range(SAMPLE):
        line = file.readline(LONGEST)
        if not line:
            return
        if len(line) == LONGEST:
            raise FormatError(f"{path}: line {number + 1} is longer than {LONGEST:,} bytes; it is no table")
        yield line


def _separator(lines: list[str], path: Path, remark: str) -> str:
    """Return what cuts the first lines: tabs where all have as many, or in a .tsv; commas where all have some.

    Else it is the sign that cuts most of them into as many fields as the first, or white space. Where cells between
    tabs fall apart at spaces into as many numbers in each line, as KONECT writes them, white space cuts.
    """
    tabs, commas = ({line.count(sign) for line in lines} for sign in "\t,")
    tsv = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    if min(tabs) and (len(tabs) == 1 or tsv):
        parts = [line.split() for line in lines]
        more = {len(row) for row in parts} == {len(parts[0])} and len(parts[0]) > len(lines[0].rstrip("\n").split("\t"))
        numbers = more and all(_is_number(cell) for row in parts[1:] or parts for cell in row)
        return SPACES if more and (numbers or remark.startswith("%")) else "\t"
    head = lines[:20]
    for separator in (",", "\t", ";"):
        counts = [len(_fields(line, separator)) for line in head]
        if counts[0] > 1 and counts.count(counts[0]) >= 0.9 * len(counts):
            return separator
    return "," if min(commas) else SPACES if len(head[0].split()) > 1 else ","


def _fields(line: str, separator: str) -> list[str]:
    return line.split() if separator == SPACES else next(csv.reader([line.rstrip("\r\n")], delimiter=separator))


def _has_header(rows: list[list[str]], known: Sequence[str], num_ids: int, path: Path) -> tuple[bool, bool]:
    """Return whether the first line holds names of columns, and whether anything says so."""
    first, body = rows[0], rows[1:]
    names = [field.strip().lower() for field in first]
    if any(name in {k.lower() for k in known} for name in names):
        return True, True
    if any(_is_number(field) for field in first):
        return False, True
    for i in range(len(first)):
        column = [row[i] for row in body if len(row) > i]
        if column and all(_is_number(field) for field in column):
            return True, True  # words above numbers
    seen = {field for row in body for field in row[:num_ids]}
    if seen & set(first[:num_ids]):
        return False, True
    return ".csv" in path.name.lower(), not body


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_npy(path: Path) -> np.ndarray:
    """Return the array of a .npy file, memory-mapped.

    Raises:
        MissingFileError, UnreadableFileError, FormatError: as `hopstate.io.tensors.load_npy`.
        DataError: neither a vector nor a matrix, or of neither numbers nor strings.
    """
    array = load_npy(path, mmap=True)
    if array.dtype.kind not in "biufUS" or array.ndim not in (1, 2):
        raise DataError(f"{path} holds {array.dtype} of shape {array.shape}; a vector or a matrix is needed")
    return array


def check_unique(ids: np.ndarray, where: str) -> None:
    """Raise DataError, naming it, where an id stands more than once."""
    try:
        Vocabulary(ids)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def node_ids(table: Table, column: str, said: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the ids of a table of nodes, of which none stands twice, and a note where nobody named their column.

    Args:
        table, column: where they stand.
        said: the name that a user gave.

    Raises:
        DataError: no ids, or one twice; without names of columns, with what to do where rows are the nodes.
    """
    unnamed = said is None and column == "column 0"
    try:
        ids = table.ids(column)
        check_unique(ids, str(table.path))
    except DataError as error:
        raise DataError(f"{error}; {rows_are_nodes(table.path)}" if unnamed else str(error)) from None
    told = f"{table.path} has no line of names: 'column 0' was taken as the id of nodes; {rows_are_nodes(table.path)}"
    return ids, (told,) if unnamed else ()


def rows_are_nodes(path: Path) -> str:
    """Return what to do with a table without ids, whose rows are the nodes, for messages."""
    return (
        f"where rows are the nodes 0..N-1, save it as .npy: numpy.save('{stem_of(path)}.npy', "
        f"pandas.read_csv('{path.name}', header=None).to_numpy())"
    )


def given(*values: Any) -> list[Any]:
    """Return those that are not None."""
    return [value for value in values if value is not None]


def stem_of(path: Path) -> str:
    """Return a file's name before its first dot."""
    return path.name.split(".")[0]
