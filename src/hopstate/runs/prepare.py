"""Features made ready for a method: filled and scaled as training nodes, edges or events say; kept with the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.node_codes import with_codes
from hopstate.data.preprocessing import OTHER, FeatureScaler, FeatureTable
from hopstate.errors import ConfigError, DataError
from hopstate.methods.method import Context, ReadOptions, RunConfig
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.methods.shared.event_run import EventReadOptions
from hopstate.runs.scales import FeatureSetRun, FeatureStreamRun, GraphRun, fitted_graph, fitted_set, fitted_stream
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from hopstate.methods.method import Record


def prepared(record: Record, config: RunConfig, context: Context, *, edges: bool = False) -> tuple[Any, dict[str, Any]]:
    """Return a record with its features as a method takes them, and what a run must keep to do the same to others.

    Features are standardised unless `read.scale` says otherwise; those of published data sets are left as they are.
    What is filled in and how columns are scaled is fitted to the training split alone; of a trained run, or of the one
    that a run begins from (`init`), what it kept is taken.

    Args:
        record: a graph, a set of graphs or an event stream; others come back as they are.
        config: the method's configuration; its fields read and split count.
        context: of the build.
        edges: whether the method learns from a graph's edge features.

    Returns:
        The record, and a JSON-able dict, empty where nothing was done.

    Raises:
        DataError: other columns than the run was trained with, or missing values that it cannot fill.
        ConfigError: another scale or another filling.
    """
    ready, kept = _scaled(record, config, context, edges)
    # codes are inputs already: two values of a column would be scaled to 0 and 1
    if isinstance(ready, Graph) and ready.x is None and (context.trained or {"node_codes": True}).get("node_codes"):
        ready = with_codes(ready)
        context.noted["node_codes"] = True
    return ready, kept


def _scaled(record: Record, config: RunConfig, context: Context, edges: bool) -> tuple[Any, dict[str, Any]]:
    read = config.read
    if not isinstance(record, (Graph, GraphSet, EventStream)) or not isinstance(read, (ReadOptions, EventReadOptions)):
        return record, {}
    if read.scale not in ("auto", "standard", "robust", "none"):
        raise ConfigError(f"read.scale is 'standard', 'robust', 'none' or 'auto'; got {read.scale!r}")
    if context.trained is not None:
        return prepared_as(record, context.trained, edges=edges), dict(context.trained.get("features") or {})
    begun = _features_of_init(config, context)
    if begun is not None:
        return as_trained(record, begun, edges=edges), begun
    if isinstance(record, EventStream):
        found = fitted_stream(record, cast("FeatureStreamRun", config))
    elif isinstance(record, Graph):
        found = fitted_graph(record, cast("GraphRun", config), edges)
    else:
        found = fitted_set(record, cast("FeatureSetRun", config), edges)
    kept = {name: scaler.as_json() | _left(record, name, scaler) for name, scaler in found.items()}
    return as_trained(record, kept, edges=edges, tell=False), kept


def _left(record: Graph | GraphSet | EventStream, name: str, scaler: FeatureScaler) -> dict[str, list[str]]:
    """Return the columns of texts that a run leaves out, of which it told: later files need not hear of them again."""
    table = _tables(record.union if isinstance(record, GraphSet) else record)[name]
    if table is None or scaler.columns is None:
        return {}
    left = [text.name for text in table.texts if f"{OTHER}{text.name}" not in scaler.columns]
    return {"left": left} if left else {}


def _features_of_init(config: RunConfig, context: Context) -> dict[str, Any] | None:
    """Return what the run that this one begins from kept of its features (its weights take no others), or None."""
    if not isinstance(config, EventNodeRun) or config.init is None:
        return None
    for folder in (context.run, Path(config.init)):  # a run that is resumed has them itself
        if (folder / "data.json").is_file():
            return dict(RunFolder(folder).read_json("data.json").get("features") or {})
    return None


def prepared_as(record: Graph | GraphSet | EventStream, facts: Mapping[str, Any], *, edges: bool = False) -> Any:
    """Return a record with its features and its events' classes as a run has them.

    Args:
        record: a graph, a set of graphs or an event stream.
        facts: the run's data.json.
        edges: see `prepared`.

    Raises:
        DataError: see `as_trained`.
    """
    kept = facts.get("features") or {}  # without any nothing is told, and what a record holds need not be hashed
    # of its own data all was said when it was trained
    own = bool(kept) and facts.get("content_hash") == record.content_hash
    ready = as_trained(record, kept, edges=edges, tell=not own)
    return _classes_as_trained(ready, facts.get("class_names") or ())


def as_trained(
    record: Graph | GraphSet | EventStream, kept: Mapping[str, Any], *, edges: bool = False, tell: bool = True
) -> Any:
    """Return a record with its features as those of a run were, of which `prepared` returned kept.

    Texts that the run does not know are told, unless tell is False. The table of a graph's edges stays beside them:
    weights are taken from it as they are.

    Raises:
        DataError: other columns, or missing values that the run cannot fill.
    """
    if isinstance(record, GraphSet):
        return replace(record, union=as_trained(record.union, kept, edges=edges, tell=tell))
    changes: dict[str, Any] = {}
    for name, table in _tables(record).items():
        values = getattr(record, name)
        if values is None or (name == "edge_attr" and isinstance(record, Graph) and not edges):
            continue
        if name in kept:
            changes[name] = _applied(values, table, kept[name], record.name, name, tell=tell)
        elif table is not None and table.has_missing:
            raise DataError(
                f"{record.name} has missing values among its features, and the run was trained without scales or "
                f"fillings; repair them, or read with --read.nan zero"
            )
    if isinstance(record, Graph) and "edge_attr" in changes:
        changes["edge_table"] = record.edge_table
    return record.with_(**changes) if changes else record


def _classes_as_trained(record: Record, names: Sequence[str]) -> Any:
    if not isinstance(record, EventStream) or record.labels is None or not record.class_names or not names:
        return record
    if record.labels.ndim > 1:  # the names of columns, which the task goes by
        return record
    all_names = (*names, *(name for name in record.class_names if name not in names))
    place = {name: number for number, name in enumerate(all_names)}
    moved = np.array([place[name] for name in record.class_names] + [-1], np.int64)  # the last is "unknown"
    return record.with_(labels=moved[record.labels], class_names=all_names)


def notes_of(kept: dict[str, Any], record: Record) -> list[str]:
    """Return what was done to the features of a record, a line each, from what `prepared` returned."""
    graphs = isinstance(record, (Graph, GraphSet))
    of_edges = ("edge features", "training edges") if graphs else ("features", "training events")
    what = {"x": ("features", "training nodes"), "edge_attr": of_edges}
    return [FeatureScaler.from_json(scaler).told(*what[name]) for name, scaler in kept.items()]


def _tables(record: Graph | EventStream) -> dict[str, FeatureTable | None]:
    if isinstance(record, Graph):
        return {"x": record.table, "edge_attr": record.edge_table}
    return {"x": None, "edge_attr": record.edge_table}


def _applied(
    values: np.ndarray, table: FeatureTable | None, stored: dict[str, Any], record: str, name: str, *, tell: bool
) -> np.ndarray:
    scaler = FeatureScaler.from_json(stored)
    if table is not None and scaler.columns is not None:
        what = f"an edge of {record}" if name == "edge_attr" else record
        left = tuple(map(str, stored.get("left") or ()))
        return scaler.apply(table.in_order_of(scaler.columns, what, tell=tell, left=left))
    if values.shape[1] != len(scaler.fill):
        each = "an edge" if name == "edge_attr" else "a node"
        raise DataError(
            f"{record} has {values.shape[1]} features {each}, the model was trained with {len(scaler.fill)}"
        )
    return scaler.apply(values if table is None else table.values)


__all__ = ["as_trained", "notes_of", "prepared", "prepared_as"]
