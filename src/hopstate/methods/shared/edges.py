"""What a method makes of a graph's edges: which way messages flow, and what weights and features of edges are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.training.config import LoopConfig
from hopstate.training.progress import note

Place = Literal["weights", "features", "none", "unused"]
Use = Literal["auto", "features", "drop"]


@dataclass(frozen=True, kw_only=True)
class EdgeConfig:
    """What is made of edges.

    Args:
        use: "auto" takes edge weights and edge features where the method has a place for them and refuses them where it
            has none; "drop" leaves them out.
        weight: column of the edge features that weighs edges, from 0, in methods that take weights (gcn, gcnii,
            nagphormer); null takes the graph's own weights, or its only column.
        flow: over an edge (u, v) of a directed graph, v receives from u ("source_to_target", as in torch-geometric), or
            u from v.
    """

    use: Literal["auto", "drop"] = "auto"
    weight: int | None = None
    flow: Literal["source_to_target", "target_to_source"] = "source_to_target"

    def __post_init__(self) -> None:
        if self.weight is not None and (self.weight < 0 or self.use == "drop"):
            raise ConfigError(
                f"edges.weight is a column of the edge features, from 0, which edges.use=drop leaves out; got "
                f"{self.weight} and {self.use}"
            )


def message_graph(graph: Graph, config: EdgeConfig, place: Place, method: str, loop: LoopConfig) -> Graph:
    """Return the graph that messages pass over: its edges the way they flow, carrying what the method reads.

    Args:
        graph: as it was read.
        config: settings.
        place: what the method has a place for: one weight an edge, features, neither, or it reads no edges at all.
        method: its name, for messages.
        loop: says whether progress is shown.
    """
    if place == "unused":
        return _bare(graph)
    if config.flow == "target_to_source":
        graph = turned(graph)
    if _carries(graph) == "nothing":
        if config.weight is not None:
            raise DataError(f"{graph.name} has no edge features, so edges.weight={config.weight} names none")
        return graph
    if config.use == "drop":
        note(loop, f"edges: {_carries(graph)} of {graph.name} are left out (edges.use=drop)")
        return _bare(graph)
    if place == "features" and config.weight is None:
        return graph.with_(edge_attr=_columns(graph), edge_weight=None)
    if place == "weights":
        return _weighted(graph, config, method, loop)
    raise ConfigError(
        f"{method} has no place for {'one weight an edge' if place == 'features' else _carries(graph)} "
        f"({graph.name} has {_carries(graph)}): {_otherwise(place)}"
    )


def turned(graph: Graph) -> Graph:
    """Return the graph with every edge turned round; itself where each has its reverse and they carry nothing."""
    return graph if _carries(graph) == "nothing" and graph.is_undirected else graph.reversed()


def learned_features(graph: Graph, use: Use, reads: bool, loop: LoopConfig, *, otherwise: str | None) -> Graph:
    """Return a graph with the edge features that a network learns from alone; weights become their last column.

    Args:
        graph: as messages pass over it.
        use: "auto" takes all that edges carry, "features" what it carries beside weights, "drop" nothing.
        reads: whether the network has a place for edge features.
        loop: says whether progress is shown.
        otherwise: where it has none, what to do about it, as an error says it; None leaves them out and says so.
    """
    carried = _carries(graph)
    if carried == "nothing":
        return graph
    if use == "features":
        return graph.with_(edge_weight=None)
    if use == "drop" or not reads:
        if use == "auto" and otherwise is not None:
            raise ConfigError(f"this model has no place for edges' features ({graph.name} has {carried}): {otherwise}")
        why = "edges=drop" if use == "drop" else "no part of the network reads them"
        note(loop, f"edges: {carried} of {graph.name} are left out ({why})")
        return _bare(graph)
    return graph if graph.edge_weight is None else graph.with_(edge_attr=_columns(graph), edge_weight=None)


def check_same_edges(name: str, found: int, trained: Mapping[str, Any] | None) -> None:
    """Raise DataError where edges carry other numbers of features than those that a model was trained with."""
    wanted = (trained or {}).get("edge_columns")
    if wanted is not None and wanted != found:
        raise DataError(f"{name} has {found} features an edge, the model was trained with {wanted}")


def edge_columns(graph: Graph) -> int:
    return 0 if graph.edge_attr is None else graph.edge_attr.shape[1]


def raw_column(graph: Graph, column: int) -> np.ndarray:
    """Return (E,) float32 of one column of the edge features as it was read, not scaled."""
    if graph.edge_table is None:
        assert graph.edge_attr is not None
        return graph.edge_attr[:, column]
    values = graph.edge_table.values[:, column]
    bad = ~np.isfinite(values)
    if bad.any():
        at = int(np.argmax(bad))
        source = int(np.searchsorted(graph.indptr, at, side="right")) - 1
        raise DataError(
            f"{graph.name}: {int(bad.sum())} edges have no weight in column {graph.edge_table.columns[column]!r}, the "
            f"first is ({source}, {graph.indices[at]}) by rows; fill them in, or leave weights out (--edges.use drop)"
        )
    return values.astype(np.float32)


def _weighted(graph: Graph, config: EdgeConfig, method: str, loop: LoopConfig) -> Graph:
    width = edge_columns(graph)
    if config.weight is not None:
        if graph.edge_attr is None or config.weight >= width:
            raise DataError(f"edges.weight={config.weight} is a column of the edge features; {graph.name} has {width}")
        return graph.with_(edge_weight=raw_column(graph, config.weight), edge_attr=None)
    if graph.edge_attr is None:
        return graph
    if width == 1 and graph.edge_weight is None:
        called = "" if graph.edge_table is None else f", column {graph.edge_table.columns[0]!r},"
        note(
            loop,
            f"edges: the one edge feature of {graph.name}{called} is taken as a weight (edges.use=drop leaves it out)",
        )
        return graph.with_(edge_weight=raw_column(graph, 0), edge_attr=None)
    raise ConfigError(
        f"{method} has a place for one weight an edge, and none for edge features ({graph.name} has {_carries(graph)}):"
        f" name the column that is a weight (--edges.weight COLUMN), {_otherwise('weights')}"
    )


def _otherwise(place: Place) -> str:
    if place == "features":
        return "leave edges.weight out: it reads every column as a feature"
    others = "gat, gin, pna and gmn read edge features" + ("" if place == "weights" else ", gcn and gcnii edge weights")
    return f"leave them out (--edges.use drop), or take another method: {others}"


def _carries(graph: Graph) -> str:
    parts = ["edge weights"] if graph.edge_weight is not None else []
    if graph.edge_attr is not None:
        parts.append(f"{graph.edge_attr.shape[1]} edge features")
    return " and ".join(parts) or "nothing"


def _columns(graph: Graph) -> np.ndarray:
    """Return (E, D) all that edges carry, weights last."""
    parts = [] if graph.edge_attr is None else [graph.edge_attr]
    parts += [] if graph.edge_weight is None else [graph.edge_weight[:, None]]
    return np.concatenate(parts, 1)


def _bare(graph: Graph) -> Graph:
    return graph if _carries(graph) == "nothing" else graph.with_(edge_attr=None, edge_weight=None)
