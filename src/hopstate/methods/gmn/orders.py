"""Orders of a graph's nodes as one sequence, by a measure of importance: the least important first.

Source: Behrouz & Hashemi 2024 (Graph Mamba Networks), section 4.3; Andersen, Chung & Lang 2006 (personalised PageRank);
Batagelj & Zaversnik 2003, arXiv:cs/0310049 (k-core).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, nearest

OrderKind = Literal["degree", "pagerank", "ppr", "kcore", "eigenvector", "random", "column"]
_KINDS = ("degree", "pagerank", "ppr", "kcore", "eigenvector", "random", "column")


def order_key(
    indptr: np.ndarray, indices: np.ndarray, kind: str, *, column: np.ndarray | None = None,
    seeds: np.ndarray | None = None, offsets: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return (N,) float64 sort keys of the nodes.

    Args:
        indptr, indices: CSR adjacency.
        kind: "degree", "pagerank", "ppr" (PageRank that restarts at seeds only), "kcore", "eigenvector" (centrality),
            "random" (all equal: ties are broken at random) or "column".
        column: (N,) the user's own keys, for kind "column".
        seeds: nodes where personalised PageRank restarts; each graph's first node of highest degree by default.
        offsets: (G+1,) bounds of the graphs of a set, no edge between two; each gets the keys that it has alone.

    Raises:
        ConfigError: an unknown kind, or "column" without one.
        DataError: a column of another length, or with NaN.
    """
    if kind not in _KINDS:
        raise ConfigError(f"unknown order {kind!r}{nearest(kind, _KINDS)}; known: {', '.join(_KINDS)}")
    n = len(indptr) - 1
    degree = np.diff(indptr)
    if kind == "column":
        return _column(column, n)
    if kind == "random" or n == 0:
        return np.zeros(n)
    if kind == "degree":
        return degree.astype(np.float64)
    if kind == "kcore":
        return _core_numbers(indptr, indices).astype(np.float64)
    bounds = np.array([0, n]) if offsets is None else np.asarray(offsets)
    if kind == "eigenvector":
        return _eigenvector(indptr, indices, bounds)
    sizes = np.diff(bounds)
    restart = np.repeat(1 / np.maximum(sizes, 1), sizes)
    if kind == "ppr":
        chosen = _first_of_highest(degree, bounds) if seeds is None else np.asarray(seeds)
        restart = np.bincount(chosen, minlength=n).astype(np.float64)
        restart /= np.repeat(np.maximum(np.add.reduceat(restart, bounds[:-1]), 1), sizes)
    return _pagerank(indptr, indices, restart, bounds)


def _column(column: np.ndarray | None, n: int) -> np.ndarray:
    if column is None:
        raise ConfigError("order=column needs a column of keys, one a node")
    column = np.asarray(column, np.float64)
    if column.shape != (n,):
        raise DataError(f"the order column must hold one number a node, shape ({n},); got {column.shape}")
    bad = np.flatnonzero(np.isnan(column))
    if len(bad):
        raise DataError(f"the order column is NaN for {len(bad)} nodes, the first is row {bad[0]}; fill them in")
    return column


def _transition(indptr: np.ndarray, indices: np.ndarray):  # type: ignore[no-untyped-def]
    import scipy.sparse

    degree = np.diff(indptr)
    weights = np.repeat(1 / np.maximum(degree, 1), degree)
    n = len(degree)
    return scipy.sparse.csr_array((weights, indices, indptr), shape=(n, n)), degree == 0


def _first_of_highest(degree: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return (G,) the first node of highest degree of each graph."""
    sizes = np.diff(bounds)
    graph = np.repeat(np.arange(len(sizes)), sizes)
    best = np.lexsort((np.arange(len(degree)), -degree, graph))
    return best[bounds[:-1]]


def _pagerank(
    indptr: np.ndarray, indices: np.ndarray, restart: np.ndarray, bounds: np.ndarray, damping: float = 0.85
) -> np.ndarray:
    """Return PageRank of each graph, its restart and what is stuck in it staying inside; bounds as offsets."""
    step, dangling = _transition(indptr, indices)
    rank, first, sizes = restart.copy(), bounds[:-1], np.diff(bounds)
    stuck, moving = np.flatnonzero(dangling), True
    graph = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(200):  # damping**200 < 1e-14
        stuck_rank = np.bincount(graph[stuck], rank[stuck], len(sizes))
        new = damping * (step.T @ rank + np.repeat(stuck_rank, sizes) * restart) + (1 - damping) * restart
        moving = np.add.reduceat(np.abs(new - rank), first).max() >= 1e-12
        rank = new
        if not moving:
            break
    return _rounded(rank, bounds)


def _eigenvector(indptr: np.ndarray, indices: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Power iteration on A + I of each graph, which has A's vectors and converges on bipartite graphs too."""
    import scipy.sparse

    n, first, sizes = len(indptr) - 1, bounds[:-1], np.diff(bounds)
    a = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n))
    x = np.repeat(sizes**-0.5, sizes)
    for _ in range(1000):
        new = a @ x + x
        new /= np.repeat(np.sqrt(np.add.reduceat(new**2, first)), sizes)
        change = np.abs(new - x).max()
        x = new
        if change < 1e-10:
            break
    return _rounded(x, bounds)


def _rounded(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Nine decimal places of each graph's largest: nodes alike by symmetry stay ties whatever the order of sums."""
    most = np.maximum(np.maximum.reduceat(values, bounds[:-1]), 1e-300)
    return np.round(values / np.repeat(most, np.diff(bounds)), 9)


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
    """Return (N,) nodes in ascending order of key, graph by graph.

    Args:
        key: (N,).
        rng: breaks ties at random; None breaks them by node id.
        graph: (N,) graph of each node, ascending, where several are packed.
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
