"""A table of edges, with optional tables of node features and labels, to a graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.readers.tables import Table, read_table
from hopstate.data.validate import SPLITS, check_ids, clean_features
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, HopstateWarning, MissingFileError, nearest

if TYPE_CHECKING:
    import pandas as pd

SOURCES = ("source", "src", "from", "u", "node1", "head", "sender", "user")
TARGETS = ("target", "dst", "to", "v", "node2", "tail", "destination", "receiver", "item", "i")
IDS = ("id", "node", "node_id", "nodeid", "name")
LABELS = ("label", "y", "class", "target")
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def read_edge_list(
    path: Path,
    *,
    features: str | Path | None = None,
    labels: str | Path | None = None,
    nan: str = "error",
    num_nodes: int | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    edge_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    **options: Any,
) -> Graph:
    """Return the graph of an edge table and, if given, tables of node features and labels.

    Nodes are the rows of the feature table in its order; without one, all ids of edges and labels, sorted. A .npy
    file of features (or labels) stands for nodes 0..N-1 and stays memory-mapped.

    Args:
        path: table of edges: two columns of ids, others numeric edge features.
        features: table with an id column, all others numeric; it may be the table of labels too, whose columns of
            labels and splits are then no features.
        labels: table with an id and a label column, and optionally one named split: train, val, test or empty.
            Strings and integers are classes, fractions are regression targets; an empty label is unknown, and so
            is -1 unless the only labels are -1 and 1.
        nan: "error" or "zero", for node and edge features.
        num_nodes: the ids are rows 0..num_nodes-1, also those that no edge names.
        source_column, target_column: names; by default source/src/from..., target/dst/to..., else the first two.
        edge_columns: edge features; by default every other numeric column. An empty list takes none.
        id_column, label_column, split_column: names in the node tables, by default id/node..., label/y/class..., split.
        options: options of `Graph.from_edges` and fields of `Graph`.

    Raises:
        MissingFileError, FormatError: as `read_table`.
        DataError: a missing column, an id that is missing, negative or unknown, or values that are no numbers.
    """
    table = read_table(path, [*SOURCES, *TARGETS, *_given(source_column, target_column)], num_ids=2)
    first = table.column(source_column, SOURCES, 0, "source_column")
    assert first is not None
    after = list(table.frame.columns).index(first) + 1
    second = table.column(target_column, [n for n in TARGETS if n != first], after, "target_column")
    assert second is not None
    if first == second:
        raise DataError(
            f"{path}: source and target are both column {first!r}; name them (source_column, target_column)"
        )
    pairs = [table.ids(first), table.ids(second)]
    attr = _edge_features(table, (first, second), edge_columns, nan)
    named = _labels(labels, id_column, label_column, split_column)
    one_table = named is not None and features is not None and Path(features).resolve() == Path(str(labels)).resolve()
    x, x_ids = _features(features, id_column, nan, named.columns if named is not None and one_table else ())
    if num_nodes is None and x is not None and x_ids is None:
        num_nodes = len(x)
    nodes = _Nodes(table, (first, second), pairs, features, x_ids, labels, named, num_nodes)
    fields: dict[str, Any] = {"x": x, "node_ids": nodes.vocabulary, "edge_attr": attr}
    fields |= named.fields(nodes.label_rows, nodes.count) if named is not None else {}
    edges = np.stack(nodes.edges, 1)
    return Graph.from_edges(edges, nodes.count, **{"source": str(path), "name": _stem(path), **fields, **options})


class _LabelTable:
    """Labels and splits by id, as read from some columns of a file; ids is None where rows are the nodes."""

    def __init__(
        self,
        ids: np.ndarray | None,
        y: np.ndarray,
        names: tuple[str, ...] | None,
        parts: np.ndarray | None,
        columns: tuple[str, ...] = (),
    ) -> None:
        self.ids, self.y, self.names, self.parts, self.columns = ids, y, names, parts, columns

    def fields(self, rows: np.ndarray, num_nodes: int) -> dict[str, Any]:
        """Return y, class_names and masks of a graph in which label i belongs to node rows[i]."""
        unknown = -1 if self.y.dtype.kind == "i" else np.nan
        y = np.full(num_nodes, unknown, self.y.dtype)
        y[rows] = self.y
        masks = {}
        for name in SPLITS if self.parts is not None else ():
            mask = np.zeros(num_nodes, bool)
            mask[rows[self.parts == name]] = True
            if mask.any():
                masks[name] = mask
        return {"y": y, "class_names": self.names, "masks": masks}


class _Nodes:
    """Which ids are nodes, and the rows that edges and labels stand for."""

    def __init__(
        self,
        table: Table,
        columns: tuple[str, str],
        pairs: list[np.ndarray],
        features: str | Path | None,
        x_ids: np.ndarray | None,
        labels: str | Path | None,
        named: _LabelTable | None,
        num_nodes: int | None,
    ) -> None:
        label_ids = None if named is None else named.ids
        if label_ids is None and named is not None and num_nodes is None:
            num_nodes = len(named.y)
        self.vocabulary: Vocabulary | None = None
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
        known = Vocabulary(x_ids) if x_ids is not None else Vocabulary.of(*pairs, *_given(label_ids))
        if not len(known):
            raise DataError(f"{table.path} holds no edges and no node table was given; a graph needs at least one node")
        self.edges = [known.rows(ids) for ids in pairs]
        for column, ids, rows in zip(columns, pairs, self.edges, strict=True):
            _check_known(ids, rows, f"{table.path}: column {column!r}", table, str(features))
        if label_ids is not None:
            self.label_rows = known.rows(label_ids)
            _check_known(label_ids, self.label_rows, f"{labels}", None, str(features))
        self.count = len(known)
        plain = known.ids.dtype.kind == "i" and np.array_equal(known.ids, np.arange(self.count))
        self.vocabulary = None if plain else known


def _edge_features(table: Table, ids: tuple[str, str], chosen: Sequence[str] | None, nan: str) -> np.ndarray | None:
    rest = [str(name) for name in table.frame.columns if name not in ids]
    for name in chosen or ():
        table.column(name, (), None, "edge_columns")
    if chosen is None:
        chosen = [name for name in rest if _numeric(table.frame[name])]
        left = [name for name in rest if name not in chosen]
        if left:
            warnings.warn(
                f"{table.path}: columns {', '.join(left)} are no numbers and were left out",
                HopstateWarning,
                stacklevel=4,
            )
    return _matrix(table, list(chosen), nan, "edge features") if chosen else None


def _features(
    path: str | Path | None, id_column: str | None, nan: str, without: Sequence[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return features, all columns but some, and the id of each row, None where rows are the nodes."""
    if path is None:
        return None, None
    if str(path).endswith(".npy"):
        return clean_features(_read_npy(Path(path)), nan, f"{path}: node features"), None
    table = read_table(Path(path), [*IDS, *_given(id_column)])
    key = table.column(id_column, IDS, 0, "id_column")
    assert key is not None
    columns = [str(name) for name in table.frame.columns if name not in (key, *without)]
    if not columns:
        raise DataError(f"{path} has no column of features beside {', '.join([key, *without])}")
    told = [name for name in columns if name.lower() in ("label", "class")]
    if told:
        warnings.warn(
            f"{path}: column {told[0]!r} is read as a feature; where it holds what is to be predicted, remove it",
            HopstateWarning,
            stacklevel=4,
        )
    ids = table.ids(key)
    _check_unique(ids, str(path))
    return _matrix(table, columns, nan, "node features"), ids


def _labels(
    path: str | Path | None, id_column: str | None, label_column: str | None, split_column: str | None
) -> _LabelTable | None:
    if path is None:
        return None
    if str(path).endswith(".npy"):
        y, names = _classes(np.array(_read_npy(Path(path))), str(path))
        return _LabelTable(None, y, names, None)
    table = read_table(Path(path), [*IDS, *LABELS, *_given(id_column, label_column)])
    key = table.column(id_column, IDS, 0, "id_column")
    split = table.column(split_column, ("split", "mask", "fold"), None, "split_column")
    rest = [str(name) for name in table.frame.columns if name not in (key, split)]
    if not rest:
        raise DataError(f"{path} has no column of labels beside {key!r}")
    label = table.column(label_column, [name for name in LABELS if name != key], None, "label_column") or rest[0]
    assert key is not None
    ids = table.ids(key)
    _check_unique(ids, str(path))
    y, names = _classes(table.frame[label], str(path))
    parts = None if split is None else _parts(table, split)
    return _LabelTable(ids, y, names, parts, (label, *_given(split)))


def _classes(values: Any, where: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return (classes with -1 unknown, their names) or (float targets with NaN unknown, None)."""
    import pandas as pd

    values = pd.Series(values)
    missing = values.isna().to_numpy()
    if _numeric(values):
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        whole = numbers[~missing] == np.floor(numbers[~missing])
        if not whole.all():
            return numbers.astype(np.float32), None
        if not np.array_equal(np.unique(numbers[~missing]), [-1, 1]):  # these are the two classes of a sign
            missing = missing | (numbers == -1)
        found = numbers[~missing].astype(np.int64)
    else:
        found = values[~missing].astype(str).to_numpy(str)
    if not len(found):
        raise DataError(f"{where} holds no label at all")
    classes, y = np.unique(found, return_inverse=True)
    codes = np.full(len(missing), -1, np.int64)
    codes[~missing] = y
    plain = classes.dtype.kind == "i" and np.array_equal(classes, np.arange(len(classes)))
    return codes, None if plain else tuple(str(name) for name in classes)


def _parts(table: Table, column: str) -> np.ndarray:
    """Return train, val, test or "" for each row of a label table."""
    values = table.frame[column]
    text = values.fillna("").astype(str).str.strip().str.lower()
    parts = text.map(SPLIT_NAMES).fillna("").to_numpy(str)
    bad = np.flatnonzero((parts == "") & (text.to_numpy(str) != ""))
    if len(bad):
        value = text.iloc[int(bad[0])]
        raise DataError(
            f"{table.path}: split {value!r} in {table.place(int(bad[0]))}{nearest(value, SPLIT_NAMES)}; "
            f"use train, val, test or leave it empty"
        )
    return parts


def _matrix(table: Table, columns: list[str], nan: str, what: str) -> np.ndarray:
    for name in columns:
        if not _numeric(table.frame[name]):
            import pandas as pd

            bad = pd.to_numeric(table.frame[name], errors="coerce").isna() & table.frame[name].notna()
            row = int(np.argmax(bad.to_numpy()))
            raise DataError(
                f"{table.path}: column {name!r} of {what} holds {table.frame[name].iloc[row]!r} in {table.place(row)}; "
                f"encode it as numbers or leave the column out"
            )
    values = table.frame[columns].to_numpy(np.float32, na_value=np.nan)
    return clean_features(values, nan, f"{table.path}: {what} ({', '.join(columns[:3])}{', ...' * (len(columns) > 3)})")


def _numeric(values: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(values.dtype) or bool(values.isna().all())


def _read_npy(path: Path) -> np.ndarray:
    if not path.is_file():
        raise MissingFileError(f"no file at {path}")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path} is no array of numbers, or a truncated one ({error})") from None


def _one_kind(*columns: np.ndarray | None) -> list[Any]:
    """Return all columns of ids as strings if any of them is, else unchanged."""
    if not any(column is not None and column.dtype.kind == "U" for column in columns):
        return list(columns)
    return [None if column is None else column.astype(str) for column in columns]


def _check_known(ids: np.ndarray, rows: np.ndarray, what: str, table: Table | None, features: str) -> None:
    bad = np.flatnonzero(rows < 0)
    if len(bad):
        row = int(bad[0])
        place = f"row {row}" if table is None else table.place(row)
        raise DataError(
            f"{what}: id {ids[row].item()!r} in {place} is not in {features} ({len(bad)} such rows); "
            f"add it there, or remove the row"
        )


def _check_rows(ids: np.ndarray, num_nodes: int, what: str) -> None:
    if ids.dtype.kind != "i":
        raise DataError(f"{what} holds strings such as {ids[0].item()!r}, but nodes are the rows 0..{num_nodes - 1}")
    check_ids(ids, num_nodes, what)


def _check_unique(ids: np.ndarray, where: str) -> None:
    try:
        Vocabulary(ids)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _given(*values: Any) -> list[Any]:
    return [value for value in values if value is not None]


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
