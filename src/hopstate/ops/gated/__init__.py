"""Gated mean aggregation: reference implementation, compiled loop and gradients."""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import torch
from torch import Tensor

from hopstate.errors import ShapeError
from hopstate.ops.dispatch import choose_path
from hopstate.ops.threads import flat_array, run_units

__all__ = ["gated_mean", "gated_mean_naive"]

EPS = 1e-6


def gated_mean(
    indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the gated mean of neighbours' values.

    Args:
        indptr: (P+1,) int64 CSR row starts; row i lists i's senders.
        indices: (E,) int64.
        a: (N, d) the receivers' part of the gate; b: (N, d) the senders'.
        v: (N, d) values.
        c: (E, d) the edges' part of the gate, in the order of indices, or None.
        rows: (P,) int64, row of a, b and v for each row of the graph; None if they are equal.

    Returns:
        (P, d); zero for nodes without neighbors.
    """
    n, d = a.shape
    if b.shape != a.shape or v.shape != a.shape or len(indptr) != (n if rows is None else len(rows)) + 1:
        raise ShapeError(
            f"a, b, v must share a shape (N, d) and indptr hold one more than the graph's rows; "
            f"got {tuple(a.shape)}, {tuple(b.shape)}, {tuple(v.shape)} and {len(indptr)}"
        )
    if c is not None and c.shape != (indices.shape[0], d):
        raise ShapeError(f"c must be (E, d) = {(indices.shape[0], d)}; got {tuple(c.shape)}")
    if choose_path(a.device.type, a.dtype).name != "numba" or a.dtype not in (torch.float32, torch.float64):
        return gated_mean_naive(indptr, indices, a, b, v, c, rows)
    return _gated(indptr, indices, rows, a, b, v, c)[0]


def gated_mean_naive(
    indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return `gated_mean` with one row an edge, in plain torch: the definition."""
    if rows is not None:
        a, b, v = a[rows], b[rows], v[rows]
    return gated_mean_of_edges(torch.repeat_interleave(indptr.diff()), indices, a, b, v, c)


def gated_mean_of_edges(
    receivers: Tensor, senders: Tensor, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None, mask: Tensor | None = None
) -> Tensor:
    """Return `gated_mean` (N, d) of a list of edges, in any order; mask (E,) weighs what each of them carries."""
    gate = a[receivers] + b[senders]
    gate = torch.sigmoid(gate if c is None else gate + c)
    sent = gate * v[senders]
    top = torch.zeros_like(v).index_add(0, receivers, sent if mask is None else sent * mask[:, None])
    return top / (torch.zeros_like(v).index_add(0, receivers, gate) + EPS)


@torch.library.custom_op("hopstate::gated_mean", mutates_args=(), device_types="cpu")
def _gated(
    indptr: Tensor, indices: Tensor, rows: Tensor | None, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor]:
    from hopstate.ops.gated import kernels as gated_kernels

    d = a.shape[1]
    out, total = (torch.empty(len(indptr) - 1, d, dtype=a.dtype) for _ in range(2))
    arrays = [flat_array(x, a.dtype) for x in (a, b, v, c)]
    graph = _graph(indptr, indices, rows)
    sums = [flat_array(x, a.dtype) for x in (out, total)]
    run_units(gated_kernels.forward, -(-d // gated_kernels.LANES), *graph, *arrays, d, *sums)
    return out, total


@_gated.register_fake
def _gated_fake(indptr, indices, rows, a, b, v, c):  # type: ignore[no-untyped-def]
    return tuple(a.new_empty(indptr.shape[0] - 1, a.shape[1]) for _ in range(2))


@torch.library.custom_op("hopstate::gated_mean_backward", mutates_args=(), device_types="cpu")
def _gated_backward(
    indptr: Tensor, indices: Tensor, rows: Tensor | None, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None,
    out: Tensor, total: Tensor, grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from hopstate.ops.gated import kernels as gated_kernels

    arrays = [flat_array(x, a.dtype) for x in (a, b, v, c)]
    da, db, dv = (torch.zeros(a.shape, dtype=a.dtype) for _ in range(3))
    dc = torch.empty(a.shape if c is None else c.shape, dtype=a.dtype) if c is not None else a.new_empty(0)
    d = a.shape[1]
    kept = [flat_array(x, a.dtype) for x in (out, total, grad)]
    graph = _graph(indptr, indices, rows)
    grads = [flat_array(x, a.dtype) for x in (da, db, dv, dc)]
    run_units(gated_kernels.backward, -(-d // gated_kernels.LANES), *graph, *arrays, d, *kept, *grads)
    return da, db, dv, dc


@_gated_backward.register_fake
def _gated_backward_fake(indptr, indices, rows, a, b, v, c, out, total, grad):  # type: ignore[no-untyped-def]
    like = [a.new_empty(a.shape) for _ in range(3)]
    return (*like, a.new_empty(0 if c is None else c.shape))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, out, total = ctx.saved_tensors
    grad = torch.zeros_like(out) if grad is None else grad
    da, db, dv, dc = _gated_backward(*inputs, out, total, grad)
    return None, None, None, da, db, dv, None if inputs[6] is None else dc


_gated.register_autograd(_backward, setup_context=_setup)


def _graph(indptr: Tensor, indices: Tensor, rows: Tensor | None) -> tuple[Any, ...]:
    return indptr.numpy(), indices.numpy(), (indices.new_empty(0) if rows is None else rows).numpy()
