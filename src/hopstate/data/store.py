"""Graphs and event streams on disk: a folder of .npy arrays, and one JSON file that makes it valid.

Arrays are read as memory maps, so that data larger than memory opens immediately.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.preprocessing import FeatureTable, TextColumn
from hopstate.data.validate import SPLITS, check_num_nodes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, MissingFileError, StorageError
from hopstate.io.files import recover_folder, replace_folder, save_array
from hopstate.io.opening import exists, read_json, reading
from hopstate.io.scratch import release_pages
from hopstate.io.tensors import load_npy

VERSION = 2
GRAPH_FILE, EVENTS_FILE = "graph.json", "events.json"
WORK = "work"  # the folder within a store that `hopstate.data.prepare` has not finished
_WHAT = {GRAPH_FILE: "graph", EVENTS_FILE: "event stream"}
_REQUIRED = {EVENTS_FILE: ("src", "dst", "t"), GRAPH_FILE: ("indptr", "indices")}
_ARRAYS = {
    GRAPH_FILE: ("indptr", "indices", "x", "y", "edge_attr", "edge_weight", "relation", "node_type"),
    EVENTS_FILE: ("src", "dst", "t", "kind", "edge_attr", "labels", "relation", "x", "node_type"),
}
_TABLES = {"table": "x", "edge_table": "edge_attr"}  # field of a table, and of the array with its values as float32
_COMMON: dict[str, type] = {"name": str, "source": str, "class_names": list, "notes": list, "published": bool}
_COMMON |= {"relation_names": list, "node_type_names": list}
_FACTS: dict[str, dict[str, type]] = {
    GRAPH_FILE: _COMMON,
    EVENTS_FILE: _COMMON | {"num_nodes": int, "time_unit": str, "first_id": int, "dates": str, "two_sets": bool},
}
_MASKS = tuple(f"mask_{name}" for name in SPLITS)


# ---- writing ---------------------------------------------------------------------------------------------------
def save_record(record: Graph | EventStream, folder: str | PathLike[str]) -> None:
    """Write a graph or a stream as a folder; an earlier one there is replaced only once the new one is whole."""
    folder, marker = Path(folder), EVENTS_FILE if isinstance(record, EventStream) else GRAPH_FILE
    if marker == EVENTS_FILE and folder.suffix:
        raise FormatError(f"events are saved as a folder: got {folder.name!r}. Leave out the extension")
    arrays = {f"mask_{name}": mask for name, mask in getattr(record, "masks", {}).items()}
    if folder.exists() and not (folder / marker).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(f"{folder} exists and holds no {_WHAT[marker]}; choose another folder")
    arrays |= {name: getattr(record, name) for name in _ARRAYS[marker]} | id_arrays(record.node_ids)
    tables = {name: getattr(record, name, None) for name in _TABLES}
    for name, table in tables.items():
        arrays |= {} if table is None else table_arrays(name, table)
    arrays = {name: array for name, array in arrays.items() if array is not None}
    meta = {"version": VERSION} | {name: getattr(record, name) for name in _FACTS[marker]}
    meta["tables"] = {name: table_facts(table) for name, table in tables.items() if table is not None}
    meta["arrays"] = list(arrays)

    def fill(part: Path) -> None:
        for name, array in arrays.items():
            save_array(part / f"{name}.npy", array)
        (part / marker).write_text(json.dumps(meta, indent=1), "utf-8")

    replace_folder(folder, fill)


def id_arrays(ids: Vocabulary | None) -> dict[str, np.ndarray | None]:
    """Return the arrays in which a folder holds node ids: integers, or the bytes and offsets of texts."""
    if ids is None or not ids.is_text:
        return {"node_ids": None if ids is None else ids.ids}
    offsets, data = ids.parts()
    return {"node_ids": data, "node_id_offsets": offsets}


def table_arrays(name: str, table: FeatureTable) -> dict[str, np.ndarray | None]:
    """Return the arrays of a table: its values unless they are the float32 features, and codes (N, T) of texts."""
    own = None if table.plain() is table.values else table.values
    codes = np.stack([text.codes for text in table.texts], 1) if table.texts else None
    return {name: own, f"{name}_texts": codes}


def table_facts(table: FeatureTable) -> dict[str, Any]:
    return {"columns": list(table.columns), "texts": [text.as_json() for text in table.texts]}


# ---- reading ---------------------------------------------------------------------------------------------------
def load_graph(folder: str | Path, *, mmap: bool = True) -> Graph:
    """Return the graph of a folder that `Graph.save` wrote; with mmap, arrays stay on disk until touched."""
    fields, arrays = _load(Path(folder), GRAPH_FILE, mmap=mmap)
    fields["masks"] = {name: arrays.pop(f"mask_{name}") for name in SPLITS if f"mask_{name}" in arrays}
    with reading(folder, "a saved graph"):
        return Graph(**arrays, **fields)


def load_events(
    folder: str | Path, *, mmap: bool = True, num_nodes: int | None = None, from_start: bool = True
) -> EventStream:
    """Return the stream of a folder that `EventStream.save` wrote."""
    fields, arrays = _load(Path(folder), EVENTS_FILE, mmap=mmap)
    if "x" not in arrays and fields["node_ids"] is None:
        check_num_nodes(fields["num_nodes"], len(arrays["src"]), str(folder), num_nodes)
    if fields["first_id"] < 0:
        raise FormatError(f"{folder}: first_id is {fields['first_id']}; save the event stream again")
    with reading(folder, "a saved event stream"):
        stream = EventStream(**arrays, **fields, from_start=from_start)
    release_pages(*arrays.values())  # what the checks have touched of mapped arrays
    return stream


def _load(folder: Path, marker: str, *, mmap: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return fields of a record, and those that are arrays, mask_NAME for masks."""
    check_finished(folder)
    meta = read_meta(folder, marker)
    again = f"save the {_WHAT[marker]} again"
    known = {*_ARRAYS[marker], *_TABLES, *(f"{name}_texts" for name in _TABLES), "node_ids", "node_id_offsets", *_MASKS}
    names = meta.get("arrays")
    if not isinstance(names, list) or not set(_REQUIRED[marker]) <= set(map(str, names)) <= known:
        raise FormatError(f"{folder / marker} lists other arrays than a saved {_WHAT[marker]}: {names}; {again}")
    for name in names:
        if not exists(folder / f"{name}.npy"):
            raise FormatError(f"{folder / f'{name}.npy'} is missing; {again}")
    arrays: dict[str, Any] = {name: load_npy(folder / f"{name}.npy", mmap=mmap) for name in names}
    fields: dict[str, Any] = {"node_ids": None}
    for name, kind in _FACTS[marker].items():
        value = fields[name] = meta.get(name)
        if name == "class_names" and value is None:
            continue
        if type(value) is not kind or (isinstance(value, list) and not all(type(one) is str for one in value)):
            raise FormatError(f"{folder / marker} gives {name} as {str(value)[:60]!r}; {again}")
    with reading(folder, f"a saved {_WHAT[marker]}"):
        ids, offsets = arrays.pop("node_ids", None), arrays.pop("node_id_offsets", None)
        if ids is not None:
            fields["node_ids"] = Vocabulary(ids) if offsets is None else Vocabulary.from_parts(offsets, ids)
        for name, facts in meta.get("tables", {}).items():
            values = arrays.pop(name, arrays.get(_TABLES[name]))
            fields[name] = _table_of(facts, values, arrays.pop(f"{name}_texts", None))
    return fields, arrays


def _table_of(facts: dict[str, Any], values: Any, codes: np.ndarray | None) -> FeatureTable:
    codes = np.empty((len(values), 0), np.int32) if codes is None else codes
    if codes.ndim != 2 or codes.shape[1] != len(facts["texts"]):
        raise DataError(f"{len(facts['texts'])} columns of texts have codes of shape {codes.shape}")
    texts = tuple(TextColumn.from_json(text, codes[:, at]) for at, text in enumerate(facts["texts"]))
    return FeatureTable(tuple(map(str, facts["columns"])), values, texts)


def read_meta(folder: Path, marker: str) -> dict[str, Any]:
    """Return what the JSON file of a store says; raise an error if there is none, or one of another version."""
    recover_folder(folder)
    if not exists(folder):
        raise MissingFileError(f"no {_WHAT[marker]} folder at {folder}")
    if not exists(folder / marker):
        raise FormatError(f"{folder} is not a saved {_WHAT[marker]}: it has no {marker}")
    try:
        meta = read_json(folder / marker)
    except FormatError as error:
        raise FormatError(f"{error}; it is damaged: save the {_WHAT[marker]} again") from None
    if meta.get("version") != VERSION:
        raise FormatError(
            f"{folder} (a saved {_WHAT[marker]}) is of format {meta.get('version')}; this hopstate reads {VERSION}: "
            "make it again from its source"
        )
    return meta  # type: ignore[no-any-return]


def is_event_folder(folder: Path) -> bool:
    return exists(folder / EVENTS_FILE)


def check_finished(folder: Path) -> None:
    """Raise FormatError if a folder is a store that `hopstate prepare` has not finished, or has a part of one."""
    if any(exists(folder / name) for name in _REQUIRED):
        return
    if exists(folder / WORK / "plan.json"):
        raise FormatError(
            f"{folder} is an unfinished store of hopstate prepare. Run the same command again to continue"
        )
    for marker, names in _REQUIRED.items():
        for array in (f"{name}.npy" for name in names if exists(folder / f"{name}.npy")):
            raise FormatError(
                f"{folder} holds {array} as a store does, but no {marker}: it is half-written, half-copied or damaged; "
                "copy it whole, or make it again in another folder (hopstate prepare SOURCE --out STORE)"
            )
