"""Graphs from files that torch-geometric saved, and from its own data set classes.

Nothing that a user's file holds is unpickled: saved files are loaded with torch's `weights_only`, and raw files that
were put in place by hand are not processed by classes whose raw format is a pickle.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from hopstate.data.graph import Graph
from hopstate.errors import DownloadError, FormatError, MissingFileError, nearest
from hopstate.io.cache import cache_folder
from hopstate.io.opening import check_size, open_regular
from hopstate.io.tensors import check_zip

if TYPE_CHECKING:
    from torch_geometric.data import Data

UNPICKLED = "hopstate does not unpickle files, because a pickle can run any code"


def read_pyg_file(path: Path, **fields: Any) -> Graph:
    """Return the graph of a file written by torch.save(data), or by an InMemoryDataset that holds one graph.

    Raises:
        FormatError: damaged, holds objects that only unpickling could load, or more than one graph.
    """
    import torch
    from torch_geometric.data import Data

    with open_regular(path) as file:
        packed = file.read(4) == b"PK\x03\x04"
    if packed:
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
            wanted, stored = value.numel() * value.element_size(), value.untyped_storage().nbytes()
            if wanted > stored:
                raise FormatError(
                    f"{path}: {name} takes {wanted:,} bytes, but {stored:,} are stored; save it as a copy"
                )
        elif hasattr(value, "numel"):
            check_size(path, 4 * int(value.numel()), what=f"{name} as a dense matrix")
    count = data.get("num_nodes")
    if count is not None and (type(count) is not int or count < 1):
        raise FormatError(f"{path}: num_nodes is {str(count)[:60]!r}; give the number of nodes")


def read_pyg_dataset(address: str, **fields: Any) -> Graph:
    """Return the first graph of a torch-geometric data set, e.g. ``pyg:Planetoid:Cora?split=geom-gcn``.

    Args:
        address: "pyg:Class", then ":name" where the class takes a name, then "?key=value&..." for its other
            arguments; root is by default a folder of the cache.
        fields: options of `Graph.from_edges` and fields of `Graph`.

    Raises:
        FormatError: an unknown class, arguments it does not take, or files that only unpickling could read.
        DownloadError: the class could not fetch its files.
    """
    dataset, name = open_pyg_dataset(address)
    return Graph.from_pyg(dataset[0], **{"source": address, "name": name, **fields})


def open_pyg_dataset(address: str, **more: Any) -> tuple[Any, str]:
    """Return a torch-geometric data set of an address as `read_pyg_dataset` takes it, and a name for messages.

    Args:
        address: see `read_pyg_dataset`.
        more: further arguments of the class.
    """
    from torch_geometric import datasets

    head, _, query = address.removeprefix("pyg:").partition("?")
    kind, _, name = head.partition(":")
    if kind not in datasets.__all__:
        raise FormatError(f"torch-geometric has no data set class {kind!r}{nearest(kind, datasets.__all__)}")
    arguments = {**more, **dict(parse_qsl(query))}
    arguments.setdefault("root", str(cache_folder() / "pyg" / kind))
    if name:
        arguments["name"] = name
    guarded = _guarded(getattr(datasets, kind))
    try:
        with weights_only():
            return guarded(**arguments), name.lower() or kind.lower()
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
    """Return a data set class that processes raw files only where it fetched them itself."""

    def _download(self: Any) -> None:
        self._given = all(Path(path).exists() for path in self.raw_paths)
        kind._download(self)  # type: ignore[attr-defined]

    def process(self: Any) -> None:
        if self._given:
            raise FormatError(
                f"{self.raw_dir} holds raw files, which {kind.__name__} may unpickle; {UNPICKLED}. "
                f"Process them yourself with torch_geometric.datasets.{kind.__name__} and try again"
            )
        kind.process(self)  # type: ignore[attr-defined]

    return type(kind.__name__, (kind,), {"_download": _download, "process": process})


def _what(error: Exception) -> str:
    """Return the class that weights_only refused, for messages."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f" ({found[1]})" if found else ""


@contextmanager
def weights_only() -> Iterator[None]:
    """Hold torch.load to weights_only, also where torch-geometric falls back to unpickling, and let it rebuild `Data`.

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
    try:
        with safe_globals(classes):
            yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
