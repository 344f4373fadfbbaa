"""Compiled half of `build`: edges bucketed by target, then by source, both times in order, so rows come out sorted."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def sorted_rows(sources, targets, num_nodes, undirected, unique, no_loops, want_rows):  # type: ignore[no-untyped-def]
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
def _by_target(sources, targets, num_nodes, undirected, no_loops, want_rows):  # type: ignore[no-untyped-def]
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
def _close_gaps(starts, ends, indices, rows, want_rows):  # type: ignore[no-untyped-def]
    """Move the kept entries of all rows together in place, rewrite starts, return how many there are."""
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
