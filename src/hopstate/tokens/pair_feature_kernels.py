# mypy: ignore-errors
"""The compiled loop of `pair_features`: one pass over pairs, each from its two histories alone. Imported on first use.

Threads may run it side by side: it writes to its own rows of `out` and `latest` and to nothing else. Columns of a row:
of the pair 0..19, of the source 20..36, of the target 37..53, of both 54..65.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hopstate.ops.neighbors.kernels import _last_match, lower_bound

LAST = 32  # latest events of a node that are looked at one by one
WIDE = 256  # latest events of a node in which shared partners are sought
SLOTS = 1024  # of the table of partners, a power of two
RECENT = 64  # latest meetings of a pair, and events of a node, that are summed over
NONE = np.float32(np.nan)
SPANS = (30.0, 300.0, 3000.0, 30000.0)  # over which meetings fade, in units of the clock


@njit(cache=True, nogil=True, inline="always")
def _gap(t, earlier, unit):
    """Return t - earlier in units, exact in the stream's own numbers; integers may be further apart than 2^63."""
    gap = np.float64(t - earlier)
    if gap < 0:
        gap += 18446744073709551616.0
    return gap / unit


@njit(cache=True, nogil=True, inline="always")
def _age(t, earlier, unit):
    return np.float32(math.log1p(_gap(t, earlier, unit)))


@njit(cache=True, nogil=True, inline="always")
def _log(count):
    return np.float32(math.log1p(np.float64(count)))


@njit(cache=True, nogil=True)
def _count(codes, begin, end, code):
    found = 0
    part = codes[begin:end]
    for i in range(len(part)):
        found += part[i] == code
    return found


@njit(cache=True, nogil=True)
def _first(codes, begin, end, code, other):
    for p in range(begin, end):
        if codes[p] == code or codes[p] == other:
            return p
    return -1


@njit(cache=True, nogil=True)
def _after(times, low, high, t):
    """Return the first position in low..high whose time is after t."""
    while low < high:
        middle = (low + high) >> 1
        if times[middle] <= t:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _of_node(t, begin, end, codes, times, unit, sends, other, near, row):
    """Write the 17 features of a node's own history; near takes its latest partners, newest first. Return how many.

    Args:
        sends: whether the node is the source asked about, so that what it sent counts; else what it received.
        other: the node at the other end.
    """
    met = end - begin
    back = 1
    for k in range(9):  # ages of the last event, the 2nd, 4th, ..., 256th last
        row[k] = _age(t, times[end - back], unit) if met >= back else NONE
        back *= 2
    row[9] = _age(t, times[begin], unit) if met else NONE
    row[10] = _log(met)
    row[11], row[12], row[14], row[15] = NONE, NONE, NONE, NONE
    few = min(met, LAST)
    outgoing, counted, with_other = 0, 0, 0
    for i in range(min(met, WIDE)):
        p = end - 1 - i
        code = codes[p]
        out = code >= 0
        if i < LAST:
            near[i] = code ^ (code >> 31)
            outgoing += out
            if out and outgoing == 1:
                row[11] = _age(t, times[p], unit)
            if not out and i + 1 - outgoing == 1:
                row[12] = _age(t, times[p], unit)
        elif counted >= LAST:
            break
        if out == sends and counted < LAST:
            counted += 1
            with_other += (code ^ (code >> 31)) == other
            if counted == 4:
                row[14] = _age(t, times[p], unit)
            if counted == LAST:
                row[15] = _age(t, times[p], unit)
    row[13] = np.float32(outgoing / few) if few else NONE
    row[16] = np.float32(with_other)
    return few


@njit(cache=True, nogil=True)
def _distinct(near, few):
    found = 0
    for i in range(few):
        again = 0
        for j in range(i):
            again |= near[j] == near[i]
        found += 1 - again
    return np.float32(found)


@njit(cache=True, nogil=True)
def _place(near, few, node, row):
    """Write how often node is among the latest partners, and how far back it is the first time."""
    count, at = 0, -1
    for i in range(few - 1, -1, -1):
        if near[i] == node:
            count += 1
            at = i
    row[0] = np.float32(count)
    row[1] = np.float32(at) if at >= 0 else NONE


@njit(cache=True, nogil=True)
def _shared(begin_u, end_u, begin_v, end_v, codes, target, keys, places, stamps, stamp, row):
    """Write how many of u's latest partners, v left out, are among v's, and how near the nearest is, for 32 and 256."""
    mask = SLOTS - 1
    for j in range(min(end_v - begin_v, WIDE)):
        code = codes[end_v - 1 - j]
        key = code ^ (code >> 31)
        slot = (key * 0x9E3779B1) & mask
        while stamps[slot] == stamp and keys[slot] != key:
            slot = (slot + 1) & mask
        if stamps[slot] != stamp:  # the newest stays
            stamps[slot], keys[slot], places[slot] = stamp, key, j
    counts0, counts1, near0, near1 = 0, 0, 2 * WIDE, 2 * WIDE
    for i in range(min(end_u - begin_u, WIDE)):
        code = codes[end_u - 1 - i]
        key = code ^ (code >> 31)
        if key == target:
            continue
        slot = (key * 0x9E3779B1) & mask
        while stamps[slot] == stamp and keys[slot] != key:
            slot = (slot + 1) & mask
        if stamps[slot] == stamp:
            at = places[slot]
            counts1 += 1
            near1 = min(near1, i + at)
            if i < LAST and at < LAST:
                counts0 += 1
                near0 = min(near0, i + at)
    row[0], row[1] = np.float32(counts0), np.float32(near0) if counts0 else NONE
    row[2], row[3] = np.float32(counts1), np.float32(near1) if counts1 else NONE


@njit(cache=True, nogil=True)
def _together(t, begin_u, end_u, begin_v, end_v, times, unit, row):
    """Write when both had an event at one time last, and how often, among the latest 64 of each."""
    low_u, low_v = max(begin_u, end_u - RECENT), max(begin_v, end_v - RECENT)
    i, j, count = end_u - 1, end_v - 1, 0
    row[0] = NONE
    while i >= low_u and j >= low_v:
        if times[i] == times[j]:
            count += 1
            if count == 1:
                row[0] = _age(t, times[i], unit)
            i -= 1
            j -= 1
        elif times[i] > times[j]:
            i -= 1
        else:
            j -= 1
    row[1] = np.float32(count)


@njit(cache=True, nogil=True)
def _meetings(t, begin, end, codes, times, unit, code, other, row):
    """Write ages of the latest 64 meetings by rank and direction, and sums over them that fade with time.

    Returns:
        The position of the last one.
    """
    met, sent, back, at, last = 0, 0, 0, end, -1
    fade0, fade1, fade2, fade3 = 0.0, 0.0, 0.0, 0.0
    while met < RECENT:
        at = _last_match(codes, begin, at, code, other)
        if at < 0:
            break
        gap = _gap(t, times[at], unit)
        age = np.float32(math.log1p(gap))
        met += 1
        fade0 += math.exp(-gap / SPANS[0])
        fade1 += math.exp(-gap / SPANS[1])
        fade2 += math.exp(-gap / SPANS[2])
        fade3 += math.exp(-gap / SPANS[3])
        if met == 1:
            row[0], last = age, at
        elif met == 2:
            row[5] = age
        elif met == 4:
            row[10] = age
        elif met == 8:
            row[11] = age
        elif met == 16:
            row[12] = age
        if codes[at] == code:
            sent += 1
            if sent == 1:
                row[1] = age
            elif sent == 2:
                row[13] = age
            elif sent == 4:
                row[14] = age
        if codes[at] == other:
            back += 1
            if back == 1:
                row[2] = age
            elif back == 2:
                row[15] = age
    row[16], row[17], row[18], row[19] = np.float32(fade0), np.float32(fade1), np.float32(fade2), np.float32(fade3)
    return last


@njit(cache=True, nogil=True)
def _of_pair(t, a, b, begin_u, end_u, begin_v, end_v, codes, events, times, unit, row):
    """Write the 20 features of the pair, found in the shorter of the two histories. Return the id of its last event."""
    if end_v - begin_v < end_u - begin_u:
        begin, end, code, other = begin_v, end_v, np.int32(~a), np.int32(a)
    else:
        begin, end, code, other = begin_u, end_u, np.int32(b), np.int32(~b)
    if a == b:
        code, other = np.int32(b), np.int32(b)
    sent = _count(codes, begin, end, code)
    met = sent if a == b else sent + _count(codes, begin, end, other)
    row[:16] = NONE
    row[16:20] = np.float32(0)
    row[3], row[4] = _log(met), _log(sent)
    if met == 0:
        return -1
    p = _meetings(t, begin, end, codes, times, unit, code, other, row)
    if met > 1:
        row[6] = _age(t, times[_first(codes, begin, end, code, other)], unit)
    row[7] = _log(end_u - _after(times, begin_u, end_u, times[p]))
    row[8] = _log(end_v - _after(times, begin_v, end_v, times[p]))
    row[9] = np.float32(met / min(end_u - begin_u, end_v - begin_v))
    return events[p]


@njit(cache=True, nogil=True)
def pair_features(u, v, t, start, length, codes, events, times, unit, out, latest):
    """Write the features of pairs u (Q,), v (Q,) at t (Q,), and the ids of their latest events.

    Args:
        start, length, codes, events, times: of a `NeighborStore`.
        unit: the gap that counts as 1.
        out: (Q, at least 66) float32; see `features.NAMES`.
        latest: (Q, 3) int64: the last event of the pair, of u and of v before t, or -1.
    """
    near_u, near_v = np.full(LAST, -1, np.int32), np.full(LAST, -1, np.int32)
    keys, places = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64)
    stamps = np.full(SLOTS, -1, np.int64)
    for q in range(len(u)):
        a, b, row, now = u[q], v[q], out[q], t[q]
        begin_u, begin_v = start[a], start[b]
        end_u = lower_bound(times, begin_u, begin_u + length[a], now)
        end_v = end_u if a == b else lower_bound(times, begin_v, begin_v + length[b], now)
        latest[q, 0] = _of_pair(now, a, b, begin_u, end_u, begin_v, end_v, codes, events, times, unit, row[:20])
        latest[q, 1] = events[end_u - 1] if end_u > begin_u else -1
        latest[q, 2] = events[end_v - 1] if end_v > begin_v else -1
        few_u = _of_node(now, begin_u, end_u, codes, times, unit, True, b, near_u, row[20:37])
        few_v = _of_node(now, begin_v, end_v, codes, times, unit, False, a, near_v, row[37:54])
        row[54], row[55] = _distinct(near_u, few_u), _distinct(near_v, few_v)
        _place(near_u, few_u, b, row[56:58])
        _place(near_v, few_v, a, row[58:60])
        _shared(begin_u, end_u, begin_v, end_v, codes, b, keys, places, stamps, q, row[60:64])
        _together(now, begin_u, end_u, begin_v, end_v, times, unit, row[64:66])
