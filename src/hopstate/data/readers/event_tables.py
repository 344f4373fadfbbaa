"""Tables of events to event streams."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import NAIVE, zone_of
from hopstate.data.events import ADD, DELETE, GONE, EventStream
from hopstate.data.labels import labels_of_events, several_columns
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.encode import Declared, check_declared, declared, encoded
from hopstate.data.readers.ids import whole_numbers
from hopstate.data.readers.local import like_numbers
from hopstate.data.readers.roles import (
    ONE,
    SOURCES,
    TARGETS,
    TIMES,
    bipartite_of,
    by_place,
    check_moment,
    check_target,
    check_unnamed,
    in_sets,
    is_unnamed,
    moments,
    read_as,
    role,
    sets_by_name,
)
from hopstate.data.readers.tables import SEPARATORS, Table, is_numeric, read_table, stem_of
from hopstate.data.readers.times import timed, with_clock
from hopstate.data.vocabulary import TEXT, Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, nearest

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("label", "y", "state_label")

COMMAS = 1000  # texts of a column that are looked at

FEATURE = re.compile(r"(feat|feature|edge_attr|msg|f)_?\d+", re.IGNORECASE)


def read_event_table(
    source: Any,
    /,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    time_column: str | None = None,
    kind_column: str | None = None,
    label_column: str | None = None,
    edge_columns: Sequence[str] | None = None,
    text_ids: bool = False,
    header: bool | None = None,
    **fields: Any,
) -> EventStream:
    """Return the events of a file or a table in memory; see `events_from_table`.

    Text without a header, as SNAP's edge lists, is read as source, target, time. text_ids: ids are texts, as written.
    header: whether the first line holds names of columns; None goes by what stands in it.
    """
    given = [c for c in (source_column, target_column, time_column, kind_column) if c is not None]
    given += [] if label_column is None else [label_column, *(part.strip() for part in label_column.split(","))]
    known = [*SOURCES, *TARGETS, *TIMES, *given]
    table = read_table(source, known, num_ids=2, header=header, what="the table of events")
    table = replace(table, text_ids=text_ids)
    columns = (source_column, target_column, time_column, kind_column, label_column)
    own = {"name": stem_of(Path(table.path)), "source": str(table.path)}
    return events_from_table(table, columns, edge_columns, **{**own, **fields})


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
            stay in edge_table; columns, what such columns hold (`hopstate.data.readers.encode.declared`), which takes
            them as features; missing_time ("error", "drop") of events without a time; task ("regression" takes labels
            as amounts); unlabelled; label_cells ("whole", or "all": of texts such as "a;b" each label is a target
            of its own). Several columns of labels are named "a,b", and are targets of their own too; bipartite (True,
            False, "auto"): sources and targets are two sets of nodes, see `hopstate.data.readers.roles`.
    """
    if not len(table.frame):
        raise DataError(f"{table.path} holds no events")
    fields["file_length"] = len(table.frame)
    bipartite = bipartite_of(fields.pop("bipartite", "auto"))
    missing, missing_time = fields.pop("missing", "error"), fields.pop("missing_time", "error")
    task, cells = fields.pop("task", "auto"), fields.pop("label_cells", "whole")
    unlabelled = fields.pop("unlabelled", None)
    several = several_columns(table, ends[-1])
    said = declared(fields.pop("columns", None))
    check_declared(said, table.frame.columns, str(table.path))
    named, edge_columns, idle = _roles(table, ends, edge_columns, said)
    source, target, time, kind, label = named
    assert source is not None and target is not None  # noqa: PT018
    form = said[str(time)].format if time in said and said[str(time)].kind == "date" else ""
    notes: tuple[str, ...] = ()
    if time not in said:
        table, notes = with_clock(table, str(time))
    dates = zone_of(table.frame[str(time)]) if not form else NAIVE
    table, t, fields["time_unit"], told = timed(table, str(time), fields.get("time_unit", ""), missing_time, form)
    notes = (*notes, *told)
    fields["file_rows"] = table.rows
    kinds = None
    if kind is not None:
        table, kinds = node_deletions(table, kinds_of(table, kind), source, target)
    src, dst = table.ids(source), table.ids(target)
    for name, ids in ((source, src), (target, dst)):
        if ids.dtype.kind == "i" and ids.min() < 0:
            bad = int(np.argmax(ids < 0))
            raise DataError(f"{table.path}: negative id {ids[bad]} in column {name!r}, {table.place(bad)}")
    sets = ONE
    if (fields.get("node_ids") is None and not _are_rows(src, fields)) or bipartite is True:
        by_name = sets_by_name(source, target, unnamed=is_unnamed(table))
        gone = None if kinds is None else kinds == GONE
        plain = src
        src, dst, sets = in_sets((src, dst), gone, by_name, bipartite, f"{table.path}: columns {source!r}, {target!r}")
        fields["two_sets"] = src is not plain
    roles = _said(table, named, several, edge_columns, moments(t, fields["time_unit"], dates), sets)
    rows = _rows(src, dst, fields)
    notes = (roles, *table.notes, *notes, *idle)
    features, more = _event_features(table, edge_columns, missing, said, kinds) if len(edge_columns) else (None, ())
    labels, names, told = labels_of_events(table, several or (label,), task, cells, unlabelled)
    left = _text_columns(table, [*named, *several, *edge_columns, *said])
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
    table: Table, ends: tuple[str | None, ...], edge_columns: Sequence[str] | None, unit: str = ""
) -> tuple[list[str | None], list[str], str, tuple[str, ...]]:
    """Return source, target, time, kind and label as `events_from_table` names them, its features, sets, and notes."""
    if several_columns(table, ends[-1]):
        raise ConfigError(f"a store holds one column of labels, not several ({ends[-1]}); read the table in memory")
    named, features, idle = _roles(table, ends, edge_columns, {})
    if clock := with_clock(table, str(named[2]))[1]:
        raise DataError(
            f"{table.path}: {clock[0]}: prepare takes times of one column; write them as one, with a T between"
        )
    when, numbers = table.frame[str(named[2])], is_numeric(table.frame[str(named[2])])
    what = moments(when.dropna().to_numpy(np.float64) if numbers else np.empty(0), unit, "" if numbers else "dates")
    sets = sets_by_name(str(named[0]), str(named[1]), unnamed=is_unnamed(table))
    roles = _said(table, named, (), features, what, sets)
    return named, list(features), sets, (roles, *table.notes, *idle, *_text_columns(table, [*named, *features]))


def _said(
    table: Table, named: Sequence[str | None], several: Sequence[str], features: Sequence[str], what: str, sets: str
) -> str:
    roles = dict(zip(("source", "target", "time", "kind", "label"), named, strict=True))
    roles |= {"label": ", ".join(several)} if several else {}
    return read_as(table, roles, features, what, sets)


def _roles(
    table: Table, ends: tuple[str | None, ...], edge_columns: Sequence[str] | None, said: Mapping[str, Declared]
) -> tuple[list[str | None], Sequence[str], tuple[str, ...]]:
    several = several_columns(table, ends[-1])
    other = {*said, *(edge_columns or ()), *(name for name in ends if name), *several}
    dates = {name for name, one in said.items() if one.kind == "date"}
    named = _named(table, (*ends[:-1], several[0]) if several else ends, other, dates)
    taken = [*named, *several]
    meant = [name for name, one in said.items() if one.kind != "drop" and name in table.frame.columns]
    meant = [name for name in meant if name not in named]
    features, idle = _feature_columns(table, taken, said) if edge_columns is None else (edge_columns, ())
    if edge_columns is None or len(edge_columns):  # an empty list takes none
        features = [*features, *(name for name in meant if name not in features)]
    features = [name for name in features if name not in said or said[name].kind != "drop"]
    twice = [name for name in features if name in (named[-1], *several)]
    if twice:
        raise ConfigError(f"{table.path}: column {twice[0]!r} is a label, and no feature of the same event")
    if ends[1] is None:
        unused = [str(name) for name in table.frame.columns if name not in (*taken, *features, *said)]
        check_target(table, str(named[1]), [name for name in unused if is_numeric(table.frame[name])])
    return named, features, idle


def _named(
    table: Table, columns: Sequence[str | None], other: Collection[str], dates: Collection[str]
) -> list[str | None]:
    """Return the columns of source, target, time, kind and label; those of a table without names go by their place."""
    given = dict(zip(OPTIONS, columns, strict=True))
    ends = {option: given[option] for option in OPTIONS[:3]}
    check_unnamed(table, ends, ["time_column"])
    if is_unnamed(table):
        given |= by_place(table, ends)
    found = [
        _needed(
            table,
            role(table, given[option], known, option, {*other} - {*(dates if known is TIMES else ())}),
            known,
            option,
        )
        for option, known in zip(OPTIONS[:3], (SOURCES, TARGETS, TIMES), strict=True)
    ]
    if given["time_column"] is None:
        check_moment(table, found[2], {*found[:2], *other})
    kind, label = given["kind_column"], given["label_column"]
    kind = kind_column(table, {*other, *found}) if kind is None else role(table, kind or None, (), "kind_column")
    label = None if label == NONE else role(table, label, LABELS, "label_column", {*other, *found, kind})
    return [*found, kind or None, label]


def _feature_columns(
    table: Table, named: Sequence[str | None], said: Mapping[str, Declared]
) -> tuple[list[str], tuple[str, ...]]:
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


def _text_columns(table: Table, used: Sequence[str | None]) -> tuple[str, ...]:
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


def _needed(table: Table, found: str | None, known: Sequence[str], option: str) -> str:
    """Return the column that was found; raise FormatError where none was."""
    if found is not None:
        return found
    names = [str(name) for name in table.frame.columns]
    if is_unnamed(table):
        raise table.too_narrow(option)
    free = [name for name in names if name.lower() not in (*SOURCES, *TARGETS, *TIMES)]
    near = next((hint for word in known if (hint := nearest(word, free))), "")
    near = f"; {SEPARATORS}" if len(names) == 1 else near
    raise FormatError(
        f"{table.path} has no column for {option} (known names: {', '.join(known)}){near}; "
        f"it has: {', '.join(names)}. Name the column with --read.{option} NAME ({option} in Python)"
    )


def _are_rows(src: np.ndarray, fields: Mapping[str, Any]) -> bool:
    return src.dtype.kind == "i" and (fields.get("num_nodes", -1) >= 0 or fields.get("x") is not None)


def _rows(src: np.ndarray, dst: np.ndarray, fields: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return node rows; sets node_ids where the ids are not rows already."""
    if src.dtype.kind != dst.dtype.kind:
        src, dst = src.astype(TEXT), dst.astype(TEXT)
    if _are_rows(src, fields):
        return src, dst  # the caller says that ids are rows, or gives features by row
    known = fields.get("node_ids") or Vocabulary.of(src, dst)
    if not known.is_text and np.array_equal(known.ids, np.arange(len(known))):
        return src, dst
    fields["node_ids"] = known
    rows = known.rows(src), known.rows(dst)
    for ids, found in zip((src, dst), rows, strict=True):
        if (found < 0).any():
            known.row(ids[int(np.argmax(found < 0))])  # raises, naming the nearest known id
    return rows


KINDS = ("kind", "op", "operation")

NONE = ""  # in place of a column's name: none

_KIND_WORDS = {"add": ADD, "+": ADD, "insert": ADD, "delete": DELETE, "remove": DELETE, "-": DELETE}

_KIND_WORDS |= {f"{verb}{gap}node": GONE for verb in ("delete", "remove") for gap in "-_ "}


def node_deletions(table: Table, kinds: np.ndarray, source: str, target: str) -> tuple[Table, np.ndarray]:
    """Return the table with the source for the target of events that delete a node, and the kinds that tell those."""
    values = table.frame[target]
    empty = values.isna().to_numpy() | (values.astype(str).str.strip() == "").to_numpy()
    gone = (kinds == GONE) | ((kinds == DELETE) & empty)
    if not gone.any():
        return table, kinds
    sources = table.frame[source]
    numbers = is_numeric(values) and is_numeric(sources)
    same = (values == sources) if numbers else (values.astype(str) == sources.astype(str))
    other = gone & ~empty & ~same.to_numpy()
    if other.any():
        bad = int(np.argmax(other))
        raise DataError(
            f"{table.path}: {table.place(bad)} deletes node '{sources.iloc[bad]}' but names '{values.iloc[bad]}' in "
            f"column {target!r}; leave that cell empty, or write delete for an edge"
        )
    filled = values.where(~gone, sources)
    if not filled.isna().any() and filled.dtype.kind == "f" and sources.dtype.kind in "iu":
        whole_numbers(filled.to_numpy(), f"{table.path}: id", table.place)  # what an empty cell made a fraction
        filled = filled.astype(np.int64)
    written, own = table.text(target), table.text(source)
    texts = {} if written is None or own is None else {target: written.where(~gone, own)}
    table = replace(table, frame=table.frame.assign(**{target: filled}), filled=texts)
    return table, np.where(gone, GONE, kinds).astype(np.int8)


def kind_column(table: Table, taken: Collection[str]) -> str:
    """Return the column that is called as one of kinds and says some in words; else `NONE`.

    Args:
        table: of events.
        taken: columns that hold something else.
    """
    found = role(table, None, KINDS, "kind_column", taken)
    if found is None or not _said_kinds(table, found)[1].any():
        return NONE
    values = table.frame[found]
    if is_numeric(values):
        codes = ", ".join(map(str, sorted(values.dropna().unique().tolist())[:5]))
        raise DataError(
            f"{table.path}: column {found!r} holds codes, {codes}, which may stand for adding and deleting edges or "
            f"for anything else; say which: --read.kind_column {found} (kind_column in Python) reads 0, 1 and 2 as "
            f"add, delete and delete-node, --read.columns '[{found}=category]' takes it as event features, "
            f"'[{found}=drop]' leaves it out"
        )
    return found


def _said_kinds(table: Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return kinds of events (E,) by a column's numbers or words, and (E,) where it holds a kind."""
    values = table.frame[column].to_numpy()
    if values.dtype.kind in "iufb":
        kinds = np.where(values < 0, 1, 0) if (values < 0).any() else values
        good = np.isin(values, (-1, 1)) if (values < 0).any() else np.isin(values, (ADD, DELETE, GONE))
    else:
        words = np.char.lower(values.astype(str))
        good = np.isin(words, list(_KIND_WORDS))
        kinds = np.array([_KIND_WORDS.get(word, 0) for word in words.tolist()])
    return kinds, good


def kinds_of(table: Table, column: str) -> np.ndarray:
    """Return `ADD`, `DELETE` and `GONE` from 0/1/2, +1/-1 or words."""
    kinds, good = _said_kinds(table, column)
    if not good.all():
        values = table.frame[column].to_numpy()
        bad = int(np.argmin(good))
        raise DataError(
            f"{table.path}: {values[bad]!r} in column {column!r}, {table.place(bad)}, is no kind of event; "
            "use add, delete and delete-node, 0, 1 and 2, or +1/-1; where the column holds something else, say what: "
            f"--read.columns '[{column}=category]' takes it as event features, '[{column}=drop]' leaves it out"
        )
    return kinds.astype(np.int8)
