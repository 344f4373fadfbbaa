"""Which nodes make a batch: clusters of a partition, uniform draws, GraphSAINT; and seeds with sampled neighborhoods.

Every batch is a function of (seed, epoch, number) alone: it can be redrawn, made ahead in another thread, or resumed at
any position. Node samplers give node sets, and how their missing neighbors are treated is decided elsewhere
(`subgraph`, and `top` and `gas` of `hopstate.compensation`); neighborhood samplers give small graphs.

Source: Chiang et al. 2019, arXiv:1905.07953 (clusters); Zeng et al. 2020, arXiv:1907.04931 (GraphSAINT, 3.2-3.4);
Hamilton et al. 2017 (neighbor sampling); Balin & Catalyurek 2023, arXiv:2210.13339 (LABOR-0); Zeng et al. 2021,
arXiv:2012.01380 (ShaDow).
Deviation: for GraphSAINT's node and edge samplers, probabilities of nodes and edges are exact, not counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, check_range
from hopstate.ops.sampling import LocalGraph, Neighborhoods
from hopstate.random import named_rng

DRAWS = 0x70  # keeps the draws of samplers apart from other draws of the same seed

Nodes = np.ndarray
FEWEST = 200  # subgraphs that probabilities are counted in


def cutter_of(graph: Graph) -> Neighborhoods:
    """Return the subgraph and neighbor sampler of a graph; edges are positions in `graph.incoming`."""
    return Neighborhoods(graph.incoming.indptr, graph.incoming.indices)


@dataclass(frozen=True, eq=False)
class NodeSet:
    """Nodes of one batch.

    Args:
        nodes: (b,) int64 distinct nodes.
        loss_weight: (b,) float32 weights 1 / probability, or None for equal weights.
    """

    nodes: Nodes
    loss_weight: np.ndarray | None = None


class NodeSampler(ABC):
    """Draws node sets."""

    @abstractmethod
    def num_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""

    @abstractmethod
    def node_set(self, epoch: int, number: int) -> NodeSet:
        """Return one batch of an epoch."""


class ClusterSampler(NodeSampler):
    """Batches of several clusters of a partition, shuffled in each epoch (Cluster-GCN).

    Args:
        cluster: (N,) int64 cluster of each node; negative for nodes in no cluster.
        clusters_per_batch: clusters per batch.
        seed: random seed.
        rows: restrict batches to these nodes, for example the training nodes. Default: all.
        shuffle: combine clusters differently in each epoch; otherwise only their order changes.

    Raises:
        ConfigError: clusters_per_batch is larger than the number of clusters, or there are no nodes.
        DataError: a row is in no cluster.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> sampler = hopstate.ClusterSampler(hopstate.partition(graph, 6), 2, seed=0)
        >>> sampler.num_batches(0)
        3
        >>> nodes = sampler.node_set(0, 0).nodes  # of the first batch of epoch 0
    """

    def __init__(
        self,
        cluster: np.ndarray,
        clusters_per_batch: int,
        *,
        seed: int,
        rows: Nodes | None = None,
        shuffle: bool = True,
    ) -> None:
        rows = np.arange(len(cluster)) if rows is None else np.unique(rows)
        if len(rows) and rows[-1] >= len(cluster):
            raise DataError(f"the clusters cover {len(cluster)} nodes, but node {rows[-1]} is to be trained on")
        if len(rows) and cluster[rows].min() < 0:
            raise DataError(f"the clusters do not cover node {rows[cluster[rows] < 0][0]}, which batches are to hold")
        order = rows[np.argsort(cluster[rows], kind="stable")]
        bounds = np.flatnonzero(np.diff(cluster[order])) + 1
        self._members = [m for m in np.split(order, bounds) if len(m)]
        if not 1 <= clusters_per_batch <= max(1, len(self._members)):
            raise ConfigError(f"{clusters_per_batch} clusters to a batch, but there are {len(self._members)}")
        self.clusters_per_batch, self.seed, self.shuffle = clusters_per_batch, seed, shuffle

    def num_batches(self, epoch: int) -> int:
        return -(-len(self._members) // self.clusters_per_batch)

    def node_set(self, epoch: int, number: int) -> NodeSet:
        order = named_rng(DRAWS, self.seed, 1, epoch if self.shuffle else 0).permutation(len(self._members))
        if not self.shuffle:
            number = int(named_rng(DRAWS, self.seed, 2, epoch).permutation(self.num_batches(epoch))[number])
        chosen = np.sort(order[number * self.clusters_per_batch : (number + 1) * self.clusters_per_batch])
        return NodeSet(np.concatenate([self._members[p] for p in chosen]))


class UniformSampler(NodeSampler):
    """Batches of uniformly sampled nodes; each epoch contains every node once.

    Args:
        rows: (n,) int64 nodes.
        batch_size: nodes per batch.
        seed: random seed.
        shuffle: draw new batches in each epoch; otherwise only their order changes. Default: True.

    Example:
        >>> sampler = hopstate.UniformSampler(np.arange(100), 30, seed=0)
        >>> sizes = [len(sampler.node_set(0, number).nodes) for number in range(sampler.num_batches(0))]
        >>> sizes
        [30, 30, 30, 10]
    """

    def __init__(self, rows: Nodes, batch_size: int, *, seed: int, shuffle: bool = True) -> None:
        if batch_size < 1:
            raise ConfigError(f"a batch holds at least 1 node; got {batch_size}")
        self.rows, self.batch_size, self.seed, self.shuffle = rows, batch_size, seed, shuffle
        self._drawn: tuple[int, Nodes] | None = None  # an epoch and its order

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.rows) // self.batch_size)

    def node_set(self, epoch: int, number: int) -> NodeSet:
        drawn, key = self._drawn, epoch if self.shuffle else 0
        if drawn is None or drawn[0] != key:
            drawn = self._drawn = key, named_rng(DRAWS, self.seed, 3, key).permutation(self.rows)
        order = drawn[1]
        if not self.shuffle:
            number = int(named_rng(DRAWS, self.seed, 2, epoch).permutation(self.num_batches(epoch))[number])
        nodes = np.sort(order[number * self.batch_size : (number + 1) * self.batch_size])
        return NodeSet(nodes)


SaintKind = Literal["node", "edge", "walk"]


class SaintSampler(NodeSampler):
    """Random subgraphs with loss weights that make the loss unbiased (GraphSAINT).

    Args:
        graph: an undirected graph.
        kind: "node" samples nodes by the squared norm of their column of A_hat, "edge" samples edges by
            1/deg u + 1/deg v, and "walk" samples root nodes uniformly and takes all nodes of their random walks.
        batch_size: number of sampled nodes, edges or roots (with replacement).
        walk_length: steps of a walk.
        sample_coverage: average number of visits per node in the subgraphs that estimate the probabilities of "walk".
            These are at least 200. Weights are too large by about 1 / sample_coverage.
        seed: random seed.

    Raises:
        DataError: the graph is directed.
        ConfigError: batch_size, walk_length or sample_coverage is less than 1.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> sampler = hopstate.SaintSampler(graph, "node", 40, seed=0)
        >>> drawn = sampler.node_set(0, 0)
        >>> len(drawn.nodes) == len(drawn.loss_weight)
        True
    """

    def __init__(
        self,
        graph: Graph,
        kind: SaintKind,
        batch_size: int,
        *,
        seed: int,
        walk_length: int = 4,
        sample_coverage: int = 50,
    ) -> None:
        check_range(minimum=1, batch_size=batch_size, walk_length=walk_length, sample_coverage=sample_coverage)
        if not graph.is_undirected:
            raise DataError(f"GraphSAINT's probabilities are those of undirected graphs; {graph.name} is directed")
        self.graph, self.kind, self.batch_size, self.seed, self.walk_length = graph, kind, batch_size, seed, walk_length
        self._sources, self._targets = graph.edge_index()
        self._prepare(sample_coverage)
        self._batches = max(1, round(graph.num_nodes / max(1.0, float(self.node_probability.sum()))))

    def num_batches(self, epoch: int) -> int:
        return self._batches

    def node_set(self, epoch: int, number: int) -> NodeSet:
        """Return the nodes of one random subgraph in ascending order, weighted by 1 / probability."""
        nodes = self._draw(4, epoch, number)
        return NodeSet(nodes, (1 / self.node_probability[nodes]).astype(np.float32))

    def edge_scale(self, edges: np.ndarray) -> np.ndarray:
        """Return (e,) P(v) / P(u and v) of edges (positions in the graph): what makes v's sums unbiased."""
        u, v = self._targets[edges], self._sources[edges]  # row v receives from u
        p_v = self.node_probability[v]
        return (p_v / np.maximum(self._pair_probability(u, v, edges), 1e-12)).astype(np.float32)

    def _prepare(self, coverage: int) -> None:
        n, degree = self.graph.num_nodes, np.maximum(self.graph.degree, 1)
        if self.kind == "node":
            other = 1.0 / (1 + self.graph.degree)
            weight = other * (other + np.bincount(self._sources, other[self._targets], n))  # ||A_hat[:, v]||^2
            self._p = weight / weight.sum()
            self.node_probability = -np.expm1(self.batch_size * np.log1p(-np.minimum(self._p, 1 - 1e-15)))
        elif self.kind == "edge":
            if not self.graph.num_edges:
                raise DataError(f"{self.graph.name} has no edge to draw")
            weight = 1 / degree[self._sources] + 1 / degree[self._targets]
            self._q = weight / weight.sum()
            loop = self._sources == self._targets
            touch = np.bincount(self._sources, self._q, n) + np.bincount(self._targets[~loop], self._q[~loop], n)
            self._touch = np.minimum(touch, 1.0)
            self.node_probability = 1 - (1 - self._touch) ** self.batch_size
            self._cumulative = np.cumsum(self._q)
        else:
            self._count(coverage)

    def _count(self, coverage: int) -> None:
        from hopstate.ops.walks import WalkTable

        self._table = WalkTable.of(self.graph.indptr, self.graph.indices)
        cutter = cutter_of(self.graph)
        nodes, edges = np.zeros(self.graph.num_nodes), np.zeros(self.graph.num_edges)
        drawn, visits, min_visits = 0, 0, coverage * self.graph.num_nodes
        while drawn < FEWEST or visits < min_visits:
            nodes_drawn = self._draw(5, drawn, 0)
            nodes[nodes_drawn] += 1
            edges_drawn = cutter.induced(nodes_drawn).edges
            assert edges_drawn is not None
            edges[edges_drawn] += 1
            drawn, visits = drawn + 1, visits + len(nodes_drawn)
        self.node_probability = np.maximum(nodes, 0.5) / drawn  # a node never seen counts as half seen
        self._edge_probability = np.maximum(edges, 0.5) / drawn

    def _pair_probability(self, u: np.ndarray, v: np.ndarray, edges: np.ndarray) -> np.ndarray:
        if self.kind == "walk":
            return self._edge_probability[edges]
        if self.kind == "node":
            a, b, both = self._p[u], self._p[v], 0.0
        else:
            a, b, both = self._touch[u], self._touch[v], 2 * self._q[edges]
        pair = (
            1
            - (1 - a) ** self.batch_size
            - (1 - b) ** self.batch_size
            + np.maximum(1 - a - b + both, 0) ** self.batch_size
        )
        return np.where(u == v, self.node_probability[v], pair)

    def _draw(self, *name: int) -> Nodes:
        rng = named_rng(DRAWS, self.seed, *name)
        if self.kind == "node":
            return np.unique(rng.choice(self.graph.num_nodes, self.batch_size, p=self._p))
        if self.kind == "edge":
            edges = np.searchsorted(self._cumulative, rng.random(self.batch_size) * self._cumulative[-1], side="right")
            edges = np.minimum(edges, self.graph.num_edges - 1)
            return np.union1d(self._sources[edges], self._targets[edges])
        from hopstate.ops.walks import random_walks

        roots = rng.integers(0, self.graph.num_nodes, self.batch_size)
        seed = int(rng.integers(2**62))
        unique, twice = np.unique(roots, return_counts=True)
        walks = [
            random_walks(self._table, unique[twice >= k], self.walk_length, seed=seed + k)
            for k in range(1, int(twice.max()) + 1)
        ]
        return np.unique(np.concatenate([w.ravel() for w in walks])).astype(np.int64)


class LayerSampler:
    """Batches of seeds, with a new sample of in-neighbors for every layer of the model (GraphSAGE).

    Args:
        graph: the graph.
        rows: (n,) int64 seeds of an epoch.
        batch_size: seeds per batch.
        fanouts: sampled neighbors per node, one number per layer, the layer next to the input first.
        labor: LABOR-0: seeds share samples, so that fewer nodes are read.
        seed: random seed.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> sampler = hopstate.LayerSampler(graph, np.arange(60), 20, (5, 5), seed=0)
        >>> sampler.num_batches(0)
        3
    """

    def __init__(
        self, graph: Graph, rows: Nodes, batch_size: int, fanouts: tuple[int, ...], *, seed: int, labor: bool = False
    ) -> None:
        if not fanouts or min(fanouts) < 1:
            raise ConfigError(f"a fan-out of at least 1 is needed for every layer; got {list(fanouts)}")
        self.seeds = UniformSampler(rows, batch_size, seed=seed)
        self.fanouts, self.labor, self.seed = fanouts, labor, seed
        self._cutter = cutter_of(graph)

    def num_batches(self, epoch: int) -> int:
        return self.seeds.num_batches(epoch)

    def layers(self, epoch: int, number: int, seeds: Nodes | None = None) -> list[LocalGraph]:
        """Return a graph for each layer, the one next to the input first; receivers of the last are the seeds.

        Seeds that are given take the place of the epoch's own.
        """
        nodes = self.seeds.node_set(epoch, number).nodes if seeds is None else seeds
        keys = named_rng(DRAWS, self.seed, 6, epoch, number).integers(2**62, size=len(self.fanouts))
        layers: list[LocalGraph] = []
        for fanout, key in zip(reversed(self.fanouts), keys):
            layers.insert(0, self._cutter.sample(nodes, fanout, seed=int(key), labor=self.labor))
            nodes = layers[0].nodes
        return layers


class ShadowSampler(NodeSampler):
    """Batches of seeds, each with its own small induced subgraph for a model of any depth (ShaDow).

    `node_set` returns the nodes of all subgraphs of a batch. Only the seeds count in the loss.

    Args:
        graph: the graph.
        rows: (n,) int64 seeds of an epoch.
        batch_size: seeds per batch.
        kind: "ppr" takes the `size` nodes with the largest personalized PageRank, "hops" samples `fanout` neighbors
            `depth` times.
        size, depth, fanout: see kind.
        seed: random seed.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> sampler = hopstate.ShadowSampler(graph, np.arange(60), 20, seed=0, size=8)
        >>> sampler.num_batches(0)
        3
    """

    def __init__(
        self,
        graph: Graph,
        rows: Nodes,
        batch_size: int,
        *,
        seed: int,
        kind: Literal["ppr", "hops"] = "ppr",
        size: int = 64,
        depth: int = 2,
        fanout: int = 10,
    ) -> None:
        if min(size, depth, fanout) < 1:
            raise ConfigError(f"ShaDow's size, depth and fan-out are at least 1; got {size}, {depth}, {fanout}")
        self.seeds = UniformSampler(rows, batch_size, seed=seed)
        self.kind, self.size, self.depth, self.fanout, self.seed = kind, size, depth, fanout, seed
        self._cutter = cutter_of(graph)

    def num_batches(self, epoch: int) -> int:
        return self.seeds.num_batches(epoch)

    def subgraphs(self, epoch: int, number: int, seeds: Nodes | None = None) -> tuple[LocalGraph, np.ndarray]:
        """Return the seeds' subgraphs stacked in one graph, and the rows of the seeds in it; see `LayerSampler`."""
        seeds = self.seeds.node_set(epoch, number).nodes if seeds is None else seeds
        offsets, nodes = self._reach(seeds, named_rng(DRAWS, self.seed, 7, epoch, number))
        return self._cutter.union(offsets, nodes), offsets[:-1]

    def node_set(self, epoch: int, number: int) -> NodeSet:
        """Return the nodes of all the seeds' subgraphs, ascending; weighted losses are a mean over the seeds."""
        seeds = self.seeds.node_set(epoch, number).nodes
        nodes = np.unique(self._reach(seeds, named_rng(DRAWS, self.seed, 7, epoch, number))[1])
        weight = np.zeros(len(nodes), np.float32)
        weight[np.searchsorted(nodes, seeds)] = len(self.seeds.rows) / len(seeds)
        return NodeSet(nodes, weight)

    def _reach(self, seeds: Nodes, key: np.random.Generator) -> tuple[np.ndarray, Nodes]:
        """Return (offsets, nodes) of the subgraphs: each seed first, then its other nodes."""
        if self.kind == "ppr":
            return self._cutter.ppr(seeds, self.size)
        return self._cutter.hops(seeds, self.depth, self.fanout, seed=int(key.integers(2**62)))
