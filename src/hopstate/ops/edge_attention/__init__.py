"""Attention over neighbours by a score an edge, as GAT has it: definition, compiled loop, gradients."""

# No `from __future__ import annotations`: torch reads the ops' schemas from these annotations.
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.errors import ShapeError
from hopstate.ops.dispatch import choose_path
from hopstate.ops.threads import flat_array, run_units

__all__ = ["edge_attention", "edge_attention_naive"]

LANES = 16  # of the kernels' vectors
ROWS, SPAN = 256, 2  # receivers of a unit of the forward loop, vectors of a row in one of the backward loop


def edge_attention(
    indptr: Tensor, indices: Tensor, receivers: Tensor, a: Tensor, b: Tensor, v: Tensor, slope: float = 0.2
) -> Tensor:
    """Return what receivers take from their neighbours and themselves.

    Args:
        indptr: (R+1,) int64 CSR row starts.
        indices: (E,) int64 senders in 0..N-1; an edge of a node to itself is passed over.
        receivers: (R,) int64 distinct receivers of the rows.
        a: (N, H) the receivers' part of the score, a column a head; b: (N, H) the senders'.
        v: (N, H, C) values.
        slope: of the LeakyReLU below 0.

    Returns:
        (R, H, C).
    """
    if a.shape != b.shape or v.shape[:2] != a.shape or len(indptr) != len(receivers) + 1:
        raise ShapeError(
            f"a and b must be (N, H), v (N, H, C) and indptr one longer than receivers; "
            f"got {tuple(a.shape)}, {tuple(b.shape)}, {tuple(v.shape)}, {len(indptr)} and {len(receivers)}"
        )
    kind = torch.promote_types(a.dtype, v.dtype)  # autocast leaves scores in full precision, values not
    a, b, v = (x.to(kind) for x in (a, b, v))
    if choose_path(a.device.type, a.dtype).name != "numba" or a.dtype not in (torch.float32, torch.float64):
        return edge_attention_naive(indptr, indices, receivers, a, b, v, slope)
    spans = range(0, max(1, a.shape[1]), LANES)
    groups = [[x[:, at : at + LANES] for x in (a, b, v)] for at in spans]
    parts = [_attend_up_to_lanes(indptr, indices, receivers, x, y, z, slope) for x, y, z in groups]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _attend_up_to_lanes(
    indptr: Tensor, indices: Tensor, receivers: Tensor, a: Tensor, b: Tensor, v: Tensor, slope: float
) -> Tensor:
    """Return `edge_attention` of up to `LANES` heads, with one head per vector lane.

    Heads are padded to a divisor of the lanes and repeated. A row of values holds all heads of each channel.
    """
    n, heads, width = v.shape
    full = 1 << max(0, heads - 1).bit_length()
    times = LANES // full
    a, b = (F.pad(x, (0, full - heads)).repeat(1, times) for x in (a, b))
    rest = -width % times
    v = F.pad(v, (0, rest, 0, full - heads)).transpose(1, 2)
    out = _attend(indptr, indices, receivers, a, b, v.reshape(n, (width + rest) * full), slope)[0]
    return out.view(len(receivers), width + rest, full).transpose(1, 2)[:, :heads, :width]


def edge_attention_naive(
    indptr: Tensor, indices: Tensor, receivers: Tensor, a: Tensor, b: Tensor, v: Tensor, slope: float = 0.2
) -> Tensor:
    """Return `edge_attention` with one row an edge, in plain torch: the definition."""
    n = len(receivers)
    rows = torch.repeat_interleave(indptr.diff())
    others = indices != receivers[rows]
    rows = torch.cat([rows[others], torch.arange(n, device=rows.device)])
    senders = torch.cat([indices[others], receivers])
    score = F.leaky_relu(a[receivers[rows]] + b[senders], slope)
    maximum = score.new_full((n, score.shape[1]), -torch.inf)
    maximum = maximum.scatter_reduce(0, rows[:, None].expand_as(score), score.detach(), "amax")
    weight = torch.exp(score - maximum[rows])
    total = torch.zeros_like(maximum).index_add(0, rows, weight)
    return v.new_zeros(n, *v.shape[1:]).index_add(0, rows, (weight / total[rows])[:, :, None] * v[senders])


@torch.library.custom_op("hopstate::edge_attention", mutates_args=(), device_types="cpu")
def _attend(
    indptr: Tensor, indices: Tensor, receivers: Tensor, a: Tensor, b: Tensor, v: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """(R, d) and the levels (R, LANES) for a, b (N, LANES) and v (N, d), column c of which is of lane c % LANES."""
    from hopstate.ops.edge_attention import kernels

    n, d = len(receivers), v.shape[1]
    out, level = v.new_zeros(n, d), a.new_empty(n, LANES)
    graph = tuple(x.numpy() for x in (indptr, indices, receivers))
    arrays = [flat_array(x, a.dtype) for x in (a, b, v)]
    run_units(kernels.forward, -(-n // ROWS), ROWS, *graph, *arrays, d, slope, *_flat(out, level))
    return out, level


@_attend.register_fake
def _attend_fake(indptr, indices, receivers, a, b, v, slope):  # type: ignore[no-untyped-def]
    return v.new_empty(receivers.shape[0], v.shape[1]), a.new_empty(receivers.shape[0], LANES)


@torch.library.custom_op("hopstate::edge_attention_backward", mutates_args=(), device_types="cpu")
def _attend_backward(
    indptr: Tensor, indices: Tensor, receivers: Tensor, a: Tensor, b: Tensor, v: Tensor, slope: float,
    out: Tensor, level: Tensor, grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from hopstate.ops.edge_attention import kernels

    d = v.shape[1]
    units, dv = -(-d // (SPAN * LANES)), torch.zeros(v.shape, dtype=a.dtype)
    da, db = (torch.zeros(units, *a.shape, dtype=a.dtype) for _ in range(2))  # a unit's own, added up after
    graph = tuple(x.numpy() for x in (indptr, indices, receivers))
    kept = [flat_array(x, a.dtype) for x in (a, b, v, out, level, grad)]
    run_units(kernels.backward, units, SPAN, *graph, *kept, d, slope, *_flat(da, db, dv))
    return da.sum(0), db.sum(0), dv


@_attend_backward.register_fake
def _attend_backward_fake(indptr, indices, receivers, a, b, v, slope, out, level, grad):  # type: ignore[no-untyped-def]
    return tuple(x.new_empty(x.shape) for x in (a, b, v))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.slope = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, out, level = ctx.saved_tensors
    grad = torch.zeros_like(out) if grad is None else grad
    return None, None, None, *_attend_backward(*inputs, ctx.slope, out, level, grad), None


_attend.register_autograd(_backward, setup_context=_setup)


def _flat(*tensors: Tensor) -> list[np.ndarray]:
    return [x.view(-1).numpy() for x in tensors]
