"""Which files a source has, which columns of them are read, and that all of them are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.readers.edge_list import ends_of
from hopstate.data.readers.event_tables import named_columns
from hopstate.data.readers.ids import MISSING
from hopstate.data.readers.node_sets import ONE, bipartite_of
from hopstate.data.readers.notes import say_nothing
from hopstate.data.readers.roles import SOURCES, TARGETS, TIMES, read_as
from hopstate.data.readers.tables import Table, is_numeric
from hopstate.data.readers.text import Text, read_layout
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, nearest
from hopstate.io.opening import exists, expanded, open_regular, reading, shown

if TYPE_CHECKING:
    import pyarrow as pa

ENDS = (".csv", ".tsv", ".txt", ".parquet", ".pq")
OPTIONS = (
    *("source_column", "target_column", "time_column", "kind_column", "label_column", "edge_columns", "time_unit"),
    *("header", "bipartite"),
)
EDGE_OPTIONS = (
    *("source_column", "target_column", "edge_columns", "undirected", "duplicates", "self_loops", "num_nodes"),
    *("header", "features", "labels", "id_column", "label_column", "split_column"),
    *("missing", "unlabelled", "task", "label_cells"),
)
_SAMPLE = 1000  # rows by which columns are told apart


@dataclass(frozen=True)
class Layout:
    """One file of the source.

    Args:
        path: the file.
        text: how it lies as text; None for Parquet.
        first_line: line, from 1, that row 0 stands in; None for Parquet.
    """

    path: Path
    text: Text | None
    first_line: int | None

    @property
    def skipped(self) -> int:
        """Lines before row 0."""
        return (self.first_line or 1) - 1

    def line(self, row: int) -> int:
        """Return how a row is numbered for a person: by its line, in Parquet by the row itself."""
        return row + (self.first_line or 0)


@dataclass(frozen=True)
class Columns:
    """The names of what is read.

    Args:
        source, target, time: of each event; edges have no time.
        label: or None.
        features: numbers, in this order.
        notes: sentences on columns that are not used.
        sets: see `hopstate.data.readers.node_sets.sets_by_name`; `ONE` where the user says so.
    """

    source: str
    target: str
    time: str | None
    label: str | None
    features: tuple[str, ...]
    notes: tuple[str, ...]
    sets: str = ONE

    @property
    def all(self) -> list[str]:
        """Every column that is read, each once."""
        some = [self.source, self.target, self.time, self.label, *self.features]
        return list(dict.fromkeys(name for name in some if name))


def files_of(source: str | Path) -> list[Path]:
    """Return the files of a source in the order of their names.

    Raises:
        MissingFileError: nothing there, or a folder without tables.
    """
    path = expanded(str(source))
    if not exists(path):
        raise MissingFileError(f"no file or folder called {shown(str(source))}")
    if not path.is_dir():
        return [path]
    found = [p for p in sorted(path.iterdir()) if p.is_file() and p.name.lower().removesuffix(".gz").endswith(ENDS)]
    found = [p for p in found if not p.name.startswith((".", "_"))]
    if not found:
        raise MissingFileError(f"{path} holds no tables ({', '.join(ENDS)}); name the folder or file that does")
    return found


def layouts(files: Sequence[Path], read: Mapping[str, Any], edges: bool = False) -> tuple[list[Layout], Columns]:
    """Return how each file lies, and the columns that all of them have.

    Args:
        files: of the source.
        read: of `OPTIONS`, or of `EDGE_OPTIONS`.
        edges: rows are edges without a time.

    Raises:
        ConfigError: an option that is not known.
        DataError: files of different columns or types of columns.
    """
    options = EDGE_OPTIONS if edges else OPTIONS
    for name in read:
        if name not in options:
            raise ConfigError(f"prepare has no option {name!r}{nearest(name, options)}; it has: {', '.join(options)}")
    given = [read[name] for name in options[: 2 if edges else 5] if read.get(name)]
    known = (SOURCES, TARGETS) if edges else (SOURCES, TARGETS, TIMES)
    found, first = [], None
    for path in files:
        with reading(path, "a table"):
            layout, table, types = _look(
                path, [*(name for names in known for name in names), *given], read.get("header")
            )
        if not len(table.frame):
            continue
        found.append(layout)
        if first is None:
            first = table, types, path
        elif (layout.text is None) != (found[0].text is None):
            one, other = (path, first[2]) if layout.text is None else (first[2], path)
            raise DataError(f"{one} is Parquet and {other} is text; write all files of a folder in one format")
        elif types != first[1]:
            raise DataError(
                f"{path} has other columns than {first[2]}: {_differ(types, first[1])}; bring them together"
            )
    if first is None:
        raise DataError(f"{files[0]} holds no {'edges' if edges else 'events'}")
    return found, (_edge_columns if edges else _columns)(first[0], read)


def _differ(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    absent = [name for name in theirs if name not in mine]
    more = [name for name in mine if name not in theirs]
    other = [f"{name!r} is {mine[name]} here, {theirs[name]} there" for name in mine if name in theirs]
    other = [text for text, name in zip(other, [n for n in mine if n in theirs]) if mine[name] != theirs[name]]
    parts = [f"no column {', '.join(map(repr, absent))}"] if absent else []
    parts += [f"{', '.join(map(repr, more))} more"] if more else []
    return "; ".join([*parts, *other]) or "they stand in another order"


def _columns(table: Table, read: Mapping[str, Any]) -> Columns:
    ends = tuple(read.get(name) for name in OPTIONS[:5])
    named, features, sets, notes = named_columns(table, ends, read.get("edge_columns"), read.get("time_unit") or "")
    source, target, time, kind, label = named
    if kind is not None:
        raise DataError(
            f"{table.path}: column {kind!r} holds kinds of events; prepare takes events that add. Leave the column out "
            "with --read.kind_column '', or read the file with read_events and write it with write_events"
        )
    assert source is not None and target is not None and time is not None  # noqa: PT018
    bipartite = bipartite_of(read.get("bipartite", "auto"))
    if bipartite is True:
        raise ConfigError(f"{table.path}: a store has one set of nodes; write ids such as u7 and i7, or read the table")
    return Columns(source, target, time, label, tuple(features), notes, sets if bipartite == "auto" else ONE)


def _edge_columns(table: Table, read: Mapping[str, Any]) -> Columns:
    """Return what `read_edge_list` takes of a table of edges."""
    given = read.get("edge_columns") or ()
    source, target = ends_of(table, read.get("source_column"), read.get("target_column"), given)
    rest = [str(name) for name in table.frame.columns if name not in (source, target)]
    chosen = read.get("edge_columns")
    if chosen is None:
        without, _ = say_nothing(table.frame, rest)
        chosen = [name for name in rest if is_numeric(table.frame[name]) and name not in without]
    for name in chosen:
        table.column(name, (), None, "edge_columns")
    left = [name for name in rest if name not in chosen]
    notes: tuple[str, ...] = (
        *table.notes,
        read_as(table, {"source": source, "target": target}, chosen),
    )
    notes += (f"columns {', '.join(left)} of edges were left out",) if left else ()
    return Columns(source, target, None, None, tuple(chosen), notes)


def _look(path: Path, known: Sequence[str], header: bool | None) -> tuple[Layout, Table, dict[str, str]]:
    """Return how a file lies, its first rows, and the types of its columns."""
    with open_regular(path) as file:
        parquet = file.read(4) == b"PAR1"
    if parquet:
        schema, frame = _parquet_head(path)
        return Layout(path, None, None), Table(frame, path, None), schema
    text, first_line, keys = read_layout(path, known, 2, header)
    frame = text.frame(
        na_values={name: [""] if name in keys else list(MISSING) for name in text.names},
        nrows=_SAMPLE,
        on_bad_lines="skip",
    )
    frame = frame.drop(columns=[name for name in text.names if not name])
    return (
        Layout(path, text, first_line),
        Table(frame, path, first_line, notes=text.notes),
        dict.fromkeys(map(str, frame.columns), "text"),
    )


def _parquet_head(path: Path) -> tuple[dict[str, str], Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise FormatError(f"{path} has two columns of the same name")
        plain = [field for field in schema if not field.type.num_fields]
        batch = next(file.iter_batches(_SAMPLE, columns=[field.name for field in plain]), None)
        frame = schema.empty_table().to_pandas() if batch is None else batch.to_pandas()
    return {field.name: type_name(field.type) for field in plain}, frame


def type_name(kind: pa.DataType) -> str:
    """Return what a type of Parquet is to a reader: texts are alike however they are packed."""
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return type_name(kind.value_type)
    return "text" if types.is_string(kind) or types.is_large_string(kind) else str(kind)


__all__ = ["EDGE_OPTIONS", "OPTIONS", "Columns", "Layout", "files_of", "layouts", "type_name"]
