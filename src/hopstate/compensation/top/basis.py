"""A small basis of what TOP's basic embeddings span.

Every column is scaled to length one. Where there are more of them than a basis may have, it is found by the randomised
range finder with power iterations. Its columns are weighted by their singular values, so that a small ridge weakens
just the directions that carry almost nothing.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1; Halko,
Martinsson & Tropp 2011, algorithms 4.3 and 5.1.
Deviation: columns are normalised.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hopstate.errors import DataError
from hopstate.io.scratch import Scratch
from hopstate.random import torch_rng

POWER = 2  # power iterations of the range finder
FEW, MANY = 8192, 1 << 17  # rows at a time: of a Gram matrix, and of columns in files
CUTOFF = 1e-6  # directions with a smaller singular value than this, relative to the largest, are noise


def range_basis(columns: list[Tensor], rank: int, *, seed: int) -> Tensor:
    """Return Q (N, r), r <= rank: the leading left singular vectors of the joined columns times singular values."""
    return times(columns, range_mixing(columns, rank, seed=seed))


def range_mixing(
    columns: list[Tensor], rank: int, *, seed: int, weights: Sequence[float] | None = None
) -> list[Tensor]:
    """Return (d, r) matrices, r <= rank, by which columns are mixed to left singular vectors times singular values.

    Up to rank columns are turned by their Gram matrix; of more, the range finder takes the leading part.

    Args:
        columns: (N, d) tensors, joined side by side without being copied together.
        rank: most columns of the basis.
        seed: fixes the random test matrix.
        weights: lengths that the columns of each tensor are given; by default one.

    Raises:
        DataError: embeddings that are not finite.
    """
    scales = _inverse_lengths(columns)
    if weights is not None:
        scales = [weight * scale for weight, scale in zip(weights, scales)]
    if not all(bool(torch.isfinite(scale).all()) for scale in scales):
        raise DataError("basic embeddings hold NaN or infinities; check the features, or use a normalised model")
    width = sum(c.shape[1] for c in columns)
    mixing = _gram_mixing(columns, scales) if width <= rank else _finder_mixing(columns, scales, rank, seed)
    return [scale[:, None] * rows for scale, rows in zip(scales, mixing.split([c.shape[1] for c in columns]))]


def random_mixing(columns: list[Tensor], count: int, *, seed: int) -> list[Tensor]:
    """Return (d, count) random matrices that mix the joined columns, each scaled to length one first."""
    draw = torch_rng(seed + 1)
    scales = _inverse_lengths(columns)
    return [scale[:, None] * torch.randn(len(scale), count, generator=draw).to(scale) for scale in scales]


def times(columns: list[Tensor], mixing: list[Tensor], store: Scratch | None = None) -> Tensor:
    """Return the joined columns times mixing, made by store (by default in memory), without a copy of the columns."""
    if store is None or store.folder is None:
        total = columns[0].new_zeros(len(columns[0]), mixing[0].shape[1])
        for part, matrix in zip(columns, mixing):
            total.addmm_(part, matrix)
        return total
    total = store(len(columns[0]), mixing[0].shape[1], columns[0].dtype)
    for start in range(0, len(total), MANY):
        total[start : start + MANY] = times([part[start : start + MANY] for part in columns], mixing)
        store.let_go(total, *columns)
    return total


def _gram_mixing(columns: list[Tensor], scales: list[Tensor]) -> Tensor:
    gram = columns[0].new_zeros(())
    for parts in zip(*(c.split(FEW) for c in columns)):
        joined = torch.cat([part * scale for part, scale in zip(parts, scales)], 1).double()
        gram = gram + joined.T @ joined
    squares, vectors = torch.linalg.eigh(gram)
    keep = squares > CUTOFF**2 * squares[-1:]
    return (vectors[:, keep] / squares[-1:].clamp_min(CUTOFF).sqrt()).to(columns[0].dtype)


def _finder_mixing(columns: list[Tensor], scales: list[Tensor], rank: int, seed: int) -> Tensor:
    width = sum(c.shape[1] for c in columns)
    size = min(rank + 8, width, len(columns[0]))
    draw = torch_rng(seed)
    test = torch.randn(width, size, generator=draw).to(columns[0])
    basis = torch.linalg.qr(_scaled_times(columns, scales, test))[0]
    for _ in range(POWER):
        other = torch.linalg.qr(_transposed_times(columns, scales, basis))[0]
        basis = torch.linalg.qr(_scaled_times(columns, scales, other))[0]
    right, values, _ = torch.linalg.svd(_transposed_times(columns, scales, basis), full_matrices=False)
    count = min(rank, int((values > CUTOFF * values[:1]).sum()))
    return right[:, :count] / values[:1].clamp_min(torch.finfo(values.dtype).tiny)


def _inverse_lengths(columns: list[Tensor]) -> list[Tensor]:
    """Return what scales each column to length one; 0 for columns of zeros, NaN for columns that are not finite."""
    lengths = [sum(part.square().sum(0, dtype=torch.float64) for part in c.split(4096)).sqrt().to(c) for c in columns]
    return [
        torch.where(n > 0, 1 / n, torch.where(n == 0, 0.0, torch.nan)).where(n < torch.inf, torch.nan) for n in lengths
    ]


def _scaled_times(columns: list[Tensor], scales: list[Tensor], right: Tensor) -> Tensor:
    rows = right.split([c.shape[1] for c in columns])
    return times(columns, [scale[:, None] * part for scale, part in zip(scales, rows)])


def _transposed_times(columns: list[Tensor], scales: list[Tensor], left: Tensor) -> Tensor:
    return torch.cat([scale[:, None] * (c.T @ left) for c, scale in zip(columns, scales)])
