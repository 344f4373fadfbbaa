"""`read_graph`: any supported file, folder or object to a `Graph`, told apart by content and extension."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hopstate.data.graph import Graph, Keep
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.notes import notes_of_list
from hopstate.data.readers.tables import is_frame
from hopstate.data.readers.text import check_archive, is_matrix_market, looks_like_text
from hopstate.data.store import check_finished
from hopstate.data.validate import SPLITS, check_num_nodes, clean_features
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, nearest, warn
from hopstate.io.opening import (
    ZIP,
    at_most,
    bounded,
    check_size,
    exists,
    expanded,
    member_of,
    open_regular,
    reading,
    shown,
)
from hopstate.io.tensors import Archive

__all__ = ["is_set", "read_graph_set"]

LAYOUTS = {
    "heterophilous": ("node_features", "node_labels", "edges"),
    "gnn-benchmark": ("adj_indptr", "adj_indices", "adj_shape"),
    "scipy": ("format", "shape", "data"),
}


def read_npz(path: Path, layout: str, *, nan: str = "error", **options: Any) -> Graph:
    """Return the graph of an .npz file.

    Args:
        path: the file.
        layout: "heterophilous", "gnn-benchmark", or "auto" to go by the names of its arrays.
        nan: "error" or "zero", for features.
        options: options of `Graph.from_edges` and fields of `Graph`.

    Raises:
        FormatError: truncated, pickled, or neither layout; the arrays it holds are listed.
    """
    with Archive(path) as arrays:
        if layout == "auto":
            layout = next((name for name, keys in LAYOUTS.items() if set(keys) <= set(arrays)), "")
        missing = [key for key in LAYOUTS.get(layout, ()) if key not in arrays]
        if not layout or missing:
            wanted = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in LAYOUTS.items())
            raise FormatError(f"{path} holds the arrays {sorted(arrays)}, which is no known layout ({wanted})")
        if layout == "scipy":
            return Graph.from_scipy(_saved(arrays), **{"source": str(path), "name": path.stem, **options})
        edges, fields = (_heterophilous if layout == "heterophilous" else _gnn_benchmark)(arrays)
    if fields.get("x") is not None:
        fields["x"] = clean_features(fields["x"], nan, f"{path}: node features")
    num_nodes = fields.pop("num_nodes")
    fields["notes"] = (*fields.pop("notes", ()), *notes_of_list(edges, num_nodes, options))
    return Graph.from_edges(edges, num_nodes, **{"source": str(path), "name": path.stem, **fields, **options})


def read_matrix_market(path: Path, **options: Any) -> Graph:
    """Return the graph of a square matrix in the Matrix Market format; nodes keep their numbers from 1.

    Args:
        path: the file, a sparse ("coordinate") matrix of any symmetry.
        options: options of `Graph.from_edges` and fields of `Graph`.

    Raises:
        FormatError: a dense matrix, one of complex numbers, or a damaged file.
        DataError: a matrix that is not square.
    """
    import scipy.io

    with bounded(path) as file:
        rows, columns, entries, layout, kind, _ = scipy.io.mminfo(file)
    if layout != "coordinate" or kind == "complex":
        raise FormatError(f"{path} holds a matrix of kind {layout!r}, {kind!r}; give a sparse matrix of real numbers")
    if rows != columns or rows < 1:
        raise DataError(f"{path}: the matrix has shape ({rows}, {columns}); an adjacency is square, a row a node")
    check_size(path, 16 * int(entries), what=f"{entries:,} entries")
    check_num_nodes(int(rows), int(entries), str(path), None)
    with bounded(path) as file:
        matrix = scipy.io.mmread(file)
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        ends = f"{matrix.row[bad[0]] + 1} -> {matrix.col[bad[0]] + 1}"
        raise DataError(f"{path}: the weight of the edge {ends} is {matrix.data[bad[0]]}; give it a number")
    own = {"source": str(path), "name": path.name.split(".")[0], "node_ids": Vocabulary(np.arange(1, rows + 1))}
    return Graph.from_scipy(matrix, **{**own, **options})


def _heterophilous(arrays: Archive) -> tuple[np.ndarray, dict[str, Any]]:
    x, y = (_shaped(arrays, name, axes) for name, axes in (("node_features", (2,)), ("node_labels", (1, 2))))
    masks = {name: _mask(arrays, f"{name}_masks") for name in SPLITS if f"{name}_masks" in arrays}
    return _shaped(arrays, "edges", (2,)), {"num_nodes": len(y), "x": x, "y": y, "masks": masks}


def _shaped(arrays: Archive, key: str, axes: tuple[int, ...]) -> np.ndarray:
    array = arrays[key]
    if array.ndim not in axes or array.dtype.kind not in "biuf" or 0 in array.shape[1:]:
        wanted = " or ".join("a vector" if n == 1 else "a matrix" for n in axes)
        found = f"shape {array.shape}" if array.dtype.kind in "biuf" else f"{array.dtype}, not numbers"
        raise DataError(f"{arrays.path}: {key!r} must be {wanted} of numbers; got {found}")
    return array


def _mask(arrays: Archive, key: str) -> np.ndarray:
    array = _shaped(arrays, key, (1, 2))
    if not np.isin(array, (0, 1)).all():
        raise DataError(f"{arrays.path}: {key!r} marks nodes by true and false (or 1 and 0); it holds other numbers")
    return array.astype(bool)


def _gnn_benchmark(arrays: Archive) -> tuple[np.ndarray, dict[str, Any]]:
    adjacency = _sparse(arrays, "adj")
    if adjacency.shape[0] != adjacency.shape[1]:
        raise DataError(f"{arrays.path}: the adjacency has shape {adjacency.shape}; it must be square, a row a node")
    coo = adjacency.tocoo()
    bad = np.flatnonzero(~np.isfinite(coo.data))
    if len(bad):
        raise DataError(
            f"{arrays.path}: the weight of the edge {coo.row[bad[0]]} -> {coo.col[bad[0]]} is {coo.data[bad[0]]} "
            f"({len(bad)} such edges); give it a weight, or 0 for no edge"
        )
    stored = coo.data != 0
    num_nodes = adjacency.shape[0]
    fields: dict[str, Any] = {"num_nodes": num_nodes}
    if "attr_indptr" in arrays:
        features = _sparse(arrays, "attr")
        size = 4 * features.shape[0] * features.shape[1]
        check_size(arrays.path, size, what=f"the features as a dense matrix of shape {features.shape}")
        fields["x"] = features.astype(np.float32).toarray()
    elif "attr_matrix" in arrays:
        fields["x"] = _shaped(arrays, "attr_matrix", (2,))
    if (coo.data[stored] != 1).any():
        fields["notes"] = ("values of the adjacency other than 1 are not used as weights",)
    if "labels" in arrays:
        fields["y"] = _shaped(arrays, "labels", (1, 2))
    names = _names(arrays, "node_names")
    fields["node_ids"] = None if names is None else Vocabulary(names)
    classes = _names(arrays, "class_names")
    fields["class_names"] = None if classes is None else tuple(classes.tolist())
    return np.stack([coo.row[stored], coo.col[stored]], 1).astype(np.int64), fields


def _saved(arrays: Archive) -> Any:
    import scipy.sparse

    form = str(np.asarray(arrays["format"]).astype(str))
    shape = tuple(np.asarray(arrays["shape"]).tolist())
    if len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(f"{arrays.path}: the matrix has shape {shape}; an adjacency is square, a row a node")
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
        raise DataError(f"{arrays.path}: row, col and data are no matrix: {error}") from None


def _sparse(arrays: Archive, prefix: str) -> Any:
    import scipy.sparse

    names = {key: f"{prefix}_{key}".lstrip("_") for key in ("data", "indices", "indptr", "shape")}
    parts = {key: arrays[name] for key, name in names.items() if name in arrays}
    if len(parts) < 4:
        raise FormatError(
            f"{arrays.path}: {prefix}_data, _indices, _indptr and _shape are needed; found {sorted(parts)}"
        )
    for key in ("indices", "indptr", "shape"):
        if parts[key].ndim != 1 or parts[key].dtype.kind not in "iu":
            raise DataError(
                f"{arrays.path}: {prefix}_{key} is a vector of whole numbers; got {parts[key].dtype} of shape "
                f"{parts[key].shape}"
            )
    if parts["data"].ndim != 1 or parts["data"].dtype.kind not in "biuf":
        raise DataError(f"{arrays.path}: {prefix}_data is a vector of numbers; got {parts['data'].dtype}")
    shape = tuple(int(n) for n in parts["shape"])
    if len(shape) != 2 or min(shape) < 1 or shape[0] + 1 != len(parts["indptr"]):
        raise DataError(
            f"{arrays.path}: {prefix}_shape says {shape}, but {prefix}_indptr has {len(parts['indptr'])} numbers; it "
            "has one more than there are rows"
        )
    bounds, count = parts["indptr"], len(parts["indices"])
    if bounds[0] != 0 or bounds[-1] != count or (bounds[1:] < bounds[:-1]).any() or len(parts["data"]) != count:
        raise DataError(
            f"{arrays.path}: {prefix}_indptr must rise from 0 to the length of {prefix}_indices, {count}, and "
            f"{prefix}_data be as long; they are damaged"
        )
    try:
        matrix = scipy.sparse.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{arrays.path}: the parts of {prefix} are no CSR matrix: {error}") from None
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
    "pyg": "torch-geometric Data saved as .pt, or pyg:Class:name?root=... for its own data sets",
}
TABLES = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".parquet", ".pq", ".tab", ".dat")
_ONLY_TABLES = (
    *("header", "features", "labels", "num_nodes", "source_column", "target_column"),
    *("edge_columns", "columns", "id_column", "label_column", "split_column"),
    *("missing", "unlabelled", "task", "label_cells", "text_ids", "bipartite"),
)
_USUAL = {
    "missing": "error",
    "task": "auto",
    "label_cells": "ask",
    "text_ids": False,
    "bipartite": "auto",
}  # as good as not given


def read_graph(
    source: Any,
    *,
    format: str = "auto",
    nan: Literal["error", "zero"] = "error",
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
        format: "auto" goes by content and extension; else a key of `FORMATS`.
        nan: "error" names the rows of features that hold NaN or infinities; "zero" replaces these by 0.
        undirected: store every edge in both directions.
        duplicates: "drop" keeps the first of equal edges; "keep" keeps all.
        self_loops: "keep" or "drop" edges from a node to itself.
        max_bytes: most bytes to read of a file, unpacked where it is packed, such as "8GiB"; None takes for packed
            files a hundred times their size, at least 2 GiB.
        options: for tables of edges, those of `hopstate.data.readers.edge_list.read_edge_list` (features, labels,
            num_nodes, source_column, missing, ...); for all, fields of `Graph` such as name. None counts as not given.

    Raises:
        MissingFileError: nothing at that path.
        FormatError: unknown, truncated, pickled; the message lists the known formats.
        UnreadableFileError: a folder, a pipe or a device where a file is needed, or no permission.
        DataError: content that breaks a promise of `Graph`; the message names the rows.
        ConfigError: an option that this kind of source does not take.
    """
    options = {k: v for k, v in options.items() if v is not None and not (k in _USUAL and v == _USUAL[k])}
    build: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    _check_options(format, duplicates, self_loops, options)
    if isinstance(source, Graph):
        return source
    if is_frame(source) or isinstance(source, Mapping):
        from hopstate.data.readers.edge_list import read_edge_list

        own = {"name": "table", "source": "memory"}
        with at_most(max_bytes):
            return read_edge_list(source, nan=nan, **build, **{**own, **options})
    if _is_networkx(source):
        from hopstate.data.readers.edge_list import read_networkx

        return read_networkx(source, nan=nan, **build, **options)
    if not isinstance(source, (str, os.PathLike)):
        return _from_object(source, {**build, **options}, nan)
    with at_most(max_bytes), reading(source, "a graph"):
        return _from_path(os.fspath(source), format, nan, build, options)


def _from_path(text: str, format: str, nan: str, build: dict[str, Any], options: dict[str, Any]) -> Graph:
    if text.startswith("pyg:"):
        from hopstate.data.readers.pyg import read_pyg_dataset

        options = _no_tables(options, "a torch-geometric data set")
        return read_pyg_dataset(text, nan=nan, published=True, **build, **options)
    if text.startswith("ogb:"):
        from hopstate.data.readers.pyg import read_ogb

        return read_ogb(text[4:], nan=nan, published=True, **build, **_no_tables(options, "a data set of OGB"))  # type: ignore[return-value]
    path = expanded(text)
    if not exists(path):
        raise MissingFileError(
            f"no file, folder or data set called {shown(text)}; `hopstate datasets` lists those by name"
        )
    kind = format if format != "auto" else detect_format(path)
    if kind == "edges":
        from hopstate.data.readers.edge_list import read_edge_list

        return read_edge_list(path, nan=nan, **build, **options)
    options = _no_tables(options, f"the format {kind}")
    if kind == "folder":
        return Graph.load(str(path))
    if kind == "pyg":
        from hopstate.data.readers.pyg import read_pyg_file

        return read_pyg_file(path, nan=nan, **build, **options)
    if kind == "matrix-market":
        return read_matrix_market(path, **build, **options)
    return read_npz(path, kind, nan=nan, published=True, **build, **options)


def detect_format(path: Path) -> str:
    """Return the format of a file or folder: a key of `FORMATS`, or "auto" for an .npz of yet unknown layout.

    Raises:
        FormatError: none of them, with what was found.
    """
    if path.is_dir():
        if (path / "graph.json").is_file():
            return "folder"
        check_finished(path)
        raise FormatError(f"{path} is a folder, but not one that Graph.save wrote; {known_formats()}")
    with open_regular(path) as file:
        magic = file.read(8)
    if not magic:
        raise FormatError(f"{path} is empty")
    name = path.name.lower()
    if name.endswith((".pt", ".pth")):
        return "pyg"
    if magic.startswith(ZIP):
        if member_of(path) is not None:
            return "edges"
        check_archive(path)
        return "auto"
    if name.endswith(".npz"):
        raise FormatError(
            f"{path} is called .npz but holds no archive; it is truncated or something else, fetch it again"
        )
    if magic.startswith((b"PAR1", b"ARROW1")):
        return "edges"
    if name.removesuffix(".gz").endswith(TABLES) or looks_like_text(path):
        if is_matrix_market(path):
            return "matrix-market"
        return "edges"
    raise FormatError(f"{path} begins with {magic!r}, which is no format known here; {known_formats()}")


def known_formats() -> str:
    """Return the known formats in one line for messages."""
    return "known: " + "; ".join(f"{name} ({what})" for name, what in FORMATS.items())


def _is_networkx(source: Any) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def _from_object(source: Any, options: dict[str, Any], nan: str) -> Graph:
    if hasattr(source, "edge_index") or hasattr(source, "adj_t"):
        missing = options.pop("missing", "error")
        return Graph.from_pyg(source, nan=nan, missing=missing, **_no_tables(options, "an object in memory"))
    options = _no_tables(options, "an object in memory")
    if hasattr(source, "tocoo"):
        return Graph.from_scipy(source, **options)
    raise FormatError(
        f"cannot read a graph from a {type(source).__name__}; give a path, a table of edges, a torch-geometric Data, a "
        f"networkx graph, a scipy sparse matrix, or build one with Graph.from_edges"
    )


def _check_options(format: str, duplicates: str, self_loops: str, options: dict[str, Any]) -> None:
    if format not in ("auto", *FORMATS):
        raise ConfigError(f"unknown format {format!r}{nearest(format, FORMATS)}; {known_formats()}")
    for name, value in (("duplicates", duplicates), ("self_loops", self_loops)):
        if value not in ("keep", "drop"):
            raise ConfigError(f"{name} is 'keep' or 'drop'; got {value!r}")
    known = [*_ONLY_TABLES, "name", "class_names", "source"]
    for key in options:
        if key not in known:
            raise ConfigError(f"read_graph takes no {key!r}{nearest(key, known)}")


def _no_tables(options: dict[str, Any], what: str) -> dict[str, Any]:
    """Return options, unless one of them belongs to tables of edges only."""
    if options.get("missing") == "auto":
        options = {key: value for key, value in options.items() if key != "missing"}
    wrong = [key for key in options if key in _ONLY_TABLES]
    if wrong:
        raise ConfigError(f"{', '.join(wrong)} belong to tables of edges; {what} does not take them")
    return options


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
    with at_most(max_bytes), reading(source, "a set of graphs"):
        return _read(source, {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops})


def is_set(source: str) -> bool:
    """Return whether a path or address is that of a set of graphs, as far as that can be told without reading it all.

    Addresses are those of torch-geometric's TUDataset, GNNBenchmarkDataset, LRGBDataset, MalNetTiny and ZINC, and OGB's
    ogbg data sets.
    """
    from hopstate.data.readers.tu import is_tu_folder, is_tu_text

    if source.startswith("pyg:"):
        return source[4:].partition(":")[0] in PYG_SETS
    return source.startswith("ogb:ogbg-") or is_tu_folder(source) or is_tu_text(source)


def _read(source: str, build: dict[str, Any]) -> GraphSet:
    if source.startswith("pyg:"):
        from hopstate.data.readers.pyg import read_pyg_set

        return read_pyg_set(source).as_published()
    if source.startswith("ogb:"):
        from hopstate.data.readers.pyg import read_ogb

        found = read_ogb(source[4:])
        if not isinstance(found, GraphSet):
            raise ConfigError(f"{source} is one graph; take a method of nodes for it")
        return found.as_published()
    from hopstate.data.readers.tu import is_tu_folder, read_tu, read_tu_folder

    if is_tu_folder(source):
        return read_tu_folder(source, **build)
    return read_tu(source, table=True, **build)
