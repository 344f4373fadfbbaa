"""The two public .npz layouts of graphs, read without pickle.

Source: heterophilous: github.com/yandex-research/heterophilous-graphs; gnn-benchmark: github.com/shchur/gnn-benchmark.
"""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.notes import notes_of_list
from hopstate.data.validate import SPLITS, clean_features
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, HopstateWarning, MissingFileError

LAYOUTS = {
    "heterophilous": ("node_features", "node_labels", "edges"),
    "gnn-benchmark": ("adj_indptr", "adj_indices", "adj_shape"),
}


class Archive(Mapping[str, np.ndarray]):
    """Arrays of an .npz file, each read when asked for; never unpickled.

    Raises:
        MissingFileError: no such file.
        FormatError: no archive, truncated, or an array that is a pickle.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = np.load(path, allow_pickle=False)
        except FileNotFoundError:
            raise MissingFileError(f"no file at {path}") from None
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise FormatError(f"{path} is no .npz archive, or a truncated one ({error}); fetch it again") from None
        if not isinstance(self._file, np.lib.npyio.NpzFile):
            raise FormatError(f"{path} holds one array, not an .npz archive of several")

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._file.files:
            raise KeyError(key)
        try:
            return self._file[key]
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            if "allow_pickle" in str(error):
                raise FormatError(
                    f"{self.path}: {key!r} is stored as a pickle, which can run any code and is not loaded; "
                    f"save it as plain numbers or strings"
                ) from None
            raise FormatError(f"{self.path}: {key!r} is damaged or truncated ({error}); fetch it again") from None

    def __contains__(self, key: object) -> bool:
        return key in self._file.files  # without reading the array, as Mapping's own would

    def __iter__(self) -> Any:
        return iter(self._file.files)

    def __len__(self) -> int:
        return len(self._file.files)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


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
        edges, fields = (_heterophilous if layout == "heterophilous" else _gnn_benchmark)(arrays)
    if fields.get("x") is not None:
        fields["x"] = clean_features(fields["x"], nan, f"{path}: node features")
    num_nodes = fields.pop("num_nodes")
    fields["notes"] = (*fields.pop("notes", ()), *notes_of_list(edges, num_nodes, options))
    return Graph.from_edges(edges, num_nodes, **{"source": str(path), "name": path.stem, **fields, **options})


def _heterophilous(arrays: Archive) -> tuple[np.ndarray, dict[str, Any]]:
    x, y = arrays["node_features"], arrays["node_labels"]
    masks = {name: arrays[f"{name}_masks"] for name in SPLITS if f"{name}_masks" in arrays}
    return arrays["edges"], {"num_nodes": len(y), "x": x, "y": y, "masks": masks}


def _gnn_benchmark(arrays: Archive) -> tuple[np.ndarray, dict[str, Any]]:
    adjacency = _sparse(arrays, "adj")
    coo = adjacency.tocoo()
    stored = coo.data != 0
    num_nodes = adjacency.shape[0]
    fields: dict[str, Any] = {"num_nodes": num_nodes}
    if "attr_indptr" in arrays:
        fields["x"] = _sparse(arrays, "attr").astype(np.float32).toarray()
    elif "attr_matrix" in arrays:
        fields["x"] = arrays["attr_matrix"]
    if (coo.data[stored] != 1).any():
        fields["notes"] = ("values of the adjacency other than 1 are not used as weights",)
    if "labels" in arrays:
        fields["y"] = arrays["labels"]
    names = _names(arrays, "node_names")
    fields["node_ids"] = None if names is None else Vocabulary(names)
    classes = _names(arrays, "class_names")
    fields["class_names"] = None if classes is None else tuple(classes.tolist())
    return np.stack([coo.row[stored], coo.col[stored]], 1).astype(np.int64), fields


def _sparse(arrays: Archive, prefix: str) -> Any:
    import scipy.sparse

    parts = {
        key: arrays[f"{prefix}_{key}"] for key in ("data", "indices", "indptr", "shape") if f"{prefix}_{key}" in arrays
    }
    if len(parts) < 4:
        raise FormatError(
            f"{arrays.path}: {prefix}_data, _indices, _indptr and _shape are needed; found {sorted(parts)}"
        )
    shape = tuple(int(n) for n in parts["shape"])
    try:
        matrix = scipy.sparse.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"{arrays.path}: the parts of {prefix} are no CSR matrix: {error}") from None
    return matrix


def _names(arrays: Archive, key: str) -> np.ndarray | None:
    if key not in arrays:
        return None
    try:
        return arrays[key]
    except FormatError as error:
        warnings.warn(f"{error}; the names are left out", HopstateWarning, stacklevel=2)
        return None
