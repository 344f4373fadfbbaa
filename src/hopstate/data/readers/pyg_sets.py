"""Sets of graphs from torch-geometric's own data set classes, with their published splits.

LRGBDataset, GNNBenchmarkDataset, MalNetTiny and any class that takes split="train", "val" and "test"; classes
without stored splits (TUDataset, CSL) get ten stratified folds from a fixed seed.

Source: local degree profiles stand in where a class stores no features of nodes (Cai & Wang 2018, arXiv:1811.03508).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.readers.pyg import open_pyg_dataset
from hopstate.data.validate import SPLITS
from hopstate.errors import DataError, FormatError

if TYPE_CHECKING:
    from torch_geometric.data import Data

LEVELS = {"PascalVOC-SP": "node", "COCO-SP": "node", "PATTERN": "node", "CLUSTER": "node", "TSP": "edge"}
_UNSPLIT = ("CSL",)  # takes a split and ignores it
_CATEGORIES = 256  # integer features of up to so many values are categories


def read_pyg_set(address: str, **fields: Any) -> GraphSet:
    """Return all graphs of a torch-geometric data set, e.g. ``pyg:LRGBDataset:Peptides-func``.

    Integer features of nodes and edges are categories, one column a value; positions follow the features; where nodes
    have none, the profile of their degrees stands in.

    Args:
        address: see `hopstate.data.readers.pyg.read_pyg_dataset`.
        fields: fields of `GraphSet.from_pyg`, over what is found.

    Raises:
        DataError: a data set whose task is none of the classes, labels or values of graphs, nodes or edges.
        FormatError, DownloadError, MissingFileError: as `hopstate.data.readers.pyg.read_pyg_dataset`.
    """
    kind, _, name = address.removeprefix("pyg:").partition("?")[0].partition(":")
    if name == "PCQM-Contact":
        raise DataError(f"{address} asks for links between nodes of many graphs, a task that is not built in")
    if _takes_split(kind) and name not in _UNSPLIT:
        splits = [list(open_pyg_dataset(address, split=split)[0]) for split in SPLITS]
        listed = [data for part in splits for data in part]
        split_of = np.repeat(np.arange(3), [len(part) for part in splits])
        masks = {split: split_of == i for i, split in enumerate(SPLITS)}
    else:
        listed = list(open_pyg_dataset(address)[0])
        masks = stratified_folds(np.array([int(data.y) for data in listed]))
    own = {"name": (name or kind).lower(), "source": address, "masks": masks, "level": LEVELS.get(name, "graph")}
    return GraphSet.from_pyg(with_features(listed), **{**own, **fields})


def _takes_split(kind: str) -> bool:
    from torch_geometric import datasets

    if kind not in datasets.__all__:
        raise FormatError(f"torch-geometric has no data set class {kind!r}")
    return "split" in inspect.signature(getattr(datasets, kind).__init__).parameters


def stratified_folds(y: np.ndarray, count: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """Return masks of folds whose splits hold the classes in equal shares; see `hopstate.data.graph_set.folds`."""
    from sklearn.model_selection import StratifiedKFold

    cuts = list(StratifiedKFold(count, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))
    return folds([train for train, _ in cuts], [test for _, test in cuts], len(y), seed=seed)


def with_features(listed: list[Data]) -> list[Data]:
    """Return the graphs with float features: categories as columns, positions joined, degree profiles where none are.

    Raises:
        DataError: an edge list that is no (2, E) array, as of a graph without edges that was stored wrongly.
    """
    import torch

    for number, data in enumerate(listed):
        if data.edge_index is None or data.edge_index.ndim != 2:
            raise DataError(f"graph {number} has no (2, E) edge_index")
    for key in ("x", "edge_attr"):
        found = [data.get(key) for data in listed]
        if any(value is None for value in found):
            continue
        columns = _as_columns(torch.cat([v.reshape(len(v), -1) for v in found]).numpy())
        for data, rows in zip(listed, np.split(columns, np.cumsum([len(v) for v in found])[:-1])):
            data[key] = torch.from_numpy(rows)
    for data in listed:
        if data.get("x") is None:
            data.x = torch.from_numpy(degree_profile(data.edge_index.numpy(), int(data.num_nodes)))
        elif data.get("pos") is not None:
            data.x = torch.cat([data.x, data.pos.to(data.x.dtype)], 1)
    return listed


def _as_columns(values: np.ndarray) -> np.ndarray:
    """Return float32 columns; a column of integers becomes one of 0 and 1 for each value that occurs."""
    if values.dtype.kind != "i":
        return values.astype(np.float32)
    columns = []
    for column in values.T:
        kinds, rows = np.unique(column, return_inverse=True)
        few = 1 < len(kinds) <= _CATEGORIES
        columns.append(np.eye(len(kinds), dtype=np.float32)[rows] if few else column[:, None].astype(np.float32))
    return np.concatenate(columns, 1)


def degree_profile(edge_index: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (N, 5) float32: log(1 + .) of a node's degree and of its neighbours' minimum, maximum, mean and spread."""
    graph = Graph.from_edges(edge_index.T, num_nodes, undirected=True)
    degree = graph.degree.astype(np.float64)
    rows, own = graph.edge_index()[0], np.maximum(degree, 1)
    theirs = degree[graph.indices]
    least, most = np.full(num_nodes, np.inf), np.zeros(num_nodes)
    np.minimum.at(least, rows, theirs)
    np.maximum.at(most, rows, theirs)
    mean = np.bincount(rows, theirs, num_nodes) / own
    spread = np.sqrt(np.maximum(np.bincount(rows, theirs**2, num_nodes) / own - mean**2, 0))
    profile = np.stack([degree, np.where(np.isfinite(least), least, 0), most, mean, spread], 1)
    return np.log1p(profile).astype(np.float32)


__all__ = ["degree_profile", "read_pyg_set", "stratified_folds", "with_features"]
