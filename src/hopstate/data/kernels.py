# mypy: ignore-errors
"""Compiled loops over edges: sorted rows and transposes. Imported on first use."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def sorted_rows(sources, targets, num_nodes, undirected, unique, no_loops, want_rows):
    """Return (indptr, indices, row of each entry in the list of edges; empty unless want_rows)."""
    first, from_source, from_row = _by_target(sources, targets, num_nodes, undirected, no_loops, want_rows)
    starts = np.zeros(num_nodes + 1, np.int64)
    for source in from_source:
        starts[source + 1] += 1
    for v in range(num_nodes):
        starts[v + 1] += starts[v]
    place = starts[:-1].copy()
    indices = np.empty(len(from_source), np.int64)
    rows = np.empty(len(from_row), np.int64)
    for target in range(num_nodes):
        for k in range(first[target], first[target + 1]):
            source = from_source[k]
            at = place[source]
            if unique and at > starts[source] and indices[at - 1] == target:
                continue
            indices[at] = target
            if want_rows:
                rows[at] = from_row[k]
            place[source] = at + 1
    if unique:
        kept = _close_gaps(starts, place, indices, rows, want_rows)
        indices = indices[:kept].copy()
        rows = rows[: kept if want_rows else 0].copy()
    return starts, indices, rows


@njit(cache=True, nogil=True)
def _by_target(sources, targets, num_nodes, undirected, no_loops, want_rows):
    """Return every entry's source (and edge row) grouped by target, groups in the order of the edges."""
    first = np.zeros(num_nodes + 1, np.int64)
    for e in range(len(sources)):
        u, v = sources[e], targets[e]
        if u == v and no_loops:
            continue
        first[v + 1] += 1
        if undirected and u != v:
            first[u + 1] += 1
    for v in range(num_nodes):
        first[v + 1] += first[v]
    place = first[:-1].copy()
    from_source = np.empty(first[-1], np.int64)
    from_row = np.empty(first[-1] if want_rows else 0, np.int64)
    for e in range(len(sources)):
        u, v = sources[e], targets[e]
        if u == v and no_loops:
            continue
        from_source[place[v]] = u
        if want_rows:
            from_row[place[v]] = e
        place[v] += 1
        if undirected and u != v:
            from_source[place[u]] = v
            if want_rows:
                from_row[place[u]] = e
            place[u] += 1
    return first, from_source, from_row


@njit(cache=True, nogil=True)
def _close_gaps(starts, ends, indices, rows, want_rows):
    kept = 0
    for v in range(len(ends)):
        begin = starts[v]
        starts[v] = kept
        for k in range(begin, ends[v]):
            indices[kept] = indices[k]
            if want_rows:
                rows[kept] = rows[k]
            kept += 1
    starts[len(ends)] = kept
    return kept


@njit(cache=True, nogil=True)
def transposed(indptr, indices, want_rows):
    """Return (indptr, indices, position of each entry in the given arrays; empty unless want_rows) of the transpose."""
    n = len(indptr) - 1
    starts = np.zeros(n + 1, np.int64)
    for v in indices:
        starts[v + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    place = starts[:-1].copy()
    sources = np.empty(len(indices), np.int64)
    rows = np.empty(len(indices) if want_rows else 0, np.int64)
    for u in range(n):
        for e in range(indptr[u], indptr[u + 1]):
            at = place[indices[e]]
            sources[at] = u
            if want_rows:
                rows[at] = e
            place[indices[e]] = at + 1
    return starts, sources, rows


@njit(cache=True, nogil=True)
def is_symmetric(indptr, indices):
    """Return whether a CSR with sorted rows equals its transpose, entries stored several times included."""
    place = indptr[:-1].copy()
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if place[v] >= indptr[v + 1] or indices[place[v]] != u:
                return False
            place[v] += 1
    return True
