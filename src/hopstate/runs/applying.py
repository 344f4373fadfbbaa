"""A trained run on data: its metrics, its predictions, its scores of new events as they come."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.dates import shown_time
from hopstate.errors import ConfigError, HopstateError, HopstateWarning, TimeOrderError
from hopstate.io.files import check_output, locked
from hopstate.io.output import check_table_path, write_table
from hopstate.runs.answers import in_given_order, plain_table
from hopstate.runs.data import known_data, settings_of_run
from hopstate.runs.going_on import (
    PAST,
    as_trained,
    check_temporal,
    is_own,
    is_temporal,
    kept_state,
    name_new_ids,
    new_events,
    own_past,
)
from hopstate.runs.load import load_run
from hopstate.streaming.protocols import LiveTask
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.events import EventStream


def evaluate(
    run: str | Path,
    *,
    data: Any = None,
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
    data = plain_table(data) if is_temporal(RunFolder.open(run)) else data
    with load_run(run, data, read, device, evaluation=evaluation, own=own, method=method) as (trainer, _):
        return trainer.evaluate(split)


def predict(
    run: str | Path,
    *,
    data: Any = None,
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
    table = None if data is None else _later(folder, data, split, read, fresh, own, device)
    if table is None:
        flat = plain_table(data) if is_temporal(folder) else data
        with load_run(run, flat, read, device, method=method) as (trainer, task), torch.no_grad(), trainer.precision():
            task.model.eval()
            columns = task.predict(split)
            if isinstance(task, (LinkTask, EventNodeTask)):
                stream, whole = task.stream, data is not None and split == "all"
                dates = stream.dates if "dates" in known_data(folder) else ""
                table = in_given_order(columns, stream, data, stream.time_unit, dates, whole=whole)
            else:
                table = pd.DataFrame(columns)
    if out is not None:
        write_table(table, Path(out), raw=raw)
    return table


def _later(
    folder: RunFolder, data: Any, split: str, read: Mapping[str, Any] | None, fresh: bool, own: Any, device: str | None
) -> pd.DataFrame | None:
    """Return predictions of events after a run's past; None where the data are none."""
    import torch

    from hopstate.streaming.live import empty_past, go_on

    if not is_temporal(folder):
        return None
    new = new_events(folder, plain_table(data), read or {}, features=fresh)
    if (fresh and split != "all") or is_own(folder, new):
        return None
    if split != "all":
        raise ConfigError(f"events after the run's own have no {split} split; leave --split out, or give --fresh")
    new = as_trained(folder, new)
    with load_run(folder.path, own, device=device, bare=True) as (trainer, task), torch.no_grad(), trainer.precision():
        assert isinstance(task, LiveTask)
        past = empty_past(task, new) if fresh else own_past(folder, task, own)
        if not fresh:
            name_new_ids(past, new)
        dates = new.dates if fresh else str(known_data(folder).get("dates") or "")
        try:
            columns, after = go_on(task, past, new, again=True)
        except TimeOrderError as error:
            raise TimeOrderError(
                f"{new.name} begins at {shown_time(new.t[0], new.time_unit, dates)}, before the end of the run's own "
                f"data at {shown_time(past.last_time, past.time_unit or '', dates)}; give only later events, or "
                "--fresh to score them as a stream of their own, without what the run has seen"
            ) from error
        return in_given_order(columns, new, data, after.time_unit or "", dates, whole=True)


def check_table(
    out: str | Path | None, folder: RunFolder, method: str | None, data: Any, read: Mapping[str, Any] | None, *more: Any
) -> None:
    """Check that a table can be written, and over none of the files that it is made from.

    Args:
        out: the table; None is not checked.
        folder: the run.
        method: as in `evaluate`.
        data, read: what else is read, and how.
        more: further files that are read.

    Raises:
        FormatError: out has an extension of no table.
        ConfigError: out is read, or the run's method is not known.
        StorageError: out cannot be written.
    """
    settings = settings_of_run(folder, method)[1]
    if out is None:
        return
    check_table_path(out)
    files = [value for options in (settings.get("read") or {}, read or {}) for value in options.values()]
    check_output(Path(out), settings.get("data"), data, *files, *more)


def keep_past(folder: RunFolder, record: EventStream, method: str | None = None) -> None:
    """Keep what a memory is after all of a run's own data, so that no later command moves it through them again.

    Args:
        folder: the run, finished; whoever calls holds it.
        record: its own data.
        method: as in `evaluate`.

    Warns:
        HopstateWarning: it cannot be kept; commands then make it anew, which takes them longer.
    """
    import torch

    from hopstate.data.stream_checkpoint import save_stream_state
    from hopstate.streaming.live import past_of

    try:
        with load_run(folder.path, bare=True, method=method) as (trainer, task), torch.no_grad():
            assert isinstance(task, LiveTask)
            with trainer.precision():
                save_stream_state(past_of(task, as_trained(folder, record)), folder.path / PAST)
    except HopstateError as error:
        warnings.warn(f"the memory after the run's own data is not kept: {error}", HopstateWarning, stacklevel=3)


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
    """Let a trained temporal model go on over new events: score each before it is seen, and keep the state after them.

    What is scored from what, and when a memory moves, stands in `hopstate.streaming.live`: it follows from the events
    alone, not from how they are cut into calls. After the first call, which takes in the run's own data, a call costs
    what its events cost.

    Args:
        run: a run folder of a method for event streams.
        data: new events (a file, or a record), none before the last event seen so far.
        state: where to go on from, a folder that an earlier call saved into; None takes the folder state of the run,
            or where there is none the end of the run's own data.
        fresh: start at the end of the run's own data, whatever states are kept.
        save: the folder in which the state after the events is kept; None takes the folder state of the run.
        out: also write the scores there (.csv or .parquet).
        own: the run's own data, where it was trained on a record in memory and nothing is kept yet.
        read: how data are read where that differs from the run's own files, e.g. {"time_column": "when"}; see the
            method's configuration.
        again: the very events that were taken last have happened once more.
        device: where to compute; None takes the run's own setting.
        method: as in `evaluate`.
        raw: as in `hopstate.io.output.write_table`.

    Returns:
        Columns src, dst, t (in the unit of the run's own data), score; of a method for nodes, node, t, and score, the
        chance of the second of two classes, or prediction and p_<class>. Rows and index are those of data, whatever
        the order of its times; what is not scored, such as a deletion, has no score.

    Raises:
        ConfigError: the run's method does not work on event streams, or an option of read that it does not have.
        BusyError: somebody else is writing the state, or trains the run.
        TimeOrderError, DataError, ShapeError, CheckpointError: see `hopstate.streaming.live.go_on`; the kept state
            stays as it was.
        StorageError: the state or the scores could not be written; then the state stays as it was.
    """
    import torch

    from hopstate.data.stream_checkpoint import check_folder, load_stream_state, save_stream_state
    from hopstate.streaming.live import fingerprint, go_on

    folder = RunFolder.open(run)
    check_temporal(folder, method)
    target = Path(save) if save is not None else folder.path / "state"
    check_folder(target)
    check_table(out, folder, method, data, read)
    own_state = os.path.realpath(target) == os.path.realpath(folder.path / "state")
    with (
        locked(folder.path if own_state else target, "the state of a live run"),  # from reading it to replacing it
        load_run(run, own, device=device, bare=True, method=method) as (trainer, task),
        torch.no_grad(),
        trainer.precision(),
    ):
        assert isinstance(task, LiveTask)
        new = as_trained(folder, new_events(folder, plain_table(data), read or {}))
        start = None if fresh else state if state is not None else kept_state(folder)
        past = own_past(folder, task, own) if start is None else load_stream_state(start, model=fingerprint(task))
        columns, after = go_on(task, past, new, again=again)
        dates = str(known_data(folder).get("dates") or "")
        table = in_given_order(columns, new, data, after.time_unit or "", dates, whole=True)
        save_stream_state(after, target, before=lambda: None if out is None else write_table(table, Path(out), raw=raw))
    return table
