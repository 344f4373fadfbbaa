"""Train a method (`fit`), measure what that would cost (`dry_run`) and open a run folder (`load`)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import torch

from hopstate.data.events import EventStream
from hopstate.errors import CheckpointError, ConfigError, HopstateError, idle_reset
from hopstate.io.files import (
    cache_folder,
    locked,
    make_folder,
    named_errors,
    remove_file,
    removed_if_empty,
    replace_file,
)
from hopstate.methods import get_method
from hopstate.methods.config import as_dict, parse_given
from hopstate.methods.method import Context, Method
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.random import random_state_kept
from hopstate.runs.data import (
    data_metrics,
    describe,
    load_data,
    preprocess,
    reader_kwargs,
    reading_notes,
    relation_notes,
    scaling_notes,
)
from hopstate.runs.in_memory import parse_inputs, record_of, save_inputs
from hopstate.runs.inference import evaluate, node_outputs, predict, score_stream
from hopstate.runs.load import register_data, save_node_ids, save_run_state
from hopstate.runs.model import TrainedModel, embeddings
from hopstate.runs.queries import rank, save_calibration, score
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.devices import Ranks, bare, check_task, current_ranks, make_fabric, peak_memory_mb
from hopstate.training.loggers import check_loggers, remote_loggers
from hopstate.training.progress import note
from hopstate.training.run_folder import LEFT, ReadOnlyRunFolder, RunFolder, baselines_of, flatten
from hopstate.training.tasks.link import LinkTask
from hopstate.training.trainer import SPLITS, Trainer, seed_everything

if TYPE_CHECKING:
    from hopstate.methods.method import Record, RunConfig
    from hopstate.training.tasks.task import Task


__all__ = [
    "Run",
    "dry_run",
    "evaluate",
    "fit",
    "fit_config",
    "load",
    "output_folder",
    "predict",
    "score_stream",
]


P = ParamSpec("P")
R = TypeVar("R")


def _of_run(function: Callable[Concatenate[str | Path, P], R]) -> Callable[Concatenate[Run, P], R]:
    """Return a function of a run folder as a method of `Run` with the same other arguments."""

    @functools.wraps(function)
    def method(self: Run, *args: P.args, **options: P.kwargs) -> R:
        return function(self.path, *args, **options)

    return method


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, method and metrics.

    Its methods `embeddings`, `evaluate`, `node_outputs`, `predict`, `rank`, `score` and `stream` are the
    functions of these names, with the run in place of its folder.

    Args:
        path: the run folder.
        method: name of the method.
        metrics: split → metric → value at the best epoch; empty if interrupted.
        interrupted: whether Ctrl-C stopped it. `fit` with resume=True continues it.
        best_epoch: the epoch selected on validation, from 1.
        baselines: name → test metrics of baselines: majority and a linear model, or recency, EdgeBank and trees.
        record: data that were passed in memory, which this process needs to apply the run.

    Example:
        >>> run = hopstate.fit("recency", events, loop__progress=False)
        >>> sorted(run.metrics)
        ['test', 'train', 'val']
    """

    path: Path
    method: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    interrupted: bool = False
    best_epoch: int = 0
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    record: Record | None = field(default=None, repr=False, compare=False)

    @property
    def model(self) -> TrainedModel:
        """The trained model as a `torch.nn.Module` that takes the user's ids; see `hopstate.runs.model`."""
        return TrainedModel(self.path)

    embeddings = _of_run(embeddings)
    evaluate = _of_run(evaluate)
    node_outputs = _of_run(node_outputs)
    predict = _of_run(predict)
    rank = _of_run(rank)
    score = _of_run(score)
    stream = _of_run(score_stream)

    def save_pretrained(self, folder: str | Path, *, ids: bool = True) -> Path:
        """Write the run as a folder for others, with a card; see `hopstate.runs.hub`.

        Args:
            folder: a new or empty one, or one that was written so before.
            ids: whether the ids of a graph's nodes go along.
        """
        from hopstate.runs.hub import save_pretrained

        return save_pretrained(self.path, folder, ids=ids)


@random_state_kept()
def fit(
    method: str,
    data: Any,
    *,
    features: Any = None,
    labels: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    keep_data: bool | None = None,
    config: Mapping[str, Any] | None = None,
    **settings: Any,  # whatever the method's configuration has: checked by its parser, at run time
) -> Run:
    """Train a method on data and leave a run folder.

    Args:
        method: the name of a method, such as "nagphormer" or "gcn"; or a custom method, "module:NAME".
        data: a file, a folder, the name of a dataset; a table of edges or events of pandas or pyarrow, read as the
            same table in a CSV file; a torch-geometric `Data` or `TemporalData`, a scipy sparse matrix, a
            `hopstate.Graph` or a `hopstate.EventStream`.
        features, labels: node features and labels for a table of edges: tables, arrays with one row per node, or files.
            The same as read={"features": ...}. For events, features is an (N, F) array.
        out: the run folder; by default a new one under runs/.
        resume: continue the run in out. The result is bit-identical to an uninterrupted run on one machine with equal
            library versions and thread count; otherwise it is equal up to rounding, with a warning. Default: False.
        keep_data: whether data given in memory are kept in the folder data of the run, so that it can be applied later
            without them. Default: save up to 1 GiB. This process can always apply it while the `Run` exists.
        config: settings as a nested mapping, e.g. of a YAML file.
        settings: more settings, nested or with dots written as double underscores (loop__epochs=5).

    Returns:
        The run; its metrics are those of the epoch chosen on validation.

    Raises:
        ConfigError: a setting is unknown or invalid, or out already holds a run.
        BusyError: another process is training in out.
        DataError: the data are invalid.
        CheckpointError: out holds a checkpoint of another run.

    Example:
        >>> run = hopstate.fit("recency", events, loop__progress=False)
        >>> sorted(run.metrics)
        ['test', 'train', 'val']
    """
    chosen = get_method(method)
    inputs = parse_inputs(chosen.data, data, features, labels)
    flat_settings = flatten({**(config or {}), **{key.replace("__", "."): value for key, value in settings.items()}})
    parse = parse_given(chosen, {**flat_settings, **inputs.read, "data": inputs.source})
    in_memory = inputs.record is not None or bool(inputs.tables)
    record = None
    if in_memory and not resume:
        with idle_reset():
            record = record_of(chosen.data, data, inputs.tables, reader_kwargs(parse({}).read))
    built, record, automatic = resolve_config(chosen, parse, out=out, resume=resume, record=record)
    if in_memory and resume:
        record = record_of(chosen.data, data, inputs.tables, reader_kwargs(built.read))
    save = partial(save_inputs, tables=inputs.tables, keep=keep_data) if in_memory else None
    return fit_config(
        chosen, built, out=out, resume=resume, record=record, with_baselines=True, save_data=save, automatic=automatic
    )


def resolve_config(
    method: Method,
    parse: Callable[[Mapping[str, Any]], Any],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    record: Record | None = None,
    automatic: Mapping[str, Any] | None = None,
    auto: bool = True,
) -> tuple[Any, Any, Mapping[str, Any]]:
    """Return the configuration of a run, its data if they were loaded, and the automatic settings that were chosen.

    Settings that the user does not give come from the resumed run, otherwise from the automatic defaults for the data,
    otherwise from the method's defaults.

    `parse` maps defaults by dotted name to a configuration. `automatic` are those chosen for another run, to use the
    same for several. Without `auto` there are none, unless the run begins from another (`init`).
    """
    if resume and out is None:
        raise ConfigError("resume needs the folder of the run to continue: give --out RUN")
    # Lenient, to read the data by: automatic defaults may enable a setting that has no effect now. What is returned is
    # parsed again and refuses settings without effect.
    with idle_reset():
        config = parse({})
    check_loggers(config.loop.logger)
    if resume and out is not None and (Path(out) / "config.json").is_file():
        saved = SavedRun(out)
        stored, known = flatten(saved.settings()), flatten(as_dict(config))
        saved.check_sources([name for name, value in known.items() if value is None])
        resumed = parse({k: v for k, v in stored.items() if k in known})
        if remote := remote_loggers(resumed.loop.logger) - remote_loggers(config.loop.logger):
            raise ConfigError(
                f"{saved.path / 'config.json'} names loop.logger={resumed.loop.logger}, and "
                f"{', '.join(sorted(remote))} may open a network address. Give it again: --loop.logger "
                f"{resumed.loop.logger}, or --loop.logger none"
            )
        return resumed, record, {}
    from_another_run = isinstance(config, EventNodeRun) and config.init is not None
    if method.auto_config is None or not (auto or from_another_run):
        return parse({}), record, {}
    record = load_data(config.data, config.read, method.data) if record is None else record
    chosen = automatic or method.auto_config(record, config, data_metrics(config.data))
    resolved = parse(chosen)
    settings = flatten(as_dict(resolved))
    text = ", ".join(f"{key}={settings[key]}" for key in sorted(chosen) if settings[key] == chosen[key])
    if text and not automatic:
        note(resolved.loop, f"{method.name}, automatic settings: {text}")
    return resolved, record, chosen


@random_state_kept()
def fit_config(
    method: Method,
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    record: Record | None = None,
    splits: tuple[str, ...] = SPLITS,
    log: Callable[[str], None] | None = None,
    reported_notes: set[str] | None = None,
    with_baselines: bool = False,
    save_data: Callable[[RunFolder, Any], str] | None = None,
    automatic: Mapping[str, Any] | None = None,
) -> Run:
    """Train with a method's own configuration dataclass.

    Args:
        method: the method.
        config: its configuration.
        out, resume: as in `fit`.
        record: replaces reading config.data.
        splits: what the chosen weights are evaluated on; a search leaves the test split out.
        log: called with each note on the data. Default: show it as progress.
        reported_notes: notes that earlier runs have reported, which are skipped; new ones are added.
        with_baselines: also evaluate the baselines of the method and write baselines.json. Default: False.
        save_data: saves a record that was given in memory with the run, or returns why not; see
            `hopstate.runs.in_memory.save_inputs`.
        automatic: automatic defaults, recorded in data.json. A resumed run keeps its own.

    Raises:
        BusyError: another process is training in that folder.
    """
    if resume and out is None:
        raise ConfigError("resume needs the folder of the run to continue: give --out RUN")
    check_loggers(config.loop.logger)
    record = load_data(config.data, config.read, method.data) if record is None else record
    ranks = current_ranks()
    if ranks.size > 1:
        _connect(method, config, record, ranks)
    with _locked_run(out, method.name, config.data, ranks) as folder:
        run, unsaved = (RunFolder if ranks.is_first else ReadOnlyRunFolder)(folder), ""
        if ranks.is_first:
            has_trained_run = (run.path / "data.json").is_file() and not run.never_trained()
            if has_trained_run and run.settings().get("method") == method.name:
                SavedRun(folder).require_same_data(record)  # before anything of the run is rewritten
            RunFolder.create(folder, stored_config(method, config), resume=resume)
            save_node_ids(run, record)
            unsaved = save_data(run, record) if save_data is not None else ""
        else:
            ranks.barrier()  # what rank 0 has made ready is there
            config = replace(config, loop=replace(config.loop, progress=False, logger="none"))
        seed_everything(config.loop.seed)
        context = Context(run=run.path, cache=cache_folder(), metrics=data_metrics(config.data))
        ready, scalers = preprocess(record, config, context, edges=method.reads_edges(config))
        for text in (
            *reading_notes(ready),
            *relation_notes(ready, config),
            *scaling_notes(scalers, record),
            *([unsaved] if unsaved else ()),
        ):
            if reported_notes is not None and text in reported_notes:
                continue
            log(f"note: {text}") if log is not None else note(config.loop, f"note: {text}")
            if reported_notes is not None:
                reported_notes.add(text)
        with idle_reset() if resume else contextlib.nullcontext():
            task = method.task(ready, config, context)
        check_task(ranks, task, method.name)  # before the others begin
        if resume and (run.path / "data.json").is_file():
            chosen = SavedRun(folder).facts.get("automatic", [])
        else:
            settings = flatten(as_dict(config))
            chosen = sorted(key for key, value in (automatic or {}).items() if settings.get(key) == value)
        facts = describe(ready, task, context, scalers, record.content_hash)
        run.write_json("data.json", facts | {"automatic": chosen})
        if ranks.is_first:
            ranks.barrier()
        trainer = Trainer(task, config.loop, run, method=method.name, data_hash=record.content_hash, splits=splits)
        result = trainer.fit(resume=resume)
        evaluate_baselines = with_baselines and "test" in result.metrics and ranks.is_first
        baselines = _baselines(method, ready, config, context, task) if evaluate_baselines else {}
        if evaluate_baselines and isinstance(record, EventStream) and isinstance(bare(task.model), MemoryModel):
            save_run_state(SavedRun(folder), record)
        if isinstance(task, LinkTask) and "val" in result.metrics and ranks.is_first:
            with torch.no_grad(), trainer.precision():
                save_calibration(SavedRun(folder), task)
        best, in_memory = result.progress.best_epoch, record if save_data is not None else None
        return Run(run.path, method.name, result.metrics, result.interrupted, best, baselines, in_memory)


@dataclass(frozen=True)
class DryRun:
    """What a run would cost.

    Args:
        parameters: trainable numbers of the model.
        steps: optimizer steps of an epoch; 0 for a method that is not trained by steps.
        epochs: the most epochs that the run would train.
        seconds: of an epoch's steps, validation excluded; None for a method that is not trained by steps.
        memory_mb: largest resident memory of this process so far, data included, in 10^6 bytes; None if the system
            does not report it.
        device: that was measured.
        device_memory_mb: largest memory that torch allocated on a GPU, in 10^6 bytes; None on a CPU.
    """

    parameters: int
    steps: int
    epochs: int
    seconds: float | None
    memory_mb: float | None
    device: str
    device_memory_mb: float | None


def dry_run(method: Method, config: RunConfig, record: Record | None = None) -> DryRun:
    """Prepare data and model as `fit` does, measure a few training steps, and leave nothing."""
    record = load_data(config.data, config.read, method.data) if record is None else record
    with random_state_kept(config.loop.seed), TemporaryDirectory(prefix="hopstate-") as folder:
        context = Context(run=Path(folder), cache=cache_folder(), metrics=data_metrics(config.data))
        ready, _ = preprocess(record, config, context, edges=method.reads_edges(config))
        task = method.task(ready, config, context)
        trainer = Trainer(task, config.loop, RunFolder(folder), method=method.name)
        seconds, steps = trainer.measured_epoch()
        device = trainer.fabric.device
        on_gpu = torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None
        size = sum(p.numel() for p in task.model.parameters() if p.requires_grad)
        return DryRun(size, steps, config.loop.epochs, seconds, peak_memory_mb(), str(device), on_gpu)


def _connect(method: Method, config: RunConfig, record: Record, ranks: Ranks) -> None:
    """Connect the ranks of torchrun, and check that they are to train one model on one record."""
    make_fabric(config.loop.device, config.loop.precision)
    ranks.check_same("settings", stored_config(method, config), "start all with one command")
    ranks.check_same("data", record.content_hash, f"{config.data} must hold the same on every machine")


def _baselines(
    method: Method, ready: Record, config: RunConfig, context: Context, task: Task
) -> dict[str, dict[str, float]]:
    """Return the test metrics of the baselines and write them to baselines.json."""
    if method.baselines is None:
        return {}
    try:
        baselines = method.baselines(ready, config, context, task)
    except HopstateError as error:  # the run itself is done
        note(config.loop, f"note: no baselines: {error}")
        return {}
    baselines.pop(method.name, None)  # a method is not its own baseline
    RunFolder(context.run).write_json("baselines.json", baselines)
    return baselines_of(baselines, "test")


def stored_config(method: Method, config: RunConfig) -> dict[str, Any]:
    """Return a method's configuration as a run folder holds it; paths are absolute, so that it works from anywhere."""
    stored = as_dict(config) | {"method": method.name}
    for holder, keys in ((stored, ("data", "init")), (stored["read"], ("features", "labels"))):
        for key in keys:
            if isinstance(holder.get(key), str) and Path(holder[key]).exists():
                holder[key] = str(Path(holder[key]).resolve())
    return stored


def load(path: str | Path, data: Any = None) -> Run:
    """Return a finished run from its folder.

    Args:
        path: the run folder.
        data: the run's own data, if they are not where its folder says: a file, a table or a record. This process uses
            them while the `Run` exists.

    Raises:
        MissingFileError: the folder does not exist.
        CheckpointError: the folder is not a run, or the run is not finished.

    Example:
        >>> hopstate.load(run.path).method
        'recency'
    """
    folder = SavedRun.open(path)
    if not (folder.path / "result.json").is_file():
        raise CheckpointError(f"{path} was not finished; continue it with resume (--resume --out {path})")
    result = folder.result()
    record = None if data is None else register_data(folder, data)
    return Run(folder.path, result["method"], result["metrics"], False, result["best_epoch"], record=record)


# ---- where a run begins --------------------------------------------------------------------------------------------
@contextlib.contextmanager
def output_folder(out: str | Path | None, method: str, data: str) -> Iterator[Path]:
    """Yield the folder out, or a new one under runs/, which is removed if it is empty after an error."""
    if out is not None:
        yield Path(out)
        return
    stem = f"{method}-{Path(data).stem or 'data'}".replace(":", "-")
    base = Path(os.environ.get("HOPSTATE_RUNS", "runs")) / f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    with removed_if_empty(base.parent):
        folder = _new_folder(base)
        try:
            yield folder
        except BaseException:
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()
            raise


def _new_folder(base: Path) -> Path:
    """Create base, or base-2, base-3, ... if it exists."""
    make_folder(base.parent)
    for number in itertools.count(1):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        with named_errors(path), contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError


@contextlib.contextmanager
def _locked_run(out: str | Path | None, method: str, data: str, ranks: Ranks) -> Iterator[Path]:
    """Yield the locked folder of a new run; restore the folder if the run fails to start.

    Rank 0 does all that; the others take the folder that it broadcasts.
    """
    if not ranks.is_first:
        yield Path(ranks.broadcast(str))
        return
    with output_folder(out, method, data) as folder, locked(folder), _restored_on_failure(RunFolder(folder)):
        ranks.broadcast(lambda: str(folder))
        yield folder


@contextlib.contextmanager
def _restored_on_failure(run: RunFolder) -> Iterator[None]:
    """Restore a folder if an error occurs before the first epoch or checkpoint."""
    progress, folders, files = _progress(run), _folders(run.path), _run_files(run.path)
    texts = {path: path.read_bytes() for path in files if path.suffix == ".json" and path.parent == run.path}
    try:
        yield
    except Exception:
        if _progress(run) == progress:
            with contextlib.suppress(OSError, HopstateError):  # of a failing disk; the first error is raised
                for path in _run_files(run.path) - files:
                    remove_file(path)
                for path, text in texts.items():
                    replace_file(path, partial(Path.write_bytes, data=text))
                for path in sorted(_folders(run.path) - folders, reverse=True):
                    with contextlib.suppress(OSError):  # it holds something
                        path.rmdir()
        raise


def _run_files(folder: Path) -> set[Path]:
    """Return the files that a run may create before its first step."""
    patterns = (*LEFT, "metrics.jsonl", "metrics.csv", "tensorboard/*", "logger-*.json")
    paths = (path for pattern in patterns for path in folder.glob(pattern))
    return {path for path in paths if path.is_file() and not path.is_symlink()}


def _folders(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_dir()}


def _progress(run: RunFolder) -> list[int]:
    """Return a mark of training progress: times of checkpoint and result, size of the metrics."""
    times = [path.stat().st_mtime_ns for path in (run.checkpoint, run.path / "result.json") if path.is_file()]
    rows = run.path / "metrics.jsonl"
    return [*times, rows.stat().st_size if rows.is_file() else 0]
