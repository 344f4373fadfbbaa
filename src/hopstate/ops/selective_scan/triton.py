# mypy: ignore-errors
"""GPU path of the selective scan: splits sequences, launches the Triton kernels and adds partial sums.

If all sequences are short (at most SHORT steps), each is scanned as a whole. Otherwise all are split into chunks of at
most CHUNK steps, so that a few long sequences also fill the GPU. The lengths are read on the host once per offsets
tensor, checked and cached.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from hopstate.ops.dispatch import GPU_SEGMENT, check_offsets
from hopstate.ops.selective_scan import triton_kernels as kernels

SHORT = 256  # steps one program may take in a row
CHUNK = 256  # a multiple of the kernels' SEGMENT
PROGRAMS = 4096  # programs of a launch along sequences, at most: each keeps its own partial sum of dA

assert kernels.SEGMENT == GPU_SEGMENT
_LENGTHS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class Pieces(NamedTuple):
    """Units of one program: whole sequences or chunks, in scan order."""

    starts: Tensor  # first token of each
    ends: Tensor
    orders: Tensor  # (2, piece): place within its sequence, and the sequence; empty where pieces are sequences
    firsts: Tensor  # (sequence + 1,): first piece of each sequence; empty likewise

    @property
    def chunked(self) -> bool:
        """Whether sequences are cut."""
        return self.firsts.numel() > 0


def cut(offsets: Tensor, tokens: int, reverse: bool) -> Pieces:
    """Return the pieces of packed sequences, cut into chunks if any is longer than SHORT."""
    none = offsets[:0]
    if _longest(offsets, tokens) <= SHORT:
        return Pieces(offsets[:-1], offsets[1:], none, none)
    lengths = offsets.diff()
    counts = (lengths + CHUNK - 1) // CHUNK
    firsts = torch.cat([offsets[:1] * 0, counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(counts.shape[0], device=offsets.device), counts)
    order = torch.arange(owner.shape[0], device=offsets.device) - firsts[owner]
    low, high = offsets[owner], offsets[owner + 1]
    if reverse:
        ends = high - order * CHUNK
        starts = torch.maximum(ends - CHUNK, low)
    else:
        starts = low + order * CHUNK
        ends = torch.minimum(starts + CHUNK, high)
    return Pieces(starts, ends, torch.stack([order, owner]), firsts)


def _longest(offsets: Tensor, tokens: int) -> int:
    known = _LENGTHS.get(offsets)
    if known is None or known[0] != offsets._version:
        host = offsets.cpu()
        check_offsets(host, tokens)
        known = (offsets._version, int(host.diff().max()) if host.numel() > 1 else 0)
        _LENGTHS[offsets] = known
    return known[1]


class Tiling(NamedTuple):
    """How channels and states are laid over one program, and how many programs there are."""

    block: int  # channels of a program
    wide: int  # states, up to a power of two
    warps: int
    grid: tuple[int, int]


def tile(channels: int, S: int, pieces: int, states: int) -> Tiling:
    """Return one warp per 512 states forward and 256 backward, where five states are in registers.

    One warp per program needs no barriers for its sums. `benchmarks/gpu_kernels.py` prints registers and spills.
    """
    wide = 1 << (S - 1).bit_length()
    block = max(16, min(128, states // wide))
    warps = max(1, min(8, block * wide // states))
    return Tiling(block, wide, warps, (max(1, min(pieces, PROGRAMS)), -(-channels // block)))


def forward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None, offsets: Tensor,
    initial: Tensor | None, reverse: bool, zoh: bool, keep: bool, want_final: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return y, final states (empty unless wanted) and checkpoints (empty unless kept)."""
    (tokens, channels), S, sequences = u.shape, A.shape[1], offsets.shape[0] - 1
    given = (u, delta, A, B, C, D, z, initial)
    u, delta, A, B, C, D, z, initial = (None if x is None else x.contiguous() for x in given)
    pieces = cut(offsets, tokens, reverse)
    count = pieces.starts.shape[0]
    tiling = tile(channels, S, count, 512)
    wide = {"dtype": torch.float32, "device": u.device}
    y = torch.empty_like(u)
    final = torch.empty(sequences if want_final else 0, channels, S, **wide)
    checkpoints = torch.empty(-(-tokens // GPU_SEGMENT) if keep else 0, channels, S, **wide)
    if channels == 0 or sequences == 0:
        return y, final, checkpoints

    def scan(initial: Tensor | None, final: Tensor | None, elapsed: Tensor | None, want_y: bool) -> None:
        kernels.forward[tiling.grid](
            u, delta, A, B, C, _or(D, u), _or(z, u), pieces.starts, pieces.ends, pieces.orders, _or(initial, u), y,
            _or(final, u), _or(elapsed, u), checkpoints, count, channels, S, tiling.wide, tiling.block, GPU_SEGMENT,
            reverse, zoh, D is not None, z is not None, initial is not None, keep and want_y, want_y,
            final is not None, elapsed is not None, pieces.chunked, num_warps=tiling.warps,
        )  # fmt: skip

    if not pieces.chunked:
        scan(initial, final if want_final else None, None, True)
        return y, final, checkpoints
    local, elapsed = torch.empty(count, channels, S, **wide), torch.empty(count, channels, **wide)
    scan(None, local, elapsed, False)
    before, last = _combine(A, pieces, local, elapsed, initial, sequences, backward=False)
    scan(before, None, None, True)
    return y, last if want_final else final, checkpoints


def backward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None, offsets: Tensor,
    initial: Tensor | None, checkpoints: Tensor, dy: Tensor, dfinal: Tensor | None, reverse: bool, zoh: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return du, ddelta, dA, dB, dC, dD, dz, dinitial, each in its input's dtype; empty for missing inputs."""
    (tokens, channels), S, sequences = u.shape, A.shape[1], offsets.shape[0] - 1
    given = (u, delta, A, B, C, D, z, initial, dy, dfinal)
    u, delta, A, B, C, D, z, initial, dy, dfinal = (None if x is None else x.contiguous() for x in given)
    pieces = cut(offsets, tokens, reverse)
    count = pieces.starts.shape[0]
    tiling = tile(channels, S, count, 256)
    wide: dict[str, Any] = {"dtype": torch.float32, "device": u.device}
    programs, blocks = tiling.grid
    du, ddelta, dz = torch.empty_like(u), torch.empty_like(delta), torch.empty_like(_or(z, u[:0]))
    dA, dD = torch.zeros(programs, channels, S, **wide), torch.zeros(programs, channels if D is not None else 0, **wide)
    dB, dC = (torch.empty(max(blocks, 1), tokens, S, **wide) for _ in range(2))
    dinitial = torch.zeros(sequences if initial is not None else 0, channels, S, **wide)
    if channels == 0 or sequences == 0:
        dB.zero_(), dC.zero_()
    else:
        grad_after, want_dinitial = dfinal, initial is not None
        if pieces.chunked:
            pulled, elapsed = torch.empty(count, channels, S, **wide), torch.empty(count, channels, **wide)
            kernels.pull_gradient[tiling.grid](
                delta, A, C, _or(z, u), dy, pieces.starts, pieces.ends, pulled, elapsed, count, channels,
                S, tiling.wide, tiling.block, reverse, z is not None, num_warps=tiling.warps,
            )  # fmt: skip
            grad_after, first = _combine(A, pieces, pulled, elapsed, dfinal, sequences, backward=True)
            dinitial, want_dinitial = first if want_dinitial else dinitial, False
        kernels.backward[tiling.grid](
            u, delta, A, B, C, _or(D, u), _or(z, u), pieces.starts, pieces.ends, pieces.orders, _or(initial, u),
            checkpoints, dy, _or(grad_after, u), du, ddelta, dA, dB, dC, dD, dz, dinitial, count, channels, tokens,
            S, tiling.wide, tiling.block, GPU_SEGMENT, reverse, zoh, D is not None, z is not None,
            initial is not None, grad_after is not None, want_dinitial, pieces.chunked, num_warps=tiling.warps,
        )  # fmt: skip
    sums = ((dA.sum(0), A), (dB.sum(0), B), (dC.sum(0), C), (dD.sum(0), D), (dz, z), (dinitial, initial))
    return du, ddelta, *(grad if like is None else grad.to(like.dtype) for grad, like in sums)


def _combine(
    A: Tensor, pieces: Pieces, local: Tensor, elapsed: Tensor, initial: Tensor | None, sequences: int, *, backward: bool
) -> tuple[Tensor, Tensor]:
    """Chain the pieces; return the state (or gradient) that each starts from, and each sequence's last."""
    channels, S = A.shape
    before, last = torch.empty_like(local), local.new_empty(sequences, channels, S)
    size = 256
    kernels.combine[(sequences, -(-channels * S // size))](
        A, pieces.firsts, local, elapsed, _or(initial, A), before, last, channels,
        S, size, backward, initial is not None, num_warps=2,
    )  # fmt: skip
    return before, last


def _or(x: Tensor | None, stand_in: Tensor) -> Tensor:
    """x, or for an absent one any tensor: the kernel's flag keeps it from being read."""
    return stand_in if x is None else x
