"""From a list of edges to CSR: a stable counting sort by (source, target), linear in nodes and edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.data.validate import check_ids, check_num_nodes
from hopstate.errors import DataError


def csr_from_edges(
    edges: Any,
    num_nodes: int | None = None,
    *,
    undirected: bool = True,
    drop_duplicates: bool = True,
    drop_self_loops: bool = False,
    edge_attr: Any = None,
    where: str = "",
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return CSR arrays of a list of edges, targets sorted within each row, equal ones in the order given.

    Args:
        edges: (E, 2) or (2, E) integers; (2, 2) is read as (E, 2).
        num_nodes: N; by default one more than the largest id.
        undirected: store the reverse of every edge but self-loops too, with the same edge_attr.
        drop_duplicates: keep only the first of equal stored edges; with `undirected`, (v, u) equals (u, v).
        drop_self_loops: leave out edges from a node to itself.
        edge_attr: (E,) or (E, D) in the order of edges.
        where: a file name for messages.

    Returns:
        (N + 1,) int64 indptr, (E',) int64 indices, and (E', D) float32 edge_attr in their order or None.

    Raises:
        DataError: no integers, wrong shapes, or ids out of range; the first bad row is named.
    """
    attr = None if edge_attr is None else _edge_rows(edge_attr, f"{where}: " if where else "")
    indptr, indices, rows = csr_rows(
        edges,
        num_nodes,
        undirected=undirected,
        drop_duplicates=drop_duplicates,
        drop_self_loops=drop_self_loops,
        carried=None if attr is None else len(attr),
        where=where,
    )
    return indptr, indices, None if attr is None else attr[rows]


def csr_rows(
    edges: Any,
    num_nodes: int | None = None,
    *,
    undirected: bool,
    drop_duplicates: bool,
    drop_self_loops: bool,
    carried: int | None,
    where: str = "",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return CSR arrays and, for each entry, the row of edges that it comes from; see `csr_from_edges`.

    Args:
        edges, num_nodes, undirected, drop_duplicates, drop_self_loops, where: as there.
        carried: rows of what edges carry, None where they carry nothing; then there are no rows.

    Raises:
        DataError: as there, or edges carry more or fewer rows than there are edges.
    """
    prefix = f"{where}: " if where else ""
    sources, targets = _columns(edges, prefix)
    if carried is not None and carried != len(sources):
        raise DataError(f"{prefix}edge features have {carried} rows, but there are {len(sources)} edges")
    if num_nodes is None:
        num_nodes = 1 + int(max(sources.max(initial=-1), targets.max(initial=-1)))
        check_num_nodes(num_nodes, len(sources), where or "edges")
    if num_nodes < 1:
        raise DataError(f"{prefix}no edges and no number of nodes; give num_nodes, x or y")
    for name, column in (("source", sources), ("target", targets)):
        check_ids(column, num_nodes, f"{prefix}edge {name}")
    from hopstate.data.build_kernels import sorted_rows

    return sorted_rows(  # type: ignore[no-any-return]
        sources, targets, num_nodes, undirected, drop_duplicates, drop_self_loops, carried is not None
    )


def _columns(edges: Any, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if edges.ndim != 2 or 2 not in edges.shape:
        raise DataError(f"{prefix}edges have shape {edges.shape}; expected (edges, 2) or (2, edges)")
    if edges.dtype.kind not in "iu":
        raise DataError(f"{prefix}edges hold {edges.dtype}; node ids are integers (read_graph also takes strings)")
    if edges.dtype == np.uint64 and int(edges.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{prefix}an edge names node {edges.max()}, beyond 2^63 - 1")
    pairs = edges.T if edges.shape[1] == 2 else edges
    return tuple(np.ascontiguousarray(column, np.int64) for column in pairs)  # type: ignore[return-value]


def _edge_rows(edge_attr: Any, prefix: str) -> np.ndarray:
    attr = np.asarray(edge_attr, np.float32)
    attr = attr[:, None] if attr.ndim == 1 else attr
    if attr.ndim != 2:
        raise DataError(f"{prefix}edge features have shape {attr.shape}, not one row an edge")
    return attr
