# mypy: ignore-errors
"""Compiled loops of `span_step`: sixteen channels side by side, units of rows cut by shape alone."""

from numba import njit

from hopstate.ops.cpu.simd import LANES, exp_parts, filled, fma, load, load_first, splat, store, store_first

kernel = njit(nogil=True, cache=True, error_model="numpy")


@kernel
def forward(first_unit, last_unit, rows, channels, r, size, speed, out):
    """Write size (1 - exp(-speed r)); size and speed are padded to whole blocks of lanes."""
    blocks = (channels + LANES - 1) // LANES
    for t in range(rows[first_unit], rows[last_unit]):
        for block in range(blocks):
            at = block * LANES
            w2 = load(speed, at)
            _, rise = exp_parts((filled(w2, 0.0) - w2) * splat(r[t]))
            y = (filled(w2, 0.0) - load(size, at)) * rise
            store_first(out, t * channels + at, y, min(LANES, channels - at))


@kernel
def backward(first_unit, last_unit, rows, channels, r, size, speed, grad, in_size, in_speed):
    """Write one partial sum per unit, [unit, block, lane], zero on entry."""
    blocks = (channels + LANES - 1) // LANES
    for unit in range(first_unit, last_unit):
        for t in range(rows[unit], rows[unit + 1]):
            for block in range(blocks):
                at, slot = block * LANES, (unit * blocks + block) * LANES
                g = load_first(grad, t * channels + at, min(LANES, channels - at))
                w2, span = load(speed, at), splat(r[t])
                decay, rise = exp_parts((filled(w2, 0.0) - w2) * span)
                store(in_size, slot, load(in_size, slot) - g * rise)
                store(in_speed, slot, fma(g * span, load(size, at) * decay, load(in_speed, slot)))
