"""The order of a graph's node sequence, from a measure of importance or from keys of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods.gmn.ordering import OrderKind, order_key


@dataclass(frozen=True, kw_only=True)
class OrderConfig:
    """The order of the node sequence, ascending.

    Args:
        kind: "degree", "pagerank", "ppr", "kcore", "eigenvector", "random", or "column".
        column: for kind "column": the number of the column of x that holds the keys, or its name in file.
        file: for kind "column": a table of node ids and keys; null takes them from x.
    """

    kind: OrderKind = "degree"
    column: int | str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        if self.file is not None:  # a run must find it again from anywhere
            object.__setattr__(self, "file", str(Path(self.file).resolve()))
        if self.kind != "column" and (self.column is not None or self.file is not None):
            raise ConfigError(f"order.column and order.file belong to order.kind=column; the kind is {self.kind}")


def node_keys(graph: Graph, config: OrderConfig, offsets: np.ndarray | None = None) -> np.ndarray:
    """Return (N,) float64 sort keys; offsets (G+1,) bound the graphs of a set, each with keys of its own.

    Raises:
        ConfigError: an unknown kind, or "column" without one.
        DataError: no such column, NaN in it, or a node without a key.
    """
    column = None
    if config.kind == "column":
        column = _from_file(graph, config) if config.file is not None else _from_features(graph, config.column)
    return order_key(graph.indptr, graph.indices, config.kind, column=column, offsets=offsets)


def _from_features(graph: Graph, given: int | str | None) -> np.ndarray:
    assert graph.x is not None
    number = int(given) if isinstance(given, str) and given.isdecimal() else given  # as parsers give numbers
    if type(number) is not int or not 0 <= number < graph.x.shape[1]:
        raise DataError(f"order.column is a column of the features, 0..{graph.x.shape[1] - 1}; got {given}")
    return graph.x[:, number]


def _from_file(graph: Graph, config: OrderConfig) -> np.ndarray:
    from hopstate.data.readers.tables import read_table

    path = Path(config.file or "")
    table = read_table(path, ("node", "node_id", "id"))
    ids = table.column(None, ("node", "node_id", "id"), 0, "a column of node ids")
    named = None if config.column is None else str(config.column)
    keys = table.column(named, ("key", "order"), 1, "order.column")
    values = table.frame[keys].to_numpy()
    if values.dtype.kind not in "iuf":
        raise DataError(f"{path}: column {keys!r} holds text; the keys of an order are numbers")
    own, rows = np.full(graph.num_nodes, np.nan), np.asarray(table.ids(str(ids)))
    if graph.node_ids is not None:
        rows = graph.node_ids.rows(rows)
    if rows.dtype.kind != "i" or (rows < 0).any() or (rows >= graph.num_nodes).any():
        raise DataError(f"{path} names a node that {graph.name} does not have")
    own[rows] = values
    return own


__all__ = ["OrderConfig", "node_keys"]
