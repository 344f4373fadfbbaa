"""A stream state on disk: a folder with files of events and of memories, and `live.json`, which names those that count.

Files are written before `live.json` is replaced, and what it no longer names is removed after: a process that ends in
between leaves the state before or the state after, and files that the next writer removes. Look-ups are not stored;
they are built again from the events.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.events import DELETE, edge_ends
from hopstate.data.neighbor_store import Column
from hopstate.data.stream_state import EventColumns, EventFeatures, EventFile, Memories, StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, HopstateError, MissingFileError, StorageError
from hopstate.io.files import check_writable, write_text
from hopstate.io.opening import read_json
from hopstate.io.tensors import read_tensors, write_tensors

FORMAT = "hopstate-live-3"
LARGEST = 1 << 18  # events of a file that is not joined with others any more, which bounds what one save has to write
HEAD = "live.json"
EARLIER = "live-{}.json"  # the head of an earlier state, by its number of events in twelve digits
_TRIES = 2
_MEMORIES = ("nodes", "memory", "output", "last_time")
_EARLIER = re.compile(r"live-\d{12,}\.json")
_FILE = r"(events-\d+-\d+-[0-9a-f]{8}|memory-[0-9a-f]{16}|x-[0-9a-f]{8})\.safetensors"
# files of a state; the same while they are written, by this library and by safetensors
_STATE_FILE = re.compile(rf"{_FILE}|\.{_FILE}\.[0-9a-f]{{8}}-\d+\.[0-9a-f]{{12}}\.part|\.tmp[A-Za-z0-9]{{6}}")
_FACTS = ("num_events", "num_nodes", "time_unit", "settled", "clock", "model", "tag", "last")
_NAMES = ("relation_names", "node_type_names")


def save_stream_state(
    state: StreamState, folder: str | Path, *, before: Callable[[], None] = lambda: None
) -> StreamState:
    """Write a state into a folder; of what is there already nothing is written again, but for small files joined.

    The caller has locked the folder.

    Args:
        state: the state.
        folder: created if it is missing; what else is in it stays.
        before: called when all is on disk but the state does not count yet.

    Returns:
        The state with its files.

    Raises:
        StorageError: it could not be written; the folder holds the state before.
    """
    folder = Path(folder)
    check_writable(folder / HEAD)
    parts = tuple(_with_memory_file(part, folder) for part in state.memory_parts)
    kept = replace(state, files=_event_files(state, folder), memory_parts=parts, x_path=_x_file(state, folder))
    head = {key: getattr(kept, key) for key in (*_FACTS, *_NAMES)} | {"format": FORMAT}
    head["clock"] = None if math.isinf(kept.clock) else kept.clock
    head["ids"] = None if kept.node_ids is None else "U" if kept.node_ids.is_text else "i"
    head["x"] = None if kept.x_path is None else kept.x_path.name
    head["events"] = [
        {"file": file.path.name, "first": file.first, "last": file.last, "bytes": file.path.stat().st_size}
        for file in kept.files
    ]
    head["memories"] = [{"file": p.path.name, "bytes": p.path.stat().st_size} for p in parts if p.path is not None]
    before()
    write_text(folder / HEAD, json.dumps(with_checksum(head)))
    _clear(folder, _named(head).union(*map(files_of, earlier_heads(folder))))
    return kept


def with_checksum(head: dict[str, Any]) -> dict[str, Any]:
    """Return a head with the CRC-32 of what it holds."""
    facts = {key: value for key, value in head.items() if key != "crc32"}
    return facts | {"crc32": zlib.crc32(json.dumps(facts, sort_keys=True).encode())}


def _event_files(state: StreamState, folder: Path) -> tuple[EventFile, ...]:
    """Return files with all events of a state; the last are joined with new events that are as many."""
    files = list(state.files) if all(file.path.parent == folder for file in state.files) else []
    if (files and files[-1].last == len(state)) or not len(state):
        return tuple(files)
    first = files[-1].last if files else 0
    while files and files[-1].last - files[-1].first <= min(len(state) - first, LARGEST - (len(state) - first)):
        first = files.pop().first
    arrays: dict[str, Any] = {name: getattr(state, name)[first:] for name in ("src", "dst", "t")}
    if state.kind is not None:
        arrays["kind"] = state.kind[first:]
    if state.relation is not None:
        arrays["relation"] = state.relation[first:]
    if state.edge_attr is not None:
        arrays["edge_attr"] = state.edge_attr[np.arange(max(first, state.needed, state.edge_attr.first), len(state))]
    fresh = np.arange(files[-1].num_nodes if files else 0, state.num_nodes)
    if state.node_ids is not None:
        arrays["ids"] = _packed(state.node_ids.names(fresh))
    if state.node_type is not None:
        arrays["node_type"] = state.node_type[fresh]
    path = folder / f"events-{first}-{len(state)}-{secrets.token_hex(4)}.safetensors"
    _write(path, arrays)
    return (*files, EventFile(path, first, len(state), state.num_nodes))


def _with_memory_file(part: Memories, folder: Path) -> Memories:
    if part.path is not None and part.path.parent == folder:
        return part
    path = folder / f"memory-{secrets.token_hex(8)}.safetensors"
    _write(path, {key: getattr(part, key) for key in _MEMORIES})
    return replace(part, path=path)


def _x_file(state: StreamState, folder: Path) -> Path | None:
    if state.x is None or (state.x_path is not None and state.x_path.parent == folder):
        return state.x_path
    path = folder / f"x-{secrets.token_hex(4)}.safetensors"
    _write(path, {"x": state.x})
    return path


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    writable = {name: array if array.flags.writeable else array.copy() for name, array in contiguous.items()}
    write_tensors(path, {name: torch.from_numpy(array) for name, array in writable.items()}, {}, format=FORMAT)


def _packed(ids: np.ndarray) -> np.ndarray:
    return ids if ids.dtype.kind == "i" else np.frombuffer(json.dumps(ids.tolist()).encode(), np.uint8)


def _unpacked(ids: np.ndarray, kind: str) -> np.ndarray:
    return ids if kind == "i" else np.array(json.loads(ids.tobytes()), object)


# ---- heads ---------------------------------------------------------------------------------------------------
def earlier_heads(folder: Path) -> list[Path]:
    """Return the heads of earlier states that are kept next to the one that counts, the newest first."""
    return sorted((path for path in folder.glob("live-*") if _EARLIER.fullmatch(path.name)), reverse=True)


def files_of(head: Path) -> set[str]:
    """Return the files of a state, as far as its head can be read."""
    with contextlib.suppress(HopstateError, LookupError, TypeError):
        return _named(read_json(head))
    return set()


def _named(head: dict[str, Any]) -> set[str]:
    return {head["x"], *(entry["file"] for entry in (*head["events"], *head["memories"]))} - {None}


def num_events_of(head: Path) -> int:
    return int(read_json(head)["num_events"])


def holds_stream_state(folder: str | Path) -> bool:
    return (Path(folder) / HEAD).is_file()


# ---- reading -------------------------------------------------------------------------------------------------
def load_stream_state(folder: str | Path, *, model: str | None = None, head: str = HEAD) -> StreamState:
    """Return the state in a folder.

    Args:
        folder: where.
        model: the fingerprint that it must have, None to take any.
        head: the file that describes it, another one for an earlier state.

    Raises:
        MissingFileError: there is none.
        CheckpointError: it is damaged, or another model's.
    """
    folder = Path(folder)
    if not (folder / head).is_file():
        raise MissingFileError(f"no live state in {folder}; it has no {head}")
    for _ in range(_TRIES):
        with contextlib.suppress(CheckpointError):  # its files may be replaced while it is read
            return _load(folder / head, model)
    return _load(folder / head, model)


def _load(path: Path, model: str | None) -> StreamState:
    """Return the state of a head; its files, once open, stay as they are."""
    folder = path.parent
    try:
        head = read_json(path)
        if head["format"] != FORMAT:
            raise CheckpointError(f"{folder} is a live state of format {head['format']}; this version reads {FORMAT}")
        if head != with_checksum(head):
            raise DataError(f"{path.name} is not as it was written")
        if model is not None and head["model"] != model:
            raise CheckpointError(
                f"{folder} is the state of another model (other weights); start from this run's own state"
            )
        return _state(folder, head)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, OSError, HopstateError) as error:
        raise CheckpointError(
            f"the live state in {folder} is damaged ({error}). Start from a copy (--state), or from the end of the "
            "run's data (--ignore-state)"
        ) from error


def _state(folder: Path, head: dict[str, Any]) -> StreamState:
    facts: dict[str, Any] = {key: head[key] for key in _FACTS}
    facts |= {key: tuple(map(str, head[key])) for key in _NAMES}
    facts["clock"] = -math.inf if head["clock"] is None else head["clock"]
    _check_facts(facts)
    files, parts, last_event = [], [], 0
    for entry in head["events"]:
        path, first, last = _file(folder, entry), entry["first"], entry["last"]
        arrays = _tensors(path)
        _check_events(arrays, path, last - first)
        if first != last_event:
            raise DataError(f"event {last_event} is followed by event {first}")
        files.append(EventFile(path, first, last, 0))
        parts.append(arrays)
        last_event = last
    if last_event != facts["num_events"]:
        raise DataError(f"{last_event} of {facts['num_events']} events")
    names = node_type = None
    ids = [_unpacked(arrays["ids"], head["ids"]) for arrays in parts] if head["ids"] is not None else []
    types = [arrays["node_type"] for arrays in parts] if facts["node_type_names"] else []
    if ids or types:
        names = Vocabulary(np.concatenate(ids)) if ids else None
        node_type = np.concatenate(types) if types else None
        counts = np.cumsum([len(values) for values in ids or types]).tolist()
        files = [file._replace(num_nodes=count) for file, count in zip(files, counts, strict=True)]
    if names is not None and len(names) != facts["num_nodes"]:
        raise DataError(f"{len(names)} ids of {facts['num_nodes']} nodes")
    if node_type is not None and (
        len(node_type) != facts["num_nodes"] or not _in_range(node_type, -1, len(facts["node_type_names"]))
    ):
        raise DataError(f"types of {len(node_type)} of {facts['num_nodes']} nodes, or of other names")
    log = _log(parts, facts["num_nodes"], len(facts["relation_names"]))
    x_path = None if head["x"] is None else folder / head["x"]
    return StreamState(
        **facts,
        log=log,
        edge_attr=_features(parts, len(log)),
        memory_parts=tuple(_memories(_file(folder, entry), facts["num_nodes"]) for entry in head["memories"]),
        node_ids=names,
        node_type=node_type,
        x=None if x_path is None else _tensors(x_path)["x"],
        x_path=x_path,
        files=tuple(files),
    )


def _check_facts(facts: dict[str, Any]) -> None:
    kinds: dict[str, Any] = {"num_events": int, "num_nodes": int, "settled": int, "model": str, "tag": str, "last": str}
    kinds |= {"time_unit": str | None, "clock": int | float}
    for key, kind in kinds.items():
        if not isinstance(facts[key], kind):
            raise DataError(f"{HEAD} gives {key} as {facts[key]!r}")
    if not 0 <= facts["num_nodes"] < 1 << 31:
        raise DataError(f"{HEAD} gives {facts['num_nodes']} nodes")
    if not 0 <= facts["settled"] <= facts["num_events"]:
        raise DataError(f"{facts['settled']} of {facts['num_events']} events have updated the memory")


def _file(folder: Path, entry: dict[str, Any]) -> Path:
    path = folder / entry["file"]
    if path.parent != folder or path.stat().st_size != entry["bytes"]:
        raise DataError(f"{path} is not of the length that {HEAD} gives")
    return path


def _tensors(path: Path) -> dict[str, np.ndarray]:
    tensors, _ = read_tensors(path, format=FORMAT, what="part of a live state")
    return {key: tensor.numpy() for key, tensor in tensors.items()}


_KINDS = {"src": "i8", "dst": "i8", "t": "i8f8", "kind": "i1", "edge_attr": "f4", "ids": "i8u1"}
_KINDS |= {"relation": "i4", "node_type": "i2"}
_OF_NODES = ("ids", "node_type")


def _check_events(arrays: dict[str, np.ndarray], path: Path, count: int) -> None:
    for name in {"src", "dst", "t"} | arrays.keys():
        array = arrays.get(name)
        axes = 2 if name == "edge_attr" else 1
        if array is None or array.dtype.str[1:] not in _KINDS.get(name, "") or array.ndim != axes:
            raise DataError(f"{path.name} has no {name}, or another kind of it")
        short = len(array) <= count if name == "edge_attr" else len(array) == count  # old features may be dropped
        if name not in _OF_NODES and not short:
            raise DataError(f"{path.name} has {len(array)} {name} of {count} events")


def _in_range(numbers: np.ndarray, least: int, limit: int) -> bool:
    return not len(numbers) or bool(least <= numbers.min() <= numbers.max() < limit)


def _log(parts: list[dict[str, np.ndarray]], num_nodes: int, num_relations: int) -> EventColumns:
    log = EventColumns()
    if not parts:
        return log
    src, dst, t = (np.concatenate([arrays[name] for arrays in parts]) for name in ("src", "dst", "t"))
    if not _in_range(src, 0, num_nodes) or not _in_range(dst, 0, num_nodes):
        raise DataError(f"an event names a node beyond the {num_nodes} there are")
    relation = np.concatenate([arrays["relation"] for arrays in parts]) if num_relations else None
    if relation is not None and not _in_range(relation, 0, num_relations):
        raise DataError(f"an event has a relation beyond the {num_relations} there are")
    if not np.isfinite(t).all() or (t[1:] < t[:-1]).any():
        raise DataError("times of events decrease, or are not numbers")
    kind = ended = None
    if any("kind" in arrays for arrays in parts):
        kind = np.concatenate([arrays.get("kind", np.zeros(len(arrays["src"]), np.int8)) for arrays in parts])
        if ((kind < 0) | (kind > DELETE)).any():
            raise DataError("an event has an unknown kind")
        ends = edge_ends(src, dst, kind, num_nodes, relation)
        ids = np.flatnonzero((ends >= 0) & (ends < len(src)))
        ended = np.stack([ids, ends[ids]])
    log.append(src, dst, t, kind, ended, relation)
    return log


def _features(parts: list[dict[str, np.ndarray]], num_events: int) -> EventFeatures | None:
    """Return features of the last events that have them all: earlier files may have dropped those of some events."""
    kept: list[np.ndarray] = []
    for arrays in reversed(parts):
        if "edge_attr" not in arrays:
            break
        kept.insert(0, arrays["edge_attr"])
        if len(arrays["edge_attr"]) < len(arrays["src"]):
            break
    if not kept:
        return None
    rows = np.concatenate(kept)
    return EventFeatures(Column(rows), num_events - len(rows))


def _memories(path: Path, num_nodes: int) -> Memories:
    arrays = _tensors(path)
    found = Memories(**{name: arrays[name] for name in _MEMORIES}, path=path)
    nodes, memory, output, last_time = (getattr(found, name) for name in _MEMORIES)
    kinds = [nodes.dtype.str[1:], last_time.dtype.str[1:], output.dtype, memory.dtype.kind]
    if kinds != ["i8", "f8", memory.dtype, "f"] or {len(nodes)} != {len(memory), len(output), len(last_time)}:
        raise DataError(f"the memories in {path.name} are of another kind")
    if memory.ndim != 3 or output.shape != memory[:, 0].shape or nodes.ndim != 1 or last_time.ndim != 1:
        raise DataError(f"the memories in {path.name} disagree")
    if len(nodes) and not (nodes[0] >= 0 and nodes[-1] < num_nodes and (nodes[1:] > nodes[:-1]).all()):
        raise DataError(f"the nodes of the memories in {path.name} are not rising rows under {num_nodes}")
    return found


# ---- folders -------------------------------------------------------------------------------------------------
def _clear(folder: Path, named: set[str]) -> None:
    """Remove files that nothing names: joined ones, and what a writer left that was killed."""
    for path in folder.iterdir():
        if _STATE_FILE.fullmatch(path.name) and path.name not in named and path.is_file():
            path.unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Check that a state may be written into a folder.

    Raises:
        StorageError: it is a file, or holds other things.
    """
    if folder.is_file():
        raise StorageError(f"{folder} is a file; a live state is kept in a folder, choose another name")
    if folder.is_dir() and not holds_stream_state(folder):
        own = (".", "events-", "memory-", "x-")
        foreign = [path.name for path in folder.iterdir() if not path.name.startswith(own)]
        if foreign:
            raise StorageError(f"{folder} holds other things ({foreign[0]}); choose another folder for the live state")
