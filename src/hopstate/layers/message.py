"""Normalized sparse adjacency for message-passing layers.

As in torch-geometric, node v receives from u over an edge (u, v): row v holds v's in-edges, and degrees are (weighted)
in-degrees. Models only call `propagate`. Therefore the same model runs on a full graph, a subgraph, or a batch with
replacements for missing neighbors.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.ops.gated import gated_mean, gated_mean_of_edges

Normalization = Literal["symmetric", "mean", "sum", "edges"]


@runtime_checkable
class Propagator(Protocol):
    """The interface of a graph or batch that models use."""

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return conv's output at the receivers; see `Adjacency.propagate`."""
        ...


@runtime_checkable
class TakesGraph(Protocol):
    """An attention-like layer that can read the graph directly if edges have no features: `layers.edge_layers`."""

    takes_graph: bool
    edge_dim: int | None

    def __call__(self, h: Tensor, graph: Adjacency) -> Tensor:
        """Return (R, F') at the receivers of what the nodes of h (N, F) send."""
        ...


class Adjacency:
    """A graph's CSR adjacency and its lazily computed normalizations.

    "symmetric" is D'^-1/2 A' D'^-1/2, where A' is A with a loop of weight 1 at each node that has none, as `gcn_norm`
    of torch-geometric, except that parallel loops all count (there, the last one). "mean" is D^-1 A (zero rows for
    isolated nodes), and "sum" is A, with edge weights in A and D. Row v holds the weights of v's in-neighbors. "edges"
    gives an edge list with features for layers that compute their own weights, such as attention.

    Args:
        indptr: (R+1,) int64 row pointers of R receivers.
        indices: (E,) int64 senders in 0..N-1.
        num_nodes: N. Default: R.
        receivers: (R,) int64 distinct nodes of the rows. Default: the first R nodes.
        degree: (N,) degrees for the normalization. Default: degrees in these rows.
        added_loops: (N,) 1 for nodes without a loop, otherwise 0. Default: according to these rows.
        scale: (E,) edge factors, such as inverse sampling probabilities.
        weight: (E,) edge weights. Default: 1.
        edge_attr: (E, D) edge features for layers that read edge lists.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_nodes: int | None = None,
        receivers: Tensor | None = None,
        degree: Tensor | None = None,
        added_loops: Tensor | None = None,
        scale: Tensor | None = None,
        weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> None:
        self.indptr, self.indices, self.degree, self.scale = indptr, indices, degree, scale
        self.weight, self.edge_attr, self.added_loops = weight, edge_attr, added_loops
        self.receivers = receivers
        self.num_receivers = len(indptr) - 1
        self.num_nodes = self.num_receivers if num_nodes is None else num_nodes
        self._normalized: dict[tuple[Normalization, torch.dtype], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_normalized": {}}  # torch cannot copy sparse CSR tensors

    @classmethod
    def of(
        cls,
        indptr: np.ndarray,
        indices: np.ndarray,
        *,
        num_nodes: int | None = None,
        receivers: np.ndarray | None = None,
        degree: np.ndarray | None = None,
        added_loops: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        edge_attr: np.ndarray | None = None,
    ) -> Adjacency:
        """Build an adjacency from NumPy CSR arrays such as `data.Graph.incoming`."""
        others = {
            "degree": degree, "added_loops": added_loops, "scale": scale, "weight": weight, "edge_attr": edge_attr,
        }  # fmt: skip
        return cls(
            torch.from_numpy(np.array(indptr, np.int64)),
            torch.from_numpy(np.array(indices, np.int64)),
            num_nodes=num_nodes,
            receivers=None if receivers is None else torch.from_numpy(np.array(receivers, np.int64)),
            **{key: None if a is None else torch.from_numpy(np.array(a, np.float32)) for key, a in others.items()},
        )

    def to(self, device: torch.device | str) -> Adjacency:
        names = ("receivers", "degree", "added_loops", "scale", "weight", "edge_attr")
        others = {name: getattr(self, name) for name in names}
        moved = Adjacency(
            self.indptr.to(device),
            self.indices.to(device),
            num_nodes=self.num_nodes,
            **{name: None if t is None else t.to(device) for name, t in others.items()},
        )
        moved._normalized = {key: matrix.to(device) for key, matrix in self._normalized.items()}
        return moved

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return a torch-geometric layer's output (R, F') at the receivers.

        Args:
            conv: the layer.
            normalization: adjacency that the layer needs; "edges" for an edge list.
            layer: number of the layer in its model, for adjacencies that differ between layers.
            nodes: (N, F) tensors that the layer reads before the edges.
        """
        self._check(conv, normalization)
        if isinstance(conv, TakesGraph) and self.edge_attr is None and conv.edge_dim is None:
            return conv(nodes[0], self)
        matrix = self.normalized_adjacency(normalization, sum_dtype(nodes[0]))
        if normalization == "edges":
            carried = {} if self.edge_attr is None else {"edge_attr": self.edge_attr.to(sum_dtype(nodes[0]))}
            return self.receiver_rows(conv(*nodes, matrix, **carried))
        if not matrix.is_cpu:
            return self._summed(conv, normalization, matrix, *nodes)
        with torch.autocast("cpu", enabled=False):  # no sparse half-precision products on CPU
            return self._summed(conv, normalization, matrix, *(h.to(matrix.dtype) for h in nodes))

    def _summed(self, conv: nn.Module, normalization: Normalization, matrix: Tensor, *nodes: Tensor) -> Tensor:
        if self.num_receivers == self.num_nodes and self.receivers is None:
            return conv(*nodes, matrix)
        from torch_geometric.nn import GCNConv

        if isinstance(conv, GCNConv):  # aggregate first: the linear map then has fewer rows
            return F.linear(conv.propagate(matrix, x=nodes[0], edge_weight=None), conv.lin.weight, conv.bias)
        if normalization == "symmetric":  # GCN2Conv
            return conv(nodes[0], *(self.receiver_rows(h) for h in nodes[1:]), matrix)
        return conv((nodes[0], self.receiver_rows(nodes[0])), matrix)

    def gated_mean(
        self, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return (R, d); see `ops.gated.gated_mean`."""
        return gated_mean(self.indptr, self.indices, a, b, v, c, rows)

    def _check(self, conv: nn.Module, normalization: Normalization) -> None:
        takes = normalization == "edges" and (getattr(conv, "edge_dim", None) is not None or _is_gine(conv))
        if (self.edge_attr is not None and not takes) or (self.weight is not None and normalization != "symmetric"):
            what = "weights" if self.weight is not None else "features"
            raise ConfigError(
                f"{type(conv).__name__} does not support edge {what}; remove them "
                f"(graph.with_(edge_attr=None, edge_weight=None)), or use a model that supports them"
            )

    def receiver_rows(self, h: Tensor) -> Tensor:
        """Return the receivers' rows (R, ...) of h (N, ...)."""
        return h[: self.num_receivers] if self.receivers is None else h[self.receivers]

    def normalized_adjacency(self, normalization: Normalization, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a sparse matrix of a dtype for a normalization, or an edge list."""
        key = normalization, torch.float32 if normalization == "edges" else dtype
        if key not in self._normalized:
            self._normalized[key] = self.edge_index() if normalization == "edges" else self._make(normalization, dtype)
        return self._normalized[key]

    def edge_index(self) -> Tensor:
        """Return (2, E) int64 senders and receivers."""
        rows = self._rows()
        return torch.stack([self.indices, rows if self.receivers is None else self.receivers[rows]])

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(self.indptr.diff())

    def _degree(self, dtype: torch.dtype) -> Tensor:
        if self.degree is not None:
            return self._for_all_nodes(self.degree, 0)
        degree = torch.zeros(self.num_nodes, device=self.indptr.device, dtype=dtype)
        own = self.indptr.diff().to(dtype)
        if self.weight is not None:
            own = torch.zeros_like(own).index_add_(0, self._rows(), self.weight.to(dtype))
        degree[self.receiver_ids()] = own
        return degree

    def _added_loops(self, rows: Tensor) -> Tensor:
        if self.added_loops is not None:
            return self._for_all_nodes(self.added_loops, 1).double()
        added = torch.ones(self.num_nodes, device=self.indptr.device, dtype=torch.float64)
        receivers = self.receiver_ids()[rows]
        return added.index_fill_(0, receivers[receivers == self.indices], 0)

    def _for_all_nodes(self, values: Tensor, missing: int) -> Tensor:
        if len(values) == self.num_nodes:  # avoids a copy of large arrays
            return values
        return torch.cat([values, values.new_full((self.num_nodes - len(values),), missing)])

    def receiver_ids(self) -> Tensor:
        """Return (R,) int64 receiver nodes."""
        return torch.arange(self.num_receivers, device=self.indptr.device) if self.receivers is None else self.receivers

    def _make(self, normalization: Normalization, dtype: torch.dtype) -> Tensor:
        degree, rows, columns, indptr = self._degree(dtype), self._rows(), self.indices, self.indptr
        receiver_degree = degree[self.receiver_ids()].double()
        if normalization == "symmetric":
            added = self._added_loops(rows)
            scale = (degree.double() + added).rsqrt()
            scale = scale.masked_fill(scale.isinf(), 0)  # as gcn_norm: a loop of weight 0 may be a node's only edge
            own_scale = scale[self.receiver_ids()]
            weight = own_scale[rows] * scale[columns]
        else:
            weight = (1 / receiver_degree if normalization == "mean" else torch.ones_like(receiver_degree))[rows]
        if self.weight is not None:
            weight = weight * self.weight
        if self.scale is not None:
            weight = weight * self.scale
        if normalization == "symmetric":
            loop_weight = added[self.receiver_ids()] * own_scale.square()
            indptr, columns, weight = self._with_loops(rows, weight, loop_weight)
        return self._csr(indptr, columns, weight.to(dtype))

    def _with_loops(self, rows: Tensor, weight: Tensor, loop_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (indptr, columns, weights) with weighted self-loops in column order."""
        to, edge = self.receiver_ids(), torch.arange(len(rows), device=rows.device)
        row = torch.arange(self.num_receivers, device=rows.device)
        start = self.indptr[:-1] + torch.bincount(rows[self.indices <= to[rows]], minlength=self.num_receivers)
        place, loops = edge + rows + (edge >= start[rows]), start + row
        columns, joined = self.indices.new_empty(len(edge) + len(row)), weight.new_empty(len(edge) + len(row))
        columns[place], joined[place] = self.indices, weight
        columns[loops], joined[loops] = to, loop_weight
        return self.indptr + torch.arange(len(self.indptr), device=rows.device), columns, joined

    def _csr(self, indptr: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        kind = torch.int32 if max(self.num_nodes, len(columns)) < 2**31 else torch.int64  # dtype of the sparse products
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                indptr.to(kind),
                columns.to(kind),
                values,
                (self.num_receivers, self.num_nodes),
                check_invariants=False,
            )


def sum_dtype(h: Tensor) -> torch.dtype:
    """Return the dtype of sums over h: float64 for float64, otherwise float32."""
    return torch.float64 if h.dtype == torch.float64 else torch.float32


def _is_gine(conv: nn.Module) -> bool:
    from torch_geometric.nn import GINEConv

    return isinstance(conv, GINEConv)


class EdgeList(Adjacency):
    """An adjacency given as an unordered edge list, in which all nodes receive.

    Args:
        edges: (2, E) int64 senders and receivers.
        num_nodes: N.
        weight: (E,) edge weights. Default: 1.
        attr: (E, D) edge features.
    """

    def __init__(self, edges: Tensor, num_nodes: int, weight: Tensor | None = None, attr: Tensor | None = None) -> None:
        self.edges, self.num_nodes, self.weight, self.edge_attr = edges, num_nodes, weight, attr

    def edge_index(self) -> Tensor:
        """Return (2, E) int64 senders and receivers."""
        return self.edges

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return a layer's output (N, F') at all nodes; see `Adjacency.propagate`."""
        if normalization == "symmetric":
            from torch_geometric.nn.conv.gcn_conv import gcn_norm

            weight = None if self.weight is None else self.weight.to(nodes[0].dtype)
            edges, weight = gcn_norm(self.edges, weight, self.num_nodes, dtype=nodes[0].dtype)
            return conv(*nodes, edges, weight)
        if normalization == "mean":  # SAGEConv
            ones = nodes[0].new_ones(self.edges.shape[1])
            degree = nodes[0].new_zeros(self.num_nodes).index_add(0, self.edges[1], ones)
            sage: Any = conv
            total = sage.propagate(self.edges, x=(nodes[0], nodes[0]), size=None)
            return sage.lin_l(total / degree.clamp(min=1)[:, None]) + sage.lin_r(nodes[0])
        return conv(*nodes, self.edges, **({} if self.edge_attr is None else {"edge_attr": self.edge_attr}))

    def gated_mean(
        self, a: Tensor, b: Tensor, v: Tensor, c: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return (N, d); see `ops.gated.gated_mean`. c follows the order of the edge list."""
        a, b, v = (a, b, v) if rows is None else (a[rows], b[rows], v[rows])
        mask = getattr(self.edges, "message_mask", None)  # of an explainer
        return gated_mean_of_edges(self.edges[1], self.edges[0], a, b, v, c, mask)
