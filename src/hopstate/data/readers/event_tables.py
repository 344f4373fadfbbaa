"""Tables of events, DyGLib's triple and JODIE's CSV to event streams."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.columns import Declared, check_declared, declared
from hopstate.data.dates import NAIVE, zone_of
from hopstate.data.events import ADD, EventStream
from hopstate.data.features import FeatureTable
from hopstate.data.readers.encode import encoded
from hopstate.data.readers.event_kinds import KINDS, NONE, kind_column, kinds_of, node_deletions
from hopstate.data.readers.event_labels import labels_of_events
from hopstate.data.readers.local import like_numbers
from hopstate.data.readers.several import named_columns as several_columns
from hopstate.data.readers.table import SEPARATORS, Table, is_numeric
from hopstate.data.readers.tables import read_table, stem_of
from hopstate.data.readers.times import timed, with_clock
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, nearest

if TYPE_CHECKING:
    import pandas as pd

SOURCES = ("src", "source", "u", "from", "user", "user_id", "sender", "source_id")
TARGETS = ("dst", "destination", "target", "i", "v", "to", "item", "item_id", "receiver", "target_id")
TIMES = ("t", "time", "timestamp", "ts", "unixts", "unix_time", "date", "datetime")
LABELS = ("label", "y", "state_label")
COMMAS = 1000  # texts of a column that are looked at
FEATURE = re.compile(r"(feat|feature|edge_attr|msg|f)_?\d+", re.IGNORECASE)


def read_event_table(
    path: Path,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    time_column: str | None = None,
    kind_column: str | None = None,
    label_column: str | None = None,
    edge_columns: Sequence[str] | None = None,
    text_ids: bool = False,
    **fields: Any,
) -> EventStream:
    """Return the events of a .csv, .tsv, .txt (any of them .gz) or .parquet file; see `events_from_table`.

    Text without a header, as SNAP's edge lists, is read as source, target, time. text_ids: ids are texts, as written.
    """
    given = [c for c in (source_column, target_column, time_column, kind_column) if c is not None]
    given += [] if label_column is None else [label_column, *(part.strip() for part in label_column.split(","))]
    table = read_table(path, [*SOURCES, *TARGETS, *TIMES, *given], num_ids=2)
    table = replace(table, text_ids=text_ids)
    columns = (source_column, target_column, time_column, kind_column, label_column)
    return events_from_table(table, columns, edge_columns, **{"name": stem_of(path), "source": str(path), **fields})


def events_from_table(
    table: Table, ends: tuple[str | None, ...], edge_columns: Sequence[str] | None, **fields: Any
) -> EventStream:
    """Return the events of a table.

    Args:
        table: one row for each event.
        ends: names of source, target, time, kind and label; None goes by the usual names.
        edge_columns: edge features; by default the columns named feat_0, f1, msg3 and so on, and a note names
            numeric columns beyond them. An empty list takes none.
        fields: of `EventStream`; missing ("error", "mean", "median") of event features without a number, which then
            stay in edge_table; columns, what such columns hold (`hopstate.data.columns.declared`), which takes them as
            features; missing_time ("error", "drop") of events without a time; task ("regression" takes labels as
            amounts); unlabelled; order; label_cells ("whole", or "all": of texts such as "a;b" each label is a target
            of its own). Several columns of labels are named "a,b", and are targets of their own too.

    Raises:
        FormatError: a column that is missing (the nearest is suggested), or times that are neither numbers nor dates.
        DataError: no rows, or ids or times that cannot be used; the row is named.
        ConfigError: a time_unit that dates are not read in.
    """
    if not len(table.frame):
        raise DataError(f"{table.path} holds no events")
    missing, missing_time = fields.pop("missing", "error"), fields.pop("missing_time", "error")
    task, cells = fields.pop("task", "auto"), fields.pop("label_cells", "whole")
    order, unlabelled = fields.pop("order", None), fields.pop("unlabelled", None)
    several = several_columns(table, ends[-1])
    said = declared(fields.pop("columns", None))
    check_declared(said, table.frame.columns, str(table.path))
    named, edge_columns, idle, notes = _roles(table, ends, edge_columns, said)
    source, target, time, kind, label = named
    assert source is not None and target is not None  # noqa: PT018
    form = said[str(time)].format if time in said and said[str(time)].kind == "date" else ""
    if time not in said:
        table, told = with_clock(table, str(time))
        notes = (*notes, *told)
    dates = zone_of(table.frame[str(time)]) if not form else NAIVE
    table, t, fields["time_unit"], told = timed(table, str(time), fields.get("time_unit", ""), missing_time, form)
    notes = (*notes, *told)
    kinds = None
    if kind is not None:
        table, kinds = node_deletions(table, kinds_of(table, kind), source, target)
    src, dst = table.ids(source), table.ids(target)
    for name, ids in ((source, src), (target, dst)):
        if ids.dtype.kind == "i" and ids.min() < 0:
            bad = int(np.argmax(ids < 0))
            raise DataError(f"{table.path}: negative id {ids[bad]} in column {name!r}, {table.place(bad)}")
    rows = _rows(src, dst, fields)
    notes = (*notes, *idle)
    features, more = _event_features(table, edge_columns, missing, said, kinds) if len(edge_columns) else (None, ())
    labels, names, told = labels_of_events(table, several or (label,), task, cells, order, unlabelled)
    left = _text_columns(table, [*named, *several, *edge_columns])
    own = {"class_names": names, "notes": (*notes, *more, *told, *left), "dates": dates}
    return EventStream.from_arrays(
        *rows,
        t,
        kind=kinds,
        labels=labels,
        edge_attr=None if features is None else features.plain(),
        edge_table=features,
        **own | fields,
    )


def named_columns(
    table: Table, ends: tuple[str | None, ...], edge_columns: Sequence[str] | None
) -> tuple[list[str | None], list[str], tuple[str, ...]]:
    """Return source, target, time, kind and label as `events_from_table` names them, its features, and notes.

    Raises:
        ConfigError: several columns of labels.
    """
    if several_columns(table, ends[-1]):
        raise ConfigError(f"a store holds one column of labels, not several ({ends[-1]}); read the table in memory")
    named, features, idle, notes = _roles(table, ends, edge_columns, {})
    if told := with_clock(table, str(named[2]))[1]:
        raise DataError(
            f"{table.path}: {told[0]}: prepare takes times of one column; write them as one, with a T between"
        )
    return named, list(features), (*notes, *idle, *_text_columns(table, [*named, *features]))


def _roles(
    table: Table, ends: tuple[str | None, ...], edge_columns: Sequence[str] | None, said: Mapping[str, Declared]
) -> tuple[list[str | None], Sequence[str], tuple[str, ...], tuple[str, ...]]:
    """Return the columns by their roles, those of features, and notes on columns and on labels."""
    if ends[3] is None:
        ends = (*ends[:3], kind_column(table, {*said, *(edge_columns or ())}), ends[4])
    ends, notes = _one_label(table, ends) if ends[-1] is None else (ends, ())
    several = several_columns(table, ends[-1])
    named = _named(table, (*ends[:-1], several[0]) if several else ends)
    taken = [*named, *several]
    features, idle = _feature_columns(table, taken, said) if edge_columns is None else (edge_columns, ())
    twice = [name for name in features if name in (named[-1], *several)]
    if twice:
        raise ConfigError(f"{table.path}: column {twice[0]!r} is a label, and no feature of the same event")
    return named, features, idle, notes


def _named(table: Table, columns: Sequence[str | None]) -> list[str | None]:
    """Return the columns of source, target, time, kind and label; those of a table without names go by their place."""
    unnamed = all(str(name).startswith("column ") for name in table.frame.columns)
    places = min(3, table.frame.shape[1]) if unnamed else 0
    return [
        _column(table, given, known, i if i < places else None, option)
        for i, (given, known, option) in enumerate(
            zip(columns, (SOURCES, TARGETS, TIMES, KINDS, LABELS), OPTIONS, strict=True)
        )
    ]


def _feature_columns(
    table: Table, named: Sequence[str | None], said: Mapping[str, Declared]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns that are features by their names or as is said, and a note on other numeric ones."""
    from pandas.api.types import is_numeric_dtype

    rest = [str(name) for name in table.frame.columns if name not in named]
    taken = [name for name in rest if FEATURE.fullmatch(name) or name in said]
    unused = [name for name in rest if name not in taken and is_numeric_dtype(table.frame[name])]
    if not unused:
        return taken, ()
    return taken, (
        f"numeric columns that are not used: {', '.join(unused)}; take them as event features with "
        f"--read.edge_columns '[{', '.join(taken + unused)}]' (edge_columns in Python), or leave them out with "
        f"'[{', '.join(taken)}]'",
    )


def _one_label(table: Table, columns: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Return the columns, and a note in place of a guess where several could be the label's: then none is."""
    called = [str(name) for name in table.frame.columns if str(name).lower() in LABELS and name not in columns]
    if len(called) < 2:
        return columns, ()
    return (*columns[:-1], NONE), (
        f"columns {', '.join(called)} may all hold labels, so that none was taken: --read.label_column NAME",
    )


def _text_columns(table: Table, used: Sequence[str | None]) -> tuple[str, ...]:
    """Return a note on the columns of text that are not used."""
    left = [str(name) for name in table.frame.columns if name not in used and not is_numeric(table.frame[name])]
    how = f"--read.columns '[{left[0]}=category]' takes one as event features" if left else ""
    commas = [name for name in left if _with_commas(table.frame[name])]
    told: tuple[str, ...] = (f"columns of text that are not used: {', '.join(left)} ({how})",) if left else ()
    if commas:
        told += (
            f"{', '.join(commas)}: numbers with separators or signs, which are read as text; write 1234.5, or say "
            f"--read.columns '[{commas[0]}=number:point]' (1,234.5) or '[{commas[0]}=number:comma]' (1.234,5)",
        )
    return told


def _with_commas(column: pd.Series) -> bool:
    """Return whether the first texts of a column are numbers, some of them with separators."""
    return bool(like_numbers(column.head(COMMAS).dropna().astype(str).str.strip()).any())


def _event_features(
    table: Table, columns: Sequence[str], missing: str, said: Mapping[str, Declared], kinds: np.ndarray | None = None
) -> tuple[FeatureTable | None, tuple[str, ...]]:
    """Return features of events, and notes; of a deletion, what it leaves empty among numbers is 0."""
    if kinds is not None and (kinds != ADD).any() and set(columns) <= set(map(str, table.frame.columns)):
        numeric = [name for name in columns if is_numeric(table.frame[name])]
        blank = table.frame[numeric].isna() & (kinds != ADD)[:, None]
        table = replace(table, frame=table.frame.assign(**{c: table.frame[c].mask(blank[c], 0) for c in numeric}))
    for name in columns:
        table.column(name, (), None, "edge_columns")
    return encoded(table, list(columns), "event features", "error", missing, said)


OPTIONS = ("source_column", "target_column", "time_column", "kind_column", "label_column")


def _column(table: Table, given: str | None, known: Sequence[str], place: int | None, option: str) -> str | None:
    if given == NONE:
        return None
    found = table.column(given, known, place, option)
    if found is None and option in OPTIONS[:3]:
        names = [str(name) for name in table.frame.columns]
        free = [name for name in names if name.lower() not in (*SOURCES, *TARGETS, *TIMES)]
        near = next((hint for word in known if (hint := nearest(word, free))), "")
        near = f"; {SEPARATORS}" if len(names) == 1 else near
        raise FormatError(
            f"{table.path} has no column for {option} (known names: {', '.join(known)}){near}; "
            f"it has: {', '.join(names)}. Name the column with --read.{option} NAME ({option} in Python)"
        )
    return found


def _rows(src: np.ndarray, dst: np.ndarray, fields: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return node rows; sets node_ids where the ids are not rows already."""
    if src.dtype.kind != dst.dtype.kind:
        src, dst = src.astype(str), dst.astype(str)
    if src.dtype.kind == "i" and (fields.get("num_nodes", -1) >= 0 or fields.get("x") is not None):
        return src, dst  # the caller says that ids are rows, or gives features by row
    known = fields.get("node_ids") or Vocabulary.of(src, dst)
    if src.dtype.kind == "i" and np.array_equal(known.ids, np.arange(len(known))):
        return src, dst
    fields["node_ids"] = known
    rows = known.rows(src), known.rows(dst)
    for ids, found in zip((src, dst), rows, strict=True):
        if (found < 0).any():
            known.row(ids[int(np.argmax(found < 0))])  # raises, naming the nearest known id
    return rows
