"""An event stream on disk: one folder of .npy arrays and an events.json; read back as memory maps."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hopstate.data.events import EventStream
from hopstate.data.store import codes_of, id_arrays, ids_from, lines_of, read_folder, table_of, write_folder
from hopstate.data.validate import check_num_nodes
from hopstate.errors import FormatError
from hopstate.io.opening import exists, open_regular, read_json, reading
from hopstate.io.scratch import let_go

if TYPE_CHECKING:
    from io import BufferedReader

VERSION = 1
META = "events.json"
WORK = "work"  # the folder within a store that `hopstate.data.prepare` has not finished
_OWN = {META: ("src", "dst", "t"), "graph.json": ("indptr", "indices")}  # what each kind of store surely holds
_ARRAYS = ("src", "dst", "t", "kind", "edge_attr", "labels", "x")
_FACTS: dict[str, tuple[type, ...]] = {
    "num_nodes": (int,), "time_unit": (str,), "name": (str,), "source": (str,), "first_id": (int,),
}  # fmt: skip


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
    meta = {"version": VERSION} | {key: getattr(stream, key) for key in _FACTS}
    meta |= {"columns": None if table is None else list(table.columns), "notes": list(stream.notes)}
    meta["texts"] = None if table is None else lines_of(table)
    meta |= {"class_names": stream.class_names, "dates": [stream.dates] if stream.dates else None}
    meta["two_sets"] = ["u", "i"] if stream.two_sets else None  # the letters before ids
    meta["published"] = ["features"] if stream.published else None
    write_folder(Path(folder), META, "event stream", meta, arrays)


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
    facts, arrays = read_folder(Path(folder), META, "event stream", VERSION, _FACTS, mmap=mmap, otherwise=later)
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
    return exists(folder / META)


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
    marker = next((name for name in _OWN if exists(Path(folder) / name)), META)
    sums = read_json(Path(folder) / marker).get("checksums")
    if not isinstance(sums, dict):
        raise FormatError(f"{folder} has no check sums; hopstate prepare writes them")
    for name, known in sums.items():
        with open_regular(Path(folder) / f"{name}.npy") as file:
            if hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest() != known:
                raise FormatError(f"{folder}: {name}.npy is not what was written; prepare it again in another folder")
