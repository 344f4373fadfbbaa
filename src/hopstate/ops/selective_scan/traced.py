"""The selective scan in a form that torch.export can trace: one scan over positions, whatever the sequences' lengths.

    h_k = exp(delta_k A) (kept_k h_{k-1}) + gain_k B_k u_k        kept_k = 0 at the first token of a sequence, else 1

`naive` loops over sequences in Python, which would fix their number and lengths in an exported program.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from hopstate.ops.discretize import Discretization
from hopstate.ops.selective_scan.naive import advance


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
    """Return y of `selective_scan`, from zero states; without offsets all rows of a batch advance at once."""
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
