"""Graphs and graph sets of torch-geometric and of the Open Graph Benchmark: saved files and dataset classes.

Nothing that a user's file holds is unpickled: saved files are loaded with torch's `weights_only`, and a class of
torch-geometric or OGB may unpickle raw files only if it has just fetched them itself.

Source: Hu et al. 2020, arXiv:2005.00687 (OGB); Cai & Wang 2018, arXiv:1811.03508 (local degree profiles, for datasets
without node features).
"""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError, DownloadError, FormatError, MissingFileError, nearest
from hopstate.io.files import cache_folder
from hopstate.io.opening import ZIP, check_size, first_bytes, names_host, reading, shorten
from hopstate.io.tensors import check_zip

if TYPE_CHECKING:
    from torch_geometric.data import Data

UNPICKLED = "hopstate does not unpickle files, because a pickle can run any code"


def read_pyg_file(path: Path, **fields: Any) -> Graph:
    """Return the graph of a file written by torch.save(data), or by an InMemoryDataset that holds one graph."""
    import torch
    from torch_geometric.data import Data

    if first_bytes(path).startswith(ZIP):
        check_zip(path)
    try:
        with weights_only():
            record = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, AttributeError) as error:
        raise FormatError(
            f"{path} holds more than tensors and torch-geometric's own classes{_what(error)}; "
            f"{UNPICKLED}. Load it yourself and pass the Data object"
        ) from None
    except (RuntimeError, EOFError, ValueError) as error:
        raise FormatError(f"{path} is damaged or no torch file: {str(error).splitlines()[0]}") from None
    if isinstance(record, tuple):
        record, slices = record[0], record[1]
        if slices and len(next(iter(slices.values()))) > 2:
            raise FormatError(f"{path} holds many graphs; a node task needs one: pass one of its Data objects")
    data = Data.from_dict(record) if isinstance(record, dict) else record
    if not isinstance(data, Data):
        raise FormatError(f"{path} holds a {type(record).__name__}, not a torch-geometric Data")
    _check_tensors(data, path)
    return Graph.from_pyg(data, **{"source": str(path), "name": path.stem, **fields})


def _check_tensors(data: Data, path: Path) -> None:
    """Raise a FormatError where a tensor is larger than what the file stores for it, or made dense would be."""
    for name, value in data.to_dict().items():
        if hasattr(value, "untyped_storage") and value.layout.__str__() == "torch.strided":
            size, stored = value.numel() * value.element_size(), value.untyped_storage().nbytes()
            if size > stored:
                raise FormatError(f"{path}: {name} takes {size:,} bytes, but {stored:,} are stored; save it as a copy")
        elif hasattr(value, "numel"):
            check_size(path, 4 * int(value.numel()), what=f"{name} as a dense matrix")
    count = data.get("num_nodes")
    if count is not None and (type(count) is not int or count < 1):
        raise FormatError(f"{path}: num_nodes is {str(count)[:60]!r}; give the number of nodes")


def read_pyg_dataset(address: str, **fields: Any) -> Graph:
    """Return the first graph of a torch-geometric dataset, e.g. ``pyg:Planetoid:Cora?split=geom-gcn``.

    The address is "pyg:Class", then ":name" where the class takes a name, then "?key=value&..." for its other
    arguments; root is by default a folder of the cache.
    """
    graphs, name = pyg_graphs(address, 1)
    return Graph.from_pyg(graphs[0], **{"source": address, "name": name, **fields})


def pyg_graphs(address: str, max_graphs: int | None = None, **more: Any) -> tuple[list[Data], str]:
    """Return the first graphs of a torch-geometric dataset (`read_pyg_dataset` says its address), and its name."""
    from torch_geometric import datasets

    head, _, query = address.removeprefix("pyg:").partition("?")
    kind, _, name = head.partition(":")
    if kind not in datasets.__all__:
        raise FormatError(f"torch-geometric has no dataset class {kind!r}{nearest(kind, datasets.__all__)}")
    arguments = {**more, **dict(parse_qsl(query))}
    arguments.setdefault("root", str(cache_folder() / "pyg" / kind))
    if names_host(arguments["root"]):  # torch-geometric would read it through fsspec, from another machine
        raise ConfigError(f"root={shorten(arguments['root'])} in {shorten(address)} is an address; give a folder")
    if name:
        arguments["name"] = name
    guarded = _guarded(getattr(datasets, kind))
    try:
        with weights_only():
            return list(islice(guarded(**arguments), max_graphs)), name.lower() or kind.lower()
    except TypeError as error:
        raise FormatError(f"{address}: {error}; write pyg:Class:name?key=value&key=value") from None
    except pickle.UnpicklingError as error:
        raise FormatError(f"{address}: a saved file holds more than tensors{_what(error)}; {UNPICKLED}") from None
    except FileNotFoundError as error:
        raise MissingFileError(f"{address}: {error}") from None
    except OSError as error:
        raise DownloadError(
            f"{address}: torch-geometric could not fetch its files ({error}); where the network is open, run "
            f"torch_geometric.datasets.{kind} once with root={arguments['root']!r} and copy that folder here"
        ) from error


def _guarded(kind: type) -> type:
    """Return a dataset class that unpickles raw files only if it fetched all of them itself."""

    def _download(self: Any) -> None:
        root, own, processed = Path(self.root), Path(self.raw_dir).parent, Path(self.processed_dir)
        before = [path for path in (*root.glob("*"), *own.rglob("*")) if processed not in (path, *path.parents)]
        self._fetched = not any(path.is_file() for path in before)
        kind._download(self)  # type: ignore[attr-defined]

    def process(self: Any) -> None:
        token = _refused.set(not self._fetched)
        try:
            kind.process(self)  # type: ignore[attr-defined]
        finally:
            _refused.reset(token)

    return type(kind.__name__, (kind,), {"_download": _download, "process": process})


def _what(error: Exception) -> str:
    """Return the class that weights_only refused, for messages."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f" ({found[1]})" if found else ""


_refused: ContextVar[bool] = ContextVar("unpickling_refused", default=False)


@cache
def _watch_pickles() -> None:
    """Let every unpickler of this process, whoever calls it, ask `_refused` before it looks up a class or function."""

    def check(event: str, found: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and _refused.get():
            raise pickle.UnpicklingError(f"GLOBAL {found[0]}.{found[1]}")

    sys.addaudithook(check)


@contextmanager
def weights_only() -> Iterator[None]:
    """Refuse pickles, hold torch.load to weights_only whatever torch-geometric says, and let it rebuild `Data`.

    The classes allowed are plain containers. Those that are allowed already are not named again: torch would take
    them off its list at the end.
    """
    from torch.serialization import get_safe_globals, safe_globals
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    allowed = get_safe_globals()
    classes = [c for c in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if c not in allowed]
    os.environ[name] = "1"
    _watch_pickles()
    token = _refused.set(True)
    try:
        with safe_globals(classes):
            yield
    finally:
        _refused.reset(token)
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


LEVELS = {"PascalVOC-SP": "node", "COCO-SP": "node", "PATTERN": "node", "CLUSTER": "node", "TSP": "edge"}

_UNSPLIT = ("CSL",)  # takes a split and ignores it

_CATEGORIES = 256  # integer features of up to so many values are categories


def read_pyg_set(address: str, **fields: Any) -> GraphSet:
    """Return all graphs of a torch-geometric dataset, e.g. ``pyg:LRGBDataset:Peptides-func``.

    Integer features of nodes and edges are categories, one column a value; positions follow the features; where nodes
    have none, degree profiles are used.
    """
    kind, _, name = address.removeprefix("pyg:").partition("?")[0].partition(":")
    if name == "PCQM-Contact":
        raise DataError(f"{address} has links between nodes of several graphs as its task, which is not supported")
    if _takes_split(kind) and name not in _UNSPLIT:
        splits = [pyg_graphs(address, split=split)[0] for split in SPLITS]
        listed = [data for part in splits for data in part]
        split_of = np.repeat(np.arange(3), [len(part) for part in splits])
        masks = {split: split_of == i for i, split in enumerate(SPLITS)}
    else:
        listed = pyg_graphs(address)[0]
        masks = stratified_folds(np.array([int(data.y) for data in listed]))
    defaults = {"name": (name or kind).lower(), "source": address, "masks": masks, "level": LEVELS.get(name, "graph")}
    return GraphSet.from_pyg(with_features(listed), **{**defaults, **fields})


def _takes_split(kind: str) -> bool:
    from torch_geometric import datasets

    if kind not in datasets.__all__:
        raise FormatError(f"torch-geometric has no dataset class {kind!r}")
    return "split" in inspect.signature(getattr(datasets, kind).__init__).parameters


def stratified_folds(y: np.ndarray, count: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """Return masks of folds whose splits hold the classes in equal shares; see `hopstate.data.graph_set.folds`."""
    from sklearn.model_selection import StratifiedKFold

    cuts = list(StratifiedKFold(count, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))
    return folds([train for train, _ in cuts], [test for _, test in cuts], len(y), seed=seed)


def with_features(listed: list[Data]) -> list[Data]:
    """Return the graphs with float features: categories as columns, positions joined, else degree profiles."""
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
        categorical = 1 < len(kinds) <= _CATEGORIES
        columns.append(
            np.eye(len(kinds), dtype=np.float32)[rows] if categorical else column[:, None].astype(np.float32)
        )
    return np.concatenate(columns, 1)


def degree_profile(edge_index: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (N, 5) float32: log(1 + .) of a node's degree and of its neighbours' minimum, maximum, mean and spread."""
    graph = Graph.from_edges(edge_index.T, num_nodes, undirected=True)
    degree = graph.degree.astype(np.float64)
    rows, divisor = graph.edge_index()[0], np.maximum(degree, 1)
    neighbor_degree = degree[graph.indices]
    low, high = np.full(num_nodes, np.inf), np.zeros(num_nodes)
    np.minimum.at(low, rows, neighbor_degree)
    np.maximum.at(high, rows, neighbor_degree)
    mean = np.bincount(rows, neighbor_degree, num_nodes) / divisor
    deviation = np.sqrt(np.maximum(np.bincount(rows, neighbor_degree**2, num_nodes) / divisor - mean**2, 0))
    profile = np.stack([degree, np.where(np.isfinite(low), low, 0), high, mean, deviation], 1)
    return np.log1p(profile).astype(np.float32)


_KINDS = {
    "ogbn": ("ogb.nodeproppred", "PygNodePropPredDataset"),
    "ogbg": ("ogb.graphproppred", "PygGraphPropPredDataset"),
}

_SPLITS = {"train": "train", "valid": "val", "test": "test"}


def read_ogb(name: str, /, **fields: Any) -> Graph | GraphSet:
    """Return the graph of an ogbn-... dataset or the graphs of an ogbg-... one, with the official split.

    A single graph is made undirected unless the fields say otherwise.
    """
    dataset = _opened(name)
    number = len(dataset)
    with reading(f"ogb:{name}", "a dataset of the Open Graph Benchmark"), _tensors_only(name):
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
    defaults = {
        "name": name,
        "source": f"ogb:{name}",
        "masks": masks,
        "y": labels,
        "undirected": True,
        "duplicates": "drop",
    }
    return Graph.from_pyg(data, **{**defaults, **fields})


def _opened(name: str) -> Any:
    """Return the package's dataset object, without its prompts."""
    if name[:4] not in _KINDS:
        raise ConfigError(f"{name!r}: node datasets (ogbn-...) and graph datasets (ogbg-...) are read, no others")
    module, kind = _KINDS[name[:4]]
    try:
        package = importlib.import_module(module)
    except ImportError:
        raise ConfigError(f"{name} is read by the package ogb, which is not installed: pip install ogb") from None
    where = importlib.import_module(getattr(package, kind).__module__)
    original = getattr(where, "decide_download", None)
    root = cache_folder() / "ogb"
    try:
        if original is not None:
            where.decide_download = lambda url: True  # type: ignore[attr-defined]  # it would wait for a y
        with _tensors_only(name):
            return getattr(package, kind)(name=name, root=str(root))
    except (OSError, RuntimeError) as error:
        raise DownloadError(
            f"{name} could not be fetched ({error}); where the network is open, run {module}.{kind}({name!r}, "
            f"root={str(root)!r}) once and copy that folder here"
        ) from error
    finally:
        if original is not None:
            where.decide_download = original  # type: ignore[attr-defined]


@contextmanager
def _tensors_only(name: str) -> Iterator[None]:
    """Context in which the package unpickles tensors only."""
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
            raise FormatError(f"ogb:{name}: the official split {key!r} is not a list of numbers in 0..{items - 1}")
    rows = np.concatenate(list(splits.values()))
    if len(np.unique(rows)) < len(rows):
        raise FormatError(f"ogb:{name}: the official split names something twice; fetch it again")
