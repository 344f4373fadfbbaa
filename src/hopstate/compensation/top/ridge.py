"""What stands for missing rows: a ridge regression of a basis, known at all nodes, on its rows in the batch.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), equations 12-13.
Deviation: a ridge in place of the bare pseudo-inverse, which amplifies errors along directions that carry little.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from hopstate.compensation.top.basis import POWER
from hopstate.random import torch_rng

FIXED_RIDGE = 1e-6  # where there is nothing to choose by, or nothing to choose: many more nodes than columns
RIDGES = tuple(10.0**k for k in range(-8, 2))
PROBES = 16  # random combinations of other embeddings, to choose the ridge by


class LowRankCompensation:
    """left (m, k) @ (right (k, s) @ h[rows]): what stands for m missing rows, or for their sums."""

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
    """What messages of a layer (or of all layers) are expressed by.

    Args:
        values: (n, r) at the nodes that are kept.
        sums: (n, r) its sums over all neighbours there, for the linear form; else (n, 0).
        probe: (n, p) other embeddings, by which the ridge is chosen; p = 0 where there are none.
        probe_sums: (n, p) their sums, as sums.
        width: d, of the messages that it was made of, without axes; None stands for r (as folders of 0.1.0 have it).
    """

    values: Tensor
    sums: Tensor
    probe: Tensor
    probe_sums: Tensor
    width: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor.contiguous() for name, tensor in every.items() if tensor is not None}


def ridge_inverse(known: Tensor, ridge: float) -> Tensor:
    """Return (r, s): argmin_W |known W' - h|^2 + ridge mean(diag) |W'|^2 as a matrix that W' = result @ h.

    Args:
        known: (s, r); may have more columns than rows, or dependent ones.
        ridge: relative to the mean diagonal of the smaller Gram matrix.
    """
    a = known.double()
    wide = a.shape[0] < a.shape[1]
    gram = a @ a.T if wide else a.T @ a
    size = len(gram)
    scale = gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    least = size * torch.finfo(torch.float32 if known.dtype == torch.float32 else torch.float64).eps ** 2
    gram = gram + max(ridge, least) * scale * torch.eye(size, dtype=a.dtype, device=a.device)
    factor = torch.linalg.cholesky(gram)
    solved = a.T @ torch.cholesky_inverse(factor) if wide else torch.cholesky_solve(a.T, factor)
    return solved.to(known.dtype).contiguous()


def best_ridge(known: Tensor, missing: Tensor, probes: Tensor, target: Tensor) -> float:
    """Return the ridge of RIDGES with the least error of missing @ (ridge_inverse(known, ridge) @ probes) from target.

    Args:
        known: (s, r) basis at the nodes that are there.
        missing: (m, r) basis where it is to be predicted.
        probes: (s, p) other embeddings at the nodes that are there.
        target: (m, p) those embeddings where they are to be predicted.
    """
    a, b = known.double(), probes.double()
    wide = a.shape[0] < a.shape[1]
    gram = a @ a.T if wide else a.T @ a
    scale = gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    values, vectors = torch.linalg.eigh(gram)
    coefficients = vectors.T @ (b if wide else a.T @ b)
    spread = (missing.double() @ a.T if wide else missing.double()) @ vectors
    errors = [
        (spread @ (coefficients / (values.clamp_min(0) + ridge * scale)[:, None]) - target).square().sum()
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
