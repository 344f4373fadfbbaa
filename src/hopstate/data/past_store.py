"""A past on disk: a folder with one file a layer, and `live.json`, which says which of them count.

Layers are written before `live.json` is replaced, and what it no longer names is removed after: a process that ends in
between leaves the state before or the state after, and files that the next writer clears away.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.events import EventStream
from hopstate.data.layers import Layer, Memories, compacted
from hopstate.data.past import Past
from hopstate.data.past_deletions import resolved
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, HopstateError, MissingFileError, StorageError
from hopstate.io.files import check_writable, write_text
from hopstate.io.opening import read_json
from hopstate.io.tensors import SUM, read_tensors, write_tensors

FORMAT = "hopstate-live-1"
_TRIES = 20
_SUMMED = 16 << 20  # bytes of a layer at most that is compared with its checksum, in some 15 ms
HEAD = "live.json"
EARLIER = "live-{}.json"  # the head of a past that counted before, by its number of events in twelve digits
_OLD = "hopstate-stream-state-1"  # one file with everything, of version 0.1.0
_EVENTS = ("src", "dst", "t", "kind", "edge_attr", "nodes", "ended", "gone")
_MEMORIES = ("nodes", "memory", "output", "last_time")
_OWN = ("layer-*.safetensors", "x-*.safetensors", ".layer-*.part", ".x-*.part", ".tmp*")
_FACTS = ("num_nodes", "time_unit", "settled", "clock", "model", "tag", "last")


def save_past(past: Past, folder: str | Path, *, before: Callable[[], None] = lambda: None) -> Past:
    """Write a past into a folder; of layers that are there already nothing is written again, but for small ones joined.

    Whoever calls holds the folder (`hopstate.io.lock`).

    Args:
        past: what is kept.
        folder: made where there is none; what else lies there is left alone.
        before: called when all is on disk but the past does not count yet.

    Returns:
        The past as it now lies there.

    Raises:
        StorageError: it could not be written; the folder holds what it held, as far as anybody reads it.
    """
    folder = Path(folder)
    check_writable(folder / HEAD)
    needed = past.settled if past.tag else 0  # without a memory, features of all events stay of use
    layers = tuple(_written(layer, folder) for layer in compacted(past.layers, needed))
    kept = _with_x(replace(past, layers=layers), folder)
    clock = None if math.isinf(kept.clock) else kept.clock
    head = {key: getattr(kept, key) for key in _FACTS} | {"format": FORMAT, "clock": clock}
    head["ids"] = None if kept.node_ids is None else kept.node_ids.ids.dtype.kind
    head["x"] = None if kept.x_path is None else kept.x_path.name
    head["layers"] = [
        {"file": x.path.name, "first": x.first, "events": len(x), "bytes": x.path.stat().st_size}
        for x in layers
        if x.path is not None
    ]
    head[SUM] = _sum(head)
    before()
    write_text(folder / HEAD, json.dumps(head))
    _clear(
        folder, {head["x"], *(layer["file"] for layer in head["layers"])}.union(*map(files_of, earlier_heads(folder)))
    )
    return kept


def earlier_heads(folder: Path) -> list[Path]:
    """Return what tells of earlier pasts that are kept beside the one that counts, the newest first."""
    return sorted(folder.glob(EARLIER.format("*")), reverse=True)


def files_of(head: Path) -> set[str]:
    """Return the files that a past consists of, as far as its head can be read."""
    with contextlib.suppress(HopstateError, LookupError, TypeError):
        told = read_json(head)
        return {told["x"], *(layer["file"] for layer in told["layers"])} - {None}
    return set()


def is_whole(path: Path) -> bool:
    """Return whether one of these files is there as it was written: it is read through."""
    with contextlib.suppress(HopstateError, OSError, ValueError):
        _tensors(path, math.inf)
        return True
    return False


def load_past(folder: str | Path, *, model: str | None = None, head: str = HEAD, whole: bool = False) -> Past:
    """Return the past that lies in a folder, or in a file that version 0.1.0 wrote; arrays stay on disk until touched.

    Files of up to 16 MiB are read through, to compare them with their checksums; larger ones are mapped alone, so that
    a call does not cost what the past has grown to.

    Args:
        folder: where.
        model: the fingerprint that it must have, None to take any.
        head: the file that tells of it, another one for an earlier past.
        whole: read files of any size through.

    Raises:
        MissingFileError: there is none.
        CheckpointError: it is damaged, or another model's.
    """
    folder = Path(folder)
    if folder.is_file():
        return _load_old(folder, model)
    if not (folder / head).is_file():
        raise MissingFileError(f"no live state in {folder}; it has no {head}")
    most = math.inf if whole else _SUMMED
    for _ in range(_TRIES):
        before = _stamp(folder / head)
        try:
            return _load(folder / head, model, most)
        except CheckpointError:  # of the state before, files may go while it is read: whoever writes is not waited for
            if _stamp(folder / head) == before:
                raise
    return _load(folder / head, model, most)


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a state is replaced."""
    with contextlib.suppress(OSError):
        facts = path.stat()
        return facts.st_ino, facts.st_mtime_ns
    return 0, 0


def _load(path: Path, model: str | None, most: float) -> Past:
    """Return the past that a head tells of now; its files, once open, stay as they are."""
    folder = path.parent
    try:
        head = read_json(path)
        if head["format"] != FORMAT:
            raise CheckpointError(f"{folder} is a live state of format {head['format']}; this version reads {FORMAT}")
        if head.get(SUM) not in (None, _sum(head)) or head.keys() - {*_FACTS, "format", "ids", "x", "layers", SUM}:
            raise DataError(f"{path.name} is not what was written")
        _check_model(folder, head["model"], model)
        layers = tuple(_read(folder, entry, head["ids"], most) for entry in head["layers"])
        ids = [layer.ids for layer in layers if layer.ids is not None]
        x_path = None if head["x"] is None else folder / head["x"]
        x = None if x_path is None else _tensors(x_path, most)["x"]
        facts = {key: head[key] for key in _FACTS} | {"clock": -math.inf if head["clock"] is None else head["clock"]}
        names = Vocabulary(np.concatenate(ids)) if head["ids"] else None
        past = Past(**facts, layers=layers, x=x, x_path=x_path, node_ids=names)
        _check(past)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, OSError, HopstateError) as error:
        raise CheckpointError(
            f"the live state in {folder} is damaged ({error}); go on from a copy (--state), or from the end of the "
            "run's own data (--fresh)"
        ) from error
    return past


def _sum(head: dict[str, Any]) -> str:
    """Return the checksum of all other facts."""
    facts = {key: value for key, value in head.items() if key != SUM}
    return f"{zlib.crc32(json.dumps(facts, sort_keys=True).encode()):08x}"


def holds_past(folder: str | Path) -> bool:
    """Return whether a past lies in a folder."""
    return (Path(folder) / HEAD).is_file()


def _written(layer: Layer, folder: Path) -> Layer:
    """Return a layer with its file in a folder; one that is there already stays."""
    if layer.path is not None and layer.path.parent == folder:
        return layer
    arrays: dict[str, Any] = {f"events.{key}": getattr(layer, key) for key in _EVENTS}
    for name, index in (("index", layer.index), ("added", layer.added)):
        arrays |= {f"{name}.{key}": value for key, value in (index or {}).items()}
    if layer.memories is not None:
        arrays |= {f"memories.{key}": getattr(layer.memories, key) for key in _MEMORIES}
    arrays["ids"] = _packed(layer.ids)
    path = folder / f"layer-{layer.first}-{layer.last}-{secrets.token_hex(4)}.safetensors"
    tensors = {key: torch.from_numpy(_plain(value)) for key, value in arrays.items() if value is not None}
    write_tensors(path, tensors, {"first": layer.first}, format=FORMAT)
    return replace(layer, path=path)


def _with_x(past: Past, folder: Path) -> Past:
    """Return a past with the features of its nodes in a file of a folder."""
    if past.x is None or (past.x_path is not None and past.x_path.parent == folder):
        return past
    path = folder / f"x-{secrets.token_hex(4)}.safetensors"
    write_tensors(path, {"x": torch.from_numpy(_plain(past.x))}, {}, format=FORMAT)
    return replace(past, x_path=path)


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array that torch takes without a word: contiguous, and writable or a copy."""
    array = np.ascontiguousarray(array)
    return array if array.flags.writeable else array.copy()


def _packed(ids: np.ndarray | None) -> np.ndarray | None:
    if ids is None or ids.dtype.kind == "i":
        return ids
    return np.frombuffer(json.dumps(ids.tolist()).encode(), np.uint8)


def _unpacked(ids: np.ndarray | None, kind: str | None) -> np.ndarray | None:
    if ids is None or kind is None:
        return None
    return ids if kind == "i" else np.array(json.loads(ids.tobytes()), str)


def _read(folder: Path, entry: dict[str, Any], ids: str | None, most: float) -> Layer:
    path = folder / entry["file"]
    if path.parent != folder or path.stat().st_size != entry["bytes"]:
        raise CheckpointError(f"{path} is not of the length that {HEAD} tells")
    arrays = _tensors(path, most)
    events = {key: arrays.get(f"events.{key}") for key in _EVENTS}

    def under(name: str) -> dict[str, np.ndarray]:
        return {key.removeprefix(name): value for key, value in arrays.items() if key.startswith(name)}

    found = under("memories.")
    layer = Layer(
        first=entry["first"],
        **events,  # type: ignore[arg-type]
        index=under("index."),
        added=under("added.") or None,
        memories=Memories(**found) if found else None,
        ids=_unpacked(arrays.get("ids"), ids),
        path=path,
    )
    if len(layer) != entry["events"]:
        raise CheckpointError(f"{path} holds {len(layer)} events, {HEAD} tells of {entry['events']}")
    return layer


def _tensors(path: Path, most: float) -> dict[str, np.ndarray]:
    tensors, _ = read_tensors(path, format=FORMAT, what="part of a live state", summed=most)
    return {key: tensor.numpy() for key, tensor in tensors.items()}


_KINDS = {"src": "i8", "dst": "i8", "t": "i8f8", "kind": "i1", "edge_attr": "f4", "nodes": "i8"}
_KINDS |= {"ended": "i8", "gone": "i8"}
_OF_INDEX = {"codes": "i4i8", "events": "i4i8", "times": "i8f8", "start": "i8", "length": "i8"}


def _check_kinds(layer: Layer) -> None:
    """Raise DataError where arrays of a layer are missing, or of another kind than was written."""
    arrays = {key: getattr(layer, key) for key in _EVENTS}
    for name, index in (("index", layer.index), ("added", layer.added)):
        arrays |= {} if index is None else {f"{name}.{key}": index.get(key) for key in _OF_INDEX}
    kinds = _KINDS | {f"{name}.{key}": kind for name in ("index", "added") for key, kind in _OF_INDEX.items()}
    for key, array in arrays.items():
        if array is None and key in ("kind", "edge_attr", "ended", "gone"):
            continue
        axes = 1 + (key in ("edge_attr", "ended", "gone"))
        if array is None or array.dtype.str[1:] not in kinds[key] or array.ndim != axes:
            raise DataError(f"its layer from event {layer.first} has no {key}, or another kind of it")
        if key in ("src", "dst", "t", "kind") and len(array) != len(layer.src):
            raise DataError(f"its layer from event {layer.first} has {len(array)} {key} of {len(layer.src)} events")
    seen = layer.memories
    if seen is not None:
        rows = {len(seen.nodes), len(seen.memory), len(seen.output), len(seen.last_time)}
        found = [seen.nodes.dtype.str[1:], seen.last_time.dtype.str[1:], seen.output.dtype, seen.memory.dtype.kind]
        if found != ["i8", "f8", seen.memory.dtype, "f"]:
            raise DataError(f"the memories of its layer from event {layer.first} are of another kind")
        if len(rows) > 1 or seen.memory.ndim != 3 or seen.output.shape != seen.memory[:, 0].shape:
            raise DataError(f"the memories of its layer from event {layer.first} disagree")


def _check(past: Past) -> None:
    kinds = {"num_nodes": int, "settled": int, "model": str, "tag": str, "last": str}
    wrong = [key for key, kind in kinds.items() if type(getattr(past, key)) is not kind]
    if wrong or not isinstance(past.time_unit, (str, type(None))) or not isinstance(past.clock, (int, float)):
        raise DataError(f"{HEAD} gives {wrong[0] if wrong else 'clock or unit'} as another kind")
    if not 0 <= past.num_nodes < 1 << 31:  # as many as the run's own data were said to have
        raise DataError(f"{HEAD} gives {past.num_nodes} nodes")
    after = 0
    for layer in past.layers:
        _check_kinds(layer)
        if layer.first != after:
            raise DataError(f"event {after} is followed by event {layer.first}")
        after = layer.last
        node_arrays = [layer.nodes, *([] if layer.memories is None else [layer.memories.nodes])]
        if any(len(nodes) and not 0 <= nodes[0] <= nodes[-1] < past.num_nodes for nodes in node_arrays):
            raise DataError(f"its layer from event {layer.first} has nodes beyond the {past.num_nodes} there are")
        for index in (layer.index, layer.index if layer.added is None else layer.added):
            sizes = {len(index[key]) for key in ("codes", "events", "times")}
            if len(sizes) != 1 or {len(index[key]) for key in ("start", "length")} != {len(layer.nodes) + 1}:
                raise DataError(f"the index of its layer from event {layer.first} is cut short")
        if layer.kind is not None and any(
            layer.added is None or told is None or told.ndim != 2 or len(told) != 2
            for told in (layer.ended, layer.gone)
        ):
            raise DataError(f"its layer from event {layer.first} does not tell which edges are gone")
    known = past.num_nodes if past.node_ids is None else len(past.node_ids)
    if not 0 <= past.settled <= after or known != past.num_nodes:
        raise DataError(f"{past.settled} of {after} events, {known} of {past.num_nodes} nodes")


def _check_model(where: Path, found: str, wanted: str | None) -> None:
    if wanted is not None and found != wanted:
        raise CheckpointError(f"{where} is the state of another model (other weights); start from this run's own")


def _clear(folder: Path, named: set[str]) -> None:
    """Remove files that nothing names: joined layers, and what a writer left that was killed."""
    for pattern in _OWN:
        for path in folder.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Check that a past may be written into a folder.

    Raises:
        StorageError: it is a file, or holds other things.
    """
    if folder.is_file():
        raise StorageError(f"{folder} is a file; a live state is kept in a folder, choose another name")
    if folder.is_dir() and not holds_past(folder):
        foreign = [p.name for p in folder.iterdir() if not p.name.startswith((".", "layer-", "x-"))]
        if foreign:
            raise StorageError(f"{folder} holds other things ({foreign[0]}); choose another folder for the live state")


# ---- version 0.1.0 ------------------------------------------------------------------------------------------
def _load_old(path: Path, model: str | None) -> Past:
    """Return the past in a state file of version 0.1.0: all its events have moved the memory."""
    arrays, record = read_tensors(path, format=_OLD, what="stream state")
    _check_model(path, record["model"], model)
    found = {key: tensor.numpy() for key, tensor in arrays.items()}
    try:
        ids = found.pop("events.ids", None)
        names = None if ids is None else Vocabulary(np.array(json.loads(ids.tobytes())))
        columns: dict[str, Any] = {
            key.removeprefix("events."): value for key, value in found.items() if key.startswith("events.")
        }
        unit = record.get("time_unit")
        facts = {"num_nodes": record["num_nodes"], "node_ids": names, "time_unit": unit or ""}
        events = EventStream(**columns, **facts, name="earlier events")
        memories = Memories(
            nodes=np.arange(events.num_nodes),
            memory=found["memory"].transpose(1, 0, 2),
            output=found["output"],
            last_time=found["last_time"],
        )
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the events in {path} are damaged ({error}); use an earlier copy") from error
    told, ended = resolved((), events)
    layer = Layer.of(told, memories=memories, ids=None if names is None else names.ids, ended=ended)
    rest = {"clock": record["clock"], "tag": record["tag"], "model": record["model"], "time_unit": unit}
    return Past(layers=(layer,) if len(layer) else (), settled=len(events), **facts | rest)
