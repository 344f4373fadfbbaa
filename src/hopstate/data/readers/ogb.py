"""Graphs and sets of graphs of the Open Graph Benchmark, through its own package.

Nothing is unpickled: files that the package saved are loaded as tensors only.

Source: Hu et al. 2020, arXiv:2005.00687.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.pyg import UNPICKLED, weights_only
from hopstate.data.readers.pyg_sets import with_features
from hopstate.errors import ConfigError, DownloadError, FormatError
from hopstate.io.cache import cache_folder
from hopstate.io.opening import reading

_KINDS = {
    "ogbn": ("ogb.nodeproppred", "PygNodePropPredDataset"),
    "ogbg": ("ogb.graphproppred", "PygGraphPropPredDataset"),
}
_SPLITS = {"train": "train", "valid": "val", "test": "test"}


def read_ogb(name: str, /, **fields: Any) -> Graph | GraphSet:
    """Return the graph of an ogbn-... data set or the graphs of an ogbg-... one, with the official split.

    Args:
        name: as the benchmark writes it.
        fields: options of `Graph.from_pyg` or of `GraphSet.from_pyg`. A single graph is made
            undirected unless they say otherwise.

    Raises:
        ConfigError: the package is not installed, or another kind of data set.
        DownloadError: the files are not there and could not be fetched.
        FormatError: a file holds more than tensors.
    """
    dataset = _opened(name)
    number = len(dataset)
    with reading(f"ogb:{name}", "a data set of the Open Graph Benchmark"), _tensors_only(name):
        splits = {_SPLITS[key]: np.asarray(rows) for key, rows in dataset.get_idx_split().items()}
        listed = [dataset[i] for i in range(number if name.startswith("ogbg") else 1)]
        items = number if name.startswith("ogbg") else int(listed[0].num_nodes)
        _check_split(name, splits, items)
    if name.startswith("ogbg"):
        masks = {key: np.isin(np.arange(number), rows) for key, rows in splits.items()}
        return GraphSet.from_pyg(
            with_features(listed), **{"name": name, "source": f"ogb:{name}", "masks": masks, **fields}
        )
    data = listed[0]
    y = np.asarray(data.y)
    if len(y) != data.num_nodes:
        raise FormatError(f"ogb:{name} gives {len(y)} labels for {data.num_nodes} nodes; fetch it again")
    y = y.reshape(int(data.num_nodes), -1)
    labels = y.astype(np.float32)  # several 0/1 labels a node, NaN where unknown
    if y.shape[1] == 1:
        labels = np.where(np.isnan(y[:, 0]), -1, y[:, 0]).astype(np.int64)
    masks = {key: np.isin(np.arange(len(labels)), rows) for key, rows in splits.items()}
    own = {"name": name, "source": f"ogb:{name}", "masks": masks, "y": labels, "undirected": True, "duplicates": "drop"}
    return Graph.from_pyg(data, **{**own, **fields})


def _opened(name: str) -> Any:
    """Return the package's data set object; it never asks the user anything."""
    if name[:4] not in _KINDS:
        raise ConfigError(f"{name!r}: node data sets (ogbn-...) and graph data sets (ogbg-...) are read, no others")
    module, kind = _KINDS[name[:4]]
    try:
        package = importlib.import_module(module)
    except ImportError:
        raise ConfigError(f"{name} is read by the package ogb, which is not installed: pip install ogb") from None
    where = importlib.import_module(getattr(package, kind).__module__)
    asks = getattr(where, "decide_download", None)
    root = cache_folder() / "ogb"
    try:
        if asks is not None:
            where.decide_download = lambda url: True  # type: ignore[attr-defined]  # it would wait for a y
        with _tensors_only(name):
            return getattr(package, kind)(name=name, root=str(root))
    except (OSError, RuntimeError) as error:
        raise DownloadError(
            f"{name} could not be fetched ({error}); where the network is open, run {module}.{kind}({name!r}, "
            f"root={str(root)!r}) once and copy that folder here"
        ) from error
    finally:
        if asks is not None:
            where.decide_download = asks  # type: ignore[attr-defined]


@contextmanager
def _tensors_only(name: str) -> Iterator[None]:
    """Within it the package unpickles nothing, whatever it asks torch for.

    Raises:
        FormatError: a file holds more than tensors.
    """
    try:
        with weights_only():
            yield
    except pickle.UnpicklingError:
        where = cache_folder() / "ogb"
        raise FormatError(f"{where}: a saved file of {name} holds more than tensors; {UNPICKLED}") from None


def _check_split(name: str, splits: dict[str, np.ndarray], items: int) -> None:
    """Raise FormatError where an official split does not name each of its nodes or graphs once."""
    for key, rows in splits.items():
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows) or not 0 <= rows.min() <= rows.max() < items:
            raise FormatError(f"ogb:{name}: the official split {key!r} is no list of numbers in 0..{items - 1}")
    rows = np.concatenate(list(splits.values()))
    if len(np.unique(rows)) < len(rows):
        raise FormatError(f"ogb:{name}: the official split names something twice; fetch it again")


__all__ = ["read_ogb"]
