# mypy: ignore-errors
"""Compiled loops of `history` and `pair_features`, imported on first use.

`count_tokens` and `write_tokens` pack neighbor lists into tokens. Times and query times are both int64 or both float64.
`place` of the target token is 0 for none, 1 for first and 2 for last. Times are subtracted before the division by
`unit`. The other loops compute pair features. Threads may run them concurrently on different rows of `out`. Columns:
pair 0..19, source 20..36, target 37..53, both 54..65.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hopstate.ops.neighbors.kernels import _last_match, lower_bound

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
    """Write the first event within the window of each list, and the packed token offsets."""
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
    """Write each list's tokens: neighbor, event id (-1 for the target), and times to the query and the next token."""
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


PARTNERS = 8  # latest partners of the source that paths visit
ONWARD = 16  # latest events of each of them


@njit(cache=True, nogil=True)
def find_partners(u, t, codes, where, run, first, out):
    """Write the latest distinct partners of sources; one more than needed, because one may be the target.

    Args:
        u, t: (Q,) sources and times; consecutive equal queries share their partners.
        codes, where: see `write_history_features`.
        run: (Q,) out: index of the query's source.
        first: (Q+1,) out: offsets of each source's partners.
        out: (Q * (PARTNERS + 1), 2) out: partners, newest first, and the query they were found for.

    Returns:
        Number of distinct sources.
    """
    runs, end = -1, 0
    first[0] = 0
    for q in range(len(u)):
        if q == 0 or u[q] != u[q - 1] or t[q] != t[q - 1]:
            runs += 1
            begin = end
            for i in range(where[q, 1] - 1, max(where[q, 0], where[q, 1] - LAST) - 1, -1):
                node = codes[i] ^ (codes[i] >> 31)
                again = node == u[q]
                for j in range(begin, end):
                    again |= out[j, 0] == node
                if not again:
                    out[end, 0], out[end, 1] = node, q
                    end += 1
                    if end - begin == PARTNERS + 1:
                        break
            first[runs + 1] = end
        run[q] = runs
    return runs + 1


@njit(cache=True, nogil=True)
def _slot(key, stamp, keys, stamps):
    slot = (key * 0x9E3779B1) & (SLOTS - 1)
    while stamps[slot] == stamp and keys[slot] != key:
        slot = (slot + 1) & (SLOTS - 1)
    return slot


@njit(cache=True, nogil=True)
def _fill_table(a, b, begin, end, codes, times, stamp, keys, stamps, counts, latest):
    """Store the partners of a target's latest events in a hash table, without the two query nodes.

    Returns the numbers of these events and partners.
    """
    events, nodes = 0, 0
    for i in range(end - 1, max(begin, end - WIDE) - 1, -1):
        node = np.int64(codes[i] ^ (codes[i] >> 31))
        if node in (a, b):
            continue
        slot = _slot(node, stamp, keys, stamps)
        if stamps[slot] != stamp:
            stamps[slot], keys[slot], counts[slot], latest[slot] = stamp, node, 0, times[i]
            nodes += 1
        counts[slot] += 1
        events += 1
    return events, nodes


@njit(cache=True, nogil=True)
def write_path_features(u, v, t, codes, times, where, run, first, partners, offsets, nodes, when, unit, out, begin):
    """Write the features of paths of three events.

    Args:
        u, v, t: (Q,) queries.
        codes, times, where: see `write_history_features`.
        run, first, partners: see `find_partners`.
        offsets, nodes, when: the ONWARD latest events of each partner before its time, packed, oldest first.
        unit: time unit.
        out: (Q, F) float32; see `pair_features.NAMES`.
        begin: first of the seven columns.
    """
    keys, counts, latest = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64), np.empty(SLOTS, times.dtype)
    stamps, counted = np.full(SLOTS, -1, np.int64), np.full(SLOTS, -1, np.int64)
    for q in range(len(u)):
        a, b, row = u[q], v[q], out[q, begin:]
        events, thirds = _fill_table(a, b, where[q, 2], where[q, 3], codes, times, q, keys, stamps, counts, latest)
        explored, hits, led, reached, found = 0, 0, 0, 0, False
        share, walk, newest = 0.0, 0.0, t[q]
        for p in range(first[run[q]], first[run[q] + 1]):
            if partners[p, 0] == b:
                continue
            if explored == PARTNERS:
                break
            explored += 1
            here, seen, both = 0, 0, 0
            for i in range(offsets[p + 1] - 1, offsets[p] - 1, -1):
                node = nodes[i]
                if node in (a, b):
                    continue
                seen += 1
                slot = _slot(node, q, keys, stamps)
                if stamps[slot] == q:
                    here += 1
                    both += counts[slot]
                    if counted[slot] != q:
                        counted[slot] = q
                        reached += 1
                    time = min(when[i], latest[slot])
                    if not found or time > newest:
                        newest, found = time, True
            hits += here
            led += here > 0
            if seen:
                share += here / seen
                walk += both / seen
        row[0] = np.float32(math.log1p(np.float64(hits)))
        row[1] = np.float32(share / explored) if explored else NONE
        row[2] = np.float32(walk / explored / events) if explored and events else NONE
        row[3], row[4] = np.float32(led), np.float32(reached)
        row[5] = np.float32(reached / thirds) if thirds else NONE
        row[6] = age_of(t[q], newest, unit) if found else NONE


CAME = 32  # latest events of a partner whose other nodes are followed
SOON = 4  # moves of each


@njit(cache=True, nogil=True)
def find_next_moves(w, since, t, start, length, codes, times, put, went):
    """Find the first events of nodes w (E,) after since (E,) and before t (E,).

    Args:
        w, since, t: the queries.
        start, length, codes, times: arrays of a `NeighborStore`.
        put: (E,) out: number of events found, at most SOON.
        went: (E, SOON) out: their other nodes.
    """
    for e in range(len(w)):
        begin = start[w[e]]
        end = begin + length[w[e]]
        put[e] = 0
        for i in range(_upper_bound(times, begin, end, since[e]), end):
            if put[e] == SOON or times[i] >= t[e]:
                break
            went[e, put[e]] = np.int64(codes[i] ^ (codes[i] >> 31))
            put[e] += 1


@njit(cache=True, nogil=True)
def _moves_after_partner(partner, begin, end, codes, times, went):
    """Write each node visited directly after a partner to went (WIDE,); return their number."""
    moves, after = 0, -1
    for i in range(end - 1, begin - 1, -1):
        if i + 1 < end and times[i] < times[i + 1]:
            after = np.int64(codes[i + 1] ^ (codes[i + 1] >> 31))
        if after >= 0 and (codes[i] ^ (codes[i] >> 31)) == partner:
            went[moves] = after
            moves += 1
    return moves


@njit(cache=True, nogil=True)
def _share_of(nodes, count, node):
    hits = 0
    for i in range(count):
        hits += nodes[i] == node
    return np.float32(hits / count) if count else NONE


@njit(cache=True, nogil=True)
def write_move_features(u, v, t, codes, times, where, at, partners, offsets, nodes, put, went, out, begin):
    """Write the features of next moves: where nodes go after meeting a partner.

    Args:
        u, v, t: (Q,) queries.
        codes, times, where: see `write_history_features`.
        at: (Q,) index of the source's latest partner, or -1.
        partners: (R,) latest partners.
        offsets, nodes: other nodes of the partners' CAME latest events, packed.
        put, went: results of `find_next_moves` for them.
        out: (Q, F) float32; see `pair_features.NAMES`.
        begin: first of the three columns.
    """
    own_moves, num_own, last_row = np.empty(WIDE, np.int64), 0, -1
    for q in range(len(u)):
        row, r = out[q, begin:], at[q]
        row[:3] = NONE
        if r < 0:
            continue
        if r != last_row:
            begin_u, end_u = max(where[q, 0], where[q, 1] - WIDE), where[q, 1]
            num_own = _moves_after_partner(partners[r], begin_u, end_u, codes, times, own_moves)
            last_row = r
        row[0] = _share_of(own_moves, num_own, v[q])
        moves, hits, within = 0, 0, 0
        for e in range(offsets[r], offsets[r + 1]):
            if put[e] == 0 or nodes[e] == u[q] or nodes[e] == partners[r]:
                continue
            moves += 1
            hits += went[e, 0] == v[q]
            found = False
            for k in range(put[e]):
                found |= went[e, k] == v[q]
            within += found
        if moves:
            row[1], row[2] = np.float32(hits / moves), np.float32(within / moves)


WIDE = 256  # latest events of a node to scan
RECENT = 64  # latest meetings of a pair, and events of a node, to sum over
SPANS = (30.0, 300.0, 3000.0, 30000.0)  # decay times of meetings, in clock units
SEEN = 9  # columns of `seen`
MET, SENT, BACK, MEETINGS, SENT_IN_ALL, EVENTS, SINCE = 0, 1, 2, 3, 4, 5, 7


@njit(cache=True, nogil=True, inline="always")
def gap_of(t, earlier, unit):
    """Return (t - earlier) / unit, subtracted exactly; integer differences may exceed 2^63."""
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
def _find_first(codes, begin, end, code, other):
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
def _upper_bound(times, low, high, t):
    while low < high:
        middle = (low + high) >> 1
        if times[middle] <= t:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _write_meetings(t, begin, end, codes, times, unit, code, other, row, seen, fades):
    """Write ages of the latest 64 meetings by rank and direction, and their time-decayed sums.

    Returns:
        Position of the last meeting.
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
        rank = seen[MET]
        if rank == 1:
            row[0] = age
        elif rank == 2:
            row[5] = age
        elif rank == 4:
            row[10] = age
        elif rank == 8:
            row[11] = age
        elif rank == 16:
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
def _read_pair(q, t, a, b, here, codes, events, times, unit, out, latest, when, first, seen, fades):
    if here[3] - here[2] < here[1] - here[0]:
        begin, end, code, other = here[2], here[3], np.int32(~a), np.int32(a)
    else:
        begin, end, code, other = here[0], here[1], np.int32(b), np.int32(~b)
    if a == b:
        code, other = np.int32(b), np.int32(b)
    sent = _count(codes, begin, end, code)
    total = sent if a == b else sent + _count(codes, begin, end, other)
    if total == 0:
        return
    p = _write_meetings(t, begin, end, codes, times, unit, code, other, out[q], seen[q], fades[q])
    latest[q, 0], when[q, 0] = events[p], times[p]
    seen[q, MEETINGS] = total
    seen[q, SENT_IN_ALL] = sent
    first[q, 0] = times[_find_first(codes, begin, end, code, other)]


@njit(cache=True, nogil=True)
def read_meetings(u, v, t, start, length, codes, events, times, unit, out, latest, when, first, seen, fades, where):
    """Read what pairs u (Q,), v (Q,) and their nodes did before t (Q,).

    Args:
        u, v, t: the queries.
        start, length, codes, events, times: arrays of a `NeighborStore`.
        unit: time unit.
        out: (Q, at least 20) float32, pair features by rank of meeting.
        latest, when: (Q, 3) out: last event of the pair, u and v, and its time.
        first: (Q, 3) out: times of their first events.
        seen: (Q, SEEN) out: counts, see the column constants.
        fades: (Q, 4) out: time-decayed sums.
        where: (Q, 4) out: bounds of the histories of u and v.
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
            _read_pair(q, t[q], u[q], v[q], here, codes, events, times, unit, out, latest, when, first, seen, fades)
        if seen[q, MEETINGS]:
            for side in range(2):
                begin, end = here[2 * side], here[2 * side + 1]
                seen[q, SINCE + side] = end - _upper_bound(times, begin, end, when[q, 0])


LAST = 32  # latest partners of a node to store
SLOTS = 1024  # of the table of partners, a power of two
NONE = np.float32(np.nan)


@njit(cache=True, nogil=True, inline="always")
def _log(count):
    return np.float32(math.log1p(np.float64(count)))


@njit(cache=True, nogil=True)
def _write_node_features(t, place, num_events, first, codes, times, unit, sends, other, near, row, way, went):
    """Write the 17 features of a node's history and its latest partners `near`, newest first; return their number.

    Args:
        place: (2,) bounds of its latest events, at least 256 if available.
        num_events, first: number of its events, and time of the first.
        sends: True for the source, whose sent events count; False for the target, whose received events count.
        other: the other node of the pair.
        way, went: (1,) out: time of the latest counted event, and whether there is one.
    """
    end = place[1]
    back = 1
    for k in range(9):  # ages of the last event, the 2nd, 4th, ..., 256th last
        row[k] = age_of(t, times[end - back], unit) if num_events >= back else NONE
        back *= 2
    row[9] = age_of(t, first, unit) if num_events else NONE
    row[10] = _log(num_events)
    row[11], row[12], row[14], row[15] = NONE, NONE, NONE, NONE
    size = min(num_events, LAST)
    outgoing, counted, with_other = 0, 0, 0
    for i in range(min(num_events, WIDE)):
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
    row[13] = np.float32(outgoing / size) if size else NONE
    row[16] = np.float32(with_other)
    return size


@njit(cache=True, nogil=True)
def _count_distinct(near, size):
    found = 0
    for i in range(size):
        again = 0
        for j in range(i):
            again |= near[j] == near[i]
        found += 1 - again
    return np.float32(found)


@njit(cache=True, nogil=True)
def _write_rank_of(near, size, node, row):
    """Write how often node is among the latest partners, and its first rank."""
    count, at = 0, -1
    for i in range(size - 1, -1, -1):
        if near[i] == node:
            count += 1
            at = i
    row[0] = np.float32(count)
    row[1] = np.float32(at) if at >= 0 else NONE


@njit(cache=True, nogil=True)
def _write_shared_partners(begin_u, end_u, begin_v, end_v, codes, target, keys, places, stamps, stamp, row):
    """Write how many of u's latest 32 and 256 partners (without v) are v's, and the rank of the nearest."""
    for j in range(min(end_v - begin_v, WIDE)):
        code = codes[end_v - 1 - j]
        key = np.int64(code ^ (code >> 31))
        slot = _slot(key, stamp, keys, stamps)
        if stamps[slot] != stamp:  # the newest stays
            stamps[slot], keys[slot], places[slot] = stamp, key, j
    counts0, counts1, near0, near1 = 0, 0, 2 * WIDE, 2 * WIDE
    for i in range(min(end_u - begin_u, WIDE)):
        code = codes[end_u - 1 - i]
        key = np.int64(code ^ (code >> 31))
        if key == target:
            continue
        slot = _slot(key, stamp, keys, stamps)
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
def _write_simultaneous(t, begin_u, end_u, begin_v, end_v, times, unit, row):
    """Write when both nodes last had simultaneous events, and how many of the latest 64 were."""
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
def _write_pair_features(t, first, unit, seen, fades, row):
    """Write the pair features that do not depend on the rank of a meeting, in the columns of `pair_features.NAMES`."""
    total = seen[MEETINGS]
    row[3], row[4] = _log(total), _log(seen[SENT_IN_ALL])
    for k in range(4):
        row[16 + k] = np.float32(fades[k])
    if total > 0:
        row[6] = age_of(t, first, unit) if total > 1 else NONE
        row[7], row[8] = _log(seen[SINCE]), _log(seen[SINCE + 1])
        row[9] = np.float32(total / min(seen[EVENTS], seen[EVENTS + 1]))


@njit(cache=True, nogil=True)
def write_history_features(u, v, t, codes, times, where, first, seen, fades, unit, out, ways, went):
    """Write the features of pairs u (Q,), v (Q,) at t (Q,) from their histories.

    Args:
        codes, times: entries of all nodes.
        where: (Q, 4) bounds of the entries of u and v before t: the latest 256, or all.
        first: (Q, 3) times of the first event of the pair, u and v.
        seen, fades: see `read_meetings`.
        unit: time unit.
        out: (Q, at least 66) float32; see `pair_features.NAMES`. `read_meetings` has already written some columns.
        ways, went: (Q, 2) out: when u last sent and v last received, and whether they did, among the latest 256.
    """
    near_u, near_v = np.full(LAST, -1, np.int32), np.full(LAST, -1, np.int32)
    keys, places = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64)
    stamps = np.full(SLOTS, -1, np.int64)
    for q in range(len(u)):
        a, b, row, now = u[q], v[q], out[q], t[q]
        begin_u, end_u, begin_v, end_v = where[q]
        _write_pair_features(now, first[q, 0], unit, seen[q], fades[q], row[:20])
        all_u, all_v = seen[q, EVENTS], seen[q, EVENTS + 1]
        at, way, gone = where[q], ways[q], went[q]
        size_u = _write_node_features(
            now, at[:2], all_u, first[q, 1], codes, times, unit, True, b, near_u, row[20:37], way[:1], gone[:1]
        )
        size_v = _write_node_features(
            now, at[2:], all_v, first[q, 2], codes, times, unit, False, a, near_v, row[37:54], way[1:], gone[1:]
        )
        row[54], row[55] = _count_distinct(near_u, size_u), _count_distinct(near_v, size_v)
        _write_rank_of(near_u, size_u, b, row[56:58])
        _write_rank_of(near_v, size_v, a, row[58:60])
        _write_shared_partners(begin_u, end_u, begin_v, end_v, codes, b, keys, places, stamps, q, row[60:64])
        _write_simultaneous(now, begin_u, end_u, begin_v, end_v, times, unit, row[64:66])


NUM_TYPED = 10  # features of the query's relation
_RECENT = 256  # latest events of a node that its typed features read


@njit(cache=True, nogil=True)
def write_typed_features(
    u, v, t, relation, columns, relations, first_id, start, length, codes, events, times, unit, out
):
    """Write the features of queries u, v, t (Q,) of a relation (Q,), all but those of `NUM_TYPED` by relation column.

    Args:
        columns: (R,) the column of each relation, or -1.
        relations, first_id: relation of each event, and the id of the first.
        start, length, codes, events, times: arrays of a `NeighborStore`.
        unit: time unit.
        out: (Q, NUM_TYPED + 3 C) float32, NaN: of the query's relation; ages of the pair's last events by relation
            column, sent and received; and the query's relation as an indicator.
    """
    count = (out.shape[1] - NUM_TYPED) // 3
    for q in range(len(u)):
        asked, row = relation[q], out[q]
        if columns[asked] >= 0:
            row[NUM_TYPED + 2 * count + columns[asked]] = 1
        meetings, sent, received = 0, 0, 0
        shorter, other = (u[q], v[q]) if length[u[q]] <= length[v[q]] else (v[q], u[q])
        begin = start[shorter]
        p = lower_bound(times, begin, begin + length[shorter], t[q])
        while True:
            p = _last_match(codes, begin, p, np.int32(other), np.int32(~other))
            if p < 0:
                break
            kind, age = relations[events[p] - first_id], age_of(t[q], times[p], unit)
            forth = (codes[p] >= 0) == (shorter == u[q])
            if columns[kind] >= 0:
                at = NUM_TYPED + columns[kind] + (0 if forth else count)
                if math.isnan(row[at]):
                    row[at] = age
            if kind == asked:
                if meetings == 0:
                    row[0] = age
                if forth and sent == 0:
                    row[1] = age
                if not forth and received == 0:
                    row[2] = age
                meetings += 1
                sent += forth
                received += not forth
        row[3], row[4] = math.log1p(meetings), math.log1p(sent)
        for side in range(2):
            node, partner = (u[q], np.int32(v[q])) if side == 0 else (v[q], np.int32(~u[q]))
            _write_typed_end(
                t[q], asked, node, partner, side, relations, first_id, start, length, codes, events, times, unit, row
            )


@njit(cache=True, nogil=True)
def _write_typed_end(
    t, asked, node, partner, side, relations, first_id, start, length, codes, events, times, unit, row
):
    """Write what the source sent (side 0), or the target received (side 1), with the query's relation."""
    begin = start[node]
    end = lower_bound(times, begin, begin + length[node], t)
    typed, counted, back = 0, 0, -1
    for p in range(end - 1, max(begin, end - _RECENT) - 1, -1):
        if (codes[p] >= 0) != (side == 0):
            continue
        counted += 1
        if relations[events[p] - first_id] != asked:
            continue
        if typed == 0:
            row[5 + side] = age_of(t, times[p], unit)
        if codes[p] == partner and back < 0:
            back = typed
        typed += 1
    if counted:
        row[7 + side] = typed / counted
    if side == 0 and back >= 0:
        row[9] = math.log1p(back)
