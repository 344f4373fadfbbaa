"""The adjacency that message-passing layers sum over: sparse CSR matrices weighted once for the whole graph.

A model calls `convolve` for each of its message-passing layers, and nothing else of a graph: what stands behind it may
be the whole graph, a subgraph, or a batch whose missing neighbours are replaced by something.
"""

from __future__ import annotations

import warnings
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

Weighting = Literal["symmetric", "mean", "sum", "edges"]


@runtime_checkable
class Convolver(Protocol):
    """What a model may ask of a graph or batch."""

    def convolve(self, conv: nn.Module, weighting: Weighting, layer: int, *nodes: Tensor) -> Tensor:
        """Return conv's output at the receivers; see `Adjacency.convolve`."""
        ...


class Adjacency:
    """A graph's CSR adjacency and its weighted forms; each is made when first asked for and kept.

    Forms: "symmetric" is (D+I)^-1/2 (A+I) (D+I)^-1/2, "mean" is D^-1 A (zero rows where a node has no edge),
    "sum" is A. Row v holds the weights by which v sums what its neighbours send. "edges" stands for layers that weigh
    edges themselves (attention, say) and take a list of them.

    Args:
        indptr: (R+1,) int64, R receivers.
        indices: (E,) int64 in 0..N-1.
        num_nodes: N; the receivers are the first R of them, the others only send. By default R.
        degree: (N,) degrees that weights are made from; by default entries of each row (of a subgraph, then).
        scale: (E,) factors of the edges, such as 1 / probability that an edge was sampled.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_nodes: int | None = None,
        degree: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> None:
        self.indptr, self.indices, self.degree, self.scale = indptr, indices, degree, scale
        self.num_receivers = len(indptr) - 1
        self.num_nodes = self.num_receivers if num_nodes is None else num_nodes
        self._forms: dict[str, Tensor] = {}

    @classmethod
    def of(
        cls,
        indptr: np.ndarray,
        indices: np.ndarray,
        *,
        num_nodes: int | None = None,
        degree: np.ndarray | None = None,
        scale: np.ndarray | None = None,
    ) -> Adjacency:
        """Return the adjacency of CSR arrays, as `data.Graph` holds them."""
        return cls(
            torch.from_numpy(np.array(indptr, np.int64)),
            torch.from_numpy(np.array(indices, np.int64)),
            num_nodes=num_nodes,
            degree=None if degree is None else torch.from_numpy(np.array(degree, np.float32)),
            scale=None if scale is None else torch.from_numpy(np.array(scale, np.float32)),
        )

    def to(self, device: torch.device | str) -> Adjacency:
        """Return the adjacency on a device."""
        move = [None if t is None else t.to(device) for t in (self.degree, self.scale)]
        moved = Adjacency(
            self.indptr.to(device),
            self.indices.to(device),
            num_nodes=self.num_nodes,
            degree=move[0],
            scale=move[1],
        )
        moved._forms = {name: form.to(device) for name, form in self._forms.items()}
        return moved

    def convolve(self, conv: nn.Module, weighting: Weighting, layer: int, *nodes: Tensor) -> Tensor:
        """Return (R, F'): a torch-geometric layer's output at the receivers.

        Args:
            conv: the layer.
            weighting: the form it sums over; "edges" where it takes a list of edges.
            layer: number of the layer in its model, for adjacencies that differ between layers.
            nodes: (N, F) tensors that the layer takes before the edges.
        """
        return conv(*nodes, self.form(weighting))[: self.num_receivers]

    def form(self, weighting: Weighting) -> Tensor:
        """Return what a layer of this weighting takes: a sparse matrix, or the list of edges."""
        if weighting not in self._forms:
            self._forms[weighting] = self.edge_index() if weighting == "edges" else self._make(weighting)
        return self._forms[weighting]

    def edge_index(self) -> Tensor:
        """Return (2, E) int64: senders above receivers."""
        return torch.stack([self.indices, self._rows()])

    def weighted(self, weighting: Weighting) -> Tensor:
        """Return a form as an (N, N) float32 sparse CSR tensor."""
        return self.form(weighting)

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(self.indptr.diff())

    def _degree(self) -> Tensor:
        own = self.indptr.diff() if self.degree is None else self.degree
        return torch.cat([own.double(), own.new_zeros(self.num_nodes - len(own)).double()])

    def _make(self, weighting: Weighting) -> Tensor:
        degree, rows, columns = self._degree(), self._rows(), self.indices
        if weighting == "symmetric":
            inverse = (degree + 1).rsqrt()
            weight = inverse[rows] * inverse[columns]
        else:
            weight = 1 / degree[rows] if weighting == "mean" else torch.ones_like(degree)[rows]
        if self.scale is not None:
            weight = weight * self.scale
        if weighting == "symmetric":
            own = torch.arange(self.num_nodes, device=rows.device)
            rows, columns = torch.cat([rows, own]), torch.cat([columns, own])
            weight = torch.cat([weight, 1 / (degree + 1)])
        return self._csr(rows, columns, weight)

    def _csr(self, rows: Tensor, cols: Tensor, values: Tensor) -> Tensor:
        order = torch.argsort(rows * self.num_nodes + cols, stable=True)
        indptr = torch.zeros(self.num_nodes + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(torch.bincount(rows, minlength=self.num_nodes), 0, out=indptr[1:])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                indptr, cols[order], values[order].float(), (self.num_nodes, self.num_nodes), check_invariants=False
            )
