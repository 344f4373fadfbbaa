"""`read_graph`: read any supported file, folder or object as a `Graph`; content and extension select the reader."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph, Keep
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.edge_list import EdgeTableOptions, read_edge_list, read_networkx
from hopstate.data.readers.pyg import read_ogb, read_pyg_dataset, read_pyg_file, read_pyg_set
from hopstate.data.readers.relations import IGNORED
from hopstate.data.readers.tables import BINARY_TABLES, is_frame
from hopstate.data.readers.text import check_archive, is_matrix_market, is_text_file
from hopstate.data.readers.tu import is_tu_folder, is_tu_text, read_tu, read_tu_folder
from hopstate.data.store import check_finished
from hopstate.data.validate import SPLITS, check_num_nodes, finite_features
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, nearest, warn
from hopstate.io.opening import (
    ZIP,
    byte_limit,
    check_size,
    exists,
    expand_home,
    first_bytes,
    open_bounded,
    reading,
    shorten,
    table_member,
)
from hopstate.io.tensors import Archive

LAYOUTS = {
    "heterophilous": ("node_features", "node_labels", "edges"),
    "gnn-benchmark": ("adj_indptr", "adj_indices", "adj_shape"),
    "scipy": ("format", "shape", "data"),
}


# ---- arrays and matrices -----------------------------------------------------------------------------------------
def read_npz(path: Path, layout: str, **options: Any) -> Graph:
    """Return the graph of an .npz file."""
    with Archive(path) as arrays:
        if layout == "auto":
            layout = next((name for name, keys in LAYOUTS.items() if set(keys) <= set(arrays)), "")
        if not layout or any(key not in arrays for key in LAYOUTS[layout]):
            layouts = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in LAYOUTS.items())
            raise FormatError(f"{path} holds the arrays {sorted(arrays)}, which is not a known layout ({layouts})")
        options = {"source": str(path), "name": path.stem, **options}
        if layout == "scipy":
            return Graph.from_scipy(_saved_matrix(arrays), **options)
        edges, num_nodes, fields = (_heterophilous if layout == "heterophilous" else _gnn_benchmark)(arrays)
    if fields.get("x") is not None:
        fields["x"] = finite_features(fields["x"], f"{path}: node features")
    return Graph.from_edges(edges, num_nodes, noted=True, **{**fields, **options})


def read_matrix_market(path: Path, **options: Any) -> Graph:
    """Return the graph of a square matrix in the Matrix Market format; nodes keep their numbers from 1."""
    import scipy.io

    with open_bounded(path) as file:
        rows, columns, entries, layout, kind, _ = scipy.io.mminfo(file)
    if layout != "coordinate" or kind == "complex":
        raise FormatError(f"{path} holds a matrix of kind {layout!r}, {kind!r}; give a sparse matrix of real numbers")
    _check_square(path, (rows, columns))
    check_size(path, 16 * int(entries), what=f"{entries:,} entries")
    check_num_nodes(int(rows), int(entries), str(path), None)
    with open_bounded(path) as file:
        matrix = scipy.io.mmread(file)
    _check_weights(path, matrix, first=1)
    defaults = {"source": str(path), "name": path.name.split(".")[0], "node_ids": Vocabulary(np.arange(1, rows + 1))}
    return Graph.from_scipy(matrix, **{**defaults, **options})


def _check_square(path: Path, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise DataError(f"{path}: the matrix has shape {shape}; an adjacency is square, a row a node")


def _check_weights(path: Path, matrix: Any, first: int = 0) -> None:
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        ends = f"{matrix.row[bad[0]] + first} -> {matrix.col[bad[0]] + first}"
        raise DataError(
            f"{path}: the weight of the edge {ends} is {matrix.data[bad[0]]} ({len(bad)} such edges); give it a number"
        )


def _heterophilous(arrays: Archive) -> tuple[np.ndarray, int, dict[str, Any]]:
    x, y = _numbers(arrays, "node_features", (2,)), _numbers(arrays, "node_labels", (1, 2))
    masks = {}
    for name in SPLITS:
        if f"{name}_masks" in arrays:
            mask = _numbers(arrays, f"{name}_masks", (1, 2))
            if not np.isin(mask, (0, 1)).all():
                raise DataError(f"{arrays.path}: '{name}_masks' marks nodes by true and false; it holds other numbers")
            masks[name] = mask.astype(bool)
    return _numbers(arrays, "edges", (2,)), len(y), {"x": x, "y": y, "masks": masks}


def _numbers(arrays: Archive, key: str, axes: tuple[int, ...]) -> np.ndarray:
    array = arrays[key]
    if array.ndim not in axes or array.dtype.kind not in "biuf" or 0 in array.shape[1:]:
        shapes = " or ".join("a vector" if n == 1 else "a matrix" for n in axes)
        raise DataError(f"{arrays.path}: {key!r} must be {shapes} of numbers; got {array.dtype} of shape {array.shape}")
    return array


def _gnn_benchmark(arrays: Archive) -> tuple[np.ndarray, int, dict[str, Any]]:
    adjacency = _sparse(arrays, "adj_")
    _check_square(arrays.path, adjacency.shape)
    coo = adjacency.tocoo()
    _check_weights(arrays.path, coo)
    stored = coo.data != 0
    fields: dict[str, Any] = {}
    if "attr_indptr" in arrays:
        features = _sparse(arrays, "attr_")
        size = 4 * features.shape[0] * features.shape[1]
        check_size(arrays.path, size, what=f"the features as a dense matrix of shape {features.shape}")
        fields["x"] = features.astype(np.float32).toarray()
    elif "attr_matrix" in arrays:
        fields["x"] = _numbers(arrays, "attr_matrix", (2,))
    if (coo.data[stored] != 1).any():
        fields["notes"] = ("values of the adjacency other than 1 are not used as weights",)
    if "labels" in arrays:
        fields["y"] = _numbers(arrays, "labels", (1, 2))
    names, classes = _names(arrays, "node_names"), _names(arrays, "class_names")
    fields["node_ids"] = None if names is None else Vocabulary(names)
    fields["class_names"] = None if classes is None else tuple(classes.tolist())
    return np.stack([coo.row[stored], coo.col[stored]], 1).astype(np.int64), adjacency.shape[0], fields


def _saved_matrix(arrays: Archive) -> Any:
    import scipy.sparse

    form = str(np.asarray(arrays["format"]).astype(str))
    shape = tuple(np.asarray(arrays["shape"]).tolist())
    _check_square(arrays.path, shape)
    if form in ("csr", "csc"):
        matrix = _sparse(arrays, "")
        return matrix if form == "csr" else matrix.T
    if form != "coo" or not {"row", "col"} <= set(arrays):
        raise FormatError(f"{arrays.path} holds a sparse matrix as {form!r}; save matrix.tocsr()")
    data, row, col = (arrays[key] for key in ("data", "row", "col"))
    check_num_nodes(int(shape[0]), len(data), str(arrays.path), None)
    try:
        return scipy.sparse.coo_array((data, (row, col)), shape=shape)
    except (ValueError, TypeError) as error:
        raise DataError(f"{arrays.path}: row, col and data do not make a matrix: {error}") from None


def _sparse(arrays: Archive, prefix: str) -> Any:
    """Return the CSR matrix of the arrays PREFIXdata, PREFIXindices, PREFIXindptr and PREFIXshape."""
    import scipy.sparse

    keys = [f"{prefix}{part}" for part in ("data", "indices", "indptr", "shape")]
    absent = [key for key in keys if key not in arrays]
    if absent:
        raise FormatError(f"{arrays.path}: {', '.join(keys)} are needed; {', '.join(absent)} are missing")
    data, indices, indptr, shape = (_numbers(arrays, key, (1,)) for key in keys)
    if any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise DataError(f"{arrays.path}: {', '.join(keys[1:])} are vectors of whole numbers")
    size = tuple(shape.tolist())
    fits = len(size) == 2 and min(size) >= 1 and len(indptr) == size[0] + 1 and len(indices) == len(data)
    # scipy drops what is beyond the last bound
    if not fits or indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        raise DataError(f"{arrays.path}: {', '.join(keys)} do not fit together; they are damaged")
    try:
        matrix = scipy.sparse.csr_array((data, indices, indptr), shape=size)
        matrix.check_format(full_check=True)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{arrays.path}: {', '.join(keys)} do not make a CSR matrix: {error}") from None
    return matrix


def _names(arrays: Archive, key: str) -> np.ndarray | None:
    if key not in arrays:
        return None
    try:
        return arrays[key]
    except FormatError as error:
        warn(f"{error}; the names are left out", stacklevel=2)
        return None


# format → what a file of it looks like
FORMATS = {
    "heterophilous": ".npz with node_features, node_labels, edges and train/val/test_masks",
    "gnn-benchmark": ".npz with the CSR parts adj_*, attr_* and labels",
    "scipy": ".npz that scipy.sparse.save_npz wrote, a square matrix",
    "edges": "table of edges (.csv, .tsv, .txt, .parquet, .gz), with --read.features and --read.labels tables",
    "matrix-market": "sparse square matrix in the Matrix Market format (.mtx, .mtx.gz)",
    "folder": "folder that Graph.save wrote",
    "pyg": "torch-geometric Data saved as .pt, or pyg:Class:name?root=... for its own datasets",
}
TABLE_OPTIONS = {field.name: field.default for field in dataclasses.fields(EdgeTableOptions)}
TABLES = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".parquet", ".pq", ".tab", ".dat")


def read_graph(
    source: Any,
    *,
    format: str = "auto",
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
    max_bytes: int | str | None = None,
    **options: Any,
) -> Graph:
    """Return the graph of a file, a folder, a table of edges, or an object of torch-geometric, networkx or scipy.

    Args:
        source: path, "pyg:Class:name?root=...", "ogb:ogbn-...", or the object in memory. Edges, features and labels
            may be tables of pandas, pyarrow, polars or DuckDB, or dictionaries of columns.
        format: a key of `FORMATS`, or "auto" to find it by content and extension.
        undirected: store every edge in both directions.
        duplicates: "drop" keeps the first of equal edges; "keep" keeps all.
        self_loops: "keep" or "drop" edges from a node to itself.
        max_bytes: maximum size of a file after unpacking, such as "8GiB". None: 100 times the size of a packed file,
            at least 256 MiB.
        options: fields of `Graph`, such as name, and for tables of edges the following. None counts as not given.

            - features: table with an id column; all other columns are features. It may also contain the labels. Or a
              folder with a table for each type of nodes, named as the type: columns are then called as "user.age".
            - labels: table with an id column, a label column, and optionally a column split: train, val, test or empty.
              Features and labels may be .npy files or arrays for nodes 0..N-1.
            - num_nodes: the ids are rows 0..num_nodes-1, including nodes without an edge.
            - header: whether the first line of edges has names of columns. Default: found by its content.
            - separator: of the cells of a text of edges: a character, "tab" or "space". Default: found.
            - source_column, target_column: default source/src/from..., target/dst/to..., otherwise the first two.
            - relation_column: the relation of each edge. node_type_column: "a,b", the types of sources and of targets.
              "none" ignores those of any source.
            - edge_columns: edge features. Default: every other numeric column. An empty list reads none.
            - columns: kinds of feature columns, such as "venue=category"; see
              `hopstate.data.readers.encode.parse_column_specs`.
            - id_column, label_column, split_column: default id/node..., label/y/class..., split.
            - missing: "error" rejects missing features. With "mean" or "median" they stay in the graph's tables, and
              `fit` fills them by the training nodes and their edges.
            - unlabeled_value, task, multilabel: see `hopstate.data.labels.LabelOptions`.
            - text_ids: read ids as they are written in all tables.
            - bipartite: True, False or "auto": whether sources and targets are two sets of nodes; "auto" means two if
              no node is in both columns. See `hopstate.data.readers.roles`.

    Raises:
        MissingFileError: nothing at that path.
        FormatError: unknown, truncated, pickled; the message lists the known formats.
        UnreadableFileError: a folder, a pipe or a device where a file is needed, or no permission.
        DataError: invalid content; the message names the rows.
        ConfigError: an option that this kind of source does not use.

    Example:
        >>> graph = hopstate.read_graph({"source": ["a", "b"], "target": ["b", "c"]})
        >>> graph.num_nodes, graph.num_edges
        (3, 4)
    """
    ignored = [field for field in ("relation", "node_type") if options.get(f"{field}_column") == IGNORED]
    if ignored:
        options = {key: value for key, value in options.items() if key.removesuffix("_column") not in ignored}
        how: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
        graph = read_graph(source, format=format, max_bytes=max_bytes, **how, **options)
        return graph.with_(**{name: () if name.endswith("_names") else None for name in _untyped(graph, ignored)})
    columns, options = _table_options(options)
    build: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    _check_options(format, duplicates, self_loops, options)
    if isinstance(source, Graph):
        return source
    if not isinstance(source, (str, os.PathLike)):
        with (
            byte_limit(max_bytes),
            reading(f"the {type(source).__name__}", "a graph", others=("",)),
        ):  # named errors name it
            return _from_object(source, columns, {**build, **options})
    files = [table for name in ("features", "labels") if (table := columns.get(name)) is not None]
    with byte_limit(max_bytes), reading(source, "a graph", others=files):
        return _from_path(os.fspath(source), format, columns, {**build, **options})


def _untyped(graph: Graph, fields: Sequence[str]) -> list[str]:
    """Return the names of typed fields of a graph; the two sets of a bipartite graph are not types."""
    return [name for field in fields if getattr(graph, f"{field}_names") for name in (field, f"{field}_names")]


def _from_path(text: str, format: str, columns: dict[str, Any], options: dict[str, Any]) -> Graph:
    if text.startswith("pyg:"):
        _check_no_table(columns, "a torch-geometric dataset")
        return read_pyg_dataset(text, published=True, **options)
    if text.startswith("ogb:"):
        _check_no_table(columns, "a dataset of OGB")
        return read_ogb(text[4:], published=True, **options)  # type: ignore[return-value]
    path = expand_home(text)
    if not exists(path):
        raise MissingFileError(
            f"no file, folder or dataset called {shorten(text)}; `hopstate datasets` lists those by name"
        )
    kind = format if format != "auto" else detect_format(path)
    if kind == "edges":
        return read_edge_list(path, EdgeTableOptions(**columns), **options)
    _check_no_table(columns, f"the format {kind}")
    if kind == "folder":
        return Graph.load(str(path))
    if kind == "pyg":
        return read_pyg_file(path, **options)
    if kind == "matrix-market":
        return read_matrix_market(path, **options)
    return read_npz(path, kind, published=True, **options)


def detect_format(path: Path) -> str:
    """Return the format of a file or folder: a key of `FORMATS`, or "auto" for an .npz of yet unknown layout."""
    if path.is_dir():
        if (path / "graph.json").is_file():
            return "folder"
        check_finished(path)
        raise FormatError(f"{path} is a folder, but not one that Graph.save wrote; {describe_formats()}")
    magic = first_bytes(path)
    if not magic:
        raise FormatError(f"{path} is empty")
    name = path.name.lower()
    if name.endswith((".pt", ".pth")):
        return "pyg"
    if magic.startswith(ZIP):
        if table_member(path) is not None:
            return "edges"
        check_archive(path)
        return "auto"
    if name.endswith(".npz"):
        raise FormatError(
            f"{path} is called .npz but holds no archive; it is truncated or something else, fetch it again"
        )
    if magic.startswith(BINARY_TABLES):
        return "edges"
    if is_text_file(path) or name.removesuffix(".gz").endswith(TABLES):
        if is_matrix_market(path):
            return "matrix-market"
        return "edges"
    raise FormatError(f"{path} begins with {magic!r}, which is not a known format; {describe_formats()}")


def describe_formats() -> str:
    """Return the known formats in one line for messages."""
    return "known: " + "; ".join(f"{name} ({what})" for name, what in FORMATS.items())


def _is_networkx(source: Any) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def _from_object(source: Any, columns: dict[str, Any], options: dict[str, Any]) -> Graph:
    if is_frame(source) or isinstance(source, Mapping):
        defaults = {"name": "table", "source": "memory", **options}
        return read_edge_list(source, EdgeTableOptions(**columns), **defaults)
    if _is_networkx(source):
        return read_networkx(source, EdgeTableOptions(**columns), **options)
    if any(hasattr(source, name) for name in ("edge_index", "adj_t", "edge_types")):
        missing = columns.pop("missing", "error")
        _check_no_table(columns, "an object in memory")
        return Graph.from_pyg(source, missing=missing, **options)
    _check_no_table(columns, "an object in memory")
    if hasattr(source, "tocoo"):
        return Graph.from_scipy(source, **options)
    raise FormatError(
        f"cannot read a graph from a {type(source).__name__}; give a path, a table of edges, a torch-geometric Data, a "
        f"networkx graph, a scipy sparse matrix, or build one with Graph.from_edges"
    )


def _check_options(format: str, duplicates: str, self_loops: str, options: dict[str, Any]) -> None:
    if format not in ("auto", *FORMATS):
        raise ConfigError(f"unknown format {format!r}{nearest(format, FORMATS)}; {describe_formats()}")
    for name, value in (("duplicates", duplicates), ("self_loops", self_loops)):
        if value not in ("keep", "drop"):
            raise ConfigError(f"{name} is 'keep' or 'drop'; got {value!r}")
    own = ("name", "class_names", "source")
    for key in options:
        if key not in own:
            raise ConfigError(f"read_graph takes no {key!r}{nearest(key, [*TABLE_OPTIONS, *own])}")


def _table_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of tables that ask something, and the others."""
    given = {key: value for key, value in options.items() if value is not None}
    columns = {key: given.pop(key) for key in TABLE_OPTIONS if key in given}
    for key in ("missing", "task", "multilabel", "text_ids", "bipartite"):
        if key in columns and columns[key] == TABLE_OPTIONS[key]:
            columns.pop(key)
    return columns, given


def _check_no_table(columns: dict[str, Any], what: str) -> None:
    """Raise ConfigError if an option of tables of edges was given to another kind of source."""
    wrong = [key for key in columns if (key, columns[key]) != ("missing", "auto")]
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)} belong to tables of edges; {what} does not take them. Arrays become a graph by "
            "Graph.from_edges(edges, x=..., y=...)"
        )


PYG_SETS = ("TUDataset", "GNNBenchmarkDataset", "LRGBDataset", "MalNetTiny", "ZINC")


def read_graph_set(
    source: str,
    *,
    max_bytes: int | str | None = None,
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
) -> GraphSet:
    """Return the graphs of a TU text file or folder, of "pyg:Class:name" or of "ogb:ogbg-...".

    Args:
        source: path or address.
        max_bytes: as `hopstate.data.readers.read_graph.read_graph`.
        undirected, duplicates, self_loops: of a TU text file or folder, as `hopstate.data.graph.Graph.from_edges`.

    Raises:
        MissingFileError, FormatError, DataError, DownloadError: see the readers.
    """
    with byte_limit(max_bytes), reading(source, "a set of graphs"):
        return _read(source, {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops})


def is_set(source: str) -> bool:
    """Return whether a path or address names a set of graphs, without reading it all.

    Addresses are those of torch-geometric's TUDataset, GNNBenchmarkDataset, LRGBDataset, MalNetTiny and ZINC, and OGB's
    ogbg datasets.
    """
    if source.startswith("pyg:"):
        return source[4:].partition(":")[0] in PYG_SETS
    return source.startswith("ogb:ogbg-") or is_tu_folder(source) or is_tu_text(source)


def _read(source: str, build: dict[str, Any]) -> GraphSet:
    if source.startswith("pyg:"):
        return read_pyg_set(source).as_published()
    if source.startswith("ogb:"):
        found = read_ogb(source[4:])
        if not isinstance(found, GraphSet):
            raise ConfigError(f"{source} is one graph; take a method of nodes for it")
        return found.as_published()
    if is_tu_folder(source):
        return read_tu_folder(source, **build)
    return read_tu(source, table=True, **build)
