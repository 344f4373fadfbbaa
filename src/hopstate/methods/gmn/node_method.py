"""Graph Mamba Networks on one graph: encodings, walk settings, node order, and full-graph or batch training.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678; learning rate and epochs of its Table 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, check_range, nearest, refuse_idle
from hopstate.io.opening import parse_bytes
from hopstate.methods.gmn.batches import FullGraphBatches, PreparedGraph, WalkedNodeBatches, WalkPlan, plan_batches
from hopstate.methods.gmn.export import export_spec
from hopstate.methods.gmn.layerwise import NodeOutputs, cut_of
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.orders import OrderConfig, node_keys
from hopstate.methods.gmn.tokens import (
    Lengths,
    WalkSettings,
    anonymous_walk_encoding,
    nondiagonal_encoding,
    random_walk_encoding,
    relative_encoding,
)
from hopstate.methods.method import Context, Method, Space
from hopstate.methods.shared.baselines import graph_baselines
from hopstate.methods.shared.node import (
    LINK_SETTINGS,
    MANY_FEATURES,
    NodeNetwork,
    NodeRun,
    Use,
    auto_config_links,
    auto_metric,
    check_same_edges,
    flow_reversed,
    graph_stats,
    graph_task,
    learned_features,
)
from hopstate.tokens.encodings import laplacian_encoding
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.progress import note
from hopstate.training.tasks.graph import Level
from hopstate.training.tasks.node import NodeLabels, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask

if TYPE_CHECKING:
    from hopstate.methods.gmn.graph_method import GMNGraphsRun

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
    *LINK_SETTINGS,
)


def auto_config_gmn(graph: Graph, config: NodeRun, metrics: tuple[str, ...], *, gps: bool = False) -> Mapping[str, Any]:
    """Return automatic settings for a graph. Walks and batches are later adapted to the memory budget."""
    if config.task == "link":
        small = {"walks.max_length": 1, "walks.repeats": 1, "walks.walks": 4, "encoding.kind": "rwse"}
        layers = {} if gps else {"model.mpnn_layers": 2}
        return (
            auto_config_links(graph, config)
            | small
            | layers
            | {"model.dim": 64, "model.expand": 1.0, "model.state_dim": 8}
        )
    stats = graph_stats(graph, config.split)
    chosen: dict[str, Any] = {
        "walks.max_length": 1,
        "walks.repeats": 1,
        "walks.walks": 4,
        "encoding.kind": "rwse",
        "model.dim": 64 if stats.is_homophilous else 40,
        "model.mpnn_layers": 2 if stats.is_homophilous else 14,
        "model.expand": 1.0,
        "model.state_dim": 8,
        "model.dropout": 0.5 if stats.is_high_dimensional else 0.3,
        "model.input_dropout": 0.5 if stats.is_high_dimensional and stats.features >= MANY_FEATURES else 0.0,
        "loop.epochs": 80,
        "loop.patience": None,
        "loop.eval_every": 2,
        "loop.optim.lr": 0.003 if stats.is_high_dimensional else 0.01,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }
    if stats.has_few_labels and chosen["model.input_dropout"]:  # chosen on Cora with 20 labels per class
        chosen |= {"model.input_dropout": 0.8, "loop.optim.lr": 0.01}
    if gps:
        del chosen["model.mpnn_layers"]
    return {**chosen, **auto_metric(stats, config, metrics)}


EncodingKind = Literal["none", "laplacian", "rwse", "nondiagonal", "anonymous"]
_NO_PLACE = "model.mpnn or model.local gatedgcn or gine, mpnn pna and local rwf read them; --edges drop ignores them"


@dataclass(frozen=True, kw_only=True)
class WalksConfig:
    """Settings of random-walk tokens. Values of null are chosen from the graph and the memory budget.

    Args:
        max_length: m, longest walk. 0: the node is its only token.
        repeats: s, tokens of each length. 0: the node is its only token.
        walks: M, walks per token.
        lengths: walk lengths: "every" one from 1 to m, as published, or "doubling" ones up to m.
        p: node2vec's return parameter. Walks with a large p do not turn back.
        window: steps back that walk features cover.
        resample_every: epochs that share their walks. 0: sample once.
        eval_samples: samples of walks in evaluation and prediction, over which outputs are averaged.
        max_memory: memory limit of a training step or a pass over all nodes ("2GiB", "500MB", or bytes).
    """

    max_length: int | None = None
    repeats: int | None = None
    walks: int | None = None
    lengths: Lengths = "every"
    p: float = 1.0
    window: int = 8
    resample_every: int = 0
    eval_samples: int = 1
    max_memory: str = "4GiB"

    def __post_init__(self) -> None:
        parse_bytes(self.max_memory)
        check_range("walks.", above=0, p=self.p)
        check_range("walks.", minimum=0, resample_every=self.resample_every)
        check_range("walks.", minimum=1, eval_samples=self.eval_samples)
        refuse_idle(self, eval_samples=(self.max_length == 0 or self.repeats == 0) and "no walks are drawn")


@dataclass(frozen=True, kw_only=True)
class EncodingConfig:
    """Positional or structural encodings joined to the features.

    Args:
        kind: "laplacian" eigenvectors, "rwse" (return probabilities), "nondiagonal" sums, "anonymous" walks, or "none".
        size: number of eigenvectors, or steps of the walks.
        relative: also add the difference of both endpoints' encodings to each edge.
    """

    kind: EncodingKind = "laplacian"
    size: int = 8
    relative: bool = False

    def __post_init__(self) -> None:
        check_range("encoding.", minimum=1, size=self.size)


@dataclass(frozen=True, kw_only=True)
class GMNRun(NodeRun):
    """Configuration of a Graph Mamba Network run.

    Args:
        walks: random-walk tokens.
        encoding: positional and structural encodings.
        order: order of the node sequence.
        flow: direction of messages over a directed edge (u, v): "source_to_target" sends from u to v, as in
            torch-geometric. Walks follow edges backwards. "target_to_source" reverses both.
        edges: "auto": use edge features, with edge weights as an extra column, and raise an error if the model reads
            neither. "features": only edge features. "drop": ignore both.
        model: the network; model.variant and model.bidirectional switch to the paper's variants.
        batch_size: nodes per step; null uses the full graph if it fits walks.max_memory.
    """

    walks: WalksConfig = field(default_factory=WalksConfig)
    encoding: EncodingConfig = field(default_factory=EncodingConfig)
    order: OrderConfig = field(default_factory=OrderConfig)
    flow: Literal["source_to_target", "target_to_source"] = "source_to_target"
    edges: Use = "auto"
    model: GMN.Config = field(default_factory=GMN.Config)
    batch_size: int | None = None
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=300, patience=100, optim=OptimConfig(lr=1e-3, weight_decay=1e-5))
    )


def node_encoding(
    graph: Graph,
    config: EncodingConfig,
    context: Context,
    *,
    offsets: np.ndarray | None = None,
    names: np.ndarray | None = None,
) -> np.ndarray | None:
    """Return (N, s) encodings of one graph, or of the union of a set with bounds offsets (G + 1,); or None.

    names (N,) are numbers by which anonymous walks are drawn; by default the rows.
    """
    size, cache = config.size, context.cache
    if config.kind == "none":
        return None
    if config.kind == "laplacian":
        encoding = laplacian_encoding(graph, size, cache, offsets=offsets)
        # unit vectors have entries of about 1/sqrt(N): bring them to the scale of the features
        sizes = np.array([graph.num_nodes]) if offsets is None else np.diff(offsets)
        return encoding * np.repeat(np.sqrt(sizes), sizes)[:, None].astype(np.float32)
    if config.kind == "rwse":
        return random_walk_encoding(graph, size, cache)
    if config.kind == "nondiagonal":
        return nondiagonal_encoding(graph, size, cache)
    if config.kind == "anonymous":
        return anonymous_walk_encoding(graph, size, cache, names=names)
    kinds = get_args(EncodingKind)
    raise ConfigError(f"unknown encoding.kind {config.kind!r}{nearest(config.kind, kinds)}; known: {', '.join(kinds)}")


def walk_settings(config: WalksConfig, model: GMN.Config, context: Context, degree: float) -> WalkSettings:
    """Return m, s and M as given, else as a trained model had them, else 3, 2 and half the mean degree (2 to 8)."""
    automatic = {"max_length": 3, "repeats": 2, "walks": int(np.clip(round(degree / 2), 2, 8))}
    chosen = automatic | dict((context.trained or {}).get("walks") or {})
    chosen |= {name: given for name in automatic if (given := getattr(config, name)) is not None}
    if model.variant == "gps-mamba":
        chosen["max_length"] = 0
    return WalkSettings(**chosen, p=config.p, window=config.window, lengths=config.lengths)


def has_walks(config: WalksConfig) -> bool:
    """Return whether nodes can have walk tokens."""
    return config.max_length != 0 and config.repeats != 0


def reads_edges(config: GMNRun | GMNGraphsRun) -> bool:
    """Return whether a run learns from edge features."""
    return config.edges != "drop" and config.model.reads_edges(walks=has_walks(config.walks))


Plan = Callable[..., WalkPlan]  # `plan_batches` or `plan_graph_batches` of some sizes


def prepare(
    graph: Graph,
    config: GMNRun | GMNGraphsRun,
    context: Context,
    plan: Plan,
    *,
    offsets: np.ndarray | None = None,
    names: np.ndarray | None = None,
    otherwise: str | None = None,
) -> tuple[PreparedGraph, WalkPlan]:
    """Return a graph, or the union of a set, with encodings, order and walks, and how it is cut into batches.

    Args:
        plan: chooses the batches.
        offsets, names: of a set; see `node_encoding`.
        otherwise: what an error says if nothing reads the edge features; None leaves them out.
    """
    assert graph.x is not None
    encoded = config.encoding if config.model.variant != "gmn-" else EncodingConfig(kind="none")
    encoding = node_encoding(graph, encoded, context, offsets=offsets, names=names)
    x = graph.x if encoding is None else np.concatenate([graph.x, encoding], 1)
    over = graph if config.flow == "target_to_source" else flow_reversed(graph)
    reads = config.model.reads_edges(walks=has_walks(config.walks))
    over = learned_features(over, config.edges, reads, config.loop, advice=otherwise)
    edge_attr = over.edge_attr
    if encoding is not None and encoded.relative:
        relative = relative_encoding(encoding, over)
        edge_attr = relative if edge_attr is None else np.concatenate([edge_attr, relative], 1)
    walks = walk_settings(config.walks, config.model, context, graph.num_edges / max(1, graph.num_nodes))
    choice = plan(
        x.shape[1],
        config.model,
        walks,
        parse_bytes(config.walks.max_memory),
        batch_size=config.batch_size,
        edge_dim=0 if edge_attr is None else edge_attr.shape[1],
    )
    if context.trained is None:
        at_most = "" if offsets is None else "at most "
        change = "set walks.max_length, walks.repeats, walks.walks or batch_size for others"
        note(config.loop, f"walks: {at_most}{choice} ({change})")
    flipped = encoding is not None and encoded.kind == "laplacian" and not encoded.relative
    ready = PreparedGraph(
        indptr=over.indptr,
        indices=over.indices,
        x=np.array(x, np.float32),
        edge_attr=None if edge_attr is None else np.array(edge_attr, np.float32),
        key=node_keys(graph, config.order, offsets),
        settings=choice.walks,
        signs=encoded.size if flipped else 0,
    )
    return ready, choice


def prepared_graph(graph: Graph, config: GMNRun, context: Context) -> tuple[PreparedGraph, WalkPlan]:
    """Return a graph made ready, and the settings for it."""
    plan = partial(plan_batches, graph.num_nodes, graph.num_edges)
    return prepare(graph, config, context, plan, otherwise=_NO_PLACE)


def gmn_model(config: GMNRun | GMNGraphsRun, ready: PreparedGraph, width: int, level: Level = "node") -> GMN:
    """Return an untrained network for a graph made ready, with outputs of a width."""
    return GMN(
        config.model,
        in_dim=ready.x.shape[1],
        out_dim=width,
        edge_dim=ready.edge_dim,
        tokens=ready.settings.tokens,
        window=ready.settings.window,
        level=level,
        degrees=torch.from_numpy(np.diff(ready.indptr)),  # messages that each node receives
    )


def build(graph: Graph, config: GMNRun, context: Context) -> NodeTask[Any] | StaticLinkTask:
    return graph_task(graph, config, context, partial(network, config=config))


def network(graph: Graph, context: Context, labels: NodeLabels, width: int, *, config: GMNRun) -> NodeNetwork:
    ready, choice = prepared_graph(graph, config, context)
    check_same_edges(graph.name, ready.edge_dim, context.trained)
    model = gmn_model(config, ready, width)
    eval_samples = config.walks.eval_samples if choice.walks.tokens > 1 else 1
    shared: dict[str, Any] = {"seed": config.loop.seed, "resample_every": config.walks.resample_every}
    source: FullGraphBatches | WalkedNodeBatches
    if choice.batch_size is None or choice.batch_size >= graph.num_nodes:
        source = FullGraphBatches(config.model, ready, labels, eval_samples=eval_samples, **shared)
    else:
        cut, large = cut_of(
            graph.num_nodes, graph.num_edges, choice.walks, config.model, ready.x.shape[1], ready.edge_dim,
            parse_bytes(config.walks.max_memory),
        )  # fmt: skip
        outputs = NodeOutputs(
            ready, config.model.token_kind, seed=config.loop.seed, cut=cut, folder=context.run if large else None,
            eval_samples=eval_samples,
        )  # fmt: skip
        source = WalkedNodeBatches(
            config.model, ready, labels, batch_size=choice.batch_size, predict_all=outputs,
            **shared,
        )  # fmt: skip
        if context.trained is None:
            note(config.loop, source.describe_truncation())
    return NodeNetwork(
        model=model, source=source, walks=choice.walks.counts, dropout=config.model.dropout,
        full_graph=config.batch_size is None,
    )  # fmt: skip


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


METHODS = {
    "gmn": Method(
        "gmn",
        GMNRun,
        build,
        "graph",
        "state-space models over random-walk tokens and over nodes",
        "arXiv:2402.08678",
        reads_edges=reads_edges,
        auto_config=lambda graph, config, metrics: auto_config_gmn(
            graph, config, metrics, gps=config.model.variant == "gps-mamba"
        ),
        automatic=AUTOMATIC,
        baselines=graph_baselines,
        space=SPACE,
        export=export_spec,
        relations=True,
    )
}
