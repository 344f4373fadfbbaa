"""Cuts a graph into clusters of about equal size with few edges between them: METIS where it is installed.

Source: Karypis & Kumar 1998 (METIS, through pymetis); `ops.sampling.bisected_clusters` where pymetis is missing.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, HopstateWarning, MissingExtraError
from hopstate.ops.sampling import bisected_clusters

POOR = 0.95  # cut edges, relative to random clusters, above which a partition is no better than one

Partitioner = Literal["auto", "metis", "bisection"]


def partition(graph: Graph, clusters: int, *, how: Partitioner = "auto", seed: int = 0) -> np.ndarray:
    """Return (N,) int64 cluster numbers 0..clusters-1; no cluster is empty.

    Args:
        graph: an undirected graph (edges one way only are read as both).
        clusters: number of clusters, 1..N.
        how: "metis", "bisection", or "auto": metis where pymetis is installed.
        seed: fixes METIS; bisection draws nothing.

    Raises:
        ConfigError: fewer nodes than clusters.
        MissingExtraError: metis was asked for and pymetis is not installed.
    """
    if not 1 <= clusters <= max(1, graph.num_nodes):
        raise ConfigError(f"{graph.name} has {graph.num_nodes} nodes; it cannot be cut into {clusters} clusters")
    installed = find_spec("pymetis") is not None
    if how == "metis" and not installed:
        raise MissingExtraError("METIS needs pymetis: pip install 'hopstate[metis]'; or leave the choice to auto")
    if clusters == 1:
        return np.zeros(graph.num_nodes, np.int64)
    indptr, indices = _symmetric(graph)
    if installed and how != "bisection":
        cluster = _metis(indptr, indices, clusters, seed)
    else:
        cluster = bisected_clusters(indptr, indices, clusters)
    cluster = _fill_empty(cluster, clusters)
    cut, chance = cut_fraction(graph, cluster), 1 - 1 / clusters
    if cut > POOR * chance and graph.num_nodes >= 50 * clusters:  # tiny clusters always cut nearly all
        warnings.warn(
            f"{cut:.0%} of {graph.name}'s edges lie between its {clusters} clusters, and {chance:.0%} would if nodes "
            f"were assigned at random: it has little structure to cut along; fewer clusters or random nodes do as well",
            HopstateWarning,
            stacklevel=2,
        )
    return cluster


def cut_fraction(graph: Graph, cluster: np.ndarray) -> float:
    """Return the share of stored edges whose ends lie in different clusters."""
    sources, targets = graph.edge_index()
    return float((cluster[sources] != cluster[targets]).mean()) if graph.num_edges else 0.0


def _metis(indptr: np.ndarray, indices: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    import pymetis

    small = max(len(indices), len(indptr)) < 2**31
    kind = np.int32 if small else np.int64
    options = pymetis.Options(seed=seed)
    graph = pymetis.CSRAdjacency(adj_starts=indptr.astype(kind), adjacent=indices.astype(kind))
    _, cluster = pymetis.part_graph(clusters, adjacency=graph, options=options)
    return np.asarray(cluster, np.int64)


def _symmetric(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return a CSR without self-loops that holds both directions of every edge."""
    a = graph.to_scipy(np.int8)
    if not graph.is_undirected:
        a = ((a + a.T) > 0).astype(np.int8)
    a.setdiag(0)
    a.eliminate_zeros()
    return a.indptr.astype(np.int64), a.indices.astype(np.int64)


def _fill_empty(cluster: np.ndarray, clusters: int) -> np.ndarray:
    """Give every empty cluster one node of the largest."""
    size = np.bincount(cluster, minlength=clusters)
    for p in np.flatnonzero(size == 0):
        largest = int(size.argmax())
        cluster[np.flatnonzero(cluster == largest)[0]] = p
        size[largest] -= 1
        size[p] += 1
    return cluster
