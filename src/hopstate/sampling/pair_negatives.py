"""Nodes that a node is not linked to, drawn exactly: uniformly, by degree, or two hops away; and all of them.

A uniform draw takes a random number below the count of such nodes and finds the node of that place by one binary
search, so there is no drawing again, and a node that is linked to almost all others costs no more.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hopstate.ops.rows import bounds_of, ranges

Strategy = Literal["uniform", "degree", "two-hop", "scored"]
ROUNDS = 16  # draws that are tried before a uniform one is taken


class NonNeighbors:
    """For each node the others that it is not linked to.

    Args:
        pairs: (n, 2) links (source, target).
        num_nodes: N.
        directed: False takes each link in both directions.
        node_type: (N,) of two sets of nodes that links join, see `Graph`: the others are then of the other set. A node
            of neither set has none.
    """

    def __init__(
        self, pairs: np.ndarray, num_nodes: int, *, directed: bool, node_type: np.ndarray | None = None
    ) -> None:
        n = self.num_nodes = num_nodes
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        both = pairs if directed else np.concatenate([pairs, pairs[:, ::-1]])
        self.targets = both[:, 1]  # with duplicates of directions only: a draw of them is one by degree
        self.node_type = node_type
        own = np.arange(n, dtype=np.int64) * (n + 1)
        self._key = np.unique(np.concatenate([both[:, 0] * n + both[:, 1], own]))
        # `_order` lists nodes set by set; those that row v may be paired with are a range of it, from `_start[v]`
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
        # of an excluded node: how many that are not excluded stand before it
        self._before = rows * (n + 1) + place - (np.arange(len(place)) - self.indptr[rows])
        self.indices = self._node(rows, place)

    def _node(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        place = place + self._start[rows]
        return place if self._order is None else self._order[place]

    def at(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return (n,) the nodes of a place, from 0, in the list of nodes that rows (n,) may be paired with."""
        passed = np.searchsorted(self._before, rows * (self.num_nodes + 1) + place, side="right")
        return self._node(rows, place + passed - self.indptr[rows])

    def apart(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) whether u (n,) and v (n,) may be a pair that is no link."""
        found = ~self.linked(u, v)
        if self.node_type is None:
            return found
        return found & (self.node_type[u] + self.node_type[v] == 1)

    def linked(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return (n,) whether u (n,) and v (n,) are one node or linked."""
        wanted = u * self.num_nodes + v
        return self._key[np.minimum(np.searchsorted(self._key, wanted), len(self._key) - 1)] == wanted

    def draw(self, rows: np.ndarray, rng: np.random.Generator, strategy: Strategy = "uniform") -> np.ndarray:
        """Return (n,) a node for each of rows (n,) that it is not linked to, -1 where there is none.

        "degree" draws nodes as often as links end at them, "two-hop" a neighbour's neighbour (of two sets of nodes a
        neighbour of that one, which is of the other set); where several draws found none that will do, a uniform one
        takes its place.
        """
        uniform = np.floor(rng.random(len(rows)) * self.count[rows]).astype(np.int64)
        found = np.full(len(rows), -1)
        some = np.flatnonzero(self.count[rows] > 0)
        found[some] = self.at(rows[some], np.minimum(uniform[some], self.count[rows[some]] - 1))
        if strategy in ("uniform", "scored") or not len(self.targets):
            return found
        open_ = np.flatnonzero(found >= 0)
        for _ in range(ROUNDS):
            if not len(open_):
                break
            drawn = self._degree(len(open_), rng) if strategy == "degree" else self._two_hop(rows[open_], rng)
            good = self.apart(rows[open_], drawn)
            found[open_[good]] = drawn[good]
            open_ = open_[~good]
        return found

    def some(self, rows: np.ndarray, most: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return (nodes, bounds): for each of rows up to most different nodes that it is not linked to."""
        counts = np.minimum(self.count[rows], most)
        bounds = bounds_of(counts)
        place = np.empty(bounds[-1], np.int64)
        whole = self.count[rows] <= most
        place[ranges(bounds[:-1][whole], counts[whole])] = ranges(np.zeros(int(whole.sum()), np.int64), counts[whole])
        dense = ~whole & (self.count[rows] <= 3 * most)
        for group, draw in ((dense, _shuffled), (~whole & ~dense, _distinct)):
            if group.any():
                place[ranges(bounds[:-1][group], counts[group])] = draw(self.count[rows[group]], most, rng).ravel()
        return self.at(np.repeat(rows, counts), place), bounds

    def _degree(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return self.targets[rng.integers(0, len(self.targets), count)]

    def _two_hop(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = self._step(self._step(rows, rng), rng)
        return found if self.node_type is None else self._step(found, rng)

    def _step(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a neighbour of each row, or the row itself: of one set of nodes it counts among its neighbours."""
        size = np.diff(self.indptr)[rows]
        place = self.indptr[rows] + np.floor(rng.random(len(rows)) * size).astype(np.int64)
        return np.where(size > 0, self.indices[np.minimum(place, len(self.indices) - 1)], rows)


def _distinct(counts: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return (R, most) different numbers below counts (R,), each more than 3 * most."""
    drawn = np.sort(np.floor(rng.random((len(counts), most)) * counts[:, None]).astype(np.int64), 1)
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


def _shuffled(counts: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return (R, most) different numbers below counts (R,), each from most to 3 * most."""
    order = rng.random((len(counts), int(counts.max())))
    order[np.arange(order.shape[1]) >= counts[:, None]] = 2
    return np.sort(np.argpartition(order, most - 1, 1)[:, :most], 1)


__all__ = ["NonNeighbors", "Strategy"]
