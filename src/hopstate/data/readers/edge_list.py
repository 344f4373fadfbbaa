"""Read a graph from a table of edges and optional tables of node features and labels."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.events import not_none
from hopstate.data.graph import Graph, sides_of
from hopstate.data.labels import LabelOptions, LabelTable, read_labels
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.encode import (
    ColumnSpec,
    check_plain_numbers,
    check_specs,
    encode_features,
    parse_column_specs,
)
from hopstate.data.readers.event_tables import node_type_columns, node_types_of, relations_of
from hopstate.data.readers.ids import check_not_negative, ids_of, to_common_type
from hopstate.data.readers.notes import date_hint, isolated_nodes_note, time_notes, uninformative_columns
from hopstate.data.readers.roles import (
    SOURCES,
    TARGETS,
    TIMES,
    TWO,
    Bipartite,
    bipartite_by_name,
    bipartite_ids,
    bipartite_of,
    check_unnamed,
    find_role_column,
    is_unnamed,
    roles_note,
)
from hopstate.data.readers.tables import (
    IDS,
    Table,
    as_frame,
    is_array,
    is_numeric,
    node_ids,
    plain_array,
    read_npy,
    read_table,
    rows_are_nodes,
    stem_of,
)
from hopstate.data.readers.text import role_name
from hopstate.data.validate import check_ids, features_of_array
from hopstate.data.vocabulary import Vocabulary, as_texts, count_shared, ids_array
from hopstate.errors import ConfigError, DataError, warn

NOT_ENDPOINTS = (*TIMES, "weight", "label")  # names of columns that are never endpoints


@dataclass(frozen=True, kw_only=True)
class EdgeTableOptions(LabelOptions):
    """How a table of edges and tables of nodes are read; see `hopstate.data.readers.read_graph.read_graph`."""

    source_column: str | None = None
    target_column: str | None = None
    relation_column: str | None = None
    node_type_column: str | None = None
    edge_columns: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    header: bool | None = None
    separator: str | None = None
    features: Any = None
    labels: Any = None
    num_nodes: int | None = None
    missing: str = "error"
    bipartite: Any = "auto"


def read_edge_list(
    source: Any,
    /,
    options: EdgeTableOptions,
    *,
    all_ids: np.ndarray | None = None,
    **graph_fields: Any,
) -> Graph:
    """Return the graph of an edge table and, if given, tables of node features and labels.

    Nodes are the rows of the feature table in its order; without one, all ids of edges and labels, sorted. A .npy
    file of features or labels has one row for each node 0..N-1 and stays memory-mapped.

    Args:
        source: table of edges, a path or in memory: two columns of ids, others numeric edge features.
        all_ids: the ids of all nodes in order, if there are no features; by default those of edges and labels.
        graph_fields: options of `Graph.from_edges` and fields of `Graph`.
    """
    id_names = [*SOURCES, *TARGETS, *not_none(options.source_column, options.target_column)]
    table = read_table(
        source, id_names, num_ids=2, header=options.header, separator=options.separator, what="the table of edges"
    )
    table = replace(table, text_ids=options.text_ids)
    specs = parse_column_specs(options.columns)
    needed = [name for name, spec in specs.items() if spec.required]
    types = node_type_columns(table, options.node_type_column)
    if types and _is_folder(options.features):
        raise ConfigError(f"the tables in {options.features} give the types of nodes: leave node_type_column out")
    typed = [*not_none(options.relation_column), *types]
    endpoint_names = endpoint_columns(
        table, options.source_column, options.target_column, [*(options.edge_columns or ()), *needed, *typed]
    )
    src, dst = (ids_of(table, end) for end in endpoint_names)

    used, notes = feature_columns(table, (*endpoint_names, *typed), options.edge_columns, specs)
    features = None
    if used:
        missing = "error" if options.missing == "auto" else options.missing
        features, feature_notes = encode_features(table, used, "edge features", missing, specs)
        notes += feature_notes
    nodes = NodeTables.read(options, specs=specs, edge_columns=table.names, all_ids=all_ids)
    src, dst, two_sets = _two_sets(
        table, endpoint_names, src, dst, bipartite_of(options.bipartite), as_rows=nodes.count is not None
    )
    if nodes.count is None:
        src, dst = to_common_type(src, dst)
        for end, ids in zip(endpoint_names, (src, dst), strict=True):
            check_not_negative(table, end, ids)
    placed = nodes.place([src, dst], [f"{table.path}: column {end!r}" for end in endpoint_names], table)
    src, dst = placed.rows

    fields: dict[str, Any] = {"node_ids": placed.ids, "edge_table": features, **nodes.fields(placed)}
    if options.relation_column is not None:
        column = str(table.column(options.relation_column, (), None, "relation_column"))
        fields["relation"], fields["relation_names"] = relations_of(table, column, None)
    if types:
        fields["node_type"], fields["node_type_names"] = node_types_of(table, types, (src, dst), placed.count)
    elif two_sets is not False and "node_type" not in fields:
        fields["node_type"] = sides_of(src, dst, placed.count, str(table.path), needed=two_sets is True)
    node_type = None if fields.get("node_type_names") else fields.get("node_type")
    sets = "" if node_type is None else _sets_note(node_type, placed.ids)
    named = {"relation": options.relation_column, "node type": ", ".join(types)}
    fields["notes"] = (
        roles_note(
            table,
            {"source": endpoint_names[0], "target": endpoint_names[1], **named},
            used,
            sets=sets,
            features_name="edge features",
        ),
        *table.notes,
        *notes,
        *nodes.notes,
        *placed.notes,
    )
    graph_fields = {"source": str(table.path), "name": stem_of(Path(table.path)), **fields, **graph_fields}
    return Graph.from_edges(np.stack([src, dst], 1), placed.count, noted=True, **graph_fields)


def read_networkx(graph: Any, options: EdgeTableOptions, *, undirected: bool, **graph_fields: Any) -> Graph:
    """Return the graph of a networkx graph, with attributes of its nodes and edges as columns of features."""
    import pandas as pd

    whole = all(type(node) is int for node in graph.nodes)
    names = {node: node if whole else str(node) for node in graph.nodes}
    if not names:
        raise DataError("the networkx graph has no nodes")
    ends = pd.DataFrame(
        [(names[edge[0]], names[edge[1]]) for edge in graph.edges()], columns=["source", "target"]
    ).astype("int64" if whole else str)
    edges = _with_attributes(ends, [data for *_, data in graph.edges(data=True)], "edges")
    ids = pd.DataFrame({"id": list(names.values())})
    nodes = _with_attributes(ids, [data for _, data in graph.nodes(data=True)], "nodes")
    labelled = options.label_column is not None
    if labelled and options.labels is None:
        options = replace(options, labels=nodes)
    if nodes.shape[1] > 1 + labelled and options.features is None:
        options = replace(options, features=nodes)
    graph_fields = {"name": str(getattr(graph, "name", "")) or "graph", "source": "memory", **graph_fields}
    undirected = undirected or not graph.is_directed()
    return read_edge_list(
        edges, options, undirected=undirected, all_ids=ids_array(ids["id"].to_numpy()), **graph_fields
    )


def _with_attributes(ids: Any, attributes: list[dict[str, Any]], what: str) -> Any:
    import pandas as pd

    found = pd.DataFrame(attributes, index=range(len(attributes)))
    both = [name for name in ids.columns if name in found]
    if both:
        raise DataError(f"the networkx graph: {what} have an attribute {both[0]!r}; rename it")
    return pd.concat([ids, found], axis=1)


# ---- columns of edges --------------------------------------------------------------------------------------------
def endpoint_columns(
    table: Table, source_column: str | None, target_column: str | None, excluded: Collection[str] = ()
) -> tuple[str, str]:
    """Return the source and target columns: by option, by name, otherwise the first candidates."""
    named = {"source_column": source_column, "target_column": target_column}
    check_unnamed(table, named, list(named))
    excluded = {*excluded, *not_none(source_column, target_column)}
    first = find_role_column(table, source_column, SOURCES, "source_column", excluded)
    second = find_role_column(table, target_column, TARGETS, "target_column", {*excluded, first})
    names = table.names
    free = [name for name in names if name not in (first, second, *excluded) and role_name(name) not in NOT_ENDPOINTS]
    if first is None:
        first = next((name for name in free if role_name(name) not in TARGETS), None)
    if second is None and first is not None:
        free = [name for name in free if name != first and role_name(name) not in SOURCES]
        second = next((name for name in free if names.index(name) > names.index(first)), next(iter(free), None))
    if first is None or second is None:
        option = "source_column" if first is None else "target_column"
        if len(names) < 2:
            raise table.too_narrow(option)
        raise DataError(
            f"{table.path} has no column for {option}; it has: {', '.join(names)}. Name it with --read.{option} NAME"
        )
    if first == second:
        raise DataError(
            f"{table.path}: source and target are both column {first!r}; name them (source_column, target_column)"
        )
    return first, second


def feature_columns(
    table: Table, ends: Collection[str], chosen: Sequence[str] | None, specs: Mapping[str, ColumnSpec]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of edge features, and notes."""
    rest = [name for name in table.names if name not in ends]
    needed = [name for name in rest if name in specs and specs[name].required]
    notes: tuple[str, ...] = ()
    if chosen is None:
        without, notes = uninformative_columns(table.frame, [name for name in rest if name not in specs])
        rest = [name for name in rest if name not in without]
        used = [name for name in rest if name in needed or is_numeric(table.frame[name])]
        notes += time_notes(table.frame, [name for name in used if name not in specs])
        left = [name for name in rest if name not in used]
        for name in left:
            if name not in specs:
                check_plain_numbers(table, name, "edge features")
        if left:
            when = date_hint(table.frame, left)
            warn(
                f"{table.path}: columns {', '.join(left)} are not numeric and were ignored (--read.edge_columns){when}",
                stacklevel=4,
            )
    else:
        for name in chosen:
            table.column(name, (), None, "edge_columns")
        used = [*chosen, *(name for name in needed if name not in chosen and chosen)]  # an empty list takes none
    return [name for name in used if name not in specs or specs[name].kind != "drop"], notes


def _two_sets(
    table: Table, ends: tuple[str, str], src: Any, dst: Any, bipartite: Bipartite, *, as_rows: bool
) -> tuple[Any, Any, bool | None]:
    """Return source and target ids, and whether the graph is bipartite; None decides by the rows.

    Numbers in both columns of a bipartite graph get a prefix, unless ids are node rows.
    """
    if bipartite is False or as_rows:
        return src, dst, None if bipartite == "auto" else bipartite
    by_name = bipartite_by_name(*ends, unnamed=is_unnamed(table))
    if not count_shared(src, dst) or (bipartite == "auto" and by_name != TWO):
        return src, dst, None
    src, dst, _ = bipartite_ids((src, dst), None, TWO, True, str(table.path))
    return src, dst, True


def _sets_note(node_type: np.ndarray, ids: Vocabulary | None) -> str:
    first = [int(np.argmax(node_type == side)) for side in (0, 1)]
    names = first if ids is None else ids.names(np.array(first)).tolist()
    sizes = [int((node_type == side).sum()) for side in (0, 1)]
    return (
        f"{TWO}: {sizes[0]:,} sources such as {names[0]}, {sizes[1]:,} targets such as {names[1]} (--read.bipartite "
        "false takes them as one)"
    )


# ---- tables of nodes ---------------------------------------------------------------------------------------------
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
        options: EdgeTableOptions,
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
        types: np.ndarray | None = None
        type_names: tuple[str, ...] = ()
        if _is_folder(options.features):
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


def _describe_source(source: Any, name: str) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else name


def _is_same_source(features: Any, labels: Any) -> bool:
    if isinstance(features, (str, os.PathLike)) and isinstance(labels, (str, os.PathLike)):
        return Path(features).resolve() == Path(labels).resolve()
    return features is labels


def _is_folder(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and Path(source).is_dir()


def _features_by_type(
    options: EdgeTableOptions, specs: Mapping[str, ColumnSpec], edge_columns: Iterable[str]
) -> tuple[FeatureTable | None, Any, np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return features, ids and types of the nodes in a folder with a table per type, the names of types, and notes."""
    import pyarrow as pa

    folder = Path(options.features)
    files = {stem_of(file): file for file in sorted(folder.iterdir()) if not file.name.startswith(".")}
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
    ids = to_common_type(*ids)
    numbers = all(isinstance(keys, np.ndarray) for keys in ids)
    whole = np.concatenate(ids) if numbers else pa.concat_arrays([as_texts(keys) for keys in ids])
    types = np.repeat(np.arange(len(ids), dtype=np.int16), list(map(len, tables)))
    try:
        Vocabulary(whole)
    except DataError as error:
        raise DataError(f"{folder}: {error}. A node has one type: give ids that differ between the tables") from None
    return FeatureTable.stacked(tables), whole, types, tuple(files), tuple(notes)


def _node_features(
    options: EdgeTableOptions,
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
