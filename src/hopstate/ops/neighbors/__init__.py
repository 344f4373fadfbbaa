"""Packed neighbor histories, last interactions and co-occurrence counts: references and compiled loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["PackedNeighbors", "cooccurrence", "cooccurrence_naive", "last_meeting_naive", "last_naive", "neighbor_of"]


@dataclass(frozen=True, eq=False)
class PackedNeighbors:
    """Packed histories of Q queries, each oldest first.

    Args:
        offsets: (Q+1,) int64; query q has the rows offsets[q]:offsets[q+1] of the other arrays.
        nodes: (T,) int64 neighbors.
        event_ids: (T,) int64.
        times: (T,) int64 or float64, all strictly before the query's time.
    """

    offsets: np.ndarray
    nodes: np.ndarray
    event_ids: np.ndarray
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(Q,) int64 number of entries of each query."""
        return np.diff(self.offsets)

    def rows(self) -> np.ndarray:
        """Return (T,) int64: the query each entry belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def of(self, query: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (nodes, event_ids, times) of one query."""
        part = slice(self.offsets[query], self.offsets[query + 1])
        return self.nodes[part], self.event_ids[part], self.times[part]

    def without(self, events: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k entries of each query but its event of `events` (Q,); there are at most k + 1 of each."""
        rows = self.rows()
        kept = self.event_ids != events[rows]
        lengths = np.bincount(rows[kept], minlength=len(self))
        kept[self.offsets[:-1][lengths > k]] = False
        offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, k))])
        return PackedNeighbors(offsets, self.nodes[kept], self.event_ids[kept], self.times[kept])


def neighbor_of(codes: np.ndarray) -> np.ndarray:
    """Decode neighbors: c if c >= 0, otherwise its bitwise complement."""
    return np.where(codes < 0, ~codes, codes).astype(np.int64)


def last_naive(
    src: np.ndarray, dst: np.ndarray, t: np.ndarray, nodes: np.ndarray, times: np.ndarray, k: int
) -> PackedNeighbors:
    """Reference implementation: return each node's last k events strictly before its time.

    A self-loop appears once in its node's history.
    """
    lists: list[list[tuple[int, int]]] = []
    for node, time in zip(nodes.tolist(), times.tolist(), strict=True):
        events = [e for e in np.argsort(t, kind="stable").tolist() if t[e] < time and node in (src[e], dst[e])]
        seen = [(int(dst[e] if src[e] == node else src[e]), e) for e in events]
        lists.append(seen[max(len(seen) - k, 0) :])
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    neighbors = np.array([n for x in lists for n, _ in x], np.int64)
    ids = np.array([e for x in lists for _, e in x], np.int64)
    return PackedNeighbors(offsets, neighbors, ids, t[ids])


def last_meeting_naive(
    src: np.ndarray, dst: np.ndarray, t: np.ndarray, u: np.ndarray, v: np.ndarray, times: np.ndarray, directed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Reference implementation: return the time of each pair's last earlier event, and whether there is one."""
    last, found = np.zeros(len(u), t.dtype), np.zeros(len(u), bool)
    for q in range(len(u)):
        hit = (src == u[q]) & (dst == v[q])
        if not directed:
            hit |= (src == v[q]) & (dst == u[q])
        hit &= t < times[q]
        found[q] = hit.any()
        last[q] = t[hit].max() if found[q] else 0
    return last, found


def cooccurrence_naive(u: PackedNeighbors, v: PackedNeighbors) -> tuple[np.ndarray, np.ndarray]:
    """Count the occurrences of each entry's neighbor in u's and v's lists, for all entries of both lists.

    Args:
        u, v: Q histories each; history q of u is compared with history q of v.

    Returns:
        (Tu, 2) and (Tv, 2) int64; column 0 counts in u's list, column 1 in v's.
    """
    counts: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for q in range(len(u)):
        a, b = u.of(q)[0].tolist(), v.of(q)[0].tolist()
        counts[0].extend((a.count(n), b.count(n)) for n in a)
        counts[1].extend((a.count(n), b.count(n)) for n in b)
    return np.array(counts[0], np.int64).reshape(-1, 2), np.array(counts[1], np.int64).reshape(-1, 2)


def cooccurrence(
    offsets_u: np.ndarray, nodes_u: np.ndarray, offsets_v: np.ndarray, nodes_v: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Count the occurrences of each entry's neighbor in u's and v's packed lists.

    Args:
        offsets_u, nodes_u: (Q+1,) int64 and (Tu,) int64, packed lists of u.
        offsets_v, nodes_v: the same for v; list q of u is compared with list q of v.

    Returns:
        (Tu, 2) and (Tv, 2) int64; column 0 counts in u's list, column 1 in v's.
    """
    from hopstate.ops.neighbors.kernels import cooccurrence_kernel

    counts_u = np.empty((len(nodes_u), 2), np.int64)
    counts_v = np.empty((len(nodes_v), 2), np.int64)
    longest = int(np.max(np.diff(offsets_u) + np.diff(offsets_v), initial=0))
    size = 1 << max(4, (2 * longest - 1).bit_length())
    cooccurrence_kernel(offsets_u, nodes_u, offsets_v, nodes_v, counts_u, counts_v, size)
    return counts_u, counts_v
