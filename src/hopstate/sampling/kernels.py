# mypy: ignore-errors
"""Numba kernels of `negatives`, imported on first use."""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import below, seeded
from hopstate.ops.neighbors.kernels import lower_bound

RANDOM, HISTORICAL, INDUCTIVE, POPULAR = 0, 1, 2, 3
TRIES = 32  # draws before the random pair is kept


@njit(cache=True, nogil=True)
def _interacts_in(target, source_events, low, high, end, dst):
    """Return whether one of source_events[low:high] before end has this destination."""
    for q in range(low, high):
        if source_events[q] >= end:
            return False
        if dst[source_events[q]] == target:
            return True
    return False


@njit(cache=True, nogil=True)
def draw_pairs(
    kinds,
    begin,
    end,
    pair,
    num_past_pairs,
    recent_share,
    first,
    source_events,
    source_offsets,
    src,
    dst,
    seed,
    out_src,
    out_dst,
):
    """Draw historical, inductive and popular negative pairs, in place of the random pairs in out_src and out_dst.

    Args:
        kinds: (P,) kind of negative for each event.
        begin, end: (P,) range of the events with the same timestamp; events before begin are past.
        pair: (P,) pair number of each event, by first occurrence.
        num_past_pairs: (P,) number of distinct pairs before each event's timestamp.
        recent_share: share of the past pairs, the most recent ones, that inductive negatives are drawn from.
        first: (pairs,) first event of each pair.
        source_events, source_offsets: sorted events of each source in CSR format.
        src, dst: (P,) sources and destinations of the events.
        seed: random seed.
        out_src, out_dst: (P,) random pairs, modified in place.
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
            high = source_offsets[src[i] + 1]
            low = lower_bound(source_events, source_offsets[src[i]], high, begin[i])
            for _ in range(TRIES):
                j, state = below(state, begin[i])
                if not _interacts_in(dst[j], source_events, low, high, end[i], dst):
                    out_src[i], out_dst[i] = src[i], dst[j]
                    break
            continue
        low = num_past_pairs[i] - max(1, np.int64(num_past_pairs[i] * recent_share)) if kinds[i] == INDUCTIVE else 0
        for _ in range(TRIES):
            p, state = below(state, num_past_pairs[i] - low)
            if now[low + p] != group:  # the pair has no event at this timestamp
                out_src[i], out_dst[i] = src[first[low + p]], dst[first[low + p]]
                break


@njit(cache=True, nogil=True)
def draw_candidates(kinds, begin, end, source_events, source_offsets, recent_share, src, dst, seed, out):
    """Draw historical, inductive and popular candidate destinations, in place of the random ones in out.

    Args:
        kinds: (P, K) kind of negative for each candidate.
        begin, end: (P,) range of the events with the same timestamp; their destinations are not candidates.
        source_events, source_offsets: sorted events of each source in CSR format.
        recent_share: share of the source's past events, the most recent ones, that inductive candidates are drawn from.
        src, dst: (P,) sources and destinations of the events.
        seed: random seed.
        out: (P, K) random destinations, modified in place.
    """
    for i in range(len(kinds)):
        first, high = source_offsets[src[i]], source_offsets[src[i] + 1]
        now = lower_bound(source_events, first, high, begin[i])
        past = now - first
        state = seeded(seed, i)
        for k in range(kinds.shape[1]):
            kind = kinds[i, k]
            if kind == RANDOM or begin[i] == 0 or (kind != POPULAR and past == 0):
                continue
            low = past - max(1, np.int64(past * recent_share)) if kind == INDUCTIVE else 0
            for _ in range(TRIES):
                if kind == POPULAR:
                    j, state = below(state, begin[i])
                else:
                    j, state = below(state, past - low)
                    j = source_events[first + low + j]
                if not _interacts_in(dst[j], source_events, now, high, end[i], dst):
                    out[i, k] = dst[j]
                    break


@njit(cache=True, nogil=True)
def draw_past_pairs(low, high, begin, end, pool_pairs, batch_start, seed, numbers, num_pairs, chosen, count):
    """Draw for each batch distinct past pairs that do not occur in its time window.

    Args:
        low, high: (batches,) range of the pair numbers (by first occurrence) to draw from.
        begin, end: (batches,) pool positions of the batch's time window.
        pool_pairs: (pool,) pair number of each pool event.
        batch_start: (batches + 1,) output offsets of the batches.
        seed: random seed.
        numbers: (batches,) batch numbers within the split, which seed the draws.
        num_pairs: number of distinct pairs in the pool.
        chosen: output pair numbers; the first count[b] entries of each batch are set.
        count: (batches,) output number of pairs found.
    """
    banned = np.full(num_pairs, -1, np.int32)  # the last batch that excluded or drew the pair
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
        if take > free // 2:  # most pairs are drawn: shuffle the list of all allowed pairs
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
        else:  # few pairs are drawn: rejection sampling
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
def fill_random_pairs(missing, batch_pairs, batch_start, num_src, num_dst, seed, numbers, out_src, out_dst):
    """Fill the first missing[b] entries of each batch with random pairs that are not in the batch.

    If possible, the pairs within a batch are distinct, as in DyGLib.

    Args:
        missing: (batches,) number of pairs to draw.
        batch_pairs: src * num_dst + dst of each event, or -1 if a node is not in the pool.
        batch_start: (batches + 1,) offsets of the batches.
        num_src, num_dst: number of sources and destinations in the pool.
        seed: random seed.
        numbers: (batches,) batch numbers within the split, which seed the draws.
        out_src, out_dst: output indices into the pool's sources and destinations.
    """
    for b in range(len(missing)):
        if missing[b] == 0:
            continue
        used = {np.int64(-1)}
        in_batch = 0
        for i in range(batch_start[b], batch_start[b + 1]):
            if batch_pairs[i] not in used:
                used.add(batch_pairs[i])
                in_batch += 1
        distinct = num_src * num_dst - in_batch >= missing[b]
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
def draw_ranking_candidates(
    src,
    group,
    pool,
    numbers,
    offsets,
    train_dst,
    train_offsets,
    current_dst,
    current_offsets,
    num_history,
    num_negatives,
    seed,
    out,
    count,
):
    """Draw negative destinations for each positive: first from its source's training destinations, then from others.

    Destinations of the source at the same timestamp are excluded.

    Args:
        src: (B,) sources.
        group: (B,) number of each positive's (source, timestamp).
        pool: sorted destinations to draw from.
        numbers: (B,) numbers of the positives within the split, which seed the draws.
        offsets: (B,) start of each positive's row in out.
        train_dst, train_offsets: sorted distinct training destinations of each source, as indices into pool; CSR.
        current_dst, current_offsets: sorted distinct destinations of each group, as indices into pool; CSR.
        num_history: maximum number of training destinations.
        num_negatives: maximum number of destinations.
        seed: random seed.
        out: (B * num_negatives,) output destinations.
        count: (B,) output number of destinations found.
    """
    state_of = np.full(len(pool), -1, np.int64)  # the last positive that excluded or drew the destination
    allowed = np.empty(len(pool), np.int64)
    for q in range(len(src)):
        state = seeded(seed, numbers[q])
        row = out[offsets[q] : offsets[q] + num_negatives]
        for i in range(current_offsets[group[q]], current_offsets[group[q] + 1]):
            state_of[current_dst[i]] = q
        n = 0
        a, z = train_offsets[src[q]], train_offsets[src[q] + 1]
        for i in range(a, z):
            if state_of[train_dst[i]] != q:
                state_of[train_dst[i]] = q
                allowed[n] = train_dst[i]
                n += 1
        num_from_history = min(n, num_history)
        for i in range(num_from_history):
            j, state = below(state, n - i)
            row[i] = pool[allowed[i + j]]
            allowed[i + j] = allowed[i]
        banned = current_offsets[group[q] + 1] - current_offsets[group[q]] + n
        num_free = len(pool) - banned
        num_others = min(num_negatives - num_from_history, num_free)
        if num_others > num_free // 2:
            n = 0
            for p in range(len(pool)):
                if state_of[p] != q:
                    allowed[n] = p
                    n += 1
            for i in range(num_others):
                j, state = below(state, n - i)
                row[num_from_history + i] = pool[allowed[i + j]]
                allowed[i + j] = allowed[i]
        else:
            i = 0
            while i < num_others:
                p, state = below(state, len(pool))
                if state_of[p] != q:
                    state_of[p] = q
                    row[num_from_history + i] = pool[p]
                    i += 1
        count[q] = num_from_history + num_others
