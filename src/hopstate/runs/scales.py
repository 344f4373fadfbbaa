"""Scales and fillings of features, fitted to the nodes, links, graphs or events that a run trains on."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.preprocessing import FAR_APART, FeatureScaler, FeatureTable, scale_ratio
from hopstate.data.splits import edges_of_links
from hopstate.errors import DataError, HopstateWarning
from hopstate.methods.method import ReadOptions, RunConfig, SetRun, SplitConfig
from hopstate.methods.shared.event_run import EventReadOptions
from hopstate.methods.shared.node import NodeRun, split_rows
from hopstate.methods.shared.static_link import edge_split
from hopstate.methods.shared.suit_events import StreamRun


class ReadRun(RunConfig, Protocol):
    """A configuration of a method for records with features."""

    @property
    def read(self) -> ReadOptions | EventReadOptions:
        """How files are read: scales and fillings among it."""
        ...


class GraphRun(ReadRun, Protocol):
    """A configuration of a method for a graph."""

    @property
    def split(self) -> SplitConfig:
        """How its nodes are shared out."""
        ...


class FeatureSetRun(ReadRun, SetRun, Protocol):
    """A configuration of a method for a set of graphs."""


class FeatureStreamRun(ReadRun, StreamRun, Protocol):
    """A configuration of a method for events."""


def fitted_graph(graph: Graph, config: GraphRun, edges: bool) -> dict[str, FeatureScaler]:
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


def fitted_set(graphs: GraphSet, config: FeatureSetRun, edges: bool) -> dict[str, FeatureScaler]:
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


def fitted_stream(stream: EventStream, config: FeatureStreamRun) -> dict[str, FeatureScaler]:
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


__all__ = ["FeatureSetRun", "FeatureStreamRun", "GraphRun", "fitted_graph", "fitted_set", "fitted_stream"]
