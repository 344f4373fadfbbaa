"""Data given in memory: read as records, and saved in the folder data of the run, so that it can be applied later.

Tables are saved as Parquet files and arrays as .npy, which are read again as they were; graphs and event streams as
folders. What is larger than `MOST_BYTES` is saved only on request. A `Run` of this process registers the
record, saved or not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.readers.tables import as_frame, is_array, is_frame, plain_array, write_frame
from hopstate.data.store import load_events
from hopstate.errors import CheckpointError, ConfigError, DataError
from hopstate.io.files import make_folder, save_array
from hopstate.io.opening import exists
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from hopstate.methods.method import Record

FOLDER, FACTS, RECORD = "data", "data/kept.json", "record"
MOST_BYTES = 1 << 30  # in memory, of what is saved without being asked for
REGISTERED, SAVED = "held:", "kept:"  # in front of the name of data that a process holds, or that a run folder has
_RECORDS: WeakValueDictionary[str, Any] = WeakValueDictionary()


def name_of(data: object) -> str:
    name = getattr(data, "name", None)
    return name if isinstance(name, str) else "data"


@dataclass(frozen=True)
class Inputs:
    """What `fit` was given.

    Args:
        source: what a run's settings call the data: a path or a name, or "memory:name".
        record: the record in memory, None where the data are files alone.
        tables: tables and arrays in memory, by the name of their file.
        read: reading options that replace the data, and files next to them.
    """

    source: str
    record: Record | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)


def parse_inputs(kind: str, data: Any, features: Any, labels: Any) -> Inputs:
    """Return what `fit` was given by name, and which of it is in memory; nothing is read yet."""
    same = features is labels  # one table with both
    given = {"features": as_frame(features), "labels": as_frame(labels)}
    given = {name: value for name, value in given.items() if value is not None}
    allowed = {"graph": {"features", "labels"}, "events": {"features"}}.get(kind, set())
    unknown = [name for name in given if name not in allowed]
    if unknown:
        where = "a column of the table of events" if kind == "events" else "the graphs themselves"
        raise ConfigError(f"this method works on {kind}, whose {unknown[0]} stand in {where}; leave {unknown[0]} out")
    tables, read = {}, {}
    for name, value in given.items():
        if isinstance(value, (str, os.PathLike)):
            read[f"read.{name}"] = str(value)
        elif name == "labels" and same:
            read["read.labels"] = "memory:features"
        else:
            read[f"read.{name}"], tables[name] = f"memory:{name}", value
    if isinstance(data, (str, os.PathLike)):
        return Inputs(os.fspath(data), None, tables, read)
    if is_frame(data):
        return Inputs("memory:table", None, tables | {"events" if kind == "events" else "edges": data}, read)
    return Inputs(f"memory:{name_of(data)}", data, tables, read)


def record_of(kind: str, data: Any, tables: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Return the record of data in memory, or of files with tables in memory next to them; options are of reading."""
    kinds = {Graph: "graph", EventStream: "events", GraphSet: "graphs"}
    own = next((name for cls, name in kinds.items() if isinstance(data, cls)), None)
    if own is not None and not tables:
        if kind in kinds.values() and own != kind:
            raise ConfigError(f"this method works on {kind}; {name_of(data)} is a {type(data).__name__}")
        return data
    given = {name: value for name, value in tables.items() if name not in ("edges", "events")}
    if "features" in given and options.get("labels") == "memory:features":
        given["labels"] = given["features"]
    options = {k: v for k, v in options.items() if not str(v).startswith("memory:")} | given
    if is_frame(data) and kind not in ("graph", "events"):
        raise ConfigError(f"this method works on {kind}, which no table holds; give a record or a name")
    if kind == "events":
        _check_pyg(data, "events")
        return read_events(data, **options)
    if kind == "graph":
        _check_pyg(data, "graph")
        if not (is_frame(data) or isinstance(data, (str, os.PathLike))):  # an object stores its edges as it means them
            known = ("missing", "features", "labels")
            options = {key: options[key] for key in known if options.get(key) is not None}
        return read_graph(data, **options)
    if kind == "graphs" and isinstance(data, (list, tuple)):
        return GraphSet.from_pyg(data)
    return data  # a record of the user's own, which the method checks


def _check_pyg(data: Any, kind: str) -> None:
    temporal = all(hasattr(data, name) for name in ("src", "dst", "t"))  # it has an edge_index, too
    plain = not temporal and (hasattr(data, "edge_index") or hasattr(data, "adj_t"))
    if (kind == "graph" and temporal) or (kind == "events" and plain):
        what = "a graph" if kind == "graph" else kind
        raise ConfigError(f"this method works on {what}, not on a {type(data).__name__}")


# ---- in the run folder -----------------------------------------------------------------------------------------------
def save_inputs(run: RunFolder, record: Record, tables: Mapping[str, Any], keep: bool | None) -> str:
    """Save data that were passed in memory in the run folder; return a note if they are not saved."""
    register(run, record)
    hint = "with `hopstate.load` it has to be given again as data"
    if keep is False:
        return f"the data were given in memory and are not kept with the run (keep_data=False): {hint}"
    if not tables and not isinstance(record, (Graph, EventStream)):
        return f"the data were given in memory, and a {type(record).__name__} cannot be kept with the run: {hint}"
    size = sum(map(_bytes, tables.values())) if tables else _bytes(record)
    if keep is None and size > MOST_BYTES:
        return (
            f"the data were given in memory and are not kept with the run ({size / 2**30:,.1f} GiB; keep_data=True "
            f"keeps them): {hint}"
        )
    folder = run.path / FOLDER
    make_folder(folder)
    if tables:
        facts: dict[str, Any] = {stem: _write(table, folder, stem) for stem, table in tables.items()}
    else:
        facts = {RECORD: RECORD}
        assert isinstance(record, (Graph, EventStream))
        record.save(folder / RECORD)
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


def register(run: RunFolder, record: Record) -> None:
    """Let a process apply a run to a record for as long as that lives."""
    _RECORDS[_key(run)] = record


def with_saved_data(run: RunFolder, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a run's settings in which data that were in memory are where they can be had now."""
    read = settings.get("read")
    sources = [settings.get("data"), *(read.values() if isinstance(read, dict) else ())]
    in_memory = any(isinstance(value, str) and value.startswith("memory:") for value in sources)
    if not in_memory or not exists(run.path / FACTS):
        return settings | ({"data": f"{REGISTERED}{_key(run)}\0{settings['data']}"} if _key(run) in _RECORDS else {})
    facts = run.read_json(FACTS)
    known: dict[str, tuple[str, ...]] = {RECORD: (RECORD,)}
    known |= {stem: (f"{stem}.parquet", f"{stem}.npy") for stem in ("edges", "events", "features", "labels")}
    if any(name not in known.get(stem, ()) for stem, name in facts.items()):
        raise CheckpointError(f"{run.path / FACTS} is damaged; give the run's own data again")
    folder = (run.path / FOLDER).resolve()
    if RECORD in facts:
        return settings | {"data": f"{SAVED}{folder / RECORD}"}
    places = {f"memory:{stem}": str(folder / name) for stem, name in facts.items()}
    data = next((str(folder / facts[stem]) for stem in ("edges", "events") if stem in facts), settings["data"])
    assert isinstance(read, dict)
    return settings | {"data": data, "read": {k: places.get(str(v), v) for k, v in read.items()}}


def load_saved(source: str) -> Any:
    """Return the record of data by the name that `with_saved_data` gave, None where it is of another kind."""
    if source.startswith(REGISTERED):
        key, _, source = source.removeprefix(REGISTERED).partition("\0")
        record = _RECORDS.get(key)  # which may be gone by now
        if record is not None:
            return record
    if source.startswith("memory:"):
        name = source.partition(":")[2]
        raise ConfigError(
            f"this run was trained on a record in memory ({name}), which is not kept; give it again: "
            "hopstate.load(RUN, data=...)"
        )
    if not source.startswith(SAVED):
        return None
    folder = Path(source.removeprefix(SAVED))
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
