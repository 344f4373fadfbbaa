"""What the command line and Python users both call: fit, evaluate, predict, stream."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import CheckpointError, ConfigError, HopstateError, TimeOrderError, idle_reset
from hopstate.io.cache import cache_folder
from hopstate.io.files import check_writable, make_folder, named_errors
from hopstate.io.lock import locked
from hopstate.io.table import check_table_path, write_table
from hopstate.methods import get_method
from hopstate.methods.method import Context, Method
from hopstate.methods.settings import as_dict, as_made, config_from, parse_given, resumed
from hopstate.runs.data import check_same_data, data_metrics, describe, idle_of, load_data, settings_of_run, settle
from hopstate.runs.going_on import (
    as_trained,
    check_temporal,
    is_own,
    is_temporal,
    kept_state,
    name_new_ids,
    new_events,
    own_past,
)
from hopstate.runs.load import trained
from hopstate.runs.prepare import notes_of, prepared
from hopstate.training.progress import note
from hopstate.training.room import within_memory
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import SPLITS, Trainer, seed_everything

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A run folder after `fit`: where it is, what it was and what it reached.

    Args:
        path: the run folder.
        method: name of the method.
        metrics: split → metric → value of the chosen epoch; empty where interrupted.
        interrupted: Ctrl-C stopped it; fit with resume=True continues.
        best_epoch: the epoch that validation chose, from 1.
        floors: name → test metrics of what needs no such model: majority and a perceptron; recency, EdgeBank, trees.
    """

    path: Path
    method: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    interrupted: bool = False
    best_epoch: int = 0
    floors: dict[str, dict[str, float]] = field(default_factory=dict)

    def evaluate(self, data: Any = None, **options: Any) -> dict[str, float]:
        """Return the metrics of a split; see `hopstate.evaluate` for the options."""
        return evaluate(self.path, data=data, **options)

    def predict(self, data: Any = None, **options: Any) -> pd.DataFrame:
        """Return predictions with the user's own ids; see `hopstate.predict` for the options."""
        return predict(self.path, data=data, **options)

    def stream(self, data: Any, **options: Any) -> pd.DataFrame:
        """Return scores of new events and keep the state after them; see `hopstate.stream` for the options."""
        return stream(self.path, data, **options)

    def node_outputs(self, nodes: Any, t: Any = None, **options: Any) -> pd.DataFrame:
        """Return the chances of the classes of nodes at times; see `hopstate.node_outputs` for the options."""
        from hopstate.runs.asking import node_outputs

        return node_outputs(self.path, nodes, t, **options)


def fit(
    method: str,
    data: Any,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Train a method on data and leave a run folder.

    Args:
        method: "nagphormer", "gcn", ...; `hopstate.methods.MODULES` lists them; or one of your own, "module:NAME".
        data: a file, a folder, the name of a data set, or a record such as `hopstate.Graph`.
        out: the run folder; by default a new one under runs/.
        resume: continue the run in out where it stopped: with the bits of one that never stopped on the same machine,
            library versions and number of threads, else equal to rounding, which a warning then says.
        config: settings as a nested mapping, e.g. of a YAML file.
        settings: more settings, nested or with dots written as double underscores (loop__epochs=5).

    Returns:
        The run; its metrics are those of the epoch chosen on validation.

    Raises:
        ConfigError: a setting does not exist or cannot work, or out is taken.
        BusyError: another process is training in out.
        DataError: the data break a promise; the message says which, where and what to do.
        CheckpointError: out holds a checkpoint of something else.
    """
    chosen = get_method(method)
    given = {**(config or {}), **{key.replace("__", "."): value for key, value in settings.items()}}
    source = data if isinstance(data, (str, Path)) else f"memory:{getattr(data, 'name', 'data')}"
    parse = parse_given(chosen, {**given, "data": str(source)})
    held = None if isinstance(data, (str, Path)) else data
    built, record = settle(chosen, parse, out=out, resume=resume, record=held)
    return fit_config(chosen, built, out=out, resume=resume, record=record, floors=True)


def fit_config(
    method: Method,
    config: Any,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    record: Any = None,
    splits: tuple[str, ...] = SPLITS,
    say: Callable[[str], None] | None = None,
    floors: bool = False,
) -> Run:
    """Train with a method's own configuration dataclass.

    Args:
        method: the method.
        config: its configuration.
        out, resume: as in `fit`.
        record: replaces reading config.data.
        splits: what the chosen weights are evaluated on; a search leaves the test split out.
        say: told, a line each, how the data were read and made ready; None shows it where progress is shown.
        floors: also judge what the method must stand above, into floors.json.

    Raises:
        BusyError: another process is training in that folder.
    """
    if resume and out is None:
        raise ConfigError("resume needs the folder of the run to continue: give --out RUN")
    if resume and (Path(str(out)) / "config.json").is_file():
        config = resumed(method, config, RunFolder(str(out)).read_json("config.json"))
    defaults, idle = None, {}
    if resume:
        held = RunFolder(str(out)).settings()
        idle = idle_of(method, held) if held.get("method") == method.name else {}
        config = as_made(config, held)
        defaults = stored_config(method, as_made(config_from(method, {"data": config.data, **method.earlier}), held))
    record = load_data(config.data, config.read, method.data) if record is None else record
    folder = out or new_folder(method.name, config.data)
    with locked(folder):
        run = RunFolder.create(folder, stored_config(method, config), resume=resume, defaults=defaults, idle=idle)
        seed_everything(config.loop.seed)
        context = Context(run=run.path, cache=cache_folder(), metrics=data_metrics(config.data))
        if (run.path / "data.json").is_file():  # before anything of the run is rewritten
            check_same_data(run, record)
        ready, features = prepared(record, config, context, edges=method.reads_edges(config))
        for text in (*_notes(record), *notes_of(features, record)):
            say(f"note: {text}") if say is not None else note(config.loop, f"note: {text}")
        with within_memory(), idle_reset() if resume else contextlib.nullcontext():
            task = method.build(ready, config, context)
        run.write_json("data.json", describe(ready, task, context, features, record.content_hash))
        trainer = Trainer(task, config.loop, run, method=method.name, data_hash=record.content_hash, splits=splits)
        result = trainer.fit(resume=resume)
        found: dict[str, dict[str, float]] = {}
        if floors and method.floors is not None and "test" in result.metrics:
            try:
                found = method.floors(ready, config, context, task)
                found.pop(method.name, None)  # a method is no floor of its own
                run.write_json("floors.json", found)
            except HopstateError as error:  # the run itself is done
                note(config.loop, f"note: no floor to stand beside: {error}")
        return Run(run.path, method.name, result.metrics, result.interrupted, result.progress.best_epoch, found)


def _notes(record: Any) -> tuple[str, ...]:
    """Return what reading a record left out, a sentence each."""
    return tuple(getattr(getattr(record, "union", record), "notes", ()))


def stored_config(method: Method, config: Any) -> dict[str, Any]:
    """Return a method's configuration as a run folder holds it; paths are absolute, so that it works from anywhere."""
    stored = as_dict(config) | {"method": method.name}
    for holder, key in (
        (stored, "data"),
        (stored, "init"),
        *((stored["read"], key) for key in ("features", "labels", "x")),
    ):
        if isinstance(holder.get(key), str) and Path(holder[key]).exists():
            holder[key] = str(Path(holder[key]).resolve())
    return stored


def open_run(path: str | Path) -> Run:
    """Return a finished run from its folder.

    Raises:
        MissingFileError: no such folder.
        CheckpointError: it holds no run, or the run was not finished.
    """
    folder = RunFolder.open(path)
    if not (folder.path / "result.json").is_file():
        raise CheckpointError(f"{path} was not finished; continue it with resume (--resume --out {path})")
    result = folder.result()
    return Run(folder.path, result["method"], result["metrics"], False, result["best_epoch"])


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
    with trained(run, data, read, device, evaluation=evaluation, own=own, method=method) as (trainer, _):
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
    past and from the earlier events of the file, as `stream` with fresh scores them, and nothing is kept. They need no
    split, are read as the run's own files were, and ids that the run has not met are named by a warning.

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
        raw: as in `hopstate.io.table.write_table`.

    Raises:
        FormatError: out has another extension; nothing is computed.
        TimeOrderError: other events begin before the run's own end, and fresh is off.
        ConfigError: a split of later events, which have none.
    """
    import pandas as pd
    import torch

    if out is not None:
        check_table_path(out)  # before the work, not after it
    folder = RunFolder.open(run)
    settings_of_run(folder, method)  # before anything of it is used, its method is known
    columns = None if data is None else _later(folder, data, split, read, fresh, own, device)
    if columns is None:
        with trained(run, data, read, device, method=method) as (trainer, task), torch.no_grad(), trainer.arithmetic():
            task.model.eval()
            columns = task.predict(split)
    table = pd.DataFrame(columns)
    if out is not None:
        write_table(table, Path(out), raw=raw)
    return table


def _later(
    folder: RunFolder, data: Any, split: str, read: Mapping[str, Any] | None, fresh: bool, own: Any, device: str | None
) -> dict[str, Any] | None:
    """Return predictions of events that follow a run's past, None where the data are no such events."""
    import torch

    from hopstate.streaming.live import empty_past, go_on

    if not is_temporal(folder):
        return None
    new = new_events(folder, data, read or {}, features=fresh)
    if (fresh and split != "all") or is_own(folder, new):
        return None
    if split != "all":
        raise ConfigError(f"events after the run's own have no {split} part; leave --split out, or give --fresh")
    new = as_trained(folder, new)
    with trained(folder.path, own, device=device, bare=True) as (trainer, task), torch.no_grad(), trainer.arithmetic():
        past = empty_past(task, new) if fresh else own_past(folder, task, own)
        if not fresh:
            name_new_ids(past, new)
        try:
            return go_on(task, past, new, again=True)[0]
        except TimeOrderError as error:
            raise TimeOrderError(
                f"{new.name} begins at {new.t[0]}, before the end of the run's own data at {past.last_time}; give only "
                "later events, or --fresh to score them as a stream of their own, without what the run has seen"
            ) from error


def stream(
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
        raw: as in `hopstate.io.table.write_table`.

    Returns:
        Columns src, dst, t (in the unit of the run's own data), score; of a method for nodes, node, t, and score, the
        chance of the second of two classes, or prediction and p_<class>.

    Raises:
        ConfigError: the run's method does not work on event streams, or an option of read that it does not have.
        BusyError: somebody else is writing the state, or trains the run.
        TimeOrderError, DataError, ShapeError, CheckpointError: see `hopstate.streaming.live.go_on`; the kept state
            stays as it was.
        StorageError: the state or the scores could not be written; then the state stays as it was.
    """
    import pandas as pd
    import torch

    from hopstate.data.past_store import check_folder, load_past, save_past
    from hopstate.streaming.live import fingerprint, go_on

    folder = RunFolder.open(run)
    check_temporal(folder, method)
    target = Path(save) if save is not None else folder.path / "state"
    check_folder(target)
    if out is not None:
        check_table_path(out)
        check_writable(Path(out))
    own_state = os.path.realpath(target) == os.path.realpath(folder.path / "state")
    with (
        locked(folder.path if own_state else target, "the state of a live run"),  # from reading it to replacing it
        trained(run, own, device=device, bare=True, method=method) as (trainer, task),
        torch.no_grad(),
        trainer.arithmetic(),
    ):
        new = as_trained(folder, new_events(folder, data, read or {}))
        start = None if fresh else state if state is not None else kept_state(folder)
        past = own_past(folder, task, own) if start is None else load_past(start, model=fingerprint(task))
        columns, after = go_on(task, past, new, again=again)
        table = pd.DataFrame(columns)
        save_past(after, target, before=lambda: None if out is None else write_table(table, Path(out), raw=raw))
    return table


def new_folder(method: str, data: str) -> Path:
    """Return a new folder under runs/, named by method, data and time."""
    stem = f"{method}-{Path(data).stem or 'data'}".replace(":", "-")
    base = Path(os.environ.get("HOPSTATE_RUNS", "runs")) / f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = base, 1
    make_folder(base.parent)
    while True:
        with named_errors(path), contextlib.suppress(FileExistsError):
            path.mkdir()  # two processes of one second get two folders
            return path
        number += 1
        path = base.with_name(f"{base.name}-{number}")
