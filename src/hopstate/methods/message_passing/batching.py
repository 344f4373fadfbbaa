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
    LayerSource,
    NoBatches,
    NodeSetSource,
    ShadowSource,
    all_features,
    blocks,
    rows_adjacency,
    whole_graph,
)
from hopstate.training.devices import bare
from hopstate.training.tasks.node import NodeLabels, Subgraphs, one_pass

ROWS = 4096  # receivers at a time in products over all nodes
PASS = 3  # rows a node of one layer: its input, what is sent, its output


def row_store(graph: Graph, model: Backbone, vectors: int, budget: int, folder: Path) -> Scratch:
    """Return what makes arrays of a row a node: files in folder if those of a pass take more than half of a budget.

    vectors of the model's width may be kept of each node besides those of a layer.
    """
    size = next(model.parameters()).element_size() * model.config.dim
    large = (PASS + vectors) * size * graph.num_nodes > budget // 2
    return Scratch(folder if large else None, () if graph.x is None else (graph.x,))


def embedder(graph: Graph, top: Top, block_size: int, store: Scratch | None = None) -> Embed:
    """Return what embeds a backbone for TOP: on the whole graph at once where block_size allows, else in blocks."""
    made = store or Scratch()
    if graph.num_nodes > block_size:

        def run(model: nn.Module) -> Iterator[Tensor]:
            assert isinstance(model, Backbone)
            stages = model.stages(all_features(graph), cuts(graph, model, block_size), made)
            for _ in range(model.config.num_layers):  # not to the end: what the last layer makes of it is not needed
                sent = next(stages)[0]
                assert sent is not None
                yield sent
                del sent

        def sums(sent: Tensor, rows: np.ndarray | None) -> Tensor:
            every = np.arange(graph.num_nodes) if rows is None else rows
            degree = torch.from_numpy(graph.incoming.degree)
            out = made(len(every), sent.shape[1], sent.dtype)
            for start in range(0, len(every), ROWS):
                block = rows_adjacency(graph, every[start : start + ROWS], degree)
                out[start : start + ROWS] = block.normalized_adjacency(top.normalization, sent.dtype) @ sent
                if start % (HELD * ROWS) == 0:
                    made.release_pages(out)
            made.release_pages(sent, out)
            return out

        return BlockPass(run, sums if top.linear else None, top.rows)
    x, adjacency = whole_graph(graph)

    def forward(model: nn.Module) -> Tensor:
        first = next(model.parameters())
        return model(x.to(first.device, first.dtype), adjacency.to(first.device))

    return top.whole_pass(forward, adjacency)


def cuts(graph: Graph, model: Backbone, block_size: int) -> Cuts:
    """Return what cuts a graph for layer-wise passes: rows over all nodes, or with their halo alone.

    The halo is for layers that take lists of edges, and where all nodes' representations may be too much for a device.
    """
    halo = model.normalization == "edges" or next(model.parameters()).device.type != "cpu"
    return lambda: blocks(graph, block_size if halo else min(block_size, ROWS), halo=halo)


def exact_inference(graph: Graph, block_size: int, store: Scratch | None = None) -> Callable[[nn.Module], Tensor]:
    """Return a function model → (N, C) logits on the CPU: at once where block_size allows, else layer by layer."""
    whole = whole_graph(graph) if graph.num_nodes <= block_size else None

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
    """How training cuts the graph.

    Args:
        kind: "full" trains on the whole graph at once. Batches of nodes whose missing neighbours are compensated
            ("top"), left out ("cluster"), or send what they sent last ("gas"); random subgraphs whose sums are
            unbiased ("saint"); seeds with sampled neighbours ("neighbor", "labor") or small subgraphs ("shadow").
        nodes: batches of top, cluster and gas: clusters of a partition, uniformly drawn nodes, GraphSAINT's subgraphs,
            or the ShaDow subgraphs of some training nodes together, whose loss alone counts; saint draws by this too
            (what is not its own means "saint-walk" there).
            A few small clusters of a homophilous graph hold few of its classes: batches of a tenth of it train
            top better from random nodes.
        num_clusters: clusters of the partition; at most the number of nodes.
        clusters_per_batch: clusters drawn together to a batch.
        partitioner: "kaminpar" and "metis" (extras of these names), "bisection" (built in), or "auto": the first that
            is installed; a run keeps to what it took (data.json).
        batch_size: nodes of a random batch, seeds of a sampled one, draws of GraphSAINT.
        shuffle: draw batches anew for every epoch; without it only their order changes.
        train_only: leave validation and test nodes out of the batches of top, cluster and gas.
        fanouts: sampled neighbours for each layer, the one next to the input first; one number serves all layers.
        shadow: how a seed's subgraph is chosen: by personalised PageRank or by sampled hops.
        shadow_size: nodes of a seed's subgraph.
        walk_length: steps of GraphSAINT's walks.
        inference: "exact" (the whole graph, layer by layer in blocks) or "one-pass" over the batches (top alone).
        block_size: nodes in work at a time in exact inference.
        memory_budget: vectors of all nodes that would take more than half of this, in exact inference and in what top
            is made from, are kept in files of the run folder ("4GiB", "500MB", or bytes). Of such files, and of large
            features, the rows of several batches are read together: as many as take three eighths of this.
        gas_cache: where gas keeps what nodes sent: in memory, each checkpoint with a copy, or in files of the run
            folder ("disk"), with a journal of what has changed since the checkpoint.
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
    memory_budget: str = "4GiB"
    gas_cache: Literal["memory", "disk"] = "memory"
    top: TopConfig = field(default_factory=TopConfig)

    def __post_init__(self) -> None:
        check_range("batching.", least=1, num_clusters=self.num_clusters, clusters_per_batch=self.clusters_per_batch)
        check_range("batching.", least=1, batch_size=self.batch_size, block_size=self.block_size)
        check_range("batching.", least=1, shadow_size=self.shadow_size, walk_length=self.walk_length)
        parse_bytes(self.memory_budget)
        if not self.fanouts or min(self.fanouts) < 1:
            raise ConfigError(f"batching.fanouts are numbers of at least 1; got {list(self.fanouts)}")
        if self.clusters_per_batch > self.num_clusters:
            raise ConfigError(
                f"batching.clusters_per_batch={self.clusters_per_batch} is more than "
                f"batching.num_clusters={self.num_clusters}"
            )
        if self.kind == "gas" and self.train_only:
            raise ConfigError(
                "batching.train_only leaves validation and test nodes out of batches, and gas then never knows what "
                "they send; leave train_only out, or use kind=top"
            )
        if self.inference == "one-pass" and self.nodes not in ("clusters", "random"):
            raise ConfigError(
                f"batching.inference=one-pass needs every node in a batch, and nodes={self.nodes} leaves some out; "
                "use nodes=clusters or random, or inference=exact"
            )
        if self.nodes == "shadow" and self.train_only and self.kind in NODE_SETS:
            raise ConfigError(
                "batching.nodes=shadow puts the neighbours of training nodes into the batches, validation and test "
                "nodes among them, which train_only leaves out; use nodes=clusters or random, or leave train_only out"
            )
        if self.inference == "one-pass" and self.kind != "top":
            raise ConfigError(f"batching.inference=one-pass is TOP's; with kind={self.kind} use exact")
        if self.inference == "one-pass" and self.top.refresh:
            raise ConfigError(
                "batching.inference=one-pass needs one compensation for all weights: set top.refresh=0, or use exact"
            )

    @property
    def ahead(self) -> int:
        """Bytes of rows in files that are read for several batches together."""
        return parse_bytes(self.memory_budget) * 3 // 8


def batched_source(
    graph: Graph, config: Batching, labels: NodeLabels, model: Backbone, context: Context, *, seed: int
) -> Subgraphs:
    train = labels.split.get("train", np.arange(0))
    fitted = context.trained is None
    missing: Top | GasCache | None = None
    vectors = (2 * model.config.num_layers if config.kind == "top" else 0) + model.config.num_layers
    store = row_store(graph, model, vectors, parse_bytes(config.memory_budget), context.run)
    if config.kind == "top" and (fitted or config.inference == "one-pass"):
        only = train if config.train_only and config.inference == "exact" else None
        missing = prepared_top(
            graph, config.top, model, seed=seed, rows=only, block_size=config.block_size, store=store
        )
    elif config.kind == "gas" and fitted:
        folder = context.run / "gas_cache" if config.gas_cache == "disk" else None
        widths, dtype = [model.config.dim] * model.config.num_layers, next(model.parameters()).dtype
        missing = GasCache(graph.num_nodes, widths, folder=folder, dtype=dtype)
    source = make_source(graph, config, train, model, missing, seed=seed) if fitted else NoBatches()

    def device() -> torch.device:
        return next(model.parameters()).device

    predict = exact_inference(graph, config.block_size, store)
    if config.inference == "one-pass":
        everything = node_sampler(graph, config, None, model.config.num_layers, seed=seed)
        each = NodeSetSource(graph, everything, train, missing, ahead=config.ahead)
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
            raise ConfigError("neighbours are sampled for each layer; the model has none")
        fanouts = config.fanouts * depth if len(config.fanouts) == 1 else config.fanouts
        if len(fanouts) != depth:
            raise ConfigError(f"batching.fanouts names {len(fanouts)} layers, the model has {depth}")
        labor = config.kind == "labor"
        return LayerSource(graph, LayerSampler(graph, train, config.batch_size, fanouts, seed=seed, labor=labor))
    if config.kind == "shadow":
        return ShadowSource(graph, shadow_sampler(graph, config, train, depth, seed=seed))
    rows = train if (config.train_only or config.nodes == "shadow") and config.kind in NODE_SETS else None
    sampler = node_sampler(graph, config, rows, depth, seed=seed)
    return NodeSetSource(graph, sampler, train, missing, ahead=config.ahead)


def shadow_sampler(graph: Graph, config: Batching, seeds: np.ndarray, depth: int, *, seed: int) -> ShadowSampler:
    """Return what draws the subgraphs around seeds (n,); depth is the model's."""
    shape = {"how": config.shadow, "size": config.shadow_size, "depth": depth, "fanout": config.fanouts[0]}
    return ShadowSampler(graph, seeds, config.batch_size, seed=seed, **shape)  # type: ignore[arg-type]


def node_sampler(graph: Graph, config: Batching, rows: np.ndarray | None, depth: int, *, seed: int) -> NodeSampler:
    """Return what draws node sets; rows limits them (or ShaDow's seeds), None takes all nodes; depth is the model's."""
    kinds: dict[str, SaintKind] = {"saint-node": "node", "saint-edge": "edge", "saint-walk": "walk"}
    if config.kind == "saint" or config.nodes in kinds:
        kind = kinds.get(config.nodes, "walk")
        return SaintSampler(graph, kind, config.batch_size, seed=seed, length=config.walk_length)
    every = np.arange(graph.num_nodes) if rows is None else rows
    if config.nodes == "shadow":
        return shadow_sampler(graph, config, every, depth, seed=seed)
    if config.nodes == "random":
        return UniformSampler(every, config.batch_size, seed=seed, shuffle=config.shuffle)
    clusters = min(config.num_clusters, max(1, graph.num_nodes))
    cluster = partition(graph, clusters, how=config.partitioner, seed=seed)
    per_batch = min(config.clusters_per_batch, len(np.unique(cluster if rows is None else cluster[rows])))
    return ClusterSampler(cluster, per_batch, seed=seed, rows=rows, shuffle=config.shuffle)
