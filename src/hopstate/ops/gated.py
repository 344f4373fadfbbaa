"""Gated neighbour means, the aggregation of GatedGCN, without a tensor of one row an edge.

    out_i = sum_j g_ij * v_j / (sum_j g_ij + eps)        g_ij = sigmoid(a_i + b_j + c_ij), j over the row of i

Source: Bresson & Laurent 2017, arXiv:1711.07553, in the form of Dwivedi et al. 2020, arXiv:2003.00982, equation 10.
"""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import torch
from torch import Tensor

from hopstate.errors import ShapeError
from hopstate.ops.parallel import run_units
from hopstate.ops.selective_scan.dispatch import choose_path

EPS = 1e-6


def gated_mean(indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None) -> Tensor:
    """Return the gated mean of neighbours' values.

    Args:
        indptr: (N+1,) int64 CSR row starts; row i lists the nodes whose values i receives.
        indices: (E,) int64.
        a: (N, d) the receivers' part of the gate; b: (N, d) the senders'.
        v: (N, d) values.
        c: (E, d) the edges' part of the gate, in the order of indices, or None.

    Returns:
        (N, d); zero rows where there is no neighbour.

    Raises:
        ShapeError: shapes that disagree.
    """
    n, d = a.shape
    if b.shape != a.shape or v.shape != a.shape or indptr.shape[0] != n + 1:
        raise ShapeError(
            f"a, b, v must share a shape (N, d) and indptr hold N + 1; got {a.shape}, {b.shape}, {v.shape}"
        )
    if c is not None and c.shape != (indices.shape[0], d):
        raise ShapeError(f"c must be (E, d) = {(indices.shape[0], d)}; got {tuple(c.shape)}")
    if choose_path(a.device.type, a.dtype).name != "numba" or a.dtype not in (torch.float32, torch.float64):
        return gated_mean_naive(indptr, indices, a, b, v, c)
    return _gated(indptr, indices, a, b, v, c)[0]


def gated_mean_naive(
    indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None
) -> Tensor:
    """Return `gated_mean` with one row an edge, in plain torch: the definition."""
    rows = torch.repeat_interleave(indptr.diff())
    gate = a[rows] + b[indices]
    gate = torch.sigmoid(gate if c is None else gate + c)
    top = torch.zeros_like(v).index_add(0, rows, gate * v[indices])
    return top / (torch.zeros_like(v).index_add(0, rows, gate) + EPS)


@torch.library.custom_op("hopstate::gated_mean", mutates_args=(), device_types="cpu")
def _gated(indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor]:
    from hopstate.ops import gated_kernels

    out, total = torch.empty_like(a, memory_format=torch.contiguous_format), torch.empty(a.shape, dtype=a.dtype)
    arrays = [_flat(x, a) for x in (a, b, v, c)]
    d = a.shape[1]
    graph = (indptr.numpy(), indices.numpy())
    run_units(gated_kernels.forward, -(-d // gated_kernels.LANES), *graph, *arrays, d, _flat(out, a), _flat(total, a))
    return out, total


@_gated.register_fake
def _gated_fake(indptr, indices, a, b, v, c):  # type: ignore[no-untyped-def]
    return a.new_empty(a.shape), a.new_empty(a.shape)


@torch.library.custom_op("hopstate::gated_mean_backward", mutates_args=(), device_types="cpu")
def _gated_backward(
    indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None, out: Tensor, total: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from hopstate.ops import gated_kernels

    arrays = [_flat(x, a) for x in (a, b, v, c)]
    da, db, dv = (torch.zeros(a.shape, dtype=a.dtype) for _ in range(3))
    dc = torch.empty(a.shape if c is None else c.shape, dtype=a.dtype) if c is not None else a.new_empty(0)
    d = a.shape[1]
    kept = [_flat(x, a) for x in (out, total, grad)]
    graph = (indptr.numpy(), indices.numpy())
    grads = [_flat(x, a) for x in (da, db, dv, dc)]
    run_units(gated_kernels.backward, -(-d // gated_kernels.LANES), *graph, *arrays, d, *kept, *grads)
    return da, db, dv, dc


@_gated_backward.register_fake
def _gated_backward_fake(indptr, indices, a, b, v, c, out, total, grad):  # type: ignore[no-untyped-def]
    like = [a.new_empty(a.shape) for _ in range(3)]
    return (*like, a.new_empty(0 if c is None else c.shape))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, out, total = ctx.saved_tensors
    da, db, dv, dc = _gated_backward(*inputs, out, total, grad)
    return None, None, da, db, dv, None if inputs[5] is None else dc


_gated.register_autograd(_backward, setup_context=_setup)


def _flat(x: Tensor | None, like: Tensor) -> Any:
    """x as one flat numpy array, without a copy where it already is one; an absent input is empty."""
    return (torch.empty(0, dtype=like.dtype) if x is None else x.detach().to(like.dtype).reshape(-1)).numpy()
