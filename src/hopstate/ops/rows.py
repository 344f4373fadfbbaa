"""Rows that lie in consecutive runs: their positions, bounds and sums."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hopstate.types import Float, Int, shapecheck


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return starts[i] .. starts[i] + counts[i] - 1 for each i, one after the other.

    Args:
        starts: (R,) first positions, such as the indptr of some rows of a CSR.
        counts: (R,) lengths.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(counts) - counts
    return np.arange(int(np.sum(counts))) + np.repeat(starts - before, counts)


def bounds_of(counts: np.ndarray) -> np.ndarray:
    """Return (R+1,) int64 bounds of runs of counts (R,) rows that lie one after the other."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@shapecheck
def segment_sum(x: Float[Tensor, "token channel"], offsets: Int[Tensor, "bound"]) -> Float[Tensor, "segment channel"]:
    """Return the sum of each run of rows x[offsets[s]:offsets[s+1]], 0 where it is empty; halves add up in single."""
    kind = torch.promote_types(x.dtype, torch.float32)  # a running sum in half precision stops growing
    return torch.segment_reduce(x.contiguous().to(kind), "sum", offsets=offsets, axis=0, initial=0).to(x.dtype)
