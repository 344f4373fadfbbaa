"""Records on disk: one folder of .npy arrays and one JSON file, written beside its place and exchanged with it.

Arrays are read back as memory maps, so that a record larger than memory opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hopstate.data.features import FeatureTable
from hopstate.data.files import save_array
from hopstate.data.folders import recover_folder, replace_folder
from hopstate.data.graph import Graph
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import FormatError, MissingFileError, StorageError

VERSION = 1
META = "graph.json"


def save_graph(graph: Graph, folder: str | Path) -> None:
    """Write a graph as a folder; an earlier graph there is replaced only once the new one is whole.

    Raises:
        StorageError: the folder holds something else, or could not be written; what stood there is untouched.
    """
    arrays = {key: getattr(graph, key) for key in ("indptr", "indices", "x", "y", "edge_attr", "edge_weight")}
    arrays |= {f"mask_{name}": mask for name, mask in graph.masks.items()}
    arrays["node_ids"] = None if graph.node_ids is None else graph.node_ids.ids
    arrays["table"] = None if graph.table is None else graph.table.values
    names = None if graph.class_names is None else list(graph.class_names)
    meta = {"version": VERSION, "name": graph.name, "source": graph.source, "class_names": names}
    meta |= {"columns": None if graph.table is None else list(graph.table.columns), "notes": list(graph.notes)}
    write_folder(Path(folder), META, "graph", meta, arrays)


def load_graph(folder: str | Path, *, mmap: bool = True) -> Graph:
    """Return the graph of a folder that `save_graph` wrote.

    Raises:
        MissingFileError: no such folder.
        FormatError: not a saved graph, of a newer version, or damaged.
    """
    known, later = ("name", "source", "class_names"), {"columns": None, "notes": ()}
    fields, arrays = read_folder(Path(folder), META, "graph", VERSION, known, mmap=mmap, otherwise=later)
    ids, values, columns = arrays.pop("node_ids", None), arrays.pop("table", None), fields.pop("columns")
    fields["table"] = None if values is None else FeatureTable(tuple(columns or ()), values)
    masks = {key.removeprefix("mask_"): arrays.pop(key) for key in list(arrays) if key.startswith("mask_")}
    return Graph(**arrays, **fields, masks=masks, node_ids=None if ids is None else Vocabulary(ids))


def write_folder(
    folder: Path, marker: str, what: str, meta: dict[str, Any], arrays: dict[str, np.ndarray | None]
) -> None:
    """Write arrays as .npy and meta as the JSON file named marker, in place of an earlier folder once it is whole.

    Raises:
        StorageError: the folder holds something else, or could not be written; what stood there is untouched.
    """
    if folder.exists() and not (folder / marker).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(f"{folder} exists and holds no {what}; choose another folder")
    held = {key: array for key, array in arrays.items() if array is not None}

    def fill(part: Path) -> None:
        for key, array in held.items():
            save_array(part / f"{key}.npy", array)
        (part / marker).write_text(json.dumps(meta | {"arrays": list(held)}, indent=1), "utf-8")

    replace_folder(folder, fill)


def read_folder(
    folder: Path,
    marker: str,
    what: str,
    version: int,
    keys: tuple[str, ...],
    *,
    mmap: bool,
    otherwise: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the named keys of the meta, and the arrays, of a folder that `write_folder` wrote.

    Args:
        folder, marker, what, version: see `write_folder`.
        keys: what the meta must hold.
        mmap: leave arrays on disk until touched.
        otherwise: keys that older folders lack, with what then holds.

    Raises:
        MissingFileError: no such folder.
        FormatError: it lacks the marker, is of another version, or is damaged.
    """
    recover_folder(folder)
    if not folder.exists():
        raise MissingFileError(f"no {what} folder at {folder}")
    if not (folder / marker).is_file():
        raise FormatError(f"{folder} is no saved {what}: it has no {marker}")
    try:
        meta = json.loads((folder / marker).read_text("utf-8"))
        if meta["version"] != version:
            raise FormatError(f"{folder} is a {what} of format {meta['version']}; this hopstate reads {version}")
        arrays = {key: _array(folder / f"{key}.npy", mmap) for key in meta["arrays"]}
        return {key: meta[key] for key in keys} | {key: meta.get(key, v) for key, v in otherwise.items()}, arrays
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise FormatError(f"{folder / marker} is damaged ({error!r}); save the {what} again") from None


def _array(path: Path, mmap: bool) -> np.ndarray:
    if not path.is_file():
        raise FormatError(f"{path} is missing; save the data again")
    try:
        # an empty file cannot be mapped, nor can an array without elements
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (ValueError, EOFError):
        try:
            return np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise FormatError(f"{path} is truncated or no array ({error}); save the data again") from None
