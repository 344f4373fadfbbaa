"""Features made ready for a method: filled and scaled as training nodes, edges or events say; kept with the run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph, with_codes
from hopstate.data.graph_set import GraphSet
from hopstate.data.preprocessing import FAR_APART, OTHER, FeatureScaler, FeatureTable, scale_ratio
from hopstate.data.splits import edges_of_links
from hopstate.errors import ConfigError, DataError, HopstateWarning
from hopstate.methods.method import Context, ReadOptions, RunConfig, SetRun, SplitConfig
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.methods.shared.event_run import EventReadOptions, EventRun
from hopstate.methods.shared.node import NodeRun, split_rows
from hopstate.methods.shared.static_link import edge_split
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from hopstate.methods.method import Record


__all__ = ["as_trained", "notes_of", "prepared", "prepared_as"]


def fitted_graph(graph: Graph, config: NodeRun, edges: bool) -> dict[str, FeatureScaler]:
    """Return scales of a graph's features by name (x, edge_attr): of the training nodes, and of the edges at them."""
    features = {"x": (graph.x, graph.table)} | ({"edge_attr": (graph.edge_attr, graph.edge_table)} if edges else {})
    meant: dict[str, str] = {}
    kind = _kind(config.read.scale, published=graph.published)
    for name, (values, table) in features.items():
        if values is None or (kind == "none" and table is None):
            what = "node" if name == "x" else "edge"
            _warn_of_scales(values, config.read.scale, f"the {what} features of {graph.name}")
        else:
            meant[name] = kind
    if meant and isinstance(config, NodeRun) and config.task == "link":
        return _fitted_links(graph, config, {name: (*features[name], kind) for name, kind in meant.items()})
    unlabelled = graph.y is None or (graph.y.dtype.kind == "i" and not graph.num_classes)
    if not meant or unlabelled or not isinstance(config.split, SplitConfig):
        return {}  # the build says what is amiss
    nodes = split_rows(graph, config.split).get("train", np.empty(0, np.int64))
    rows = {"x": nodes, "edge_attr": _edges_at(graph, nodes) if "edge_attr" in meant else nodes}
    found = {name: (*features[name], rows[name], kind) for name, kind in meant.items() if len(rows[name])}
    return {
        name: _fit(values, table, own, kind, config.read)
        for name, (values, table, own, kind) in found.items()
        if values is not None
    }


def _fitted_links(graph: Graph, config: NodeRun, features: dict[str, Any]) -> dict[str, FeatureScaler]:
    found = {}
    for name, (values, table, kind) in features.items():
        rows = np.arange(graph.num_nodes)
        if name == "edge_attr":
            pairs = edge_split(graph, config.link, config.split).pairs["train"]
            rows = edges_of_links(graph, pairs)
        found[name] = _fit(values, table, rows, kind, config.read)
    return found


def fitted_set(graphs: GraphSet, config: SetRun, edges: bool) -> dict[str, FeatureScaler]:
    """Return scales of a set's features by name (x, edge_attr): of the training graphs."""
    union, found = graphs.union, {}
    features = {"x": (union.x, union.table)} | ({"edge_attr": (union.edge_attr, union.edge_table)} if edges else {})
    kind = _kind(config.read.scale, published=union.published)
    for name, (values, table) in features.items():
        if values is None or (kind == "none" and table is None):
            what = "node" if name == "x" else "edge"
            _warn_of_scales(values, config.read.scale, f"the {what} features of {graphs.name}")
            continue
        ids = config.training_graphs(graphs)
        rows = graphs.rows(ids)[0] if name == "x" else graphs.edges(ids)
        if len(rows):
            found[name] = _fit(values, table, rows, kind, config.read).sums()
    return found


def _edges_at(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    there = np.zeros(graph.num_nodes, bool)
    there[nodes] = True
    return np.flatnonzero(np.repeat(there, graph.degree) | there[graph.indices])


def fitted_stream(stream: EventStream, config: EventRun) -> dict[str, FeatureScaler]:
    """Return scales of a stream's features by name (x, edge_attr): of the training events and their ends."""
    kind = _kind(config.read.scale, published=stream.published)
    if kind == "none" and stream.edge_table is None:
        _warn_of_scales(stream.edge_attr, config.read.scale, f"the event features of {stream.name}")
        return {}
    rows = config.split.of(stream).train
    found = {}
    if stream.x is not None and stream.has_node_features and kind != "none":
        nodes = np.unique(np.concatenate([stream.src[rows], stream.dst[rows]]))
        found["x"] = _fit(stream.x, None, nodes, kind, config.read)
    if stream.edge_attr is not None and stream.edge_attr.shape[1]:
        found["edge_attr"] = _fit(stream.edge_attr, stream.edge_table, stream.additions(rows), kind, config.read)
    return found


def _fit(
    values: np.ndarray, table: FeatureTable | None, rows: np.ndarray, kind: str, read: ReadOptions | EventReadOptions
) -> FeatureScaler:
    columns = None if table is None else table.columns_of(rows)
    ordered = values if table is None or columns is None else table.in_order_of(columns, "", tell=False)
    if read.missing == "error" and table is not None and table.has_missing:
        raise DataError(
            "there are missing values among the features; say how to fill them: --read.missing mean or median"
        )
    scaler = FeatureScaler.fit(ordered, rows, kind=kind, missing=read.missing, columns=columns)
    return scaler.sums() if (scaler.scale == 0).all() else scaler  # columns of ones, by which networks count


def _kind(scale: str, *, published: bool) -> str:
    """Return the scale that is meant: of "auto", none for published features, standard for all others."""
    return scale if scale != "auto" else "none" if published else "standard"


def _warn_of_scales(values: np.ndarray | None, asked: str, what: str) -> None:
    """Warn where features are left as they are although nobody said so and their scales differ widely."""
    if values is None or asked != "auto" or not values.size:
        return
    ratio, large, small = scale_ratio(values)
    if ratio > FAR_APART:
        warnings.warn(
            f"{what} differ in scale by {ratio:.0e} (column {large} and column {small}) and are left as they are; "
            f"--read.scale standard standardises them",
            HopstateWarning,
            stacklevel=5,
        )


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
        found = fitted_stream(record, cast("EventRun", config))
    elif isinstance(record, Graph):
        found = fitted_graph(record, cast("NodeRun", config), edges)
    else:
        found = fitted_set(record, cast("SetRun", config), edges)
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
