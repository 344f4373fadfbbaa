"""A trained run on data: its metrics and its predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.dates import shown_time
from hopstate.errors import ConfigError, TimeOrderError
from hopstate.io.output import write_table
from hopstate.runs.data import dates_of, same_data
from hopstate.runs.load import load_run
from hopstate.runs.query_inputs import check_table, in_given_order, plain_table
from hopstate.runs.stream import as_trained, is_temporal, new_events, own_past, temporal_task, warn_new_ids
from hopstate.streaming.live import continue_stream, empty_past
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.events import EventStream


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
                f"{new.name} begins at {shown_time(new.t[0], new.time_unit, dates)}, before the end of the run's own "
                f"data at {shown_time(past.last_time, past.time_unit or '', dates)}; give only later events, or "
                "--fresh to score them as a stream of their own, without what the run has seen"
            ) from error
        return in_given_order(columns, new, given, after.time_unit or "", dates, whole=True)
