"""Graph partitioning into clusters of similar size with few edges between them, by KaMinPar, METIS or bisection.

Source: Gottesbüren et al. 2021, arXiv:2105.02022 (KaMinPar, through kaminpar); Karypis & Kumar 1998 (METIS, through
pymetis); `ops.sampling.bisected_clusters` if neither is installed.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, HopstateWarning, MissingExtraError
from hopstate.ops.sampling import bisected_clusters

POOR = 0.95  # cut edges, relative to random clusters, above which a partition is no better than one

Partitioner = Literal["auto", "kaminpar", "metis", "bisection"]
MODULES = {"kaminpar": "kaminpar", "metis": "pymetis"}  # the better first; their extras have the partitioners' names
NAMES = {"kaminpar": "KaMinPar", "metis": "METIS", "bisection": "hopstate's own bisection"}
IMBALANCE = 0.03  # of KaMinPar's clusters; METIS has the same
SOME = 1 << 22  # entries that are looked at together
NARROW = 2**32  # bytes of a graph's file up to which its places and ids have 32 bits


def partition(graph: Graph, num_clusters: int, *, partitioner: Partitioner = "auto", seed: int = 0) -> np.ndarray:
    """Partition a graph into clusters.

    Args:
        graph: the graph; directed edges count in both directions.
        num_clusters: number of clusters, 1..N.
        partitioner: "kaminpar", "metis", "bisection", or "auto": the first of these that is installed. Default: "auto".
        seed: random seed of KaMinPar and METIS. Default: 0.

    Returns:
        (N,) int64 cluster numbers 0..num_clusters-1; no cluster is empty.

    Raises:
        ConfigError: there are fewer nodes than clusters.
        MissingExtraError: the partitioner is not installed.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> cluster = hopstate.partition(graph, 4)
        >>> cluster.shape, int(cluster.max())
        ((120,), 3)
    """
    if not 1 <= num_clusters <= max(1, graph.num_nodes):
        raise ConfigError(f"{graph.name} has {graph.num_nodes} nodes; it cannot be cut into {num_clusters} clusters")
    partitioner = first_installed() if partitioner == "auto" else partitioner
    if partitioner in MODULES and find_spec(MODULES[partitioner]) is None:
        raise MissingExtraError(
            f"the partitioner {partitioner} needs {MODULES[partitioner]}: pip install 'hopstate[{partitioner}]'. A run "
            "keeps the partitioner of its clusters. A new run can use --batching.partitioner auto"
        )
    if num_clusters == 1:
        return np.zeros(graph.num_nodes, np.int64)
    indptr, indices = _symmetric(graph)
    if partitioner == "kaminpar" and len(indices):
        cluster = _kaminpar(indptr, indices, num_clusters, seed)
    elif partitioner == "metis":
        cluster = _metis(indptr, indices, num_clusters, seed)
    else:
        cluster = bisected_clusters(indptr, indices, num_clusters)
    cluster = _fill_empty(cluster, num_clusters)
    cut, chance = cut_fraction(graph, cluster), 1 - 1 / num_clusters
    if cut > POOR * chance and graph.num_nodes >= 50 * num_clusters:  # tiny clusters always cut nearly all
        warnings.warn(
            f"{cut:.0%} of {graph.name}'s edges lie between its {num_clusters} clusters; {chance:.0%} would between "
            "random ones. The graph has little cluster structure. Use fewer clusters or random nodes",
            HopstateWarning,
            stacklevel=2,
        )
    return cluster


def cut_fraction(graph: Graph, cluster: np.ndarray) -> float:
    """Return the share of edges between different clusters."""
    cut = sum(int((cluster[rows] != cluster[targets]).sum()) for rows, targets in _entries(graph))
    return cut / graph.num_edges if graph.num_edges else 0.0


def first_installed() -> Partitioner:
    """Return the first installed partitioner, or "bisection"."""
    return next((name for name in ("kaminpar", "metis") if find_spec(MODULES[name]) is not None), "bisection")


def _kaminpar(indptr: np.ndarray, indices: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    import kaminpar

    with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch:  # its interface reads graphs from files alone
        path = Path(scratch) / "graph.parhip"
        _write_parhip(path, indptr, indices)
        graph = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP)
    kaminpar.reseed(seed % 2**31)
    engine = kaminpar.KaMinPar(1, kaminpar.default_context())  # more threads, and a seed does not fix the clusters
    return np.asarray(engine.compute_partition(graph, clusters, IMBALANCE), np.int64)


def _write_parhip(path: Path, indptr: np.ndarray, indices: np.ndarray) -> None:
    """Write an unweighted CSR in the ParHIP binary format: header, byte offset of each row, columns."""
    nodes, head = len(indptr) - 1, 3 * 8
    short = head + 4 * (len(indptr) + len(indices)) < NARROW
    kind = np.dtype(np.uint32 if short else np.uint64)
    flags = 0b0011 | (0b1100 if short else 0)  # no weights of edges, none of nodes; places and ids of 32 bits
    with path.open("wb") as file:
        np.array([flags, nodes, len(indices)], np.uint64).tofile(file)
        (indptr.astype(np.uint64) * kind.itemsize + head + kind.itemsize * len(indptr)).astype(kind).tofile(file)
        indices.astype(kind).tofile(file)


def _metis(indptr: np.ndarray, indices: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    import pymetis

    small = max(len(indices), len(indptr)) < 2**31
    kind = np.int32 if small else np.int64
    options = pymetis.Options(seed=seed)
    graph = pymetis.CSRAdjacency(adj_starts=indptr.astype(kind), adjacent=indices.astype(kind))
    _, cluster = pymetis.part_graph(clusters, adjacency=graph, options=options)
    return np.asarray(cluster, np.int64)


def _symmetric(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the CSR of the undirected graph without self-loops; the graph's own arrays if possible."""
    if graph.is_undirected and not any((rows == targets).any() for rows, targets in _entries(graph)):
        return graph.indptr, graph.indices
    a = graph.to_scipy(np.int8)
    if not graph.is_undirected:
        a = ((a + a.T) > 0).astype(np.int8)
    a.setdiag(0)
    a.eliminate_zeros()
    return a.indptr.astype(np.int64), a.indices.astype(np.int64)


def _entries(graph: Graph) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield sources and targets of the edges, in blocks of about `SOME` edges."""
    first = 0
    while first < graph.num_nodes:
        last = int(np.searchsorted(graph.indptr, graph.indptr[first] + SOME, "right")) - 1
        last = max(first + 1, min(last, graph.num_nodes))
        own = slice(graph.indptr[first], graph.indptr[last])
        yield np.repeat(np.arange(first, last), np.diff(graph.indptr[first : last + 1])), graph.indices[own]
        first = last


def _fill_empty(cluster: np.ndarray, clusters: int) -> np.ndarray:
    size = np.bincount(cluster, minlength=clusters)
    for p in np.flatnonzero(size == 0):
        largest = int(size.argmax())
        cluster[np.flatnonzero(cluster == largest)[0]] = p
        size[largest] -= 1
        size[p] += 1
    return cluster
