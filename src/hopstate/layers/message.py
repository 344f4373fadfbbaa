"""The adjacency that message-passing layers sum over: sparse CSR matrices weighted once for the whole graph.

A model calls `convolve` for each of its message-passing layers, and nothing else of a graph: what stands behind it may
be the whole graph, a subgraph, or a batch whose missing neighbours are replaced by something.
"""

from __future__ import annotations

import warnings
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
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
        num_nodes: N; by default R.
        receivers: (R,) int64 distinct nodes whose rows these are, the others only send; by default the first R.
        degree: (N,) degrees that weights are made from; by default entries of each row (of a subgraph, then).
        scale: (E,) factors of the edges, such as 1 / probability that an edge was sampled.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_nodes: int | None = None,
        receivers: Tensor | None = None,
        degree: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> None:
        self.indptr, self.indices, self.degree, self.scale = indptr, indices, degree, scale
        self.receivers = receivers
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
        receivers: np.ndarray | None = None,
        degree: np.ndarray | None = None,
        scale: np.ndarray | None = None,
    ) -> Adjacency:
        """Return the adjacency of CSR arrays, as `data.Graph` holds them."""
        return cls(
            torch.from_numpy(np.array(indptr, np.int64)),
            torch.from_numpy(np.array(indices, np.int64)),
            num_nodes=num_nodes,
            receivers=None if receivers is None else torch.from_numpy(np.array(receivers, np.int64)),
            degree=None if degree is None else torch.from_numpy(np.array(degree, np.float32)),
            scale=None if scale is None else torch.from_numpy(np.array(scale, np.float32)),
        )

    def to(self, device: torch.device | str) -> Adjacency:
        """Return the adjacency on a device."""
        move = [None if t is None else t.to(device) for t in (self.receivers, self.degree, self.scale)]
        moved = Adjacency(
            self.indptr.to(device),
            self.indices.to(device),
            num_nodes=self.num_nodes,
            receivers=move[0],
            degree=move[1],
            scale=move[2],
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
        form = self.form(weighting)
        if weighting == "edges":
            return self.own(conv(*nodes, form))
        if self.num_receivers == self.num_nodes and self.receivers is None:
            return conv(*nodes, form)
        from torch_geometric.nn import GCNConv

        if isinstance(conv, GCNConv):  # its sum first and its linear map after: fewer rows to map
            return F.linear(conv.propagate(form, x=nodes[0], edge_weight=None), conv.lin.weight, conv.bias)
        if weighting == "symmetric":  # GCN2Conv
            return conv(nodes[0], *(self.own(h) for h in nodes[1:]), form)
        return conv((nodes[0], self.own(nodes[0])), form)

    def own(self, h: Tensor) -> Tensor:
        """Return (R, ...): the receivers' rows of h (N, ...)."""
        return h[: self.num_receivers] if self.receivers is None else h[self.receivers]

    def form(self, weighting: Weighting) -> Tensor:
        """Return what a layer of this weighting takes: a sparse matrix, or the list of edges."""
        if weighting not in self._forms:
            self._forms[weighting] = self.edge_index() if weighting == "edges" else self._make(weighting)
        return self._forms[weighting]

    def edge_index(self) -> Tensor:
        """Return (2, E) int64: senders above receivers."""
        rows = self._rows()
        return torch.stack([self.indices, rows if self.receivers is None else self.receivers[rows]])

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(self.indptr.diff())

    def _degree(self) -> Tensor:
        if self.degree is not None:
            return torch.cat([self.degree, self.degree.new_zeros(self.num_nodes - len(self.degree))])
        degree = torch.zeros(self.num_nodes, device=self.indptr.device)
        degree[self._receivers()] = self.indptr.diff().float()
        return degree

    def _receivers(self) -> Tensor:
        return torch.arange(self.num_receivers, device=self.indptr.device) if self.receivers is None else self.receivers

    def _make(self, weighting: Weighting) -> Tensor:
        degree, rows, columns, indptr = self._degree(), self._rows(), self.indices, self.indptr
        own = degree[self._receivers()].double()
        if weighting == "symmetric":
            weight = (own + 1).rsqrt()[rows] * (degree[columns].double() + 1).rsqrt()
        else:
            weight = (1 / own if weighting == "mean" else torch.ones_like(own))[rows]
        if self.scale is not None:
            weight = weight * self.scale
        if weighting == "symmetric":
            indptr, columns, weight = self._with_loops(rows, weight, 1 / (own + 1))
        return self._csr(indptr, columns, weight)

    def _with_loops(self, rows: Tensor, weight: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (indptr, columns, weights) with self-loops of the given weights, in order where columns are."""
        to, edge = self._receivers(), torch.arange(len(rows), device=rows.device)
        row = torch.arange(self.num_receivers, device=rows.device)
        start = self.indptr[:-1] + torch.bincount(rows[self.indices <= to[rows]], minlength=self.num_receivers)
        place, loops = edge + rows + (edge >= start[rows]), start + row
        columns, joined = self.indices.new_empty(len(edge) + len(row)), weight.new_empty(len(edge) + len(row))
        columns[place], joined[place] = self.indices, weight
        columns[loops], joined[loops] = to, own
        return self.indptr + torch.arange(len(self.indptr), device=rows.device), columns, joined

    def _csr(self, indptr: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        kind = torch.int32 if max(self.num_nodes, len(columns)) < 2**31 else torch.int64  # what the products take
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                indptr.to(kind),
                columns.to(kind),
                values.float(),
                (self.num_receivers, self.num_nodes),
                check_invariants=False,
            )
