"""A file as pieces of a fixed number of rows, each with the lines beside them that are no rows of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.prepare.layout import Columns, Layout, type_name
from hopstate.data.readers.text import Text
from hopstate.errors import FormatError
from hopstate.io.opening import bounded

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 22  # bytes of text in work at a time
Bad = tuple[int, str, str]  # line, reason, as it is written
Stray = tuple[int, str]  # a row of the file with another number of cells


@dataclass
class Piece:
    """Some rows of a file.

    Args:
        table: the columns that are read; cells of text as they are written.
        rows: (n,) the file's own numbers of the rows.
        bad: lines up to the last of these that have another number of cells.
    """

    table: pa.Table
    rows: np.ndarray
    bad: list[Bad] = field(default_factory=list)


def pieces_of(layout: Layout, columns: Columns, size: int) -> Iterator[Piece]:
    """Return the pieces of a file, of size rows each but for the last.

    Raises:
        FormatError: the file is damaged.
    """
    import pyarrow as pa

    strays: list[Stray] = []
    count, told = 0, -1
    try:
        tables = _parquet(layout, columns, size) if layout.text is None else _text(layout, columns, strays)
        for table in _cut(tables, size):
            rows = np.arange(count, count + len(table))
            at = np.sort([row for row, _ in strays])
            rows += np.searchsorted(at - np.arange(len(at)), rows, side="right")
            inside = [one for one in strays if told < one[0] < rows[-1]]
            yield Piece(table, rows, _named(layout, inside))
            count, told = count + len(table), int(rows[-1])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise FormatError(f"{layout.path} cannot be read: {str(error)[:200]}; mend it or take it away") from None
    if left := [one for one in strays if one[0] > told]:
        empty = pa.table({name: pa.array([], pa.string()) for name in columns.all})
        yield Piece(empty, np.empty(0, int), _named(layout, left))


def _named(layout: Layout, strays: list[Stray]) -> list[Bad]:
    return [(layout.line(row), "has another number of cells", text) for row, text in sorted(strays)]


def _cut(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Return the same rows in tables of size rows each, the last shorter."""
    import pyarrow as pa

    held: list[Any] = []
    count = 0
    for table in tables:
        held.append(table)
        count += len(table)
        while count >= size:
            whole = pa.concat_tables(held)
            yield whole.slice(0, size)
            held, count = [whole.slice(size)], count - size
    if count:
        yield pa.concat_tables(held)


def _parquet(layout: Layout, columns: Columns, size: int) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(layout.path, memory_map=False, pre_buffer=False) as file:
        for batch in file.iter_batches(min(size, 1 << 16), columns=columns.all, use_threads=False):
            table = pa.Table.from_batches([batch])
            texts = [field.name for field in table.schema if type_name(field.type) == "text"]
            yield table.cast(pa.schema([f.with_type(pa.string()) if f.name in texts else f for f in table.schema]))


def _text(layout: Layout, columns: Columns, strays: list[Stray]) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.csv as csv

    assert layout.text is not None
    separator, names = layout.text.options["sep"], list(layout.text.names)
    if separator == r"\s+":
        yield from _spaced(layout.text, columns)
        return

    def stray(row: csv.InvalidRow) -> str:
        strays.append((row.number - 1 - layout.skipped, row.text))
        return "skip"

    own = [name or f"\0{place}" for place, name in enumerate(names)]
    with bounded(layout.path, text=True) as file:
        reader = csv.open_csv(
            file,
            csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=own, skip_rows=layout.skipped),
            csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=stray),
            csv.ConvertOptions(column_types=dict.fromkeys(own, pa.string()), include_columns=columns.all),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _spaced(text: Text, columns: Columns) -> Iterator[pa.Table]:
    """Return the rows of a text whose cells stand apart by spaces."""
    import pandas as pd
    import pyarrow as pa

    plain: dict[str, Any] = {
        "header": None,
        "names": list(text.names),
        "index_col": False,
        "dtype": str,
        "na_filter": False,
    }
    schema = pa.schema([(name, pa.string()) for name in columns.all])
    with bounded(text.path, text=True) as file:
        try:
            for frame in pd.read_csv(file, usecols=columns.all, chunksize=1 << 16, **plain, **text.options):
                yield pa.Table.from_pandas(frame[columns.all], schema, preserve_index=False)
        except pd.errors.ParserError as error:
            raise FormatError(f"{text.path}: {str(error)[:200]}; mend those lines") from None
