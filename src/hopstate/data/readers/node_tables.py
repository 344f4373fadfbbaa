"""Read tables of node features and labels, or a folder with a table for each type of nodes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.events import EventStream, not_none
from hopstate.data.labels import LabelOptions, LabelTable, read_labels
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.encode import ColumnSpec, check_specs, encode_features
from hopstate.data.readers.notes import isolated_nodes_note
from hopstate.data.readers.relations import check_num_types
from hopstate.data.readers.tables import (
    IDS,
    Table,
    as_frame,
    is_array,
    node_ids,
    plain_array,
    read_npy,
    read_table,
    rows_are_nodes,
    stem_of,
    to_common_type,
)
from hopstate.data.validate import check_ids, features_of_array
from hopstate.data.vocabulary import Vocabulary, as_texts
from hopstate.errors import ConfigError, DataError, warn


@dataclass(frozen=True, kw_only=True)
class NodeTableOptions(LabelOptions):
    """How tables of nodes are read; see `hopstate.data.readers.read_graph.read_graph`."""

    features: Any = None
    labels: Any = None
    num_nodes: int | None = None
    missing: str = "error"


@dataclass(frozen=True)
class PlacedNodes:
    """Rows of the nodes of a graph."""

    rows: list[np.ndarray]  # of each column of ids that was placed
    ids: Vocabulary | None  # of all nodes, None if they are their rows
    count: int  # of nodes
    labelled: np.ndarray  # rows of the nodes of labels
    notes: tuple[str, ...] = ()  # on labels of nodes without edges


@dataclass(frozen=True)
class NodeTables:
    """Features and labels of nodes, in memory."""

    features: FeatureTable | None
    ids: np.ndarray | None  # of all nodes in order, if features or the caller say so
    labels: LabelTable | None
    count: int | None  # nodes are rows 0..count-1; None if ids are names
    files: tuple[str, str]  # how messages call features and labels
    notes: tuple[str, ...]  # on both
    types: np.ndarray | None = None  # of all nodes in order, if each type has a table
    type_names: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        options: NodeTableOptions,
        *,
        specs: Mapping[str, ColumnSpec],
        edge_columns: Iterable[str] = (),
        all_ids: np.ndarray | None = None,
    ) -> NodeTables:
        """Read the tables that options name."""
        files = (
            _describe_source(options.features, "the table of features"),
            _describe_source(options.labels, "the table of labels"),
        )
        labels = read_labels(options.labels, options)
        without = labels.columns if labels is not None and _is_same_source(options.features, options.labels) else ()
        types, type_names = None, tuple[str, ...]()
        if is_folder(options.features):
            features, ids, types, type_names, notes = _features_by_type(options, specs, edge_columns)
        else:
            features, ids, notes = _node_features(options, without, specs, edge_columns)
        count = options.num_nodes
        if count is None and features is not None and ids is None:
            count = len(features)
        if count is None and labels is not None and labels.ids is None:
            count = len(labels.y)
        if count is not None and features is not None and ids is not None:
            order = _rows_in_order(ids, count, files[0])
            features, ids, types = features.take(order), None, None if types is None else types[order]
        notes = (*notes, *(() if labels is None else labels.notes))
        return cls(features, all_ids if features is None else ids, labels, count, files, notes, types, type_names)

    def place(self, columns: list[np.ndarray], called: Sequence[str], table: Table | None) -> PlacedNodes:
        """Return the rows of ids of edges, and of labels."""
        labels = None if self.labels is None else self.labels.ids
        if self.count is not None:
            for ids, what in zip(columns, called, strict=True):
                _check_rows(ids, self.count, what)
            if labels is None:
                labels = np.arange(0 if self.labels is None else len(self.labels.y))
            _check_rows(labels, self.count, f"{self.files[1]}: ids")
            return PlacedNodes(columns, None, self.count, labels)
        node_ids, labels, *columns = to_common_type(self.ids, labels, *columns)
        vocabulary = Vocabulary.of(*columns, *not_none(labels)) if node_ids is None else Vocabulary(node_ids)
        if not len(vocabulary):
            where = called[0] if table is None else table.path
            raise DataError(f"{where} holds no edges and no node table was given; a graph needs at least one node")
        rows = [vocabulary.rows(ids) for ids in columns]
        for ids, found, what in zip(columns, rows, called, strict=True):
            self._check_ids_found(ids, found, what, table)
        labelled = np.empty(0, np.int64)
        notes: tuple[str, ...] = ()
        if labels is not None:
            labelled = vocabulary.rows(labels)
            self._check_ids_found(labels, labelled, self.files[1], None)
            notes = isolated_nodes_note(labels, columns) if node_ids is None else ()
        return PlacedNodes(rows, None if vocabulary.is_rows else vocabulary, len(vocabulary), labelled, notes)

    def _check_ids_found(self, ids: np.ndarray, rows: np.ndarray, what: str, table: Table | None) -> None:
        bad = np.flatnonzero(rows < 0)
        if len(bad):
            row = int(bad[0])
            place = f"row {row}" if table is None else table.place(row)
            raise DataError(
                f"{what}: id {ids[row : row + 1].tolist()[0]!r} in {place} is not in {self.files[0]} ({len(bad)} such "
                "rows); add it there, or remove the row"
            )

    def fields(self, placed: PlacedNodes) -> dict[str, Any]:
        """Return the fields of a graph that nodes carry."""
        fields: dict[str, Any] = {}
        if self.features is not None:
            fields = {"x": self.features.plain(), "table": self.features}
        if self.types is not None:
            fields |= {"node_type": self.types, "node_type_names": self.type_names}
        if self.labels is not None:
            fields |= self.labels.fields(placed.labelled, placed.count)
        return fields


def with_node_tables(stream: EventStream, nodes: NodeTables, num_nodes: int = -1) -> EventStream:
    """Return a stream with the features and types of its nodes; its rows become those of the tables.

    Raises:
        DataError: a node of an event is in no table.
        ConfigError: both the stream and the tables have types, or num_nodes is not their number of nodes.
    """
    if nodes.types is not None and stream.node_type is not None:
        raise ConfigError(f"the tables in {nodes.files[0]} give the types of nodes: leave node_type_column out")
    used = np.unique(np.concatenate([stream.src, stream.dst]))
    ids, names = to_common_type(nodes.ids, used if stream.node_ids is None else stream.node_ids.take(used))
    vocabulary = Vocabulary(ids)
    if num_nodes not in (-1, len(vocabulary)):
        raise ConfigError(
            f"num_nodes: got {num_nodes:,}, and {nodes.files[0]} has {len(vocabulary):,} nodes. Leave num_nodes out"
        )
    rows = np.full(stream.num_nodes, -1)
    rows[used] = vocabulary.rows(names)
    absent = np.flatnonzero(rows[used] < 0)
    if len(absent):
        first = int(absent[0])
        raise DataError(
            f"{stream.source or stream.name}: {len(absent):,} nodes have events but no row in {nodes.files[0]}: got "
            f"{names[first : first + 1].tolist()[0]!r}. Add a row for each, or leave their events out"
        )
    placed = PlacedNodes([], None if vocabulary.is_rows else vocabulary, len(vocabulary), np.empty(0, np.int64))
    fields = nodes.fields(placed) | {"num_nodes": placed.count, "node_ids": placed.ids}
    if stream.node_type is not None:
        fields["node_type"] = np.full(placed.count, -1, np.int16)
        fields["node_type"][rows[used]] = stream.node_type[used]
    notes = (*stream.notes, *nodes.notes)
    return stream.with_(src=rows[stream.src], dst=rows[stream.dst], notes=notes, **fields)


def _describe_source(source: Any, name: str) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else name


def _is_same_source(features: Any, labels: Any) -> bool:
    if isinstance(features, (str, os.PathLike)) and isinstance(labels, (str, os.PathLike)):
        return Path(features).resolve() == Path(labels).resolve()
    return features is labels


def is_folder(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and Path(source).is_dir()


def _features_by_type(
    options: NodeTableOptions, specs: Mapping[str, ColumnSpec], edge_columns: Iterable[str]
) -> tuple[FeatureTable | None, Any, np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return features, ids and types of the nodes in a folder with a table per type, the names of types, and notes."""
    import pyarrow as pa

    folder = Path(options.features)
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith("."):
            continue
        if (twin := files.setdefault(stem_of(file), file)) is not file:
            raise DataError(f"{folder}: two tables of type {stem_of(file)!r}: got {twin.name}, {file.name}. Remove one")
    check_num_types(list(files), str(folder))
    prefixes = tuple(f"{name}." for name in files)
    check_specs({k: v for k, v in specs.items() if not k.startswith(prefixes)}, edge_columns, f"{folder}/*")
    tables, ids, notes = [], [], list[str]()
    for (name, file), prefix in zip(files.items(), prefixes):
        own = {column: spec for column, spec in specs.items() if column.startswith(prefix)}
        table, keys, told = _node_features(replace(options, features=file), (), own, (), prefix)
        if table is None or keys is None:
            raise DataError(f"{file}: a table of nodes of type {name!r} needs a column of ids. Add one")
        tables.append(table)
        ids.append(keys)
        notes += told
    if not tables:
        raise DataError(f"{folder}: no tables of nodes. Give a file for each type, such as user.csv")
    numbers = all(isinstance(keys, np.ndarray) for keys in ids)
    whole = np.concatenate(ids) if numbers else pa.concat_arrays([as_texts(keys) for keys in ids])
    types = np.repeat(np.arange(len(ids), dtype=np.int16), list(map(len, tables)))
    try:
        Vocabulary(whole)
    except DataError as error:
        raise DataError(f"{folder}: {error}. A node has one type: give ids that differ between the tables") from None
    return FeatureTable.stacked(tables), whole, types, tuple(files), tuple(notes)


def _node_features(
    options: NodeTableOptions,
    without: Sequence[str],
    specs: Mapping[str, ColumnSpec],
    edge_columns: Iterable[str],
    prefix: str = "",
) -> tuple[FeatureTable | None, np.ndarray | None, tuple[str, ...]]:
    """Return features, all columns but some, the id of each row (None if rows are the nodes), and notes."""
    what = "the table of features"
    source, path = as_frame(options.features), _describe_source(options.features, what)
    if source is None or is_array(source) or path.endswith(".npy"):
        check_specs(specs, edge_columns, "the table of edges")
        if source is None:
            return None, None, ()
        values = plain_array(source, path) if is_array(source) else read_npy(Path(path))
        return features_of_array(values, options.missing, f"{path}: node features"), None, ()
    table = replace(read_table(source, [*IDS, *not_none(options.id_column)], what=what), text_ids=options.text_ids)
    key = table.column(options.id_column, IDS, 0, "id_column")
    assert key is not None
    if prefix:
        names = {name: f"{prefix}{name}" for name in table.names if name != key}
        written = {names.get(name, name): cells for name, cells in table.written.items()}
        table = replace(table, frame=table.frame.rename(columns=names), written=written)
    columns = [name for name in table.names if name not in (key, *without)]
    if not columns and not prefix:
        raise DataError(f"{path} has no column of features except {', '.join([key, *without])}; {rows_are_nodes(path)}")
    check_specs(specs, [*columns, *edge_columns], path)
    labels = [name for name in columns if name.lower() in ("label", "class") and name not in specs]
    if labels:
        warn(
            f"{path}: column {labels[0]!r} is read as a feature; where it holds what is to be predicted, remove it",
            stacklevel=4,
        )
    ids, id_notes = node_ids(table, key, options.id_column)
    features, notes = encode_features(table, columns, "node features", options.missing, specs)
    if features is None and prefix:
        features = FeatureTable((), np.empty((len(table.frame), 0), np.float32))
    if features is None:
        raise DataError(f"{path} has no column of features that can be used: {'; '.join(notes) or 'all are dropped'}")
    return features, ids, (*table.notes, *notes, *id_notes)


def _rows_in_order(ids: np.ndarray, num_nodes: int, where: str) -> np.ndarray:
    """Return the order in which rows of a table of features have the ids 0, 1, ..., num_nodes - 1."""
    _check_rows(ids, num_nodes, f"{where}: ids")
    absent = np.setdiff1d(np.arange(num_nodes), ids)
    if len(absent):
        raise DataError(f"{where} has no row for {len(absent)} of {num_nodes} nodes, the first is {absent[0]}")
    return np.argsort(ids)


def _check_rows(ids: np.ndarray, num_nodes: int, what: str) -> None:
    if not isinstance(ids, np.ndarray):
        raise DataError(
            f"{what} holds strings such as {ids[:1].tolist()[0]!r}, but nodes are the rows 0..{num_nodes - 1}"
        )
    check_ids(ids, num_nodes, what)
