"""The files of a source: which columns are read, and their rows as typed Parquet with bad rows apart.

Cells of a text file are staged as they are written, but for features: what ids, times and labels are is known only
once all of them were read, and then the engine converts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hopstate.data.dates import zone_of
from hopstate.data.labels import is_unlabeled, split_column_names
from hopstate.data.readers.edge_list import endpoint_columns, feature_columns
from hopstate.data.readers.encode import category_texts
from hopstate.data.readers.event_tables import ROLES, EventTableOptions, assign_roles, text_column_notes
from hopstate.data.readers.read_graph import TABLE_OPTIONS
from hopstate.data.readers.roles import ONE, SOURCES, TARGETS, TIMES, bipartite_of, roles_note
from hopstate.data.readers.tables import (
    INTEGER,
    Table,
    as_text,
    ids_of,
    is_numeric,
    read_batches,
    table_of_arrow,
    table_of_text,
)
from hopstate.data.readers.text import Text, read_layout
from hopstate.data.readers.times import describe_times, holds_dates, join_date_and_clock, times_of
from hopstate.errors import ConfigError, DataError, MissingFileError, nearest
from hopstate.io.files import replace_file, write_text
from hopstate.io.opening import exists, expand_home, first_bytes, reading, shorten

ENDS = (".csv", ".tsv", ".txt", ".parquet", ".pq")
OPTIONS = (*ROLES, "edge_columns", "time_unit", "time_format", "header", "separator", "bipartite", "unlabeled_value")
EDGE_OPTIONS = tuple(
    name
    for name in (*TABLE_OPTIONS, "undirected", "duplicates", "self_loops", "order")
    if name not in ("columns", "text_ids", "bipartite")
)
LARGEST = float(np.finfo(np.float32).max)
_SAMPLE = 1 << 16  # bytes of text, or rows, that tell what columns hold


@dataclass(frozen=True)
class Columns:
    """The columns that are read; edges have no time."""

    source: str
    target: str
    time: str | None
    label: str | None
    features: tuple[str, ...]
    notes: tuple[str, ...]
    sets: str = ONE  # see `hopstate.data.readers.roles.bipartite_by_name`
    dated: bool = False  # times are dates
    time_format: str = ""  # of dates, as strptime has it; "" for ISO dates
    unlabeled_value: str | None = None  # see `hopstate.data.labels.LabelOptions`
    relation: str | None = None

    @property
    def names(self) -> list[str]:
        """Every column that is read, each once."""
        names = [self.source, self.target, self.time, self.label, self.relation, *self.features]
        return list(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True)
class File:
    """One file of the source."""

    path: Path
    text: Text | None  # its layout; None for Parquet
    keys: tuple[str, ...] = ()  # columns of ids of a text

    def tables(
        self, columns: Sequence[str] | None, size: int, uneven: list[tuple[int, str]]
    ) -> Iterator[tuple[Table, np.ndarray]]:
        """Yield rows as tables, and the numbers of these rows; uneven is filled as `Text.batches` fills it."""
        count = 0
        with reading(self.path, "a table"):
            if self.text is not None:
                for cells, rows in self.text.batches(uneven, columns, max(1 << 16, 8 * size)):
                    yield table_of_text(self.text, cells, self.keys, rows=rows), rows
                return
            for batch in _prefetched(read_batches(self.path, columns, size)):
                yield table_of_arrow(batch, self.path), np.arange(count, count + len(batch))
                count += len(batch)

    def line(self, row: int) -> int:
        return row + (0 if self.text is None else self.text.first_line)


def _prefetched(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield batches, the next of which is decoded in another thread meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


# ---- files and columns ------------------------------------------------------------------------------------------
def files_of(source: str | Path) -> list[Path]:
    path = expand_home(str(source))
    if not exists(path):
        raise MissingFileError(f"no file or folder called {shorten(str(source))}")
    if not path.is_dir():
        return [path]
    found = [p for p in sorted(path.iterdir()) if p.is_file() and p.name.lower().removesuffix(".gz").endswith(ENDS)]
    found = [p for p in found if not p.name.startswith((".", "_"))]
    if not found:
        raise MissingFileError(f"{path} has no tables ({', '.join(ENDS)}); name the folder or file that does")
    return found


def open_source(paths: Sequence[Path], read: Mapping[str, Any], *, edges: bool) -> tuple[list[File], Columns]:
    """Return the files that have rows, and the columns of all of them."""
    options = EDGE_OPTIONS if edges else OPTIONS
    for name in read:
        if name not in options:
            raise ConfigError(f"prepare has no option {name!r}{nearest(name, options)}; it has: {', '.join(options)}")
    given = [read[name] for name in ROLES[: 2 if edges else 6] if read.get(name)]
    known = [*SOURCES, *TARGETS, *(() if edges else TIMES), *given]
    samples = []
    for path in paths:
        with reading(path, "a table"):
            file = File(path, None)
            if not first_bytes(path).startswith(b"PAR1"):
                text, keys = read_layout(path, known, 2, read.get("header"), read.get("separator"))
                file = File(path, text, tuple(keys))
            first = next(file.tables(None, _SAMPLE // 8, []), None)
        if first is not None and len(first[0].frame):
            samples.append((file, first[0]))
    if not samples:
        raise DataError(f"{paths[0]} has no {'edges' if edges else 'events'}")
    columns = (_edge_columns if edges else _event_columns)(samples[0][1], read)
    schema, *others = (_Schema.of(file, table, columns) for file, table in samples)
    for other in others:
        _check_same_schema(schema, other, columns)
    return [file for file, _ in samples], columns


@dataclass(frozen=True)
class _Schema:
    path: Path
    text: bool
    types: dict[str, str]  # by column
    integers: tuple[bool | None, bool | None]  # of the sources and targets; see `_ids_are_integers`
    dated: bool

    @classmethod
    def of(cls, file: File, table: Table, columns: Columns) -> _Schema:
        types = {name: "text" if table.written else str(table.frame[name].dtype) for name in table.names}
        source, target = (name in types and _ids_are_integers(table, name) for name in (columns.source, columns.target))
        undeclared = columns.time in types and not columns.time_format
        dated = undeclared and holds_dates(table, str(columns.time))
        return cls(file.path, file.text is not None, types, (source, target), dated)


def _check_same_schema(one: _Schema, two: _Schema, columns: Columns) -> None:
    """Raise DataError if a file cannot follow the first one in one table."""
    if one.text != two.text:
        text, parquet = (one.path, two.path) if one.text else (two.path, one.path)
        raise DataError(f"{parquet} is Parquet and {text} is text; write all files of a folder in one format")
    if list(one.types.items()) != list(two.types.items()):
        names = [name for name in {**one.types, **two.types} if one.types.get(name) != two.types.get(name)]
        raise DataError(f"{two.path} has other columns than {one.path}: {', '.join(names) or 'another order'}")
    for name, kinds in zip((columns.source, columns.target), zip(one.integers, two.integers), strict=True):
        if set(kinds) == {True, False}:
            raise DataError(f"column {name!r} has numbers in one of {one.path} and {two.path}, and texts in the other")
    if one.dated != two.dated:
        raise DataError(f"times are dates in one of {one.path} and {two.path}, and numbers in the other")


def _ids_are_integers(table: Table, name: str) -> bool | None:
    """Return whether all ids of a sample are whole numbers; None if some are."""
    cells = table.frame[name].dropna()
    if is_numeric(cells):
        return True
    whole = cells.astype(str).str.strip().str.fullmatch(INTEGER)
    return bool(whole.all()) if whole.all() or not whole.any() else None


def _event_columns(table: Table, read: Mapping[str, Any]) -> Columns:
    chosen = {name: read.get(name) for name in (*ROLES, "edge_columns")}
    if split_column_names(table, chosen["label_column"]):
        raise ConfigError(f"{table.path}: a store holds one column of labels, not several; read the table in memory")
    if chosen["node_type_column"] is not None:
        raise ConfigError("prepare takes no node_type_column. Read the table in memory, and save it (EventStream.save)")
    roles = assign_roles(table, EventTableOptions(**chosen), {})  # type: ignore[arg-type]
    form = read.get("time_format") or ""
    if clock := () if form else join_date_and_clock(table, roles.time)[1]:
        raise DataError(f"{table.path}: {clock[0]}: prepare takes times of one column; write them as one, with a T")
    if roles.kind is not None:
        raise DataError(
            f"{table.path}: column {roles.kind!r} has kinds of events; prepare takes events that add. Leave the column "
            "out with --read.kind_column '', or read the file with read_events and save it (EventStream.save)"
        )
    dated = bool(form) or holds_dates(table, roles.time)
    when = table.frame[roles.time]
    numbers = when.dropna().to_numpy(np.float64) if is_numeric(when) else np.empty(0)
    times = describe_times(numbers, read.get("time_unit") or "", "dates" if dated else "")
    used = (roles.source, roles.target, roles.time, roles.relation, *roles.labels, *roles.features)
    left = text_column_notes(table, used)
    notes = (roles.roles_note(table, times, roles.sets), *table.notes, *roles.notes, *left)
    bipartite = bipartite_of(read.get("bipartite", "auto"))
    if bipartite is True:
        raise ConfigError(f"{table.path}: a store has one set of nodes; write ids such as u7 and i7, or read the table")
    sets = roles.sets if bipartite == "auto" else ONE
    label = next(iter(roles.labels), None)
    unlabeled_value = read.get("unlabeled_value")
    return Columns(
        roles.source, roles.target, roles.time, label, roles.features, notes, sets, dated, form, unlabeled_value,
        roles.relation,
    )  # fmt: skip


def _edge_columns(table: Table, read: Mapping[str, Any]) -> Columns:
    chosen = read.get("edge_columns")
    ends = endpoint_columns(table, read.get("source_column"), read.get("target_column"), chosen or ())
    features, notes = feature_columns(table, ends, chosen, {})
    roles = roles_note(table, {"source": ends[0], "target": ends[1]}, features, features_name="edge features")
    return Columns(*ends, None, None, tuple(features), (roles, *table.notes, *notes))


# ---- rows -------------------------------------------------------------------------------------------------------
def stage(file: File, columns: Columns, start: int, out: Path, size: int, say: Callable[[str], None]) -> None:
    """Write the valid rows of a file to OUT.parquet and the invalid ones to OUT.bad, then statistics to OUT.json.

    The columns are position, src, dst, t, label, f0, f1, ...; start is the position of row 0.
    """
    facts: dict[str, Any] = {"path": str(file.path), "rows": 0, "count": 0, "bad": 0, "first_bad": None, "zones": []}
    facts |= {"text": file.text is not None, "least": None, "most": None, "label_type": ""}
    uneven: list[tuple[int, str]] = []

    def write(part: Path) -> None:
        writer = None
        with out.with_suffix(".bad").open("w", encoding="utf-8") as bad:
            told = 0
            for table, rows in file.tables(columns.names, size, uneven):
                with reading(file.path, "a table"):
                    good, lines = _batch(table, columns, facts, start)
                reported = [(file.line(int(rows[at])), why, _row_text(table, at)) for at, why in lines.items()]
                reported += _uneven(file, uneven[told:])
                told = len(uneven)
                _report(bad, file, sorted(reported), facts)
                if writer is not None and writer.schema != good.schema:  # decimals, whole in one batch alone
                    with reading(file.path, "a table"):
                        good = good.cast(writer.schema)
                writer = writer or pq.ParquetWriter(
                    part, good.schema, compression="none", use_dictionary=False, write_statistics=False
                )
                writer.write_table(good)
                say(f"{file.path}: {facts['rows']:,} rows read")
            _report(bad, file, _uneven(file, uneven[told:]), facts)
        if writer is not None:
            writer.close()

    replace_file(out.with_suffix(".parquet"), write)
    write_text(out.with_suffix(".json"), json.dumps(facts))


def _uneven(file: File, rows: list[tuple[int, str]]) -> list[tuple[int, str, str]]:
    return [(file.line(row), "has another number of cells", text) for row, text in rows]


def _report(bad: Any, file: File, rows: list[tuple[int, str, str]], facts: dict[str, Any]) -> None:
    for row in rows:
        bad.write(json.dumps([file.path.name, *row]) + "\n")
        facts["first_bad"] = facts["first_bad"] or [str(file.path), *row]
    facts["bad"] += len(rows)


def _row_text(table: Table, row: int) -> str:
    cells = [table.written[name][row].as_py() for name in table.written] if table.written else table.frame.iloc[row]
    return ",".join("" if pd.isna(cell) else str(cell) for cell in cells)


def _batch(table: Table, columns: Columns, facts: dict[str, Any], start: int) -> tuple[pa.Table, dict[int, str]]:
    """Return the good rows of a table, and what is wrong with the others; facts are brought up to date."""
    bad: dict[int, str] = {}
    table = replace(table, bad=bad, text_ids=bool(table.written))
    count = len(table.frame)
    found: dict[str, Any] = {"position": np.arange(count) + start + facts["rows"]}
    found |= {"src": ids_of(table, columns.source), "dst": ids_of(table, columns.target)}
    if columns.time is not None:
        found["t"] = _times(table, columns, facts)
    if columns.features:
        dates = [name for name in columns.features if table.frame[name].dtype.kind in "mM"]
        if dates:
            raise DataError(
                f"{table.path}: column {dates[0]!r} holds dates, which a store has no features of. Name the columns of "
                "features with --read.edge_columns, or read the table in memory"
            )
        values = table.numbers(columns.features, "event features", "error")
        found |= {f"f{place}": column for place, column in enumerate(values.T)}
    if columns.relation is not None:
        names = category_texts(table, columns.relation)
        table.check(names == "", columns.relation, "no relation", "Fill it in, or remove the row.")
        found["relation"] = pa.array(names, pa.string())
    if columns.label is not None:
        found["label"] = _labels(table, columns.label, columns.unlabeled_value, facts)
    good = pa.table(found)
    if bad:
        kept = np.ones(count, bool)
        kept[list(bad)] = False
        good = good.filter(pa.array(kept))
    facts["rows"] += count
    facts["count"] += len(good)
    return good, bad


def _times(table: Table, columns: Columns, facts: dict[str, Any]) -> Any:
    """Return times as nanoseconds since 1970, numbers of a typed column, or numbers of a text as they are written."""
    name = str(columns.time)
    found = times_of(table, name, columns.time_format, dated=columns.dated)
    found.check(table, name)
    good = np.ones(len(found.t), bool)
    good[list(table.bad or ())] = False
    if good.any():
        t = found.t[good]
        facts["least"] = min(t.min().item(), t.min().item() if facts["least"] is None else facts["least"])
        facts["most"] = max(t.max().item(), t.max().item() if facts["most"] is None else facts["most"])
    values = table.frame[name]
    if columns.dated:
        zone = zone_of(values[good])
        facts["zones"] = sorted({*facts["zones"], *([zone] if good.any() else [])})
    elif table.written or not is_numeric(values):
        return pa.array(as_text(values), pa.string()) if table.written.get(name) is None else table.written.get(name)
    return found.t


def _labels(table: Table, name: str, unlabeled_value: str | None, facts: dict[str, Any]) -> Any:
    """Return labels: numbers of a typed column, else texts, null where there is none."""
    values = table.frame[name]
    if table.written:
        cells = table.written.get(name)
    elif values.dtype == bool:
        return values.to_numpy(np.int64)
    elif is_numeric(values) and values.dtype.kind in "iuf":
        table.check(values.fillna(0) > np.iinfo(np.int64).max, name, "a label beyond 2^63 - 1", "Write it as text.")
        values = values.mask(values > np.iinfo(np.int64).max) if values.dtype.kind == "u" else values
        facts["label_type"] = str(values.dtype).lower()
        numbers = pa.array(values, pa.float64() if values.dtype.kind == "f" else pa.int64(), from_pandas=True)
        return _with_nulls(numbers, pa.array(is_unlabeled(values, unlabeled_value)))
    else:
        cells = pa.array(as_text(values), pa.string(), from_pandas=True)
    none = [""] if unlabeled_value in (None, "none") else ["", unlabeled_value]
    return _with_nulls(cells, pc.is_in(cells, pa.array(none)))


def _with_nulls(values: Any, absent: Any) -> Any:
    return pc.if_else(absent, pa.scalar(None, values.type), values)
