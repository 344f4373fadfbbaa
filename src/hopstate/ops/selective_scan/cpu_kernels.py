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

from numba import njit

from hopstate.ops.simd import (
    FLUSH_TO_ZERO,
    LANES,
    control_word,
    exp_parts,
    filled,
    fma,
    lane_sum,
    load,
    load_first,
    phi_series,
    scratch,
    set_control_word,
    sigmoid,
    splat,
    store,
    store_first,
    where_less,
)

CELL = 16  # tokens between checkpoints: three buffers of CELL * S * LANES numbers should fit the second-level cache

kernel = njit(nogil=True, cache=True, error_model="numpy")
inlined = njit(forceinline=True, error_model="numpy")


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
def _start_states(h, source, given, sequence, low, high, channels, S):
    """States of the blocks low..high - 1 before a sequence's first step: as given, or zero."""
    wide = S * LANES
    for block in range(low, high):
        if given:
            _gather_state(source, sequence, block, channels, S, h, (block - low) * wide)
        else:
            _clear(h, (block - low) * wide, wide)


@inlined
def _count_cells(start, end):
    """Cells of the token grid that a sequence touches."""
    return (end - 1) // CELL - start // CELL + 1 if end > start else 0


@inlined
def _cell_bounds(start, end, order, reverse):
    """The order-th cell that the scan passes: (cell, first token to process, +1 or -1, number of tokens)."""
    cell = (end - 1) // CELL - order if reverse else start // CELL + order
    begin, stop = max(start, cell * CELL), min(end, (cell + 1) * CELL)
    return cell, stop - 1 if reverse else begin, -1 if reverse else 1, stop - begin


@inlined
def _step(x, dt, a, inverse, at, B, C, row, S, h, zoh):
    """Advance the states h of one block by one token; return the sum over states of C h."""
    y = filled(x, 0.0)
    for s in range(S):
        i = s * LANES
        decay, rise = exp_parts(dt * load(a, at + i))
        gain = rise * load(inverse, at + i) if zoh else dt
        state = fma(decay, load(h, at + i), gain * (splat(B[row + s]) * x))
        store(h, at + i, state)
        y = fma(splat(C[row + s]), state, y)
    return y


@kernel
def scan_forward(
    first_unit, last_unit, groups, spans, offsets, channels, S, reverse, zoh, has_skip, has_gate, has_initial, keep,
    u, delta, A, B, C, skip, gate, initial, y, final, checkpoints, shortest,
):  # fmt: skip
    """Run units first_unit..last_unit - 1: write y, final states, (keep) checkpoints and each unit's shortest step."""
    word = control_word()
    set_control_word(word | FLUSH_TO_ZERO)
    blocks = (channels + LANES - 1) // LANES
    num_spans, wide = spans.size - 1, S * LANES
    most = (spans[1:] - spans[:-1]).max() * wide
    h, a, inverse, edge = scratch(most, u, 0), scratch(most, u, 3), scratch(most, u, 7), scratch(LANES, u, 0)
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            _rates(A, block, channels, S, a, inverse, (block - low) * wide)
        least = filled(load(a, 0), 0.0)
        for sequence in range(groups[group], groups[group + 1]):
            start, end = offsets[sequence], offsets[sequence + 1]
            _start_states(h, initial, has_initial, sequence, low, high, channels, S)
            for order in range(_count_cells(start, end)):
                cell, first, step, count = _cell_bounds(start, end, order, reverse)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    if keep and order > 0:
                        _copy(h, at, checkpoints, (cell * blocks + block) * wide, wide)
                    for k in range(count):
                        t = first + step * k
                        token = t * channels + block * LANES
                        x, dt = load_first(u, token, lanes), load_first(delta, token, lanes)
                        least = where_less(dt, least, dt, least)
                        out = _step(x, dt, a, inverse, at, B, C, t * S, S, h, zoh)
                        out = fma(skips, x, out)
                        if has_gate:
                            z = load_first(gate, token, lanes)
                            out = out * z * sigmoid(z)
                        store_first(y, token, out, lanes)
            if final.size > 0:
                for block in range(low, high):
                    _scatter_state(h, (block - low) * wide, sequence, block, channels, S, final)
        store(edge, 0, least)
        shortest[unit] = edge.min()
    set_control_word(word)


@inlined
def _replay(s, a, inverse, B, C, S, t, step, count, x, dt, h, states, decays, gains, out, zoh, want_out):
    """Run one state of one block over a cell, keeping each step's state before it, decay and gain; return the last."""
    for k in range(count):
        i = k * LANES
        decay, rise = exp_parts(load(dt, i) * a)
        gain = rise * inverse if zoh else load(dt, i)
        store(states, i, h)
        store(decays, i, decay)
        store(gains, i, gain)
        h = fma(decay, h, gain * (splat(B[(t + step * k) * S + s]) * load(x, i)))
        if want_out:
            store(out, i, fma(splat(C[(t + step * k) * S + s]), h, load(out, i)))
    return h


@inlined
def _unwind(
    s, a, inverse, B, C, S, t, step, count, x, dt, dy, h, states, decays, gains, g, dA, du, ddelta, dB, dC, zoh
):
    """Go back over the cell with one state's gradient g; return g before the cell and dA."""
    edge = filled(a, -0.5)
    for k in range(count - 1, -1, -1):
        i, row = k * LANES, (t + step * k) * S + s
        at = (s * CELL + k) * LANES
        b, grad_y, now, before, decay = splat(B[row]), load(dy, i), load(dt, i), load(states, i), load(decays, i)
        gain = load(gains, i)
        store(dC, at, fma(grad_y, h, load(dC, at)))
        grad = fma(grad_y, splat(C[row]), g)
        g = grad * decay
        through, drive = grad * gain, b * load(x, i)
        store(dB, at, fma(through, load(x, i), load(dB, at)))
        store(du, i, fma(through, b, load(du, i)))
        if zoh:
            # d gain / d delta = decay; d gain / d A = delta**2 phi(delta A), from its series near zero
            store(ddelta, i, fma(g, fma(a, before, drive), load(ddelta, i)))
            exponent = now * a
            closed = (now * decay - gain) * inverse
            slope = where_less(edge, exponent, now * now * phi_series(exponent), closed)
            dA = fma(grad * drive, slope, dA)
        else:
            store(ddelta, i, fma(g, a * before, fma(grad, drive, load(ddelta, i))))
        dA = fma(g * now, before, dA)
        h = before
    return g, dA


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
    word = control_word()
    set_control_word(word | FLUSH_TO_ZERO)
    blocks = (channels + LANES - 1) // LANES
    num_spans, wide, tokens = spans.size - 1, S * LANES, offsets[-1]
    most = (spans[1:] - spans[:-1]).max() * wide
    a, inverse, g, sums_A = scratch(most, u, 0), scratch(most, u, 3), scratch(most, u, 7), scratch(most, u, 11)
    sums_B, sums_C = scratch(CELL * wide, u, 0), scratch(CELL * wide, u, 16)
    start_h, cell_rows = scratch(wide, u, 5), CELL * LANES
    states, decays, gains = scratch(cell_rows, u, 0), scratch(cell_rows, u, 17), scratch(cell_rows, u, 34)
    x, dt, grad, out = (scratch(cell_rows, u, 2), scratch(cell_rows, u, 19), scratch(cell_rows, u, 36),
                        scratch(cell_rows, u, 53))  # fmt: skip
    in_u, in_delta = scratch(cell_rows, u, 9), scratch(cell_rows, u, 26)
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            _rates(A, block, channels, S, a, inverse, (block - low) * wide)
        _clear(sums_A, 0, (high - low) * wide)
        for sequence in range(groups[group], groups[group + 1]):
            start, end = offsets[sequence], offsets[sequence + 1]
            _start_states(g, dfinal, has_dfinal, sequence, low, high, channels, S)
            for order in range(_count_cells(start, end) - 1, -1, -1):
                cell, first, step, count = _cell_bounds(start, end, order, reverse)
                _clear(sums_B, 0, CELL * wide)
                _clear(sums_C, 0, CELL * wide)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    dskips = load(dskip, (group * blocks + block) * LANES)
                    if order > 0:
                        _copy(checkpoints, (cell * blocks + block) * wide, start_h, 0, wide)
                    else:
                        _start_states(start_h, initial, has_initial, sequence, block, block + 1, channels, S)
                    for k in range(count):
                        token, i = (first + step * k) * channels + block * LANES, k * LANES
                        here, into = load_first(u, token, lanes), load_first(dy, token, lanes)
                        if has_gate:
                            z = load_first(gate, token, lanes)
                            into = into * z * sigmoid(z)
                            store(out, i, skips * here)
                        dskips = fma(into, here, dskips)
                        store(x, i, here)
                        store(dt, i, load_first(delta, token, lanes))
                        store(grad, i, into)
                        store(in_u, i, into * skips)
                        store(in_delta, i, filled(into, 0.0))
                    store(dskip, (group * blocks + block) * LANES, dskips)
                    for s in range(S):
                        i = at + s * LANES
                        rate, inv = load(a, i), load(inverse, i)
                        h = _replay(
                            s, rate, inv, B, C, S, first, step, count, x, dt, load(start_h, s * LANES),
                            states, decays, gains, out, zoh, has_gate,
                        )  # fmt: skip
                        in_state, in_rate = _unwind(
                            s, rate, inv, B, C, S, first, step, count, x, dt, grad, h, states, decays, gains,
                            load(g, i), load(sums_A, i), in_u, in_delta, sums_B, sums_C, zoh,
                        )  # fmt: skip
                        store(g, i, in_state)
                        store(sums_A, i, in_rate)
                    for k in range(count):
                        token, i = (first + step * k) * channels + block * LANES, k * LANES
                        store_first(du, token, load(in_u, i), lanes)
                        store_first(ddelta, token, load(in_delta, i), lanes)
                        if has_gate:
                            z = load_first(gate, token, lanes)
                            sigma = sigmoid(z)
                            slope = sigma * fma(z, filled(z, 1.0) - sigma, filled(z, 1.0))
                            store_first(dgate, token, load_first(dy, token, lanes) * load(out, i) * slope, lanes)
                for k in range(count):
                    row = (span * tokens + first + step * k) * S
                    for s in range(S):
                        dB[row + s] = lane_sum(load(sums_B, (s * CELL + k) * LANES))
                        dC[row + s] = lane_sum(load(sums_C, (s * CELL + k) * LANES))
            if dinitial.size > 0:
                for block in range(low, high):
                    _scatter_state(g, (block - low) * wide, sequence, block, channels, S, dinitial)
        _copy(sums_A, 0, dA, (group * blocks + low) * wide, (high - low) * wide)
    set_control_word(word)
