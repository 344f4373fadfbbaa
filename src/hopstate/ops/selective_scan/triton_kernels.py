# mypy: ignore-errors
"""The selective scan's Triton kernels.

One program owns BLOCK channels and processes its pieces (whole sequences, or chunks of long ones) one after another,
with the states (BLOCK, S) in registers. The forward pass stores the state every SEGMENT steps. The backward pass
recomputes half a SEGMENT at a time, unrolled, so that its states stay in registers.
Steps past the end of a piece are masked: delta = 0 leaves the state as it is. Sums over channels and pieces are
written as partial sums and added in a fixed order. There are no atomics, so results are bit-identical.

Long sequences are cut into chunks: `forward` from a zero state and `pull_gradient` give what each chunk does alone,
`combine` chains the chunks, and the same kernels then run all chunks side by side from the right states.
"""

import triton
import triton.language as tl

SEGMENT = 8  # steps between checkpoints; the backward kernel writes half of them out one by one
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _decay_and_gain(dt, a, inverse, ZOH: tl.constexpr):
    """exp(dt a), and (exp(dt a) - 1) / a or dt; dt is (channel,)."""
    x = dt[:, None] * a
    decay = tl.exp2(x * LOG2_E)
    if ZOH:
        # expm1(x) / x on [-1/2, 0], interpolated at Chebyshev nodes: relative error 2e-9
        p = 0.00112340422 * x + 0.00818961363
        p = p * x + 0.0416300728
        p = p * x + 0.166662419
        p = p * x + 0.499999819
        p = p * x + 1.0
        gain = tl.where(x > -0.5, x * p, decay - 1.0) * inverse
    else:
        gain = dt[:, None] + 0.0 * x
    return decay, gain


@triton.jit
def _gain_slope(dt, a, inverse, decay, gain):
    """d gain / d a = dt**2 phi(dt a): its series near zero, where the closed form would cancel."""
    x = dt[:, None] * a
    p = 0.0056185756 * x + 0.03277499
    p = p * x + 0.124901998
    p = p * x + 0.33332726
    p = p * x + 0.49999994
    return tl.where(x > -0.5, dt[:, None] * dt[:, None] * p, (dt[:, None] * decay - gain) * inverse)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(-x * LOG2_E))


@triton.jit
def _row(pointer, t, left, width, index, inside):
    """Row t of a (token, width) array in float32; zeros past the last column and where no step is left."""
    return tl.load(pointer + t * width + index, mask=inside & (0 * index < left), other=0.0).to(tl.float32)


@triton.jit
def forward(
    u, delta, A, B, C, D, z, starts, ends, orders, initial, y, final, elapsed, checkpoints, pieces, channels,
    S: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, SEGMENT: tl.constexpr, REVERSE: tl.constexpr,
    ZOH: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr, HAS_INITIAL: tl.constexpr, KEEP: tl.constexpr,
    WANT_Y: tl.constexpr, WANT_FINAL: tl.constexpr, WANT_ELAPSED: tl.constexpr, CHUNKED: tl.constexpr,
):  # fmt: skip
    """Scan pieces program_id(0), + num_programs(0), ...; elapsed is each piece's sum of delta."""
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.arange(0, WIDE)
    inside, within = channel < channels, state < S
    both = inside[:, None] & within[None, :]
    slot = channel[:, None] * S + state[None, :]
    a = tl.load(A + slot, mask=both, other=-1.0).to(tl.float32)
    inverse = 1.0 / a
    if HAS_D:
        skip = tl.load(D + channel, mask=inside, other=0.0).to(tl.float32)
    rows = tl.full((), 1, tl.int64) * channels  # pieces * channels * S may pass 2**31
    stride = rows * S
    for piece in range(tl.program_id(0), pieces, tl.num_programs(0)):
        start = tl.load(starts + piece)
        end = tl.load(ends + piece)
        base = piece * stride
        later = False
        if CHUNKED:
            later = tl.load(orders + piece) > 0
        if HAS_INITIAL:
            h = tl.load(initial + base + slot, mask=both, other=0.0).to(tl.float32)
        else:
            h = tl.zeros((BLOCK, WIDE), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for k in range(end - start):
            t = start + k
            if REVERSE:
                t = end - 1 - k
            if KEEP:  # noqa: SIM102 (one is known when compiled, the other is not)
                if (k % SEGMENT == 0) & ((k > 0) | later):
                    tl.store(checkpoints + (t // SEGMENT) * channels * S + slot, h, mask=both)
            x = _row(u, t, 1, channels, channel, inside)
            dt = _row(delta, t, 1, channels, channel, inside)
            b = _row(B, t, 1, S, state, within)
            decay, gain = _decay_and_gain(dt, a, inverse, ZOH)
            h = decay * h + gain * (x[:, None] * b[None, :])
            if WANT_ELAPSED:
                total += dt
            if WANT_Y:
                c = _row(C, t, 1, S, state, within)
                out = tl.sum(h * c[None, :], 1)
                if HAS_D:
                    out += skip * x
                if HAS_Z:
                    gate = _row(z, t, 1, channels, channel, inside)
                    out *= gate * _sigmoid(gate)
                tl.store(y + t * channels + channel, out, mask=inside)
        if WANT_FINAL:
            tl.store(final + base + slot, h, mask=both)
        if WANT_ELAPSED:
            tl.store(elapsed + piece * rows + channel, total, mask=inside)


@triton.jit
def pull_gradient(
    delta, A, C, z, dy, starts, ends, pulled, elapsed, pieces, channels,
    S: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, REVERSE: tl.constexpr, HAS_Z: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.arange(0, WIDE)
    inside, within = channel < channels, state < S
    both = inside[:, None] & within[None, :]
    slot = channel[:, None] * S + state[None, :]
    a = tl.load(A + slot, mask=both, other=-1.0).to(tl.float32)
    rows = tl.full((), 1, tl.int64) * channels  # pieces * channels * S may pass 2**31
    stride = rows * S
    for piece in range(tl.program_id(0), pieces, tl.num_programs(0)):
        start = tl.load(starts + piece)
        end = tl.load(ends + piece)
        g = tl.zeros((BLOCK, WIDE), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for k in range(end - start):
            t = end - 1 - k
            if REVERSE:
                t = start + k
            grad = _row(dy, t, 1, channels, channel, inside)
            if HAS_Z:
                gate = _row(z, t, 1, channels, channel, inside)
                grad *= gate * _sigmoid(gate)
            dt = _row(delta, t, 1, channels, channel, inside)
            c = _row(C, t, 1, S, state, within)
            g = tl.exp2(dt[:, None] * (a * LOG2_E)) * (g + grad[:, None] * c[None, :])
            total += dt
        tl.store(pulled + piece * stride + slot, g, mask=both)
        tl.store(elapsed + piece * rows + channel, total, mask=inside)


@triton.jit
def combine(
    A, firsts, local, elapsed, initial, before, last, channels,
    S: tl.constexpr, SIZE: tl.constexpr, BACKWARD: tl.constexpr, HAS_INITIAL: tl.constexpr,
):  # fmt: skip
    """Chain the pieces firsts[i]..firsts[i + 1] - 1 of sequence i: before[p] = x, then x = exp(elapsed A) x + local[p].

    BACKWARD goes from the last piece to the first. last[i] is x at the end.
    """
    sequence = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) * SIZE + tl.arange(0, SIZE)  # channel * S + state
    inside = slot < channels * S
    a = tl.load(A + slot, mask=inside, other=-1.0).to(tl.float32) * LOG2_E
    first = tl.load(firsts + sequence)
    count = tl.load(firsts + sequence + 1) - first
    x = tl.zeros((SIZE,), tl.float32)
    if HAS_INITIAL:
        x = tl.load(initial + sequence * channels * S + slot, mask=inside, other=0.0).to(tl.float32)
    for k in range(count):
        piece = first + k
        if BACKWARD:
            piece = first + count - 1 - k
        tl.store(before + piece * channels * S + slot, x, mask=inside)
        dt = tl.load(elapsed + piece * channels + slot // S, mask=inside, other=0.0)
        x = tl.exp2(dt * a) * x + tl.load(local + piece * channels * S + slot, mask=inside, other=0.0)
    tl.store(last + sequence * channels * S + slot, x, mask=inside)


@triton.jit
def _at(rows, t, channels, S: tl.constexpr):
    """Pointers to row t, from which the steps of a half segment have 32-bit offsets: fewer registers."""
    u, delta, B, C, z, dy, dz, du, ddelta, dB, dC = rows
    wide = t * channels
    return (
        u + wide, delta + wide, B + t * S, C + t * S, z + wide, dy + wide, dz + wide, du + wide, ddelta + wide,
        dB + t * S, dC + t * S,
    )  # fmt: skip


@triton.jit
def _replay(
    j: tl.constexpr, h, rows, count, lane, rates,
    S: tl.constexpr, REVERSE: tl.constexpr, ZOH: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr,
):  # fmt: skip
    """Step j of a segment forwards; with a gate also its gradient, which needs the output."""
    u, delta, B, C, z, dy, dz, _, _, _, _ = rows
    channel, state, inside, within, channels = lane
    a, inverse, skip = rates
    left = count - j
    t = j
    if REVERSE:
        t = -j
    x = _row(u, t, left, channels, channel, inside)
    dt = _row(delta, t, left, channels, channel, inside)
    b = _row(B, t, left, S, state, within)
    decay, gain = _decay_and_gain(dt, a, inverse, ZOH)
    h = decay * h + gain * (x[:, None] * b[None, :])
    if HAS_Z:
        c = _row(C, t, left, S, state, within)
        out = tl.sum(h * c[None, :], 1)
        if HAS_D:
            out += skip * x
        gate = _row(z, t, left, channels, channel, inside)
        sigmoid = _sigmoid(gate)
        grad = _row(dy, t, left, channels, channel, inside)
        slope = sigmoid * (1.0 + gate * (1.0 - sigmoid))
        tl.store(dz + t * channels + channel, grad * out * slope, mask=inside & (0 * channel < left))
    return h


@triton.jit
def _unwind(
    j: tl.constexpr, before, after, carry, rows, count, lane, rates,
    S: tl.constexpr, REVERSE: tl.constexpr, ZOH: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr,
):  # fmt: skip
    """Step j of a segment backwards; carry is the gradient of (state, A, D) so far."""
    u, delta, B, C, z, dy, _, du, ddelta, dB, dC = rows
    channel, state, inside, within, channels = lane
    a, inverse, skip = rates
    g, in_a, in_skip = carry
    left = count - j
    t = j
    if REVERSE:
        t = -j
    x = _row(u, t, left, channels, channel, inside)
    dt = _row(delta, t, left, channels, channel, inside)
    b = _row(B, t, left, S, state, within)
    c = _row(C, t, left, S, state, within)
    grad = _row(dy, t, left, channels, channel, inside)
    if HAS_Z:
        gate = _row(z, t, left, channels, channel, inside)
        grad *= gate * _sigmoid(gate)
    decay, gain = _decay_and_gain(dt, a, inverse, ZOH)
    tl.store(dC + t * S + state, tl.sum(after * grad[:, None], 0), mask=within & (0 * state < left))
    g += grad[:, None] * c[None, :]
    through = g * gain
    tl.store(dB + t * S + state, tl.sum(through * x[:, None], 0), mask=within & (0 * state < left))
    in_u = tl.sum(through * b[None, :], 1)
    if HAS_D:
        in_u += skip * grad
        in_skip += grad * x
    tl.store(du + t * channels + channel, in_u, mask=inside & (0 * channel < left))
    drive = x[:, None] * b[None, :]
    passed = g * decay
    if ZOH:
        in_delta = tl.sum(passed * (a * before + drive), 1)
        in_a += g * drive * _gain_slope(dt, a, inverse, decay, gain)
    else:
        in_delta = tl.sum(passed * a * before + g * drive, 1)
    in_a += passed * dt[:, None] * before
    tl.store(ddelta + t * channels + channel, in_delta, mask=inside & (0 * channel < left))
    return passed, in_a, in_skip


@triton.jit
def backward(
    u, delta, A, B, C, D, z, starts, ends, orders, initial, checkpoints, dy, dfinal,
    du, ddelta, dA, dB, dC, dD, dz, dinitial, pieces, channels, tokens,
    S: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, SEGMENT: tl.constexpr, REVERSE: tl.constexpr,
    ZOH: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr, HAS_INITIAL: tl.constexpr,
    HAS_DFINAL: tl.constexpr, WANT_DINITIAL: tl.constexpr, CHUNKED: tl.constexpr,
):  # fmt: skip
    """Go back over pieces program_id(0), + num_programs(0), ...

    dA and dD are [program, channel, (state)] and dB and dC [channel block, token, state]: partial sums. initial is
    indexed by owner in orders' second row where CHUNKED.
    """
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.arange(0, WIDE)
    inside, within = channel < channels, state < S
    both = inside[:, None] & within[None, :]
    slot = channel[:, None] * S + state[None, :]
    a = tl.load(A + slot, mask=both, other=-1.0).to(tl.float32)
    inverse = 1.0 / a
    skip = tl.zeros((BLOCK,), tl.float32)
    if HAS_D:
        skip = tl.load(D + channel, mask=inside, other=0.0).to(tl.float32)
    in_a = tl.zeros((BLOCK, WIDE), tl.float32)
    in_skip = tl.zeros((BLOCK,), tl.float32)
    partial = tl.program_id(1).to(tl.int64) * tokens * S
    rows = (u, delta, B, C, z, dy, dz, du, ddelta, dB + partial, dC + partial)
    lane = (channel, state, inside, within, channels)
    rates = (a, inverse, skip)
    stride = tl.full((), 1, tl.int64) * channels * S  # pieces * channels * S may pass 2**31
    for piece in range(tl.program_id(0), pieces, tl.num_programs(0)):
        start = tl.load(starts + piece)
        end = tl.load(ends + piece)
        length = (end - start).to(tl.int32)
        base = piece * stride
        owner = base
        if CHUNKED:
            owner = tl.load(orders + pieces + piece) * stride
        g = tl.zeros((BLOCK, WIDE), tl.float32)
        if HAS_DFINAL:
            g = tl.load(dfinal + base + slot, mask=both, other=0.0).to(tl.float32)
        # Half a segment at a time, the later half first, so that the states fit into registers.
        halves = 2 * ((length + SEGMENT - 1) // SEGMENT)
        for order in range(halves):
            k = (halves - 1 - order) // 2 * SEGMENT
            first = start + k
            if REVERSE:
                first = end - 1 - k
            passed = k
            if CHUNKED:
                passed = k + tl.load(orders + piece)
            kept = 0 * slot < passed  # else this segment is the first of its sequence
            h0 = tl.load(checkpoints + (first // SEGMENT) * channels * S + slot, mask=both & kept, other=0.0)
            if HAS_INITIAL:
                h0 += tl.load(initial + owner + slot, mask=both & ~kept, other=0.0).to(tl.float32)
            if order % 2 == 0:
                ahead = _at(rows, first, channels, S)
                h0 = _replay(0, h0, ahead, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, False)
                h0 = _replay(1, h0, ahead, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, False)
                h0 = _replay(2, h0, ahead, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, False)
                h0 = _replay(3, h0, ahead, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, False)
                k += SEGMENT // 2
                first = start + k
                if REVERSE:
                    first = end - 1 - k
            here = _at(rows, first, channels, S)
            h1 = _replay(0, h0, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            h2 = _replay(1, h1, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            h3 = _replay(2, h2, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            h4 = _replay(3, h3, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            carry = (g, in_a, in_skip)
            carry = _unwind(3, h3, h4, carry, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            carry = _unwind(2, h2, h3, carry, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            carry = _unwind(1, h1, h2, carry, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            carry = _unwind(0, h0, h1, carry, here, length - k, lane, rates, S, REVERSE, ZOH, HAS_D, HAS_Z)
            g, in_a, in_skip = carry
        if WANT_DINITIAL:
            tl.store(dinitial + base + slot, g, mask=both)
    program = tl.program_id(0).to(tl.int64)
    tl.store(dA + program * channels * S + slot, in_a, mask=both)
    if HAS_D:
        tl.store(dD + program * channels + channel, in_skip, mask=inside)
