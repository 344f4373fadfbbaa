# mypy: ignore-errors
"""CPU kernels of the selective scan.

A lane is a channel, so B and C are one number per (token, state) and the sum over states stays within a lane. WIDE
states are processed together. Each sequence is split into segments of SEGMENT tokens, starting where its scan begins.
The forward pass stores the state between segments. The backward pass recomputes the states of one segment at a time
into buffers that stay in cache.

A unit of work is (group of sequences, span of channel blocks). Units depend on the shapes only, and sums over units
are added in unit order. Therefore no result depends on the number of threads. All arrays are flat. Layouts:
    tokens      [token, channel] or [token, state], as the caller has them
    lanes       [block, state, lane], padded to sixteen channels and to whole wide vectors of states
    checkpoints [segment, block, state, lane]: a sequence that begins at token t starts at segment t // SEGMENT
Derivation: DERIVATION.md in this folder.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from hopstate.ops.cpu import simd
from hopstate.ops.cpu.simd import (
    LANES,
    WIDE,
    broadcast_lanes,
    exp_parts,
    filled,
    fma,
    lane_sum,
    load,
    load_first,
    load_wide,
    narrow,
    phi_series,
    repeat,
    scratch,
    sigmoid,
    store,
    store_first,
    where_less,
)
from hopstate.ops.dispatch import SEGMENT, check_steps
from hopstate.ops.threads import MIN_GROUP, flat_array, group_sequences, run_units

MIN_UNITS = 16  # below this many groups, channels are split too


def forward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None, offsets: Tensor,
    initial: Tensor | None, reverse: bool, zoh: bool, keep: bool, want_final: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return y, final states (empty unless wanted) and checkpoints (empty unless kept)."""
    (tokens, channels), S, sequences = u.shape, A.shape[1], offsets.numel() - 1
    kind = torch.promote_types(u.dtype, torch.float32)
    inputs = [flat_array(x, kind) for x in (u, delta, A, B, C, D, z, initial)]
    bounds = offsets.detach().numpy()
    groups, spans = cut(bounds, channels, S)
    y = np.empty(tokens * channels, inputs[0].dtype)
    final = np.empty(sequences * channels * S if want_final else 0, y.dtype)
    blocks = -(-channels // LANES)
    shape = (-(-tokens // SEGMENT) if keep else 0, blocks, S, LANES)
    checkpoints = np.empty(int(np.prod(shape)), y.dtype)
    flags = (channels, S, reverse, zoh, D is not None, z is not None, initial is not None, keep)
    shortest = np.zeros((groups.size - 1) * (spans.size - 1), y.dtype)
    outputs = (y, final, checkpoints, shortest)
    run_units(scan_forward, shortest.size, groups, spans, bounds, *flags, *inputs, *outputs)
    if shortest.size and shortest.min() < 0:
        check_steps(delta)
    final_shape = (sequences if want_final else 0, channels, S)
    return (
        torch.from_numpy(y).view(u.shape).to(u.dtype),
        torch.from_numpy(final).view(final_shape),
        torch.from_numpy(checkpoints).view(shape),
    )


def backward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None, offsets: Tensor,
    initial: Tensor | None, checkpoints: Tensor, dy: Tensor, dfinal: Tensor | None, reverse: bool, zoh: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return du, ddelta, dA, dB, dC, dD, dz, dinitial, each in its input's dtype; empty for missing inputs."""
    (tokens, channels), S = u.shape, A.shape[1]
    kind = torch.promote_types(u.dtype, torch.float32)
    inputs = [flat_array(x, kind) for x in (u, delta, A, B, C, D, z, initial, checkpoints, dy, dfinal)]
    real = inputs[0].dtype
    bounds = offsets.detach().numpy()
    groups, spans = cut(bounds, channels, S)
    num_groups, num_spans, blocks = groups.size - 1, spans.size - 1, -(-channels // LANES)
    du, ddelta = np.empty(tokens * channels, real), np.empty(tokens * channels, real)
    dA, dD = np.zeros(num_groups * blocks * S * LANES, real), np.zeros(num_groups * blocks * LANES, real)
    dB, dC = np.empty(num_spans * tokens * S, real), np.empty(num_spans * tokens * S, real)
    dz = np.empty(0 if z is None else du.size, real)
    dinitial = np.empty(0 if initial is None else initial.numel(), real)
    flags = (channels, S, reverse, zoh, D is not None, z is not None, initial is not None, dfinal is not None)
    grads = (du, ddelta, dA, dB, dC, dD, dz, dinitial)
    run_units(scan_backward, num_groups * num_spans, groups, spans, bounds, *flags, *inputs, *grads)
    summed_A = dA.reshape(num_groups, blocks, S, LANES).sum(0).transpose(0, 2, 1).reshape(-1, S)[:channels]
    summed_D = dD.reshape(num_groups, blocks * LANES).sum(0)[: 0 if D is None else channels]
    shaped = (
        (du, u), (ddelta, delta), (summed_A, A), (_sum_first(dB, num_spans), B), (_sum_first(dC, num_spans), C),
        (summed_D, D), (dz, z), (dinitial, initial),
    )  # fmt: skip
    return tuple(_as(grad, like, kind) for grad, like in shaped)


def _as(grad: np.ndarray, like: Tensor | None, kind: torch.dtype) -> Tensor:
    if like is None:
        return torch.empty(0, dtype=kind)
    return torch.from_numpy(np.ascontiguousarray(grad)).view(like.shape).to(like.dtype)


def _sum_first(partial: np.ndarray, count: int) -> np.ndarray:
    """Sum count equal parts in order, in place."""
    parts = partial.reshape(count, -1)
    for i in range(1, count):
        parts[0] += parts[i]
    return parts[0]


def cut(bounds: np.ndarray, channels: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the sequences into groups of about equal tokens and, where these are few, the channels into spans.

    Only shapes decide, never the number of threads. Returns group bounds in sequences and span bounds in blocks.
    """
    groups, tokens, blocks = group_sequences(bounds, channels), int(bounds[-1]), -(-channels // LANES)
    num_groups = groups.size - 1
    # each span has its own dB and dC, 2 S numbers per token, limited to a tenth of the other buffers
    max_spans = max(1, min(blocks, int(0.3 * channels / S), tokens * channels // (MIN_GROUP * max(num_groups, 1))))
    num_spans = min(max_spans, -(-MIN_UNITS // max(num_groups, 1)))
    return groups, np.linspace(0, blocks, num_spans + 1).astype(np.int64)


assert SEGMENT % WIDE == 0

# One buffer holds what a block needs of a segment, so that the inner loops have one address instead of a dozen: fields
# [token, lane], then fields [token, state of a wide vector, lane]. What is added to each keeps fields apart in their
# low address bits: a load waits for any store before it that agrees in those.
_ROWS, _WIDE_ROWS = (SEGMENT + 1) * LANES, (SEGMENT * WIDE + 1) * LANES
X, DT, DY, GATE, SIGMA, GRAD, OUT, DU, DDELTA = (field * _ROWS for field in range(9))
STATE, DECAY, GAIN, SLOPE = (9 * _ROWS + field * _WIDE_ROWS for field in range(4))
FIELDS = 9 * _ROWS + 4 * _WIDE_ROWS
BUNCH = WIDE * LANES

kernel = njit(nogil=True, cache=True, error_model="numpy")
inlined = njit(forceinline=True, error_model="numpy")


@inlined
def padded(S):
    """S rounded up to whole wide vectors of states; the states beyond S stay zero."""
    return (S + WIDE - 1) // WIDE * WIDE


@inlined
def rates(A, block, channels, S, a, inverse, at):
    """Lay out A and 1/A of one block as [state, lane]; -1 for padding."""
    for s in range(padded(S)):
        for lane in range(LANES):
            channel = block * LANES + lane
            a[at + s * LANES + lane] = A[channel * S + s] if channel < channels and s < S else -1.0
            inverse[at + s * LANES + lane] = 1.0 / a[at + s * LANES + lane]


@inlined
def _gather_state(source, sequence, block, channels, S, target, at):
    """target[at + state, lane] = source[sequence, channel, state]."""
    for s in range(S):
        for lane in range(LANES):
            channel = block * LANES + lane
            inside = channel < channels
            target[at + s * LANES + lane] = source[(sequence * channels + channel) * S + s] if inside else 0.0


@inlined
def scatter_state(source, at, sequence, block, channels, S, target):
    """target[sequence, channel, state] = source[at + state, lane]."""
    for lane in range(min(LANES, channels - block * LANES)):
        for s in range(S):
            target[(sequence * channels + block * LANES + lane) * S + s] = source[at + s * LANES + lane]


@inlined
def copy(source, source_at, target, target_at, count):
    """Copy count numbers, whole vectors of them."""
    for i in range(0, count, LANES):
        store(target, target_at + i, load(source, source_at + i))


@inlined
def clear(target, at, count):
    """Set count numbers from at on to zero, whole vectors of them."""
    for i in range(at, at + count, LANES):
        store(target, i, filled(load(target, i), 0.0))


@inlined
def start_states(h, source, given, sequence, low, high, channels, S):
    """States of the blocks low..high - 1 before a sequence's first step: as given, or zero."""
    wide = padded(S) * LANES
    for block in range(low, high):
        clear(h, (block - low) * wide, wide)
        if given:
            _gather_state(source, sequence, block, channels, S, h, (block - low) * wide)


@inlined
def sequences(groups, group, descending):
    first, last = groups[group], groups[group + 1]
    return range(last - 1, first - 1, -1) if descending else range(first, last, 1)


@inlined
def count_segments(start, end):
    """Return how many segments a sequence is cut into."""
    return (end - start + SEGMENT - 1) // SEGMENT


@inlined
def segment_bounds(start, end, order, reverse):
    """The order-th segment that the scan passes: (first token to process, +1 or -1, number of tokens)."""
    count = min(SEGMENT, end - start - order * SEGMENT)
    return (end - 1 - order * SEGMENT if reverse else start + order * SEGMENT), -1 if reverse else 1, count


@inlined
def rows_of(source, first, step, count, S, target):
    """target[k, state] = source[token, state] of one segment, zero for the states beyond S."""
    even = padded(S)
    for k in range(count):
        for s in range(even):
            target[k * even + s] = source[(first + step * k) * S + s] if s < S else 0.0


@inlined
def _replay(a, inverse, B, C, S, s, count, h, work, zoh, want_out):
    """Run WIDE states of one block over a segment, keeping what `_unwind` reads again; return the last states."""
    edge, even = filled(a, -0.5), padded(S)
    for k in range(count):
        i, j, row = k * LANES, k * BUNCH, k * even + s
        now, x = repeat(load(work, DT + i)), repeat(load(work, X + i))
        exponent = now * a
        decay, rise = exp_parts(exponent)
        gain = rise * inverse if zoh else now
        if zoh:  # d gain / d A = delta**2 phi(delta A), from its series near zero
            closed = (now * decay - gain) * inverse
            store(work, SLOPE + j, where_less(edge, exponent, now * now * phi_series(exponent), closed))
        store(work, STATE + j, h)
        store(work, DECAY + j, decay)
        store(work, GAIN + j, gain)
        h = fma(decay, h, gain * (broadcast_lanes(B, row) * x))
        if want_out:
            store(work, OUT + i, load(work, OUT + i) + narrow(broadcast_lanes(C, row) * h))
    return h


@inlined
def _unwind(a, B, C, S, s, count, h, work, g, dA, sums_B, sums_C, zoh):
    """Go back over the segment with the gradient g of WIDE states; return g before the segment and dA."""
    even = padded(S)
    for k in range(count - 1, -1, -1):
        i, j, row, slot = k * LANES, k * BUNCH, k * even + s, (k * (even + 1) + s) * LANES
        grad_y, now, x = repeat(load(work, GRAD + i)), repeat(load(work, DT + i)), repeat(load(work, X + i))
        b, before = broadcast_lanes(B, row), load_wide(work, STATE + j)
        store(sums_C, slot, fma(grad_y, h, load_wide(sums_C, slot)))
        grad = fma(grad_y, broadcast_lanes(C, row), g)
        g = grad * load_wide(work, DECAY + j)
        through, drive = grad * load_wide(work, GAIN + j), b * x
        store(sums_B, slot, fma(through, x, load_wide(sums_B, slot)))
        store(work, DU + i, load(work, DU + i) + narrow(through * b))
        if zoh:  # d gain / d delta = decay
            in_delta = g * fma(a, before, drive)
            dA = fma(grad * drive, load_wide(work, SLOPE + j), dA)
        else:
            in_delta = fma(g, a * before, grad * drive)
        store(work, DDELTA + i, load(work, DDELTA + i) + narrow(in_delta))
        dA = fma(g * now, before, dA)
        h = before
    return g, dA


@inlined
def _prepare(work, first, step, count, channels, block, lanes, has_gate, u, delta, gate, dy, skips, dskips):
    """Fill the fields that all states of a block share; return the gradient of D."""
    for k in range(count):
        token, i = (first + step * k) * channels + block * LANES, k * LANES
        ahead = token - step * SEGMENT * channels
        simd.prefetch(u, ahead)
        simd.prefetch(delta, ahead)
        simd.prefetch(dy, ahead)
        if has_gate:
            simd.prefetch(gate, ahead)
        store(work, X + i, load_first(u, token, lanes))
        store(work, DT + i, load_first(delta, token, lanes))
        store(work, DY + i, load_first(dy, token, lanes))
        store(work, GRAD + i, load(work, DY + i))
        if has_gate:
            store(work, GATE + i, load_first(gate, token, lanes))
            store(work, OUT + i, skips * load(work, X + i))
    if has_gate:
        for i in range(0, count * LANES, BUNCH):
            z = load_wide(work, GATE + i)
            sigma = sigmoid(z)
            store(work, SIGMA + i, sigma)
            store(work, GRAD + i, load_wide(work, DY + i) * z * sigma)
    for i in range(0, count * LANES, LANES):
        grad = load(work, GRAD + i)
        dskips = fma(grad, load(work, X + i), dskips)
        store(work, DU + i, grad * skips)
        store(work, DDELTA + i, filled(grad, 0.0))
    return dskips


@inlined
def _finish(work, first, step, count, channels, block, lanes, has_gate, du, ddelta, dgate):
    if has_gate:  # d silu(z) = sigma (1 + z (1 - sigma))
        for i in range(0, count * LANES, BUNCH):
            z, sigma = load_wide(work, GATE + i), load_wide(work, SIGMA + i)
            slope = sigma * fma(z, filled(z, 1.0) - sigma, filled(z, 1.0))
            store(work, GATE + i, load_wide(work, DY + i) * load_wide(work, OUT + i) * slope)
    for k in range(count):
        token, i = (first + step * k) * channels + block * LANES, k * LANES
        ahead = token - step * SEGMENT * channels
        simd.prefetch_to_write(du, ahead)
        simd.prefetch_to_write(ddelta, ahead)
        if has_gate:
            simd.prefetch_to_write(dgate, ahead)
        store_first(du, token, load(work, DU + i), lanes)
        store_first(ddelta, token, load(work, DDELTA + i), lanes)
        if has_gate:
            store_first(dgate, token, load(work, GATE + i), lanes)


@kernel
def scan_backward(
    first_unit, last_unit, groups, spans, offsets, channels, S, reverse, zoh, has_skip, has_gate, has_initial,
    has_dfinal,
    u, delta, A, B, C, skip, gate, initial, checkpoints, dy, dfinal,
    du, ddelta, dA, dB, dC, dskip, dgate, dinitial,
):  # fmt: skip
    """Run units first_unit..last_unit - 1 backwards.

    dA and dskip hold one partial sum per group, [group, block, (state,) lane], dskip zero on entry; dB and dC one per
    span, [span, token, state].
    """
    word = simd.control_word()
    simd.set_control_word(word | simd.FLUSH_TO_ZERO)
    blocks = (channels + LANES - 1) // LANES
    num_spans, tokens, even = spans.size - 1, offsets[-1], padded(S)
    wide, kept, rows = even * LANES, S * LANES, SEGMENT * (even + 1) * LANES
    most = (spans[1:] - spans[:-1]).max() * wide
    a, inverse, g, sums_A = scratch(most, u, 0), scratch(most, u, 3), scratch(most, u, 7), scratch(most, u, 11)
    sums_B, sums_C, start_h = scratch(rows, u, 0), scratch(rows, u, 13), scratch(wide, u, 5)
    work, B_rows, C_rows = scratch(FIELDS, u, 16), scratch(SEGMENT * even, u, 2), scratch(SEGMENT * even, u, 9)
    clear(work, 0, FIELDS)  # gates are computed for a few tokens past those of a short segment
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            rates(A, block, channels, S, a, inverse, (block - low) * wide)
        clear(sums_A, 0, (high - low) * wide)
        for sequence in sequences(groups, group, not reverse):
            start, end = offsets[sequence], offsets[sequence + 1]
            start_states(g, dfinal, has_dfinal, sequence, low, high, channels, S)
            for order in range(count_segments(start, end) - 1, -1, -1):
                first, step, count = segment_bounds(start, end, order, reverse)
                clear(sums_B, 0, rows)
                clear(sums_C, 0, rows)
                rows_of(B, first, step, count, S, B_rows)
                rows_of(C, first, step, count, S, C_rows)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    start_states(start_h, initial, has_initial and order == 0, sequence, block, block + 1, channels, S)
                    if order > 0:
                        copy(checkpoints, ((start // SEGMENT + order) * blocks + block) * kept, start_h, 0, kept)
                    slot = (group * blocks + block) * LANES
                    dskips = _prepare(
                        work, first, step, count, channels, block, lanes, has_gate, u, delta, gate, dy, skips,
                        load(dskip, slot),
                    )  # fmt: skip
                    store(dskip, slot, dskips)
                    for s in range(0, even, WIDE):
                        i, rate = at + s * LANES, load_wide(a, at + s * LANES)
                        h = _replay(
                            rate, load_wide(inverse, i), B_rows, C_rows, S, s, count, load_wide(start_h, s * LANES),
                            work, zoh, has_gate,
                        )  # fmt: skip
                        in_state, in_rate = _unwind(
                            rate, B_rows, C_rows, S, s, count, h, work, load_wide(g, i), load_wide(sums_A, i), sums_B,
                            sums_C, zoh,
                        )  # fmt: skip
                        store(g, i, in_state)
                        store(sums_A, i, in_rate)
                    _finish(work, first, step, count, channels, block, lanes, has_gate, du, ddelta, dgate)
                for k in range(count):
                    row = (span * tokens + first + step * k) * S
                    for s in range(S):
                        slot = (k * (even + 1) + s) * LANES
                        dB[row + s], dC[row + s] = lane_sum(load(sums_B, slot)), lane_sum(load(sums_C, slot))
            if dinitial.size > 0:
                for block in range(low, high):
                    scatter_state(g, (block - low) * wide, sequence, block, channels, S, dinitial)
        for block in range(low, high):
            copy(sums_A, (block - low) * wide, dA, (group * blocks + block) * kept, kept)
    simd.set_control_word(word)


@inlined
def _step(x, dt, a, inverse, at, B, C, row, S, h, zoh):
    """Advance the states h of one block by one token; return the sum over states of C h."""
    x, dt = repeat(x), repeat(dt)
    y = filled(x, 0.0)
    for s in range(0, padded(S), WIDE):
        i = at + s * LANES
        decay, rise = exp_parts(dt * load_wide(a, i))
        gain = rise * load_wide(inverse, i) if zoh else dt
        state = fma(decay, load_wide(h, i), gain * (broadcast_lanes(B, row + s) * x))
        store(h, i, state)
        y = fma(broadcast_lanes(C, row + s), state, y)
    return narrow(y)


@inlined
def _gate(work, count):
    """OUT <- OUT silu(GATE)."""
    for i in range(0, count * LANES, BUNCH):
        z = load_wide(work, GATE + i)
        store(work, OUT + i, load_wide(work, OUT + i) * z * sigmoid(z))


@kernel
def scan_forward(
    first_unit, last_unit, groups, spans, offsets, channels, S, reverse, zoh, has_skip, has_gate, has_initial, keep,
    u, delta, A, B, C, skip, gate, initial, y, final, checkpoints, shortest,
):  # fmt: skip
    """Run units first_unit..last_unit - 1: write y, final states, (keep) checkpoints and each unit's shortest step."""
    word = simd.control_word()
    simd.set_control_word(word | simd.FLUSH_TO_ZERO)
    blocks = (channels + LANES - 1) // LANES
    num_spans, even = spans.size - 1, padded(S)
    wide, kept = even * LANES, S * LANES
    most = (spans[1:] - spans[:-1]).max() * wide
    h, a, inverse, edge = scratch(most, u, 0), scratch(most, u, 3), scratch(most, u, 7), scratch(LANES, u, 0)
    work, B_rows, C_rows = scratch(FIELDS, u, 11), scratch(SEGMENT * even, u, 2), scratch(SEGMENT * even, u, 9)
    clear(work, 0, FIELDS)  # gates are computed for a few tokens past those of a short segment
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            rates(A, block, channels, S, a, inverse, (block - low) * wide)
        least = filled(load(a, 0), 0.0)
        for sequence in sequences(groups, group, reverse):
            start, end = offsets[sequence], offsets[sequence + 1]
            start_states(h, initial, has_initial, sequence, low, high, channels, S)
            for order in range(count_segments(start, end)):
                first, step, count = segment_bounds(start, end, order, reverse)
                rows_of(B, first, step, count, S, B_rows)
                rows_of(C, first, step, count, S, C_rows)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    if keep and order > 0:
                        copy(h, at, checkpoints, ((start // SEGMENT + order) * blocks + block) * kept, kept)
                    for k in range(count):
                        token = (first + step * k) * channels + block * LANES
                        ahead = token + step * SEGMENT * channels  # rows are far apart: the hardware does not prefetch
                        simd.prefetch(u, ahead)
                        simd.prefetch(delta, ahead)
                        if has_gate:
                            simd.prefetch(gate, ahead)
                        x, dt = load_first(u, token, lanes), load_first(delta, token, lanes)
                        least = where_less(dt, least, dt, least)
                        out = _step(x, dt, a, inverse, at, B_rows, C_rows, k * even, S, h, zoh)
                        store(work, OUT + k * LANES, fma(skips, x, out))
                        store(work, GATE + k * LANES, load_first(gate, token, lanes if has_gate else 0))
                    if has_gate:
                        _gate(work, count)
                    for k in range(count):
                        token = (first + step * k) * channels + block * LANES
                        simd.prefetch_to_write(y, token + step * SEGMENT * channels)
                        store_first(y, token, load(work, OUT + k * LANES), lanes)
            if final.size > 0:
                for block in range(low, high):
                    scatter_state(h, (block - low) * wide, sequence, block, channels, S, final)
        store(edge, 0, least)
        shortest[unit] = edge.min()
    simd.set_control_word(word)
