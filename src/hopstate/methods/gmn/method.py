"""Graph Mamba Networks on a user's graph: encodings, walks and order to suit it, then whole-graph or batch training.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678; learning rate and epochs of its Table 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, check_range, nearest, refuse_idle
from hopstate.io.opening import parse_bytes
from hopstate.methods.gmn.inference import NodeOutputs
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.nodes import PreparedGraph, VisitedNodes, WholeSequence
from hopstate.methods.gmn.ordering import OrderConfig, node_keys
from hopstate.methods.gmn.program import export_spec
from hopstate.methods.gmn.sizing import WalkPlan, choose, cut_of
from hopstate.methods.gmn.structural import (
    anonymous_walk_encoding,
    nondiagonal_encoding,
    random_walk_encoding,
    relative_encoding,
)
from hopstate.methods.gmn.walk_tokens import Lengths
from hopstate.methods.method import Context, Method
from hopstate.methods.shared.baselines import graph_baselines
from hopstate.methods.shared.edges import Use, check_same_edges, learned_features, raw_column, turned
from hopstate.methods.shared.graph_task import graph_task
from hopstate.methods.shared.network import NodeNetwork
from hopstate.methods.shared.node import NodeRun
from hopstate.methods.shared.suit_nodes import LINKS, MANY, facts, suit_links, suit_metric
from hopstate.methods.space import Space
from hopstate.tokens.encodings import Share, laplacian_encoding
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.progress import note
from hopstate.training.tasks.node import NodeLabels, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask

__all__ = ["METHODS", "EncodingConfig", "GMNRun", "OrderConfig", "WalksConfig", "build"]

AUTOMATIC = (
    "walks.max_length",
    "walks.repeats",
    "walks.walks",
    "encoding.kind",
    "model.mpnn_layers",
    "model.expand",
    "model.state_dim",
    "model.input_dropout",
    "loop.optim.schedule",
    "loop.optim.warmup",
    "metric",
    *LINKS,
)


def suit_gmn(graph: Graph, config: NodeRun, metrics: tuple[str, ...], *, gps: bool = False) -> Mapping[str, Any]:
    """Return settings of a Graph Mamba Network that suit a graph; walks and batches fit themselves to the memory.

    Args:
        graph, config, metrics: as of every method.
        gps: whether layers that pass messages have a scan over the nodes each.
    """
    if config.task == "link":
        small = {"walks.max_length": 1, "walks.repeats": 1, "walks.walks": 4, "encoding.kind": "rwse"}
        layers = {} if gps else {"model.mpnn_layers": 2}
        return suit_links(graph, config) | small | layers | {"model.dim": 64, "model.expand": 1.0, "model.state_dim": 8}
    f = facts(graph, config.split)
    chosen: dict[str, Any] = {
        "walks.max_length": 1,
        "walks.repeats": 1,
        "walks.walks": 4,
        "encoding.kind": "rwse",
        "model.dim": 64 if f.alike else 40,
        "model.mpnn_layers": 2 if f.alike else 14,
        "model.expand": 1.0,
        "model.state_dim": 8,
        "model.dropout": 0.5 if f.wide else 0.3,
        "model.input_dropout": 0.5 if f.wide and f.features >= MANY else 0.0,
        "loop.epochs": 80,
        "loop.patience": None,
        "loop.eval_every": 2,
        "loop.optim.lr": 0.003 if f.wide else 0.01,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }
    if gps:
        del chosen["model.mpnn_layers"]
    return {**chosen, **suit_metric(f, config, metrics)}


EncodingKind = Literal["none", "laplacian", "rwse", "nondiagonal", "anonymous"]
_NO_PLACE = "model.mpnn or model.local gatedgcn or gine, mpnn pna and local rwf read them; --edges drop leaves them out"


@dataclass(frozen=True, kw_only=True)
class WalksConfig:
    """Random-walk tokens; what is null is chosen to suit the graph and the memory budget.

    Args:
        max_length: m; 0 makes each node its only token.
        repeats: s, tokens of each length; 0 does the same.
        walks: M, walks of a token.
        lengths: "every" length from 1 to m has tokens, as published, or the "doubling" ones and m.
        p, q: node2vec's return and in-out parameters.
        weights: column of the edge features by which neighbours are drawn, from 0; null draws them uniformly.
        window: steps back that the bits of walk features look.
        resample_every: epochs that share their walks; 0 draws them once.
        draws: times that evaluation and prediction draw walks, whose outputs are averaged.
        memory_budget: what a training step, or a pass over all nodes, may take ("2GiB", "500MB", or bytes).
    """

    max_length: int | None = None
    repeats: int | None = None
    walks: int | None = None
    lengths: Lengths = "every"
    p: float = 1.0
    q: float = 1.0
    weights: int | None = None
    window: int = 8
    resample_every: int = 0
    draws: int = 1
    memory_budget: str = "4GiB"

    def __post_init__(self) -> None:
        parse_bytes(self.memory_budget)
        check_range("walks.", above=0, p=self.p, q=self.q)
        check_range("walks.", least=0, resample_every=self.resample_every)
        check_range("walks.", least=1, draws=self.draws)
        refuse_idle(self, draws=(self.max_length == 0 or self.repeats == 0) and "no walks are drawn")


@dataclass(frozen=True, kw_only=True)
class EncodingConfig:
    """Positional or structural encodings joined to the features.

    Args:
        kind: "laplacian" eigenvectors, "rwse" (return probabilities), "nondiagonal" sums, "anonymous" walks, or "none".
        size: eigenvectors, or steps of the walks.
        relative: also give every edge the difference of its ends' encodings.
        components: how connected components share eigenvectors: by "size", or the "smallest" eigenvalues of all.
    """

    kind: EncodingKind = "laplacian"
    size: int = 8
    relative: bool = False
    components: Share = "size"

    def __post_init__(self) -> None:
        check_range("encoding.", least=1, size=self.size)


@dataclass(frozen=True, kw_only=True)
class GMNRun(NodeRun):
    """Configuration of a Graph Mamba Network run.

    Args:
        walks: random-walk tokens.
        encoding: positional and structural encodings.
        order: of the node sequence.
        flow: over an edge (u, v) of a directed graph, v receives from u ("source_to_target", as in torch-geometric) in
            Psi and in tokens, and walks lead from a node to those that it hears from; or all of it the other way.
        edges: "auto" takes edge features, and edge weights as one more, and refuses them where neither Psi nor tokens
            read them; "features" takes the features alone, where they are read, and "drop" nothing.
        model: the network; model.variant and model.bidirectional switch to the paper's variants.
        batch_size: nodes a step; null takes the whole graph where it fits walks.memory_budget.
        messages: in a step of batch_size nodes, Psi passes messages among the nodes that their walks "visited", or over
            the "whole" graph.
    """

    walks: WalksConfig = field(default_factory=WalksConfig)
    encoding: EncodingConfig = field(default_factory=EncodingConfig)
    order: OrderConfig = field(default_factory=OrderConfig)
    flow: Literal["source_to_target", "target_to_source"] = "source_to_target"
    edges: Use = "auto"
    model: GMN.Config = field(default_factory=GMN.Config)
    batch_size: int | None = None
    messages: Literal["visited", "whole"] = "visited"
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=300, patience=100, optim=OptimConfig(lr=1e-3, weight_decay=1e-5))
    )

    def __post_init__(self) -> None:
        refuse_idle(self, messages=not self.model.uses_mpnn and "no Psi passes messages over the graph")


def node_encoding(
    graph: Graph, config: EncodingConfig, context: Context, names: np.ndarray | None = None
) -> np.ndarray | None:
    """Return (N, s) encodings, or None; walks are drawn by names (N,), which are the rows where none are given."""
    if config.kind == "none":
        return None
    make = {
        "laplacian": partial(laplacian_encoding, share=config.components),
        "rwse": random_walk_encoding,
        "nondiagonal": nondiagonal_encoding,
        "anonymous": partial(anonymous_walk_encoding, names=names),
    }
    if config.kind not in make:
        raise ConfigError(
            f"unknown encoding {config.kind!r}{nearest(config.kind, make)}; known: none, {', '.join(make)}"
        )
    encoding = make[config.kind](graph, config.size, context.cache)  # type: ignore[operator]
    if config.kind == "laplacian":  # unit vectors have entries of about 1/sqrt(N): bring them to the features' scale
        encoding = encoding * np.float32(graph.num_nodes**0.5)
    return encoding


def asked_walks(config: WalksConfig, context: Context) -> dict[str, Any]:
    """Return m, s and M as given, else as a trained model had them, else None."""
    kept = (context.trained or {}).get("walks") or {}
    given = {name: getattr(config, name) for name in ("max_length", "repeats", "walks")}
    return {name: kept.get(name) if value is None else value for name, value in given.items()}


def chosen_settings(graph: Graph, config: GMNRun, width: int, context: Context, edge_dim: int = 0) -> WalkPlan:
    """Return the walk settings and batch size of a run; width and edge_dim are the columns of x and of edge features.

    Raises:
        ConfigError: those given do not fit the memory budget.
    """
    w = config.walks
    return choose(
        graph.num_nodes, graph.num_edges, width, config.model, parse_bytes(w.memory_budget),
        batch_size=config.batch_size, p=w.p, q=w.q, window=w.window, lengths=w.lengths, edge_dim=edge_dim,
        everywhere=config.messages == "whole", **asked_walks(w, context),
    )  # fmt: skip


def walk_weights(graph: Graph, column: int | None) -> np.ndarray | None:
    """Return (E,) weights of the walks' steps from a column of the edge features, or None."""
    if column is None:
        return None
    width = 0 if graph.edge_attr is None else graph.edge_attr.shape[1]
    if graph.edge_attr is None or not 0 <= column < width:
        raise DataError(
            f"walks.weights is a column of the edge features, of which {graph.name} has {width}; got {column}"
        )
    return raw_column(graph, column)


def has_walks(config: WalksConfig) -> bool:
    """Return whether nodes may have tokens beside themselves."""
    return config.max_length != 0 and config.repeats != 0


class WalkRun(Protocol):
    """A run whose tokens are walks, over a graph or over a set of them."""

    @property
    def walks(self) -> WalksConfig:
        """How they are drawn."""
        ...

    @property
    def model(self) -> GMN.Config:
        """The network."""
        ...

    @property
    def edges(self) -> Use:
        """What becomes of edge features."""
        ...


def reads_edges(config: WalkRun) -> bool:
    return config.edges != "drop" and config.model.reads_edges(walks=has_walks(config.walks))


def prepared(graph: Graph, config: GMNRun, context: Context) -> tuple[PreparedGraph, WalkPlan]:
    assert graph.x is not None
    kind = config.encoding if config.model.variant != "gmn-" else EncodingConfig(kind="none")
    encoding = node_encoding(graph, kind, context)
    x = graph.x if encoding is None else np.concatenate([graph.x, encoding], 1)
    over = graph if config.flow == "target_to_source" else turned(graph)
    weights = walk_weights(over, config.walks.weights)
    reads = config.model.reads_edges(walks=has_walks(config.walks))
    otherwise = None if weights is not None else _NO_PLACE
    over = learned_features(over, config.edges, reads, config.loop, otherwise=otherwise)
    edge_attr = over.edge_attr
    if encoding is not None and kind.relative:
        own = relative_encoding(encoding, over)
        edge_attr = own if edge_attr is None else np.concatenate([edge_attr, own], 1)
    choice = chosen_settings(graph, config, x.shape[1], context, 0 if edge_attr is None else edge_attr.shape[1])
    if context.trained is None:
        note(
            config.loop, f"walks: {choice} (set walks.max_length, walks.repeats, walks.walks or batch_size for others)"
        )
    ready = PreparedGraph(
        indptr=over.indptr,
        indices=over.indices,
        x=np.array(x, np.float32),
        edge_attr=None if edge_attr is None else np.array(edge_attr, np.float32),
        key=node_keys(graph, config.order),
        settings=choice.walks,
        weights=weights,
        signs=config.encoding.size if encoding is not None and kind.kind == "laplacian" and not kind.relative else 0,
    )
    return ready, choice


def build(graph: Graph, config: GMNRun, context: Context) -> NodeTask[Any] | StaticLinkTask:
    return graph_task(graph, config, context, partial(network, config=config))


def network(graph: Graph, context: Context, labels: NodeLabels, width: int, *, config: GMNRun) -> NodeNetwork:
    ready, choice = prepared(graph, config, context)
    edge_dim = 0 if ready.edge_attr is None else ready.edge_attr.shape[1]
    check_same_edges(graph.name, edge_dim, context.trained)
    model = GMN(
        config.model,
        in_dim=ready.x.shape[1],
        out_dim=width,
        edge_dim=edge_dim,
        tokens=choice.walks.tokens,
        window=choice.walks.window,
        degrees=torch.from_numpy(np.diff(ready.indptr)),  # messages that each node receives
        recompute=choice.recompute,
    )
    draws = config.walks.draws if choice.walks.tokens > 1 else 1
    shared: dict[str, Any] = {"seed": config.loop.seed, "resample_every": config.walks.resample_every}
    of: dict[str, Any] = {
        "walks": choice.walks.counts,
        "dropout": config.model.dropout,
        "whole": config.batch_size is None,
    }
    if choice.batch_size is None or choice.batch_size >= graph.num_nodes:
        whole = WholeSequence(config.model, ready, labels, draws=draws, **shared)
        return NodeNetwork(model=model, source=whole, **of)
    budget = parse_bytes(config.walks.memory_budget)
    cut, large = cut_of(
        graph.num_nodes, graph.num_edges, choice.walks, config.model, ready.x.shape[1], edge_dim, budget
    )
    outputs = NodeOutputs(
        ready, config.model.token_kind, seed=config.loop.seed, cut=cut, folder=context.run if large else None,
        draws=draws,
    )  # fmt: skip
    visited = VisitedNodes(
        config.model, ready, labels, batch_size=choice.batch_size, predict_all=outputs,
        everywhere=config.messages == "whole", **shared,
    )  # fmt: skip
    if context.trained is None:
        note(config.loop, visited.left_out())
    return NodeNetwork(model=model, source=visited, **of)


# what table 6 says was searched (its "#Layers" does not say of what: blocks over tokens, over nodes and of message
# passing are searched apart). Deviation: m, and one block over tokens or nodes beside the stated 3 to 6
SPACE: Space = {
    "walks.walks": [1, 2, 4, 8, 16, 32],
    "walks.repeats": [0, 1, 2, 4, 8, 16],
    "walks.max_length": [0, 1, 2, 4],
    "model.token_layers": [1, 3, 4, 6],
    "model.node_layers": [1, 3, 4, 6],
    "model.mpnn_layers": [3, 4, 6],
}


def transductive(config: GMNRun) -> str:
    """Return what depends on all nodes at once."""
    own = " and its Laplacian eigenvectors (encoding.kind) are" if config.encoding.kind == "laplacian" else " is"
    return f"Its sequence of nodes{own} of the whole graph"


METHODS = {
    "gmn": Method(
        "gmn",
        GMNRun,
        build,
        "graph",
        "state-space models over random-walk tokens and over nodes",
        "arXiv:2402.08678",
        reads_edges=reads_edges,
        suit=lambda graph, config, metrics: suit_gmn(graph, config, metrics, gps=config.model.variant == "gps-mamba"),
        automatic=AUTOMATIC,
        floors=graph_baselines,
        space=SPACE,
        transductive=transductive,
        export=export_spec,
    )
}
