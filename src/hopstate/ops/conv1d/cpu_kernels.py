# mypy: ignore-errors
"""The depthwise causal convolution's CPU kernels: sixteen channels per vector, one unit per sequence group."""

from numba import njit

from hopstate.ops.cpu.simd import LANES, fma, load, load_first, sigmoid, splat, store, store_first

TILE = 32  # tokens per tile of the gradient

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
def gradients(first_group, last_group, groups, offsets, channels, width, reverse, act, arrays, dx, dweight, dbias):
    """Write dx, add a sum per group: dweight [group, block, width, lane], dbias [group, block, lane], zero on entry.

    Tokens go by tiles, which stay in the cache, in the order in which the convolution sees them: dx holds
    d = dy silu'(y) first, and is convolved in place a tile behind, where no later token needs d.
    """
    blocks, tile = (channels + LANES - 1) // LANES, max(TILE, width)
    forward = -1 if reverse else 1
    for group in range(first_group, last_group):
        sums = group * blocks
        for sequence in range(groups[group], groups[group + 1]):
            start, end = offsets[sequence], offsets[sequence + 1]
            first, count = end - 1 if reverse else start, end - start
            for low in range(0, count + tile, tile):
                for block in range(blocks):
                    column, lanes = block * LANES, min(LANES, channels - block * LANES)
                    place = (channels, column, lanes, block * width * LANES)
                    _through(first, forward, low, min(low + tile, count), width, act, place, arrays, dx,
                             (dweight, dbias), sums + block)  # fmt: skip
                    _back(first, forward, max(low - tile, 0), min(low, count), count, width, place, arrays[2], dx)


@kernel
def _through(first, forward, low, high, width, act, place, arrays, d, sums, at):
    (x, dy, weight, bias), (channels, column, lanes, own), (dweight, dbias) = arrays, place, sums
    one = splat(x.dtype.type(1))
    for k in range(low, high):
        t, reach = first + forward * k, min(width, k + 1)  # tokens of this sequence within the window
        grad = load_first(dy, t * channels + column, lanes)
        if act:
            y = load(bias, column)
            for shift in range(reach):
                w = load(weight, own + (width - 1 - shift) * LANES)
                y = fma(w, load_first(x, (t - forward * shift) * channels + column, lanes), y)
            chance = sigmoid(y)
            grad = grad * chance * fma(y, one - chance, one)
        store(dbias, at * LANES, load(dbias, at * LANES) + grad)
        for shift in range(reach):
            slot = (at * width + width - 1 - shift) * LANES
            shifted = load_first(x, (t - forward * shift) * channels + column, lanes)
            store(dweight, slot, fma(grad, shifted, load(dweight, slot)))
        store_first(d, t * channels + column, grad, lanes)


@kernel
def _back(first, forward, low, high, count, width, place, weight, d):
    channels, column, lanes, own = place
    for k in range(low, high):
        t = first + forward * k
        total = load_first(d, t * channels + column, lanes) * load(weight, own + (width - 1) * LANES)
        for shift in range(1, min(width, count - k)):
            w = load(weight, own + (width - 1 - shift) * LANES)
            total = fma(w, load_first(d, (t + forward * shift) * channels + column, lanes), total)
        store_first(d, t * channels + column, total, lanes)
