"""Return probabilities of random walks without dense powers: reference and compiled loop."""

from __future__ import annotations

import numpy as np

from hopstate.ops.threads import run_units

__all__ = ["return_probabilities", "return_probabilities_naive", "walk_sums"]


def return_probabilities(indptr: np.ndarray, indices: np.ndarray, steps: int) -> np.ndarray:
    """Return (N, steps) float64: diagonal of (D^-1 A)^k, k = 1..steps; products in float32.

    Args:
        indptr: (N+1,) int64; indices: (E,) int64, the CSR adjacency.
        steps: largest k.
    """
    from hopstate.ops.returns import kernels as returns_kernels

    n = len(indptr) - 1
    out = np.zeros((n, steps))
    scale = (1 / np.sqrt(np.maximum(np.diff(indptr), 1))).astype(np.float32)
    units = -(-n // returns_kernels.LANES)
    symmetric = _is_symmetric(indptr, indices)
    run_units(returns_kernels.diagonals, units, indptr, indices.astype(np.int32), scale, symmetric, steps, out)
    return out


def return_probabilities_naive(indptr: np.ndarray, indices: np.ndarray, steps: int) -> np.ndarray:
    """Reference implementation of `return_probabilities` with dense matrix powers."""
    step = _dense(indptr, indices)
    return np.stack([np.linalg.matrix_power(step, k).diagonal() for k in range(1, steps + 1)], 1)


def walk_sums(indptr: np.ndarray, indices: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, steps) row sums and (N, steps) column sums of (D^-1 A)^k, k = 1..steps."""
    import scipy.sparse

    n, degree = len(indptr) - 1, np.diff(indptr)
    weights = np.repeat(1 / np.maximum(degree, 1), degree)
    step = scipy.sparse.csr_array((weights, indices, indptr), shape=(n, n))
    rows, columns = np.empty((n, steps)), np.empty((n, steps))
    right, left = np.ones(n), np.ones(n)
    for k in range(steps):
        right, left = step @ right, step.T @ left
        rows[:, k], columns[:, k] = right, left
    return rows, columns


def _dense(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    n, degree = len(indptr) - 1, np.diff(indptr)
    a = np.zeros((n, n))
    np.add.at(a, (np.repeat(np.arange(n), degree), indices), 1.0)
    return a / np.maximum(degree, 1)[:, None]


def _is_symmetric(indptr: np.ndarray, indices: np.ndarray) -> bool:
    import scipy.sparse

    n = len(indptr) - 1
    a = scipy.sparse.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(n, n))
    return (a != a.T).nnz == 0
