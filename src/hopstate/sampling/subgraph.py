"""Mini-batches of graphs: features, adjacency, loss rows and loss weights."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import DataError
from hopstate.io.scratch import mapping_of, release_pages
from hopstate.layers.message import Adjacency, Normalization, Propagator
from hopstate.ops.rows import bounds_of, ranges
from hopstate.ops.sampling import LocalGraph, Neighborhoods
from hopstate.sampling.samplers import LayerSampler, NodeSampler, NodeSet, SaintSampler, ShadowSampler, cutter_of

LARGE, FEW = 2 << 30, 4096  # larger memory-mapped features (bytes) are read in blocks of this many rows


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Input of one training step.

    Args:
        x: (n, F) node features that the model reads.
        graph: adjacency for message passing.
        nodes: (r,) int64 graph rows of the model's output rows.
        rows: (t,) int64 output rows with a loss.
        weight: (t,) loss weights for a mean over the training nodes, or None for equal weights.
    """

    x: Tensor
    graph: Propagator
    nodes: np.ndarray
    rows: Tensor
    weight: Tensor | None = None


class BatchSource(ABC):
    """Makes batches; each depends only on (epoch, number)."""

    @abstractmethod
    def num_batches(self, epoch: int) -> int: ...

    @abstractmethod
    def batch(self, epoch: int, number: int) -> GraphBatch: ...


class Compensation(ABC):
    """Replaces the messages of neighbors outside a batch."""

    @abstractmethod
    def propagator(self, graph: Graph, cutter: Neighborhoods, nodes: np.ndarray) -> Propagator:
        """Return the adjacency for a batch of nodes (distinct rows of the graph)."""

    def row_bytes(self) -> int:
        """Return the bytes per node that a batch reads from files; 0 if everything is in memory."""
        return 0

    def prefetch(self, nodes: np.ndarray) -> None:  # noqa: B027
        """Load the file contents for nodes (n,), sorted, and release those loaded before."""


class EmptySource(BatchSource):
    """No batches: for finished runs, which need no training batches."""

    def num_batches(self, epoch: int) -> int:
        return 0

    def batch(self, epoch: int, number: int) -> GraphBatch:
        raise IndexError(f"batch {number} does not exist")


class LayeredAdjacency:
    """A separate adjacency for each layer; the receivers of one layer are the nodes of the next.

    Args:
        layers: adjacency of layer 0, 1, ...
    """

    def __init__(self, layers: list[Adjacency]) -> None:
        self.layers = layers

    def to(self, device: torch.device | str) -> LayeredAdjacency:
        return LayeredAdjacency([layer.to(device) for layer in self.layers])

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return the output at the receivers of the layer."""
        return self.layers[layer].propagate(conv, normalization, layer, *nodes)


class PrefetchedRows:
    """Copies of some rows of memory-mapped arrays."""

    def __init__(self) -> None:
        self._copies: tuple[np.ndarray, dict[int, Tensor]] = (np.empty(0, np.int64), {})

    def read(self, rows: np.ndarray, arrays: Sequence[Tensor], take: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Copy rows and release those copied before.

        Args:
            rows: (n,) sorted rows.
            arrays: (N, d) arrays.
            take: (array, rows) to a copy of the rows.
        """
        self.forget()
        place = torch.from_numpy(rows)
        self._copies = rows, {array.data_ptr(): take(array, place) for array in arrays if array.numel()}

    def forget(self) -> None:
        self._copies = (np.empty(0, np.int64), {})

    def of(self, array: Tensor, rows: Tensor) -> Tensor | None:
        """Return the copy of some rows of an array; None if any row was not copied."""
        copied, copies = self._copies
        copy = copies.get(array.data_ptr())
        if copy is None:
            return None
        wanted_rows = rows.numpy()
        at = np.searchsorted(copied, wanted_rows)
        at[at == len(copied)] = 0
        return copy[torch.from_numpy(at)] if np.array_equal(copied[at], wanted_rows) else None


class PrefetchedNodeSets:
    """Draws the node sets of several batches at a time and prefetches their data.

    Args:
        sampler: draws the node sets.
        max_nodes: returns the approximate number of nodes to prefetch; at least one node set is drawn.
        read: called with the distinct nodes (n,), sorted, if several node sets were drawn.
    """

    def __init__(self, sampler: NodeSampler, max_nodes: Callable[[], int], read: Callable[[np.ndarray], None]) -> None:
        self.sampler, self.max_nodes, self.read = sampler, max_nodes, read
        self._drawn: tuple[int, dict[int, NodeSet]] = -1, {}  # epoch and its node sets

    def __call__(self, epoch: int, number: int) -> NodeSet:
        drawn, sets = self._drawn
        if epoch != drawn or number not in sets:
            sets = self._draw_chunk(epoch, number)
            self._drawn = epoch, sets
        return sets[number]

    def _draw_chunk(self, epoch: int, number: int) -> dict[int, NodeSet]:
        sets = {number: self.sampler.node_set(epoch, number)}
        size = largest = len(sets[number].nodes)
        max_nodes = self.max_nodes()
        for later in range(number + 1, self.sampler.num_batches(epoch)):
            if size + largest > max_nodes:
                break
            sets[later] = self.sampler.node_set(epoch, later)
            count = len(sets[later].nodes)
            size, largest = size + count, max(largest, count)
        if len(sets) > 1:
            self.read(np.unique(np.concatenate([one.nodes for one in sets.values()])))
        return sets


class NodeSetSource(BatchSource):
    """Batches of node sets: induced subgraphs, compensated subgraphs, or subgraphs with historical embeddings (GAS).

    Args:
        graph: the full graph.
        sampler: draws the node sets.
        train: (t,) rows with a loss.
        compensation: replaces out-of-batch neighbors, for example a `Top` or a `GasCache`. Default: ignore them.
        prefetch_bytes: bytes to read at a time from large files. Default: 0, batch by batch.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: NodeSampler,
        train: np.ndarray,
        compensation: Compensation | None = None,
        *,
        prefetch_bytes: int = 0,
    ) -> None:
        self.graph, self.sampler, self.compensation, self.prefetch_bytes = graph, sampler, compensation, prefetch_bytes
        self._x = all_features(graph) if graph.x is not None and _is_large_file(graph.x) else None
        self._prefetched = PrefetchedRows()
        self._sets = PrefetchedNodeSets(sampler, self._max_prefetched_nodes, self._prefetch)
        self.is_train = np.zeros(graph.num_nodes, bool)
        self.is_train[train] = True
        self.cutter = cutter_of(graph)

    def num_batches(self, epoch: int) -> int:
        return self.sampler.num_batches(epoch)

    def batch(self, epoch: int, number: int) -> GraphBatch:
        chosen = self._sets(epoch, number)
        rows = np.flatnonzero(self.is_train[chosen.nodes])
        weight = None
        if chosen.loss_weight is not None:
            weight = torch.from_numpy(chosen.loss_weight[rows]) / max(1, int(self.is_train.sum()))
        x = None if self._x is None else self._prefetched.of(self._x, torch.from_numpy(chosen.nodes))
        x = features(self.graph, chosen.nodes) if x is None else x
        return GraphBatch(x, self.propagator(chosen), chosen.nodes, torch.from_numpy(rows), weight)

    def _max_prefetched_nodes(self) -> int:
        size = 0 if self._x is None else 4 * self._x.shape[1]
        if self.compensation is not None:
            size += self.compensation.row_bytes()
        return self.prefetch_bytes // size if size else 0

    def _prefetch(self, nodes: np.ndarray) -> None:
        if self._x is not None:
            self._prefetched.read(nodes, [self._x], lambda _, rows: features(self.graph, rows.numpy()))
        if self.compensation is not None:
            self.compensation.prefetch(nodes)

    def propagator(self, chosen: NodeSet) -> Propagator:
        """Return the adjacency for the nodes of a batch."""
        if self.compensation is not None:
            return self.compensation.propagator(self.graph, self.cutter, chosen.nodes)
        local = self.cutter.induced(chosen.nodes)
        if isinstance(self.sampler, SaintSampler):
            assert local.edges is not None
            return sampled_adjacency(self.graph, local, scale=self.sampler.edge_scale(local.edges))
        return induced_adjacency(self.graph, local)


SamplerT = TypeVar("SamplerT", LayerSampler, ShadowSampler)


class SeedSource(BatchSource, Generic[SamplerT]):
    """Batches of seed nodes with sampled neighborhoods; all seeds have a loss.

    Args:
        graph: the full graph.
        sampler: draws seeds and neighborhoods.
    """

    def __init__(self, graph: Graph, sampler: SamplerT) -> None:
        self.graph = graph
        self.sampler: SamplerT = sampler

    def num_batches(self, epoch: int) -> int:
        return self.sampler.num_batches(epoch)

    def seeds(self, epoch: int, number: int) -> np.ndarray:
        """Return the seeds of one batch."""
        return self.sampler.seeds.node_set(epoch, number).nodes

    def batch(self, epoch: int, number: int) -> GraphBatch:
        return self.seed_batch(self.seeds(epoch, number), epoch, number)

    @abstractmethod
    def seed_batch(self, seeds: np.ndarray, epoch: int, number: int) -> GraphBatch:
        """Return a batch for the given distinct seeds, in their order."""


class LayerSource(SeedSource[LayerSampler]):
    """Batches of seeds with sampled neighbors for each layer (GraphSAGE, LABOR)."""

    def seed_batch(self, seeds: np.ndarray, epoch: int, number: int) -> GraphBatch:
        layers = self.sampler.layers(epoch, number, seeds)
        graph = LayeredAdjacency([sampled_adjacency(self.graph, local) for local in layers])
        return GraphBatch(features(self.graph, layers[0].nodes), graph, seeds, torch.arange(len(seeds)))


class ShadowSource(SeedSource[ShadowSampler]):
    """Batches of seeds, each with its own small subgraph (ShaDow)."""

    def seed_batch(self, seeds: np.ndarray, epoch: int, number: int) -> GraphBatch:
        local, roots = self.sampler.subgraphs(epoch, number, seeds)
        graph = induced_adjacency(self.graph, local)
        return GraphBatch(features(self.graph, local.nodes), graph, local.nodes, torch.from_numpy(roots))


def full_graph(graph: Graph) -> tuple[Tensor, Adjacency]:
    return all_features(graph), full_adjacency(graph)


def row_blocks(graph: Graph, size: int, *, halo: bool = False) -> Iterator[tuple[np.ndarray | None, Adjacency]]:
    """Yield consecutive blocks of rows for layer-wise inference.

    Args:
        graph: the graph.
        size: rows per block.
        halo: yield local adjacencies over the block's nodes and their neighbors, to limit the memory.

    Yields:
        (nodes, adjacency): the block's nodes followed by their neighbors. Without halo, nodes is None, and the
        adjacency is over all nodes.
    """
    cutter = cutter_of(graph) if halo else None
    degree = torch.from_numpy(graph.incoming.degree)
    for start in range(0, graph.num_nodes, size):
        rows = np.arange(start, min(start + size, graph.num_nodes))
        if cutter is None:
            yield None, rows_adjacency(graph, rows, degree)
        else:
            local = cutter.induced(rows, halo=True)
            yield local.nodes, sampled_adjacency(graph, local)


def features(graph: Graph, nodes: np.ndarray) -> Tensor:
    """Return a (n, F) copy of the features of nodes; of a memory-mapped array only these rows are read."""
    x = graph.x
    if x is None:
        raise DataError(f"{graph.name} has no node features")
    if not _is_large_file(x):
        return torch.from_numpy(np.array(x[nodes], np.float32))
    out = np.empty((len(nodes), x.shape[1]), np.float32)
    for start in range(0, len(nodes), FEW):  # limits the pages that the system maps around these rows
        out[start : start + FEW] = x[nodes[start : start + FEW]]
        release_pages(x)
    return torch.from_numpy(out)


def _is_large_file(x: np.ndarray) -> bool:
    return x.nbytes > LARGE and mapping_of(x) is not None


def all_features(graph: Graph) -> Tensor:
    """Return the (N, F) features of all nodes without a copy; do not write to them."""
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(graph.x))


def full_adjacency(graph: Graph) -> Adjacency:
    into = graph.incoming
    everything = slice(None)
    return Adjacency.of(
        into.indptr, into.indices, weight=into.weight_of(everything), edge_attr=into.attr_of(everything)
    )


def induced_adjacency(graph: Graph, local: LocalGraph) -> Adjacency:
    return Adjacency.of(local.indptr, local.indices, num_nodes=len(local.nodes), **_edge_data(graph, local))


def sampled_adjacency(graph: Graph, local: LocalGraph, *, scale: np.ndarray | None = None) -> Adjacency:
    """Return the adjacency of a sampled graph, normalized by the degrees of the full graph.

    Args:
        graph: the full graph.
        local: the sampled graph.
        scale: (e,) factors of the edges. Default: 1 / sampling probability.
    """
    return Adjacency.of(
        local.indptr,
        local.indices,
        num_nodes=len(local.nodes),
        degree=graph.incoming.degree[local.nodes],
        added_loops=graph.incoming.added_loops[local.nodes],
        scale=local.weight if scale is None else scale,
        **_edge_data(graph, local),
    )


def rows_adjacency(graph: Graph, rows: np.ndarray, degree: Tensor) -> Adjacency:
    """Return the adjacency of sorted rows (r,) over all nodes, normalized by the degrees (N,) of the full graph."""
    into = graph.incoming
    counts = into.count[rows]
    indptr = bounds_of(counts)
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        edges: slice | np.ndarray = slice(into.indptr[rows[0]], into.indptr[rows[-1] + 1])
    else:
        edges = ranges(into.indptr[rows], counts)
    tensors = (torch.from_numpy(np.array(array, np.int64)) for array in (indptr, into.indices[edges], rows))
    starts, columns, receivers = tensors
    weight, attr = into.weight_of(edges), into.attr_of(edges)
    return Adjacency(
        starts,
        columns,
        num_nodes=graph.num_nodes,
        receivers=receivers,
        degree=degree,
        added_loops=torch.from_numpy(into.added_loops),
        weight=None if weight is None else torch.from_numpy(np.array(weight)),
        edge_attr=None if attr is None else torch.from_numpy(np.array(attr)),
    )


def _edge_data(graph: Graph, local: LocalGraph) -> dict[str, np.ndarray | None]:
    into = graph.incoming
    if into.rows is None:
        return {}
    assert local.edges is not None
    return {"weight": into.weight_of(local.edges), "edge_attr": into.attr_of(local.edges)}
