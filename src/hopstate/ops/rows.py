"""Packed rows: positions, bounds and sums of consecutive segments."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hopstate.types import Float, Int, shapecheck


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the positions starts[i] .. starts[i] + counts[i] - 1 of all i, concatenated.

    Args:
        starts: (R,) first positions, such as CSR row pointers.
        counts: (R,) lengths.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(counts) - counts
    return np.arange(int(np.sum(counts))) + np.repeat(starts - before, counts)


def bounds_of(counts: np.ndarray) -> np.ndarray:
    """Return (R+1,) int64 bounds of consecutive segments with counts (R,)."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@shapecheck
def segment_sum(x: Float[Tensor, "token channel"], offsets: Int[Tensor, "bound"]) -> Float[Tensor, "segment channel"]:
    """Return the sum of each segment x[offsets[s]:offsets[s+1]], 0 if empty; half precision is summed in float32."""
    kind = torch.promote_types(x.dtype, torch.float32)  # a running sum in half precision stops growing
    return torch.segment_reduce(x.contiguous().to(kind), "sum", offsets=offsets, axis=0, initial=0).to(x.dtype)
