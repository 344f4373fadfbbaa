"""Negative sampling for static link prediction: uniform, by degree, or two hops away.

A uniform draw needs no rejection: it draws an index below the number of non-neighbors and finds the node by binary
search. The cost does not depend on the degree.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hopstate.ops.rows import bounds_of, ranges

Strategy = Literal["uniform", "degree", "two-hop", "scored"]
ROUNDS = 16  # rejected draws before a uniform one is used


class NonNeighbors:
    """The non-neighbors of every node, from which negative pairs are drawn.

    Args:
        pairs: (n, 2) edges (source, target).
        num_nodes: number of nodes N.
        directed: if False, each edge counts in both directions.
        node_type: (N,) node types of a bipartite graph (see `Graph`). Non-neighbors are then of the other type; a node
            without a type has none.
    """

    def __init__(
        self, pairs: np.ndarray, num_nodes: int, *, directed: bool, node_type: np.ndarray | None = None
    ) -> None:
        n = self.num_nodes = num_nodes
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        both = pairs if directed else np.concatenate([pairs, pairs[:, ::-1]])
        self.targets = both[:, 1]  # a uniform draw from these is a draw by degree
        self.node_type = node_type
        self_loops = np.arange(n, dtype=np.int64) * (n + 1)
        self._key = np.unique(np.concatenate([both[:, 0] * n + both[:, 1], self_loops]))
        # `_order` sorts nodes by type; the candidates of node v are a range of it that starts at `_start[v]`
        if node_type is None:
            self._order, self._start, size = None, np.zeros(n, np.int64), np.full(n, n)
            excluded = self._key
        else:
            self._order = np.argsort(node_type, kind="stable")
            sizes = np.bincount(node_type + 1, minlength=3)
            self._start = np.choose(node_type + 1, [n, sizes[0] + sizes[1], sizes[0]]).astype(np.int64)
            size = np.choose(node_type + 1, [0, sizes[2], sizes[1]]).astype(np.int64)
            position = np.empty(n, np.int64)
            position[self._order] = np.arange(n)
            excluded = np.unique(both[:, 0] * n + position[both[:, 1]] - self._start[both[:, 0]])
        rows, place = excluded // max(n, 1), excluded % max(n, 1)
        self.indptr = bounds_of(np.bincount(rows, minlength=n))
        self.count = size - np.diff(self.indptr)
        # for each excluded node, the number of non-excluded nodes before it
        self._before = rows * (n + 1) + place - (np.arange(len(place)) - self.indptr[rows])
        self.indices = self._node(rows, place)

    def _node(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        place = place + self._start[rows]
        return place if self._order is None else self._order[place]

    def nth_non_neighbor(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return (n,) for each of rows (n,) its non-neighbor with the index place (n,), from 0."""
        passed = np.searchsorted(self._before, rows * (self.num_nodes + 1) + place, side="right")
        return self._node(rows, place + passed - self.indptr[rows])

    def are_valid_negatives(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) whether the pairs u (n,), v (n,) are valid negatives."""
        found = ~self.linked(u, v)
        if self.node_type is None:
            return found
        return found & (self.node_type[u] + self.node_type[v] == 1)

    def linked(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) whether u (n,) and v (n,) are linked or the same node."""
        key = u * self.num_nodes + v
        return self._key[np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)] == key

    def draw(self, rows: np.ndarray, rng: np.random.Generator, strategy: Strategy = "uniform") -> np.ndarray:
        """Draw one non-neighbor for each node.

        Args:
            rows: (n,) nodes.
            rng: random generator.
            strategy: "uniform"; "degree" draws proportionally to the degree; "two-hop" draws a neighbor of a neighbor
                (in a bipartite graph, three hops away). If several draws are rejected, a uniform one is used.

        Returns:
            (n,) non-neighbors, -1 for nodes that have none.
        """
        uniform = np.floor(rng.random(len(rows)) * self.count[rows]).astype(np.int64)
        negatives = np.full(len(rows), -1)
        drawable = np.flatnonzero(self.count[rows] > 0)
        negatives[drawable] = self.nth_non_neighbor(
            rows[drawable], np.minimum(uniform[drawable], self.count[rows[drawable]] - 1)
        )
        if strategy in ("uniform", "scored") or not len(self.targets):
            return negatives
        unresolved = np.flatnonzero(negatives >= 0)
        for _ in range(ROUNDS):
            if not len(unresolved):
                break
            drawn = self._degree(len(unresolved), rng) if strategy == "degree" else self._two_hop(rows[unresolved], rng)
            valid = self.are_valid_negatives(rows[unresolved], drawn)
            negatives[unresolved[valid]] = drawn[valid]
            unresolved = unresolved[~valid]
        return negatives

    def sample(self, rows: np.ndarray, max_count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return up to max_count distinct non-neighbors of each of rows, as nodes (T,) and offsets (len(rows) + 1,)."""
        counts = np.minimum(self.count[rows], max_count)
        bounds = bounds_of(counts)
        place = np.empty(bounds[-1], np.int64)
        take_all = self.count[rows] <= max_count
        place[ranges(bounds[:-1][take_all], counts[take_all])] = ranges(
            np.zeros(int(take_all.sum()), np.int64), counts[take_all]
        )
        dense = ~take_all & (self.count[rows] <= 3 * max_count)
        for group, draw in ((dense, _sample_dense), (~take_all & ~dense, _sample_sparse)):
            if group.any():
                place[ranges(bounds[:-1][group], counts[group])] = draw(self.count[rows[group]], max_count, rng).ravel()
        return self.nth_non_neighbor(np.repeat(rows, counts), place), bounds

    def _degree(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return self.targets[rng.integers(0, len(self.targets), count)]

    def _two_hop(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = self._step(self._step(rows, rng), rng)
        return found if self.node_type is None else self._step(found, rng)

    def _step(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a random neighbor of each node; without node types, a node is its own neighbor too."""
        size = np.diff(self.indptr)[rows]
        place = self.indptr[rows] + np.floor(rng.random(len(rows)) * size).astype(np.int64)
        return np.where(size > 0, self.indices[np.minimum(place, len(self.indices) - 1)], rows)


def _sample_sparse(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return (R, size) distinct numbers below counts (R,), for counts above 3 * size."""
    drawn = np.sort(np.floor(rng.random((len(counts), size)) * counts[:, None]).astype(np.int64), 1)
    while True:
        again = np.zeros(drawn.shape, bool)
        again[:, 1:] = drawn[:, 1:] == drawn[:, :-1]
        rows = np.flatnonzero(again.any(1))
        if not len(rows):
            return drawn
        at = np.nonzero(again[rows])
        candidates = drawn[rows]
        candidates[at] = np.floor(rng.random(len(at[0])) * counts[rows][at[0]]).astype(np.int64)
        drawn[rows] = np.sort(candidates, 1)


def _sample_dense(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return (R, size) distinct numbers below counts (R,), for counts between size and 3 * size."""
    order = rng.random((len(counts), int(counts.max())))
    order[np.arange(order.shape[1]) >= counts[:, None]] = 2
    return np.sort(np.argpartition(order, size - 1, 1)[:, :size], 1)


__all__ = ["NonNeighbors", "Strategy"]
