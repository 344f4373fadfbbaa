"""Step size from the time between events (DyG-Mamba, equation 11): reference, loop and gradients."""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import torch
from torch import Tensor

from hopstate.ops.dispatch import choose_path

__all__ = ["inverse_softplus", "span_step", "span_step_naive"]


def inverse_softplus(value: Tensor) -> Tensor:
    """Return r with softplus(r) = value for value > 0, without cancellation."""
    return value + torch.log(-torch.expm1(-value))


def span_step_naive(r: Tensor, size: Tensor, speed: Tensor) -> Tensor:
    """Return size (1 - exp(-speed r)) by the formula, for autograd."""
    return -size * torch.expm1(-r.unsqueeze(-1) * speed)


def span_step(r: Tensor, size: Tensor, speed: Tensor) -> Tensor:
    """Return size (1 - exp(-speed r)), (token, channel).

    Args:
        r: (token,) spans >= 0; it gets no gradient.
        size, speed: (channel,) w1 and w2, positive.
    """
    if choose_path(r.device.type, size.dtype).name == "naive":
        return span_step_naive(r, size, speed)
    return _span_step(r, size, speed)


@torch.library.custom_op("hopstate::span_step", mutates_args=())
def _span_step(r: Tensor, size: Tensor, speed: Tensor) -> Tensor:
    if choose_path(r.device.type, size.dtype).name != "numba":
        return span_step_naive(r, size, speed)
    from hopstate.ops.span_step import kernels
    from hopstate.ops.threads import flat_array, run_units

    kind = torch.promote_types(size.dtype, torch.float32)
    out = torch.empty(len(r), len(size), dtype=kind)
    rows = unit_rows(len(r), len(size))
    arrays = (flat_array(r, kind), *(padded(w, kind) for w in (size, speed)), out.view(-1).numpy())
    run_units(kernels.forward, len(rows) - 1, rows, len(size), *arrays)
    return out.to(size.dtype)


@_span_step.register_fake
def _span_step_fake(r: Tensor, size: Tensor, speed: Tensor) -> Tensor:
    return size.new_empty(len(r), len(size))


@torch.library.custom_op("hopstate::span_step_backward", mutates_args=())
def _span_step_backward(r: Tensor, size: Tensor, speed: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    channels = len(size)
    if choose_path(r.device.type, size.dtype).name != "numba":
        decay = torch.exp(-r.unsqueeze(-1) * speed)
        by_speed = (grad * decay * r.unsqueeze(-1)).sum(0) * size
        return (grad - grad * decay).sum(0), by_speed
    from hopstate.ops.span_step import kernels
    from hopstate.ops.threads import flat_array, run_units

    kind = torch.promote_types(size.dtype, torch.float32)
    rows = unit_rows(len(r), channels)
    one, two = padded(size, kind), padded(speed, kind)
    sums = [torch.zeros(len(rows) - 1, len(one), dtype=kind) for _ in range(2)]
    arrays = (flat_array(r, kind), one, two, flat_array(grad, kind), *(s.view(-1).numpy() for s in sums))
    run_units(kernels.backward, len(rows) - 1, rows, channels, *arrays)
    first, second = (s.sum(0)[:channels].to(size.dtype).clone() for s in sums)
    return first, second


@_span_step_backward.register_fake
def _span_step_backward_fake(r: Tensor, size: Tensor, speed: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(size), torch.empty_like(speed)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
    return (None, *_span_step_backward(*ctx.saved_tensors, grad))


_span_step.register_autograd(_backward, setup_context=_keep)


def unit_rows(tokens: int, channels: int):  # type: ignore[no-untyped-def]
    """Bounds of the units of rows; shape alone decides."""
    import numpy as np

    from hopstate.ops.threads import MAX_GROUPS, MIN_GROUP

    units = max(1, min(MAX_GROUPS, tokens * channels // MIN_GROUP))
    return np.arange(units + 1) * tokens // units


def padded(w: Tensor, kind: torch.dtype):  # type: ignore[no-untyped-def]
    """w as an array padded with ones to whole blocks of lanes."""
    from hopstate.ops.cpu.simd import LANES

    full = torch.ones(-(-len(w) // LANES) * LANES, dtype=kind)
    full[: len(w)] = w.detach()
    return full.numpy()
