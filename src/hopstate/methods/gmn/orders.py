"""Orders of a graph's nodes as one sequence, by a measure of importance: the least important first.

Source: Behrouz & Hashemi 2024 (Graph Mamba Networks), section 4.3; Andersen, Chung & Lang 2006 (personalized PageRank);
Batagelj & Zaversnik 2003, arXiv:cs/0310049 (k-core).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, nearest

OrderKind = Literal["degree", "pagerank", "ppr", "kcore", "eigenvector", "random", "column"]
DAMPING = 0.85


def order_key(
    indptr: np.ndarray, indices: np.ndarray, kind: OrderKind, *, offsets: np.ndarray | None = None
) -> np.ndarray:
    """Return (N,) float64 sort keys of the nodes.

    Args:
        indptr, indices: CSR adjacency.
        kind: "degree", "pagerank", "ppr" (PageRank that restarts at each graph's first node of highest degree),
            "kcore", "eigenvector" (centrality), or "random" (all equal: ties are broken at random).
        offsets: (G+1,) bounds of the graphs of a set, no edge between two; each gets the keys that it has alone.
    """
    n, degree = len(indptr) - 1, np.diff(indptr)
    bounds = np.array([0, n]) if offsets is None else np.asarray(offsets)
    if kind == "random" or n == 0:
        return np.zeros(n)
    if kind == "degree":
        return degree.astype(np.float64)
    if kind == "kcore":
        return _core_numbers(indptr, indices).astype(np.float64)
    if kind == "eigenvector":
        return _eigenvector(indptr, indices, bounds)
    sizes = np.diff(bounds)
    if kind == "pagerank":
        return _pagerank(indptr, indices, np.repeat(1 / np.maximum(sizes, 1), sizes), bounds)
    if kind == "ppr":
        graph = np.repeat(np.arange(len(sizes)), sizes)
        first = np.lexsort((np.arange(n), -degree, graph))[bounds[:-1]]
        restart = np.zeros(n)
        restart[first] = 1
        return _pagerank(indptr, indices, restart, bounds)
    options = [name for name in get_args(OrderKind) if name != "column"]
    raise ConfigError(f"unknown order {kind!r}{nearest(kind, options)}; known: {', '.join(options)}")


def _pagerank(indptr: np.ndarray, indices: np.ndarray, restart: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return PageRank of each graph; a node without edges gives its rank to its graph's restart."""
    import scipy.sparse

    n, degree, sizes = len(restart), np.diff(indptr), np.diff(bounds)
    weights = np.repeat(1 / np.maximum(degree, 1), degree)
    step = scipy.sparse.csr_array((weights, indices, indptr), shape=(n, n)).T
    graph, dangling = np.repeat(np.arange(len(sizes)), sizes), np.flatnonzero(degree == 0)
    rank = restart.copy()
    for _ in range(200):  # DAMPING**200 < 1e-14
        stuck = np.bincount(graph[dangling], rank[dangling], len(sizes))
        new = DAMPING * (step @ rank + stuck[graph] * restart) + (1 - DAMPING) * restart
        change = np.add.reduceat(np.abs(new - rank), bounds[:-1]).max()
        rank = new
        if change < 1e-12:
            break
    return _rounded(rank, bounds)


def _eigenvector(indptr: np.ndarray, indices: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Power iteration on A + I of each graph, which has A's vectors and converges on bipartite graphs too."""
    import scipy.sparse

    n, sizes = len(indptr) - 1, np.diff(bounds)
    a = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n))
    x = np.repeat(sizes**-0.5, sizes)
    for _ in range(1000):
        new = a @ x + x
        new /= np.repeat(np.sqrt(np.add.reduceat(new**2, bounds[:-1])), sizes)
        change = np.abs(new - x).max()
        x = new
        if change < 1e-10:
            break
    return _rounded(x, bounds)


def _rounded(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Nine decimal places of each graph's largest: nodes alike by symmetry stay ties whatever the order of sums."""
    largest = np.maximum(np.maximum.reduceat(values, bounds[:-1]), 1e-300)
    return np.round(values / np.repeat(largest, np.diff(bounds)), 9)


def _core_numbers(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return (N,) core numbers, self-loops left out; of directed graphs by out-degrees.

    scipy has no cores. A million entries take 0.12 s here, 2.5 s in networkx (`benchmarks/orders.py`).
    """
    from hopstate.methods.gmn.core_kernels import core_numbers

    n = len(indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(indptr))
    kept = rows != indices
    rows, cols = rows[kept], indices[kept]
    starts = np.concatenate([[0], np.cumsum(np.bincount(cols, minlength=n))])
    return core_numbers(starts, rows[np.argsort(cols, kind="stable")], np.bincount(rows, minlength=n))


def node_order(key: np.ndarray, rng: np.random.Generator | None = None, graph: np.ndarray | None = None) -> np.ndarray:
    """Return (N,) nodes in ascending order of key (N,), graph by graph where graph (N,) names each node's.

    rng breaks ties at random; None breaks them by node id.
    """
    ties = np.arange(len(key)) if rng is None else rng.permutation(len(key))
    keys = (ties, key) if graph is None else (ties, key, graph)
    return np.lexsort(keys)


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
    """Return (N,) float64 sort keys; offsets (G+1,) bound the graphs of a set, each with keys of its own."""
    if config.kind != "column":
        return order_key(graph.indptr, graph.indices, config.kind, offsets=offsets)
    column = _from_features(graph, config.column) if config.file is None else _from_file(graph, config)
    bad = np.flatnonzero(np.isnan(column))
    if len(bad):
        raise DataError(f"the order column is NaN for {len(bad)} nodes, the first is row {bad[0]}; fill them in")
    return np.asarray(column, np.float64)


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
