"""Apply a trained run: evaluate, predict, score a stream, classify nodes, check for leaks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hopstate.data.dates import format_time, format_times
from hopstate.data.events import EventStream
from hopstate.data.readers.tables import is_frame
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.evaluation import leak
from hopstate.io.files import locked
from hopstate.io.output import write_table
from hopstate.runs.load import (
    load_run,
    load_state,
    new_events,
    state_after_run_data,
    temporal_task,
    warn_new_ids,
)
from hopstate.runs.query_inputs import (
    check_table,
    in_input_order,
    plain_table,
    query_times,
    resolve_nodes,
    with_index_of,
)
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.live import PairQueries, continue_stream, initial_state
from hopstate.training.progress import evaluation_progress
from hopstate.training.tasks.events import EventTask
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
    cold_start: bool = False,
    device: str | None = None,
) -> dict[str, float]:
    """Return the metrics of a trained run on a split.

    Args:
        run: a run folder.
        data: a file, dataset name or record. Default: the run's own data.
        read: reading options of other data, e.g. {"labels": "labels.csv"}; see the method's configuration.
        split: "train", "val", "test" or "all".
        evaluation: settings of link evaluation that override the run's, e.g. {"protocol": "pooled"}.
        cold_start: treat other events as a separate stream with an empty history, split as the run's data. Default:
            False.
        device: where to compute; None takes the run's own setting.

    Raises:
        CheckpointError: the run is not finished, the data have another number of features, or it is of a custom method
            that was not named in this process (`hopstate.methods.get_method`).
        ConfigError: an evaluation setting is unknown, or other events are given without cold_start.

    Example:
        >>> hopstate.evaluate(run.path, split="test") == run.metrics["test"]
        True
    """
    same_events = data is not None and not cold_start
    data = plain_table(data) if SavedRun.open(run).follows_events else data
    with (
        load_run(run, data, read, device, evaluation=evaluation, same_events=same_events) as (computation, task),
        torch.no_grad(),
        computation.precision(),
        evaluation_progress(computation.loop, split),
    ):
        return task.evaluate(split)


def predict(
    run: str | Path,
    data: Any = None,
    *,
    split: str = "all",
    out: str | Path | None = None,
    read: Mapping[str, Any] | None = None,
    cold_start: bool = False,
    device: str | None = None,
) -> pd.DataFrame:
    """Return predictions of a trained run as a table with the user's ids.

    For event streams, other data are later events. Each is scored from the run's history and the earlier events of the
    file, as in `stream` with ignore_state, but no state is saved. Unseen ids cause a warning.

    Args:
        run: a run folder.
        data: other data. Default: the run's own data.
        read: reading options of other data, e.g. {"features": "features.csv"}; see the method's configuration.
        split: "all", or one of the splits.
        out: also write the table there (.csv or .parquet).
        cold_start: treat other events as a separate stream with an empty history. Default: False.
        device: where to compute; None takes the run's own setting.

    Raises:
        FormatError: out has another extension; nothing is computed.
        TimeOrderError: other events begin before the end of the run's data, and cold_start is off.
        ConfigError: a split is given for later events.

    Example:
        >>> hopstate.predict(run.path, split="test").columns.tolist()
        ['src', 'dst', 't', 'score']
    """
    import pandas as pd

    from hopstate.training.tasks.event_node import EventNodeTask

    saved = SavedRun.open(run)
    check_table(out, saved, data, read)  # before the work, not after it
    temporal = saved.follows_events
    given = plain_table(data) if temporal else data
    new = new_events(saved, given, read or {}, features=cold_start) if temporal and data is not None else None
    if new is not None and not saved.was_trained_on(new) and not (cold_start and split != "all"):
        if split != "all":
            raise ConfigError(
                f"events after the run's own have no {split} split; leave --split out, or give --cold-start"
            )
        table = _predict_later(saved, new, data, device, cold_start=cold_start)
    else:
        with load_run(run, given, read, device) as (computation, task), torch.no_grad(), computation.precision():
            columns = task.predict(split)
            if isinstance(task, (LinkTask, EventNodeTask)):
                stream, whole = task.stream, data is not None and split == "all"
                table = in_input_order(columns, stream, data, stream.time_unit, saved.dates, include_unscored=whole)
            else:
                table = pd.DataFrame(columns)
    if out is not None:
        write_table(table, Path(out))
    return table


def _predict_later(
    saved: SavedRun,
    new: EventStream,
    given: Any,
    device: str | None,
    *,
    cold_start: bool,
) -> pd.DataFrame:
    """Return predictions of events after the run's data; with cold_start, of a separate stream."""
    new = saved.preprocess(new)
    with temporal_task(saved.path, device) as (_, task):
        past = initial_state(task, new) if cold_start else state_after_run_data(saved, task)
        if not cold_start:
            warn_new_ids(past, new)
        dates = new.dates if cold_start else saved.dates
        try:
            columns, after = continue_stream(task, past, new, allow_duplicates=True)
        except TimeOrderError as error:
            raise TimeOrderError(
                f"{new.name} begins at {format_time(new.t[0], new.time_unit, dates)}, before the end of the run's own "
                f"data at {format_time(past.last_time, past.time_unit or '', dates)}; give only later events, or "
                "--cold-start to score them as a stream of their own, with an empty history"
            ) from error
        return in_input_order(columns, new, given, after.time_unit or "", dates, include_unscored=True)


def score_stream(
    run: str | Path,
    data: Any,
    *,
    state: str | Path | None = None,
    ignore_state: bool = False,
    save: str | Path | None = None,
    out: str | Path | None = None,
    read: Mapping[str, Any] | None = None,
    allow_duplicates: bool = False,
    device: str | None = None,
) -> pd.DataFrame:
    """Score new events with a trained temporal model, each before it is added to the state, and save the state.

    Scores do not depend on how the events are divided into calls. The first call processes the run's data, if no state
    is saved. `hopstate.streaming.live` specifies when node memories are updated.

    Args:
        run: a run folder of a method for event streams.
        data: new events (a file, or a record), none before the last event seen so far.
        state: folder of the state to continue from. Default: RUN/state, otherwise the end of the run's data.
        ignore_state: continue from the end of the run's data, even if a state is saved. Default: False.
        save: folder for the state after the events. Default: RUN/state.
        out: also write the scores there (.csv or .parquet).
        read: reading options that differ from the run's, e.g. {"time_column": "when"}.
        allow_duplicates: accept events equal to those of the last call, which are otherwise rejected as a repeated
            call.
        device: where to compute; None takes the run's own setting.

    Returns:
        Columns src, dst, t (in the run's time unit), score; of a method for nodes, node, t, and score, the
        probability of the second of two classes, or prediction and p_<class>. Rows and index are those of data,
        whatever the order of its times; what is not scored, such as a deletion, has no score.

    Raises:
        ConfigError: the run's method does not work on event streams, or an option of read that it does not have.
        BusyError: another process is writing the state, or trains the run.
        TimeOrderError, DataError, ShapeError, CheckpointError: see `hopstate.streaming.live.continue_stream`; the kept
            state stays as it was.
        StorageError: the state or the scores could not be written; then the state stays as it was.

    Example:
        >>> later = events.tail(2).assign(time=[200, 201])
        >>> hopstate.stream(run.path, later)["score"].size
        2
    """
    from hopstate.data.stream_checkpoint import check_folder, save_stream_state

    saved = SavedRun.open(run)
    saved.require_events()
    target = Path(save) if save is not None else saved.path / "state"
    check_folder(target)
    check_table(out, saved, data, read)
    own_state = os.path.realpath(target) == os.path.realpath(saved.path / "state")
    with (
        locked(saved.path if own_state else target, "the state of a live run"),  # from reading it to replacing it
        temporal_task(run, device) as (_, task),
    ):
        new = saved.preprocess(new_events(saved, plain_table(data), read or {}))
        columns, after = continue_stream(
            task,
            load_state(saved, task, state, ignore_state=ignore_state),
            new,
            allow_duplicates=allow_duplicates,
        )
        table = in_input_order(columns, new, data, after.time_unit or "", saved.dates, include_unscored=True)
        save_stream_state(after, target, before=lambda: None if out is None else write_table(table, Path(out)))
    return table


def node_outputs(
    run: str | Path,
    nodes: Any,
    time: Any = None,
    *,
    state: str | Path | None = None,
    ignore_state: bool = False,
    device: str | None = None,
) -> pd.DataFrame:
    """Return class probabilities of nodes at times. The state of the run does not change.

    Each result equals what `stream` would give for a next event of the node at that time. It depends only on the
    node, the time and earlier events.

    Args:
        run: a run folder of a method that classifies nodes at their events, such as dyg-mamba-nodes.
        nodes: (Q,) the user's own ids; or a table with columns node and t.
        time: (Q,) times, or one for all: numbers in the run's time unit, or dates.
        state, ignore_state: the state to query, as in `hopstate.stream`.
        device: where to compute; None takes the run's own setting.

    Returns:
        Columns node, t and score, the probability of the second of two classes; of more, prediction and p_<class>.

    Raises:
        ConfigError: the run's method does not classify nodes at their events.
        TimeOrderError: a time before the last known event.
        DataError: an unknown id, or an invalid time.
        ShapeError: not a time for each node.

    Example:
        >>> labeled = events.assign(label=[0, 1] * 60)
        >>> run = hopstate.fit("dyg-mamba-nodes", labeled, model__num_layers=1, loop__epochs=1, loop__progress=False)
        >>> hopstate.node_outputs(run.path, [1, 4], time=120).columns.tolist()
        ['node', 't', 'score']
    """
    import pandas as pd

    from hopstate.training.tasks.event_node import EventNodeTask

    original = nodes
    if time is None:
        if not is_frame(nodes) or not {"node", "t"} <= set(nodes.columns):
            raise ShapeError("give nodes and their times, or a table with columns node and t")
        nodes, time = nodes["node"].to_numpy(), nodes["t"].to_numpy()
    with temporal_task(run, device) as (saved, task):
        if not isinstance(task, EventNodeTask) or not task.takes_nodes:
            raise ConfigError(
                f"{saved.path} is a run of {saved.method.name}, which has no classes of nodes; see predict"
            )
        past, dates = load_state(saved, task, state, ignore_state=ignore_state), saved.dates
        queried = resolve_nodes(past, np.atleast_1d(np.asarray(nodes)), "nodes")
        times = query_times(past, time, len(queried), "nodes", dates)
        unknown = queried.names[queried.rows < 0]
        if len(unknown):
            raise DataError(
                f"unknown nodes: got {unknown[0].item()!r} and {len(unknown) - 1} more. Give ids as in the run's own "
                "data, or stream the events in which they occur"
            )
        scores = PairQueries(task, past).scores(queried.rows, queried.rows, times)
        times = format_times(times, past.time_unit or "", dates)
        table = pd.DataFrame({"node": queried.names, "t": times} | task.targets.columns(scores))
        return with_index_of(table, original)


def check_leak(
    run: str | Path,
    *,
    times: int = 6,
    queries: int = 64,
    events: int = 5000,
    seed: int = 0,
    device: str | None = None,
) -> leak.LeakReport:
    """Change, add and remove events after random times and check that no earlier score changes.

    Args:
        run: run folder of a method for event streams.
        times: number of times to check. Default: 6.
        queries: pairs scored at and before each time. Default: 64.
        events: number of latest events to work on. Default: 5000.
        seed: seed of the times and alterations. Default: 0.
        device: where to compute. Default: the run's setting.

    Returns:
        The number of times and of compared scores.

    Raises:
        LeakError: a score depends on a later event.
        ConfigError: the run's data have no times.

    Example:
        >>> print(hopstate.check_leak(run.path, times=2, queries=4))
        no leak: 48 scores at 2 times did not change when the future did
    """
    with load_run(run, device=device) as (_, task):
        if not isinstance(task, EventTask):
            raise ConfigError(f"{run} is not a temporal model: its data have no times that could leak")
        task.model.eval().double()
        stream = task.stream.slice(max(0, len(task.stream) - events), len(task.stream))
        return leak.check_leak(
            task.scorer_over, stream, score=task.score_events, times=times, queries=queries, seed=seed
        )
