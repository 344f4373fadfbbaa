"""Induced subgraphs, neighbor sampling and graph clustering on CSR adjacencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.errors import ConfigError, DataError

PASSES = 10  # at most, in which nodes change sides after a cut

__all__ = ["LocalGraph", "Neighborhoods", "bisected_clusters"]


@dataclass(frozen=True, eq=False)
class LocalGraph:
    """A small CSR graph over selected nodes; row i belongs to nodes[i], and indices refer to nodes.

    Args:
        nodes: (m,) int64 nodes of the full graph. The receivers come first; the others only send.
        indptr: (r+1,) int64, r <= m receivers.
        indices: (e,) int64 in 0..m-1.
        weight: (e,) float32 inverse sampling probabilities, or None if no edge was dropped.
        edges: (e,) int64 positions in the full graph's CSR, or None if not requested.
    """

    nodes: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None = None
    edges: np.ndarray | None = None

    @property
    def num_receivers(self) -> int:
        """Nodes that receive messages, the first of the local ones."""
        return len(self.indptr) - 1


class Neighborhoods:
    """Extract subgraphs and sample neighbors of one graph, with a workspace of 4 bytes per node.

    For message passing, use the CSR of in-edges: row v holds the nodes that v receives from. An instance is not
    thread-safe, but several instances can share a graph.

    Args:
        indptr: (N+1,) int64.
        indices: (E,) int64; only the queried rows of a memory-mapped array are read.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        self.indptr, self.indices = _plain(indptr), _plain(indices)
        self._local = np.full(len(indptr) - 1, -1, np.int32)

    def induced(self, nodes: np.ndarray, *, halo: bool = False) -> LocalGraph:
        """Return the edges among distinct nodes; with halo, all in-edges of nodes, outside senders last.

        Raises:
            DataError: a node does not exist or is repeated.
        """
        from hopstate.ops.sampling.kernels import induced

        nodes = self._check(nodes)
        indptr, indices, edges, all_nodes = induced(self.indptr, self.indices, nodes, self._local, halo)
        return LocalGraph(all_nodes, indptr, indices, edges=edges)

    def sample(self, seeds: np.ndarray, fanout: int, *, seed: int, labor: bool = False) -> LocalGraph:
        """Return sampled in-edges of distinct seeds: fanout per seed without replacement, or on average (LABOR-0).

        Neighbor sums weighted by `weight` are unbiased.
        """
        from hopstate.ops.sampling import kernels

        if fanout < 1:
            raise ConfigError(f"a fan-out is at least 1; got {fanout}")
        draw = kernels.sample_labor if labor else kernels.sample_neighbors
        indptr, indices, weight, edges, nodes = draw(
            self.indptr, self.indices, self._check(seeds), fanout, np.int64(seed), self._local
        )
        return LocalGraph(nodes, indptr, indices, weight, edges)

    def ppr(
        self, roots: np.ndarray, size: int, *, alpha: float = 0.15, epsilon: float = 1e-4
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets, nodes): each root and its up to size - 1 other nodes with the largest approximate PPR.

        Args:
            roots: (r,) int64.
            size: maximum nodes per root.
            alpha: teleport probability.
            epsilon: residual threshold per degree.
        """
        from hopstate.ops.sampling.kernels import ppr_neighborhoods

        return ppr_neighborhoods(self.indptr, self.indices, self._check(roots), size, alpha, epsilon)

    def hops(self, roots: np.ndarray, depth: int, fanout: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets, nodes): each root, then the nodes that depth hops of fanout sampled neighbors reach."""
        from hopstate.ops.sampling.kernels import hop_neighborhoods

        roots = self._check(roots)
        return hop_neighborhoods(self.indptr, self.indices, roots, depth, fanout, np.int64(seed), self._local)

    def union(self, offsets: np.ndarray, nodes: np.ndarray) -> LocalGraph:
        """Return the induced subgraphs of each nodes[offsets[r]:offsets[r+1]] as one disconnected graph."""
        from hopstate.ops.sampling.kernels import disjoint_union

        indptr, indices, edges = disjoint_union(self.indptr, self.indices, offsets, nodes, self._local)
        return LocalGraph(nodes, indptr, indices, edges=edges)

    def _check(self, nodes: np.ndarray) -> np.ndarray:
        nodes = np.ascontiguousarray(nodes, np.int64)
        n = len(self._local)
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= n):
            bad = nodes[(nodes < 0) | (nodes >= n)][0]
            raise DataError(f"node {bad} is not in 0..{n - 1}")
        marked = self._local
        marked[nodes] = np.arange(len(nodes), dtype=np.int32)
        twice = marked[nodes] != np.arange(len(nodes))
        marked[nodes] = -1
        if twice.any():
            raise DataError(f"node {nodes[twice][0]} is given twice in one batch")
        return nodes


def bisected_clusters(indptr: np.ndarray, indices: np.ndarray, clusters: int) -> np.ndarray:
    """Return (N,) int64 clusters of similar size with few edges between them, without METIS.

    Node sets are bisected recursively: first by a breadth-first ball from a peripheral node, then by moving nodes that
    reduce the cut.

    Args:
        indptr, indices: an undirected CSR.
        clusters: number of clusters, 1..N.
    """
    from hopstate.ops.sampling.kernels import bisect

    n = len(indptr) - 1
    indptr, indices = _plain(indptr), _plain(indices)
    cluster, side, order = np.zeros(n, np.int64), np.full(n, -1, np.int8), np.empty(n, np.int64)
    waiting = [(np.arange(n), 0, clusters)]
    while waiting:
        nodes, first, count = waiting.pop()
        if count == 1 or len(nodes) < 2:
            cluster[nodes] = first
            continue
        left = count // 2
        bisect(indptr, indices, nodes, round(len(nodes) * left / count), PASSES, side, order)
        halves = nodes[side[nodes] == 0], nodes[side[nodes] == 1]
        side[nodes] = -1
        waiting += [(halves[0], first, left), (halves[1], first + left, count - left)]
    return cluster


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an int64 array as a plain ndarray (a memory map is one, without a copy)."""
    return np.asarray(array, np.int64).view(np.ndarray)
