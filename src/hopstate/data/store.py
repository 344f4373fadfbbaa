"""Records on disk: one folder of .npy arrays and one JSON file, written beside its place and exchanged with it.

Arrays are read back as memory maps, so that a record larger than memory opens at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.preprocessing import FeatureTable, TextColumn
from hopstate.data.validate import check_num_nodes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, FormatError, MissingFileError, StorageError
from hopstate.io.files import recover_folder, replace_folder, save_array
from hopstate.io.opening import exists, open_regular, read_json, reading
from hopstate.io.scratch import let_go
from hopstate.io.tensors import load_npy

if TYPE_CHECKING:
    from io import BufferedReader


VERSION = 1
META = "graph.json"
EVENT_VERSION = 1
EVENT_META = "events.json"
WORK = "work"  # the folder within a store that `hopstate.data.prepare` has not finished
_OWN = {EVENT_META: ("src", "dst", "t"), "graph.json": ("indptr", "indices")}  # what each kind of store surely holds
_ARRAYS = ("src", "dst", "t", "kind", "edge_attr", "labels", "x")
_FACTS: dict[str, tuple[type, ...]] = {"name": (str,), "source": (str,), "class_names": (list, type(None))}
_EVENT_FACTS: dict[str, tuple[type, ...]] = {
    "num_nodes": (int,), "time_unit": (str,), "name": (str,), "source": (str,), "first_id": (int,),
}  # fmt: skip
_DTYPES: dict[str, tuple[str, ...]] = {
    "indptr": ("int64",),
    "indices": ("int64",),
    "y": ("int64", "float32", "float64"),
    "x": ("float32",),
    "edge_attr": ("float32",),
    "edge_weight": ("float32",),
    "node_type": ("int8",),
}
_COLUMNS = {"table": "columns", "edge_table": "edge_columns"}  # where the names of a table's columns stand
_TEXTS = {"table": "texts", "edge_table": "edge_texts"}  # where its columns of texts stand


def save_graph(graph: Graph, folder: str | Path) -> None:
    """Write a graph as a folder; an earlier graph there is replaced only once the new one is whole.

    Raises:
        StorageError: the folder holds something else, or could not be written; what stood there is untouched.
    """
    arrays = {
        key: getattr(graph, key) for key in ("indptr", "indices", "x", "y", "edge_attr", "edge_weight", "node_type")
    }
    arrays |= {f"mask_{name}": mask for name, mask in graph.masks.items()}
    arrays |= id_arrays(graph.node_ids)
    tables = {"table": graph.table, "edge_table": graph.edge_table}
    arrays |= {key: None if table is None else table.values for key, table in tables.items()}
    arrays |= {_TEXTS[key]: None if table is None else codes_of(table) for key, table in tables.items()}
    names = None if graph.class_names is None else list(graph.class_names)
    meta = {"version": VERSION, "name": graph.name, "source": graph.source, "class_names": names}
    named = {name: tables[key] for key, name in _COLUMNS.items()}
    meta |= {name: None if table is None else list(table.columns) for name, table in named.items()}
    meta |= {_TEXTS[key]: None if table is None else lines_of(table) for key, table in tables.items()}
    meta["notes"] = list(graph.notes)
    meta["published"] = ["features"] if graph.published else None
    write_folder(Path(folder), META, "graph", meta, arrays)


def load_fields(folder: str | Path, *, mmap: bool = True) -> dict[str, Any]:
    """Return the fields of the graph of a folder that `save_graph` wrote; with mmap, arrays stay on disk until touched.

    Raises:
        MissingFileError: no such folder.
        FormatError: not a saved graph, of a newer version, or damaged.
    """
    later: dict[str, Any] = {"columns": None, "edge_columns": None, "notes": [], "texts": None, "edge_texts": None}
    later["published"] = None
    fields, arrays = read_folder(Path(folder), META, "graph", VERSION, _FACTS, mmap=mmap, otherwise=later)
    ids, offsets = arrays.pop("node_ids", None), arrays.pop("node_id_offsets", None)
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
        fields["notes"], fields["published"] = tuple(fields["notes"]), bool(fields["published"])
        return {**arrays, **fields, "masks": masks, "node_ids": ids_from(ids, offsets)}


def save_events(stream: EventStream, folder: str | Path) -> None:
    """Write a stream as a folder; an earlier stream there is replaced only once the new one is whole.

    Raises:
        StorageError: the folder holds something else, or could not be written; what stood there is untouched.
    """
    arrays = {key: getattr(stream, key) for key in _ARRAYS}
    arrays |= id_arrays(stream.node_ids)
    table = stream.edge_table
    arrays |= {
        "edge_table": None if table is None else table.values,
        "texts": None if table is None else codes_of(table),
    }
    meta = {"version": EVENT_VERSION} | {key: getattr(stream, key) for key in _EVENT_FACTS}
    meta |= {"columns": None if table is None else list(table.columns), "notes": list(stream.notes)}
    meta["texts"] = None if table is None else lines_of(table)
    meta |= {"class_names": stream.class_names, "dates": [stream.dates] if stream.dates else None}
    meta["two_sets"] = ["u", "i"] if stream.two_sets else None  # the letters before ids
    meta["published"] = ["features"] if stream.published else None
    write_folder(Path(folder), EVENT_META, "event stream", meta, arrays)


def load_events(
    folder: str | Path, *, mmap: bool = True, num_nodes: int | None = None, from_start: bool = True
) -> EventStream:
    """Return the stream of a folder that `save_events` wrote.

    Args:
        folder: where.
        mmap: arrays stay on disk until touched.
        num_nodes: so many nodes are believed, however few events there are.
        from_start: see `EventStream`.

    Raises:
        MissingFileError: no such folder.
        FormatError: not a saved stream, of a newer version, or damaged.
    """
    check_finished(Path(folder))
    later: dict[str, Any] = {"columns": None, "notes": [], "class_names": None, "dates": None, "texts": None}
    later |= {"two_sets": None, "published": None}
    facts, arrays = read_folder(
        Path(folder), EVENT_META, "event stream", EVENT_VERSION, _EVENT_FACTS, mmap=mmap, otherwise=later
    )
    ids, offsets = arrays.pop("node_ids", None), arrays.pop("node_id_offsets", None)
    values, columns = arrays.pop("edge_table", None), facts.pop("columns")
    texts = facts.pop("texts"), arrays.pop("texts", None)
    if not {"src", "dst", "t"} <= arrays.keys() <= set(_ARRAYS):
        raise FormatError(f"{folder} holds other arrays than a saved event stream: {sorted(arrays)}; save it again")
    if arrays.get("x") is None and ids is None:
        check_num_nodes(facts["num_nodes"], len(arrays["src"]), str(folder), num_nodes)
    if facts["first_id"] < 0:
        raise FormatError(f"{folder}: first_id is {facts['first_id']}; save the event stream again")
    if values is None and columns:  # what float32 holds stands there once
        values = arrays.get("edge_attr")
    with reading(folder, "a saved event stream"):
        facts["edge_table"] = None if values is None else table_of(columns, values, *texts)
        facts["notes"], facts["dates"] = tuple(facts["notes"]), "".join(facts["dates"] or ())
        facts |= {"node_ids": ids_from(ids, offsets), "from_start": from_start}
        facts["two_sets"], facts["published"] = bool(facts["two_sets"]), bool(facts["published"])
        stream = EventStream(**arrays, **facts)
    let_go(*arrays.values(), ids)  # what the checks have touched of mapped arrays
    return stream


def is_event_folder(folder: Path) -> bool:
    """Return whether a folder was written by `save_events`."""
    return exists(folder / EVENT_META)


def check_finished(folder: Path) -> None:
    """Raise FormatError where a folder is a store that `hopstate prepare` has not finished, or has a part of one."""
    if any(exists(folder / name) for name in _OWN):
        return
    if exists(folder / WORK / "plan.json"):
        raise FormatError(
            f"{folder} is a store that hopstate prepare has not finished; run the same command again, and it goes on "
            "where it stopped"
        )
    for marker, names in _OWN.items():
        for array in (f"{name}.npy" for name in names if exists(folder / f"{name}.npy")):
            raise FormatError(
                f"{folder} holds {array} as a store does, but no {marker}: it is half-written, half-copied or damaged; "
                "copy it whole, or make it again in another folder (hopstate prepare SOURCE --out STORE)"
            )


def check_store(folder: str | Path) -> None:
    """Check the arrays of a store against the check sums that it was written with.

    Raises:
        FormatError: an array is another than was written, or the folder has no check sums.
    """
    marker = next((name for name in _OWN if exists(Path(folder) / name)), EVENT_META)
    sums = read_json(Path(folder) / marker).get("checksums")
    if not isinstance(sums, dict):
        raise FormatError(f"{folder} has no check sums; hopstate prepare writes them")
    for name, known in sums.items():
        with open_regular(Path(folder) / f"{name}.npy") as file:
            if hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest() != known:
                raise FormatError(f"{folder}: {name}.npy is not what was written; prepare it again in another folder")


def id_arrays(ids: Vocabulary | None) -> dict[str, np.ndarray | None]:
    """Return the arrays in which a folder holds node ids: integers, or the bytes and offsets of texts."""
    if ids is None or not ids.is_text:
        return {"node_ids": None if ids is None else ids.ids, "node_id_offsets": None}
    offsets, data = ids.parts()
    return {"node_ids": data, "node_id_offsets": offsets}


def ids_from(ids: np.ndarray | None, offsets: np.ndarray | None) -> Vocabulary | None:
    """Return the node ids of the arrays that `id_arrays` gave.

    Raises:
        DataError: they are damaged.
    """
    if ids is None:
        return None
    return Vocabulary(ids) if offsets is None else Vocabulary.from_parts(offsets, ids)


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
