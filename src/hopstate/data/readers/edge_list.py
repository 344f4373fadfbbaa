"""Read a graph from a table of edges and optional tables of node features and labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.events import not_none
from hopstate.data.graph import Graph, sides_of
from hopstate.data.readers.encode import (
    ColumnSpec,
    check_plain_numbers,
    encode_features,
    parse_column_specs,
)
from hopstate.data.readers.node_tables import NodeTableOptions, NodeTables, is_folder
from hopstate.data.readers.notes import date_hint, time_notes, uninformative_columns
from hopstate.data.readers.relations import node_types_of, relations_of
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
    node_type_columns,
    roles_note,
)
from hopstate.data.readers.tables import (
    Table,
    check_not_negative,
    ids_of,
    is_numeric,
    read_table,
    stem_of,
    to_common_type,
)
from hopstate.data.readers.text import role_name
from hopstate.data.vocabulary import Vocabulary, count_shared, ids_array
from hopstate.errors import ConfigError, DataError, warn

NOT_ENDPOINTS = (*TIMES, "weight", "label")  # names of columns that are never endpoints


@dataclass(frozen=True, kw_only=True)
class EdgeTableOptions(NodeTableOptions):
    """How a table of edges and tables of nodes are read; see `hopstate.data.readers.read_graph.read_graph`."""

    source_column: str | None = None
    target_column: str | None = None
    relation_column: str | None = None
    node_type_column: str | None = None
    edge_columns: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    header: bool | None = None
    separator: str | None = None
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
    if types and is_folder(options.features):
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
