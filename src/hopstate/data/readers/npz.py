"""The public .npz layouts of graphs, matrices that scipy saved, and Matrix Market files, read without pickle.

Source: heterophilous: github.com/yandex-research/heterophilous-graphs; gnn-benchmark: github.com/shchur/gnn-benchmark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.readers.notes import notes_of_list
from hopstate.data.validate import SPLITS, check_num_nodes, clean_features
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, warn
from hopstate.io.opening import bounded, check_size
from hopstate.io.tensors import Archive

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
