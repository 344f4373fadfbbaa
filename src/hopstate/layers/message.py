"""The adjacency that message-passing layers sum over: sparse CSR matrices weighted once for the whole graph."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Weighting = Literal["symmetric", "mean", "sum"]


class Adjacency:
    """A graph's CSR adjacency and its weighted forms; each is made when first asked for and kept.

    Forms: "symmetric" is (D+I)^-1/2 (A+I) (D+I)^-1/2, "mean" is D^-1 A (zero rows where a node has no edge),
    "sum" is A. Row v holds the weights by which v sums what its neighbours send.

    Args:
        indptr: (N+1,) int64.
        indices: (E,) int64.
    """

    def __init__(self, indptr: Tensor, indices: Tensor, _forms: dict[str, Tensor] | None = None) -> None:
        self.indptr, self.indices = indptr, indices
        self._forms = _forms or {}

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray) -> Adjacency:
        """Return the adjacency of CSR arrays, as `data.Graph` holds them."""
        return cls(torch.from_numpy(np.array(indptr, np.int64)), torch.from_numpy(np.array(indices, np.int64)))

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    def to(self, device: torch.device | str) -> Adjacency:
        """Return the adjacency on a device."""
        forms = {name: form.to(device) for name, form in self._forms.items()}
        return Adjacency(self.indptr.to(device), self.indices.to(device), forms)

    def edge_index(self) -> Tensor:
        """Return (2, E) int64: senders above receivers."""
        return torch.stack([self.indices, self._rows()])

    def weighted(self, weighting: Weighting) -> Tensor:
        """Return a form as an (N, N) float32 sparse CSR tensor."""
        if weighting not in self._forms:
            self._forms[weighting] = self._make(weighting)
        return self._forms[weighting]

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(self.indptr.diff())

    def _make(self, weighting: Weighting) -> Tensor:
        degree = self.indptr.diff().double()
        if weighting == "symmetric":
            own = torch.arange(self.num_nodes, device=self.indices.device)
            rows, cols = torch.cat([self._rows(), own]), torch.cat([self.indices, own])
            scale = (degree + 1).rsqrt()
            return self._csr(rows, cols, scale[rows] * scale[cols])
        weight = 1 / degree if weighting == "mean" else torch.ones_like(degree)
        return self._csr(self._rows(), self.indices, weight[self._rows()])

    def _csr(self, rows: Tensor, cols: Tensor, values: Tensor) -> Tensor:
        order = torch.argsort(rows * self.num_nodes + cols, stable=True)
        indptr = torch.zeros(self.num_nodes + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(torch.bincount(rows, minlength=self.num_nodes), 0, out=indptr[1:])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                indptr, cols[order], values[order].float(), (self.num_nodes, self.num_nodes), check_invariants=False
            )
