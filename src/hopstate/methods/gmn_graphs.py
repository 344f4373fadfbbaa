"""Graph Mamba Networks over a set of graphs: batches of whole graphs, packed; GIN in the same loop to compare with.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678; Xu et al. 2019, arXiv:1810.00826 (GIN).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from hopstate.data.graph_set import GraphSet
from hopstate.errors import ConfigError, DataError
from hopstate.layers.message import Adjacency
from hopstate.methods.base import Context, Method, ReadOptions
from hopstate.methods.gmn import EncodingConfig, GMNRun, OrderConfig, WalksConfig, material
from hopstate.methods.gmn_nodes import Material, token_inputs
from hopstate.models.gin import GIN
from hopstate.models.gmn import GMN, GMNInputs
from hopstate.tokens.ordering import node_order
from hopstate.tokens.walks import token_order, walk_tokens
from hopstate.training.graph_task import GraphTask, goal_of
from hopstate.training.loop import LoopConfig
from hopstate.training.optim import OptimConfig


def _loop() -> LoopConfig:
    return LoopConfig(epochs=100, patience=None, optim=OptimConfig(lr=1e-3, weight_decay=1e-5))


@dataclass(frozen=True, kw_only=True)
class GMNGraphsRun:
    """Configuration of a Graph Mamba Network over a set of graphs.

    Args:
        data: a TU text file, or the name of a data set of graphs.
        read: how a file is read.
        level: what is labelled: "graph", "node" or "edge".
        fold: which of the stored splits, from 0.
        walks, encoding, order, model: see `hopstate.methods.gmn.GMNRun`.
        batch_size: graphs a step.
        metric: what chooses the model.
        loop: training.
    """

    data: str
    read: ReadOptions = field(default_factory=ReadOptions)
    level: Literal["graph", "node", "edge"] = "graph"
    fold: int = 0
    walks: WalksConfig = field(default_factory=WalksConfig)
    encoding: EncodingConfig = field(default_factory=lambda: EncodingConfig(kind="rwse", size=8))
    order: OrderConfig = field(default_factory=OrderConfig)
    model: GMN.Config = field(default_factory=GMN.Config)
    batch_size: int = 32
    metric: str = "accuracy"
    loop: LoopConfig = field(default_factory=_loop)


@dataclass(frozen=True, kw_only=True)
class GINRun:
    """Configuration of a GIN over a set of graphs.

    Args:
        data, read, fold, batch_size, metric, loop: see `GMNGraphsRun`.
        model: the network.
    """

    data: str
    read: ReadOptions = field(default_factory=ReadOptions)
    fold: int = 0
    model: GIN.Config = field(default_factory=GIN.Config)
    batch_size: int = 32
    metric: str = "accuracy"
    loop: LoopConfig = field(default_factory=_loop)


class Packer:
    """Packs graphs of a set into the inputs of a GMN.

    Args:
        graphs: the set.
        material: its union, made ready.
        model: says what tokens are needed.
        seed, resample_every: as in `hopstate.methods.gmn_nodes.FullNodeTask`.
        level: "edge" adds the pairs.
    """

    def __init__(
        self, graphs: GraphSet, material: Material, model: GMN.Config, *, seed: int, resample_every: int, level: str
    ) -> None:
        self.graphs, self.material, self.model, self.level = graphs, material, model, level
        self.seed, self.resample_every = seed, resample_every

    def __call__(self, ids: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        """Return the inputs of graphs ids."""
        m, graphs = self.material, self.graphs
        rows, bounds = graphs.rows(ids)
        edges = graphs.edges(ids)
        shift = np.repeat(bounds[:-1] - graphs.offsets[ids], np.diff(bounds))  # from the union's rows to the batch's
        own = np.repeat(np.arange(len(rows)), np.diff(m.indptr)[rows])
        indices = m.indices[edges] + shift[own]
        indptr = np.concatenate([[0], np.cumsum(np.diff(m.indptr)[rows])])
        extra: dict[str, object] = {}
        if m.settings.max_length:
            extra = self._tokens(rows, bounds, ids, edges, epoch, rng)
        if self.level == "edge":
            extra["pairs"] = torch.from_numpy(np.stack([own, indices], 1))
        place = np.repeat(np.arange(len(ids)), np.diff(bounds))
        return GMNInputs(
            x=m.features(rng, rows), graph=Adjacency.of(indptr, indices),
            edge_attr=None if m.edge_attr is None else torch.from_numpy(m.edge_attr[edges]),
            order=torch.from_numpy(node_order(m.key[rows], rng, place)), sequences=torch.from_numpy(bounds),
            **extra,  # type: ignore[arg-type]
        )  # fmt: skip

    def _tokens(
        self, rows: np.ndarray, bounds: np.ndarray, ids: np.ndarray, edges: np.ndarray, epoch: int,
        rng: np.random.Generator | None,
    ) -> dict[str, object]:  # fmt: skip
        m, graphs = self.material, self.graphs
        number = epoch // self.resample_every if self.resample_every and rng is not None else 0
        seed = (self.seed * 1_000_003 + number) % 2**63
        wanted = m.edge_attr is not None
        tokens = walk_tokens(m.table, rows, m.settings, kind=self.model.token_kind, seed=seed, edges=wanted)
        start = np.zeros(graphs.num_graphs, np.int64)
        start[ids] = bounds[:-1] - graphs.offsets[ids]
        visited = tokens["nodes"].numpy()
        tokens["nodes"] = torch.from_numpy(visited + start[graphs.graph_of[visited]])
        if wanted:
            place = np.full(len(m.indices) + 1, -1)
            place[edges] = np.arange(len(edges))
            tokens["edges"] = torch.from_numpy(place[tokens["edges"].numpy()])
        return {**token_inputs(tokens), "token_order": token_order(len(rows), m.settings, rng)}


def build(graphs: GraphSet, config: GMNGraphsRun, context: Context) -> GraphTask:
    """Return the task of training a Graph Mamba Network on graphs."""
    _check(graphs)
    share = config.batch_size / graphs.num_graphs
    shared = {name: getattr(config, name) for name in ("walks", "encoding", "order", "model", "loop")}
    ready, _ = material(graphs.union, GMNRun(data=config.data, **shared), context, share=share)  # type: ignore[arg-type]
    model = GMN(
        config.model,
        in_dim=ready.x.shape[1],
        out_dim=num_outputs(graphs, config.level),
        edge_dim=0 if ready.edge_attr is None else ready.edge_attr.shape[1],
        tokens=ready.settings.tokens,
        window=ready.settings.window,
        level=config.level,
    )
    collate = Packer(
        graphs, ready, config.model, seed=config.loop.seed, resample_every=config.walks.resample_every,
        level=config.level,
    )  # fmt: skip
    return GraphTask(
        model, graphs, collate, level=config.level, split=graphs.split(config.fold), metrics=(config.metric,),
        batch_size=config.batch_size, seed=config.loop.seed,
    )  # fmt: skip


def build_gin(graphs: GraphSet, config: GINRun, context: Context) -> GraphTask:
    """Return the task of training a GIN on graphs."""
    _check(graphs)

    def collate(ids: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        rows, bounds = graphs.rows(ids)
        union, edges = graphs.union, graphs.edges(ids)
        degree = np.diff(union.indptr)[rows]
        shift = np.repeat(bounds[:-1] - graphs.offsets[ids], np.diff(bounds))
        indices = union.indices[edges] + np.repeat(shift, degree)
        graph = Adjacency.of(np.concatenate([[0], np.cumsum(degree)]), indices)
        assert union.x is not None
        offsets = torch.from_numpy(bounds)
        return GMNInputs(
            x=torch.from_numpy(union.x[rows]), graph=graph, order=torch.arange(len(rows)), sequences=offsets
        )

    model = GIN(config.model, in_dim=graphs.num_features, out_dim=num_outputs(graphs, "graph"))
    return GraphTask(
        model, graphs, collate, level="graph", split=graphs.split(config.fold), metrics=(config.metric,),
        batch_size=config.batch_size, seed=config.loop.seed,
    )  # fmt: skip


def num_outputs(graphs: GraphSet, level: Literal["graph", "node", "edge"]) -> int:
    """Return the width of the output: classes, or columns of y."""
    y = {"graph": graphs.y, "node": graphs.union.y, "edge": graphs.edge_y}[level]
    if goal_of(graphs, level) == "classes":
        return max(int(y.max(initial=-1)) + 1, len(graphs.class_names or ()))  # type: ignore[union-attr]
    return y.shape[1]  # type: ignore[union-attr]


def _check(graphs: GraphSet) -> None:
    if graphs.union.x is None:
        raise DataError(f"{graphs.name} has no node features; give each node at least a constant one")
    if not graphs.num_splits:
        raise ConfigError(
            f"{graphs.name} stores no split of its graphs; give masks (see hopstate.data.graph_set.folds)"
        )


METHODS = {
    "gmn-graphs": Method(
        "gmn-graphs", GMNGraphsRun, build, "graphs", "Graph Mamba Networks over many graphs", "arXiv:2402.08678"
    ),
    "gin-graphs": Method("gin-graphs", GINRun, build_gin, "graphs", "GIN over many graphs", "arXiv:1810.00826"),
}
__all__ = ["METHODS", "GINRun", "GMNGraphsRun", "Packer", "build", "build_gin"]
