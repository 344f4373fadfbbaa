"""Compiled loops of `history`: from packed neighbour lists to packed tokens. Imported on first use.

Times and query times are both int64 or both float64. `place` of the target token: 0 nowhere, 1 first, 2 last.
Differences of time are taken first, then divided by `unit`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

Array = np.ndarray


@njit(cache=True, nogil=True)
def count_tokens(
    offsets: Array,
    times: Array,
    query_times: Array,
    capped: bool,
    window: float,
    place: int,
    first: Array,
    out_offsets: Array,
) -> None:
    """Write where each list's events within the window begin, and the packed offsets of its tokens."""
    out_offsets[0] = 0
    for q in range(len(query_times)):
        low, high = offsets[q], offsets[q + 1]
        if capped:
            end = high
            while low < end:
                middle = (low + end) >> 1
                if query_times[q] - times[middle] > window:
                    low = middle + 1
                else:
                    end = middle
        first[q] = low
        out_offsets[q + 1] = out_offsets[q] + high - low + (place > 0)


@njit(cache=True, nogil=True)
def write_tokens(
    offsets: Array,
    nodes: Array,
    event_ids: Array,
    times: Array,
    targets: Array,
    query_times: Array,
    place: int,
    first: Array,
    out_offsets: Array,
    unit: float,
    out_nodes: Array,
    out_ids: Array,
    gaps: Array,
    spans: Array,
) -> None:
    """Write each list's tokens: neighbour, event id (-1 for the target), time to the query and to the next token."""
    for q in range(len(query_times)):
        begin, end, out = first[q], offsets[q + 1], out_offsets[q]
        if place > 0:
            at = out if place == 1 else out_offsets[q + 1] - 1
            out_nodes[at] = targets[q]
            out_ids[at] = -1
            gaps[at] = 0.0
            spans[at] = (query_times[q] - times[begin]) / unit if place == 1 and begin < end else 0.0
        if place == 1:
            out += 1
        for i in range(begin, end):
            following = times[i + 1] if i + 1 < end else query_times[q]
            out_nodes[out] = nodes[i]
            out_ids[out] = event_ids[i]
            gaps[out] = (query_times[q] - times[i]) / unit
            spans[out] = (following - times[i]) / unit
            out += 1
