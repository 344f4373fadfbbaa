# mypy: ignore-errors
"""Compiled loops of `neighbors`: arena growth, search, copy, sampling, co-occurrence. Imported on first use.

Arena columns: codes int32, events int32, times int64 or float64. Node columns: start, length, capacity int64.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def count_events(src, dst, added):
    """Add to added[v] how many entries the events will put into v's history."""
    for i in range(len(src)):
        added[src[i]] += 1
        if dst[i] != src[i]:
            added[dst[i]] += 1


@njit(cache=True, nogil=True)
def reserve(added, touched, start, length, capacity, top):
    """Give touched[i] room for added[i] more entries, in a segment of at least twice the size from `top` on.

    Returns:
        The new top, how many places were left behind, and the old starts, from which `move_segments` copies.
    """
    old, left = np.empty(len(touched), np.int64), 0
    for i in range(len(touched)):
        v = touched[i]
        old[i] = start[v]
        need = length[v] + added[i]
        if need > capacity[v]:
            left += capacity[v]
            capacity[v] = max(need, 2 * capacity[v], 4)
            start[v] = top
            top += capacity[v]
    return top, left, old


@njit(cache=True, nogil=True)
def move_segments(nodes, old, start, length, codes, events, times, new_codes, new_events, new_times):
    """Copy the histories of nodes from old[i] of the arena to start[nodes[i]] of the new one (may be the same)."""
    for i in range(len(nodes)):
        v = nodes[i]
        if old[i] != start[v] or codes is not new_codes:
            for j in range(length[v]):
                new_codes[start[v] + j] = codes[old[i] + j]
                new_events[start[v] + j] = events[old[i] + j]
                new_times[start[v] + j] = times[old[i] + j]


@njit(cache=True, nogil=True)
def _append(node, code, event, t, base, start, length, codes, events, times):
    """Put an entry at the end of a node's history; the arrays begin at place `base` of the arena."""
    at = start[node] + length[node] - base
    codes[at] = code
    events[at] = event
    times[at] = t
    length[node] += 1


@njit(cache=True, nogil=True)
def fill(src, dst, t, first_id, event_ids, start, length, codes, events, times):
    """Put events at the end of both ends' histories; ids are event_ids, or count from first_id where that is empty."""
    numbered = len(event_ids) == 0
    for i in range(len(src)):
        u, v = src[i], dst[i]
        event = first_id + i if numbered else event_ids[i]
        _append(u, v, event, t[i], 0, start, length, codes, events, times)
        if u != v:
            _append(v, ~u, event, t[i], 0, start, length, codes, events, times)


@njit(cache=True, nogil=True)
def fill_node_range(src, dst, t, first_id, event_ids, low, high, start, length, codes, events, times):
    """As `fill`, for nodes low..high - 1 only; the arrays begin at start[low]."""
    numbered, base = len(event_ids) == 0, start[low]
    for i in range(len(src)):
        u, v = src[i], dst[i]
        event = first_id + i if numbered else event_ids[i]
        if low <= u < high:
            _append(u, v, event, t[i], base, start, length, codes, events, times)
        if u != v and low <= v < high:
            _append(v, ~u, event, t[i], base, start, length, codes, events, times)


@njit(cache=True, nogil=True)
def lower_bound(times, low, high, t):
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < t:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def lengths_before(nodes, before, start, length, events, out):
    """Write how many entries of each node have ids under `before`; they are appended in the order of their ids."""
    for i in range(len(nodes)):
        begin, count = start[nodes[i]], length[nodes[i]]
        while count > 0 and events[begin + count - 1] >= before:
            count -= 1
        out[i] = count


@njit(cache=True, nogil=True)
def find(nodes, query_times, k, start, length, times, first, offsets):
    """Write where the last k entries before each query begin, and the packed offsets."""
    offsets[0] = 0
    for q in range(len(nodes)):
        begin = start[nodes[q]]
        end = lower_bound(times, begin, begin + length[nodes[q]], query_times[q])
        first[q] = max(begin, end - k)
        offsets[q + 1] = offsets[q] + end - first[q]


@njit(cache=True, nogil=True)
def copy_out(first, offsets, codes, events, times, out_nodes, out_events, out_times):
    """Copy the found entries, widened, to their packed places."""
    for q in range(len(first)):
        a, n, o = first[q], offsets[q + 1] - offsets[q], offsets[q]
        source, target = codes[a : a + n], out_nodes[o : o + n]
        for j in range(n):
            target[j] = source[j] ^ (source[j] >> 31)
        ids, out_ids = events[a : a + n], out_events[o : o + n]
        for j in range(n):
            out_ids[j] = ids[j]
        when, out_when = times[a : a + n], out_times[o : o + n]
        for j in range(n):
            out_when[j] = when[j]


@njit(cache=True, nogil=True)
def find_active(nodes, query_times, k, start, length, times, events, ends, first_id, until, positions, offsets):
    """Write the positions of each query's last k earlier entries whose edge was not deleted up to `until` (Q,)."""
    offsets[0] = 0
    for q in range(len(nodes)):
        begin, o, n = start[nodes[q]], offsets[q], 0
        p = lower_bound(times, begin, begin + length[nodes[q]], query_times[q]) - 1
        while p >= begin and n < k:
            if ends[events[p] - first_id] > until[q]:
                positions[o + n] = p
                n += 1
            p -= 1
        positions[o : o + n] = positions[o : o + n][::-1].copy()
        offsets[q + 1] = o + n


@njit(cache=True, nogil=True)
def gather(positions, codes, events, times, out_nodes, out_events, out_times):
    """Copy the entries at positions."""
    for i in range(len(positions)):
        p = positions[i]
        out_nodes[i] = codes[p] ^ (codes[p] >> 31)
        out_events[i] = events[p]
        out_times[i] = times[p]


@njit(cache=True, nogil=True)
def _last_match(codes, low, high, code, other):
    """Return the last position in low..high with the code `code` or `other`, or -1; tests blocks of 64."""
    while high - low >= 64:
        block = codes[high - 64 : high]
        hits = 0
        for j in range(64):
            hits += (block[j] == code) | (block[j] == other)
        if hits:
            break
        high -= 64
    for p in range(high - 1, low - 1, -1):
        if codes[p] == code or codes[p] == other:
            return p
    return -1


@njit(cache=True, nogil=True)
def _where_to_look(a, b, directed, length):
    """Return the node with the shorter history, the pair's code in it, and the code of the reverse direction."""
    if a == b:
        return a, np.int32(b), np.int32(b)
    if length[b] < length[a]:
        a, b = b, a
        code = np.int32(~b)
    else:
        code = np.int32(b)
    return a, code, code if directed else np.int32(~code)


@njit(cache=True, nogil=True)
def last_meeting_kernel(u, v, query_times, directed, start, length, codes, times, last, found):
    """Find the last event of each pair strictly before its time in the shorter of the two histories."""
    for q in range(len(u)):
        a, code, other = _where_to_look(u[q], v[q], directed, length)
        end = lower_bound(times, start[a], start[a] + length[a], query_times[q])
        p = _last_match(codes, start[a], end, code, other)
        found[q] = p >= 0
        last[q] = times[p] if p >= 0 else 0


@njit(cache=True, nogil=True)
def last_typed_meeting_kernel(
    u, v, query_times, relation, relations, first_id, directed, start, length, codes, events, times, last, found
):
    """Find the last event of each pair with the query's relation strictly before its time; relations are by id."""
    for q in range(len(u)):
        a, code, other = _where_to_look(u[q], v[q], directed, length)
        end = lower_bound(times, start[a], start[a] + length[a], query_times[q])
        p = _last_match(codes, start[a], end, code, other)
        while p >= 0 and relations[events[p] - first_id] != relation[q]:
            p = _last_match(codes, start[a], p, code, other)
        found[q] = p >= 0
        last[q] = times[p] if p >= 0 else 0


@njit(cache=True, nogil=True)
def count_meetings_kernel(u, v, query_times, directed, start, length, codes, times, count):
    """Count the events of each pair strictly before its time in the shorter of the two histories."""
    for q in range(len(u)):
        a, code, other = _where_to_look(u[q], v[q], directed, length)
        end = lower_bound(times, start[a], start[a] + length[a], query_times[q])
        found = 0
        for p in range(start[a], end):
            found += (codes[p] == code) | (codes[p] == other)
        count[q] = found


@njit(cache=True, nogil=True)
def _slot(keys, stamps, stamp, key):
    mask = len(keys) - 1
    slot = (key * 0x9E3779B1) & mask
    while stamps[slot] == stamp and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def cooccurrence_kernel(offsets_u, nodes_u, offsets_v, nodes_v, counts_u, counts_v, size):
    """Count neighbours of each pair of lists in a small hash table that is cleared by its stamp."""
    keys = np.empty(size, np.int64)
    stamps = np.full(size, -1, np.int64)
    tally = np.empty((size, 2), np.int64)
    for q in range(len(offsets_u) - 1):
        for side in range(2):
            offsets, nodes = (offsets_u, nodes_u) if side == 0 else (offsets_v, nodes_v)
            for i in range(offsets[q], offsets[q + 1]):
                slot = _slot(keys, stamps, q, nodes[i])
                if stamps[slot] != q:
                    stamps[slot] = q
                    keys[slot] = nodes[i]
                    tally[slot, 0] = 0
                    tally[slot, 1] = 0
                tally[slot, side] += 1
        for side in range(2):
            offsets, nodes, counts = (offsets_u, nodes_u, counts_u) if side == 0 else (offsets_v, nodes_v, counts_v)
            for i in range(offsets[q], offsets[q + 1]):
                slot = _slot(keys, stamps, q, nodes[i])
                counts[i, 0] = tally[slot, 0]
                counts[i, 1] = tally[slot, 1]
