"""The files of a source: which columns are read, and their rows as typed Parquet with bad rows apart.

Text says what a column holds only once all of it was read. The first rows decide between dates and numbers; numbers
begin as integers, and a cell that does not fit raises `Wider`, after which the source is read again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pyarrow.types as types

from hopstate.data.dates import DAY_OR_MONTH, UNGUESSED, UNITS, beyond_clock, iso_dates, zone_of
from hopstate.data.labels import several_columns
from hopstate.data.readers.edge_list import ends_of, feature_columns
from hopstate.data.readers.event_tables import ROLES, EventTableOptions, roles_of, text_columns
from hopstate.data.readers.ids import EXACT, MISSING, NO_ID, NO_ID_REMEDY, WHOLE, ZEROS
from hopstate.data.readers.read_graph import TABLE_OPTIONS
from hopstate.data.readers.roles import ONE, SOURCES, TARGETS, TIMES, bipartite_of, read_as
from hopstate.data.readers.tables import Table, is_numeric, whole_decimals
from hopstate.data.readers.text import Text, check_names, read_layout
from hopstate.data.readers.times import ABSENT, beyond_nanoseconds, check_digits, described, exact_unit, with_clock
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, nearest
from hopstate.io.files import replace_file, write_text
from hopstate.io.opening import bounded, exists, expanded, first_bytes, reading, shown

ENDS = (".csv", ".tsv", ".txt", ".parquet", ".pq")
OPTIONS = (*ROLES, "edge_columns", "time_unit", "header", "bipartite")
EDGE_OPTIONS = tuple(
    name
    for name in (*TABLE_OPTIONS, "undirected", "duplicates", "self_loops", "order")
    if name not in ("columns", "text_ids", "bipartite")
)
LARGEST = float(np.finfo(np.float32).max)
_SAMPLE = 1000  # rows that tell what columns hold
_NEGATIVE = r"^-0*[1-9]"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_WIDER = {"integer": "number", "number": "text"}


@dataclass(frozen=True)
class Columns:
    """The columns that are read; edges have no time."""

    source: str
    target: str
    time: str | None
    label: str | None
    features: tuple[str, ...]
    notes: tuple[str, ...]
    sets: str = ONE  # see `hopstate.data.readers.roles.sets_by_name`
    time_kind: str = "integer"  # or "date" or "number"
    label_kind: str = "integer"  # or "number" or "text"

    @property
    def names(self) -> list[str]:
        """Every column that is read, each once."""
        names = [self.source, self.target, self.time, self.label, *self.features]
        return list(dict.fromkeys(name for name in names if name))

    def wider(self, role: str) -> Columns:
        """Return the columns with the next wider kind of times ("time_kind") or labels ("label_kind")."""
        return replace(self, **{role: _WIDER[getattr(self, role)]})  # type: ignore[arg-type]


class Wider(Exception):  # noqa: N818
    """A column holds a cell that does not fit the kind assumed so far."""


@dataclass(frozen=True)
class File:
    """One file of the source."""

    path: Path
    text: Text | None  # its layout; None for Parquet
    first_line: int | None  # line of row 0, from 1; None for Parquet

    def line(self, row: int) -> int:
        return row + (self.first_line or 0)


# ---- files and columns ------------------------------------------------------------------------------------------
def files_of(source: str | Path) -> list[Path]:
    path = expanded(str(source))
    if not exists(path):
        raise MissingFileError(f"no file or folder called {shown(str(source))}")
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
    given = [read[name] for name in ROLES[: 2 if edges else 5] if read.get(name)]
    known = [*SOURCES, *TARGETS, *(() if edges else TIMES), *given]
    samples = []
    for path in paths:
        with reading(path, "a table"):
            sample = _sample(path, known, read.get("header"))
        if len(sample[1].frame):
            samples.append(sample)
    if not samples:
        raise DataError(f"{paths[0]} has no {'edges' if edges else 'events'}")
    first = samples[0]
    columns = (_edge_columns if edges else _event_columns)(first[1], read)
    for sample in samples[1:]:
        _check_alike(first, sample, columns)
    return [file for file, _, _ in samples], columns


_Sample = tuple[File, Table, dict[str, str]]  # with the type of each column


def _sample(path: Path, known: Sequence[str], header: bool | None) -> _Sample:
    if first_bytes(path).startswith(b"PAR1"):
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            check_names(schema.names, str(path))
            plain = [field for field in schema if not field.type.num_fields]
            batch = next(file.iter_batches(_SAMPLE, columns=[field.name for field in plain]), None)
            frame = (schema.empty_table() if batch is None else batch).to_pandas()
        return File(path, None, None), Table(frame, path, None), {f.name: _type_name(f.type) for f in plain}
    text, first_line, keys = read_layout(path, known, 2, header)
    missing = {name: [""] if name in keys else list(MISSING) for name in text.names}
    frame = text.frame(na_values=missing, nrows=_SAMPLE, on_bad_lines="skip")
    frame = frame.drop(columns=[name for name in text.names if not name])
    table = Table(frame, path, first_line, notes=text.notes)
    return File(path, text, first_line), table, dict.fromkeys(map(str, frame.columns), "text")


def _type_name(kind: pa.DataType) -> str:
    if types.is_dictionary(kind):
        return _type_name(kind.value_type)
    return "text" if types.is_string(kind) or types.is_large_string(kind) else str(kind)


def _check_alike(first: _Sample, other: _Sample, columns: Columns) -> None:
    """Raise DataError if a file cannot follow the first one in one table."""
    (one, one_table, one_types), (two, two_table, two_types) = first, other
    if (one.text is None) != (two.text is None):
        parquet, text = (one.path, two.path) if one.text is None else (two.path, one.path)
        raise DataError(f"{parquet} is Parquet and {text} is text; write all files of a folder in one format")
    if one_types != two_types:
        names = [n for n in {**one_types, **two_types} if one_types.get(n) != two_types.get(n)]
        raise DataError(f"{two.path} has other columns than {one.path}: {', '.join(names) or 'another order'}")
    for name in (columns.source, columns.target):
        if {_all_whole(one_table, name), _all_whole(two_table, name)} == {True, False}:
            raise DataError(f"column {name!r} has numbers in one of {one.path} and {two.path}, and texts in the other")
    if columns.time and _has_dates(one_table, columns.time) != _has_dates(two_table, columns.time):
        raise DataError(f"times are dates in one of {one.path} and {two.path}, and numbers in the other")


def _all_whole(table: Table, name: str) -> bool | None:
    """Return whether all ids of a sample are whole numbers; None if some are."""
    cells = table.frame[name].dropna()
    if is_numeric(cells):
        return True
    whole = cells.astype(str).str.strip().str.fullmatch(WHOLE)
    return bool(whole.all()) if whole.all() or not whole.any() else None


def _has_dates(table: Table, name: str) -> bool:
    cells = table.frame[name].dropna()
    if is_numeric(cells):
        return False
    text = cells.astype(str).str.strip()
    dates = iso_dates(text).notna().sum()
    return bool(dates >= pd.to_numeric(text, errors="coerce").notna().sum())


def _event_columns(table: Table, read: Mapping[str, Any]) -> Columns:
    chosen = {name: read.get(name) for name in (*ROLES, "edge_columns")}
    if several_columns(table, chosen["label_column"]):
        raise ConfigError(f"{table.path}: a store holds one column of labels, not several; read the table in memory")
    roles = roles_of(table, EventTableOptions(**chosen), {})  # type: ignore[arg-type]
    if clock := with_clock(table, roles.time)[1]:
        raise DataError(f"{table.path}: {clock[0]}: prepare takes times of one column; write them as one, with a T")
    if roles.kind is not None:
        raise DataError(
            f"{table.path}: column {roles.kind!r} has kinds of events; prepare takes events that add. Leave the column "
            "out with --read.kind_column '', or read the file with read_events and write it with write_events"
        )
    when = table.frame[roles.time]
    numbers = when.dropna().to_numpy(np.float64) if is_numeric(when) else np.empty(0)
    times = described(numbers, read.get("time_unit") or "", "" if is_numeric(when) else "dates")
    left = text_columns(table, [roles.source, roles.target, roles.time, *roles.labels, *roles.features])
    notes = (roles.read_as(table, times, roles.sets), *table.notes, *roles.notes, *left)
    bipartite = bipartite_of(read.get("bipartite", "auto"))
    if bipartite is True:
        raise ConfigError(f"{table.path}: a store has one set of nodes; write ids such as u7 and i7, or read the table")
    time_kind = "date" if _has_dates(table, roles.time) else "integer"
    sets = roles.sets if bipartite == "auto" else ONE
    label = next(iter(roles.labels), None)
    return Columns(roles.source, roles.target, roles.time, label, roles.features, notes, sets, time_kind)


def _edge_columns(table: Table, read: Mapping[str, Any]) -> Columns:
    chosen = read.get("edge_columns")
    ends = ends_of(table, read.get("source_column"), read.get("target_column"), chosen or ())
    features, notes = feature_columns(table, ends, chosen, {})
    roles = read_as(table, {"source": ends[0], "target": ends[1]}, features)
    return Columns(*ends, None, None, tuple(features), (roles, *table.notes, *notes))


# ---- rows -------------------------------------------------------------------------------------------------------
def stage(file: File, columns: Columns, start: int, out: Path, size: int, say: Callable[[str], None]) -> None:
    """Write the good rows of a file as OUT.parquet, the bad ones as OUT.bad, and facts on them as OUT.json, last."""
    facts = _Facts(file, columns)

    def write(part: Path) -> None:
        writer = None
        with out.with_suffix(".bad").open("w", encoding="utf-8") as bad:
            for table, rows, strays in _batches(file, columns, size):
                good, lines = facts.add(table, rows, start)
                for line in sorted([*strays, *lines]):
                    bad.write(json.dumps([file.path.name, *line]) + "\n")
                    facts.bad += 1
                    facts.first_bad = facts.first_bad or [str(file.path), *line]
                writer = writer or pq.ParquetWriter(
                    part, good.schema, compression="none", use_dictionary=False, write_statistics=False
                )
                writer.write_table(good)
                say(f"{file.path}: {facts.rows:,} rows read")
        if writer is not None:
            writer.close()

    replace_file(out.with_suffix(".parquet"), write)
    write_text(out.with_suffix(".json"), json.dumps(facts.record()))


_Stray = tuple[int, str, str]  # line, reason, cells


def _batches(file: File, columns: Columns, size: int) -> Iterator[tuple[pa.Table, np.ndarray, list[_Stray]]]:
    strays: list[tuple[int, str]] = []
    count, last = 0, -1
    try:
        tables = _parquet(file, columns, size) if file.text is None else _text(file, columns, strays, size)
        for table in tables:
            rows = np.arange(count, count + len(table))
            at = np.sort([row for row, _ in strays])
            rows += np.searchsorted(at - np.arange(len(at)), rows, side="right")
            end = int(rows[-1]) if len(rows) else last
            count += len(table)
            yield table, rows, _named(file, [one for one in strays if last < one[0] < end])
            last = end
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise FormatError(f"{file.path} cannot be read: {str(error)[:200]}; repair it or take it away") from None
    if left := [one for one in strays if one[0] > last]:
        empty = pa.table({name: pa.array([], pa.string()) for name in columns.names})
        yield empty, np.empty(0, np.int64), _named(file, left)


def _named(file: File, strays: list[tuple[int, str]]) -> list[_Stray]:
    return [(file.line(row), "has another number of cells", text) for row, text in strays]


def _parquet(file: File, columns: Columns, size: int) -> Iterator[pa.Table]:
    with pq.ParquetFile(file.path, memory_map=False, pre_buffer=False) as parquet:
        for batch in parquet.iter_batches(size, columns=columns.names):
            table = pa.Table.from_batches([batch])
            fields = [f.with_type(pa.string()) if _type_name(f.type) == "text" else f for f in table.schema]
            yield table.cast(pa.schema(fields)).combine_chunks()


def _text(file: File, columns: Columns, strays: list[tuple[int, str]], size: int) -> Iterator[pa.Table]:
    text = file.text
    assert text is not None
    skipped = (file.first_line or 1) - 1
    if text.options["sep"] == r"\s+":
        yield from _spaced(text, columns, size)
        return

    def stray(row: csv.InvalidRow) -> str:
        strays.append((row.number - 1 - skipped, row.text))
        return "skip"

    own = [name or f"\0{place}" for place, name in enumerate(text.names)]
    with bounded(file.path, text=True) as stream:
        # one thread: with more, pyarrow does not tell the numbers of rows
        reader = csv.open_csv(
            stream,
            csv.ReadOptions(use_threads=False, block_size=max(1 << 16, 8 * size), column_names=own, skip_rows=skipped),
            csv.ParseOptions(delimiter=text.options["sep"], newlines_in_values=True, invalid_row_handler=stray),
            csv.ConvertOptions(column_types=dict.fromkeys(own, pa.string()), include_columns=columns.names),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _spaced(text: Text, columns: Columns, size: int) -> Iterator[pa.Table]:
    plain: dict[str, Any] = {"header": None, "names": list(text.names), "index_col": False, "na_filter": False}
    schema = pa.schema([(name, pa.string()) for name in columns.names])
    with warnings.catch_warnings(), bounded(text.path, text=True) as file:
        warnings.simplefilter("error", pd.errors.ParserWarning)  # a line with more cells than the others
        try:
            frames = pd.read_csv(file, usecols=columns.names, chunksize=size, dtype=str, **plain, **text.options)
            for frame in frames:
                yield pa.Table.from_pandas(frame[columns.names], schema, preserve_index=False)
        except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
            raise FormatError(f"{text.path}: {str(error)[:200]}; repair those lines") from None


class _Facts:
    """Batches of one file to typed columns, and what is known of the file afterwards."""

    def __init__(self, file: File, columns: Columns) -> None:
        self.file, self.columns = file, columns
        self.rows = self.count = self.bad = 0
        self.first_bad: list[Any] | None = None
        self.ids = [dict.fromkeys(("whole", "zeros", "odd", "fractions", "other"), 0) for _ in range(2)]
        self.negative = ["", ""]
        self.exact = True
        self.least = self.most = None
        self.zones: set[str] = set()
        self.unit = "s"  # the finest of the dates
        self.label_type = ""
        self.unlabelled = self.minus = 0

    def record(self) -> dict[str, Any]:
        known = {key: value for key, value in vars(self).items() if key not in ("file", "columns")}
        return known | {"zones": sorted(self.zones), "path": str(self.file.path)}

    def add(self, table: pa.Table, rows: np.ndarray, start: int) -> tuple[pa.Table, list[_Stray]]:
        """Return the good rows with position, src, dst, t, label, f0, f1, ..., and the bad ones."""
        columns = self.columns
        reasons: dict[int, str] = {}  # by row; the first counts
        found: dict[str, Any] = {"position": pa.array(np.arange(len(table)) + start + self.rows)}
        for role, name in (("src", columns.source), ("dst", columns.target)):
            found[role], bad = self._ids(table[name], name, rows)
            _mark(reasons, bad, f"no usable id in column {name!r}")
        if columns.time is not None:
            found["t"] = self._times(table[columns.time], rows, reasons)
        most = np.inf if columns.time is None else LARGEST  # a graph's edge table is float64
        for place, name in enumerate(columns.features):
            values, absent = _numbers(table[name])
            _mark(reasons, absent | ~(np.abs(values) <= most), f"no number in column {name!r}")
            found[f"f{place}"] = pa.array(values)
        if columns.label is not None:
            found["label"] = self._labels(table[columns.label])
        good = pa.table(found)
        if reasons:
            keep = np.ones(len(table), bool)
            keep[list(reasons)] = False
            good = good.filter(pa.array(keep))
        self._count(good)
        self.rows += len(table)
        return good, [(self.file.line(int(rows[at])), why, _cells(table, at)) for at, why in reasons.items()]

    def _count(self, good: pa.Table) -> None:
        self.count += len(good)
        for side, role in enumerate(("src", "dst")):
            self._count_ids(side, good[role])
        with np.errstate(over="ignore"):
            for place in range(len(self.columns.features)):
                values = good[f"f{place}"].to_numpy()
                self.exact = self.exact and np.array_equal(values.astype(np.float32), values)
        if "t" in good.column_names and len(good):
            t = good["t"].to_numpy()
            low, high = t.min().item(), t.max().item()
            self.least = low if self.least is None else min(self.least, low)
            self.most = high if self.most is None else max(self.most, high)
            if self.columns.time_kind == "date":
                self.unit = max(self.unit, exact_unit(t), key=list(UNITS).index)
        if "label" in good.column_names:
            self.unlabelled += good["label"].null_count
            if self.columns.label_kind == "integer":
                self.minus += pc.sum(pc.equal(good["label"], -1)).as_py() or 0

    def _table(self, name: str, cells: pd.Series, rows: np.ndarray) -> Table:
        """Return a column of a batch as a table whose messages name the rows of the file."""
        return Table(cells.to_frame(name), self.file.path, self.file.first_line, rows=rows)

    # ---- ids ----
    def _ids(self, column: pa.ChunkedArray, name: str, rows: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        ids = _id_array(column, f"{self.file.path}: column {name!r}")
        absent = ids.is_null()
        if types.is_string(ids.type):
            absent = pc.or_(absent, pc.equal(ids, ""))
            if (_bytes(ids) < 32).any():
                absent = pc.or_(absent, pc.match_substring_regex(ids, r"[\r\n\x00]"))
            words = pc.is_in(ids, pa.array(NO_ID))
            if pc.any(words).as_py():
                cells = self._table(name, ids.to_pandas(), rows)
                cells.check(words.to_pandas(), name, "a word for nothing among ids", NO_ID_REMEDY)
        return ids, pc.fill_null(absent, True).to_numpy(zero_copy_only=False)

    def _count_ids(self, side: int, ids: pa.ChunkedArray) -> None:
        """Count which good ids are whole numbers; texts of Parquet are texts."""
        facts = self.ids[side]
        if types.is_integer(ids.type):
            facts["whole"] += len(ids)
            least = pc.min(ids).as_py() or 0
            self.negative[side] = self.negative[side] or (str(least) if least < 0 else "")
            return
        if self.file.text is None:
            facts["other"] += len(ids)
            return
        whole = pc.match_substring_regex(ids, f"^{WHOLE}$")
        numbers, rest = ids.filter(whole), ids.filter(pc.invert(whole))
        zeros = _total(pc.match_substring_regex(numbers, f"^{ZEROS}"))
        odd = pc.or_(pc.is_in(rest, pa.array(MISSING)), pc.match_substring_regex(rest, "^[#%]"))
        below = numbers.filter(pc.match_substring_regex(numbers, _NEGATIVE))
        self.negative[side] = self.negative[side] or (below[0].as_py() if len(below) else "")
        counts = {"whole": len(numbers) - zeros, "zeros": zeros, "odd": _total(odd)}
        counts["fractions"] = _total(pc.match_substring_regex(rest, _NUMBER))
        counts["other"] = len(rest) - counts["odd"] - counts["fractions"]
        for key, value in counts.items():
            facts[key] += value

    # ---- times ----
    def _times(self, column: pa.ChunkedArray, rows: np.ndarray, reasons: dict[int, str]) -> pa.Array:
        name = self.columns.time
        if types.is_timestamp(column.type) or types.is_date(column.type) or self.columns.time_kind == "date":
            t, bad = _dates(column)
            self.zones |= {zone_of(column.filter(pa.array(~bad)).to_pandas())} if not bad.all() else set()
        else:
            t, bad = self._numbers_of_time(column, rows, whole=self.columns.time_kind == "integer")
        why = f"no usable time in column {name!r}"
        if types.is_string(column.type) and bad.any():
            either = bad.copy()
            either[bad] = column.filter(pa.array(bad)).to_pandas().str.match(DAY_OR_MONTH).eq(True)
            _mark(reasons, either, f"{why}: the {UNGUESSED}")
        _mark(reasons, bad, why)
        return pa.array(t)

    def _numbers_of_time(
        self, column: pa.ChunkedArray, rows: np.ndarray, *, whole: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return times as int64, or float64, and which cells are none; a fraction is `Wider` than whole numbers."""
        is_text = types.is_string(column.type)
        if whole and types.is_floating(column.type):
            raise Wider("time_kind")
        if is_text:
            column = _present(column, list(ABSENT), lower=True)
        try:
            t = pc.fill_null(pc.cast(column, pa.int64() if whole else pa.float64()), 0).to_numpy()
            bad = np.asarray(column.is_null())
        except pa.ArrowInvalid:
            if not is_text:
                raise Wider("time_kind") from None
            cells = column.to_pandas()
            bad = ~np.isfinite(pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan))
            numbers = pd.to_numeric(cells[~bad])  # alone, whole numbers stay exact
            if whole and len(numbers) and numbers.dtype.kind != "i":
                raise Wider("time_kind") from None
            t = np.zeros(len(cells), np.int64 if whole else np.float64)
            t[~bad] = numbers
        bad = bad | beyond_clock(t) | ~np.isfinite(t)
        if is_text and not whole:
            name, cells = str(self.columns.time), column.to_pandas()
            check_digits(self._table(name, cells, rows), name, cells[~bad], t[~bad])
        return t, bad

    # ---- labels ----
    def _labels(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = self.columns.label_kind
        if types.is_boolean(column.type):
            column = pc.cast(column, pa.int64())
        elif not types.is_string(column.type):
            self.label_type = str(np.dtype(column.type.to_pandas_dtype()))
        text = _present(column, list(MISSING)) if types.is_string(column.type) else column
        if kind == "text":
            return text
        if kind == "integer" and types.is_floating(column.type):
            raise Wider("label_kind")
        try:
            return pc.cast(text, pa.int64() if kind == "integer" else pa.float64())
        except pa.ArrowInvalid:
            raise Wider("label_kind") from None


def _mark(reasons: dict[int, str], bad: np.ndarray, why: str) -> None:
    for row in np.flatnonzero(bad).tolist():
        reasons.setdefault(row, why)


def _total(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _cells(table: pa.Table, row: int) -> str:
    return ",".join("" if cell is None else str(cell) for cell in table.slice(row, 1).to_pylist()[0].values())


def _present(column: pa.ChunkedArray, missing: Sequence[str], *, lower: bool = False) -> pa.ChunkedArray:
    """Return texts without spaces around them, null for words that mean none."""
    text = pc.utf8_trim_whitespace(column)
    absent = pc.is_in(pc.utf8_lower(text) if lower else text, pa.array(missing))
    return pc.if_else(absent, pa.scalar(None, pa.string()), text)


def _id_array(column: pa.ChunkedArray, what: str) -> pa.Array:
    """Return ids as int64 or as texts without spaces around them; numbers that cannot be an id are null."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = whole_decimals(pc.if_else(pc.equal(column, pc.floor(column)), column, pa.scalar(None, column.type)))
    kind = column.type
    if types.is_floating(kind):
        numbers = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy()
        good = (np.abs(numbers) < EXACT) & (numbers == np.floor(numbers))
        return pa.array(np.where(good, numbers, 0).astype(np.int64), mask=~good)
    if types.is_integer(kind):
        if types.is_uint64(kind):
            most = pa.scalar(np.iinfo(np.int64).max, kind)
            column = pc.if_else(pc.less_equal(column, most), column, pa.scalar(None, kind))
        return _whole(column.cast(pa.int64()))
    if types.is_boolean(kind):
        return _whole(pc.if_else(column, "True", "False"))
    if (types.is_temporal(kind) and not types.is_date(kind)) or types.is_binary(kind) or types.is_large_binary(kind):
        raise DataError(f"{what} has {kind}, which is no id; write texts or whole numbers")
    ids = _whole(column if types.is_string(kind) else column.cast(pa.string()))
    data = _bytes(ids)  # trimming copies every text
    return pc.utf8_trim_whitespace(ids) if ((data <= 32) | (data >= 128)).any() else ids


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _bytes(texts: pa.Array) -> np.ndarray:
    data = texts.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _dates(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return dates as nanoseconds since 1970, and which are missing or beyond what int64 can hold."""
    if types.is_string(column.type):
        text = _present(column, list(ABSENT), lower=True).to_pandas()
        dates = iso_dates(text).dt.tz_localize(None).to_numpy()
    else:
        unit = column.type.unit if types.is_timestamp(column.type) else ("s" if types.is_date32(column.type) else "ms")
        stamps = pc.fill_null(pc.cast(pc.cast(column, pa.timestamp(unit)), pa.int64()), np.iinfo(np.int64).min)
        dates = stamps.to_numpy().view(f"datetime64[{unit}]")
    bad = beyond_nanoseconds(dates)
    return np.where(bad, 0, dates.astype(np.int64)) * UNITS[np.datetime_data(dates.dtype)[0]], bad


def _numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return a column of features as float64, and which cells are no number."""
    if types.is_string(column.type):
        column = _present(column, list(MISSING))
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            values = pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
            return values, ~np.isfinite(values)
    values = pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
    return values, ~np.isfinite(values)
