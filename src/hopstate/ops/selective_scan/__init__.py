"""The selective scan: definition (naive.py), kernels (cpu_kernels.py, triton.py), `ops.dispatch` chooses.

| Graph Mamba Networks, arXiv:2402.08678 | function |
|---|---|
| Eq. 2, the recurrence on packed sequences | `selective_scan` |
| its definition, for tests | `naive.selective_scan_naive` |
| Eq. 3, zero-order hold | `naive.discretize` |

DERIVATION.md derives the gradients and gives layouts and measurements.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from hopstate.errors import ConfigError
from hopstate.ops.dispatch import (
    GPU_SEGMENT,
    LANES,
    SEGMENT,
    Discretization,
    check_discretization,
    check_scan,
    check_values,
    choose_path,
    warn_slow,
)
from hopstate.ops.selective_scan.naive import advance, selective_scan_naive
from hopstate.types import Float, Int

__all__ = ["selective_influence", "selective_scan", "selective_scan_naive"]


@torch.library.custom_op("hopstate::selective_scan", mutates_args=(), device_types="cpu")
def scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    offsets: Tensor,
    initial: Tensor | None,
    reverse: bool,
    zoh: bool,
    keep: bool,
    want_final: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, final states (no rows unless want_final) and checkpoints (no rows unless keep)."""
    from hopstate.ops.selective_scan import cpu_kernels

    check_values(A, offsets, u.shape[0])
    return cpu_kernels.forward(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final)


@scan.register_kernel("cuda")
def _scan_cuda(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final):  # type: ignore[no-untyped-def]
    from hopstate.ops.selective_scan import triton  # type: ignore[attr-defined]

    return triton.forward(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final)


@scan.register_fake
def _scan_fake(u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, keep, want_final):  # type: ignore[no-untyped-def]
    (tokens, channels), S = u.shape, A.shape[1]
    kind = torch.promote_types(u.dtype, torch.float32)
    if u.device.type == "cpu":
        segments = (tokens + SEGMENT - 1) // SEGMENT
        kept = u.new_empty(segments if keep else 0, (channels + LANES - 1) // LANES, S, LANES, dtype=kind)
    else:
        segments = (tokens + GPU_SEGMENT - 1) // GPU_SEGMENT
        kept = u.new_empty(segments if keep else 0, channels, S, dtype=kind)
    return (
        u.new_empty(tokens, channels),
        u.new_empty(offsets.shape[0] - 1 if want_final else 0, channels, S, dtype=kind),
        kept,
    )


@torch.library.custom_op("hopstate::selective_scan_backward", mutates_args=(), device_types="cpu")
def scan_backward(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    offsets: Tensor,
    initial: Tensor | None,
    checkpoints: Tensor,
    dy: Tensor,
    dfinal: Tensor | None,
    reverse: bool,
    zoh: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of u, delta, A, B, C, D, z, initial; without elements for absent inputs."""
    from hopstate.ops.selective_scan import cpu_kernels

    return cpu_kernels.backward(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh)  # type: ignore[return-value]


@scan_backward.register_kernel("cuda")
def _backward_cuda(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh):  # type: ignore[no-untyped-def]
    from hopstate.ops.selective_scan import triton  # type: ignore[attr-defined]

    return triton.backward(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh)


@scan_backward.register_fake
def _backward_fake(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, reverse, zoh):  # type: ignore[no-untyped-def]
    likes = (u, delta, A, B, C, D, z, initial)
    return [u.new_empty(0) if x is None else torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in likes]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    u, delta, A, B, C, D, z, offsets, initial, reverse, zoh, _, want_final = inputs
    ctx.save_for_backward(u, delta, A, B, C, D, z, offsets, initial, output[2])
    ctx.reverse, ctx.zoh, ctx.want_final = reverse, zoh, want_final
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor | None, dfinal: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    u, delta, A, B, C, D, z, offsets, initial, checkpoints = ctx.saved_tensors
    dy = torch.zeros_like(u) if dy is None else dy
    dfinal = dfinal if ctx.want_final else None
    grads = scan_backward(u, delta, A, B, C, D, z, offsets, initial, checkpoints, dy, dfinal, ctx.reverse, ctx.zoh)
    *rest, dD, dz, dinitial = grads
    return (
        *rest,
        None if D is None else dD,
        None if z is None else dz,
        None,
        None if initial is None else dinitial,
        *(None,) * 4,
    )


scan.register_autograd(_backward, setup_context=_keep_for_backward)


def selective_scan_traced(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    offsets: Tensor | None,
    *,
    reverse: bool,
    discretization: Discretization,
) -> Tensor:
    """Return y of `selective_scan` from zero states; without offsets, all rows of a batch advance together."""
    from torch._higher_order_ops.scan import scan

    kind = torch.promote_types(u.dtype, torch.float32)
    batched = u.dim() == 3
    columns = [x.to(kind).transpose(0, 1) if batched else x.to(kind) for x in (u, delta, B, C)]
    length, rate = columns[0].shape[0], A.to(kind)
    bounds = torch.zeros(1, dtype=torch.int64, device=u.device) if offsets is None else offsets
    starts = columns[0].new_zeros(length + 1).index_add(0, bounds, columns[0].new_ones(bounds.shape[0]))
    kept = (starts.narrow(0, 1 if reverse else 0, length) == 0).to(kind)
    columns.append(kept.view(-1, *[1] * columns[0].dim()))
    if reverse:
        columns = [x.flip(0) for x in columns]
    columns = [torch.cat([x, x.new_zeros(1, *x.shape[1:])]) for x in columns]  # a scan over nothing is refused

    def step(h: Tensor, token: list[Tensor]) -> tuple[Tensor, Tensor]:
        value, size, into, out, kept = token
        h, y = advance(h * kept, value, size, rate, into, out, discretization)
        return h.clone(), y

    start = columns[0].new_zeros(*columns[0].shape[1:], A.shape[1])
    y = scan(step, start, columns)[1].narrow(0, 0, length)
    y = y.flip(0) if reverse else y
    y = y.transpose(0, 1) if batched else y
    y = y if D is None else y + D.to(kind) * u.to(kind)
    return (y if z is None else y * silu(z.to(kind))).to(u.dtype)


def selective_scan(
    u: Float[Tensor, "*token channel"],
    delta: Float[Tensor, "*token channel"],
    A: Float[Tensor, "channel state"],
    B: Float[Tensor, "*token state"],
    C: Float[Tensor, "*token state"],
    *,
    D: Float[Tensor, " channel"] | None = None,
    z: Float[Tensor, "*token channel"] | None = None,
    offsets: Int[Tensor, " _"] | None = None,
    reverse: bool = False,
    initial_state: Float[Tensor, "sequence channel state"] | None = None,
    discretization: Discretization = "zoh",
    return_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute h_k = exp(delta_k A) h_{k-1} + gain_k B_k u_k, y_k = (C_k . h_k + D u_k) silu(z_k) over each sequence.

    Args:
        u: inputs, (token, channel) packed or (batch, length, channel); float16, bfloat16, float32 or float64.
        delta: step sizes >= 0 with u's shape, in units of 1/A; projections of the input or time differences.
        A: decay rates < 0, (channel, state).
        B, C: input and output projections, (token, state) or (batch, length, state), shared by all channels.
        D: weight of the skip connection, (channel,).
        z: gate with u's shape.
        offsets: int64 (sequence + 1,); packed sequence i has the tokens offsets[i]..offsets[i + 1] - 1 and may be
            empty. Without offsets, packed input is one sequence.
        reverse: scan each sequence from its last token to its first.
        initial_state: states before each sequence's first step, (sequence, channel, state). Default: zero.
        discretization: "zoh" (exact) or "euler" (Mamba's gain = delta).
        return_state: also return the states after each sequence's last step.

    Returns:
        y with u's shape and dtype. With return_state also the final states (sequence, channel, state) in float32, or in
        float64 for float64 input.

    Raises:
        ShapeError: shapes, dtypes or devices disagree.
        DataError: offsets do not cover the tokens, A >= 0, or a step is negative. Values on a GPU are not checked.
        ConfigError: the discretization is unknown, or a program exported with the reference uses states.

    >>> u = torch.ones(3, 1)  # three tokens, one channel: a sequence of two, then one of one
    >>> A, one = -torch.ones(1, 1), torch.ones(3, 1)
    >>> y = selective_scan(u, one, A, one, one, offsets=torch.tensor([0, 2, 3]))
    >>> [round(v, 4) for v in y.flatten().tolist()]  # 1 - 1/e, 1 - 1/e^2, and from zero again
    [0.6321, 0.8647, 0.6321]
    """
    sequences = check_scan(u, delta, A, B, C, D, z, offsets, initial_state)
    zoh = check_discretization(discretization) == "zoh"
    shape, path = u.shape, choose_path(u.device.type, u.dtype)
    if path.name == "naive" and torch.compiler.is_exporting():
        if initial_state is not None or return_state:
            raise ConfigError("a scan that takes or returns states cannot be exported")
        return selective_scan_traced(u, delta, A, B, C, D, z, offsets, reverse=reverse, discretization=discretization)
    if offsets is None:
        offsets = torch.arange(sequences + 1, device=u.device) * shape[-2]
    if u.dim() == 3:
        u, delta, B, C = (x.flatten(0, 1) for x in (u, delta, B, C))
        z = None if z is None else z.flatten(0, 1)
    if path.name == "naive":
        warn_slow("selective_scan", path.reason)
        check_values(A, offsets, u.shape[0])
        y, state = selective_scan_naive(
            u, delta, A, B, C, D, z, offsets, initial_state, reverse=reverse, discretization=discretization
        )
    else:
        inputs = (u, delta, A, B, C, D, z, initial_state)
        keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
        y, state, _ = scan(*inputs[:7], offsets, initial_state, reverse, zoh, keep, return_state)
    return (y.view(shape), state) if return_state else y.view(shape)


def selective_influence(
    delta: Float[Tensor, "*token channel"],
    A: Float[Tensor, "channel state"],
    B: Float[Tensor, "*token state"],
    C: Float[Tensor, "*token state"],
    *,
    offsets: Int[Tensor, " _"] | None = None,
    reverse: bool = False,
    discretization: Discretization = "zoh",
) -> Float[Tensor, "*token channel"]:
    """Return the influence w_j = C_L (prod_{i>j} exp(delta_i A)) gain_j B_j of each token's input on the last output.

    The scan is linear in u. Therefore the sum of w_j u_j over a sequence equals its last output exactly, from a zero
    state and before skip and gate. If reverse is set, it equals the first token's output. The weights are computed as
    the gradient of that output, without products of decays.

    Args:
        delta, A, B, C, offsets, reverse, discretization: see `selective_scan`.

    Returns:
        Weights with delta's shape and dtype, without gradient.

    Source: DyG-Mamba, Theorem 4.2.
    """
    sequences = check_scan(delta, delta, A, B, C, None, None, offsets, None)
    length = delta.shape[-2]
    if offsets is None:
        offsets = torch.arange(sequences + 1, device=delta.device) * length
    starts, ends = offsets[:-1], offsets[1:]
    read = (starts if reverse else ends - 1)[ends > starts]
    flat = delta.detach().flatten(0, -2)
    with torch.enable_grad():
        u = torch.zeros_like(flat).requires_grad_()
        maps = (x.detach().flatten(0, -2) for x in (B, C))
        y = selective_scan(u, flat, A.detach(), *maps, offsets=offsets, reverse=reverse, discretization=discretization)
        assert isinstance(y, Tensor)
        last = torch.zeros_like(y).index_fill_(0, read, 1.0)
        (weights,) = torch.autograd.grad(y, u, last)
    return weights.view(delta.shape)
