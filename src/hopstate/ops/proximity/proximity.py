"""Nearness of pairs from sparse products over the neighbours of one end.

Self-loops, duplicates and directions are left out: a neighbour is whom a link joins, however it is stored.

Source: Liben-Nowell & Kleinberg 2007, doi:10.1002/asi.20591 (common neighbours; Adamic & Adar; rooted PageRank);
Zhou, Lu & Zhang 2009, arXiv:0901.0553 (resource allocation).
Deviation: PageRank's walk ends after `STEPS` steps, which leaves out 7% of it.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from hopstate.errors import ConfigError, nearest

Kind = Literal["common_neighbors", "adamic_adar", "resource_allocation", "pagerank"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RETURN, STEPS = 0.15, 16  # chance that the walk returns to where it began; steps
CELLS = 1 << 22  # numbers of dense rows at a time


class Proximity:
    """Nearness of nodes by a graph's links.

    Args:
        indptr, indices: its CSR, of any kind.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        import scipy.sparse

        n = self.num_nodes = len(indptr) - 1
        rows = np.repeat(np.arange(n), np.diff(indptr))
        other = rows != indices
        ends = np.concatenate([rows[other], indices[other]]), np.concatenate([indices[other], rows[other]])
        joined = scipy.sparse.csr_array((np.ones(len(ends[0])), ends), shape=(n, n))
        joined.sum_duplicates()
        joined.data[:] = 1.0
        self.adjacency = joined
        self.degree = np.diff(joined.indptr).astype(np.float64)

    def pairs(self, kind: Kind, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) float64 how near u (n,) and v (n,) are: from u, which counts for "pagerank" alone.

        Args:
            kind: "common_neighbors" w counts each 1, "adamic_adar" 1 / log deg w, "resource_allocation" 1 / deg w;
                "pagerank" is the chance to be at v of a walk from u that returns there with chance 0.15 at each step.
            u, v: rows of nodes.

        Raises:
            ConfigError: an unknown kind.
        """
        if kind not in KINDS:
            raise ConfigError(f"unknown nearness {kind!r}{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
        found = np.empty(len(u))
        roots, which = np.unique(u, return_inverse=True)
        order = np.argsort(which, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(roots) + 1))
        step = max(1, CELLS // max(self.num_nodes, 1))
        weighted = None if kind == "pagerank" else self._weighted(kind)
        for start in range(0, len(roots), step):
            part = roots[start : start + step]
            at = order[bounds[start] : bounds[min(start + step, len(roots))]]
            rows = self._walk(part) if weighted is None else (self.adjacency[part] @ weighted).toarray()
            found[at] = rows[which[at] - start, v[at]]
        return found

    def _weighted(self, kind: Kind) -> Any:
        """Return the adjacency, each row multiplied by what its node counts as a common neighbour."""
        import scipy.sparse

        weight = np.ones(self.num_nodes)
        if kind == "adamic_adar":  # a common neighbour of two nodes has two neighbours at least
            weight = 1 / np.log(np.maximum(self.degree, 2))
            weight[self.degree < 2] = 0
        elif kind == "resource_allocation":
            weight = 1 / np.maximum(self.degree, 1)
        return scipy.sparse.diags_array(weight).tocsr() @ self.adjacency

    def _walk(self, roots: np.ndarray) -> np.ndarray:
        """Return (r, N) where walks from roots are."""
        import scipy.sparse

        back = self.adjacency @ scipy.sparse.diags_array(1 / np.maximum(self.degree, 1)).tocsr()
        here = np.zeros((self.num_nodes, len(roots)))
        here[roots, np.arange(len(roots))] = 1
        total = RETURN * here
        for _ in range(STEPS):
            here = (1 - RETURN) * (back @ here)
            total += RETURN * here
        return total.T


__all__ = ["KINDS", "RETURN", "STEPS", "Kind", "Proximity"]
