# mypy: ignore-errors
"""Compiled loops of `negatives`. Imported on first use."""

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


@njit(cache=True, nogil=True)
def seen_pairs(low, high, begin, end, pool_pairs, batch_start, seed, numbers, num_pairs, chosen, count):
    """Draw, for each batch, distinct pairs out of low[b]..high[b]-1 that do not occur in the batch's time window.

    Args:
        low, high: (number of batches,) range of pair numbers (in order of first occurrence) to draw from.
        begin, end: (number of batches,) pool positions of the batch's time window.
        pool_pairs: (pool,) pair number of each pool event.
        batch_start: (number of batches + 1,) positions of the batches in the output.
        numbers: of the batches among all, each of which draws by its own.
        chosen: output pair numbers; count[b] of each batch are filled, from its start on.
    """
    banned = np.full(num_pairs, -1, np.int32)  # the last batch that banned or took it
    for b in range(len(low)):
        size = batch_start[b + 1] - batch_start[b]
        out = chosen[batch_start[b] : batch_start[b + 1]]
        free = high[b] - low[b]
        for i in range(begin[b], end[b]):
            p = pool_pairs[i]
            if banned[p] != b:
                banned[p] = b
                if low[b] <= p < high[b]:
                    free -= 1
        take = min(size, free)
        state = seeded(seed, numbers[b])
        if take > free // 2:  # nearly all are taken: list them and shuffle the front
            allowed = np.empty(free, np.int64)
            n = 0
            for p in range(low[b], high[b]):
                if banned[p] != b:
                    allowed[n] = p
                    n += 1
            for i in range(take):
                j, state = below(state, free - i)
                out[i] = allowed[i + j]
                allowed[i + j] = allowed[i]
        else:  # few of many: draw again while the pair is banned or taken
            i = 0
            while i < take:
                p, state = below(state, high[b] - low[b])
                p += low[b]
                if banned[p] != b:
                    banned[p] = b
                    out[i] = p
                    i += 1
        count[b] = take


@njit(cache=True, nogil=True)
def random_pairs(missing, batch_pairs, batch_start, num_src, num_dst, seed, numbers, out_src, out_dst):
    """Fill the first missing[b] places of each batch with pairs of the grid that are not among the batch's own.

    Args:
        batch_pairs: grid number src * num_dst + dst of every event, or -1 off the grid.

    Distinct within a batch where the grid holds enough, as DyGLib; out_src and out_dst are places in the grid.
    """
    for b in range(len(missing)):
        if missing[b] == 0:
            continue
        used = {np.int64(-1)}
        own = 0
        for i in range(batch_start[b], batch_start[b + 1]):
            if batch_pairs[i] not in used:
                used.add(batch_pairs[i])
                own += 1
        distinct = num_src * num_dst - own >= missing[b]
        state = seeded(seed, numbers[b])
        for i in range(missing[b]):
            while True:
                pair, state = below(state, num_src * num_dst)
                if pair not in used:
                    break
            if distinct:
                used.add(pair)
            out_src[batch_start[b] + i] = pair // num_dst
            out_dst[batch_start[b] + i] = pair % num_dst


@njit(cache=True, nogil=True)
def many_kernel(
    src, group, pool, numbers, offsets, met, met_start, at, at_start, num_history, num_negatives, seed, out, count
):
    """Draw destinations for each positive: some met in training, the rest never met, none met at the same time.

    Args:
        src: (B,) sources; group: (B,) number of each (source, time).
        pool: sorted destinations to draw from.
        numbers: (B,) of the positives among all, each of which draws by its own.
        offsets: (B,) where each positive's row of out begins.
        met, met_start: sorted distinct training destinations of each source, as places in pool; CSR.
        at, at_start: sorted distinct destinations of each group, as places in pool; CSR.
        num_history, num_negatives: most destinations of the first kind, and in all.
        out: (B * num_negatives,); count: (B,) how many were found.
    """
    state_of = np.full(len(pool), -1, np.int64)  # place -> the last positive that banned or took it
    allowed = np.empty(len(pool), np.int64)
    for q in range(len(src)):
        state = seeded(seed, numbers[q])
        row = out[offsets[q] : offsets[q] + num_negatives]
        for i in range(at_start[group[q]], at_start[group[q] + 1]):
            state_of[at[i]] = q
        n = 0
        a, z = met_start[src[q]], met_start[src[q] + 1]
        for i in range(a, z):
            if state_of[met[i]] != q:
                state_of[met[i]] = q
                allowed[n] = met[i]
                n += 1
        taken = min(n, num_history)
        for i in range(taken):
            j, state = below(state, n - i)
            row[i] = pool[allowed[i + j]]
            allowed[i + j] = allowed[i]
        banned = at_start[group[q] + 1] - at_start[group[q]] + n
        free = len(pool) - banned
        want = min(num_negatives - taken, free)
        if want > free // 2:
            n = 0
            for p in range(len(pool)):
                if state_of[p] != q:
                    allowed[n] = p
                    n += 1
            for i in range(want):
                j, state = below(state, n - i)
                row[taken + i] = pool[allowed[i + j]]
                allowed[i + j] = allowed[i]
        else:
            i = 0
            while i < want:
                p, state = below(state, len(pool))
                if state_of[p] != q:
                    state_of[p] = q
                    row[taken + i] = pool[p]
                    i += 1
        count[q] = taken + want
