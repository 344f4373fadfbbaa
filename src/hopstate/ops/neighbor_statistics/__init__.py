"""Mean, least, largest and standard deviation of neighbours' rows: definition, compiled loop, gradients."""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import torch
from torch import Tensor

from hopstate.errors import ShapeError
from hopstate.ops.dispatch import choose_path
from hopstate.ops.threads import flat_array, run_units

__all__ = ["neighbor_statistics", "neighbor_statistics_naive"]

LEAST = 1e-5  # variance that counts as none


def neighbor_statistics(indptr: Tensor, indices: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, least, largest and standard deviation of neighbours' values, each (R, d).

    Rows without a neighbour hold zeros. Where several neighbours are the least (or largest), they share its gradient.

    Args:
        indptr: (R+1,) int64 CSR row starts.
        indices: (E,) int64 rows of x.
        x: (N, d) values.
    """
    if x.ndim != 2:
        raise ShapeError(f"x must be (N, d); got {tuple(x.shape)}")
    if choose_path(x.device.type, x.dtype).name != "numba" or x.dtype not in (torch.float32, torch.float64):
        return neighbor_statistics_naive(indptr, indices, x)
    return _statistics(indptr, indices, x)


def neighbor_statistics_naive(indptr: Tensor, indices: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `neighbor_statistics` with one row an edge, in plain torch: the definition."""
    counts, d = indptr.diff(), x.shape[1]
    rows, n = torch.repeat_interleave(counts), len(counts)
    share, sent, zeros = counts.clamp(min=1)[:, None], x[indices], x.new_zeros(n, d)
    mean = zeros.index_add(0, rows, sent) / share
    where = rows[:, None].expand_as(sent)
    ends = (("amin", torch.inf), ("amax", -torch.inf))  # a start at 0 would have a share in the gradient of a 0
    low, high = (torch.full_like(zeros, start).scatter_reduce(0, where, sent, how) for how, start in ends)
    low, high = (torch.where(counts[:, None] > 0, end, 0.0) for end in (low, high))
    variance = zeros.index_add(0, rows, (sent - mean[rows]).square()) / share
    mask = variance > LEAST
    return mean, low, high, torch.where(mask, variance, 1.0).sqrt() * mask


@torch.library.custom_op("hopstate::neighbor_statistics", mutates_args=(), device_types="cpu")
def _statistics(indptr: Tensor, indices: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from hopstate.ops.neighbor_statistics import kernels

    d = x.shape[1]
    outputs = tuple(x.new_empty(len(indptr) - 1, d) for _ in range(4))
    arrays = flat_array(x, x.dtype), d, *(y.view(-1).numpy() for y in outputs)
    run_units(kernels.forward, -(-d // kernels.LANES), indptr.numpy(), indices.numpy(), *arrays)
    return outputs  # type: ignore[return-value]


@_statistics.register_fake
def _statistics_fake(indptr, indices, x):  # type: ignore[no-untyped-def]
    return tuple(x.new_empty(indptr.shape[0] - 1, x.shape[1]) for _ in range(4))


@torch.library.custom_op("hopstate::neighbor_statistics_backward", mutates_args=(), device_types="cpu")
def _statistics_backward(
    indptr: Tensor, indices: Tensor, x: Tensor, outputs: list[Tensor], grads: list[Tensor]
) -> Tensor:
    from hopstate.ops.neighbor_statistics import kernels

    d, dx = x.shape[1], torch.zeros(x.shape, dtype=x.dtype)
    arrays = [flat_array(y, x.dtype) for y in (x, *outputs, *grads)]
    units = -(-d // kernels.LANES)
    run_units(kernels.backward, units, indptr.numpy(), indices.numpy(), arrays[0], d, *arrays[1:], dx.view(-1).numpy())
    return dx


@_statistics_backward.register_fake
def _statistics_backward_fake(indptr, indices, x, outputs, grads):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    indptr, indices, x, *outputs = ctx.saved_tensors
    given = [torch.zeros_like(y) if g is None else g for y, g in zip(outputs, grads)]
    return None, None, _statistics_backward(indptr, indices, x, outputs, given)


_statistics.register_autograd(_backward, setup_context=_setup)
