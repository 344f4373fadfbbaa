# mypy: ignore-errors
"""The depthwise causal convolution's CPU kernels: sixteen channels side by side, units of (sequence group)."""

from numba import njit

from hopstate.ops.cpu.simd import LANES, fma, load, load_first, store, store_first
from hopstate.ops.cpu.simd_math import sigmoid

kernel = njit(nogil=True, cache=True, error_model="numpy")


@kernel
def convolve(first_group, last_group, groups, offsets, channels, width, reverse, act, x, weight, bias, y):
    """Write y, or SiLU(y) where act; weight is [block, width, lane], bias [block, lane]."""
    blocks = (channels + LANES - 1) // LANES
    back = 1 if reverse else -1
    for group in range(first_group, last_group):
        for sequence in range(groups[group], groups[group + 1]):
            start, end = offsets[sequence], offsets[sequence + 1]
            for t in range(start, end):
                reach = min(width, end - t if reverse else t - start + 1)  # tokens of this sequence within the window
                for block in range(blocks):
                    lanes = min(LANES, channels - block * LANES)
                    total = load(bias, block * LANES)
                    for shift in range(reach):
                        w = load(weight, (block * width + width - 1 - shift) * LANES)
                        total = fma(w, load_first(x, (t + back * shift) * channels + block * LANES, lanes), total)
                    if act:
                        total = total * sigmoid(total)
                    store_first(y, t * channels + block * LANES, total, lanes)


@kernel
def weight_grad(first_group, last_group, groups, offsets, channels, width, reverse, x, dy, dweight, dbias):
    """Add one partial sum per group: dweight [group, block, width, lane], dbias [group, block, lane], zero on entry."""
    blocks = (channels + LANES - 1) // LANES
    back = 1 if reverse else -1
    for group in range(first_group, last_group):
        for sequence in range(groups[group], groups[group + 1]):
            start, end = offsets[sequence], offsets[sequence + 1]
            for t in range(start, end):
                reach = min(width, end - t if reverse else t - start + 1)
                for block in range(blocks):
                    lanes, at = min(LANES, channels - block * LANES), group * blocks + block
                    grad = load_first(dy, t * channels + block * LANES, lanes)
                    store(dbias, at * LANES, load(dbias, at * LANES) + grad)
                    for shift in range(reach):
                        slot = (at * width + width - 1 - shift) * LANES
                        shifted = load_first(x, (t + back * shift) * channels + block * LANES, lanes)
                        store(dweight, slot, fma(grad, shifted, load(dweight, slot)))
