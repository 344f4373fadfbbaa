# mypy: ignore-errors
"""Compiled loops of `mixture`: pairs that did not meet, each drawn from what is past at its own event's time.

Row i draws from random stream (seed, i) alone, so a part of an epoch draws what the whole epoch would. Imported on
first use.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import below, seeded
from hopstate.ops.neighbors.kernels import lower_bound

RANDOM, HISTORICAL, INDUCTIVE, POPULAR = 0, 1, 2, 3
TRIES = 32  # before the random pair that stands there already is kept


@njit(cache=True, nogil=True)
def _meets(target, own, low, high, end, dst):
    """Return whether an event of own[low:high] before end goes to a target."""
    for q in range(low, high):
        if own[q] >= end:
            return False
        if dst[own[q]] == target:
            return True
    return False


@njit(cache=True, nogil=True)
def draw_pairs(kinds, begin, end, pair, known, newest, first, own, own_start, src, dst, seed, out_src, out_dst):
    """Replace the random pairs of rows of other kinds.

    Args:
        kinds: (P,) of each row.
        begin, end: (P,) where the events of its own time begin and end; events before begin are past.
        pair: (P,) number of each event's pair, by first occurrence; first: (pairs,) its first event.
        known: (P,) pairs that met before its time.
        newest: share of them that an inductive pair is drawn from, the latest to meet first.
        own, own_start: each source's events, rising; CSR over sources.
        src, dst: (P,) the events.
        out_src, out_dst: (P,) random pairs, some of which are replaced.
    """
    now, group = np.full(len(first), -1, np.int64), -1
    for i in range(len(kinds)):
        if begin[i] != group:
            group = begin[i]
            for j in range(begin[i], end[i]):
                now[pair[j]] = group
        if kinds[i] == RANDOM or begin[i] == 0:
            continue
        state = seeded(seed, i)
        if kinds[i] == POPULAR:
            high = own_start[src[i] + 1]
            low = lower_bound(own, own_start[src[i]], high, begin[i])
            for _ in range(TRIES):
                j, state = below(state, begin[i])
                if not _meets(dst[j], own, low, high, end[i], dst):  # its source's events of this very time
                    out_src[i], out_dst[i] = src[i], dst[j]
                    break
            continue
        low = known[i] - max(1, np.int64(known[i] * newest)) if kinds[i] == INDUCTIVE else 0
        for _ in range(TRIES):
            p, state = below(state, known[i] - low)
            if now[low + p] != group:  # it does not meet at this very time
                out_src[i], out_dst[i] = src[first[low + p]], dst[first[low + p]]
                break


@njit(cache=True, nogil=True)
def draw_candidates(kinds, begin, end, own, own_start, newest, src, dst, seed, out):
    """Replace the random destinations of candidates of other kinds; the source stays.

    Args:
        kinds: (P, K) of each candidate.
        begin, end: (P,) where the events of its own time begin and end; none of their destinations is a candidate.
        own, own_start: each source's events, rising; CSR over sources.
        newest: share of the source's past that an inductive candidate is drawn from, the latest.
        src, dst: (P,) the events.
        out: (P, K) random destinations, some of which are replaced.
    """
    for i in range(len(kinds)):
        first, high = own_start[src[i]], own_start[src[i] + 1]
        now = lower_bound(own, first, high, begin[i])
        past = now - first
        state = seeded(seed, i)
        for k in range(kinds.shape[1]):
            kind = kinds[i, k]
            if kind == RANDOM or begin[i] == 0 or (kind != POPULAR and past == 0):
                continue
            low = past - max(1, np.int64(past * newest)) if kind == INDUCTIVE else 0
            for _ in range(TRIES):
                if kind == POPULAR:
                    j, state = below(state, begin[i])
                else:
                    j, state = below(state, past - low)
                    j = own[first + low + j]
                if not _meets(dst[j], own, now, high, end[i], dst):
                    out[i, k] = dst[j]
                    break
