# mypy: ignore-errors
"""The last compiled loop of `pair_features`: what two nodes' latest events say, each pair from its own alone.

Threads may run it side by side: it writes to its own rows of `out`. Columns of a row: of the pair 0..19, of the source
20..36, of the target 37..53, of both 54..65.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hopstate.tokens.pair_meeting_kernels import EVENTS, MEETINGS, RECENT, SENT_IN_ALL, SINCE, WIDE, age_of

LAST = 32  # latest events of a node whose partners are kept
SLOTS = 1024  # of the table of partners, a power of two
NONE = np.float32(np.nan)


@njit(cache=True, nogil=True, inline="always")
def _log(count):
    return np.float32(math.log1p(np.float64(count)))


@njit(cache=True, nogil=True)
def _of_node(t, place, met, first, codes, times, unit, sends, other, near, row, way, went):
    """Write the 17 features of a node's own history; near takes its latest partners, newest first. Return how many.

    Args:
        place: (2,) begin and end of its latest events, at least 256 of them where there are as many.
        met, first: how many it has in all, and when the first was.
        sends: whether the node is the source asked about, so that what it sent counts; else what it received.
        other: the node at the other end.
        way, went: (1,) out: time of the latest of what counts, and whether there is one.
    """
    end = place[1]
    back = 1
    for k in range(9):  # ages of the last event, the 2nd, 4th, ..., 256th last
        row[k] = age_of(t, times[end - back], unit) if met >= back else NONE
        back *= 2
    row[9] = age_of(t, first, unit) if met else NONE
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
                row[11] = age_of(t, times[p], unit)
            if not out and i + 1 - outgoing == 1:
                row[12] = age_of(t, times[p], unit)
        elif counted >= LAST:
            break
        if out == sends and counted < LAST:
            counted += 1
            if counted == 1:
                way[0], went[0] = times[p], True
            with_other += (code ^ (code >> 31)) == other
            if counted == 4:
                row[14] = age_of(t, times[p], unit)
            if counted == LAST:
                row[15] = age_of(t, times[p], unit)
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
                row[0] = age_of(t, times[i], unit)
            i -= 1
            j -= 1
        elif times[i] > times[j]:
            i -= 1
        else:
            j -= 1
    row[1] = np.float32(count)


@njit(cache=True, nogil=True)
def _of_pair(t, first, unit, seen, fades, row):
    """Write the features of the pair that do not stand by the rank of a meeting."""
    met = seen[MEETINGS]
    row[3], row[4] = _log(met), _log(seen[SENT_IN_ALL])
    for k in range(4):
        row[16 + k] = np.float32(fades[k])
    if met > 0:
        row[6] = age_of(t, first, unit) if met > 1 else NONE
        row[7], row[8] = _log(seen[SINCE]), _log(seen[SINCE + 1])
        row[9] = np.float32(met / min(seen[EVENTS], seen[EVENTS + 1]))


@njit(cache=True, nogil=True)
def latest_events(u, v, t, codes, times, where, first, seen, fades, unit, out, ways, went):
    """Write the features of pairs u (Q,), v (Q,) at t (Q,) from what was seen of them.

    Args:
        codes, times: of entries, under the numbers of all nodes.
        where: (Q, 4) where those of u and v begin and end before t: the latest 256, or all.
        first: (Q, 3) times of the first event of the pair, of u and of v.
        seen, fades: see `pair_meeting_kernels`.
        unit: the gap that counts as 1.
        out: (Q, at least 66) float32; see `pair_features.NAMES`. Those by rank of meeting stand there already.
        ways, went: (Q, 2) out: when u sent and v received last, among the latest 256, and whether; False before.
    """
    near_u, near_v = np.full(LAST, -1, np.int32), np.full(LAST, -1, np.int32)
    keys, places = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64)
    stamps = np.full(SLOTS, -1, np.int64)
    for q in range(len(u)):
        a, b, row, now = u[q], v[q], out[q], t[q]
        begin_u, end_u, begin_v, end_v = where[q]
        _of_pair(now, first[q, 0], unit, seen[q], fades[q], row[:20])
        all_u, all_v = seen[q, EVENTS], seen[q, EVENTS + 1]
        at, way, gone = where[q], ways[q], went[q]
        few_u = _of_node(
            now, at[:2], all_u, first[q, 1], codes, times, unit, True, b, near_u, row[20:37], way[:1], gone[:1]
        )
        few_v = _of_node(
            now, at[2:], all_v, first[q, 2], codes, times, unit, False, a, near_v, row[37:54], way[1:], gone[1:]
        )
        row[54], row[55] = _distinct(near_u, few_u), _distinct(near_v, few_v)
        _place(near_u, few_u, b, row[56:58])
        _place(near_v, few_v, a, row[58:60])
        _shared(begin_u, end_u, begin_v, end_v, codes, b, keys, places, stamps, q, row[60:64])
        _together(now, begin_u, end_u, begin_v, end_v, times, unit, row[64:66])
