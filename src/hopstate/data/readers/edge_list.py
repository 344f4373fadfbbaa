"""A table of edges, with optional tables of node features and labels, to a graph."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph, Keep, sides_of
from hopstate.data.labels import LabelOptions, LabelTable, read_labels
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.encode import Declared, check_declared, check_plain, declared, encoded
from hopstate.data.readers.notes import alone_note, date_hint, edge_notes, say_nothing, time_note
from hopstate.data.readers.roles import (
    SOURCES,
    TARGETS,
    TIMES,
    TWO,
    Bipartite,
    bipartite_of,
    check_unnamed,
    in_sets,
    is_unnamed,
    read_as,
    role,
    sets_by_name,
)
from hopstate.data.readers.tables import (
    IDS,
    Table,
    as_frame,
    given,
    is_array,
    is_numeric,
    node_ids,
    plain_array,
    read_npy,
    read_table,
    rows_are_nodes,
    stem_of,
)
from hopstate.data.validate import check_ids, features_of_array
from hopstate.data.vocabulary import TEXT, Vocabulary, count_shared
from hopstate.errors import DataError, warn

FEATURES, LABELS = "the table of features", "the table of labels"  # in messages, of tables in memory
NO_ENDS = (*TIMES, "weight", "label")  # names of columns that are no ends, wherever they stand


def read_edge_list(
    source: Any,
    /,
    *,
    features: Any = None,
    labels: Any = None,
    nan: str = "error",
    num_nodes: int | None = None,
    header: bool | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    edge_columns: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    missing: str = "error",
    unlabelled: str | None = None,
    task: Any = "auto",
    label_cells: Any = "ask",
    text_ids: bool = False,
    bipartite: Any = "auto",
    all_ids: np.ndarray | None = None,
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
    **options: Any,
) -> Graph:
    """Return the graph of an edge table and, if given, tables of node features and labels.

    Nodes are the rows of the feature table in its order; without one, all ids of edges and labels, sorted. A .npy
    file of features (or labels) stands for nodes 0..N-1 and stays memory-mapped.

    Args:
        source: table of edges, a path or in memory: two columns of ids, others numeric edge features.
        features: table with an id column, all others features; it may be the table of labels too, whose columns of
            labels and splits are then no features.
        labels: table with an id and a label column, and optionally one named split: train, val, test or empty.
            Strings and integers are classes, fractions are regression targets; an empty label is unknown.
        nan: "error" or "zero", for node and edge features.
        num_nodes: the ids are rows 0..num_nodes-1, also those that no edge names.
        header: whether the first line of edges holds names of columns; None goes by what stands in it.
        source_column, target_column: names; by default source/src/from..., target/dst/to..., else the first two.
        edge_columns: edge features; by default every other numeric column. An empty list takes none.
        columns: what columns of features hold, if it is not as it looks; see `hopstate.data.readers.encode.declared`.
        id_column, label_column, split_column: names in the node tables, by default id/node..., label/y/class..., split.
        missing: "error" names the columns and rows of features of nodes and edges without a number; with "mean" or
            "median" they stay in the graph's tables, to be filled by training nodes and their edges once these are
            known.
        unlabelled, task, label_cells: see `hopstate.data.labels.LabelOptions`.
        text_ids: ids are texts, as they are written in all tables.
        bipartite: True, False or "auto": whether sources and targets are two sets of nodes; see
            `hopstate.data.readers.roles`. "auto" takes two where no node is in both columns.
        all_ids: the ids of all nodes in order, if there are no features; by default those of edges and labels.
        undirected, duplicates, self_loops: see `Graph.from_edges`.
        options: fields of `Graph`.

    Raises:
        MissingFileError, FormatError: as `read_table`.
        DataError: a missing column, an id that is missing, negative or unknown, values that are no numbers, or labels
            that could mean several things.
    """
    known = [*SOURCES, *TARGETS, *given(source_column, target_column)]
    table = read_table(source, known, num_ids=2, header=header, what="the table of edges")
    table = replace(table, text_ids=text_ids)
    said = declared(columns)
    meant = [name for name, one in said.items() if one.needed]
    ends = ends_of(table, source_column, target_column, [*(edge_columns or ()), *meant])
    pairs = [table.ids(end) for end in ends]
    used, idle = _features_of(table, ends, edge_columns, said)
    carried, told = _edge_features(table, used, nan, "error" if missing == "auto" else missing, said)
    asked = LabelOptions(
        id_column=id_column, label_column=label_column, split_column=split_column,
        unlabelled=unlabelled, task=task, cells=label_cells, text_ids=text_ids,
    )  # fmt: skip
    named = read_labels(labels, asked)
    one_table = named is not None and _are_one(features, labels)
    without = named.columns if named is not None and one_table else ()
    x, x_ids, more = node_features(features, id_column, nan, missing, without, said, table.frame.columns, text_ids)
    if x is None:
        x_ids = all_ids
    num_nodes = count_of(num_nodes, x, x_ids, named)
    if num_nodes is not None and x is not None and x_ids is not None:
        x = x.take(rows_in_order(x_ids, num_nodes, _called(features, FEATURES)))
    as_rows = num_nodes is not None or (named is not None and named.ids is None)
    pairs, two_sets = _two_sets(table, ends, pairs, bipartite_of(bipartite), as_rows=as_rows)
    called = _called(features, FEATURES), _called(labels, LABELS)
    numbered = _Nodes(table, ends, pairs, x_ids, named, num_nodes, called)
    fields: dict[str, Any] = {"node_ids": numbered.vocabulary, "edge_table": carried}
    fields |= {} if x is None else {"x": x.plain(), "table": x}
    fields |= named.fields(numbered.label_rows, numbered.count) if named is not None else {}
    edges = np.stack(numbered.edges, 1)
    build: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    notes = edge_notes(edges, numbered.count, **build, features=carried is not None)
    if two_sets is not False:
        fields["node_type"] = sides_of(edges, numbered.count, str(table.path), needed=two_sets is True)
    sets = "" if fields.get("node_type") is None else _sets_note(fields["node_type"], numbered.vocabulary)
    roles = read_as(table, {"source": ends[0], "target": ends[1]}, used, sets=sets)
    fields["notes"] = (
        roles,
        *table.notes,
        *notes,
        *idle,
        *told,
        *more,
        *numbered.notes,
        *(named.notes if named is not None else ()),
    )
    own = {"source": str(table.path), "name": stem_of(Path(table.path)), **fields}
    return Graph.from_edges(edges, numbered.count, **build, **{**own, **options})


def _two_sets(
    table: Table, ends: tuple[str, str], pairs: list[np.ndarray], bipartite: Bipartite, *, as_rows: bool
) -> tuple[list[np.ndarray], bool | None]:
    """Return ids of sources and targets, and whether they are two sets of nodes; None goes by the rows.

    Numbers that are in both columns of two sets get a letter in front, unless ids are the rows of nodes.
    """
    if bipartite is False or as_rows:
        return pairs, None if bipartite == "auto" else bipartite
    by_name = sets_by_name(*ends, unnamed=is_unnamed(table))
    shared = count_shared(pairs[0], pairs[1]) > 0
    if not shared or (bipartite == "auto" and by_name != TWO):
        return pairs, None
    source, target, _ = in_sets((pairs[0], pairs[1]), None, TWO, True, str(table.path))
    return [source, target], True


def _sets_note(node_type: np.ndarray, ids: Vocabulary | None) -> str:
    first = [int(np.argmax(node_type == side)) for side in (0, 1)]
    names = [row if ids is None else ids.names(np.array([row]))[0] for row in first]
    sizes = [int((node_type == side).sum()) for side in (0, 1)]
    return (
        f"{TWO}: {sizes[0]:,} sources such as {names[0]}, {sizes[1]:,} targets such as {names[1]} (--read.bipartite "
        "false takes them as one)"
    )


def read_networkx(graph: Any, *, undirected: bool, **options: Any) -> Graph:
    """Return the graph of a networkx graph, with attributes of its nodes and edges as columns of features.

    Args:
        graph: of any class of networkx; nodes keep its order, and texts or integers as their ids.
        undirected: store each edge of a directed graph in both directions; edges of others always are.
        options: as `read_edge_list`; label_column may name an attribute of nodes.
    """
    import pandas as pd

    whole = all(type(node) is int for node in graph.nodes)
    names = {node: node if whole else str(node) for node in graph.nodes}
    edges = pd.DataFrame([data for *_, data in graph.edges(data=True)], index=range(graph.number_of_edges()))
    for place, end in enumerate(("source", "target")):
        if end in edges:
            raise DataError(f"the networkx graph: edges have an attribute {end!r}; rename it")
        edges.insert(place, end, [names[edge[place]] for edge in graph.edges()])
    if not len(edges):
        edges = edges.astype({"source": "int64" if whole else str, "target": "int64" if whole else str})
    nodes = pd.DataFrame([data for _, data in graph.nodes(data=True)], index=range(len(names)))
    ids = list(names.values())
    if not len(ids):
        raise DataError("the networkx graph has no nodes")
    if nodes.shape[1]:
        if "id" in nodes:
            raise DataError("the networkx graph: nodes have an attribute 'id'; rename it")
        nodes.insert(0, "id", ids)
        labels = options.get("label_column") is not None
        options = ({"labels": nodes} if labels else {}) | options
        options = ({"features": nodes} if nodes.shape[1] > 1 + labels else {}) | options
    own = {"name": str(getattr(graph, "name", "")) or "graph", "source": "memory", "all_ids": np.array(ids)}
    return read_edge_list(edges, undirected=undirected or not graph.is_directed(), **{**own, **options})


def ends_of(
    table: Table, source_column: str | None, target_column: str | None, taken: Collection[str] = ()
) -> tuple[str, str]:
    """Return the names of the columns of sources and targets; where no name says so, the first that may be ends.

    Args:
        table: of edges.
        source_column, target_column: as given.
        taken: columns of features.
    """
    given = {"source_column": source_column, "target_column": target_column}
    check_unnamed(table, given, list(given))
    taken = {*taken, *(name for name in given.values() if name)}
    first = role(table, source_column, SOURCES, "source_column", taken)
    second = role(table, target_column, TARGETS, "target_column", {*taken, first})
    names = [str(name) for name in table.frame.columns]
    free = [name for name in names if name not in (first, second, *taken) and name.lower() not in NO_ENDS]
    if first is None:
        first = next((name for name in free if name.lower() not in TARGETS), None)
    if second is None and first is not None:
        free = [name for name in free if name != first and name.lower() not in SOURCES]
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


class _Nodes:
    """Which ids are nodes, and the rows that edges and labels stand for."""

    def __init__(
        self,
        table: Table,
        columns: tuple[str, str],
        pairs: list[np.ndarray],
        x_ids: np.ndarray | None,
        named: LabelTable | None,
        num_nodes: int | None,
        called: tuple[str, str],
    ) -> None:
        features, labels = called
        label_ids = None if named is None else named.ids
        self.vocabulary: Vocabulary | None = None
        self.notes: tuple[str, ...] = ()
        self.label_rows = np.empty(0, np.int64)
        if num_nodes is not None:
            for column, ids in zip(columns, pairs, strict=True):
                _check_rows(ids, num_nodes, f"{table.path}: column {column!r}")
            self.edges, self.count = pairs, num_nodes
            if named is not None:
                self.label_rows = np.arange(len(named.y)) if label_ids is None else label_ids
                _check_rows(self.label_rows, num_nodes, f"{labels}: ids")
            return
        x_ids, label_ids, *pairs = _one_kind(x_ids, label_ids, *pairs)
        for column, ids in zip(columns, pairs, strict=True):
            if ids.dtype.kind == "i" and ids.min(initial=0) < 0:
                bad = int(np.argmax(ids < 0))
                raise DataError(f"{table.path}: negative id {ids[bad]} in column {column!r}, {table.place(bad)}")
        known = Vocabulary(x_ids) if x_ids is not None else Vocabulary.of(*pairs, *given(label_ids))
        if not len(known):
            raise DataError(f"{table.path} holds no edges and no node table was given; a graph needs at least one node")
        self.edges = [known.rows(ids) for ids in pairs]
        for column, ids, rows in zip(columns, pairs, self.edges, strict=True):
            _check_known(ids, rows, f"{table.path}: column {column!r}", table, features)
        if label_ids is not None:
            self.label_rows = known.rows(label_ids)
            _check_known(label_ids, self.label_rows, labels, None, features)
            if x_ids is None:
                self.notes = alone_note(label_ids, pairs)
        self.count = len(known)
        plain = not known.is_text and np.array_equal(known.ids, np.arange(self.count))
        self.vocabulary = None if plain else known


def _features_of(
    table: Table, ids: tuple[str, str], chosen: Sequence[str] | None, said: Mapping[str, Declared]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of features of edges (those chosen, or all numbers, and those declared), and notes."""
    rest = [str(name) for name in table.frame.columns if name not in ids]
    for name in chosen or ():
        table.column(name, (), None, "edge_columns")
    idle: tuple[str, ...] = ()
    meant = [name for name, one in said.items() if one.needed and name in rest]
    if chosen is None:
        without, idle = say_nothing(table.frame, [name for name in rest if name not in said])
        rest = [name for name in rest if name not in without]
        used = [name for name in rest if name in meant or is_numeric(table.frame[name])]
        left = [name for name in rest if name not in used]
        for name in left:
            if name not in said:
                check_plain(table, name, "edge features")
        if left:
            when = date_hint(table.frame, left)
            warn(
                f"{table.path}: columns {', '.join(left)} are no numbers and were left out (--read.edge_columns){when}",
                stacklevel=4,
            )
    else:
        used = [*chosen, *(name for name in meant if name not in chosen and chosen)]  # an empty list takes none
    return [name for name in used if name not in said or said[name].kind != "drop"], idle


def _edge_features(
    table: Table, chosen: Sequence[str], nan: str, missing: str, said: Mapping[str, Declared]
) -> tuple[FeatureTable | None, tuple[str, ...]]:
    if not chosen:
        return None, ()
    features, notes = encoded(table, list(chosen), "edge features", nan, missing, said)
    return features, (*notes, *time_note(table.frame, [name for name in chosen if name not in said]))


def _called(source: Any, name: str) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else name


def _are_one(features: Any, labels: Any) -> bool:
    if isinstance(features, (str, os.PathLike)) and isinstance(labels, (str, os.PathLike)):
        return Path(features).resolve() == Path(labels).resolve()
    return features is labels


def node_features(
    source: Any,
    id_column: str | None,
    nan: str,
    missing: str,
    without: Sequence[str],
    said: Mapping[str, Declared],
    others: Iterable[str],
    text_ids: bool = False,
) -> tuple[FeatureTable | None, np.ndarray | None, tuple[str, ...]]:
    """Return features, all columns but some, the id of each row (None where rows are the nodes), and notes.

    Args:
        others: columns of the table of edges.
        text_ids: ids are texts, as they are written.
    """
    source, path = as_frame(source), _called(source, FEATURES)
    if source is None or is_array(source) or path.endswith(".npy"):
        check_declared(said, others, "the table of edges")
        if source is None:
            return None, None, ()
        found = plain_array(source, path) if is_array(source) else read_npy(Path(path))
        return features_of_array(found, nan, missing, f"{path}: node features"), None, ()
    table = read_table(source, [*IDS, *given(id_column)], what=FEATURES)
    table = replace(table, text_ids=text_ids)
    key = table.column(id_column, IDS, 0, "id_column")
    assert key is not None
    columns = [str(name) for name in table.frame.columns if name not in (key, *without)]
    if not columns:
        raise DataError(f"{path} has no column of features beside {', '.join([key, *without])}; {rows_are_nodes(path)}")
    check_declared(said, [*columns, *others], str(path))
    told = [name for name in columns if name.lower() in ("label", "class") and name not in said]
    if told:
        warn(
            f"{path}: column {told[0]!r} is read as a feature; where it holds what is to be predicted, remove it",
            stacklevel=4,
        )
    ids, unnamed = node_ids(table, key, id_column)
    features, notes = encoded(table, columns, "node features", nan, missing, said)
    if features is None:
        raise DataError(f"{path} has no column of features that can be used: {'; '.join(notes) or 'all are dropped'}")
    return features, ids, (*table.notes, *notes, *unnamed)


def count_of(
    num_nodes: int | None, x: FeatureTable | None, x_ids: np.ndarray | None, labels: LabelTable | None
) -> int | None:
    """Return the number of nodes if nodes are the rows 0..N-1, as in arrays of features or labels; else None.

    Args:
        num_nodes: as given.
        x, x_ids: features of nodes and their ids.
        labels: of nodes.
    """
    if num_nodes is None and x is not None and x_ids is None:
        return len(x)
    if num_nodes is None and labels is not None and labels.ids is None:
        return len(labels.y)
    return num_nodes


def rows_in_order(ids: np.ndarray, num_nodes: int, where: str) -> np.ndarray:
    """Return the rows of a table of features whose ids are 0, 1, ..., num_nodes - 1."""
    _check_rows(ids, num_nodes, f"{where}: ids")
    if len(np.unique(ids)) < len(ids):
        raise DataError(f"{where} has several rows for one node")
    absent = np.setdiff1d(np.arange(num_nodes), ids)
    if len(absent):
        raise DataError(f"{where} has no row for {len(absent)} of {num_nodes} nodes, the first is {absent[0]}")
    return np.argsort(ids)


def _one_kind(*columns: np.ndarray | None) -> list[Any]:
    if all(column is None or column.dtype.kind == "i" for column in columns):
        return list(columns)
    return [None if column is None else column.astype(TEXT) for column in columns]


def _check_known(ids: np.ndarray, rows: np.ndarray, what: str, table: Table | None, features: str) -> None:
    bad = np.flatnonzero(rows < 0)
    if len(bad):
        row = int(bad[0])
        place = f"row {row}" if table is None else table.place(row)
        raise DataError(
            f"{what}: id {ids[row : row + 1].tolist()[0]!r} in {place} is not in {features} ({len(bad)} such rows); "
            f"add it there, or remove the row"
        )


def _check_rows(ids: np.ndarray, num_nodes: int, what: str) -> None:
    if ids.dtype.kind != "i":
        raise DataError(
            f"{what} holds strings such as {ids[:1].tolist()[0]!r}, but nodes are the rows 0..{num_nodes - 1}"
        )
    check_ids(ids, num_nodes, what)
