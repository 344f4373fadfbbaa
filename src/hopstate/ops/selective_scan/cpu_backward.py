# mypy: ignore-errors
"""The selective scan's backward pass on CPUs; layouts: `cpu_cells`, derivation: DERIVATION.md beside this file."""

from hopstate.ops.cpu import processor
from hopstate.ops.cpu.processor import scratch
from hopstate.ops.cpu.simd import (
    LANES,
    WIDE,
    filled,
    fma,
    lane_sum,
    load,
    load_first,
    load_wide,
    narrow,
    repeat,
    spread,
    store,
    store_first,
    where_less,
)
from hopstate.ops.cpu.simd_math import exp_parts, phi_series, sigmoid
from hopstate.ops.selective_scan import cpu_cells as cells
from hopstate.ops.selective_scan.cpu_cells import (
    BUNCH,
    CELL,
    DDELTA,
    DECAY,
    DT,
    DU,
    DY,
    FIELDS,
    GAIN,
    GATE,
    GRAD,
    OUT,
    SIGMA,
    SLOPE,
    STATE,
    X,
)


@cells.inlined
def _replay(a, inverse, B, C, S, s, count, h, work, zoh, want_out):
    """Run WIDE states of one block over a cell, keeping what `_unwind` reads again; return the last states."""
    edge, even = filled(a, -0.5), cells.padded(S)
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
        h = fma(decay, h, gain * (spread(B, row) * x))
        if want_out:
            store(work, OUT + i, load(work, OUT + i) + narrow(spread(C, row) * h))
    return h


@cells.inlined
def _unwind(a, B, C, S, s, count, h, work, g, dA, sums_B, sums_C, zoh):
    """Go back over the cell with the gradient g of WIDE states; return g before the cell and dA."""
    even = cells.padded(S)
    for k in range(count - 1, -1, -1):
        i, j, row, slot = k * LANES, k * BUNCH, k * even + s, (k * (even + 1) + s) * LANES
        grad_y, now, x = repeat(load(work, GRAD + i)), repeat(load(work, DT + i)), repeat(load(work, X + i))
        b, before = spread(B, row), load_wide(work, STATE + j)
        store(sums_C, slot, fma(grad_y, h, load_wide(sums_C, slot)))
        grad = fma(grad_y, spread(C, row), g)
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


@cells.inlined
def _prepare(work, first, step, count, channels, block, lanes, has_gate, u, delta, gate, dy, skips, dskips):
    """Fill the fields that all states of a block share; return the gradient of D."""
    for k in range(count):
        token, i = (first + step * k) * channels + block * LANES, k * LANES
        ahead = token - step * CELL * channels
        processor.prefetch(u, ahead)
        processor.prefetch(delta, ahead)
        processor.prefetch(dy, ahead)
        if has_gate:
            processor.prefetch(gate, ahead)
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


@cells.inlined
def _finish(work, first, step, count, channels, block, lanes, has_gate, du, ddelta, dgate):
    if has_gate:  # d silu(z) = sigma (1 + z (1 - sigma))
        for i in range(0, count * LANES, BUNCH):
            z, sigma = load_wide(work, GATE + i), load_wide(work, SIGMA + i)
            slope = sigma * fma(z, filled(z, 1.0) - sigma, filled(z, 1.0))
            store(work, GATE + i, load_wide(work, DY + i) * load_wide(work, OUT + i) * slope)
    for k in range(count):
        token, i = (first + step * k) * channels + block * LANES, k * LANES
        ahead = token - step * CELL * channels
        processor.prefetch_to_write(du, ahead)
        processor.prefetch_to_write(ddelta, ahead)
        if has_gate:
            processor.prefetch_to_write(dgate, ahead)
        store_first(du, token, load(work, DU + i), lanes)
        store_first(ddelta, token, load(work, DDELTA + i), lanes)
        if has_gate:
            store_first(dgate, token, load(work, GATE + i), lanes)


@cells.kernel
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
    word = processor.control_word()
    processor.set_control_word(word | processor.FLUSH_TO_ZERO)
    blocks = (channels + LANES - 1) // LANES
    num_spans, tokens, even = spans.size - 1, offsets[-1], cells.padded(S)
    wide, kept, rows = even * LANES, S * LANES, CELL * (even + 1) * LANES
    most = (spans[1:] - spans[:-1]).max() * wide
    a, inverse, g, sums_A = scratch(most, u, 0), scratch(most, u, 3), scratch(most, u, 7), scratch(most, u, 11)
    sums_B, sums_C, start_h = scratch(rows, u, 0), scratch(rows, u, 13), scratch(wide, u, 5)
    work, cell_B, cell_C = scratch(FIELDS, u, 16), scratch(CELL * even, u, 2), scratch(CELL * even, u, 9)
    cells.clear(work, 0, FIELDS)  # gates are computed for a few tokens past those of a short cell
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            cells.rates(A, block, channels, S, a, inverse, (block - low) * wide)
        cells.clear(sums_A, 0, (high - low) * wide)
        for sequence in cells.sequences(groups, group, not reverse):
            start, end = offsets[sequence], offsets[sequence + 1]
            cells.start_states(g, dfinal, has_dfinal, sequence, low, high, channels, S)
            for order in range(cells.count_cells(start, end) - 1, -1, -1):
                first, step, count = cells.cell_bounds(start, end, order, reverse)
                cells.clear(sums_B, 0, rows)
                cells.clear(sums_C, 0, rows)
                cells.rows_of(B, first, step, count, S, cell_B)
                cells.rows_of(C, first, step, count, S, cell_C)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    cells.start_states(
                        start_h, initial, has_initial and order == 0, sequence, block, block + 1, channels, S
                    )
                    if order > 0:
                        cells.copy(checkpoints, ((start // CELL + order) * blocks + block) * kept, start_h, 0, kept)
                    slot = (group * blocks + block) * LANES
                    dskips = _prepare(
                        work, first, step, count, channels, block, lanes, has_gate, u, delta, gate, dy, skips,
                        load(dskip, slot),
                    )  # fmt: skip
                    store(dskip, slot, dskips)
                    for s in range(0, even, WIDE):
                        i, rate = at + s * LANES, load_wide(a, at + s * LANES)
                        h = _replay(
                            rate, load_wide(inverse, i), cell_B, cell_C, S, s, count, load_wide(start_h, s * LANES),
                            work, zoh, has_gate,
                        )  # fmt: skip
                        in_state, in_rate = _unwind(
                            rate, cell_B, cell_C, S, s, count, h, work, load_wide(g, i), load_wide(sums_A, i), sums_B,
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
                    cells.scatter_state(g, (block - low) * wide, sequence, block, channels, S, dinitial)
        for block in range(low, high):
            cells.copy(sums_A, (block - low) * wide, dA, (group * blocks + block) * kept, kept)
    processor.set_control_word(word)
