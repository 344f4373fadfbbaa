"""Records on disk: one folder of .npy arrays and one JSON file, written beside its place and exchanged with it.

Arrays are read back as memory maps, so that a record larger than memory opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hopstate.data.features import FeatureTable
from hopstate.data.graph_arrays import GraphArrays
from hopstate.data.texts import TextColumn
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, MissingFileError, StorageError
from hopstate.io.files import recover_folder, replace_folder, save_array
from hopstate.io.opening import exists, read_json, reading
from hopstate.io.tensors import load_npy

VERSION = 1
META = "graph.json"
_FACTS: dict[str, tuple[type, ...]] = {"name": (str,), "source": (str,), "class_names": (list, type(None))}
_DTYPES: dict[str, tuple[str, ...]] = {
    "indptr": ("int64",),
    "indices": ("int64",),
    "y": ("int64", "float32", "float64"),
}
_DTYPES |= {"x": ("float32",), "edge_attr": ("float32",), "edge_weight": ("float32",), "node_type": ("int8",)}

_COLUMNS = {"table": "columns", "edge_table": "edge_columns"}  # where the names of a table's columns stand
_TEXTS = {"table": "texts", "edge_table": "edge_texts"}  # where its columns of texts stand


def save_graph(graph: GraphArrays, folder: str | Path) -> None:
    """Write a graph as a folder; an earlier graph there is replaced only once the new one is whole.

    Raises:
        StorageError: the folder holds something else, or could not be written; what stood there is untouched.
    """
    arrays = {
        key: getattr(graph, key) for key in ("indptr", "indices", "x", "y", "edge_attr", "edge_weight", "node_type")
    }
    arrays |= {f"mask_{name}": mask for name, mask in graph.masks.items()}
    arrays["node_ids"] = None if graph.node_ids is None else graph.node_ids.ids
    tables = {"table": graph.table, "edge_table": graph.edge_table}
    arrays |= {key: None if table is None else table.values for key, table in tables.items()}
    arrays |= {_TEXTS[key]: None if table is None else codes_of(table) for key, table in tables.items()}
    names = None if graph.class_names is None else list(graph.class_names)
    meta = {"version": VERSION, "name": graph.name, "source": graph.source, "class_names": names}
    named = {name: tables[key] for key, name in _COLUMNS.items()}
    meta |= {name: None if table is None else list(table.columns) for name, table in named.items()}
    meta |= {_TEXTS[key]: None if table is None else lines_of(table) for key, table in tables.items()}
    meta["notes"] = list(graph.notes)
    write_folder(Path(folder), META, "graph", meta, arrays)


def load_fields(folder: str | Path, *, mmap: bool = True) -> dict[str, Any]:
    """Return the fields of the graph of a folder that `save_graph` wrote; with mmap, arrays stay on disk until touched.

    Raises:
        MissingFileError: no such folder.
        FormatError: not a saved graph, of a newer version, or damaged.
    """
    later: dict[str, Any] = {"columns": None, "edge_columns": None, "notes": [], "texts": None, "edge_texts": None}
    fields, arrays = read_folder(Path(folder), META, "graph", VERSION, _FACTS, mmap=mmap, otherwise=later)
    ids = arrays.pop("node_ids", None)
    tables = {key: (arrays.pop(key, None), fields.pop(name)) for key, name in _COLUMNS.items()}
    texts = {key: (fields.pop(name), arrays.pop(name, None)) for key, name in _TEXTS.items()}
    masks = {key.removeprefix("mask_"): arrays.pop(key) for key in list(arrays) if key.startswith("mask_")}
    wrong = {key: str(a.dtype) for key, a in arrays.items() if str(a.dtype) not in _DTYPES.get(key, ())}
    wrong |= {f"mask_{key}": str(mask.dtype) for key, mask in masks.items() if mask.dtype != bool}
    if wrong or not {"indptr", "indices"} <= arrays.keys():
        raise FormatError(f"{folder} holds other arrays than a saved graph: {wrong or sorted(arrays)}; save it again")
    with reading(folder, "a saved graph"):
        for key, (values, columns) in tables.items():
            fields[key] = None if values is None else table_of(columns, values, *texts[key])
        fields["notes"] = tuple(fields["notes"])
        return {**arrays, **fields, "masks": masks, "node_ids": None if ids is None else Vocabulary(ids)}


def codes_of(table: FeatureTable) -> np.ndarray | None:
    """Return (N, T) int32 codes of a table's columns of texts, None where it has none."""
    return np.stack([text.codes for text in table.texts], 1) if table.texts else None


def lines_of(table: FeatureTable) -> list[str]:
    """Return a line for each of a table's columns of texts; see `TextColumn.as_text`."""
    return [text.as_text() for text in table.texts]


def table_of(
    columns: Sequence[str] | None, values: np.ndarray, lines: Sequence[str] | None, codes: np.ndarray | None
) -> FeatureTable:
    """Return a table of what was saved of it; folders from before have no lines and codes of texts.

    Raises:
        DataError: they do not match.
    """
    lines = lines or ()
    if codes is None:
        codes = np.empty((len(values), 0), np.int32)
    if codes.ndim != 2 or codes.shape[1] != len(lines):
        raise DataError(f"{len(lines)} columns of texts have codes of shape {codes.shape}")
    texts = tuple(TextColumn.from_text(line, codes[:, at]) for at, line in enumerate(lines))
    return FeatureTable(tuple(columns or ()), values, texts)


def write_folder(
    folder: Path, marker: str, what: str, meta: dict[str, Any], arrays: dict[str, np.ndarray | None]
) -> None:
    """Write arrays as .npy and meta as the JSON file named marker, in place of an earlier folder once it is whole.

    Raises:
        StorageError: the folder holds something else, or could not be written; what stood there is untouched.
    """
    if folder.exists() and not (folder / marker).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(f"{folder} exists and holds no {what}; choose another folder")
    present = {key: array for key, array in arrays.items() if array is not None}

    def fill(part: Path) -> None:
        for key, array in present.items():
            save_array(part / f"{key}.npy", array)
        (part / marker).write_text(json.dumps(meta | {"arrays": list(present)}, indent=1), "utf-8")

    replace_folder(folder, fill)


def read_folder(
    folder: Path,
    marker: str,
    what: str,
    version: int,
    keys: Mapping[str, tuple[type, ...]],
    *,
    mmap: bool,
    otherwise: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the named keys of the meta, each of one of the types given, and the arrays, of a saved folder.

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
    if not exists(folder):
        raise MissingFileError(f"no {what} folder at {folder}")
    if not exists(folder / marker):
        raise FormatError(f"{folder} is no saved {what}: it has no {marker}")
    try:
        meta = read_json(folder / marker)
    except FormatError as error:
        raise FormatError(f"{error}; it is damaged: save the {what} again") from None
    try:
        if meta["version"] != version:
            raise FormatError(
                f"{folder} (a saved {what}) is of format {meta['version']}; this hopstate reads {version}: make it "
                "again from its source, or use the version of hopstate that wrote it"
            )
        bad = [key for key in meta["arrays"] if type(key) is not str or not key.isidentifier()]
        if bad or not isinstance(meta["arrays"], list):
            raise FormatError(f"{folder / marker} lists arrays that no {what} has: {str(bad or meta['arrays'])[:60]}")
        for path in (folder / f"{key}.npy" for key in meta["arrays"]):
            if not exists(path):
                raise FormatError(f"{path} is missing; save the {what} again")
        arrays = {key: load_npy(folder / f"{key}.npy", mmap=mmap) for key in meta["arrays"]}
        facts = {key: meta[key] for key in keys} | {key: meta.get(key, usual) for key, usual in otherwise.items()}
        wrong = [key for key, kinds in keys.items() if type(facts[key]) not in kinds]
        wrong += [key for key in otherwise if facts[key] is not None and not _are_texts(facts[key])]
        if wrong:
            raise FormatError(
                f"{folder / marker} gives {wrong[0]} as {str(facts[wrong[0]])[:60]!r}; save the {what} again"
            )
        return facts, arrays
    except (KeyError, TypeError) as error:
        raise FormatError(f"{folder / marker} is damaged ({error!r}); save the {what} again") from None


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is str for value in values)
