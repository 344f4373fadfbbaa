"""Read event streams from tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopstate.data.dates import NAIVE, zone_of
from hopstate.data.events import ADD, DELETE, GONE, EventStream
from hopstate.data.labels import LabelOptions, parse_event_labels, split_column_names
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.encode import ColumnSpec, check_specs, encode_features, parse_column_specs
from hopstate.data.readers.local import are_formatted_numbers
from hopstate.data.readers.node_tables import NodeTableOptions, NodeTables, with_node_tables
from hopstate.data.readers.relations import node_types_of, relations_of
from hopstate.data.readers.roles import (
    ONE,
    SOURCES,
    TARGETS,
    TIMES,
    assign_by_position,
    bipartite_by_name,
    bipartite_ids,
    bipartite_of,
    check_single_time_column,
    check_target,
    check_unnamed,
    find_role_column,
    is_unnamed,
    node_type_columns,
    roles_note,
)
from hopstate.data.readers.tables import (
    SEPARATORS,
    Table,
    check_not_negative,
    ids_of,
    is_numeric,
    read_table,
    stem_of,
    to_common_type,
    to_integer_ids,
)
from hopstate.data.readers.text import role_name
from hopstate.data.readers.times import describe_times, join_date_and_clock, parse_time_column
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, nearest

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("label", "y", "state_label")
KINDS = ("kind", "op", "operation")
RELATIONS = (*KINDS, "relation", "relation_type", "rel", "edge_type", "event_type", "predicate", "type")
NONE = ""  # in place of a column's name: none
FEATURE = re.compile(r"(feat|feature|edge_attr|msg|f)_?\d+", re.IGNORECASE)
_LOOKED_AT = 1000  # cells of a column of texts that may be numbers
_KIND_WORDS = {"add": ADD, "+": ADD, "insert": ADD, "delete": DELETE, "remove": DELETE, "-": DELETE}
_KIND_WORDS |= {f"{verb}{gap}node": GONE for verb in ("delete", "remove") for gap in "-_ "}


@dataclass(frozen=True, kw_only=True)
class EventTableOptions:
    """How the columns of a table of events are read; see `hopstate.data.readers.read_events.read_events`."""

    source_column: str | None = None
    target_column: str | None = None
    time_column: str | None = None
    kind_column: str | None = None
    label_column: str | None = None
    relation_column: str | None = None
    node_type_column: str | None = None
    features: Any = None
    edge_columns: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    header: bool | None = None
    separator: str | None = None
    missing: str = "error"
    drop_missing_time: bool = False
    task: str = "auto"
    multilabel: str = "whole"
    unlabeled_value: str | None = None
    text_ids: bool = False
    time_format: str | None = None
    bipartite: Any = "auto"

    def __post_init__(self) -> None:
        LabelOptions(task=self.task, multilabel=self.multilabel)  # type: ignore[arg-type]  # checks the values

    @property
    def named(self) -> dict[str, str | None]:
        """Columns by option, in the default order of columns without names."""
        return {name: getattr(self, name) for name in ROLES}


ROLES = tuple(field.name for field in fields(EventTableOptions))[:7]


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The roles of columns of an event table, and notes on unused columns."""

    source: str
    target: str
    time: str
    kind: str | None  # of events that add and delete; None if all add
    labels: tuple[str, ...]  # several are separate targets
    relation: str | None
    node_types: tuple[str, ...]  # of sources and of targets, or none
    features: tuple[str, ...]
    sets: str  # see `hopstate.data.readers.roles.bipartite_by_name`
    notes: tuple[str, ...]

    def roles_note(self, table: Table, times: str, sets: str) -> str:
        roles = {"source": self.source, "target": self.target, "time": self.time, "kind": self.kind}
        roles |= {"label": ", ".join(self.labels), "relation": self.relation, "node type": ", ".join(self.node_types)}
        return roles_note(table, roles, self.features, times, sets)


def read_event_table(source: Any, /, options: EventTableOptions, **stream_fields: Any) -> EventStream:
    """Return the events of a file or a table in memory.

    Text without a header, as SNAP's edge lists, is read as source, target, time.
    """
    given = [part.strip() for name in options.named.values() if name for part in (name, *name.split(","))]
    known = [*SOURCES, *TARGETS, *TIMES, *given]
    table = read_table(
        source, known, num_ids=2, header=options.header, separator=options.separator, what="the table of events"
    )
    table = replace(table, text_ids=options.text_ids)
    if not len(table.frame):
        raise DataError(f"{table.path} holds no events")
    stream_fields = {
        "name": stem_of(Path(table.path)),
        "source": str(table.path),
        **stream_fields,
        "file_length": len(table.frame),
    }
    bipartite, specs = bipartite_of(options.bipartite), parse_column_specs(options.columns)
    nodes = None
    if options.features is None:
        check_specs(specs, table.frame.columns, str(table.path))
    else:
        how = NodeTableOptions(features=options.features, missing=options.missing, text_ids=options.text_ids)
        nodes = NodeTables.read(how, specs=specs, edge_columns=table.names)
    roles = assign_roles(table, options, specs)

    notes: tuple[str, ...] = ()
    time_format = options.time_format or ""
    if not time_format:
        table, notes = join_date_and_clock(table, roles.time)
    dates = NAIVE if time_format else zone_of(table.frame[roles.time])
    table, t, unit, time_notes = parse_time_column(
        table, roles.time, stream_fields.get("time_unit", ""), options.drop_missing_time, time_format
    )
    notes += time_notes
    kinds = None
    if roles.kind is not None:
        table, kinds = node_deletions(table, kinds_of(table, roles.kind), roles.source, roles.target)

    src, dst = plain = ids_of(table, roles.source), ids_of(table, roles.target)
    for name, ids in ((roles.source, src), (roles.target, dst)):
        check_not_negative(table, name, ids)
    sets = ONE
    if (stream_fields.get("node_ids") is None and not _are_rows(src, stream_fields)) or bipartite is True:
        where = f"{table.path}: columns {roles.source!r}, {roles.target!r}"
        src, dst, sets = bipartite_ids(plain, None if kinds is None else kinds == GONE, roles.sets, bipartite, where)
        stream_fields["two_sets"] = src is not plain[0]
    src, dst = _rows(src, dst, stream_fields)

    relation: np.ndarray | None = None
    relation_names: tuple[str, ...] = ()
    if roles.relation is not None:
        relation, relation_names = relations_of(table, roles.relation, kinds)
    features: FeatureTable | None = None
    feature_notes: tuple[str, ...] = ()
    if roles.features:
        features, feature_notes = _event_features(table, roles.features, options.missing, specs, kinds)
    labels, names, of_labels = parse_event_labels(
        table, roles.labels or (None,), options.task, options.multilabel, options.unlabeled_value
    )
    used = [
        *(roles.source, roles.target, roles.time, roles.kind, roles.relation),
        *(*roles.node_types, *roles.labels, *roles.features, *specs),
    ]
    unused_notes = (*text_column_notes(table, used), *_relation_notes(table, used))
    columns_note = roles.roles_note(table, describe_times(t, unit, dates), sets)
    stream_fields = {
        "class_names": names,
        "notes": (columns_note, *table.notes, *notes, *roles.notes, *feature_notes, *of_labels, *unused_notes),
        "dates": dates,
        **stream_fields,
        "time_unit": unit,
        "file_rows": table.rows,
    }
    attr = None if features is None else features.plain()
    stream = EventStream.from_arrays(
        src, dst, t, kind=kinds, labels=labels, edge_attr=attr, edge_table=features, relation=relation,
        relation_names=relation_names, **stream_fields,
    )  # fmt: skip
    if roles.node_types:
        node_type, names = node_types_of(table, roles.node_types, (src, dst), stream.num_nodes)
        stream = stream.with_(node_type=node_type, node_type_names=names)
    return stream if nodes is None else with_node_tables(stream, nodes, stream_fields.get("num_nodes", -1))


# ---- roles of columns --------------------------------------------------------------------------------------------
def assign_roles(table: Table, options: EventTableOptions, specs: Mapping[str, ColumnSpec]) -> Roles:
    """Assign roles to columns: by option, by name, or by position if columns have no names."""
    named = options.named
    several = split_column_names(table, options.label_column)
    chosen = options.edge_columns
    types = node_type_columns(table, options.node_type_column)
    other = {*specs, *(chosen or ()), *(name for name in named.values() if name), *several, *types}
    given_names = {option: named[option] for option in ROLES[:3]}
    check_unnamed(table, given_names, ["time_column"])
    if is_unnamed(table):
        given_names = assign_by_position(table, given_names)
    endpoints = {
        option: find_role_column(table, given_names[option], names, option, other)
        for option, names in zip(ROLES[:3], (SOURCES, TARGETS, TIMES), strict=True)
    }
    if absent := [option for option, name in endpoints.items() if name is None]:
        raise _missing_columns_error(table, absent)
    source, target, time = (str(name) for name in endpoints.values())
    if time in specs:
        raise ConfigError(
            f"read.columns declares a feature {time!r}, which is the column of times; --read.time_format gives the "
            "form of its dates, --read.time_column takes another column as the time"
        )
    if named["time_column"] is None:
        check_single_time_column(table, time, {source, target, *other})
    used_names = {*other, source, target, time}
    if named["kind_column"] is None:
        kind = find_kind_column(table, used_names) or None
    else:
        kind = find_role_column(table, named["kind_column"] or None, (), "kind_column")
    labels = several
    if not several and options.label_column != NONE:
        label = find_role_column(table, options.label_column, LABELS, "label_column", {*used_names, kind})
        labels = () if label is None else (label,)

    relation = find_role_column(table, options.relation_column, (), "relation_column")
    used = (source, target, time, kind, relation, *types, *labels)
    features, notes = _feature_columns(table, used, chosen, specs)
    twice = [name for name in features if name in (*labels, relation)]
    if twice:
        role = "the relation" if twice[0] == relation else "a label"
        raise ConfigError(f"{table.path}: column {twice[0]!r} is {role} and cannot be a feature of the same event")
    if named["target_column"] is None:
        seen = {*used, *features, *specs}
        unused = [name for name in table.names if name not in seen]
        check_target(table, target, [name for name in unused if is_numeric(table.frame[name])])
    sets = bipartite_by_name(source, target, unnamed=is_unnamed(table))
    return Roles(
        source=source, target=target, time=time, kind=kind, labels=labels, relation=relation, node_types=types,
        features=features, sets=sets, notes=notes,
    )  # fmt: skip


def _missing_columns_error(table: Table, options: Sequence[str]) -> FormatError:
    if is_unnamed(table):
        return table.too_narrow(options[0])
    aliases = dict(zip(ROLES[:3], (SOURCES, TARGETS, TIMES), strict=True))
    free = [name for name in table.names if role_name(name) not in (*SOURCES, *TARGETS, *TIMES)]
    likely = {  # a column with a word of the role, such as "Sender Name"
        option: next((name for name in free if {*role_name(name).split("_")} & {*aliases[option]}), None)
        for option in options
    }
    hints = [] if any(likely.values()) else [nearest(word, free) for option in options for word in aliases[option]]
    near = f"; {SEPARATORS}" if len(table.names) == 1 else next(filter(None, hints), "")
    usual = " ".join(f"--read.{option} {shlex.quote(likely[option] or 'NAME')}" for option in options)
    return FormatError(
        f"{table.path} has no column for {', '.join(options)}{near}; it has: {', '.join(table.names)}. "
        f"Name the columns: {usual} ({options[0]}=... in Python)"
    )


def _feature_columns(
    table: Table, used: Collection[str | None], chosen: Sequence[str] | None, specs: Mapping[str, ColumnSpec]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of features: those chosen, else those of usual names, and those declared; and notes."""
    notes: tuple[str, ...] = ()
    if chosen is not None and not len(chosen):  # an empty list takes none
        return (), notes
    features = list(chosen or ())
    if chosen is None:
        rest = [name for name in table.names if name not in used]
        features = [name for name in rest if FEATURE.fullmatch(name) or name in specs]
        used_names = set(features)
        unused = [name for name in rest if name not in used_names and is_numeric(table.frame[name])]
        if unused:
            notes = (
                f"numeric columns that are not used: {', '.join(unused)}; take them as event features with "
                f"--read.edge_columns '[{', '.join(features + unused)}]' (edge_columns in Python), or leave them out "
                f"with '[{', '.join(features)}]'",
            )
    features += [name for name in table.names if name in specs and name not in (*used, *features)]
    return tuple(name for name in features if name not in specs or specs[name].kind != "drop"), notes


def text_column_notes(table: Table, used: Sequence[str | None]) -> tuple[str, ...]:
    """Return notes on columns of texts that are not used, and on those of them that may be numbers."""
    used_names = set(used)
    unused = [name for name in table.names if name not in used_names and not is_numeric(table.frame[name])]
    if not unused:
        return ()
    remedy = f"--read.columns '[{unused[0]}=category]' takes one as event features"
    notes = (f"columns of text that are not used: {', '.join(unused)} ({remedy})",)
    numbers = [name for name in unused if _with_separators(table.frame[name])]
    if not numbers:
        return notes
    return (
        *notes,
        f"{', '.join(numbers)}: numbers with separators or signs, which are read as text; write 1234.5, or say "
        f"--read.columns '[{numbers[0]}=number:point]' (1,234.5) or '[{numbers[0]}=number:comma]' (1.234,5)",
    )


def _relation_notes(table: Table, used: Sequence[str | None]) -> tuple[str, ...]:
    """Return a note on an unused column that is named as relations are."""
    found = [name for name in table.names if name not in used and role_name(name) in RELATIONS]
    return tuple(
        f"{name} may be the relation of an event: --read.relation_column {name} reads it" for name in found[:1]
    )


def _with_separators(column: pd.Series) -> bool:
    return bool(are_formatted_numbers(column.head(_LOOKED_AT).dropna().astype(str).str.strip()).any())


def _event_features(
    table: Table, columns: Sequence[str], missing: str, specs: Mapping[str, ColumnSpec], kinds: np.ndarray | None
) -> tuple[FeatureTable | None, tuple[str, ...]]:
    """Return event features and notes; missing numbers of deletions are 0."""
    for name in set(columns).difference(table.names):
        table.column(name, (), None, "edge_columns")
    if kinds is not None and (kinds != ADD).any():
        numeric = [name for name in columns if is_numeric(table.frame[name])]
        blank = table.frame[numeric].isna() & (kinds != ADD)[:, None]
        table = replace(table, frame=table.frame.assign(**{c: table.frame[c].mask(blank[c], 0) for c in numeric}))
    return encode_features(table, list(columns), "event features", missing, specs)


# ---- rows of nodes -----------------------------------------------------------------------------------------------
def _are_rows(src: Any, stream_fields: Mapping[str, Any]) -> bool:
    """Return whether ids are rows: the caller gives the number of nodes, or their features by row."""
    return isinstance(src, np.ndarray) and (
        stream_fields.get("num_nodes", -1) >= 0 or stream_fields.get("x") is not None
    )


def _rows(src: Any, dst: Any, stream_fields: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return node rows; sets node_ids where the ids are not rows already."""
    src, dst = to_common_type(src, dst)
    if _are_rows(src, stream_fields):
        return src, dst
    known = stream_fields.get("node_ids") or Vocabulary.of(src, dst)
    if known.is_rows:
        return src, dst
    stream_fields["node_ids"] = known
    src, dst = known.require_rows(src, dst)
    return src, dst


# ---- kinds -------------------------------------------------------------------------------------------------------
def node_deletions(table: Table, kinds: np.ndarray, source: str, target: str) -> tuple[Table, np.ndarray]:
    """Return the table with the target of node deletions set to their source, and the event kinds."""
    values, sources = table.frame[target], table.frame[source]
    empty = values.isna().to_numpy() | (values.astype(str).str.strip() == "").to_numpy()
    gone = (kinds == GONE) | ((kinds == DELETE) & empty)
    if not gone.any():
        return table, kinds
    numbers = is_numeric(values) and is_numeric(sources)
    same = (values == sources) if numbers else (values.astype(str) == sources.astype(str))
    remedy = "Leave that cell empty, or write delete for an edge."
    table.check(gone & ~empty & ~same.to_numpy(), target, "a deleted node with another node as target", remedy)
    filled = values.where(~gone, sources)
    if not filled.isna().any() and filled.dtype.kind == "f" and sources.dtype.kind in "iu":
        to_integer_ids(filled.to_numpy(), f"{table.path}: id", table.place)  # empty cells made floats of them
        filled = filled.astype(np.int64)
    written = {}
    if table.written:
        written[target] = pc.if_else(pa.array(gone), table.written[source], table.written[target])
    table = replace(table, frame=table.frame.assign(**{target: filled}), written={**table.written, **written})
    return table, np.where(gone, GONE, kinds).astype(np.int8)


def find_kind_column(table: Table, excluded: Collection[str]) -> str:
    """Return the column of event kinds, or `NONE`; number codes raise an error."""
    column = find_role_column(table, None, KINDS, "kind_column", excluded)
    if column is None or not _parsed_kinds(table, column)[1].any():
        return NONE
    values = table.frame[column]
    if is_numeric(values):
        codes = ", ".join(map(str, sorted(values.dropna().unique().tolist())[:5]))
        raise DataError(
            f"{table.path}: column {column!r} holds codes, {codes}, which may or may not mean added and "
            f"deleted edges. Choose: --read.kind_column {column} (kind_column in Python) reads 0, 1 and 2 as "
            f"add, delete and delete-node, --read.columns '[{column}=category]' takes it as event features, "
            f"'[{column}=drop]' leaves it out"
        )
    return column


def _parsed_kinds(table: Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return kinds of events (E,) by a column's numbers or words, and (E,) where it holds a kind."""
    values = table.frame[column].to_numpy()
    if values.dtype.kind in "iufb":
        signed = (values < 0).any()
        kinds = np.where(values < 0, DELETE, ADD) if signed else values
        return kinds, np.isin(values, (-1, 1) if signed else (ADD, DELETE, GONE))
    words = np.char.lower(values.astype(str)).tolist()
    return np.array([_KIND_WORDS.get(word, ADD) for word in words]), np.isin(words, list(_KIND_WORDS))


def kinds_of(table: Table, column: str) -> np.ndarray:
    """Return `ADD`, `DELETE` and `GONE` from 0/1/2, +1/-1 or words."""
    kinds, good = _parsed_kinds(table, column)
    remedy = (
        "Use add, delete and delete-node, 0, 1 and 2, or +1/-1; if the column holds something else: --read.columns "
        f"'[{column}=category]' takes it as event features, '[{column}=drop]' leaves it out."
    )
    table.check(~good, column, "not an event kind", remedy)
    return kinds.astype(np.int8)
