# mypy: ignore-errors
"""Compiled loops of `negatives`. Imported on first use."""

from __future__ import annotations

import numpy as np
from numba import njit

from hopstate.ops.cpu.random_kernels import below, seeded


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
