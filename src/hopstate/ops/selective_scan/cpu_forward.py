# mypy: ignore-errors
"""The selective scan's forward pass on CPUs; layouts: `cpu_cells`, derivation: DERIVATION.md beside this file."""

from hopstate.ops.cpu import processor
from hopstate.ops.cpu.processor import scratch
from hopstate.ops.cpu.simd import (
    LANES,
    WIDE,
    filled,
    fma,
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
from hopstate.ops.cpu.simd_math import exp_parts, sigmoid
from hopstate.ops.selective_scan import cpu_cells as cells
from hopstate.ops.selective_scan.cpu_cells import BUNCH, CELL, FIELDS, GATE, OUT


@cells.inlined
def _step(x, dt, a, inverse, at, B, C, row, S, h, zoh):
    """Advance the states h of one block by one token; return the sum over states of C h."""
    x, dt = repeat(x), repeat(dt)
    y = filled(x, 0.0)
    for s in range(0, cells.padded(S), WIDE):
        i = at + s * LANES
        decay, rise = exp_parts(dt * load_wide(a, i))
        gain = rise * load_wide(inverse, i) if zoh else dt
        state = fma(decay, load_wide(h, i), gain * (spread(B, row + s) * x))
        store(h, i, state)
        y = fma(spread(C, row + s), state, y)
    return narrow(y)


@cells.inlined
def _gate(work, count):
    """OUT <- OUT silu(GATE)."""
    for i in range(0, count * LANES, BUNCH):
        z = load_wide(work, GATE + i)
        store(work, OUT + i, load_wide(work, OUT + i) * z * sigmoid(z))


@cells.kernel
def scan_forward(
    first_unit, last_unit, groups, spans, offsets, channels, S, reverse, zoh, has_skip, has_gate, has_initial, keep,
    u, delta, A, B, C, skip, gate, initial, y, final, checkpoints, shortest,
):  # fmt: skip
    """Run units first_unit..last_unit - 1: write y, final states, (keep) checkpoints and each unit's shortest step."""
    word = processor.control_word()
    processor.set_control_word(word | processor.FLUSH_TO_ZERO)
    blocks = (channels + LANES - 1) // LANES
    num_spans, even = spans.size - 1, cells.padded(S)
    wide, kept = even * LANES, S * LANES
    most = (spans[1:] - spans[:-1]).max() * wide
    h, a, inverse, edge = scratch(most, u, 0), scratch(most, u, 3), scratch(most, u, 7), scratch(LANES, u, 0)
    work, cell_B, cell_C = scratch(FIELDS, u, 11), scratch(CELL * even, u, 2), scratch(CELL * even, u, 9)
    cells.clear(work, 0, FIELDS)  # gates are computed for a few tokens past those of a short cell
    for unit in range(first_unit, last_unit):
        group, span = unit // num_spans, unit % num_spans
        low, high = spans[span], spans[span + 1]
        for block in range(low, high):
            cells.rates(A, block, channels, S, a, inverse, (block - low) * wide)
        least = filled(load(a, 0), 0.0)
        for sequence in cells.sequences(groups, group, reverse):
            start, end = offsets[sequence], offsets[sequence + 1]
            cells.start_states(h, initial, has_initial, sequence, low, high, channels, S)
            for order in range(cells.count_cells(start, end)):
                first, step, count = cells.cell_bounds(start, end, order, reverse)
                cells.rows_of(B, first, step, count, S, cell_B)
                cells.rows_of(C, first, step, count, S, cell_C)
                for block in range(low, high):
                    lanes, at = min(LANES, channels - block * LANES), (block - low) * wide
                    skips = load_first(skip, block * LANES, lanes if has_skip else 0)
                    if keep and order > 0:
                        cells.copy(h, at, checkpoints, ((start // CELL + order) * blocks + block) * kept, kept)
                    for k in range(count):
                        token = (first + step * k) * channels + block * LANES
                        ahead = token + step * CELL * channels  # a row is far from the next: nothing else foresees it
                        processor.prefetch(u, ahead)
                        processor.prefetch(delta, ahead)
                        if has_gate:
                            processor.prefetch(gate, ahead)
                        x, dt = load_first(u, token, lanes), load_first(delta, token, lanes)
                        least = where_less(dt, least, dt, least)
                        out = _step(x, dt, a, inverse, at, cell_B, cell_C, k * even, S, h, zoh)
                        store(work, OUT + k * LANES, fma(skips, x, out))
                        store(work, GATE + k * LANES, load_first(gate, token, lanes if has_gate else 0))
                    if has_gate:
                        _gate(work, count)
                    for k in range(count):
                        token = (first + step * k) * channels + block * LANES
                        processor.prefetch_to_write(y, token + step * CELL * channels)
                        store_first(y, token, load(work, OUT + k * LANES), lanes)
            if final.size > 0:
                for block in range(low, high):
                    cells.scatter_state(h, (block - low) * wide, sequence, block, channels, S, final)
        store(edge, 0, least)
        shortest[unit] = edge.min()
    processor.set_control_word(word)
