"""Powers of the normalized adjacency applied to features (NAGphormer, algorithm 1): reference and compiled loop."""

from __future__ import annotations

import numpy as np

from hopstate.errors import ShapeError
from hopstate.ops.threads import run_units

__all__ = ["hop_powers", "hop_powers_naive", "hop_rows", "hop_scale"]

_WORK = 4_000_000  # products of a unit: about a millisecond


def hop_powers_naive(
    indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, num_hops: int, weight: np.ndarray | None = None
) -> np.ndarray:
    """Reference implementation: return (N, K+1, F) float64 with A_hat^k x at [:, k], from the dense matrix.

    Args:
        indptr: (N+1,) row pointers.
        indices: (E,) columns.
        x: (N, F).
        num_hops: K.
        weight: (E,) weights of at least 0. Default: 1.
    """
    n = len(indptr) - 1
    a = np.eye(n)
    np.add.at(a, (np.repeat(np.arange(n), np.diff(indptr)), indices), 1.0 if weight is None else weight)
    scale = 1 / np.sqrt(a.sum(1))
    a_hat = scale[:, None] * a * scale
    return np.stack([np.linalg.matrix_power(a_hat, k) @ x.astype(np.float64) for k in range(num_hops + 1)], 1)


def hop_powers(indptr: np.ndarray, indices: np.ndarray, tokens: np.ndarray, weight: np.ndarray | None = None) -> None:
    """Fill tokens[:, k] with A_hat^k tokens[:, 0] for k = 1..K in place.

    Rows are summed in stored order, so the result does not depend on the number of threads.

    Args:
        indptr: (N+1,) int64 row pointers of the in-edges.
        indices: (E,) int64 senders.
        tokens: (N, K+1, F) float32, C-contiguous, with hop 0 filled in.
        weight: (E,) float32 weights of at least 0. Default: 1.

    Raises:
        ShapeError: tokens has another shape, dtype or layout.
    """
    n = len(indptr) - 1
    if tokens.ndim != 3 or len(tokens) != n or tokens.dtype != np.float32 or not tokens.flags.c_contiguous:
        raise ShapeError(
            f"tokens must be C-contiguous float32 of shape ({n}, K+1, F); got {tokens.dtype} {tokens.shape}"
        )
    if not tokens.size:
        return
    from hopstate.ops.propagate.kernels import hop

    degree = np.diff(indptr) if weight is None else np.bincount(np.repeat(np.arange(n), np.diff(indptr)), weight, n)
    scale = (1 / np.sqrt(1.0 + degree)).astype(np.float32)  # (D+I)^-1/2
    width, step, flat = tokens.shape[2], tokens.shape[1] * tokens.shape[2], tokens.reshape(-1)
    cuts = _equal_work(indptr, width)
    for k in range(1, tokens.shape[1]):
        before, after = flat[(k - 1) * width :], flat[k * width :]
        run_units(hop, len(cuts) - 1, cuts, before, step, after, step, width, indptr, indices, scale, weight)


def _equal_work(indptr: np.ndarray, width: int) -> np.ndarray:
    """Return the row numbers that cut the rows into units of about `_WORK` products each."""
    done = indptr + np.arange(len(indptr))  # entries and rows up to each row
    units = 1 + int(done[-1]) * width // _WORK
    return np.searchsorted(done, done[-1] * np.arange(units + 1) / units).astype(np.int64)
