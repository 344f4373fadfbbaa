"""The selective scan's CPU path: cuts the work into units, runs the compiled kernels on threads, adds partial sums.

float32 and float64 run as they are; float16 and bfloat16 are widened to float32 and their results narrowed again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hopstate.ops.cpu.simd import LANES
from hopstate.ops.selective_scan import dispatch
from hopstate.ops.selective_scan.check import check_steps
from hopstate.ops.selective_scan.cpu_kernels import scan_backward, scan_forward
from hopstate.ops.selective_scan.dispatch import CELL
from hopstate.ops.threads import MIN_GROUP, flat_array, group_sequences, run_units

assert LANES == dispatch.LANES
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
    shape = (-(-tokens // CELL) if keep else 0, blocks, S, LANES)
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
    """Return du, ddelta, dA, dB, dC, dD, dz, dinitial, each in its input's dtype; empty where there is no input."""
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
    """Sum of count equal parts, first to last (in place, so that no second copy is held)."""
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
    # each span keeps its own dB and dC: 2 S numbers a token, held to a tenth of the 6 channels a token of the rest
    most = max(1, min(blocks, int(0.3 * channels / S), tokens * channels // (MIN_GROUP * max(num_groups, 1))))
    num_spans = min(most, -(-MIN_UNITS // max(num_groups, 1)))
    return groups, np.linspace(0, blocks, num_spans + 1).astype(np.int64)
