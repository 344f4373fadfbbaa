"""Structural proximity of node pairs: common-neighbor scores and personalized PageRank."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from hopstate.errors import ConfigError, nearest

__all__ = ["FEATURES", "KINDS", "Kind", "Proximity", "proximity_naive"]


def proximity_naive(
    edges: list[tuple[int, int]], num_nodes: int, kind: str, u: int, v: int, *, steps: int = 10
) -> float:
    """Reference implementation of `Proximity`.

    Args:
        edges: undirected edges, possibly repeated.
        num_nodes: N.
        kind: "common_neighbors", "adamic_adar", "resource_allocation", "pagerank", or "paths" of length three.
        u, v: the pair.
        steps: number of steps for "pagerank".
    """
    near: list[set[int]] = [set() for _ in range(num_nodes)]
    for a, b in edges:
        if a != b:
            near[a].add(b)
            near[b].add(a)
    common = near[u] & near[v]
    if kind == "common_neighbors":
        return float(len(common))
    if kind == "adamic_adar":
        return sum(1 / math.log(len(near[w])) for w in sorted(common) if len(near[w]) > 1)
    if kind == "resource_allocation":
        return sum(1 / len(near[w]) for w in sorted(common))
    if kind == "paths":
        ends = [(a, b) for a in near[u] - {v} for b in near[a] - {u, v} if v in near[b]]
        return sum((len(near[a]) * len(near[b])) ** -0.5 for a, b in sorted(ends))
    here = np.zeros(num_nodes)
    here[u] = 1.0
    total = RETURN * here
    for _ in range(steps):
        there = np.zeros(num_nodes)
        for a in range(num_nodes):
            for b in near[a]:
                there[b] += here[a] / len(near[a])
        here = (1 - RETURN) * there
        total += RETURN * here
    return float(total[v])


Kind = Literal["common_neighbors", "adamic_adar", "resource_allocation", "pagerank"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FEATURES = 7  # of `Proximity.features`
RETURN, STEPS = 0.15, 10  # chance that the walk returns to where it began; steps
CELLS = 1 << 22  # numbers of dense rows at a time


class Proximity:
    """Structural proximity of node pairs in a graph.

    Args:
        indptr, indices: the graph's CSR.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        import scipy.sparse

        n = self.num_nodes = len(indptr) - 1
        rows = np.repeat(np.arange(n), np.diff(indptr))
        other = rows != indices
        ends = np.concatenate([rows[other], indices[other]]), np.concatenate([indices[other], rows[other]])
        joined = scipy.sparse.csr_array((np.ones(len(ends[0]), np.float32), ends), shape=(n, n))
        joined.sum_duplicates()
        joined.data[:] = 1
        self.adjacency = joined
        self.indptr, self.indices = joined.indptr.astype(np.int64), joined.indices.astype(np.int64)
        self.degree = np.diff(self.indptr).astype(np.float64)
        # a common neighbour of two nodes has two neighbours at least
        adamic = np.where(self.degree > 1, 1 / np.log(np.maximum(self.degree, 2)), 0)
        self._weights = np.stack([np.ones(n), adamic, 1 / np.maximum(self.degree, 1)])
        self._half = 1 / np.sqrt(np.maximum(self.degree, 1))

    def pairs(self, kind: Kind, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) float64 proximity of u (n,) and v (n,); only "pagerank" is directed, from u.

        Args:
            kind: weight of each common neighbor w: "common_neighbors" 1, "adamic_adar" 1 / log deg w,
                "resource_allocation" 1 / deg w. "pagerank" is the probability of v under a random walk from u with
                restart probability 0.15.
            u, v: nodes.
        """
        if kind not in KINDS:
            raise ConfigError(f"unknown nearness {kind!r}{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
        return self._walks(u, v) if kind == "pagerank" else self.paths(u, v)[:, KINDS.index(kind)]

    def paths(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n, 5) float64: three common-neighbor sums, one over paths of length three, and whether linked.

        Args:
            u, v: (n,) nodes.
        """
        from hopstate.ops.proximity.kernels import pair_paths

        roots, bounds, order = _groups(u)
        out = np.empty((len(u), 5))
        others = np.ascontiguousarray(v[order], np.int64)
        pair_paths(self.indptr, self.indices, self._weights, self._half, roots, bounds, others, out)
        counts = np.empty_like(out)
        counts[order] = out
        return counts

    def features(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n, FEATURES) float32 features for a decoder, computed without the pair's own edge.

        They are logarithms of sums over common neighbors, paths of length three and degrees, and indicators of whether
        there are any. Both directions of a pair give identical bits.
        """
        u, v = np.minimum(u, v), np.maximum(u, v)
        paths = self.paths(u, v)
        own = paths[:, 4]
        ends = np.log1p(self.degree[u] - own) + np.log1p(self.degree[v] - own)
        columns = [np.log1p(paths[:, 0]), np.log1p(paths[:, 1]), np.log1p(10 * paths[:, 2]), np.log1p(10 * paths[:, 3])]
        return np.stack([*columns, paths[:, 0] > 0, paths[:, 3] > 0, ends], 1).astype(np.float32)

    @cached_property
    def _back(self) -> Any:
        import scipy.sparse

        return self.adjacency @ scipy.sparse.diags_array((1 / np.maximum(self.degree, 1)).astype(np.float32)).tocsr()

    def _walks(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) the chance of walks from u to be at v."""
        roots, bounds, order = _groups(u)
        found = np.empty(len(u))
        step = max(1, CELLS // max(self.num_nodes, 1))
        for start in range(0, len(roots), step):
            part = roots[start : start + step]
            at = order[bounds[start] : bounds[start + len(part)]]
            here = np.zeros((self.num_nodes, len(part)), np.float32)
            here[part, np.arange(len(part))] = 1
            total = RETURN * here
            for _ in range(STEPS):
                here = (1 - RETURN) * (self._back @ here)
                total += RETURN * here
            found[at] = total[v[at], np.searchsorted(part, u[at])]
        return found


def _groups(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (different nodes ascending, bounds of their pairs, the pairs' order)."""
    roots, which = np.unique(np.asarray(u, np.int64), return_inverse=True)
    order = np.argsort(which, kind="stable")
    return roots, np.searchsorted(which[order], np.arange(len(roots) + 1)), order
