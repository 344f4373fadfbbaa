"""Powers of the normalised adjacency times dense features, one contiguous block of hops a node.

A_hat = (D+I)^-1/2 (A+I) (D+I)^-1/2 with D the number of entries of each row of A; entries are ones (an entry stored
twice counts twice, a stored self-loop adds to the I).

Source: Hop2Token, Chen et al., ICLR 2023, arXiv:2206.04910, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from hopstate.errors import ShapeError
from hopstate.ops.parallel import run_units

_WORK = 4_000_000  # products of a unit: about a millisecond


def hop_powers_naive(indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, num_hops: int) -> np.ndarray:
    """Return (N, K+1, F) float64 with A_hat^k x at [:, k], from the dense matrix: the definition.

    Args:
        indptr: (N+1,) row starts.
        indices: (E,) columns.
        x: (N, F).
        num_hops: K.
    """
    n = len(indptr) - 1
    a = np.eye(n)
    np.add.at(a, (np.repeat(np.arange(n), np.diff(indptr)), indices), 1.0)
    scale = 1 / np.sqrt(1 + np.diff(indptr))
    a_hat = scale[:, None] * a * scale
    return np.stack([np.linalg.matrix_power(a_hat, k) @ x.astype(np.float64) for k in range(num_hops + 1)], 1)


def hop_powers(indptr: np.ndarray, indices: np.ndarray, tokens: np.ndarray) -> None:
    """Fill tokens[:, k] with A_hat^k tokens[:, 0] for k = 1..K, in place and without further memory of that size.

    Rows are summed in stored order, on as many threads as torch uses; the result does not depend on how many.

    Args:
        indptr: (N+1,) int64 row starts.
        indices: (E,) int64 columns.
        tokens: (N, K+1, F) float32, C-contiguous, hop 0 filled in.

    Raises:
        ShapeError: tokens is not such an array.
    """
    n = len(indptr) - 1
    if tokens.ndim != 3 or len(tokens) != n or tokens.dtype != np.float32 or not tokens.flags.c_contiguous:
        raise ShapeError(
            f"tokens must be C-contiguous float32 of shape ({n}, K+1, F); got {tokens.dtype} {tokens.shape}"
        )
    if not tokens.size:
        return
    from hopstate.ops.propagate_kernels import hop

    scale = (1 / np.sqrt(1.0 + np.diff(indptr))).astype(np.float32)
    cuts = _equal_work(indptr, tokens.shape[2])
    for k in range(1, tokens.shape[1]):
        run_units(hop, len(cuts) - 1, cuts, tokens, k, indptr, indices, scale)


def _equal_work(indptr: np.ndarray, width: int) -> np.ndarray:
    """Return the row numbers that cut the rows into units of about `_WORK` products each."""
    done = indptr + np.arange(len(indptr))  # entries and rows up to each row
    units = 1 + int(done[-1]) * width // _WORK
    return np.searchsorted(done, done[-1] * np.arange(units + 1) / units).astype(np.int64)
