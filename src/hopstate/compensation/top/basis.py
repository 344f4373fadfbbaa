"""Low-rank bases of TOP's basic embeddings.

Columns are scaled to unit length. If there are more columns than the maximum rank, the basis comes from the randomized
range finder with power iterations. Its columns are weighted by their singular values, so a small ridge only affects
directions with little information.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1; Halko,
Martinsson & Tropp 2011, algorithms 4.3 and 5.1.
Deviation: columns are normalized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hopstate.errors import DataError
from hopstate.io.scratch import Scratch
from hopstate.random import torch_rng

FIXED_RIDGE = 1e-6  # where there is nothing to choose by, or nothing to choose: many more nodes than columns
RIDGES = tuple(10.0**k for k in range(-8, 2))
PROBES = 16  # random combinations of other embeddings, to choose the ridge by


class LowRankCompensation:
    """The estimate left (m, k) @ (right (k, s) @ h[rows]) of m missing rows, or of their sums."""

    def __init__(self, left: Tensor, right: Tensor, rows: Tensor | None) -> None:
        self.left, self.right, self.rows = left, right, rows

    def weights(self, h: Tensor) -> Tensor:
        """Return right @ h[rows], (k, d)."""
        return self.right.to(h.dtype) @ (h if self.rows is None else h[self.rows])

    def to(self, device: torch.device | str) -> LowRankCompensation:
        rows = None if self.rows is None else self.rows.to(device)
        return LowRankCompensation(self.left.to(device), self.right.to(device), rows)


@dataclass
class Basis:
    """Basis of the messages of one layer, or of all layers.

    Args:
        values: (n, r) basis at the stored nodes.
        sums: (n, r) sums of the basis over all neighbors, for the linear form; otherwise (n, 0).
        probe: (n, p) other embeddings, to choose the ridge; p = 0 if there are none.
        probe_sums: (n, p) sums of the probes over all neighbors.
        width: d, the message width.
    """

    values: Tensor
    sums: Tensor
    probe: Tensor
    probe_sums: Tensor
    width: int


def ridge_inverse(basis: Tensor, ridge: float) -> Tensor:
    """Return the (r, s) matrix A such that W' = A @ h minimizes |basis W' - h|^2 + ridge mean(diag) |W'|^2.

    The basis (s, r) may have more columns than rows, or linearly dependent ones.
    """
    a = basis.double()
    wide = a.shape[0] < a.shape[1]
    gram = a @ a.T if wide else a.T @ a
    size = len(gram)
    scale = gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    least = size * torch.finfo(torch.float32 if basis.dtype == torch.float32 else torch.float64).eps ** 2
    gram = gram + max(ridge, least) * scale * torch.eye(size, dtype=a.dtype, device=a.device)
    factor = torch.linalg.cholesky(gram)
    solved = a.T @ torch.cholesky_inverse(factor) if wide else torch.cholesky_solve(a.T, factor)
    return solved.to(basis.dtype).contiguous()


def best_ridge(basis: Tensor, missing: Tensor, probes: Tensor, target: Tensor) -> float:
    """Return the ridge in RIDGES that best predicts target by missing @ (ridge_inverse(basis, ridge) @ probes).

    Args:
        basis: (s, r) basis at the nodes of the batch.
        missing: (m, r) basis at the missing nodes.
        probes: (s, p) other embeddings at the nodes of the batch.
        target: (m, p) these embeddings at the missing nodes.
    """
    a, b = basis.double(), probes.double()
    wide = a.shape[0] < a.shape[1]
    gram = a @ a.T if wide else a.T @ a
    scale = gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    values, vectors = torch.linalg.eigh(gram)
    coefficients = vectors.T @ (b if wide else a.T @ b)
    projected = (missing.double() @ a.T if wide else missing.double()) @ vectors
    errors = [
        (projected @ (coefficients / (values.clamp_min(0) + ridge * scale)[:, None]) - target).square().sum()
        for ridge in RIDGES
    ]
    return RIDGES[int(torch.stack(errors).argmin())]


def fit_in_range(
    chosen: Tensor, rows: Tensor | None, missing: Tensor, rank: int, ridge: float, *, seed: int
) -> LowRankCompensation:
    """Equation 12: express missing (m, r) by Q_S^T H_S, Q an orthonormal basis of the range of chosen (b, r)."""
    draw = torch_rng(seed)
    test = torch.randn(chosen.shape[1], min(rank, *chosen.shape), generator=draw)
    q = torch.linalg.qr(chosen @ test.to(chosen))[0]
    for _ in range(POWER):
        q = torch.linalg.qr(chosen @ torch.linalg.qr(chosen.T @ q)[0])[0]
    right = (q if rows is None else q[rows]).T.contiguous()
    known = right @ (chosen if rows is None else chosen[rows])  # (k, r)
    return LowRankCompensation(missing @ ridge_inverse(known, ridge), right, rows)


POWER = 2  # power iterations of the range finder
FEW, MANY = 8192, 1 << 17  # rows at a time: of a Gram matrix, and of columns in files
CUTOFF = 1e-6  # directions with a smaller singular value than this, relative to the largest, are noise


def range_mixing(
    columns: list[Tensor], rank: int, *, seed: int, weights: Sequence[float] | None = None
) -> list[Tensor]:
    """Return (d, r) matrices, r <= rank, that map the joined columns to left singular vectors times singular values.

    Up to rank columns are rotated by the eigenvectors of their Gram matrix; otherwise the range finder is used.

    Args:
        columns: (N, d) tensors, which are joined without a copy.
        rank: maximum rank.
        seed: random seed of the range finder.
        weights: lengths that the columns are scaled to. Default: 1.
    """
    scales = _inverse_lengths(columns)
    if weights is not None:
        scales = [weight * scale for weight, scale in zip(weights, scales)]
    if not all(bool(torch.isfinite(scale).all()) for scale in scales):
        raise DataError("basic embeddings are NaN or infinite. Check the features, or use a normalized model")
    width = sum(c.shape[1] for c in columns)
    mixing = _gram_mixing(columns, scales) if width <= rank else _finder_mixing(columns, scales, rank, seed)
    return [scale[:, None] * rows for scale, rows in zip(scales, mixing.split([c.shape[1] for c in columns]))]


def random_mixing(columns: list[Tensor], count: int, *, seed: int) -> list[Tensor]:
    """Return random (d, count) matrices that mix the joined columns, each scaled to unit length."""
    draw = torch_rng(seed + 1)
    scales = _inverse_lengths(columns)
    return [scale[:, None] * torch.randn(len(scale), count, generator=draw).to(scale) for scale in scales]


def times(columns: list[Tensor], mixing: list[Tensor], store: Scratch | None = None) -> Tensor:
    """Return the joined columns times mixing, without a copy of the columns; store allocates the result."""
    if store is None or store.folder is None:
        total = columns[0].new_zeros(len(columns[0]), mixing[0].shape[1])
        for part, matrix in zip(columns, mixing):
            total.addmm_(part, matrix)
        return total
    total = store(len(columns[0]), mixing[0].shape[1], columns[0].dtype)
    for start in range(0, len(total), MANY):
        total[start : start + MANY] = times([part[start : start + MANY] for part in columns], mixing)
        store.release_pages(total, *columns)
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
    """Return factors that scale each column to unit length; 0 for zero columns, NaN for non-finite ones."""
    lengths = [sum(part.square().sum(0, dtype=torch.float64) for part in c.split(4096)).sqrt().to(c) for c in columns]
    return [
        torch.where(n > 0, 1 / n, torch.where(n == 0, 0.0, torch.nan)).where(n < torch.inf, torch.nan) for n in lengths
    ]


def _scaled_times(columns: list[Tensor], scales: list[Tensor], right: Tensor) -> Tensor:
    rows = right.split([c.shape[1] for c in columns])
    return times(columns, [scale[:, None] * part for scale, part in zip(scales, rows)])


def _transposed_times(columns: list[Tensor], scales: list[Tensor], left: Tensor) -> Tensor:
    return torch.cat([scale[:, None] * (c.T @ left) for c, scale in zip(columns, scales)])
