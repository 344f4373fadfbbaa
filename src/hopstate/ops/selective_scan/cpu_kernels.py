"""The selective scan's CPU kernels: sixteen channels side by side, states in cache, nothing stored per state.

A lane is a channel, so B and C are one number per (token, state) and the sum over states stays within a lane. Tokens
are cut on a fixed grid of CELL; the forward pass keeps the state at each grid line inside a sequence, and the backward
pass recomputes the states of one cell at a time from there, into buffers that stay in cache.

A unit of work is (group of sequences, span of channel blocks); units are cut from the shapes alone, every sum over
units is added in unit order, and so no result depends on the number of threads. All arrays are flat. Layouts:
    tokens      [token, channel] or [token, state], as the caller has them
    lanes       [block, state, lane], padded to sixteen channels: A, states, gradients of both
    checkpoints [cell, block, state, lane]
Derivation: README.md beside this file.
"""

import numpy as np
from numba import njit

from hopstate.ops.simd import (
    LANES,
    exp_parts,
    filled,
    fma,
    lane_sum,
    load,
    load_first,
    phi_series,
    splat,
    store,
    store_first,
    where_less,
)

CELL = 16  # tokens between checkpoints: three buffers of CELL * S * LANES numbers should fit the second-level cache

kernel = njit(nogil=True, cache=True, error_model="numpy")
inlined = njit(forceinline=True, error_model="numpy")


@inlined
def _sigmoid(x):
    zero, one = filled(x, 0.0), filled(x, 1.0)
    small, _ = exp_parts(where_less(x, zero, x, zero - x))  # exp(-|x|): never overflows
    return where_less(x, zero, small, one) / (one + small)


@inlined
def _rates(A, block, channels, S, a, inverse, at):
    """Lay out A and 1/A of one block as [state, lane]; lanes past the last channel get -1."""
    for s in range(S):
        for lane in range(LANES):
            channel = block * LANES + lane
            a[at + s * LANES + lane] = A[channel * S + s] if channel < channels else -1.0
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
def _scatter_state(source, at, sequence, block, channels, S, target):
    for lane in range(min(LANES, channels - block * LANES)):
        for s in range(S):
            target[(sequence * channels + block * LANES + lane) * S + s] = source[at + s * LANES + lane]


@inlined
def _copy(source, source_at, target, target_at, count):
    for i in range(0, count, LANES):
        store(target, target_at + i, load(source, source_at + i))


@inlined
def _clear(target, at, count):
    for i in range(at, at + count, LANES):
        store(target, i, filled(load(target, i), 0.0))


@inlined
def _step(x, dt, a, inverse, at, B, C, row, S, h, zoh):
    """Advance the states h of one block by one token; return the sum over states of C h."""
    y = filled(x, 0.0)
    for s in range(S):
        i = s * LANES
        decay, rise = exp_parts(dt * load(a, at + i))
        gain = rise * load(inverse, at + i) if zoh else dt
        state = fma(decay, load(h, i), gain * (splat(B[row + s]) * x))
        store(h, i, state)
        y = fma(splat(C[row + s]), state, y)
    return y


@kernel
def scan_forward(
    first_unit, last_unit, groups, spans, offsets, channels, S, reverse, zoh, has_skip, has_gate, has_initial, keep,
    u, delta, A, B, C, skip, gate, initial, y, final, checkpoints, shortest,
):  # fmt: skip
    """Run units first_unit..last_unit - 1: write y, final states, (keep) checkpoints and each unit's shortest step."""
    blocks = (channels + LANES - 1) // LANES
    num_spans = spans.size - 1
    wide = S * LANES
    h, a, inverse = np.empty(wide, u.dtype), np.empty(wide, u.dtype), np.empty(wide, u.dtype)
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        least = filled(load(h, 0), 0.0)
        for block in range(spans[span], spans[span + 1]):
            _rates(A, block, channels, S, a, inverse, 0)
            lanes = min(LANES, channels - block * LANES)
            skips = load_first(skip, block * LANES, lanes if has_skip else 0)
            for sequence in range(groups[group], groups[group + 1]):
                start, end = offsets[sequence], offsets[sequence + 1]
                if has_initial:
                    _gather_state(initial, sequence, block, channels, S, h, 0)
                else:
                    _clear(h, 0, wide)
                for k in range(end - start):
                    t = end - 1 - k if reverse else start + k
                    if keep and k > 0 and (t + 1 if reverse else t) % CELL == 0:
                        _copy(h, 0, checkpoints, (t // CELL * blocks + block) * wide, wide)
                    at = t * channels + block * LANES
                    x, dt = load_first(u, at, lanes), load_first(delta, at, lanes)
                    least = where_less(dt, least, dt, least)
                    out = _step(x, dt, a, inverse, 0, B, C, t * S, S, h, zoh)
                    out = fma(skips, x, out)
                    if has_gate:
                        z = load_first(gate, at, lanes)
                        out = out * z * _sigmoid(z)
                    store_first(y, at, out, lanes)
                if final.size > 0:
                    _scatter_state(h, 0, sequence, block, channels, S, final)
        store(h, 0, least)
        shortest[unit] = h[:LANES].min()


@inlined
def _replay(x, dt, a, inverse, at, B, C, row, S, states, now, decays, gains, slot, zoh, want_y):
    """One forward step that writes the next states, decays and gains; returns C h where it is wanted."""
    wide = S * LANES
    y = filled(x, 0.0)
    for s in range(S):
        i = s * LANES
        decay, rise = exp_parts(dt * load(a, at + i))
        gain = rise * load(inverse, at + i) if zoh else dt
        state = fma(decay, load(states, now + i), gain * (splat(B[row + s]) * x))
        store(states, now + wide + i, state)
        store(decays, slot + i, decay)
        if zoh:
            store(gains, slot + i, gain)
        if want_y:
            y = fma(splat(C[row + s]), state, y)
    return y


@inlined
def _unwind(x, dt, dy, a, inverse, at, B, C, row, S, states, now, decays, gains, slot, g, dA, dA_at, dB, dC, zoh):
    """One backward step of one block: move the state gradient g to the step before; return (du, ddelta)."""
    wide = S * LANES
    du, ddelta = filled(x, 0.0), filled(x, 0.0)
    edge = filled(x, -0.5)
    for s in range(S):
        i = s * LANES
        b = splat(B[row + s])
        grad = fma(dy, splat(C[row + s]), load(g, at + i))
        store(dC, slot + i, fma(dy, load(states, now + wide + i), load(dC, slot + i)))
        rate, before, decay = load(a, at + i), load(states, now + i), load(decays, slot + i)
        gain = load(gains, slot + i) if zoh else dt
        passed = grad * decay
        through = grad * gain
        store(dB, slot + i, fma(through, x, load(dB, slot + i)))
        du = fma(through, b, du)
        drive = b * x
        rise_in_A = passed * dt * before
        if zoh:
            # d gain / d delta = decay; d gain / d A = delta**2 phi(delta A), from its series near zero
            ddelta = fma(passed, fma(rate, before, drive), ddelta)
            exponent = dt * rate
            closed = (dt * decay - gain) * load(inverse, at + i)
            slope = where_less(edge, exponent, dt * dt * phi_series(exponent), closed)
            rise_in_A = fma(grad * drive, slope, rise_in_A)
        else:
            ddelta = fma(passed, rate * before, fma(grad, drive, ddelta))
        store(dA, dA_at + i, load(dA, dA_at + i) + rise_in_A)
        store(g, at + i, passed)
    return du, ddelta


@kernel
def scan_backward(
    first_unit, last_unit, groups, spans, offsets, channels, S, reverse, zoh, has_skip, has_gate, has_initial,
    has_dfinal,
    u, delta, A, B, C, skip, gate, initial, checkpoints, dy, dfinal,
    du, ddelta, dA, dB, dC, dskip, dgate, dinitial,
):  # fmt: skip
    """Run units first_unit..last_unit - 1 backwards.

    dA and dskip hold one partial sum per group, [group, block, (state,) lane], zero on entry; dB and dC one per span,
    [span, token, state].
    """
    blocks = (channels + LANES - 1) // LANES
    num_spans = spans.size - 1
    wide, tokens = S * LANES, offsets[-1]
    most = 0
    for span in range(num_spans):
        most = max(most, spans[span + 1] - spans[span])
    kind = u.dtype
    a, inverse, g = np.empty(most * wide, kind), np.empty(most * wide, kind), np.empty(most * wide, kind)
    states = np.empty((CELL + 1) * wide, kind)
    decays, gains = np.empty(CELL * wide, kind), np.empty(CELL * wide, kind)
    sums_B, sums_C = np.empty(CELL * wide, kind), np.empty(CELL * wide, kind)
    rows = np.empty(CELL * LANES, kind)
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            _rates(A, block, channels, S, a, inverse, (block - low) * wide)
        for sequence in range(groups[group], groups[group + 1]):
            start, end = offsets[sequence], offsets[sequence + 1]
            for block in range(low, high):
                if has_dfinal:
                    _gather_state(dfinal, sequence, block, channels, S, g, (block - low) * wide)
                else:
                    _clear(g, (block - low) * wide, wide)
            cells = (end - 1) // CELL - start // CELL + 1 if end > start else 0
            for order in range(cells - 1, -1, -1):
                cell = (end - 1) // CELL - order if reverse else start // CELL + order
                begin, stop = max(start, cell * CELL), min(end, (cell + 1) * CELL)
                count = stop - begin
                first, step = (stop - 1, -1) if reverse else (begin, 1)
                _clear(sums_B, 0, count * wide)
                _clear(sums_C, 0, count * wide)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    if order > 0:
                        _copy(checkpoints, (cell * blocks + block) * wide, states, 0, wide)
                    elif has_initial:
                        _gather_state(initial, sequence, block, channels, S, states, 0)
                    else:
                        _clear(states, 0, wide)
                    for k in range(count):
                        t = first + step * k
                        token = t * channels + block * LANES
                        x, dt = load_first(u, token, lanes), load_first(delta, token, lanes)
                        grad = load_first(dy, token, lanes)
                        out = _replay(
                            x, dt, a, inverse, at, B, C, t * S, S, states, k * wide, decays, gains, k * wide, zoh,
                            has_gate,
                        )  # fmt: skip
                        if has_gate:
                            z = load_first(gate, token, lanes)
                            sigmoid = _sigmoid(z)
                            slope = sigmoid * fma(z, filled(z, 1.0) - sigmoid, filled(z, 1.0))
                            store_first(dgate, token, grad * fma(skips, x, out) * slope, lanes)
                            grad = grad * z * sigmoid
                        store(rows, k * LANES, grad)
                    dskips = load(dskip, (group * blocks + block) * LANES)
                    for k in range(count - 1, -1, -1):
                        t = first + step * k
                        token = t * channels + block * LANES
                        x, dt = load_first(u, token, lanes), load_first(delta, token, lanes)
                        grad = load(rows, k * LANES)
                        in_u, in_delta = _unwind(
                            x, dt, grad, a, inverse, at, B, C, t * S, S, states, k * wide, decays, gains, k * wide,
                            g, dA, (group * blocks + block) * wide, sums_B, sums_C, zoh,
                        )  # fmt: skip
                        store_first(du, token, fma(grad, skips, in_u), lanes)
                        store_first(ddelta, token, in_delta, lanes)
                        dskips = fma(grad, x, dskips)
                    store(dskip, (group * blocks + block) * LANES, dskips)
                for k in range(count):
                    row = (span * tokens + first + step * k) * S
                    for s in range(S):
                        dB[row + s] = lane_sum(load(sums_B, k * wide + s * LANES))
                        dC[row + s] = lane_sum(load(sums_C, k * wide + s * LANES))
            if dinitial.size > 0:
                for block in range(low, high):
                    _scatter_state(g, (block - low) * wide, sequence, block, channels, S, dinitial)
