"""From sampled nodes to what a model and its loss take: features, an adjacency, rows that count, weights."""

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

LARGE, FEW = 2 << 30, 4096  # bytes of features beyond which, where they are mapped, so many rows are read at a time


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """One step's input.

    Args:
        x: (n, F) features of the nodes that the model reads.
        graph: what it convolves over.
        nodes: (r,) int64 rows of the graph that the model's output rows are for.
        rows: (t,) int64 output rows that the loss looks at.
        weight: (t,) their weights in a mean over training nodes, or None where all count alike.
    """

    x: Tensor
    graph: Propagator
    nodes: np.ndarray
    rows: Tensor
    weight: Tensor | None = None


class BatchSource(ABC):
    """Makes batches; a batch depends on (epoch, number) alone."""

    @abstractmethod
    def num_batches(self, epoch: int) -> int: ...

    @abstractmethod
    def batch(self, epoch: int, number: int) -> GraphBatch: ...


class Compensation(ABC):
    """What stands for the neighbours that a batch lacks."""

    @abstractmethod
    def propagator(self, graph: Graph, cutter: Neighborhoods, nodes: np.ndarray) -> Propagator:
        """Return what a model convolves over in a batch of nodes (distinct rows of the graph)."""

    def row_bytes(self) -> int:
        """Return the bytes of a node that a batch takes from files; 0 where all is in memory."""
        return 0

    def read_ahead(self, nodes: np.ndarray) -> None:  # noqa: B027
        """Hold what batches take from files of nodes (n,), ascending, in place of what was held."""


class NoBatches(BatchSource):
    """Of a finished run: nothing is trained any more, so that the graph need not be cut."""

    def num_batches(self, epoch: int) -> int:
        return 0

    def batch(self, epoch: int, number: int) -> GraphBatch:
        raise IndexError(f"there is no batch {number}")


class Layered:
    """Another adjacency for every layer, each over fewer nodes than the one before.

    Args:
        layers: the adjacency of layer 0, 1, ...; the receivers of one are the nodes of the next.
    """

    def __init__(self, layers: list[Adjacency]) -> None:
        self.layers = layers

    def to(self, device: torch.device | str) -> Layered:
        return Layered([layer.to(device) for layer in self.layers])

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return the output at this layer's receivers."""
        return self.layers[layer].propagate(conv, normalization, layer, *nodes)


class RowsAhead:
    """Copies of some rows of arrays, given back to the bit."""

    def __init__(self) -> None:
        self._held: tuple[np.ndarray, dict[int, Tensor]] = (np.empty(0, np.int64), {})

    def read(self, rows: np.ndarray, arrays: Sequence[Tensor], take: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Hold rows (n,), ascending, of arrays (N, d) in place of what was held; take copies them."""
        self.forget()  # before more is taken
        place = torch.from_numpy(rows)
        self._held = rows, {array.data_ptr(): take(array, place) for array in arrays if array.numel()}

    def forget(self) -> None:
        """Hold nothing."""
        self._held = (np.empty(0, np.int64), {})

    def of(self, array: Tensor, rows: Tensor) -> Tensor | None:
        known, held = self._held
        found = held.get(array.data_ptr())
        if found is None:
            return None
        wanted = rows.numpy()
        at = np.searchsorted(known, wanted)
        at[at == len(known)] = 0
        return found[torch.from_numpy(at)] if np.array_equal(known[at], wanted) else None


class SetsAhead:
    """Node sets of an epoch, drawn some at a time; `read` is told the nodes of each such lot.

    Args:
        sampler: draws them.
        room: returns how many nodes a lot may have, about; at least one set is drawn.
        read: called with the distinct nodes (n,), ascending, of a lot of several sets.
    """

    def __init__(self, sampler: NodeSampler, room: Callable[[], int], read: Callable[[np.ndarray], None]) -> None:
        self.sampler, self.room, self.read = sampler, room, read
        self._drawn: tuple[int, dict[int, NodeSet]] = -1, {}  # an epoch and sets of it

    def __call__(self, epoch: int, number: int) -> NodeSet:
        drawn, sets = self._drawn
        if epoch != drawn or number not in sets:
            sets = self._lot(epoch, number)
            self._drawn = epoch, sets
        return sets[number]

    def _lot(self, epoch: int, number: int) -> dict[int, NodeSet]:
        sets = {number: self.sampler.node_set(epoch, number)}
        size = most = len(sets[number].nodes)
        room = self.room()
        for later in range(number + 1, self.sampler.num_batches(epoch)):
            if size + most > room:
                break
            sets[later] = self.sampler.node_set(epoch, later)
            count = len(sets[later].nodes)
            size, most = size + count, max(most, count)
        if len(sets) > 1:
            self.read(np.unique(np.concatenate([one.nodes for one in sets.values()])))
        return sets


class NodeSetSource(BatchSource):
    """Batches of node sets: plain induced subgraphs, compensated ones, or ones with a cache (GAS).

    Args:
        graph: the whole graph.
        sampler: draws the node sets.
        train: (t,) rows whose loss counts.
        missing: what stands for out-of-batch neighbours, such as a `Top` or a `GasCache`; None leaves them out.
        ahead: bytes of rows in large files that are read for several batches at once.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: NodeSampler,
        train: np.ndarray,
        missing: Compensation | None = None,
        *,
        ahead: int = 0,
    ) -> None:
        self.graph, self.sampler, self.missing, self.ahead = graph, sampler, missing, ahead
        self._x = all_features(graph) if graph.x is not None and _is_far(graph.x) else None
        self._near, self._sets = RowsAhead(), SetsAhead(sampler, self._room, self._read)
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
        x = None if self._x is None else self._near.of(self._x, torch.from_numpy(chosen.nodes))
        x = features(self.graph, chosen.nodes) if x is None else x
        return GraphBatch(x, self.propagator(chosen), chosen.nodes, torch.from_numpy(rows), weight)

    def _room(self) -> int:
        size = 0 if self._x is None else 4 * self._x.shape[1]
        if self.missing is not None:
            size += self.missing.row_bytes()
        return self.ahead // size if size else 0

    def _read(self, nodes: np.ndarray) -> None:
        if self._x is not None:
            self._near.read(nodes, [self._x], lambda _, rows: features(self.graph, rows.numpy()))
        if self.missing is not None:
            self.missing.read_ahead(nodes)

    def propagator(self, chosen: NodeSet) -> Propagator:
        """Return what a model convolves over in a batch of these nodes."""
        if self.missing is not None:
            return self.missing.propagator(self.graph, self.cutter, chosen.nodes)
        local = self.cutter.induced(chosen.nodes)
        if isinstance(self.sampler, SaintSampler):
            assert local.edges is not None
            return around_adjacency(self.graph, local, scale=self.sampler.edge_scale(local.edges))
        return inside_adjacency(self.graph, local)


SamplerT = TypeVar("SamplerT", LayerSampler, ShadowSampler)


class SeedSource(BatchSource, Generic[SamplerT]):
    """Batches of seeds with what is sampled around them, the loss on all of them; of any other seeds too.

    Args:
        graph: the whole graph.
        sampler: draws them.
    """

    def __init__(self, graph: Graph, sampler: SamplerT) -> None:
        self.graph = graph
        self.sampler: SamplerT = sampler

    def num_batches(self, epoch: int) -> int:
        return self.sampler.num_batches(epoch)

    def seeds(self, epoch: int, number: int) -> np.ndarray:
        """Return the seeds of one batch; what is sampled around each depends on (epoch, number) and it alone."""
        return self.sampler.seeds.node_set(epoch, number).nodes

    def batch(self, epoch: int, number: int) -> GraphBatch:
        return self.around(self.seeds(epoch, number), epoch, number)

    @abstractmethod
    def around(self, seeds: np.ndarray, epoch: int, number: int) -> GraphBatch:
        """Return the batch of distinct seeds, whose rows come in their order."""


class LayerSource(SeedSource[LayerSampler]):
    """Batches of seeds with sampled neighbours for each layer."""

    def around(self, seeds: np.ndarray, epoch: int, number: int) -> GraphBatch:
        layers = self.sampler.layers(epoch, number, seeds)
        graph = Layered([around_adjacency(self.graph, local) for local in layers])
        return GraphBatch(features(self.graph, layers[0].nodes), graph, seeds, torch.arange(len(seeds)))


class ShadowSource(SeedSource[ShadowSampler]):
    """Batches of seeds, each in its own small subgraph."""

    def around(self, seeds: np.ndarray, epoch: int, number: int) -> GraphBatch:
        local, roots = self.sampler.subgraphs(epoch, number, seeds)
        graph = inside_adjacency(self.graph, local)
        return GraphBatch(features(self.graph, local.nodes), graph, local.nodes, torch.from_numpy(roots))


def whole_graph(graph: Graph) -> tuple[Tensor, Adjacency]:
    return all_features(graph), whole_adjacency(graph)


def blocks(graph: Graph, size: int, *, halo: bool = False) -> Iterator[tuple[np.ndarray | None, Adjacency]]:
    """Yield consecutive blocks of rows: (None, adjacency of them over all nodes).

    With halo: (nodes, adjacency over these), the block's nodes first and then all their neighbours, so that no more of
    the graph than these has to be at hand.
    """
    cutter = cutter_of(graph) if halo else None
    degree = torch.from_numpy(graph.incoming.degree)
    for start in range(0, graph.num_nodes, size):
        rows = np.arange(start, min(start + size, graph.num_nodes))
        if cutter is None:
            yield None, rows_adjacency(graph, rows, degree)
        else:
            local = cutter.induced(rows, halo=True)
            yield local.nodes, around_adjacency(graph, local)


def features(graph: Graph, nodes: np.ndarray) -> Tensor:
    """Return (n, F) features of nodes, copied (a memory-mapped array is read only there)."""
    x = graph.x
    if x is None:
        raise DataError(f"{graph.name} has no node features")
    if not _is_far(x):
        return torch.from_numpy(np.array(x[nodes], np.float32))
    out = np.empty((len(nodes), x.shape[1]), np.float32)
    for start in range(0, len(nodes), FEW):  # the system maps pages around those that are read
        out[start : start + FEW] = x[nodes[start : start + FEW]]
        release_pages(x)
    return torch.from_numpy(out)


def _is_far(x: np.ndarray) -> bool:
    """Return whether features are read some rows at a time: large ones in a file."""
    return x.nbytes > LARGE and mapping_of(x) is not None


def all_features(graph: Graph) -> Tensor:
    """Return (N, F) features of all nodes without a copy; they must not be written to."""
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(graph.x))


def whole_adjacency(graph: Graph) -> Adjacency:
    into = graph.incoming
    everything = slice(None)
    return Adjacency.of(
        into.indptr, into.indices, weight=into.weight_of(everything), edge_attr=into.attr_of(everything)
    )


def inside_adjacency(graph: Graph, local: LocalGraph) -> Adjacency:
    return Adjacency.of(local.indptr, local.indices, num_nodes=len(local.nodes), **_carried(graph, local))


def around_adjacency(graph: Graph, local: LocalGraph, *, scale: np.ndarray | None = None) -> Adjacency:
    """Return the adjacency of a local graph, weighted by the whole graph's degrees.

    scale (e,) are factors of the edges; by default 1 / probability where they were sampled.
    """
    return Adjacency.of(
        local.indptr,
        local.indices,
        num_nodes=len(local.nodes),
        degree=graph.incoming.degree[local.nodes],
        scale=local.weight if scale is None else scale,
        **_carried(graph, local),
    )


def rows_adjacency(graph: Graph, rows: np.ndarray, degree: Tensor) -> Adjacency:
    """Return the adjacency of some rows (r,), ascending, over all nodes, weighted by the whole graph's degree (N,)."""
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
        weight=None if weight is None else torch.from_numpy(np.array(weight)),
        edge_attr=None if attr is None else torch.from_numpy(np.array(attr)),
    )


def _carried(graph: Graph, local: LocalGraph) -> dict[str, np.ndarray | None]:
    into = graph.incoming
    if into.rows is None:
        return {}
    assert local.edges is not None
    return {"weight": into.weight_of(local.edges), "edge_attr": into.attr_of(local.edges)}
