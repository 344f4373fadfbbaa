"""What `score_stream` and `predict` do before a temporal model goes on over new events: its past, how they are read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.dates import NAIVE, counted_in
from hopstate.data.events import EventStream
from hopstate.data.readers.encode import kinds_of
from hopstate.data.readers.tables import is_frame
from hopstate.data.stream_state import StreamState
from hopstate.datasets.registry import find_dataset, load_dataset
from hopstate.errors import CheckpointError, ConfigError, DataError, FormatError, HopstateWarning, MissingFileError
from hopstate.io.opening import exists, expanded, shown
from hopstate.runs.data import config_of_run, known_data, load_data, reading, same_data, settings_of_run
from hopstate.runs.prepare import prepared_as
from hopstate.streaming.live import fingerprint, past_of
from hopstate.streaming.protocols import LiveTask
from hopstate.training.run_folder import RunFolder

PAST = "past"  # folder of a run: what its memory is after all of its own data
_OF_TABLES = (
    *("source_column", "target_column", "edge_columns", "id_column", "label_column", "split_column"),
    *("missing", "columns", "unlabelled", "task", "label_cells", "text_ids", "bipartite"),
)


def is_temporal(folder: RunFolder) -> bool:
    """Return whether a run is of a method for event streams."""
    return settings_of_run(folder)[0].data == "events"


def check_temporal(folder: RunFolder, named: str | None = None) -> None:
    """Check that a run is of a method for event streams; named as in `hopstate.methods.method_of_run`.

    Raises:
        ConfigError: it is not.
    """
    method, _ = settings_of_run(folder, named)
    kind = method.data
    if kind != "events":
        raise ConfigError(
            f"{folder.path} is a run of {method.name}, which works on {kind} and has no past to go on from; for links "
            "choose a method for events, or fit a graph with --task link"
        )


def is_own(folder: RunFolder, events: EventStream) -> bool:
    """Return whether events are the very ones that a run was trained on."""
    return same_data(folder, events)


def name_new_ids(past: StreamState, new: EventStream) -> None:
    met, rows = past.node_ids, np.unique(np.concatenate([new.src, new.dst]))
    names = rows if new.node_ids is None else new.node_ids.names(rows)
    if met is not None:
        known = met.rows(names.astype(str) if met.is_text else names) >= 0
    elif names.dtype.kind == "U":  # refused when they are joined
        return
    else:  # ids are rows
        sent, received = past.ever_active()
        known = np.isin(names, np.flatnonzero(sent | received))
    if not known.all():
        first = ", ".join(map(str, names[~known][:10].tolist()))
        more = ", ..." if (~known).sum() > 10 else ""
        warnings.warn(
            f"{(~known).sum()} of {len(known)} ids in {new.name} are new to the run: {first}{more}",
            HopstateWarning,
            stacklevel=4,
        )


def kept_state(folder: RunFolder) -> Path | None:
    """Return where the state of a run is kept, None where none is: a folder, or the file that version 0.1.0 wrote."""
    from hopstate.data.stream_checkpoint import holds_stream_state

    new, old = folder.path / "state", folder.path / "state.safetensors"
    return new if holds_stream_state(new) else old if old.is_file() else None


def own_past(folder: RunFolder, task: LiveTask[Any], own: Any = None) -> StreamState:
    """Return the past of a run after all of its own data.

    Args:
        folder: the run.
        task: its task.
        own: its own data, where they are not in a file.

    Raises:
        ConfigError: it was trained on a record in memory, and own is not given.

    Warns:
        HopstateWarning: the data are not those that it was trained on.
    """
    method, settings = settings_of_run(folder)
    config = config_of_run(folder, method, settings)
    record = own if own is not None and not isinstance(own, (str, Path)) else None
    if own is None and config.data.startswith("memory:"):
        raise ConfigError(
            f"this run was trained on a record in memory ({config.data[7:]}), which is its past: give it again as own, "
            "or fresh=True to do without"
        )
    if record is None:
        try:
            record = load_data(config.data if own is None else str(own), config.read, method.data)
        except MissingFileError as error:
            raise MissingFileError(
                f"{error}; this run answers from its own data, which are its past: put them back, or give them again "
                "(own= in Python)"
            ) from None
    if not same_data(folder, record):
        what = own if isinstance(own, (str, Path)) else config.data if own is None else record.name
        warnings.warn(
            f"{shown(what)} is not what this run was trained on, or has changed since; what stands there now is taken "
            "for the run's past",
            HopstateWarning,
            stacklevel=3,
        )
        return past_of(task, as_trained(folder, record))
    return _kept_past(folder, task) or past_of(task, as_trained(folder, record))


def _kept_past(folder: RunFolder, task: LiveTask[Any]) -> StreamState | None:
    """Return the past that `hopstate.runs.applying.keep_past` left, None where it is none of these weights'."""
    from hopstate.data.stream_checkpoint import holds_stream_state, load_stream_state

    if not holds_stream_state(folder.path / PAST):
        return None
    try:
        return load_stream_state(folder.path / PAST, model=fingerprint(task))
    except (CheckpointError, MissingFileError):  # damaged, or of a run that was resumed: it is made again
        return None


def new_events(folder: RunFolder, data: Any, read: Mapping[str, Any], *, features: bool = False) -> EventStream:
    """Return events that a run goes on over, tables read as its own files were but for what read says, else untouched.

    Args:
        folder: the run.
        data: a file, a folder, the name of a data set, or a record.
        read: how they are read where that differs.
        features: they may bring features of nodes.

    Raises:
        ConfigError: an option that the method's configuration does not have, or features of nodes.
    """
    from hopstate.data.readers.read_events import read_events

    if "scale" in read:
        raise ConfigError("a trained run scales features as it was trained to; leave read.scale out")
    if read.get("x") is not None and not features:
        raise ConfigError("new events bring no features of nodes; the run keeps its own: leave read.x out")
    method, settings = settings_of_run(folder)
    if isinstance(data, str) and find_dataset(data) is not None and not exists(data):
        return load_dataset(data, **dict(read))
    config = config_of_run(
        folder, method, settings | {"read": own_reading(folder, settings["read"], data) | dict(read)}
    )
    options = reading(config.read)
    if is_frame(data) or isinstance(data, (str, os.PathLike)):
        known = known_data(folder)
        options |= {"text_ids": True} if known.get("text_ids") else {}
        options |= {"bipartite": known["two_sets"]} if "two_sets" in known and "bipartite" not in read else {}
    try:
        events = read_events(data, from_start=False, **options)
    except DataError as error:  # what has yet to happen has no labels
        label = options.pop("label_column", None)
        absent = [] if label is None else [name for name in (label, *label.split(",")) if name.strip()]
        if "label_column" in read or not any(f"no column {name.strip()!r}" in str(error) for name in absent):
            raise
        events = read_events(data, from_start=False, **options)
    known = known_data(folder)
    dates = str(known.get("dates") or "")
    if events.dates == NAIVE and dates != NAIVE and known.get("time_unit"):
        events = events.with_(t=counted_in(events.t, events.time_unit, dates, events.name), dates=dates)
    named, table = settings["read"].get("edge_columns") or (), events.edge_table
    if "edge_columns" in read and table is not None and len(table.columns) == len(named):  # other names, in that order
        events = events.with_(edge_table=replace(table, columns=tuple(named)))
    return events


def own_reading(folder: RunFolder, own: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return how a run's own files were read, as far as that says something of other data."""
    # features and number of the nodes are of the run's own data; records have no columns to name
    if not isinstance(data, (str, os.PathLike)) and not is_frame(data):
        return {}
    found = {key: value for key, value in own.items() if key not in ("x", "num_nodes", "scale")}
    return found | _columns_of(folder, own)


def _columns_of(folder: RunFolder, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the columns of a run's own tables held, as an option of reading; nothing where they had no names."""
    scalers = (known_data(folder).get("features") or {}).values()
    names = [name for scaler in scalers for name in scaler.get("columns") or ()]
    kinds = kinds_of(tuple(dict.fromkeys(names)), own.get("columns"))
    return {"columns": list(kinds)} if kinds else {}


def own_graph_reading(folder: RunFolder, own: Mapping[str, Any], data: Any, read: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a run's own graph was read, as far as that says something of another source of a graph.

    Tables are read with its columns and labels too; what numbers as labels are follows from what the run predicts.

    Args:
        folder: the run.
        own: its options of reading.
        data: a path, a table, the name of a data set or a record; the last two are as they are.
        read: what is said of the source.
    """
    from hopstate.data.labels import has_column

    tabled = is_frame(data)
    if not tabled and not isinstance(data, (str, os.PathLike)):
        return {}
    if not tabled and find_dataset(str(data)) is not None and not exists(str(data)):
        return {}
    keys = ("undirected", "duplicates", "self_loops", "nan")
    if not tabled and not is_table(expanded(str(data)), read.get("format", "auto")):
        return {key: own[key] for key in keys if key in own}
    found = {key: own[key] for key in (*keys, *_OF_TABLES) if key in own}
    goal = (known_data(folder).get("target") or {}).get("goal")
    if found.get("split_column") and not has_column(read.get("labels"), found["split_column"]):
        found["split_column"] = None  # other labels need no splits
    found |= _columns_of(folder, own)
    if goal is not None:
        found["task"] = "classification" if goal == "classes" else "regression"
    return found


def is_table(path: Path, format: str = "auto") -> bool:
    """Return whether a graph's file is a table of edges."""
    from hopstate.data.readers.read_graph import detect_format

    try:
        return exists(path) and format in ("auto", "edges") and detect_format(path) == "edges"
    except FormatError:  # whoever reads it tells
        return False


def as_trained(folder: RunFolder, record: EventStream) -> Any:
    """Return events with features and classes as those that a run was trained on."""
    return prepared_as(record, known_data(folder))
