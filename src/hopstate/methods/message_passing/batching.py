"""How a backbone's graph is cut into batches: the settings, and the task they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.gas import GasCache
from hopstate.compensation.top.probes import BlockPass, Embed
from hopstate.compensation.top.top import Refresher, Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, check_range
from hopstate.io.opening import parse_bytes
from hopstate.io.scratch import Scratch
from hopstate.methods.message_passing.model import HELD, Backbone, Cuts
from hopstate.methods.method import Context
from hopstate.sampling.partition import Partitioner, partition
from hopstate.sampling.samplers import (
    ClusterSampler,
    LayerSampler,
    NodeSampler,
    SaintKind,
    SaintSampler,
    ShadowSampler,
    UniformSampler,
)
from hopstate.sampling.subgraph import (
    BatchSource,
    EmptySource,
    LayerSource,
    NodeSetSource,
    ShadowSource,
    all_features,
    full_graph,
    row_blocks,
    rows_adjacency,
)
from hopstate.training.devices import bare
from hopstate.training.tasks.node import NodeLabels, Subgraphs, one_pass

ROWS = 4096  # receivers at a time in products over all nodes
PASS = 3  # rows a node of one layer: its input, what is sent, its output


def row_store(graph: Graph, model: Backbone, vectors: int, budget: int, folder: Path) -> Scratch:
    """Return an allocator of arrays with one row per node, on disk if a pass needs more than half of the budget.

    vectors is the number of additional vectors of the model's width that are stored per node.
    """
    size = next(model.parameters()).element_size() * model.config.dim
    large = (PASS + vectors) * size * graph.num_nodes > budget // 2
    return Scratch(folder if large else None, () if graph.x is None else (graph.x,))


def embedder(graph: Graph, top: Top, block_size: int, store: Scratch | None = None) -> Embed:
    """Return a function that computes a backbone's embeddings for TOP, in blocks if the graph exceeds block_size."""
    allocate = store or Scratch()
    if graph.num_nodes > block_size:

        def run(model: nn.Module) -> Iterator[Tensor]:
            assert isinstance(model, Backbone)
            stages = model.stages(all_features(graph), cuts(graph, model, block_size), allocate)
            for _ in range(model.config.num_layers):  # the output of the last layer is not needed
                sent = next(stages)[0]
                assert sent is not None
                yield sent
                del sent

        def sums(sent: Tensor, rows: np.ndarray | None) -> Tensor:
            all_rows = np.arange(graph.num_nodes) if rows is None else rows
            degree = torch.from_numpy(graph.incoming.degree)
            out = allocate(len(all_rows), sent.shape[1], sent.dtype)
            for start in range(0, len(all_rows), ROWS):
                block = rows_adjacency(graph, all_rows[start : start + ROWS], degree)
                out[start : start + ROWS] = block.normalized_adjacency(top.normalization, sent.dtype) @ sent
                if start % (HELD * ROWS) == 0:
                    allocate.release_pages(out)
            allocate.release_pages(sent, out)
            return out

        return BlockPass(run, sums if top.linear else None, top.rows)
    x, adjacency = full_graph(graph)

    def forward(model: nn.Module) -> Tensor:
        first = next(model.parameters())
        return model(x.to(first.device, first.dtype), adjacency.to(first.device))

    return top.full_graph_pass(forward, adjacency)


def cuts(graph: Graph, model: Backbone, block_size: int) -> Cuts:
    """Return a function that yields row blocks for layer-wise passes, or blocks with only their halo.

    Halos are used for layers that take edge lists, and on devices that cannot hold all embeddings.
    """
    halo = model.normalization == "edges" or next(model.parameters()).device.type != "cpu"
    return lambda: row_blocks(graph, block_size if halo else min(block_size, ROWS), halo=halo)


def exact_inference(graph: Graph, block_size: int, store: Scratch | None = None) -> Callable[[nn.Module], Tensor]:
    """Return a function model → (N, C) logits on the CPU, computed layer by layer if the graph exceeds block_size."""
    whole = full_graph(graph) if graph.num_nodes <= block_size else None

    def predict(model: nn.Module) -> Tensor:
        inner = bare(model)
        assert isinstance(inner, Backbone)
        if whole is None:
            return inner.layerwise(all_features(graph), cuts(graph, inner, block_size), store)
        first = next(inner.parameters())
        return inner(whole[0].to(first.device, first.dtype), whole[1].to(first.device)).float().cpu()

    return predict


NODE_SETS = ("top", "cluster", "gas")


@dataclass(frozen=True, kw_only=True)
class Batching:
    """Batches in training on one graph.

    Args:
        kind: "full": full-graph training. "top", "cluster", "gas": node batches whose missing neighbors are
            compensated, ignored, or replaced by historical embeddings. "saint": GraphSAINT subgraphs with unbiased
            sums. "neighbor", "labor": sampled neighbors of seed nodes. "shadow": small subgraphs of seed nodes.
        nodes: node selection of top, cluster and gas: clusters of a partition, random nodes, GraphSAINT subgraphs, or
            the joint ShaDow subgraphs of some training nodes, which alone enter the loss. saint also uses this (default
            "saint-walk"). On homophilous graphs, prefer "random" to a few small clusters, which contain few classes.
        num_clusters: clusters of the partition, at most the number of nodes.
        clusters_per_batch: clusters per batch.
        partitioner: "kaminpar" and "metis" (extras of these names), "bisection" (built in), or "auto" for the first
            that is installed. The run saves the choice.
        batch_size: nodes of a random batch, seeds of a sampled batch, or samples of GraphSAINT.
        shuffle: resample batches for every epoch. Otherwise only their order changes.
        train_only: exclude validation and test nodes from batches of top, cluster and gas.
        fanouts: sampled neighbors per layer, input layer first. One number serves all layers.
        shadow: subgraph of a seed: by personalized PageRank or by sampled hops.
        shadow_size: nodes in the subgraph of a seed.
        walk_length: length of GraphSAINT walks.
        inference: "exact" (full graph, layer by layer in blocks), or "one-pass" over the batches (top only).
        block_size: nodes per block of exact inference.
        max_memory: memory limit for node vectors ("4GiB", "500MB", or bytes). Vectors above half of it are stored in
            the run folder. Three eighths of it buffer rows read from files.
        top: settings of the compensation.
    """

    kind: Literal["full", "top", "cluster", "gas", "saint", "shadow", "neighbor", "labor"] = "full"
    nodes: Literal["clusters", "random", "saint-node", "saint-edge", "saint-walk", "shadow"] = "clusters"
    num_clusters: int = 80
    clusters_per_batch: int = 40
    partitioner: Partitioner = "auto"
    batch_size: int = 1024
    shuffle: bool = True
    train_only: bool = False
    fanouts: tuple[int, ...] = (10,)
    shadow: Literal["ppr", "hops"] = "ppr"
    shadow_size: int = 64
    walk_length: int = 4
    inference: Literal["exact", "one-pass"] = "exact"
    block_size: int = 100_000
    max_memory: str = "4GiB"
    top: TopConfig = field(default_factory=TopConfig)

    def __post_init__(self) -> None:
        check_range("batching.", minimum=1, num_clusters=self.num_clusters, clusters_per_batch=self.clusters_per_batch)
        check_range("batching.", minimum=1, batch_size=self.batch_size, block_size=self.block_size)
        check_range("batching.", minimum=1, shadow_size=self.shadow_size, walk_length=self.walk_length)
        parse_bytes(self.max_memory)
        if not self.fanouts or min(self.fanouts) < 1:
            raise ConfigError(f"batching.fanouts are numbers of at least 1; got {list(self.fanouts)}")
        if self.clusters_per_batch > self.num_clusters:
            raise ConfigError(
                f"batching.clusters_per_batch={self.clusters_per_batch} is more than "
                f"batching.num_clusters={self.num_clusters}"
            )
        if self.kind == "gas" and self.train_only:
            raise ConfigError(
                "batching.train_only=true removes validation and test nodes from batches, so gas has no embeddings "
                "for them; remove train_only, or use kind=top"
            )
        if self.inference == "one-pass" and self.nodes not in ("clusters", "random"):
            raise ConfigError(
                f"batching.inference=one-pass needs all nodes in batches, but nodes={self.nodes} skips some; "
                "use nodes=clusters or random, or inference=exact"
            )
        if self.nodes == "shadow" and self.train_only and self.kind in NODE_SETS:
            raise ConfigError(
                "batching.nodes=shadow puts the neighbors of training nodes into the batches, validation and test "
                "nodes among them, which train_only leaves out; use nodes=clusters or random, or leave train_only out"
            )
        if self.inference == "one-pass" and self.kind != "top":
            raise ConfigError(f"batching.inference=one-pass is TOP's; with kind={self.kind} use exact")
        if self.inference == "one-pass" and self.top.refresh:
            raise ConfigError(
                "batching.inference=one-pass needs one compensation for all weights: set top.refresh=0, or use exact"
            )

    @property
    def read_ahead_bytes(self) -> int:
        """Bytes of file rows that are read together for several batches."""
        return parse_bytes(self.max_memory) * 3 // 8


def batched_source(
    graph: Graph, config: Batching, labels: NodeLabels, model: Backbone, context: Context, *, seed: int
) -> Subgraphs:
    train = labels.split.get("train", np.arange(0))
    fitted = context.trained is None
    missing: Top | GasCache | None = None
    vectors = (2 * model.config.num_layers if config.kind == "top" else 0) + model.config.num_layers
    store = row_store(graph, model, vectors, parse_bytes(config.max_memory), context.run)
    if config.kind == "top" and (fitted or config.inference == "one-pass"):
        only = train if config.train_only and config.inference == "exact" else None
        missing = prepared_top(
            graph, config.top, model, seed=seed, rows=only, block_size=config.block_size, store=store
        )
    elif config.kind == "gas" and fitted:
        missing = GasCache(graph.num_nodes, model.sent_dims, dtype=next(model.parameters()).dtype)
    source = make_source(graph, config, train, model, missing, seed=seed) if fitted else EmptySource()

    def device() -> torch.device:
        return next(model.parameters()).device

    predict = exact_inference(graph, config.block_size, store)
    if config.inference == "one-pass":
        everything = node_sampler(graph, config, None, model.config.num_layers, seed=seed)
        each = NodeSetSource(graph, everything, train, missing, prefetch_bytes=config.read_ahead_bytes)
        predict = one_pass(each, graph.num_nodes, device)
    refresher = None
    if isinstance(missing, Top) and config.top.refresh:
        refresher = Refresher(missing, model, embedder(graph, missing, config.block_size, store), config.top.refresh)
    keeper = missing if isinstance(missing, GasCache) else refresher
    return Subgraphs(
        source,
        labels,
        predict,
        state=None if keeper is None else keeper.state,
        load_state=None if keeper is None else keeper.load_state,
        refresh=refresher,
        graph=graph,
    )


def prepared_top(
    graph: Graph,
    config: TopConfig,
    model: Backbone,
    *,
    seed: int,
    rows: np.ndarray | None = None,
    block_size: int = 100_000,
    store: Scratch | None = None,
) -> Top:
    """Return TOP's compensation made for model, for batches of rows (None: of any nodes)."""
    if model.normalization is None:
        raise ConfigError(f"{model.kind} passes no messages, so there is nothing to compensate; use kind=full")
    top = Top(graph, config, model.normalization, seed=seed, rows=rows, store=store)
    top.prepare(model, embedder(graph, top, block_size, store))
    return top


def make_source(
    graph: Graph,
    config: Batching,
    train: np.ndarray,
    model: Backbone,
    missing: Top | GasCache | None,
    *,
    seed: int,
) -> BatchSource:
    depth = model.config.num_layers
    if config.kind in ("neighbor", "labor"):
        if depth < 1:
            raise ConfigError("neighbors are sampled for each layer; the model has none")
        fanouts = config.fanouts * depth if len(config.fanouts) == 1 else config.fanouts
        if len(fanouts) != depth:
            raise ConfigError(
                f"batching.fanouts needs a number per layer: got {list(fanouts)} for model.num_layers={depth}. "
                "Pass one number for all layers, or set model.num_layers"
            )
        labor = config.kind == "labor"
        return LayerSource(graph, LayerSampler(graph, train, config.batch_size, fanouts, seed=seed, labor=labor))
    if config.kind == "shadow":
        return ShadowSource(graph, shadow_sampler(graph, config, train, depth, seed=seed))
    rows = train if (config.train_only or config.nodes == "shadow") and config.kind in NODE_SETS else None
    sampler = node_sampler(graph, config, rows, depth, seed=seed)
    return NodeSetSource(graph, sampler, train, missing, prefetch_bytes=config.read_ahead_bytes)


def shadow_sampler(graph: Graph, config: Batching, seeds: np.ndarray, depth: int, *, seed: int) -> ShadowSampler:
    """Return what draws the subgraphs around seeds (n,); depth is the model's."""
    shape = {"kind": config.shadow, "size": config.shadow_size, "depth": depth, "fanout": config.fanouts[0]}
    return ShadowSampler(graph, seeds, config.batch_size, seed=seed, **shape)  # type: ignore[arg-type]


def node_sampler(graph: Graph, config: Batching, rows: np.ndarray | None, depth: int, *, seed: int) -> NodeSampler:
    """Return what draws node sets; rows limits them (or ShaDow's seeds), None takes all nodes; depth is the model's."""
    kinds: dict[str, SaintKind] = {"saint-node": "node", "saint-edge": "edge", "saint-walk": "walk"}
    if config.kind == "saint" or config.nodes in kinds:
        kind = kinds.get(config.nodes, "walk")
        return SaintSampler(graph, kind, config.batch_size, seed=seed, walk_length=config.walk_length)
    every = np.arange(graph.num_nodes) if rows is None else rows
    if config.nodes == "shadow":
        return shadow_sampler(graph, config, every, depth, seed=seed)
    if config.nodes == "random":
        return UniformSampler(every, config.batch_size, seed=seed, shuffle=config.shuffle)
    clusters = min(config.num_clusters, max(1, graph.num_nodes))
    cluster = partition(graph, clusters, partitioner=config.partitioner, seed=seed)
    per_batch = min(config.clusters_per_batch, len(np.unique(cluster if rows is None else cluster[rows])))
    return ClusterSampler(cluster, per_batch, seed=seed, rows=rows, shuffle=config.shuffle)
