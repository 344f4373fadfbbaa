"""Compiled loop of `propagate`; imports numba, so it is imported only where it is used."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def hop(tokens, k, indptr, indices, scale, start, stop):  # type: ignore[no-untyped-def]
    """Fill tokens[start:stop, k] with A_hat times tokens[:, k - 1]."""
    width = tokens.shape[2]
    for i in range(start, stop):
        own = tokens[i, k - 1]
        out = tokens[i, k]
        weight = scale[i] * scale[i]
        for f in range(width):
            out[f] = weight * own[f]
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            weight = scale[i] * scale[j]
            x = tokens[j, k - 1]
            for f in range(width):
                out[f] += weight * x[f]
