"""A trained run on data: its metrics, its predictions, and its scores of events as they come."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import format_time, format_times
from hopstate.data.events import EventStream
from hopstate.data.readers.tables import is_frame
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.io.files import locked
from hopstate.io.output import write_table
from hopstate.runs.data import dates_of, same_data, settings_of_run
from hopstate.runs.load import (
    as_trained,
    check_temporal,
    is_temporal,
    known_state,
    load_run,
    new_events,
    own_past,
    temporal_task,
    warn_new_ids,
)
from hopstate.runs.query_inputs import check_table, in_given_order, nodes_of, plain_table, times_of, with_index_of
from hopstate.streaming.live import PairQueries, continue_stream, empty_past
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    import pandas as pd


def evaluate(
    run: str | Path,
    data: Any = None,
    *,
    split: str = "test",
    read: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    fresh: bool = False,
    device: str | None = None,
    method: str | None = None,
) -> dict[str, float]:
    """Return the metrics of a trained run on a split.

    Args:
        run: a run folder.
        data: other data than it was trained on (file, name or record); None takes its own.
        read: how other data are read, e.g. {"labels": "labels.csv"}; see the method's configuration.
        split: "train", "val", "test" or "all".
        evaluation: other settings of link evaluation than the run's, e.g. {"protocol": "pooled"}.
        fresh: other events are a stream of their own, split as the run's: nothing that the run has seen is known.
        device: where to compute; None takes the run's own setting.
        method: "module:NAME" where the run's method is none of the library's; importing the module runs it.

    Raises:
        CheckpointError: the folder holds no finished run, data of another width, or the name of a method outside the
            library that is not given here.
        ConfigError: a setting of evaluation that the run's method does not have, or other events without fresh.
    """
    own = data is not None and not fresh
    data = plain_table(data) if is_temporal(RunFolder.open(run), method) else data
    with load_run(run, data, read, device, evaluation=evaluation, own=own, method=method) as (trainer, _):
        return trainer.evaluate(split)


def predict(
    run: str | Path,
    data: Any = None,
    *,
    split: str = "all",
    out: str | Path | None = None,
    read: Mapping[str, Any] | None = None,
    fresh: bool = False,
    own: Any = None,
    device: str | None = None,
    method: str | None = None,
    raw: bool = False,
) -> pd.DataFrame:
    """Return predictions of a trained run as a table with the user's own ids.

    Of a method for event streams, other data are what comes after the run's own: each event is scored from the run's
    past and from the earlier events of the file, as `score_stream` with fresh scores them, and nothing is kept. They
    need no split, are read as the run's own files were, and ids that the run has not met are named by a warning.

    Args:
        run: a run folder.
        data: other data than it was trained on; None takes its own.
        read: how other data are read, e.g. {"features": "features.csv"}; see the method's configuration.
        split: "all", or one of the splits.
        out: also write the table there (.csv or .parquet).
        fresh: other events are a stream of their own: nothing that the run has seen is known.
        own: the run's own events, where it was trained on a record in memory.
        device: where to compute; None takes the run's own setting.
        method: as in `evaluate`.
        raw: as in `hopstate.io.output.write_table`.

    Raises:
        FormatError: out has another extension; nothing is computed.
        TimeOrderError: other events begin before the run's own end, and fresh is off.
        ConfigError: a split of later events, which have none.
    """
    import pandas as pd
    import torch

    from hopstate.training.tasks.event_node import EventNodeTask

    folder = RunFolder.open(run)
    check_table(out, folder, method, data, read)  # before the work, not after it
    temporal = is_temporal(folder, method)
    given = plain_table(data) if temporal else data
    new = new_events(folder, given, read or {}, features=fresh) if temporal and data is not None else None
    if new is not None and not same_data(folder, new) and not (fresh and split != "all"):
        if split != "all":
            raise ConfigError(f"events after the run's own have no {split} split; leave --split out, or give --fresh")
        table = _predict_later(folder, new, data, own, device, method, fresh=fresh)
    else:
        with load_run(run, given, read, device, method=method) as (trainer, task), torch.no_grad(), trainer.precision():
            task.model.eval()
            columns = task.predict(split)
            if isinstance(task, (LinkTask, EventNodeTask)):
                stream, whole = task.stream, data is not None and split == "all"
                table = in_given_order(columns, stream, data, stream.time_unit, dates_of(folder), whole=whole)
            else:
                table = pd.DataFrame(columns)
    if out is not None:
        write_table(table, Path(out), raw=raw)
    return table


def _predict_later(
    folder: RunFolder, new: EventStream, given: Any, own: Any, device: str | None, method: str | None, *, fresh: bool
) -> pd.DataFrame:
    """Return predictions of events that follow a run's own, or with fresh of a stream of its own."""
    new = as_trained(folder, new)
    with temporal_task(folder.path, own, device, method) as (_, task):
        past = empty_past(task, new) if fresh else own_past(folder, task, own)
        if not fresh:
            warn_new_ids(past, new)
        dates = new.dates if fresh else dates_of(folder)
        try:
            columns, after = continue_stream(task, past, new, again=True)
        except TimeOrderError as error:
            raise TimeOrderError(
                f"{new.name} begins at {format_time(new.t[0], new.time_unit, dates)}, before the end of the run's own "
                f"data at {format_time(past.last_time, past.time_unit or '', dates)}; give only later events, or "
                "--fresh to score them as a stream of their own, without what the run has seen"
            ) from error
        return in_given_order(columns, new, given, after.time_unit or "", dates, whole=True)


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
        found = PairQueries(task, past).scores(asked.rows, asked.rows, times)
        times = format_times(times, past.time_unit or "", dates)
        table = pd.DataFrame({"node": asked.names, "t": times} | task.targets.columns(found))
        return with_index_of(table, given)
