"""Data that a run was given in memory: made records, and kept so that the run can be applied without them.

They lie in the folder data of the run: tables as Parquet files and arrays as .npy, which are read as they were then,
graphs and event streams as folders. What is larger than `MOST` is kept only where that is asked for; a `Run` of this
process holds what is not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.readers.tables import as_frame, is_array, is_frame, plain_array, write_frame
from hopstate.data.store import load_events, save_events
from hopstate.errors import CheckpointError, ConfigError, DataError
from hopstate.io.files import make_folder, save_array
from hopstate.io.opening import exists
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from hopstate.methods.method import Record

FOLDER, FACTS, RECORD = "data", "data/kept.json", "record"
MOST = 1 << 30  # bytes in memory of what is kept without being asked for
HELD, KEPT = "held:", "kept:"  # in front of the name of data that a process holds, or that a run folder keeps
_HELD: WeakValueDictionary[str, Any] = WeakValueDictionary()


@runtime_checkable
class Named(Protocol):
    """Data with a name."""

    name: str


def name_of(data: object) -> str:
    return data.name if isinstance(data, Named) else "data"


@dataclass(frozen=True)
class Given:
    """What `fit` was given.

    Args:
        source: what a run's settings call the data: a path or a name, or "memory:name".
        record: the record in memory, None where the data are files alone.
        tables: tables and arrays in memory, by the name of their file.
        read: settings of reading that stand for them, and for files beside them.
    """

    source: str
    record: Record | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)


def given(kind: str, data: Any, features: Any, labels: Any) -> Given:
    """Return what `fit` was given by name, and which of it is in memory; nothing is read yet.

    Args:
        kind: what the method works on: "graph", "graphs", "events" or "sequences".
        data: as in `hopstate.fit`.
        features, labels: files, tables or arrays, or None.

    Raises:
        ConfigError: features or labels of data that have none beside them.
    """
    one = features is labels
    features, labels = map(as_frame, (features, labels))
    labels = features if one else labels
    beside = {"features": features, "labels": labels}
    beside = {name: value for name, value in beside.items() if value is not None}
    if kind == "events" and "features" in beside:
        beside["x"] = beside.pop("features")
    told = [name for name in beside if kind not in ("graph", "events") or (kind == "events" and name == "labels")]
    if told:
        where = "a column of the table of events" if kind == "events" else "the graphs themselves"
        raise ConfigError(f"this method works on {kind}, whose {told[0]} stand in {where}; leave {told[0]} out")
    paths = {name: str(value) for name, value in beside.items() if isinstance(value, (str, os.PathLike))}
    tables = {name: value for name, value in beside.items() if name not in paths}
    stem = "events" if kind == "events" else "edges"
    tables |= {stem: data} if is_frame(data) else {}
    by_name = isinstance(data, (str, os.PathLike))
    source = os.fspath(data) if by_name else f"memory:{'table' if is_frame(data) else name_of(data)}"
    same = {"labels": "features"} if labels is not None and labels is features and "features" in tables else {}
    named = {f"read.{name}": f"memory:{same.get(name, name)}" for name in tables if name != stem}
    record = None if by_name or is_frame(data) else data
    return Given(source, record, {k: v for k, v in tables.items() if k not in same}, {
        **{f"read.{name}": path for name, path in paths.items()}, **named
    })  # fmt: skip


def record_of(kind: str, data: Any, tables: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Return the record of data in memory, or of files with tables in memory beside them.

    Args:
        kind: what the method works on.
        data: a path or an object.
        tables: as in `Given`.
        options: of reading.

    Raises:
        ConfigError: a record of another kind than the method works on.
        FormatError, DataError: it cannot be read as one.
    """
    if isinstance(data, (Graph, EventStream, GraphSet)) and not tables:
        _check_kind(kind, data)
        return data
    beside = {name: value for name, value in tables.items() if name not in ("edges", "events")}
    if "features" in beside and options.get("labels") == "memory:features":
        beside["labels"] = beside["features"]
    options = {k: v for k, v in options.items() if not str(v).startswith("memory:")} | beside
    if is_frame(data) and kind not in ("graph", "events"):
        raise ConfigError(f"this method works on {kind}, which no table holds; give a record or a name")
    if kind == "events":
        _check_pyg(data, "events")
        return read_events(data, **options)
    if kind == "graph":
        _check_pyg(data, "graph")
        tabled = is_frame(data) or isinstance(data, (str, os.PathLike))
        return read_graph(data, **(options if tabled else _of_objects(options)))
    if kind == "graphs" and isinstance(data, (list, tuple)):
        return GraphSet.from_pyg(data)
    return data  # a record of the user's own, which the method judges


def _of_objects(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of reading that say something of an object in memory: it stores its edges as it means them."""
    return {key: options[key] for key in ("nan", "missing", "features", "labels") if options.get(key) is not None}


def _check_kind(kind: str, record: Record) -> None:
    kinds = {Graph: "graph", EventStream: "events", GraphSet: "graphs"}
    own = next(name for cls, name in kinds.items() if isinstance(record, cls))
    if own != kind and kind in kinds.values():
        raise ConfigError(f"this method works on {kind}; {name_of(record)} is a {type(record).__name__}")


def _check_pyg(data: Any, kind: str) -> None:
    """Raise ConfigError where torch-geometric's record is of the other kind."""
    temporal = all(hasattr(data, name) for name in ("src", "dst", "t"))  # it has an edge_index, too
    plain = not temporal and (hasattr(data, "edge_index") or hasattr(data, "adj_t"))
    if (kind == "graph" and temporal) or (kind == "events" and plain):
        raise ConfigError(
            f"this method works on {'a graph' if kind == 'graph' else kind}, not on a {type(data).__name__}"
        )


# ---- beside the run -------------------------------------------------------------------------------------------------
def keep(run: RunFolder, record: Record, tables: Mapping[str, Any], wanted: bool | None) -> str:
    """Keep what a run was given in memory in its folder; return a note where it is not kept.

    Args:
        run: the folder.
        record: what was read.
        tables: what it was read from, as in `Given`; none where the record itself was given.
        wanted: True keeps it however large it is, False does not, None goes by its size.
    """
    hold(run, record)
    again = "with `hopstate.load` it has to be given again as data"
    if wanted is False:
        return f"the data were given in memory and are not kept with the run (keep_data=False): {again}"
    if not tables and not isinstance(record, (Graph, EventStream)):
        return f"the data were given in memory, and a {type(record).__name__} cannot be kept with the run: {again}"
    size = sum(map(_bytes, tables.values())) if tables else _bytes(record)
    if wanted is None and size > MOST:
        return (
            f"the data were given in memory and are not kept with the run ({size / 2**30:,.1f} GiB; keep_data=True "
            f"keeps them): {again}"
        )
    folder = run.path / FOLDER
    make_folder(folder)
    if tables:
        facts: dict[str, Any] = {stem: _write(table, folder, stem) for stem, table in tables.items()}
    else:
        assert isinstance(record, (Graph, EventStream))
        record.save(str(folder / RECORD)) if isinstance(record, Graph) else save_events(record, folder / RECORD)
        facts = {RECORD: RECORD}
    run.write_json(FACTS, facts)
    return ""


def _write(value: Any, folder: Path, stem: str) -> str:
    if is_frame(value):
        write_frame(value, folder / f"{stem}.parquet", f"the table of {stem}")
        return f"{stem}.parquet"
    if not is_array(value):
        raise DataError(f"{stem} are a {type(value).__name__}; give a file, a table of pandas or pyarrow, or an array")
    save_array(folder / f"{stem}.npy", np.ascontiguousarray(plain_array(value, f"the array {stem}")))
    return f"{stem}.npy"


def hold(run: RunFolder, record: Record) -> None:
    """Let a process apply a run to a record for as long as that lives."""
    _HELD[_key(run)] = record


def from_memory(run: RunFolder, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a run's settings in which data that were in memory are where they can be had now.

    Raises:
        CheckpointError: what the folder keeps is damaged.
    """
    read = settings.get("read")
    told = [settings.get("data"), *(read.values() if isinstance(read, dict) else ())]
    if not any(isinstance(value, str) and value.startswith("memory:") for value in told):
        return settings
    if not exists(run.path / FACTS):
        return settings | ({"data": f"{HELD}{_key(run)}\0{settings['data']}"} if _key(run) in _HELD else {})
    facts = run.read_json(FACTS)
    known = (RECORD, "edges", "events", "features", "labels", "x")
    if not isinstance(facts, dict) or any(k not in known or v not in _names(k) for k, v in facts.items()):
        raise CheckpointError(f"{run.path / FACTS} is damaged; give the run's own data again")
    folder = (run.path / FOLDER).resolve()
    if RECORD in facts:
        return settings | {"data": f"{KEPT}{folder / RECORD}"}
    places = {f"memory:{stem}": str(folder / name) for stem, name in facts.items()}
    data = next((str(folder / facts[stem]) for stem in ("edges", "events") if stem in facts), settings["data"])
    assert isinstance(read, dict)
    return settings | {"data": data, "read": {k: places.get(str(v), v) for k, v in read.items()}}


def _names(stem: str) -> tuple[str, ...]:
    return (RECORD,) if stem == RECORD else (f"{stem}.parquet", f"{stem}.npy")


def load_kept(source: str) -> Any:
    """Return the record of data by the name that `from_memory` gave, None where it is of another kind.

    Raises:
        ConfigError: the data were in memory, and are not kept.
    """
    if source.startswith(HELD):
        key, _, source = source.removeprefix(HELD).partition("\0")
        record = _HELD.get(key)  # which may be gone by now
        if record is not None:
            return record
    if source.startswith("memory:"):
        name = source.partition(":")[2]
        raise ConfigError(
            f"this run was trained on a record in memory ({name}), which is not kept; give it again as data"
        )
    if not source.startswith(KEPT):
        return None
    folder = Path(source.removeprefix(KEPT))
    return Graph.load(str(folder)) if exists(folder / "graph.json") else load_events(folder)


def _key(run: RunFolder) -> str:
    return str(run.path.resolve())


def _bytes(value: Any) -> int:
    if is_array(value):
        return int(getattr(value, "nbytes", 0))
    if is_frame(value):
        return int(value.nbytes if not hasattr(value, "iloc") else value.memory_usage(deep=False).sum())
    names = ("indptr", "indices", "x", "y", "edge_attr", "src", "dst", "t")
    return sum(int(getattr(getattr(value, name, None), "nbytes", 0)) for name in names)
