"""Load a finished run: its model, its stream state, and new events or other data for it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hopstate.data.dates import NAIVE, as_utc_times
from hopstate.data.events import TYPE_FIELDS, EventStream, in_known_types, with_types_by_relation
from hopstate.data.graph import Graph
from hopstate.data.readers.tables import as_frame, is_array, is_frame
from hopstate.data.splits import link_keys, load_split_pairs
from hopstate.data.stream_state import StreamState
from hopstate.data.validate import SPLITS
from hopstate.datasets.registry import load_dataset
from hopstate.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    HopstateError,
    HopstateWarning,
    MissingFileError,
    idle_reset,
    muted_warnings,
)
from hopstate.io.files import cache_folder, replace_file, save_array
from hopstate.io.opening import exists, expand_home, reading
from hopstate.io.tensors import load_npy
from hopstate.methods.method import Context
from hopstate.methods.shared.node import save_npz
from hopstate.random import random_state_kept, seed_everything
from hopstate.runs.data import (
    is_table,
    load_data,
    named_dataset,
    preprocess,
    reader_kwargs,
)
from hopstate.runs.in_memory import parse_inputs, record_of, register
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.live import fingerprint, state_after_stream
from hopstate.streaming.protocols import LiveTask
from hopstate.training.checkpoint import load_checkpoint, load_weights
from hopstate.training.devices import Computation, make_fabric, within_weights
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.task import Task

if TYPE_CHECKING:
    from hopstate.methods.method import Record

PAST = "past"  # folder in a run's: the state after all of its own data
IDS_FILE = "node_ids.npy"
SPLIT_FILE = "split.npz"
_MAX_ID_BYTES = 1 << 28  # bytes of ids that are kept


@contextmanager
def load_run(
    run: str | Path,
    data: Any = None,
    read: Mapping[str, Any] | None = None,
    device: str | None = None,
    *,
    evaluation: Mapping[str, Any] | None = None,
    bare: bool = False,
    same_events: bool = False,
) -> Iterator[tuple[Computation, Task]]:
    """Yield the task of a finished run with its best weights, and how it computes, on its own or on other data.

    Args:
        run: the run folder.
        data, read: other data, and how they are read; features and labels may be tables or arrays in memory.
        device: where to compute; None takes the run's own setting.
        evaluation: other settings of evaluation.
        bare: build the task without events, for a model that continues from a stream state.
        same_events: reject events that differ from the training data, because they would replace the whole history.
    """
    saved = SavedRun.open(run)
    given = {key: as_frame(value) for key, value in (read or {}).items()}
    tables = {key: value for key, value in given.items() if is_frame(value) or is_array(value)}
    chosen, settings = saved.method, saved.method_settings()
    if device is not None:
        settings["loop"]["device"] = device
    if evaluation:
        if "evaluation" not in settings:
            raise ConfigError(f"{chosen.name} has no settings of evaluation to change")
        settings["evaluation"] |= evaluation
    # the split and tokens of other data are not kept
    where: AbstractContextManager[Path | str] = nullcontext(saved.path)
    if data is not None:
        where = TemporaryDirectory(prefix="hopstate-")
    with where as place:
        with random_state_kept():
            checkpoint = load_checkpoint(saved.weights)
            facts = saved.facts | {"multilabel": settings["read"].get("multilabel")}
            config = _config(saved, settings, data, given, tables)
            if bare:
                record: Any = _empty_stream(facts)
            elif tables or not (data is None or isinstance(data, (str, Path))):
                record = record_of(chosen.data, data, tables, reader_kwargs(config.read))
            else:
                if data is None:
                    saved.check_sources()
                with muted_warnings() if data is None else nullcontext():  # training has given them
                    record = load_data(config.data, config.read, chosen.data)
            if not bare:
                _check_record(saved, record, config.data, other=data is not None, same_events=same_events)
            if data is not None and isinstance(record, Graph) and settings.get("task") == "link":
                split_other_links(saved, record, facts["num_nodes"], Path(place), tabled=_is_table(data))
            context = Context(run=Path(place), cache=cache_folder(), trained=facts)
            loaded = _build(saved, config, record, context, checkpoint.tensors.get("model", {}))
        yield loaded


def _config(
    run: SavedRun,
    settings: dict[str, Any],
    data: Any,
    given: dict[str, Any],
    tables: dict[str, Any],
) -> Any:
    """Return the run's configuration, with other data and given options of reading in place of its own."""
    if "scale" in given:
        raise ConfigError("a trained run scales features as it was trained to; leave read.scale out")
    if data is not None:
        missing, read = settings["read"].get("missing", "error"), run.inherited_read_options(data, given)
        if missing != "error":
            read["missing"] = missing
        settings["read"] = read | given | {key: f"memory:{key}" for key in tables}
    if isinstance(data, (str, Path)):
        settings["data"] = str(data)
    return run.config(settings)


def _check_record(run: SavedRun, record: Record, name: str, *, other: bool, same_events: bool) -> None:
    """Warn of own data that have changed since training; reject other events if same_events is set."""
    if run.was_trained_on(record):
        return
    if not other:
        warnings.warn(
            f"{name} has changed since this run was trained on it; if its splits changed too, training "
            f"nodes may now count as test",
            HopstateWarning,
            stacklevel=5,
        )
    if isinstance(record, Graph):
        run.check_edge_data(record)
    if same_events and isinstance(record, EventStream):
        raise ConfigError(
            f"{record.name} contains other events than the run was trained on. Add --cold-start (cold_start=True) to "
            "evaluate them with an empty history, or score later events with `hopstate predict`"
        )


def _empty_stream(facts: Mapping[str, Any]) -> EventStream:
    """Return a stream without events that has the nodes and the time unit of a run's data."""
    none = np.empty(0, np.int64)
    kept = {name: facts[name] for name in ("num_nodes", "time_unit", "name")}
    if names := facts.get("relation_names"):
        kept |= {"relation": np.empty(0, np.int32), "relation_names": tuple(names)}
    if names := facts.get("node_type_names"):
        kept |= {"node_type": np.full(facts["num_nodes"], -1, np.int16), "node_type_names": tuple(names)}
    return EventStream(src=none, dst=none, t=none, labels=none, **kept)


def _is_table(data: Any) -> bool:
    """Return whether other data are a table, so that nodes have the user's ids."""
    if not isinstance(data, (str, Path)):
        return is_frame(data)
    return is_table(expand_home(str(data)))


def _build(
    run: SavedRun, config: Any, record: Any, context: Context, weights: dict[str, Any]
) -> tuple[Computation, Task]:
    seed_everything(config.loop.seed)
    where = str(run.weights)
    with reading(run.path, "a trained run", CheckpointError), within_weights(weights, where, record):
        record, _ = preprocess(record, config, context, edges=run.method.reads_edges(config))
        quiet = replace(config, loop=replace(config.loop, progress=False))  # training has printed these notes
        with idle_reset():
            task = run.method.task(record, quiet, context)
    if config.loop.precision == "64":
        task.model.double()  # or loading rounds the weights
    load_weights(task.model, weights, where)
    fabric = make_fabric(config.loop.device, config.loop.precision)
    task.model = fabric.setup_module(task.model).eval()
    return Computation(fabric, config.loop), task


# ---- the state of a run ----------------------------------------------------------------------------------------
def saved_state_folder(run: RunFolder) -> Path | None:
    """Return the folder of the state that `stream` saved; None if there is none."""
    from hopstate.data.stream_checkpoint import holds_stream_state

    state_folder = run.path / "state"
    return state_folder if holds_stream_state(state_folder) else None


@contextmanager
def temporal_task(run: str | Path, device: str | None = None) -> Iterator[tuple[SavedRun, Any]]:
    """Yield the run and the task of a temporal run, without its data, ready to follow a state."""
    saved = SavedRun.open(run)
    saved.require_events()
    with load_run(run, device=device, bare=True) as (computation, task), torch.no_grad(), computation.precision():
        assert isinstance(task, LiveTask)
        yield saved, task


def load_state(
    run: SavedRun, task: LiveTask[Any], state: str | Path | None = None, *, ignore_state: bool = False
) -> StreamState:
    """Return the stream state in a folder, otherwise the saved one, otherwise the state after the run's data."""
    from hopstate.data.stream_checkpoint import load_stream_state

    start = None if ignore_state else state if state is not None else saved_state_folder(run)
    if start is None:
        return state_after_run_data(run, task)
    return load_stream_state(start, model=fingerprint(task))


def state_after_run_data(run: SavedRun, task: LiveTask[Any]) -> StreamState:
    """Return the stream state after the run's data."""
    from hopstate.data.stream_checkpoint import load_stream_state

    record = _load_run_events(run)
    if not run.was_trained_on(record):
        warnings.warn(
            f"{record.source or record.name} differs from the data that this run was trained on. It is used as the "
            "run's event history",
            HopstateWarning,
            stacklevel=3,
        )
    else:
        with suppress(CheckpointError, MissingFileError):  # none, corrupt or of older weights: compute it
            return load_stream_state(run.path / PAST, model=fingerprint(task))
    return state_after_stream(task, run.preprocess(record))


def _load_run_events(run: SavedRun) -> EventStream:
    """Return a run's own events."""
    try:
        return run.load_data()
    except MissingFileError as error:
        raise MissingFileError(
            f"{error}; this run answers from its own data, which are its past: put them back, or give them again: "
            "hopstate.load(RUN, data=...)"
        ) from None


def register_data(run: SavedRun, data: Any) -> Record:
    """Read a run's own data again, and use them for the run as long as the returned record lives."""
    method = run.method
    inputs = parse_inputs(method.data, data, None, None)
    config = run.config(run.method_settings() | {"data": inputs.source})
    if inputs.record is None and not inputs.tables:
        record = load_data(config.data, config.read, method.data)
    else:
        record = record_of(method.data, data, inputs.tables, reader_kwargs(config.read))
    register(run, record)
    return record


def save_run_state(run: SavedRun, record: EventStream) -> None:
    """Save the stream state after a finished run's data, so that later commands do not recompute it."""
    from hopstate.data.stream_checkpoint import save_stream_state

    try:
        with temporal_task(run.path) as (_, task):
            save_stream_state(state_after_stream(task, run.preprocess(record)), run.path / PAST)
    except HopstateError as error:
        warnings.warn(f"the state after the run's data was not saved: {error}", HopstateWarning, stacklevel=3)


# ---- new events ----------------------------------------------------------------------------------------------
def new_events(run: SavedRun, data: Any, read: Mapping[str, Any], *, features: bool = False) -> EventStream:
    """Read events for a run with its reading options; features are not scaled."""
    from hopstate.data.readers.read_events import read_events

    if "scale" in read:
        raise ConfigError("a trained run scales features as it was trained to; leave read.scale out")
    if read.get("features") is not None and not features:
        raise ConfigError("new events bring no features of nodes; the run keeps its own: leave read.features out")
    if isinstance(data, str) and named_dataset(data) is not None:
        return load_dataset(data, **dict(read))
    facts, settings = run.facts, run.method_settings()
    config = run.config(settings | {"read": run.inherited_read_options(data, read) | dict(read)})
    options = reader_kwargs(config.read)
    if is_frame(data) or isinstance(data, (str, os.PathLike)):
        options |= {"text_ids": True} if facts.get("text_ids") else {}
        options |= {"bipartite": facts["two_sets"]} if "two_sets" in facts and "bipartite" not in read else {}
    try:
        events = read_events(data, from_start=False, **options)
    except DataError as error:  # future events may lack the label column
        label = options.pop("label_column", None)
        absent = [] if label is None else [name for name in (label, *label.split(",")) if name.strip()]
        if "label_column" in read or not any(f"no column {name.strip()!r}" in str(error) for name in absent):
            raise
        events = read_events(data, from_start=False, **options)
    for field in TYPE_FIELDS:
        known = tuple(facts.get(f"{field}_names", ()))
        events = in_known_types(events, field, known, needed=field == "relation")
    events = with_types_by_relation(events, facts.get("relation_types"), facts.get("node_type_names", ()))
    dates = run.dates
    if events.dates == NAIVE and dates != NAIVE and facts.get("time_unit"):
        events = events.with_(t=as_utc_times(events.t, events.time_unit, dates, events.name), dates=dates)
    named, table = settings["read"].get("edge_columns") or (), events.edge_table
    if "edge_columns" in read and table is not None and len(table.columns) == len(named):  # other names, same order
        events = events.with_(edge_table=replace(table, columns=tuple(named)))
    return events


def warn_new_ids(past: StreamState, new: EventStream) -> None:
    """Warn of nodes of new events that a state does not know."""
    known_ids, rows = past.node_ids, np.unique(np.concatenate([new.src, new.dst]))
    names = rows if new.node_ids is None else new.node_ids.names(rows)
    if known_ids is not None:
        known = known_ids.rows(names.astype(str) if known_ids.is_text and names.dtype.kind == "i" else names) >= 0
    elif names.dtype.kind != "i":  # an error when they are joined
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


# ---- links of another graph than the run was trained on ------------------------------------------------
def save_node_ids(run: RunFolder, record: Record) -> None:
    """Save the ids of a graph's nodes in the run, unless they equal rows or exceed `_MAX_ID_BYTES`."""
    if not isinstance(record, Graph) or record.node_ids is None:
        return
    ids = record.node_ids.ids
    width = 4 * max(map(len, ids.tolist()), default=1) if record.node_ids.is_text else 8
    if width * len(ids) <= _MAX_ID_BYTES:
        plain = ids.astype(str) if record.node_ids.is_text else ids
        replace_file(run.path / IDS_FILE, lambda part: save_array(part, plain))


def _ids_of_both(run: RunFolder, graph: Graph, num_nodes: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ids of a graph's nodes and of a run's, each in order of rows; None if the run's are not kept."""
    path = run.path / IDS_FILE
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids.ids
    if not exists(path):  # not kept, or rows
        return (ids, np.arange(num_nodes)) if ids.dtype.kind == "i" else None
    run_ids = load_npy(path, mmap=True)
    if ids.dtype.kind != run_ids.dtype.kind:  # numbers may be written as texts
        ids, run_ids = ids.astype(str), run_ids.astype(str)
    return ids, run_ids


def split_other_links(run: RunFolder, graph: Graph, num_nodes: int, into: Path, *, tabled: bool) -> None:
    """Write the split of another graph's links for a link run, and warn of it.

    If the graph holds most of the training links, it is a later version of the run's graph. Then validation links stay,
    new links are the test split (or the old test links if there are none), and the others are messages. A different
    graph is split again, and nothing is written.

    Args:
        run: the run.
        graph: the other graph.
        num_nodes: nodes of the run's own.
        into: the folder that gets split.npz.
        tabled: whether the graph is a table, so that nodes have the user's ids.

    Raises:
        DataError: the graph shares the run's nodes but not its links, so it is probably a file of pairs.
    """
    both = _ids_of_both(run, graph, num_nodes)
    known = None if both is None else _run_link_keys(run, graph, *both)
    if both is None or known is None:
        _warn_new_split(graph)
        return
    sources, targets = graph.edge_index()
    loop = sources == targets
    every = np.unique(link_keys(np.stack([sources, targets], 1)[~loop], graph.num_nodes))
    there = {name: key[np.isin(key, every)] for name, key in known.items()}
    new = every[~np.isin(every, np.concatenate(list(there.values())))]
    if len(there["train"]) * 2 >= len(known["train"]) and len(there["val"]):
        split = {"val": there["val"], "test": new if len(new) else there["test"]}
        pairs = {name: np.stack([key // graph.num_nodes, key % graph.num_nodes], 1) for name, key in split.items()}
        replace_file(into / SPLIT_FILE, lambda part: save_npz(part, pairs))
        if len(new):
            warnings.warn(
                f"{len(new):,} of {len(every):,} links of {graph.name} are new to the run: they are its test, and the "
                "others are messages, but those of the run's validation",
                HopstateWarning,
                stacklevel=5,
            )
        return
    num_shared = int(np.isin(both[0], both[1]).sum())
    if tabled and num_shared * 2 >= graph.num_nodes:
        raise DataError(
            f"{graph.name} has {len(there['train']):,} of the {len(known['train']):,} links that the run was trained "
            f"on, and {num_shared:,} of its {graph.num_nodes:,} nodes: it is not a later version of the run's graph. "
            f"Score pairs with `hopstate score {run.path} --pairs FILE`; for a later version, give old and new links"
        )
    _warn_new_split(graph)


def _warn_new_split(graph: Graph) -> None:
    warnings.warn(
        f"the links of {graph.name} are split anew, so those of any split may have been trained on; `hopstate score` "
        "and `rank` ask the run about pairs",
        HopstateWarning,
        stacklevel=6,
    )


def _run_link_keys(run: RunFolder, graph: Graph, ids: np.ndarray, run_ids: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return split → keys of a run's links in a graph, -1 for links whose nodes it lacks; None without a split."""
    if not exists(run.path / SPLIT_FILE):
        return None
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], run_ids), max(len(ids) - 1, 0))
    row = np.where(ids[order][at] == run_ids, order[at], -1) if len(ids) else np.full(len(run_ids), -1)
    keys = {}
    kept = load_split_pairs(run.path / SPLIT_FILE, len(run_ids))
    for name in SPLITS:
        pairs = row[kept[name]] if name in kept else np.empty((0, 2), np.int64)
        keys[name] = np.where((pairs >= 0).all(1), link_keys(pairs, graph.num_nodes), -1)
    return keys
