"""Load, preprocess and describe the data of a run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hopstate.data.events import EventStream, types_by_relation
from hopstate.data.graph import Graph, with_codes
from hopstate.data.graph_set import GraphSet
from hopstate.data.preprocessing import DATE, OTHER, FeatureScaler, FeatureTable
from hopstate.data.splits import edges_of_links
from hopstate.datasets.registry import Dataset, find_dataset, load_dataset
from hopstate.errors import ConfigError, DataError, FormatError, HopstateWarning
from hopstate.io.opening import (
    byte_limit,
    exists,
)
from hopstate.methods.method import Context, FileOptions, ReadOptions, RunConfig, SetRun, SplitConfig
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.methods.shared.link import EventReadOptions, EventRun
from hopstate.methods.shared.node import NodeRun, split_rows
from hopstate.methods.shared.static_link import edge_split
from hopstate.runs.in_memory import load_saved
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.target import target_record
from hopstate.training.tasks.task import Task, TaskFacts

if TYPE_CHECKING:
    from hopstate.methods.method import Record


def fit_scalers(record: Graph | GraphSet | EventStream, config: RunConfig, edges: bool) -> dict[str, FeatureScaler]:
    """Return scales of a record's features by name (x, edge_attr), fitted to its training part."""
    holder, read = record.union if isinstance(record, GraphSet) else record, cast("ReadOptions", config.read)
    kind = read.scale if read.scale != "auto" else "none" if holder.published else "standard"
    tables, meant = _tables(holder), []
    for name, table in tables.items():
        values = getattr(holder, name)
        if values is None or not values.shape[1] or (name == "edge_attr" and isinstance(holder, Graph) and not edges):
            continue
        if kind != "none" or table is not None:
            meant.append(name)
    rows = _training_rows(record, config, meant) if meant else {}
    scalers = {
        name: _fit(getattr(holder, name), tables[name], rows_of_name, kind, read)
        for name, rows_of_name in rows.items()
        if len(rows_of_name)
    }
    return {name: one.sums() for name, one in scalers.items()} if isinstance(record, GraphSet) else scalers


def _training_rows(
    record: Graph | GraphSet | EventStream, config: RunConfig, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return the training rows of features by name."""
    if isinstance(record, GraphSet):
        ids = cast("SetRun", config).training_graphs(record)
        rows = {"x": lambda: record.rows(ids)[0], "edge_attr": lambda: record.edges(ids)}
    elif isinstance(record, EventStream):
        train = cast("EventRun", config).split.of(record).train
        ends = (record.src[train], record.dst[train]) if record.has_node_features else ()
        rows = {
            "x": lambda: _with_other_types(record, np.unique(np.concatenate([train[:0], *ends]))),
            "edge_attr": lambda: record.additions(train),
        }
    elif isinstance(config, NodeRun) and config.task == "link":
        links = config.link, config.split
        rows = {
            "x": lambda: np.arange(record.num_nodes),
            "edge_attr": lambda: edges_of_links(record, edge_split(record, *links).pairs["train"]),
        }
    else:
        unlabeled = record.y is None or (record.y.dtype.kind == "i" and not record.num_classes)
        split = getattr(config, "split", None)
        if unlabeled or not isinstance(split, SplitConfig):
            return {}  # the build raises the error
        nodes = split_rows(record, split).get("train", np.empty(0, np.int64))
        rows = {"x": lambda: _with_other_types(record, nodes), "edge_attr": lambda: _edges_at(record, nodes)}
    return {name: rows[name]() for name in names}


def _with_other_types(record: Graph | EventStream, nodes: np.ndarray) -> np.ndarray:
    """Return training nodes, and all nodes of types that have no training node."""
    if not record.node_type_names or not len(nodes):
        return nodes
    assert record.node_type is not None
    return np.union1d(nodes, np.flatnonzero(~np.isin(record.node_type, record.node_type[nodes])))


def _edges_at(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    there = np.zeros(graph.num_nodes, bool)
    there[nodes] = True
    return np.flatnonzero(np.repeat(there, graph.degree) | there[graph.indices])


def _fit(
    values: np.ndarray, table: FeatureTable | None, rows: np.ndarray, kind: str, read: ReadOptions | EventReadOptions
) -> FeatureScaler:
    columns = None if table is None else table.columns_of(rows)
    ordered = values if table is None or columns is None else table.align_to(columns, "", warn_new=False)
    if read.missing == "error" and table is not None and table.has_missing:
        raise DataError(
            "there are missing values among the features; say how to fill them: --read.missing mean or median"
        )
    scaler = FeatureScaler.fit(ordered, rows, kind=kind, missing=read.missing, columns=columns)
    return scaler.sums() if (scaler.scale == 0).all() else scaler  # columns of ones, by which networks count


def preprocess(
    record: Record, config: RunConfig, context: Context, *, edges: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Impute and scale the features of a record.

    Features are standardized by default, except those of published datasets. Scalers are fitted to the training split
    only. A trained run, or a run that starts from another (`init`), uses the stored scalers. `edges` says whether
    the method learns from a graph's edge features.

    Returns:
        The record, and JSON-able scalers by feature name.
    """
    ready, scalers = _preprocess_features(record, config, context, edges)
    # codes are inputs already: two values of a column would be scaled to 0 and 1
    if isinstance(ready, Graph) and ready.x is None and (context.trained or {"node_codes": True}).get("node_codes"):
        ready = with_codes(ready)
        context.noted["node_codes"] = True
    return ready, scalers


def _preprocess_features(
    record: Record, config: RunConfig, context: Context, edges: bool
) -> tuple[Any, dict[str, Any]]:
    read = config.read
    if not isinstance(record, (Graph, GraphSet, EventStream)) or not isinstance(read, FileOptions):
        return record, {}
    if read.scale not in ("auto", "standard", "robust", "none"):
        raise ConfigError(f"read.scale is 'standard', 'robust', 'none' or 'auto'; got {read.scale!r}")
    if context.trained is not None:
        return preprocess_as(record, context.trained, edges=edges), dict(context.trained.get("features") or {})
    inherited = _features_of_init(config, context)
    if inherited is not None:
        return apply_scalers(record, inherited, edges=edges), inherited
    fitted = fit_scalers(record, config, edges)
    scalers = {name: scaler.as_json() | _ignored_text_columns(record, name, scaler) for name, scaler in fitted.items()}
    return apply_scalers(record, scalers, edges=edges, warn=False), scalers


def _ignored_text_columns(
    record: Graph | GraphSet | EventStream, name: str, scaler: FeatureScaler
) -> dict[str, list[str]]:
    """Return ignored text columns, of which training has already warned."""
    table = _tables(record.union if isinstance(record, GraphSet) else record)[name]
    if table is None or scaler.columns is None:
        return {}
    left = [text.name for text in table.texts if f"{OTHER}{text.name}" not in scaler.columns]
    return {"left": left} if left else {}


def _features_of_init(config: RunConfig, context: Context) -> dict[str, Any] | None:
    """Return the scalers of the run in `init`, because its weights expect the same features; None without `init`."""
    if not isinstance(config, EventNodeRun) or config.init is None:
        return None
    for folder in (context.run, Path(config.init)):  # a resumed run has its own copy
        if (folder / "data.json").is_file():
            return dict(RunFolder(folder).read_json("data.json").get("features") or {})
    return None


def preprocess_as(record: Graph | GraphSet | EventStream, facts: Mapping[str, Any], *, edges: bool = False) -> Any:
    """Scale features and align event classes as in a trained run; facts are its data.json."""
    scalers = facts.get("features") or {}  # hash the record only if there are scalers
    # training has already warned about its own data
    is_training_data = bool(scalers) and facts.get("content_hash") == record.content_hash
    ready = apply_scalers(record, scalers, edges=edges, warn=not is_training_data)
    return _align_classes(ready, facts.get("class_names") or ())


def apply_scalers(
    record: Graph | GraphSet | EventStream, scalers: Mapping[str, Any], *, edges: bool = False, warn: bool = True
) -> Any:
    """Scale the features of a record with the scalers that `preprocess` returned for a run.

    A graph keeps its edge table, because edge weights are read from it unscaled.
    """
    if isinstance(record, GraphSet):
        return replace(record, union=apply_scalers(record.union, scalers, edges=edges, warn=warn))
    changes: dict[str, Any] = {}
    for name, table in _tables(record).items():
        values = getattr(record, name)
        if values is None or (name == "edge_attr" and isinstance(record, Graph) and not edges):
            continue
        if name in scalers:
            changes[name] = _apply_scaler(values, table, scalers[name], record.name, name, warn=warn)
        elif table is not None and table.has_missing:
            raise DataError(
                f"{record.name} has missing values among its features, and the run was trained without scaling or "
                "imputation. Fill them in, or train again with --read.missing mean"
            )
    if isinstance(record, Graph) and "edge_attr" in changes:
        changes["edge_table"] = record.edge_table
    return record.with_(**changes) if changes else record


def _align_classes(record: Record, names: Sequence[str]) -> Any:
    if not isinstance(record, EventStream) or record.labels is None or not record.class_names or not names:
        return record
    if record.labels.ndim > 1:  # the names of columns, which the task goes by
        return record
    all_names = (*names, *(name for name in record.class_names if name not in names))
    place = {name: number for number, name in enumerate(all_names)}
    moved = np.array([place[name] for name in record.class_names] + [-1], np.int64)  # the last is "unknown"
    return record.with_(labels=moved[record.labels], class_names=all_names)


def scaling_notes(scalers: dict[str, Any], record: Record) -> list[str]:
    """Describe the scalers that `preprocess` returned, one line per feature table."""
    graphs = isinstance(record, (Graph, GraphSet))
    of_edges = ("edge features", "training edges") if graphs else ("features", "training events")
    what = {"x": ("features", "training nodes"), "edge_attr": of_edges}
    return [FeatureScaler.from_json(scaler).describe(*what[name]) for name, scaler in scalers.items()]


def _tables(record: Graph | EventStream) -> dict[str, FeatureTable | None]:
    return {"x": record.table, "edge_attr": record.edge_table}


def _apply_scaler(
    values: np.ndarray, table: FeatureTable | None, stored: dict[str, Any], record: str, name: str, *, warn: bool
) -> np.ndarray:
    scaler = FeatureScaler.from_json(stored)
    if table is not None and scaler.columns is not None:
        what = f"an edge of {record}" if name == "edge_attr" else record
        skipped = tuple(map(str, stored.get("left") or ()))
        return scaler.apply(table.align_to(scaler.columns, what, warn_new=warn, skipped=skipped))
    if values.shape[1] != len(scaler.fill):
        each = "an edge" if name == "edge_attr" else "a node"
        raise DataError(
            f"{record} has {values.shape[1]} features {each}, the model was trained with {len(scaler.fill)}"
        )
    return scaler.apply(values if table is None else table.values)


_COLUMNS = ("source", "target", "relation", "node_type", "id", "label", "split")
_TABLE_OPTIONS = (
    *(f"{role}_column" for role in _COLUMNS),
    *("edge_columns", "missing", "columns", "unlabeled_value", "task", "multilabel", "text_ids", "bipartite"),
)
OF_RUN = ("scale", "positive_class")  # options of reading that no reader takes


def named_dataset(source: str) -> Dataset | None:
    """Return the dataset that a source names; None if none has this name, or a file has it."""
    return None if exists(source) else find_dataset(source)


def load_data(source: str, read: Any, kind: str) -> Any:
    """Return the record of a file, folder or dataset name for a method that works on a kind of data."""
    record = load_saved(source)
    if record is not None:
        return record
    if named_dataset(source) is not None:
        changed = {f.name: getattr(read, f.name) for f in fields(read) if getattr(read, f.name) != f.default}
        with byte_limit(changed.pop("max_bytes", None)):
            return load_dataset(source, **{key: value for key, value in changed.items() if key not in OF_RUN})
    if kind == "graphs":
        from hopstate.data.readers.read_graph import read_graph_set

        return read_graph_set(source, **graph_set_kwargs(read))
    if kind == "events":
        from hopstate.data.readers.read_events import read_events

        return read_events(source, **reader_kwargs(read))
    if kind == "sequences":
        raise ConfigError(f"sequences are made by name, not read from {source}; give path-sequences")
    from hopstate.data.readers.read_graph import read_graph

    return read_graph(source, **reader_kwargs(read))


def graph_set_kwargs(read: Any) -> dict[str, Any]:
    """Return the reader arguments for sets of graphs; warn of options that do not apply to them."""
    accepted = ("max_bytes", "undirected", "duplicates", "self_loops")
    ignored = [
        f.name for f in fields(read) if f.name not in (*accepted, "scale") and getattr(read, f.name) != f.default
    ]
    if ignored:
        warnings.warn(f"read.{', read.'.join(ignored)} have no effect on sets of graphs", HopstateWarning, stacklevel=3)
    return {name: getattr(read, name) for name in accepted}


def reader_kwargs(read: Any) -> dict[str, Any]:
    """Return the reader arguments among the reading options; scaling and the positive class are not among them."""
    return {key: value for key, value in asdict(read).items() if key not in OF_RUN}


def data_metrics(source: str) -> tuple[str, ...]:
    """Return the published metric of a named dataset, else nothing."""
    known = named_dataset(source)
    return (known.metric,) if known is not None else ()


def describe(
    record: Record, task: Task, context: Context, scalers: dict[str, Any], content_hash: str
) -> dict[str, Any]:
    """Return the content of data.json, which is needed to apply a run to other data."""
    task_facts: TaskFacts = task.facts()
    target, clock = task_facts.get("target"), task_facts.get("clock")
    return {
        "name": record.name,
        "content_hash": content_hash,
        "num_nodes": record.num_nodes,
        "notes": list(reading_notes(record)),
        **_record_facts(record),
        **({"class_names": list(task_facts["class_names"])} if "class_names" in task_facts else {}),
        "edge_columns": getattr(task.model, "edge_dim", None),
        "target": target_record(target) if target is not None else None,
        "metrics": list(context.metrics),
        "walks": task_facts.get("walks"),
        "clock": asdict(clock) if clock is not None else None,
        "features": scalers,
        **context.noted,
    }


def _record_facts(record: Record) -> dict[str, Any]:
    """Return facts of a record, with empty values if its kind lacks them."""
    facts: dict[str, Any] = {"source": "", "num_features": 0, "used_features": {}, "feature_dims": {}, "time_unit": ""}
    facts |= {"class_names": [], "has_deletes": False}
    if isinstance(record, (Graph, GraphSet, EventStream)):
        facts |= {"source": record.source, "class_names": list(record.class_names or ())}
    if isinstance(record, (Graph, GraphSet)):
        facts["num_features"] = record.num_features
    if isinstance(record, Graph):
        facts["edge_names"] = _edge_names(record)
    if isinstance(record, (Graph, EventStream)):
        facts |= {"relation_names": list(record.relation_names), "node_type_names": list(record.node_type_names)}
    if isinstance(record, EventStream):
        facts |= {"used_features": record.used_features, "feature_dims": record.feature_dims}
        facts |= {"time_unit": record.time_unit, "dates": record.dates, "has_deletes": record.has_deletes}
        facts["two_sets"] = record.two_sets
        if record.relation is not None and record.node_type is not None:
            facts["relation_types"] = types_by_relation(record)
        facts["text_ids"] = record.node_ids is not None and record.node_ids.is_text
    return facts


def _edge_names(graph: Graph) -> list[str] | None:
    """Return the columns of a table that edge features were read from; None if they are not from a table."""
    if (table := graph.edge_table) is None:
        return [] if graph.edge_attr is None and graph.edge_weight is None else None
    numbers = [table.columns[place].removeprefix(DATE) for place in table.numbers()]
    return [*numbers, *(text.name for text in table.texts)]


def reading_notes(record: Record) -> tuple[str, ...]:
    """Return notes on rows and values that the reader ignored."""
    if isinstance(record, GraphSet):
        return record.union.notes
    return record.notes if isinstance(record, (Graph, EventStream)) else ()


def relation_notes(record: Record, config: RunConfig) -> tuple[str, ...]:
    """Return a note on relations of events that have no training event."""
    if not isinstance(record, EventStream) or not isinstance(config, EventRun) or record.relation is None:
        return ()
    absent = np.setdiff1d(np.arange(len(record.relation_names)), record.relation[config.split.of(record).train])
    names = ", ".join(record.relation_names[r] for r in absent[:5])
    return (f"relations without a training event, whose scores are not trained: {names}",) if len(absent) else ()


def is_table(path: Path, format: str = "auto") -> bool:
    """Return whether a graph's file is a table of edges."""
    from hopstate.data.readers.read_graph import detect_format

    try:
        return exists(path) and format in ("auto", "edges") and detect_format(path) == "edges"
    except FormatError:  # an error when it is read
        return False
