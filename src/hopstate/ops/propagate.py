"""Powers of the normalised adjacency times dense features, one contiguous block of hops a node.

A_hat = (D+I)^-1/2 (A+I) (D+I)^-1/2 with D the number of entries of each row of A; entries are ones (an entry stored
twice counts twice, a stored self-loop adds to the I).

Source: Hop2Token, Chen et al., ICLR 2023, arXiv:2206.04910, Algorithm 1.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch

from hopstate.errors import ShapeError

# products a thread should have at least, so that starting it pays
_WORK_PER_THREAD = 4_000_000


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


def hop_powers(indptr: np.ndarray, indices: np.ndarray, tokens: np.ndarray, *, threads: int | None = None) -> None:
    """Fill tokens[:, k] with A_hat^k tokens[:, 0] for k = 1..K, in place and without further memory of that size.

    Every row is summed by one thread in stored order, so the result does not depend on the number of threads.

    Args:
        indptr: (N+1,) int64 row starts.
        indices: (E,) int64 columns.
        tokens: (N, K+1, F) float32, C-contiguous, hop 0 filled in.
        threads: threads to use; by default torch's number.

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
    work = (len(indices) + n) * tokens.shape[2]
    threads = min(threads or torch.get_num_threads(), 1 + work // _WORK_PER_THREAD)
    cuts = _balanced_rows(indptr, threads)
    with ThreadPoolExecutor(threads) as pool:
        for k in range(1, tokens.shape[1]):
            parts = [pool.submit(hop, tokens, k, indptr, indices, scale, a, b) for a, b in pairwise(cuts)]
            for part in parts:
                part.result()


def _balanced_rows(indptr: np.ndarray, parts: int) -> list[int]:
    """Return parts + 1 row numbers that cut the rows into ranges of about equally many entries."""
    n = len(indptr) - 1
    cost = indptr + np.arange(n + 1)
    return [0, *(int(c) for c in np.searchsorted(cost, cost[-1] * np.arange(1, parts) / parts)), n]
