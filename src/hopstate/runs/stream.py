"""Temporal runs and what they have seen: open the state, read new events, score them and keep the state after them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import NAIVE, counted_in, shown_times
from hopstate.data.events import EventStream
from hopstate.data.readers.tables import is_frame
from hopstate.data.stream_state import StreamState
from hopstate.datasets.registry import find_dataset, load_dataset
from hopstate.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    HopstateError,
    HopstateWarning,
    MissingFileError,
    ShapeError,
)
from hopstate.io.files import locked
from hopstate.io.opening import exists, shown
from hopstate.io.output import write_table
from hopstate.runs.data import (
    config_of_run,
    dates_of,
    known_data,
    load_data,
    own_reading,
    preprocess_as,
    reader_options,
    same_data,
    settings_of_run,
)
from hopstate.runs.load import load_run
from hopstate.runs.query_inputs import check_table, in_given_order, nodes_of, plain_table, times_of, with_index_of
from hopstate.streaming.live import continue_stream, fingerprint, past_of
from hopstate.streaming.protocols import LiveTask
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

PAST = "past"  # folder in a run's: the state after all of its own data


# ---- the state of a run ----------------------------------------------------------------------------------------
def is_temporal(folder: RunFolder, named: str | None = None) -> bool:
    """Return whether a run is of a method for event streams; named as `method` in `hopstate.evaluate`."""
    return settings_of_run(folder, named)[0].data == "events"


def check_temporal(folder: RunFolder, named: str | None = None) -> None:
    """Raise ConfigError unless a run is of a method for event streams; arguments as `is_temporal`."""
    method, _ = settings_of_run(folder, named)
    if method.data != "events":
        raise ConfigError(
            f"{folder.path} is a run of {method.name}, which works on {method.data} and has no past to go on from; for "
            "links choose a method for events, or fit a graph with --task link"
        )


def kept_state(folder: RunFolder) -> Path | None:
    """Return the folder of the state that `score_stream` kept; None if there is none."""
    from hopstate.data.stream_checkpoint import holds_stream_state

    found = folder.path / "state"
    return found if holds_stream_state(found) else None


@contextmanager
def temporal_task(
    run: str | Path, own: Any = None, device: str | None = None, method: str | None = None
) -> Iterator[tuple[RunFolder, Any]]:
    """Yield the folder and the task of a temporal run, without its data, ready to follow a state.

    Raises:
        ConfigError: the run's method is not one for event streams.
    """
    import torch

    folder = RunFolder.open(run)
    check_temporal(folder, method)
    with (
        load_run(run, own, device=device, bare=True, method=method) as (trainer, task),
        torch.no_grad(),
        trainer.precision(),
    ):
        assert isinstance(task, LiveTask)
        yield folder, task


def known_state(
    folder: RunFolder, task: LiveTask[Any], own: Any = None, state: str | Path | None = None, *, fresh: bool = False
) -> StreamState:
    """Return what a run has seen.

    Args:
        folder, task: the run.
        own: its own data, if they are not in a file.
        state: the folder of a state; None takes the kept one, if there is one.
        fresh: take the end of the run's own data.
    """
    from hopstate.data.stream_checkpoint import load_stream_state

    start = None if fresh else state if state is not None else kept_state(folder)
    return own_past(folder, task, own) if start is None else load_stream_state(start, model=fingerprint(task))


def own_past(folder: RunFolder, task: LiveTask[Any], own: Any = None) -> StreamState:
    """Return the state after all of a run's own data; own replaces them if they are not in a file.

    Raises:
        ConfigError: it was trained on a record in memory, and own is not given.

    Warns:
        HopstateWarning: the data are not those that it was trained on.
    """
    from hopstate.data.stream_checkpoint import holds_stream_state, load_stream_state

    record, source = _own_record(folder, own)
    if not same_data(folder, record):
        warnings.warn(
            f"{shown(source)} is not what this run was trained on, or has changed since; what is there now is taken "
            "for the run's past",
            HopstateWarning,
            stacklevel=3,
        )
    elif holds_stream_state(folder.path / PAST):
        try:
            return load_stream_state(folder.path / PAST, model=fingerprint(task))
        except (CheckpointError, MissingFileError):  # damaged, or of earlier weights: computed again
            pass
    return past_of(task, as_trained(folder, record))


def _own_record(folder: RunFolder, own: Any) -> tuple[EventStream, str]:
    """Return a run's own events, and what they are called in messages."""
    if own is not None and not isinstance(own, (str, Path)):
        return own, own.name
    method, settings = settings_of_run(folder)
    config = config_of_run(folder, method, settings)
    if own is None and config.data.startswith("memory:"):
        raise ConfigError(
            f"this run was trained on a record in memory ({config.data[7:]}), which is its past: give it again as own, "
            "or fresh=True to do without"
        )
    source = config.data if own is None else str(own)
    try:
        return load_data(source, config.read, method.data), source
    except MissingFileError as error:
        raise MissingFileError(
            f"{error}; this run answers from its own data, which are its past: put them back, or give them again "
            "(own= in Python)"
        ) from None


def keep_past(folder: RunFolder, record: EventStream, method: str | None = None) -> None:
    """Keep the state after a finished run's own data, so that no later command computes it again.

    Args:
        folder: the run; the caller holds its lock.
        record: its own data.
        method: as in `hopstate.evaluate`.

    Warns:
        HopstateWarning: it cannot be kept; commands then compute it.
    """
    from hopstate.data.stream_checkpoint import save_stream_state

    try:
        with temporal_task(folder.path, method=method) as (_, task):
            save_stream_state(past_of(task, as_trained(folder, record)), folder.path / PAST)
    except HopstateError as error:
        warnings.warn(f"the memory after the run's own data is not kept: {error}", HopstateWarning, stacklevel=3)


# ---- new events ----------------------------------------------------------------------------------------------
def as_trained(folder: RunFolder, record: EventStream) -> Any:
    """Return events with features and classes as those that a run was trained on."""
    return preprocess_as(record, known_data(folder))


def new_events(folder: RunFolder, data: Any, read: Mapping[str, Any], *, features: bool = False) -> EventStream:
    """Return events for a run, read as its own files were except for what read says; nothing is scaled yet.

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
    known, own = known_data(folder), settings["read"]
    config = config_of_run(folder, method, settings | {"read": own_reading(folder, own, data) | dict(read)})
    options = reader_options(config.read)
    if is_frame(data) or isinstance(data, (str, os.PathLike)):
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
    dates = dates_of(folder)
    if events.dates == NAIVE and dates != NAIVE and known.get("time_unit"):
        events = events.with_(t=counted_in(events.t, events.time_unit, dates, events.name), dates=dates)
    named, table = own.get("edge_columns") or (), events.edge_table
    if "edge_columns" in read and table is not None and len(table.columns) == len(named):  # other names, same order
        events = events.with_(edge_table=replace(table, columns=tuple(named)))
    return events


def warn_new_ids(past: StreamState, new: EventStream) -> None:
    """Warn of nodes of new events that a state does not know."""
    met, rows = past.node_ids, np.unique(np.concatenate([new.src, new.dst]))
    names = rows if new.node_ids is None else new.node_ids.names(rows)
    if met is not None:
        known = met.rows(names.astype(str) if met.is_text else names) >= 0
    elif names.dtype.kind == "U":  # an error when they are joined
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


def score_stream(
    run: str | Path,
    data: Any,
    *,
    state: str | Path | None = None,
    fresh: bool = False,
    save: str | Path | None = None,
    out: str | Path | None = None,
    own: Any = None,
    read: Mapping[str, Any] | None = None,
    again: bool = False,
    device: str | None = None,
    method: str | None = None,
    raw: bool = False,
) -> pd.DataFrame:
    """Score new events with a trained temporal model, each before it is seen, and keep the state after them.

    `hopstate.streaming.live` says what is scored from what, and when a memory moves. It follows from the events alone,
    not from how they are cut into calls. The first call takes in the run's own data; later ones cost what their events
    cost.

    Args:
        run: a run folder of a method for event streams.
        data: new events (a file, or a record), none before the last event seen so far.
        state: where to go on from, a folder that an earlier call saved into; None takes the folder state of the run,
            or if there is none the end of the run's own data.
        fresh: start at the end of the run's own data, whatever states are kept.
        save: the folder in which the state after the events is kept; None takes the folder state of the run.
        out: also write the scores there (.csv or .parquet).
        own: the run's own data, if it was trained on a record in memory and nothing is kept yet.
        read: how data are read if that differs from the run's own files, e.g. {"time_column": "when"}; see the
            method's configuration.
        again: the very events that were taken last have happened once more.
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.
        raw: as in `hopstate.io.output.write_table`.

    Returns:
        Columns src, dst, t (in the unit of the run's own data), score; of a method for nodes, node, t, and score, the
        probability of the second of two classes, or prediction and p_<class>. Rows and index are those of data,
        whatever the order of its times; what is not scored, such as a deletion, has no score.

    Raises:
        ConfigError: the run's method does not work on event streams, or an option of read that it does not have.
        BusyError: another process is writing the state, or trains the run.
        TimeOrderError, DataError, ShapeError, CheckpointError: see `hopstate.streaming.live.continue_stream`; the kept
            state stays as it was.
        StorageError: the state or the scores could not be written; then the state stays as it was.
    """
    from hopstate.data.stream_checkpoint import check_folder, save_stream_state

    folder = RunFolder.open(run)
    check_temporal(folder, method)
    target = Path(save) if save is not None else folder.path / "state"
    check_folder(target)
    check_table(out, folder, method, data, read)
    own_state = os.path.realpath(target) == os.path.realpath(folder.path / "state")
    with (
        locked(folder.path if own_state else target, "the state of a live run"),  # from reading it to replacing it
        temporal_task(run, own, device, method) as (_, task),
    ):
        new = as_trained(folder, new_events(folder, plain_table(data), read or {}))
        columns, after = continue_stream(task, known_state(folder, task, own, state, fresh=fresh), new, again=again)
        table = in_given_order(columns, new, data, after.time_unit or "", dates_of(folder), whole=True)
        save_stream_state(after, target, before=lambda: None if out is None else write_table(table, Path(out), raw=raw))
    return table


def node_outputs(
    run: str | Path,
    nodes: Any,
    t: Any = None,
    *,
    state: str | Path | None = None,
    fresh: bool = False,
    own: Any = None,
    device: str | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Return class probabilities of nodes at times, from what a run has seen; nothing is kept.

    Histories hold what is strictly earlier than the time, and the memory is that from before the batch that an event at
    that time would fall into: what `score_stream` would score such an event from. Each answer depends on its node and
    time alone.

    Args:
        run: a run folder of a method that classifies nodes at their events, such as dyg-mamba-nodes.
        nodes: (Q,) the user's own ids; or a table with columns node and t.
        t: (Q,) times, or one for all: numbers in the unit of the run's own data, or dates.
        state, fresh, own: which state to answer from, as in `hopstate.score_stream`.
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.

    Returns:
        Columns node, t and score, the probability of the second of two classes; of more, prediction and p_<class>.

    Raises:
        ConfigError: the run's method does not classify nodes at their events.
        TimeOrderError: a time before the last known event.
        DataError: an unknown id, or an invalid time.
        ShapeError: not a time for each node.
    """
    import pandas as pd

    from hopstate.streaming.live import outputs_at
    from hopstate.training.tasks.event_node import EventNodeTask

    given = nodes
    if t is None:
        if not is_frame(nodes) or not {"node", "t"} <= set(nodes.columns):
            raise ShapeError("give nodes and their times, or a table with columns node and t")
        nodes, t = nodes["node"].to_numpy(), nodes["t"].to_numpy()
    with temporal_task(run, own, device, method) as (folder, task):
        if not isinstance(task, EventNodeTask):
            name = settings_of_run(folder, method)[0].name
            raise ConfigError(f"{folder.path} is a run of {name}, which has no classes of nodes; see predict")
        past, dates = known_state(folder, task, own, state, fresh=fresh), dates_of(folder)
        asked = nodes_of(past, np.atleast_1d(np.asarray(nodes)), "nodes")
        times = times_of(past, t, len(asked), "nodes", dates)
        unknown = asked.names[asked.rows < 0]
        if len(unknown):
            raise DataError(
                f"unknown nodes: got {unknown[0].item()!r} and {len(unknown) - 1} more. Give ids as in the run's own "
                "data, or stream the events in which they occur"
            )
        found = outputs_at(task, past, asked.rows, times)
        times = shown_times(times, past.time_unit or "", dates)
        table = pd.DataFrame({"node": asked.names, "t": times} | task.targets.columns(found))
        return with_index_of(table, given)
