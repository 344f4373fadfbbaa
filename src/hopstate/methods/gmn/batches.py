"""Batches for Graph Mamba Networks on one graph: full-graph steps, or node batches with the nodes on their walks.

`plan_batches` chooses between them by the estimated memory of a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
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
    TokenKind,
    Tokens,
    WalkSettings,
    drawing_seed,
    token_order,
    walk_tokens,
)
from hopstate.methods.shared.node import flow_reversed
from hopstate.ops.rows import bounds_of, ranges
from hopstate.ops.walks import WalkTable, random_walks
from hopstate.random import named_rng
from hopstate.training.tasks.node import NodeBatches, NodeLabels, Seen, averaged, device_of
from hopstate.training.tasks.task import prefetched

CONTEXT_WALKS = (2, 4)  # steps, walks of each node of a batch without tokens, to neighbors to receive messages from
GRAPHS_PER_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class PreparedGraph:
    """A preprocessed graph for a GMN.

    Args:
        indptr, indices: CSR adjacency.
        x: (N, F) features and encodings. The last `signs` columns are eigenvectors.
        edge_attr: (E, D), or None.
        key: (N,) sort key of the node sequence.
        settings: walk settings.
        signs: number of trailing eigenvector columns, whose signs are flipped at random in training.
    """

    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray
    edge_attr: np.ndarray | None
    key: np.ndarray
    settings: WalkSettings
    signs: int = 0

    @property
    def edge_dim(self) -> int:
        """D, 0 without edge features."""
        return 0 if self.edge_attr is None else self.edge_attr.shape[1]

    @cached_property
    def table(self) -> WalkTable:
        return WalkTable.of(self.indptr, self.indices)

    @cached_property
    def adjacency(self) -> Adjacency:
        return Adjacency.of(self.indptr, self.indices)

    def features(
        self, rng: np.random.Generator | None, rows: np.ndarray | None = None, bounds: np.ndarray | None = None
    ) -> Tensor:
        """Return x of all rows or of some. With rng, eigenvectors get random signs.

        bounds (G+1,) delimit the graphs among the rows. Each graph gets its own signs.
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
    """Return the token fields of `GMNInputs`."""
    fields: dict[str, Any] = {"token_offsets": tokens["offsets"], "token_nodes": tokens["nodes"]}
    if "indptr" in tokens:
        fields["token_graph"] = Adjacency(tokens["indptr"], tokens["indices"])
    else:
        fields |= {"bits": tokens["bits"], "walks": tokens["walks"]}
    if "edges" in tokens:
        fields["token_edges"] = tokens["edges"]
    return fields


def to_batch_rows(tokens: Tokens, nodes: np.ndarray, edges: np.ndarray) -> Tokens:
    """Return tokens with nodes replaced by batch rows, and edges by their positions in edges (ascending)."""
    moved = {**tokens, "nodes": torch.from_numpy(nodes)}
    if "edges" in tokens:
        edge_ids = tokens["edges"].numpy()
        moved["edges"] = torch.from_numpy(np.where(edge_ids >= 0, np.searchsorted(edges, edge_ids), -1))
    return moved


def full_graph_inputs(prepared: PreparedGraph, tokens: dict[str, Any], rng: np.random.Generator | None) -> GMNInputs:
    """Return the inputs of a full graph as one sequence.

    Args:
        prepared: the graph.
        tokens: `token_inputs` of all nodes, empty without walk tokens.
        rng: samples the order of ties and tokens, and the signs of eigenvectors. None keeps all.
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
    """Return the GMN inputs of a full graph. Nodes receive messages from the sources of their edges.

    The seed fixes walks, ties of the order and the order of tokens. Use a different one for each epoch.

    Args:
        graph: graph with features x (N, F).
        config: model settings. `tokens` of the model must be repeats * max_length + 1.
        max_length: m, longest walk. 0: each node is its only token.
        repeats: s, tokens of each length.
        walks: M, walks per token.
        order: order of the node sequence.
        seed: random seed.

    Raises:
        DataError: the graph has no features.
        ConfigError: invalid numbers of walks.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> inputs = hopstate.gmn_inputs(graph, hopstate.GMN.Config(), max_length=2, walks=2)
        >>> model = hopstate.GMN(hopstate.GMN.Config(dim=16), in_dim=graph.num_features, out_dim=5, tokens=1 * 2 + 1)
        >>> model(inputs).shape
        torch.Size([120, 5])
    """
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    message_graph = flow_reversed(graph)
    prepared = PreparedGraph(
        indptr=message_graph.indptr,
        indices=message_graph.indices,
        x=np.array(graph.x),
        edge_attr=None if message_graph.edge_attr is None else np.array(message_graph.edge_attr),
        key=order_key(graph.indptr, graph.indices, order),
        settings=WalkSettings(max_length=max_length, repeats=repeats, walks=walks),
    )
    tokens: dict[str, Any] = {}
    if prepared.settings.max_length:
        kind = (config or GMN.Config()).token_kind
        tokens = token_inputs(prepared.tokens(np.arange(graph.num_nodes), kind, seed))
    return full_graph_inputs(prepared, tokens, named_rng(seed))


class FullGraphBatches(NodeBatches[tuple[GMNInputs, Tensor, Tensor]]):
    """Full-graph training steps. Orders and signs are sampled every epoch, walks every `resample_every` epochs.

    Args:
        config: network settings.
        prepared: the graph.
        labels: labels, splits and names.
        seed: random seed.
        resample_every: epochs that share their walks, 0 for never.
        eval_samples: samples of walks in evaluation, over which outputs are averaged.
    """

    single_process = "each step uses the full graph; train in batches instead"

    def __init__(
        self, config: GMN.Config, prepared: PreparedGraph, labels: NodeLabels, *, seed: int, resample_every: int = 0,
        eval_samples: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(labels)
        self.config, self.prepared, self.seed, self.eval_samples = config, prepared, seed, eval_samples
        self.kind, self.resample_every = config.token_kind, resample_every
        self._round: tuple[int, dict[str, Any]] | None = None  # the walks of training
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
        queried = torch.from_numpy(rows)
        return (self._inputs(epoch, named_rng(self.seed, "gmn", epoch, number)), queried, queried), rows

    def encode(self, model: nn.Module, batch: tuple[GMNInputs, Tensor, Tensor]) -> Tensor:
        return model(batch[0])[batch[1]]

    def logits(self, model: nn.Module, rows: np.ndarray) -> Tensor:
        device = device_of(model)
        if self._eval is None or self._eval.x.device != device:
            self._eval = self._evaluation_round(0, model)
        queried = (
            self._eval if number == 0 else self._evaluation_round(-number, model) for number in range(self.eval_samples)
        )
        return averaged(model(inputs).float().cpu() for inputs in queried)[torch.from_numpy(rows)]

    def evaluation_inputs(self) -> GMNInputs:
        """Return the inputs of the first evaluation sample."""
        return self._inputs(0, None)

    def _evaluation_round(self, number: int, model: nn.Module) -> GMNInputs:
        inputs = self._inputs(number, None).to(device_of(model))
        if next(model.parameters()).dtype != torch.float64:
            return inputs
        from hopstate.training.devices import Double

        return Double().convert_input(inputs)

    def _inputs(self, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        if self.prepared.settings.tokens == 1:
            return full_graph_inputs(self.prepared, {}, rng)
        if rng is None and (self.resample_every or epoch):  # keeps the walks of training
            return full_graph_inputs(self.prepared, self._drawn(epoch), rng)
        number = epoch // self.resample_every if self.resample_every else 0
        if self._round is None or self._round[0] != number:  # reused in a round to keep cached normalized adjacencies
            self._round = number, self._drawn(number)
        return full_graph_inputs(self.prepared, self._round[1], rng)

    def _drawn(self, number: int) -> dict[str, Any]:
        rows = np.arange(len(self.prepared.x))
        return token_inputs(self.prepared.tokens(rows, self.kind, drawing_seed(self.seed, number)))


class WalkedNodeBatches(NodeBatches[tuple[GMNInputs, Tensor]]):
    """Node batches with the nodes on their walks. Message passing in training is restricted to these nodes.

    Args:
        config, prepared, labels, seed, resample_every: see `FullGraphBatches`.
        batch_size: nodes per step.
        predict_all: model → (N, C) logits of all nodes on the CPU, for evaluation and prediction.
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
    ) -> None:
        super().__init__(labels)
        check_range(minimum=1, batch_size=batch_size)
        self.prepared, self.seed, self.batch_size, self.resample_every = prepared, seed, batch_size, resample_every
        self.config, self.kind, self.gps = config, config.token_kind, config.variant == "gps-mamba"
        self.passes_messages = self.gps or config.uses_mpnn
        self.predict_all = predict_all

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.labels.split["train"]) // self.batch_size)

    def batches(
        self, model: nn.Module, epoch: int, start: int = 0, step: int = 1
    ) -> Iterator[tuple[GMNInputs, Tensor]]:
        """Yield (inputs, labels) in random order. The next batch is prepared in the background."""
        order = named_rng(self.seed, "batches", epoch).permutation(self.labels.split["train"])

        def make() -> Iterator[tuple[GMNInputs, Tensor]]:
            for i in range(start, self.num_batches(epoch), step):
                rows = order[i * self.batch_size : (i + 1) * self.batch_size]
                rng = named_rng(self.seed, "gmn", epoch, i)
                yield self._inputs(rows, epoch, rng), torch.from_numpy(self.labels.y[rows])

        yield from prefetched(make())

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

    def describe_truncation(self) -> str:
        """Describe how much of the graph the first training batch contains."""
        m, order = self.prepared, named_rng(self.seed, "batches", 0).permutation(self.labels.split["train"])
        rows = order[: self.batch_size]
        inputs = self._inputs(rows, 0, named_rng(self.seed, "gmn", 0, 0))
        assert inputs.targets is not None
        text = f"training batches: the node sequence holds {len(inputs.order):,} of {len(m.x):,} nodes"
        if self.passes_messages:
            used, total = inputs.graph.indptr.diff()[inputs.targets].sum(), np.diff(m.indptr)[rows].sum()
            text += f", message passing {100 * int(used) / max(1, int(total)):.0f}% of the edges at a batch's nodes"
        return f"{text}; evaluation and prediction use all nodes and edges"

    def _inputs(self, rows: np.ndarray, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        m = self.prepared
        tokens: Tokens | None = None
        if m.settings.tokens > 1:
            number = epoch // self.resample_every if self.resample_every else 0
            tokens = m.tokens(rows, self.kind, drawing_seed(self.seed, number))
        visited = self._context_nodes(rows, epoch) if tokens is None else tokens["nodes"].numpy()
        nodes_used, batch_rows = np.unique(np.concatenate([rows, visited]), return_inverse=True)
        indptr, indices, edges = induced_subgraph(m.indptr, m.indices, nodes_used)
        extra: dict[str, Any] = {}
        if tokens is not None:
            extra = token_inputs(to_batch_rows(tokens, batch_rows[len(rows) :], edges))
            extra["token_order"] = token_order(len(rows), m.settings, rng)
        order = node_order(m.key[nodes_used if self.gps else rows], rng)
        return GMNInputs(
            x=m.features(rng, nodes_used), graph=Adjacency.of(indptr, indices),
            edge_attr=None if m.edge_attr is None else torch.from_numpy(m.edge_attr[edges]),
            targets=torch.from_numpy(batch_rows[: len(rows)]), order=torch.from_numpy(order),
            sequences=torch.tensor([0, len(order)]), **extra,
        )  # fmt: skip

    def _context_nodes(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Sample neighbors that send messages to rows, for models without walk tokens."""
        if not self.passes_messages:
            return rows[:0]
        steps, walks = CONTEXT_WALKS
        seed = drawing_seed(self.seed, epoch)
        return random_walks(self.prepared.table, rows, steps, walks=walks, seed=seed).astype(np.int64).ravel()


def induced_subgraph(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR adjacency of the subgraph on nodes (ascending), and the positions of its edges in indices."""
    starts, counts = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
    ids = ranges(starts, counts)
    at = np.searchsorted(nodes, indices[ids])
    inside = nodes[np.minimum(at, len(nodes) - 1)] == indices[ids]
    rows = np.repeat(np.arange(len(nodes)), counts)[inside]
    bounds = bounds_of(np.bincount(rows, minlength=len(nodes)))
    return bounds, at[inside].astype(np.int64), ids[inside]


@dataclass(frozen=True)
class WalkPlan:
    """Walk settings, nodes or graphs per step (None: all), and the estimated bytes of a step."""

    walks: WalkSettings
    batch_size: int | None
    bytes: int
    unit: str = "nodes"

    def __str__(self) -> str:
        w = self.walks
        batch = "the whole graph" if self.batch_size is None else f"{self.batch_size:,} {self.unit}"
        return (
            f"m={w.max_length}, s={w.repeats}, M={w.walks}: {w.tokens} tokens per node, {batch} per step, "
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
) -> WalkPlan:
    """Return a full-graph plan if a step fits the budget, otherwise the largest fitting node batch.

    A given batch_size is kept; ConfigError if it, or a single node, does not fit. See `step_bytes` for the others.
    """
    visited = walks.repeats * walks.walks * sum(walks.ladder)
    if walks.tokens == 1 and (model.uses_mpnn or model.variant == "gps-mamba"):
        visited = CONTEXT_WALKS[0] * CONTEXT_WALKS[1]

    def needed(size: int | None) -> int:
        if size is None or size >= nodes:
            return step_bytes(nodes, edges, walks, model, features, edge_dim=edge_dim)
        seen = min(nodes, size * (1 + visited))
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
    """Return a plan of `GRAPHS_PER_BATCH` graphs per step, or fewer if the largest graphs do not fit the budget.

    nodes and edges are (G,) sizes of the graphs. A given batch_size is kept; ConfigError if it does not fit.
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
        f"a training step on {batch} takes about {needed / 2**20:,.0f} MiB, more than walks.max_memory="
        f"{budget / 2**20:,.0f} MiB. Raise it, or lower walks.max_length, walks.repeats, walks.walks, model.dim or "
        "batch_size"
    )


def step_bytes(
    nodes: int, edges: int, walks: WalkSettings, model: GMN.Config, features: int, *, context: int = 0,
    edge_dim: int = 0,
) -> int:  # fmt: skip
    """Estimate the bytes that a training step stores for the backward pass, if walks never visit a node twice.

    Args:
        nodes: nodes with outputs.
        edges: edges for message passing.
        walks, model: settings.
        context: additional nodes with features.
        features, edge_dim: columns of x and of the edge features (edge features count for "gps-mamba" and PNA only).
    """
    d, block, message = model.dim, block_floats(model), 16 * model.dim  # floats per row and layer
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
    per_node = tokens + visited * row + block * model.node_layers + 4 * d
    shared = rows * (features + d + (message * model.mpnn_layers if model.uses_mpnn else 0)) + 4 * edges
    if model.uses_mpnn and model.mpnn == "pna":
        shared += model.mpnn_layers * edges * edge_floats(model, edge_dim)
    return int(4 * (nodes * per_node + shared))


def block_floats(model: GMN.Config) -> float:
    """Return the floats that a block stores per row."""
    inner = model.expand * model.dim
    branches = 2 if model.bidirectional else 1
    return branches * (9 * inner + 3 * model.state_dim + inner * model.state_dim / 16) + 4 * model.dim


def edge_floats(model: GMN.Config, edge_dim: int) -> int:
    """Return the floats that a message-passing layer stores per edge."""
    if model.mpnn == "pna":
        return 5 * model.dim
    return {"gatedgcn": 7, "gine": 2}.get(model.mpnn, 0) * model.dim if edge_dim else 0


__all__ = ["FullGraphBatches", "PreparedGraph", "WalkPlan", "WalkedNodeBatches", "gmn_inputs", "plan_batches"]
