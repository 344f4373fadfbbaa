# mypy: ignore-errors
"""Compiled loops of `pair_features` over the meetings of pairs; imported on first use.

Threads may run them side by side: each writes to its own rows.

Rows of `seen`: of the pair's latest meetings how many there were, sent and sent back; of all its meetings, sent; events
of both ends, and those since the pair met.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hopstate.ops.neighbors.kernels import _last_match, lower_bound

WIDE = 256  # latest events of a node that are looked at one by one
RECENT = 64  # latest meetings of a pair, and events of a node, that are summed over
SPANS = (30.0, 300.0, 3000.0, 30000.0)  # over which meetings fade, in units of the clock
SEEN = 9  # columns of `seen`
MET, SENT, BACK, MEETINGS, SENT_IN_ALL, EVENTS, SINCE = 0, 1, 2, 3, 4, 5, 7


@njit(cache=True, nogil=True, inline="always")
def gap_of(t, earlier, unit):
    """Return t - earlier in units, exact in the stream's own numbers; integers may be further apart than 2^63."""
    gap = np.float64(t - earlier)
    if gap < 0:
        gap += 18446744073709551616.0
    return gap / unit


@njit(cache=True, nogil=True, inline="always")
def age_of(t, earlier, unit):
    """Return ln(1 + gap)."""
    return np.float32(math.log1p(gap_of(t, earlier, unit)))


@njit(cache=True, nogil=True)
def _count(codes, begin, end, code):
    found = 0
    part = codes[begin:end]
    for i in range(len(part)):
        found += part[i] == code
    return found


@njit(cache=True, nogil=True)
def _first(codes, begin, end, code, other):
    while end - begin >= 64:  # blocks of 64 are tested at once
        block = codes[begin : begin + 64]
        hits = 0
        for j in range(64):
            hits += (block[j] == code) | (block[j] == other)
        if hits:
            break
        begin += 64
    for p in range(begin, end):
        if codes[p] == code or codes[p] == other:
            return p
    return -1


@njit(cache=True, nogil=True)
def _after(times, low, high, t):
    while low < high:
        middle = (low + high) >> 1
        if times[middle] <= t:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _meetings(t, begin, end, codes, times, unit, code, other, row, seen, fades):
    """Write ages of the latest 64 meetings by rank and direction, and sums over them that fade with time.

    Returns:
        The position of the last one.
    """
    at, last = end, -1
    while seen[MET] < RECENT:
        at = _last_match(codes, begin, at, code, other)
        if at < 0:
            break
        if last < 0:
            last = at
        gap = gap_of(t, times[at], unit)
        age = np.float32(math.log1p(gap))
        seen[MET] += 1
        for k in range(4):
            fades[k] += math.exp(-gap / SPANS[k])
        met = seen[MET]
        if met == 1:
            row[0] = age
        elif met == 2:
            row[5] = age
        elif met == 4:
            row[10] = age
        elif met == 8:
            row[11] = age
        elif met == 16:
            row[12] = age
        if codes[at] == code:
            seen[SENT] += 1
            if seen[SENT] == 1:
                row[1] = age
            elif seen[SENT] == 2:
                row[13] = age
            elif seen[SENT] == 4:
                row[14] = age
        if codes[at] == other:
            seen[BACK] += 1
            if seen[BACK] == 1:
                row[2] = age
            elif seen[BACK] == 2:
                row[15] = age
    return last


@njit(cache=True, nogil=True)
def _pair(q, t, a, b, here, codes, events, times, unit, out, latest, when, first, seen, fades):
    if here[3] - here[2] < here[1] - here[0]:
        begin, end, code, other = here[2], here[3], np.int32(~a), np.int32(a)
    else:
        begin, end, code, other = here[0], here[1], np.int32(b), np.int32(~b)
    if a == b:
        code, other = np.int32(b), np.int32(b)
    sent = _count(codes, begin, end, code)
    met = sent if a == b else sent + _count(codes, begin, end, other)
    if met == 0:
        return
    p = _meetings(t, begin, end, codes, times, unit, code, other, out[q], seen[q], fades[q])
    latest[q, 0], when[q, 0] = events[p], times[p]
    seen[q, MEETINGS] = met
    seen[q, SENT_IN_ALL] = sent
    first[q, 0] = times[_first(codes, begin, end, code, other)]


@njit(cache=True, nogil=True)
def read_meetings(u, v, t, start, length, codes, events, times, unit, out, latest, when, first, seen, fades, where):
    """Read what pairs u (Q,), v (Q,) and their ends did before t (Q,).

    Args:
        u, v, t: the queries.
        start, length, codes, events, times: of a `NeighborStore`.
        unit: the gap that counts as 1.
        out: (Q, at least 20) float32, features of the pair by rank of meeting.
        latest, when: (Q, 3) out: the last event of the pair, of u and of v, and its time.
        first: (Q, 3) out: times of their first.
        seen: (Q, 9) out, see above.
        fades: (Q, 4) out.
        where: (Q, 4) out: where the histories of u and v begin and end.
    """
    for q in range(len(u)):
        here = where[q]
        for side in range(2):
            node = v[q] if side else u[q]
            begin = start[node]
            end = lower_bound(times, begin, begin + length[node], t[q])
            here[2 * side], here[2 * side + 1] = begin, end
            if end > begin:
                latest[q, 1 + side], when[q, 1 + side] = events[end - 1], times[end - 1]
                seen[q, EVENTS + side] = end - begin
                first[q, 1 + side] = times[begin]
        if here[1] > here[0] and here[3] > here[2]:
            _pair(q, t[q], u[q], v[q], here, codes, events, times, unit, out, latest, when, first, seen, fades)
        if seen[q, MEETINGS]:
            for side in range(2):
                begin, end = here[2 * side], here[2 * side + 1]
                seen[q, SINCE + side] = end - _after(times, begin, end, when[q, 0])
