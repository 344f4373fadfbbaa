"""Batches of whole graphs, packed: the inputs of a Graph Mamba Network, or of a GIN, over some graphs of a set."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.nodes import PreparedGraph, token_inputs
from hopstate.methods.gmn.ordering import node_order
from hopstate.methods.gmn.walk_tokens import drawing_seed, token_order, walk_tokens
from hopstate.methods.shared.edges import turned
from hopstate.ops.cpu.random_kernels import mix
from hopstate.ops.rows import bounds_of, ranges

Flow = Literal["source_to_target", "target_to_source"]


class Packed(NamedTuple):
    """Some graphs of a set, one after the other.

    Args:
        rows: (n,) their nodes in the union.
        bounds: (B+1,) bounds of the graphs.
        indptr, indices: the adjacency by rows of the batch.
        edges: (e,) rows of its entries in the union's adjacency.
    """

    rows: np.ndarray
    bounds: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    edges: np.ndarray


def pack(graphs: GraphSet, indptr: np.ndarray, indices: np.ndarray, ids: np.ndarray) -> Packed:
    """Return graphs ids, packed; indptr and indices are an adjacency of the union, which way round its edges may be."""
    rows, bounds = graphs.rows(ids)
    first = graphs.offsets[ids]
    edges = ranges(indptr[first], indptr[graphs.offsets[ids + 1]] - indptr[first])
    degree = np.diff(indptr)[rows]
    shift = np.repeat(np.repeat(bounds[:-1] - first, np.diff(bounds)), degree)  # from the union's rows to the batch's
    return Packed(rows, bounds, bounds_of(degree), indices[edges] + shift, edges)


def receiving(graphs: GraphSet, flow: Flow) -> Graph:
    """Return the union with each node's row holding those that it receives from."""
    return graphs.union if flow == "target_to_source" else turned(graphs.union)


def names_in_set(graphs: GraphSet) -> np.ndarray:
    """Return (N,) numbers by which walks are drawn: of what a node's graph is, and of the node's place in it.

    So a graph has the walks that it has alone, or in any other set, and other graphs have others.
    """
    union, first = graphs.union, graphs.offsets[graphs.graph_of]
    place = np.arange(union.num_nodes) - first
    sources = np.repeat(np.arange(union.num_nodes), np.diff(union.indptr))
    edges = mix(((place[sources] << 32) + union.indices - first[sources]).view(np.uint64))
    until = np.append(np.uint64(0), np.cumsum(edges))[union.indptr[graphs.offsets]]  # sums modulo 2^64
    of_graph = mix(np.diff(until) + np.diff(graphs.offsets).astype(np.uint64)) >> np.uint64(34)
    return (of_graph.astype(np.int64) << 20)[graphs.graph_of] + place


class Collator:
    """Packs graphs of a set into the inputs of a GMN.

    Args:
        graphs: the set.
        prepared: its union, made ready.
        model: says what tokens are needed.
        seed, resample_every: as in `hopstate.methods.gmn.nodes.WholeSequence`.
        level: "edge" adds the pairs.
    """

    def __init__(
        self,
        graphs: GraphSet,
        prepared: PreparedGraph,
        model: GMN.Config,
        *,
        seed: int,
        resample_every: int,
        level: str,
    ) -> None:
        self.graphs, self.prepared, self.model, self.level = graphs, prepared, model, level
        self.seed, self.resample_every = seed, resample_every
        self._names = names_in_set(graphs)

    def __call__(self, ids: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        """Return the inputs of graphs ids; without a generator the epoch is a round of evaluation: 0, -1, -2, ..."""
        m, graphs = self.prepared, self.graphs
        rows, bounds, indptr, indices, edges = pack(graphs, m.indptr, m.indices, ids)
        extra: dict[str, object] = {}
        if m.settings.max_length:
            extra = self._tokens(rows, bounds, ids, edges, epoch, rng)
        if self.level == "edge":
            extra["pairs"] = self._pairs(ids)
        place = np.repeat(np.arange(len(ids)), np.diff(bounds))
        return GMNInputs(
            x=m.features(rng, rows, bounds), graph=Adjacency.of(indptr, indices),
            edge_attr=None if m.edge_attr is None else torch.from_numpy(m.edge_attr[edges]),
            order=torch.from_numpy(node_order(m.key[rows], rng, place)), sequences=torch.from_numpy(bounds),
            **extra,  # type: ignore[arg-type]
        )  # fmt: skip

    def _pairs(self, ids: np.ndarray) -> torch.Tensor:
        """Return (e, 2) ends of the edges as they are stored, which targets and predictions follow."""
        union = self.graphs.union
        stored = pack(self.graphs, union.indptr, union.indices, ids)
        return torch.from_numpy(
            np.stack([np.repeat(np.arange(len(stored.rows)), np.diff(stored.indptr)), stored.indices], 1)
        )

    def _tokens(
        self, rows: np.ndarray, bounds: np.ndarray, ids: np.ndarray, edges: np.ndarray, epoch: int,
        rng: np.random.Generator | None,
    ) -> dict[str, object]:  # fmt: skip
        m, graphs = self.prepared, self.graphs
        number = epoch if rng is None else epoch // self.resample_every if self.resample_every else 0
        seed = drawing_seed(self.seed, number)
        wanted = m.edge_attr is not None
        own = self._names[rows]
        tokens = walk_tokens(m.table, rows, m.settings, kind=self.model.token_kind, seed=seed, edges=wanted, names=own)
        start = np.zeros(graphs.num_graphs, np.int64)
        start[ids] = bounds[:-1] - graphs.offsets[ids]
        visited = tokens["nodes"].numpy()
        tokens["nodes"] = torch.from_numpy(visited + start[graphs.graph_of[visited]])
        if wanted:
            place = np.full(len(m.indices) + 1, -1)
            place[edges] = np.arange(len(edges))
            tokens["edges"] = torch.from_numpy(place[tokens["edges"].numpy()])
        return {**token_inputs(tokens), "token_order": token_order(len(rows), m.settings, rng)}


__all__ = ["Collator", "Flow", "Packed", "names_in_set", "pack", "receiving"]
