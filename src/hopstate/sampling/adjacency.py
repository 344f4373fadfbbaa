"""Adjacencies of a graph and of what is cut from it: in-edges, with the weights and features that they carry."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hopstate.data.graph import Graph
from hopstate.layers.message import Adjacency
from hopstate.ops.rows import bounds_of, ranges
from hopstate.ops.sampling import LocalGraph, Neighborhoods


def cutter_of(graph: Graph) -> Neighborhoods:
    """Return what cuts subgraphs and samples in-neighbours of a graph; its edges are positions in `graph.incoming`."""
    return Neighborhoods(graph.incoming.indptr, graph.incoming.indices)


def whole_adjacency(graph: Graph) -> Adjacency:
    into = graph.incoming
    everything = slice(None)
    return Adjacency.of(
        into.indptr, into.indices, weight=into.weight_of(everything), edge_attr=into.attr_of(everything)
    )


def inside_adjacency(graph: Graph, local: LocalGraph) -> Adjacency:
    return Adjacency.of(local.indptr, local.indices, num_nodes=len(local.nodes), **_carried(graph, local))


def around_adjacency(graph: Graph, local: LocalGraph, *, scale: np.ndarray | None = None) -> Adjacency:
    """Return the adjacency of a local graph, weighted by the whole graph's degrees.

    Args:
        graph: that it was cut from.
        local: nodes and edges.
        scale: (e,) factors of the edges; by default 1 / probability where they were sampled.
    """
    return Adjacency.of(
        local.indptr,
        local.indices,
        num_nodes=len(local.nodes),
        degree=graph.incoming.degree[local.nodes],
        scale=local.weight if scale is None else scale,
        **_carried(graph, local),
    )


def rows_adjacency(graph: Graph, rows: np.ndarray, degree: Tensor) -> Adjacency:
    """Return the adjacency of some rows (r,), ascending, over all nodes, weighted by the whole graph's degree (N,)."""
    into = graph.incoming
    counts = into.count[rows]
    indptr = bounds_of(counts)
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        edges: slice | np.ndarray = slice(into.indptr[rows[0]], into.indptr[rows[-1] + 1])
    else:
        edges = ranges(into.indptr[rows], counts)
    tensors = (torch.from_numpy(np.array(array, np.int64)) for array in (indptr, into.indices[edges], rows))
    starts, columns, receivers = tensors
    weight, attr = into.weight_of(edges), into.attr_of(edges)
    return Adjacency(
        starts,
        columns,
        num_nodes=graph.num_nodes,
        receivers=receivers,
        degree=degree,
        weight=None if weight is None else torch.from_numpy(np.array(weight)),
        edge_attr=None if attr is None else torch.from_numpy(np.array(attr)),
    )


def _carried(graph: Graph, local: LocalGraph) -> dict[str, np.ndarray | None]:
    into = graph.incoming
    if into.rows is None:
        return {}
    assert local.edges is not None
    return {"weight": into.weight_of(local.edges), "edge_attr": into.attr_of(local.edges)}
