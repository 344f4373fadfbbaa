"""Batches for Graph Mamba Networks on one graph: all nodes in one step, or some with the nodes their walks visited.

`plan_batches` chooses between the two by an estimate of the memory that a training step takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, check_range
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.orders import OrderKind, node_order, order_key
from hopstate.methods.gmn.tokens import (
    Resampler,
    TokenKind,
    Tokens,
    WalkSettings,
    drawing_seed,
    token_order,
    walk_tokens,
)
from hopstate.methods.shared.node import turned
from hopstate.ops.rows import bounds_of, ranges
from hopstate.ops.walks import WalkTable, random_walks
from hopstate.random import named_rng
from hopstate.training.tasks.node import NodeBatches, NodeLabels, Seen, averaged, device_of
from hopstate.training.tasks.task import Prefetcher

CONTEXT = (2, 4)  # steps, walks of each node of a batch without tokens, to neighbors to receive messages from
GRAPHS_PER_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class PreparedGraph:
    """A graph made ready for a GMN.

    Args:
        indptr, indices: its adjacency.
        x: (N, F) features and encodings; the last `signs` columns have no sign of their own.
        edge_attr: (E, D), or None.
        key: (N,) sort key of the node sequence.
        settings: walks.
        signs: number of trailing eigenvector columns, flipped at random in training.
        weights: (E,) weights of the walks' steps; None walks uniformly.
    """

    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray
    edge_attr: np.ndarray | None
    key: np.ndarray
    settings: WalkSettings
    signs: int = 0
    weights: np.ndarray | None = None

    @property
    def edge_dim(self) -> int:
        """D, 0 without edge features."""
        return 0 if self.edge_attr is None else self.edge_attr.shape[1]

    @cached_property
    def table(self) -> WalkTable:
        return WalkTable.of(self.indptr, self.indices, self.weights)

    @cached_property
    def adjacency(self) -> Adjacency:
        return Adjacency.of(self.indptr, self.indices)

    def features(
        self, rng: np.random.Generator | None, rows: np.ndarray | None = None, bounds: np.ndarray | None = None
    ) -> Tensor:
        """Return x of all rows or of some; with rng, eigenvectors have random signs.

        bounds (G+1,) are those of the graphs among the rows: each has signs of its own.
        """
        x = self.x if rows is None else self.x[rows]
        if rng is not None and self.signs:
            x = x.copy() if rows is None else x
            sizes = np.array([len(x)]) if bounds is None else np.diff(bounds)
            flips = rng.choice(np.array([-1, 1], np.float32), (len(sizes), self.signs))
            x[:, -self.signs :] *= np.repeat(flips, sizes, 0)
        return torch.from_numpy(x)

    def tokens(self, rows: np.ndarray, kind: TokenKind, seed: int, names: np.ndarray | None = None) -> Tokens:
        """Draw the tokens of some nodes; see `walk_tokens`."""
        edges = self.edge_attr is not None
        return walk_tokens(self.table, rows, self.settings, kind=kind, seed=seed, edges=edges, names=names)


def token_inputs(tokens: Tokens) -> dict[str, Any]:
    """Return the fields of `GMNInputs` that packed tokens fill."""
    made: dict[str, Any] = {"token_offsets": tokens["offsets"], "token_nodes": tokens["nodes"]}
    if "indptr" in tokens:
        made["token_graph"] = Adjacency(tokens["indptr"], tokens["indices"])
    else:
        made |= {"bits": tokens["bits"], "walks": tokens["walks"]}
    if "edges" in tokens:
        made["token_edges"] = tokens["edges"]
    return made


def relocated(tokens: Tokens, nodes: np.ndarray, edges: np.ndarray) -> Tokens:
    """Return tokens whose nodes are at rows nodes of a batch, and whose edges are positions in edges (ascending)."""
    moved = {**tokens, "nodes": torch.from_numpy(nodes)}
    if "edges" in tokens:
        taken = tokens["edges"].numpy()
        moved["edges"] = torch.from_numpy(np.where(taken >= 0, np.searchsorted(edges, taken), -1))
    return moved


def whole_inputs(prepared: PreparedGraph, tokens: dict[str, Any], rng: np.random.Generator | None) -> GMNInputs:
    """Return all nodes of a graph as one sequence.

    tokens are the `token_inputs` of all nodes, empty if each node is its only token. rng draws ties of the order, the
    order of tokens of one length, and signs of eigenvectors; None keeps all.
    """
    m = prepared
    extra = tokens | {"token_order": token_order(len(m.x), m.settings, rng)} if tokens else {}
    return GMNInputs(
        x=m.features(rng),
        graph=m.adjacency,
        edge_attr=None if m.edge_attr is None else torch.from_numpy(m.edge_attr),
        order=torch.from_numpy(node_order(m.key, rng)),
        sequences=torch.tensor([0, len(m.x)]),
        **extra,
    )


def gmn_inputs(
    graph: Graph,
    config: GMN.Config | None = None,
    *,
    max_length: int = 0,
    repeats: int = 1,
    walks: int = 4,
    order: OrderKind = "degree",
    seed: int = 0,
) -> GMNInputs:
    """Return all nodes of a graph as a GMN reads them; nodes receive from the sources of their edges.

    Walks, ties of the order and shuffled tokens follow from the seed: another one for each epoch draws them anew.

    Args:
        graph: with features x (N, F).
        config: of the model, whose `tokens` must be repeats * max_length + 1; it says what tokens hold.
        max_length: m, longest walk; 0 makes each node its only token.
        repeats: s, tokens of each length.
        walks: M, walks of a token.
        order: of the sequence of nodes.
        seed: fixes everything drawn.

    Raises:
        DataError: the graph has no features.
        ConfigError: numbers of walks that cannot be.
    """
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    over = turned(graph)
    prepared = PreparedGraph(
        indptr=over.indptr,
        indices=over.indices,
        x=np.array(graph.x),
        edge_attr=None if over.edge_attr is None else np.array(over.edge_attr),
        key=order_key(graph.indptr, graph.indices, order),
        settings=WalkSettings(max_length=max_length, repeats=repeats, walks=walks),
    )
    tokens: dict[str, Any] = {}
    if prepared.settings.max_length:
        kind = (config or GMN.Config()).token_kind
        tokens = token_inputs(prepared.tokens(np.arange(graph.num_nodes), kind, seed))
    return whole_inputs(prepared, tokens, named_rng(seed))


def _round(prepared: PreparedGraph, kind: TokenKind, seed: int, number: int) -> Tokens:
    return prepared.tokens(np.arange(len(prepared.x)), kind, drawing_seed(seed, number))


class WholeSequence(NodeBatches[tuple[GMNInputs, Tensor, Tensor]]):
    """All nodes in one step; orders, shuffles and signs are drawn anew every epoch, walks every few.

    Args:
        config: of the network.
        prepared: the graph.
        labels: labels, splits and names.
        seed: fixes everything drawn.
        resample_every: epochs that share their walks, 0 for never.
        draws: of walks in evaluation, whose outputs are averaged.
    """

    single_process = "a step is the whole graph at once; cut it into batches"

    def __init__(
        self, config: GMN.Config, prepared: PreparedGraph, labels: NodeLabels, *, seed: int, resample_every: int = 0,
        draws: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(labels)
        self.config, self.prepared, self.seed, self.draws = config, prepared, seed, draws
        self.kind, self.resample_every = config.token_kind, resample_every
        self._draw = partial(_round, prepared, self.kind, seed)  # a method of its own would be a reference cycle
        self._walks = Resampler(self._draw, resample_every) if prepared.settings.tokens > 1 else None
        self._held: tuple[Tokens | None, dict[str, Any]] = (None, {})
        self._eval: GMNInputs | None = None

    def num_batches(self, epoch: int) -> int:
        return 1

    def batches(
        self, model: nn.Module, epoch: int, start: int = 0, step: int = 1
    ) -> Iterator[tuple[GMNInputs, Tensor, Tensor]]:
        """Yield (inputs, training rows, labels) once."""
        if start == 0:
            rows = self.labels.split["train"]
            rng = named_rng(self.seed, "gmn", epoch)
            yield self._inputs(epoch, rng), torch.from_numpy(rows), torch.from_numpy(self.labels.y[rows])

    def outputs(self, model: nn.Module, batch: tuple[GMNInputs, Tensor, Tensor]) -> Seen:
        inputs, rows, y = batch
        return model(inputs)[rows], y, None

    def encoder_batch(
        self, model: nn.Module, rows: np.ndarray, epoch: int, number: int
    ) -> tuple[tuple[GMNInputs, Tensor, Tensor], np.ndarray]:
        asked = torch.from_numpy(rows)
        return (self._inputs(epoch, named_rng(self.seed, "gmn", epoch, number)), asked, asked), rows

    def encode(self, model: nn.Module, batch: tuple[GMNInputs, Tensor, Tensor]) -> Tensor:
        return model(batch[0])[batch[1]]

    def logits(self, model: nn.Module, rows: np.ndarray) -> Tensor:
        device = device_of(model)
        if self._eval is None or self._eval.x.device != device:
            self._eval = self._evaluated(0, model)
        asked = (self._eval if number == 0 else self._evaluated(-number, model) for number in range(self.draws))
        return averaged(model(inputs).float().cpu() for inputs in asked)[torch.from_numpy(rows)]

    def evaluated(self) -> GMNInputs:
        """Return what the first round of evaluation reads."""
        return self._inputs(0, None)

    def _evaluated(self, number: int, model: nn.Module) -> GMNInputs:
        inputs = self._inputs(number, None).to(device_of(model))
        if next(model.parameters()).dtype != torch.float64:
            return inputs
        from hopstate.training.devices import Double

        return Double().convert_input(inputs)

    def _inputs(self, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        if self._walks is None:
            return whole_inputs(self.prepared, {}, rng)
        if rng is None and (self.resample_every or epoch):  # the running rounds stay as they are
            return whole_inputs(self.prepared, token_inputs(self._draw(epoch)), rng)
        tokens = self._walks.at(epoch)
        if self._held[0] is not tokens:  # made once a round, so that adjacencies keep their weighted forms
            self._held = tokens, token_inputs(tokens)
        return whole_inputs(self.prepared, self._held[1], rng)


class VisitedNodes(NodeBatches[tuple[GMNInputs, Tensor]]):
    """Batches of nodes with what their walks visited: all that the node sequence and message passing see in training.

    Args:
        config, prepared, labels, seed, resample_every: see `WholeSequence`.
        batch_size: nodes a step.
        predict_all: model → (N, C) logits of all nodes, on the CPU; how evaluation and prediction read the whole graph.
        everywhere: messages pass over the whole graph in every step, not among the nodes visited alone.
    """

    def __init__(
        self,
        config: GMN.Config,
        prepared: PreparedGraph,
        labels: NodeLabels,
        *,
        seed: int,
        batch_size: int,
        predict_all: Callable[[nn.Module], Tensor],
        resample_every: int = 0,
        everywhere: bool = False,
    ) -> None:
        super().__init__(labels)
        check_range(minimum=1, batch_size=batch_size)
        self.prepared, self.seed, self.batch_size, self.resample_every = prepared, seed, batch_size, resample_every
        self.config, self.kind, self.gps = config, config.token_kind, config.variant == "gps-mamba"
        self.passes_messages = self.gps or config.uses_mpnn
        self.everywhere = everywhere and config.uses_mpnn
        self.predict_all = predict_all

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.labels.split["train"]) // self.batch_size)

    def batches(
        self, model: nn.Module, epoch: int, start: int = 0, step: int = 1
    ) -> Iterator[tuple[GMNInputs, Tensor]]:
        """Yield (inputs, labels) in an order drawn from (seed, epoch), each prepared while the one before is used."""
        order = named_rng(self.seed, "batches", epoch).permutation(self.labels.split["train"])

        def make() -> Iterator[tuple[GMNInputs, Tensor]]:
            for i in range(start, self.num_batches(epoch), step):
                rows = order[i * self.batch_size : (i + 1) * self.batch_size]
                rng = named_rng(self.seed, "gmn", epoch, i)
                yield self._inputs(rows, epoch, rng), torch.from_numpy(self.labels.y[rows])

        yield from Prefetcher(make())

    def outputs(self, model: nn.Module, batch: tuple[GMNInputs, Tensor]) -> Seen:
        inputs, y = batch
        return model(inputs), y, None

    def encoder_batch(
        self, model: nn.Module, rows: np.ndarray, epoch: int, number: int
    ) -> tuple[tuple[GMNInputs, Tensor], np.ndarray]:
        return (self._inputs(rows, epoch, named_rng(self.seed, "gmn", epoch, number)), torch.zeros(0)), rows

    def encode(self, model: nn.Module, batch: tuple[GMNInputs, Tensor]) -> Tensor:
        return model(batch[0])

    def logits(self, model: nn.Module, rows: np.ndarray) -> Tensor:
        return self.predict_all(model)[torch.from_numpy(rows)].float()

    def left_out(self) -> str:
        """Return a sentence on what the first training batch does not see, and evaluation does."""
        m, order = self.prepared, named_rng(self.seed, "batches", 0).permutation(self.labels.split["train"])
        rows = order[: self.batch_size]
        inputs = self._inputs(rows, 0, named_rng(self.seed, "gmn", 0, 0))
        assert inputs.targets is not None
        text = f"training batches: the node sequence holds {len(inputs.order):,} of {len(m.x):,} nodes"
        if self.passes_messages:
            own, every = inputs.graph.indptr.diff()[inputs.targets].sum(), np.diff(m.indptr)[rows].sum()
            text += f", message passing {100 * int(own) / max(1, int(every)):.0f}% of the edges at a batch's nodes"
        return f"{text}; evaluation and prediction take all nodes and edges"

    def _inputs(self, rows: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        m = self.prepared
        tokens: Tokens | None = None
        if m.settings.tokens > 1:
            number = epoch // self.resample_every if self.resample_every else 0
            tokens = m.tokens(rows, self.kind, drawing_seed(self.seed, number))
        visited = self._near(rows, epoch) if tokens is None else tokens["nodes"].numpy()
        if self.everywhere:
            near, place, edges = np.arange(len(m.x)), np.concatenate([rows, visited]), np.arange(len(m.indices))
            graph = m.adjacency
        else:
            near, place = np.unique(np.concatenate([rows, visited]), return_inverse=True)
            indptr, indices, edges = induced(m.indptr, m.indices, near)
            graph = Adjacency.of(indptr, indices)
        extra: dict[str, Any] = {}
        if tokens is not None:
            extra = token_inputs(relocated(tokens, place[len(rows) :], edges))
            extra["token_order"] = token_order(len(rows), m.settings, rng)
        order = node_order(m.key[near if self.gps else rows], rng)
        return GMNInputs(
            x=m.features(rng, near), graph=graph,
            edge_attr=None if m.edge_attr is None else torch.from_numpy(m.edge_attr[edges]),
            targets=torch.from_numpy(place[: len(rows)]), order=torch.from_numpy(order),
            sequences=torch.tensor([0, len(order)]), **extra,
        )  # fmt: skip

    def _near(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Return nodes near rows without tokens, from which they receive messages; drawn anew every epoch."""
        if not self.passes_messages or self.everywhere:
            return rows[:0]
        steps, walks = CONTEXT
        seed = drawing_seed(self.seed, epoch)
        return random_walks(self.prepared.table, rows, steps, walks=walks, seed=seed).astype(np.int64).ravel()


def induced(indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR adjacency of the subgraph on nodes (ascending), and the rows of its edges in indices."""
    starts, counts = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
    ids = ranges(starts, counts)
    at = np.searchsorted(nodes, indices[ids])
    inside = nodes[np.minimum(at, len(nodes) - 1)] == indices[ids]
    rows = np.repeat(np.arange(len(nodes)), counts)[inside]
    own = bounds_of(np.bincount(rows, minlength=len(nodes)))
    return own, at[inside].astype(np.int64), ids[inside]


@dataclass(frozen=True)
class WalkPlan:
    """Walk settings, nodes or graphs a step (None: all at once), and the bytes a step is expected to take."""

    walks: WalkSettings
    batch_size: int | None
    bytes: int
    unit: str = "nodes"

    def __str__(self) -> str:
        w = self.walks
        batch = "the whole graph" if self.batch_size is None else f"{self.batch_size:,} {self.unit}"
        return (
            f"m={w.max_length}, s={w.repeats}, M={w.walks}: {w.tokens} tokens a node, {batch} a step, "
            f"about {self.bytes / 2**20:,.0f} MiB"
        )


def plan_batches(
    nodes: int,
    edges: int,
    features: int,
    model: GMN.Config,
    walks: WalkSettings,
    budget: int,
    *,
    batch_size: int | None = None,
    edge_dim: int = 0,
    everywhere: bool = False,
) -> WalkPlan:
    """Return the whole graph as a batch if a step fits the budget, otherwise the largest batch of nodes that does.

    A given batch_size stays; it is a ConfigError if it, or one node, does not fit. See `step_bytes` for the others.
    """
    visited = walks.repeats * walks.walks * sum(walks.ladder)
    if walks.tokens == 1 and (model.uses_mpnn or model.variant == "gps-mamba"):
        visited = CONTEXT[0] * CONTEXT[1]

    def needed(size: int | None) -> int:
        if size is None or size >= nodes:
            return step_bytes(nodes, edges, walks, model, features, edge_dim=edge_dim)
        seen = nodes if everywhere and model.uses_mpnn else min(nodes, size * (1 + visited))
        return step_bytes(size, edges * seen // nodes, walks, model, features, context=seen - size, edge_dim=edge_dim)

    size = batch_size
    while needed(size) > budget:
        if batch_size is not None or size == 1 or nodes < 2:
            raise _too_large(f"{size or nodes:,} nodes", needed(size), budget)
        size = min(nodes, 1 << 20) // 2 if size is None else size // 2
    return WalkPlan(walks, size, needed(size))


def plan_graph_batches(
    nodes: np.ndarray,
    edges: np.ndarray,
    features: int,
    model: GMN.Config,
    walks: WalkSettings,
    budget: int,
    *,
    batch_size: int | None = None,
    edge_dim: int = 0,
) -> WalkPlan:
    """Return `GRAPHS_PER_BATCH` graphs a step, or fewer if those with most nodes do not fit the budget.

    nodes and edges are (G,) sizes of the graphs. A given batch_size stays; it is a ConfigError if it does not fit.
    """
    nodes, edges = np.cumsum(np.sort(nodes)[::-1]), np.cumsum(np.sort(edges)[::-1])
    size = GRAPHS_PER_BATCH if batch_size is None else batch_size
    while True:
        last = min(size, len(nodes)) - 1
        needed = step_bytes(int(nodes[last]), int(edges[last]), walks, model, features, edge_dim=edge_dim)
        if needed <= budget:
            return WalkPlan(walks, size, needed, "graphs")
        if batch_size is not None or size == 1:
            raise _too_large(f"{size} of the largest graphs", needed, budget)
        size //= 2


def _too_large(batch: str, needed: int, budget: int) -> ConfigError:
    return ConfigError(
        f"a training step on {batch} takes about {needed / 2**20:,.0f} MiB, more than walks.memory_budget="
        f"{budget / 2**20:,.0f} MiB. Raise it, or lower walks.max_length, walks.repeats, walks.walks, model.dim or "
        "batch_size"
    )


def step_bytes(
    nodes: int, edges: int, walks: WalkSettings, model: GMN.Config, features: int, *, context: int = 0,
    edge_dim: int = 0,
) -> int:  # fmt: skip
    """Return about how many bytes a training step keeps for its backward pass, if every walk visits new nodes.

    Args:
        nodes, edges: whose outputs are computed; that messages pass over.
        context: further nodes whose features are needed.
        features, edge_dim: columns of x and of the edge features (counted for "gps-mamba" and PNA alone).
    """
    d, block, message = model.dim, block_floats(model), 16 * model.dim  # floats a row and layer
    if model.input_dropout:  # each embedding keeps its input and its mask
        features = int(features * (1 + 1.25 * (1 + model.uses_mpnn)))
    rows = nodes + context
    if model.variant == "gps-mamba":
        layer = rows * (block * model.node_layers + message + 14 * d) + edges * edge_floats(model, edge_dim)
        return int(4 * (rows * (features + 2 * d) + model.mpnn_layers * layer + (4 + edge_dim) * edges))
    if model.encoder == "rwf":
        visited = 1 + walks.repeats * walks.walks * sum(h + 1 for h in walks.ladder)
        row = 6 * d + 2 * walks.window
    else:
        visited = 1 + walks.repeats * sum(h * walks.walks + 1 for h in walks.ladder)
        row = message * model.local_layers + 2 * d + 12
    tokens = walks.tokens * (block * model.token_layers + 2 * d)
    own = tokens + visited * row + block * model.node_layers + 4 * d
    whole = rows * (features + d + (message * model.mpnn_layers if model.uses_mpnn else 0)) + 4 * edges
    if model.uses_mpnn and model.mpnn == "pna":
        whole += model.mpnn_layers * edges * edge_floats(model, edge_dim)
    return int(4 * (nodes * own + whole))


def block_floats(model: GMN.Config) -> float:
    """Return the floats that a block keeps for a row."""
    inner = model.expand * model.dim
    branches = 2 if model.bidirectional else 1
    return branches * (9 * inner + 3 * model.state_dim + inner * model.state_dim / 16) + 4 * model.dim


def edge_floats(model: GMN.Config, edge_dim: int) -> int:
    """Return the floats that a layer of message passing keeps for an edge."""
    if model.mpnn == "pna":
        return 5 * model.dim
    return {"gatedgcn": 7, "gine": 2}.get(model.mpnn, 0) * model.dim if edge_dim else 0


__all__ = ["PreparedGraph", "VisitedNodes", "WalkPlan", "WholeSequence", "gmn_inputs", "plan_batches"]
