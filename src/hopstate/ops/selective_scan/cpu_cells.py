# mypy: ignore-errors
"""How the CPU kernels of the selective scan cut and lay out their work.

A lane is a channel, so B and C are one number per (token, state) and the sum over states stays within a lane; WIDE
states go through every line together. Each sequence is cut into cells of CELL tokens from where its scan begins; the
forward pass keeps the state between cells, and the backward pass recomputes the states of one cell at a time from
there, into buffers that stay in cache.

A unit of work is (group of sequences, span of channel blocks); units are cut from the shapes alone, every sum over
units is added in unit order, and so no result depends on the number of threads. All arrays are flat. Layouts:
    tokens      [token, channel] or [token, state], as the caller has them
    lanes       [block, state, lane], padded to sixteen channels and to whole wide vectors of states
    checkpoints [cell, block, state, lane]: cell `order` of a sequence that begins at token t is t // CELL + order
Derivation: DERIVATION.md beside this file.
"""

from numba import njit

from hopstate.ops.cpu.simd import LANES, WIDE, filled, load, store
from hopstate.ops.selective_scan.layout import CELL

assert CELL % WIDE == 0

# One buffer holds what a block needs of a cell, so that the inner loops have one address instead of a dozen: fields
# [token, lane], then fields [token, state of a wide vector, lane]. What is added to each keeps fields apart in their
# low address bits: a load waits for any store before it that agrees in those.
_ROWS, _WIDE_ROWS = (CELL + 1) * LANES, (CELL * WIDE + 1) * LANES
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
    """Lay out A and 1/A of one block as [state, lane]; -1 where there is no state or channel."""
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
def count_cells(start, end):
    """Return how many cells a sequence is cut into."""
    return (end - start + CELL - 1) // CELL


@inlined
def cell_bounds(start, end, order, reverse):
    """The order-th cell that the scan passes: (first token to process, +1 or -1, number of tokens)."""
    count = min(CELL, end - start - order * CELL)
    return (end - 1 - order * CELL if reverse else start + order * CELL), -1 if reverse else 1, count


@inlined
def rows_of(source, first, step, count, S, target):
    """target[k, state] = source[token, state] of one cell, zero for the states beyond S."""
    even = padded(S)
    for k in range(count):
        for s in range(even):
            target[k * even + s] = source[(first + step * k) * S + s] if s < S else 0.0
