"""CTDG-SSM: a node memory per layer, updated by each batch of events from its inputs and the change of the graph.

A batch is processed in three steps: encode the event features, average over a node's events, then apply the layers X <-
X + GELU(H), with H the layer's memory after the batch (`hippo`). The matrices P and G are built once for all layers.
Inactive nodes keep their memory. Scoring reads a state, and `update` returns the next one: score a batch before you
update with it.

Axes: n active node, N node, B event, K layer, d channel.
Source: Raghuvanshi et al. 2026, arXiv:2606.04672, section 5, algorithms 1-3.
Deviations: repeated nodes are averaged at the encoder's output, so that each node has one row in every matrix. The
endpoint's own row comes first in the input of both endpoints, as algorithm 3 does for static embeddings. Filters start
at their critical coefficients (`hippo`). The released code differs from the paper in its Laplacians, inverse and
exponential, and was not used. Relations of events and types of nodes are our extension: a vector of each is added to
the encoder's hidden units, and the pair's relation modulates the decoder's input.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError, DataError, HopstateError, ShapeError, TimeOrderError, check_range, refuse_idle
from hopstate.layers.decoders import PairHistory
from hopstate.layers.encodings import TimeEncoding
from hopstate.layers.typed import RelationModulation, TypeEmbedding, add_types
from hopstate.methods.ctdg_ssm.hippo import FilterInit, HippoCell, PolynomialFilter, filter_coefficients
from hopstate.ops.filters.laplacian import dense_laplacian, noisy_laplacian, sparse_laplacian
from hopstate.ops.filters.transition import DenseTransition, SparseTransition, Transition
from hopstate.random import named_rng
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.tokens.pair_features import NAMES

Decoder = Literal["link", "node", "sequence"]
StaticKind = Literal["none", "onehot", "random", "learnable"]
ONEHOT_LIMIT = 65_536


@dataclass(frozen=True, kw_only=True)
class CTDGSSMConfig:
    """Settings of CTDG-SSM.

    Args:
        dim: d, channels of memory and embedding.
        num_layers: number of stacked memory layers.
        order: highest power of the Laplacian in the graph filter. 0 ignores the graph. Active nodes are order-hop
            neighborhoods.
        filter_init: initial filter coefficients: "critical", one number, or one per power.
        learn_filter: train the filter coefficients.
        laplacian_noise: spectral norm epsilon of random symmetric noise on the Laplacian after a batch (E.3). It
            depends on the batch only. It makes all matrices dense.
        update_all: update all nodes seen so far in every batch, with zero inputs for nodes without events (E.4). The
            cost of a batch grows with the number of nodes.
        norm: scale a layer's input to unit root mean square (E.6).
        residual: add a layer's input to its output (E.6).
        time_dim: columns of the time encoding, 0 for none.
        max_frequency: highest frequency of the time encoding of ln(1 + time difference).
        min_frequency: lowest frequency of it. The others are log-spaced between the two.
        static: static node embedding: none, onehot, random, learnable.
        static_dim: columns of a random or learnable static embedding.
        embedding_norm: scale embeddings to unit root mean square before the decoder.
        node_time_deltas: the link decoder also reads the time since the last event of each endpoint.
        pair_dim: columns of (W_1 h_u) * (W_2 h_v) that the link decoder also reads, 0 for none.
        pair_features: the link decoder also reads features of the pair's history.
        step_bias: initial step size softplus(step_bias). Lower values remember longer.
        quadrature_nodes: Gauss-Legendre nodes for the integral of the input.
        max_norm: maximum norm of a node's memory, null for none.
        dense_limit: maximum number of active nodes (in a block) for dense matrices.
        hidden: hidden units of the decoder, 0 for the paper's linear one.
        max_log_delta: value of ln(1 + time difference) for a pair or node without an earlier event, and upper limit of
            the others. The default 45 exceeds 2^64 time units.
    """

    dim: int = 32
    num_layers: int = 2
    order: int = 1
    filter_init: FilterInit = "critical"
    learn_filter: bool = True
    laplacian_noise: float = 0.0
    update_all: bool = False
    norm: bool = True
    residual: bool = True
    time_dim: int = 16
    max_frequency: float = 1.0
    min_frequency: float = 1e-3
    static: StaticKind = "none"
    static_dim: int = 32
    embedding_norm: bool = False
    node_time_deltas: bool = False
    pair_dim: int = 0
    pair_features: bool = False
    step_bias: float = -3.0
    quadrature_nodes: int = 8
    max_norm: float | None = None
    dense_limit: int = 256
    hidden: int = 0
    max_log_delta: float = 45.0

    def __post_init__(self) -> None:
        check_range(minimum=1, dim=self.dim, num_layers=self.num_layers, static_dim=self.static_dim)
        check_range(minimum=1, quadrature_nodes=self.quadrature_nodes)
        check_range(minimum=0, time_dim=self.time_dim, pair_dim=self.pair_dim, hidden=self.hidden)
        check_range(minimum=0, dense_limit=self.dense_limit)
        check_range(above=0, max_norm=self.max_norm)
        check_range(above=0, below=math.inf, max_log_delta=self.max_log_delta)
        check_range(above=-math.inf, below=math.inf, step_bias=self.step_bias)
        graphless = not self.order and "order=0 has no filter"
        timeless = not self.time_dim and "time_dim=0 leaves times out"
        unsized = self.static in ("none", "onehot") and f"static={self.static} leaves no choice"
        refuse_idle(
            self,
            filter_init=graphless,
            learn_filter=graphless,
            laplacian_noise=graphless,
            node_time_deltas=timeless,
            max_frequency=timeless,
            min_frequency=timeless,
            static_dim=unsized,
        )
        if not 0 < self.min_frequency <= self.max_frequency < math.inf:
            raise ConfigError(
                f"0 < min_frequency <= max_frequency must hold; got {self.min_frequency} and {self.max_frequency}"
            )
        check_range(minimum=0, below=math.inf, laplacian_noise=self.laplacian_noise)
        filter_coefficients(self.order, self.filter_init)


class StaticEmbedding(nn.Module):
    """A vector per node that no event changes.

    Args:
        kind: "none" (no columns), "onehot" (N columns), "random" (fixed normal of variance 1/dim, the same for a
            node whatever N), "learnable".
        dim: columns of "random" and "learnable".
        num_nodes: N, fixed, for "onehot" and "learnable"; the others know every node.
        seed: of "random"; kept with the weights.

    Raises:
        ConfigError: an unknown kind, no N where one is needed, or too large an N for "onehot".
    """

    table: Tensor
    seed: Tensor

    def __init__(self, kind: StaticKind, dim: int, num_nodes: int | None, seed: int = 0) -> None:
        super().__init__()
        if kind not in ("none", "onehot", "random", "learnable"):
            raise ConfigError(f"static must be none, onehot, random or learnable; got {kind!r}")
        if kind in ("onehot", "learnable") and not num_nodes:
            raise ConfigError(f"static={kind} needs the number of nodes (num_nodes), which then is fixed")
        if kind == "onehot" and (num_nodes or 0) > ONEHOT_LIMIT:
            raise ConfigError(f"static=onehot of {num_nodes} nodes is too wide; use random or learnable")
        self.kind, self.num_nodes = kind, num_nodes
        self.dim = {"none": 0, "onehot": num_nodes or 0}.get(kind, dim)
        if kind == "learnable":
            self.weight = nn.Parameter(torch.randn(num_nodes or 0, dim) / dim**0.5)
        self.register_buffer("seed", torch.tensor(seed), persistent=kind == "random")
        self.register_buffer("table", torch.zeros(0, self.dim), persistent=False)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        self.table = self.table[:0]  # drawn anew from the seed that was loaded

    def check(self, nodes: Tensor) -> None:
        """Raise DataError if a node lies beyond the fixed number of nodes."""
        if self.kind in ("onehot", "learnable") and len(nodes) and int(nodes.max()) >= (self.num_nodes or 0):
            raise DataError(
                f"node {int(nodes.max())} is beyond the {self.num_nodes} nodes that this model's {self.kind} "
                "embedding was built for; train with static=none or random to meet new nodes"
            )

    def forward(self, nodes: Tensor) -> Tensor:
        """Return (n, dim) vectors of nodes (n,)."""
        self.check(nodes)
        if self.kind == "onehot":
            return F.one_hot(nodes, self.dim).to(self.table.dtype)
        if self.kind == "learnable":
            return self.weight[nodes]
        if self.kind == "random" and len(nodes) and int(nodes.max()) >= len(self.table):
            rows = 1 << int(nodes.max()).bit_length()  # the generator fills row by row: a longer table starts alike
            drawn = named_rng(int(self.seed)).standard_normal((rows, self.dim)) / self.dim**0.5
            self.table = torch.from_numpy(drawn).to(self.table)
        return self.table[nodes] if self.dim else self.table.new_zeros(len(nodes), 0)


class CTDGSSM(MemoryModel):
    """CTDG-SSM: a state-space memory per node. The memory is a `NodeState` that is passed in and returned.

    Args:
        config: settings of the model.
        node_dim, edge_dim: number of features of a node and of an event, 0 for none.
        num_relations, num_node_types: number of relations and of node types, 0 for none.
        num_nodes: number of nodes, needed by static=onehot and learnable.
        decoder: what is predicted: "link", "node" or "sequence".
        num_outputs: number of logits of a pair, node or sequence. Two classes have one logit.
        seed: random seed of static=random.

    Raises:
        ConfigError: there is no input, a static embedding has no number of nodes, or a setting has no effect.

    Example:
        >>> import numpy as np
        >>> stream = hopstate.read_events(events)
        >>> store = hopstate.NeighborStore.from_stream(stream)
        >>> model = hopstate.CTDGSSM(hopstate.CTDGSSM.Config(dim=8, num_layers=1), **stream.used_features)
        >>> inputs = hopstate.ActiveEvents(model, stream, store, num_neighbors=4)
        >>> state = model.initial_state(stream.num_nodes)
        >>> for batch in hopstate.event_batches(stream, batch_size=60):
        ...     state = model.update(state, inputs.batch(batch))
        >>> source, destination, time = np.array([0]), np.array([3]), np.array([120])
        >>> gap = inputs.query_time_deltas(source, destination, time)
        >>> model.link_logits(state, torch.from_numpy(source), torch.from_numpy(destination), gap).shape
        torch.Size([1])
    """

    Config = CTDGSSMConfig

    def __init__(
        self,
        config: CTDGSSMConfig,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
        num_relations: int = 0,
        num_node_types: int = 0,
        num_nodes: int | None = None,
        decoder: Decoder = "link",
        num_outputs: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        c = self.config = config
        pairless = decoder != "link" and f"a decoder of {decoder}s sees no pair"
        refuse_idle(c, node_time_deltas=pairless, pair_dim=pairless, pair_features=pairless)
        self.feature_dims = self.node_dim, self.edge_dim = node_dim, edge_dim
        self.tag = f"ctdg-ssm: {c.num_layers} layers of {c.dim} channels"
        self.order, self.time_dim, self.update_all = c.order, c.time_dim, c.update_all
        self.register_buffer("max_log_delta", torch.tensor(c.max_log_delta))
        self.laplacian_noise = c.laplacian_noise
        self.filter = PolynomialFilter(c.order, c.filter_init, learn=c.learn_filter)
        self.static = StaticEmbedding(c.static, c.static_dim, num_nodes, seed)
        inputs = self.inputs = 2 * (node_dim + self.static.dim) + edge_dim + c.time_dim
        if inputs == 0:
            raise ConfigError("the model has no input: give node or edge features, time_dim, or a static embedding")
        self.gap_in = _gap_encoding(c, learn=False)
        self.encoder = nn.Sequential(nn.Linear(inputs, c.dim), nn.GELU(), nn.Linear(c.dim, c.dim))
        self.relation = TypeEmbedding(num_relations, c.dim, std=0) if num_relations else None
        self.node_types = nn.ModuleList(
            TypeEmbedding(num_node_types, c.dim, std=0) for _ in range(2 if num_node_types else 0)
        )
        self.cells = nn.ModuleList(
            HippoCell(
                c.dim, step_bias=c.step_bias, quadrature_nodes=c.quadrature_nodes, max_norm=c.max_norm, norm=c.norm
            )
            for _ in range(c.num_layers)
        )
        relations = num_relations if decoder == "link" else 0
        self.readout = Readout(c, c.dim + self.static.dim, decoder, num_outputs, relations)
        self.gaps = self.readout.gaps

    # ---- memory -----------------------------------------------------------------------------------------
    def initial_state(self, num_nodes: int = 0) -> NodeState:
        """Return the memory before the first event, on the model's device and in its dtype; it grows as needed."""
        like = next(self.encoder.parameters())
        c = self.config
        return NodeState.zeros(num_nodes, c.num_layers, c.dim, tag=self.tag, dtype=like.dtype, device=like.device)

    def update(self, state: NodeState, batch: ActiveBatch, *, in_place: bool = False) -> NodeState:
        """Return the memory after a batch (algorithm 3); state itself stays as it was, whatever is raised.

        Args:
            state: of this model's widths; new nodes grow it.
            batch: events and active nodes.
            in_place: write into state's tensors instead (inference only); still nothing is written on an error.

        Raises:
            CheckpointError: state is another model's.
            TimeOrderError: an event precedes one that state has seen.
            DataError: a node beyond a fixed vocabulary.
            ShapeError: features of other widths than the configuration's.
            HopstateError: the memory is no longer finite.
        """
        if torch.compiler.is_compiling():  # what is computed depends on the events: run as it is
            return torch.compiler.disable(self.update)(state, batch, in_place=in_place)
        state = self._checked(state, batch)
        if not len(batch.nodes):
            return state
        with torch.autocast(state.memory.device.type, enabled=False):  # a memory lives long: no half precision in it
            rows, output = self._step(state, batch)
        if not bool(torch.isfinite(rows).all()):
            raise HopstateError(
                "the memory is not finite after this batch. Lower filter_init or the learning rate, or set max_norm"
            )
        seen = batch.nodes[torch.cat([batch.source, batch.target])]
        return state.replaced(batch.nodes, rows, output, seen=seen, time=batch.time.repeat(2), in_place=in_place)

    def _step(self, state: NodeState, batch: ActiveBatch) -> tuple[Tensor, Tensor]:
        transition = self._transition(batch)
        x = self._encode(batch, self.static(state.identity(batch.nodes))).view(batch.blocks, -1, self.config.dim)
        before = state.memory[:, state.place(batch.nodes)].view(len(self.cells), *x.shape)
        memory = []
        for cell, H in zip(self.cells, before, strict=True):
            memory.append(cell(H, x, transition))
            x = x + F.gelu(memory[-1]) if self.config.residual else F.gelu(memory[-1])
        return torch.stack(memory).flatten(1, 2), x.flatten(0, 1)

    def _checked(self, state: NodeState, batch: ActiveBatch) -> NodeState:
        state.check_tag(self.tag)
        c = self.config
        widths = {"node_attr": (batch.node_attr, self.node_dim), "edge_attr": (batch.edge_attr, self.edge_dim)}
        for name, (attr, width) in widths.items():
            found = 0 if attr is None else attr.shape[1]
            if found != width:
                raise ShapeError(f"the model takes {name} of {width} columns; the batch has {found}")
        if self.relation is not None and batch.relation is None and len(batch):
            raise ShapeError("the model was trained on typed events, and the batch has no relations")
        if (batch.gap is None) == (c.time_dim > 0):
            raise ShapeError(f"time_dim={c.time_dim}, but the batch has {'no ' if batch.gap is None else ''}gaps")
        self.static.check(state.identity(batch.nodes))
        if len(batch.nodes):
            state = state.grown(int(batch.nodes.max()) + 1)
        if batch.blocks == 1 and len(batch) and float(batch.time[0]) < state.clock:
            raise TimeOrderError(
                f"the batch starts at time {float(batch.time[0]):g}, but the memory has seen {state.clock:g}; "
                "stream events in order of time"
            )
        for ends in (batch.source, batch.target):
            state.check_times(batch.nodes[ends], batch.time)
        return state

    def _transition(self, batch: ActiveBatch) -> Transition:
        """Return P and G of the batch's change: dense for few active nodes a block, else sparse (on the CPU)."""
        coefficients, n = self.filter(), len(batch.nodes)
        pairs, like = (batch.after, batch.before), coefficients.detach()
        noise = self.laplacian_noise
        if n > self.config.dense_limit and not noise and batch.blocks == 1 and like.device.type == "cpu":
            dtype = like.new_zeros(0).numpy().dtype
            ones = [torch.ones(p.shape[1]).numpy() for p in pairs]
            after, before = (sparse_laplacian(p.numpy(), w, n, dtype) for p, w in zip(pairs, ones, strict=True))
            return SparseTransition(coefficients, after, before)
        dense = [dense_laplacian(p, like.new_ones(p.shape[1]), n, batch.blocks) for p in pairs]
        if noise:
            dense[0] = noisy_laplacian(dense[0], noise, (batch_seed(batch),))
        if batch.blocks > 1 and all(
            bool((L[:1] == L).all()) for L in dense
        ):  # streams in step: one change serves every block
            dense = [L[:1] for L in dense]
        return DenseTransition(coefficients, *dense)

    def _encode(self, batch: ActiveBatch, fixed: Tensor) -> Tensor:
        """Return (n, d): the mean of a node's encoded events; what zeros encode to where it has none.

        Args:
            batch: the events.
            fixed: (n, w) static embeddings of the active nodes.
        """
        ends = torch.cat([batch.source, batch.target])  # own end first, the other end second
        others = torch.cat([batch.target, batch.source])
        parts = [] if batch.node_attr is None else [batch.node_attr[ends], batch.node_attr[others]]
        parts += [] if batch.edge_attr is None else [batch.edge_attr.repeat(2, 1)]
        parts += [] if self.gap_in is None else [self.gap_in(batch.gap).repeat(2, 1)]
        parts += [fixed[ends], fixed[others]] if self.static.dim else []
        n = len(batch.nodes)
        count = torch.zeros(n, dtype=fixed.dtype, device=fixed.device).index_add_(
            0, ends, torch.ones(len(ends), dtype=fixed.dtype, device=fixed.device)
        )
        raw = torch.cat([torch.cat(parts, 1).to(fixed.dtype), fixed.new_zeros(1, self.inputs)])
        hidden, *rest = self.encoder
        encoded = nn.Sequential(*rest)(self._add_types(hidden(raw), batch, ends, others))
        total = encoded.new_zeros(n, encoded.shape[1]).index_add(0, ends, encoded[:-1])
        return torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], encoded[-1])

    def _add_types(self, hidden: Tensor, batch: ActiveBatch, ends: Tensor, others: Tensor) -> Tensor:
        """Return hidden units of events and of zeros, the last row, plus the vectors of relations and node types."""
        if batch.relation is not None:
            hidden = add_types(hidden, self.relation, F.pad(batch.relation.repeat(2), (0, 1)))
        if batch.node_type is not None:
            for embedding, nodes in zip(self.node_types, (ends, others)):
                hidden = add_types(hidden, embedding, F.pad(batch.node_type[nodes], (0, 1)))
        return hidden

    # ---- scores ------------------------------------------------------------------------------------------
    def represent(self, state: NodeState, nodes: Tensor) -> Tensor:
        """Return (n, w) decoder inputs of nodes (n,) in a state. Unseen nodes have zeros and their static embedding."""
        fixed = self.static(state.identity(nodes))
        state = state.grown(int(nodes.max()) + 1 if len(nodes) else 0)
        return torch.cat([self.readout.norm(state.output[state.place(nodes)]), fixed], 1)

    def link_logits(
        self, state: NodeState, source: Tensor, target: Tensor, gap: Tensor, relation: Tensor | None = None
    ) -> Tensor:
        """Return (e,) logits of an event of each pair now, from the memory before it.

        Args:
            state: the memory before the events that are scored.
            source, target: (e,) nodes.
            gap: (e, G) ln(1 + time since the last event of the pair), with node_time_deltas the same of the source and
                of the target, and with pair_features the (e, F) features of `hopstate.tokens.pair_features`.
            relation: (e,) codes of the pairs' relations, read by a model of typed events.
        """
        return self.readout([self.represent(state, source), self.represent(state, target)], gap, relation)[:, 0]

    def node_logits(self, state: NodeState, nodes: Tensor, gap: Tensor) -> Tensor:
        """Return (n, C) logits of nodes (n,), gap (n, 1) since their last events; (n, 1), of class 1, where C is 2."""
        return self.readout([self.represent(state, nodes)], gap)

    def sequence_logits(self, state: NodeState, nodes: Tensor) -> Tensor:
        """Return (n, C) logits of the sequences whose state is read at nodes; (n, 1), of class 1, where C is 2."""
        return self.readout([self.represent(state, nodes)], None)


class Readout(nn.Module):
    """Logits of pairs or nodes from what represents them: algorithms 1 and 2.

    Deviation: it may have a hidden layer (`hidden` > 0); the paper's is linear.

    Args:
        config: of the model.
        width: of what represents a node.
        decoder: what is predicted.
        outputs: logits of a pair or a node.
        num_relations: relations of the pairs, 0 for none.
    """

    def __init__(
        self, config: CTDGSSMConfig, width: int, decoder: Decoder, outputs: int, num_relations: int = 0
    ) -> None:
        super().__init__()
        c, links = config, decoder == "link"
        self.gaps = {"link": 3 if c.node_time_deltas else 1, "node": 1, "sequence": 0}[decoder] if c.time_dim else 0
        self.gap = _gap_encoding(c, learn=True) if self.gaps else None
        self.norm = nn.RMSNorm(c.dim, eps=1e-6) if c.embedding_norm else nn.Identity()
        pair = c.pair_dim if links else 0
        self.pair = nn.ModuleList(nn.Linear(width, pair) for _ in range(2 if pair else 0))
        self.pair_features = PairHistory(len(NAMES)) if c.pair_features else None
        inputs = (2 if links else 1) * width + pair + self.gaps * c.time_dim
        inputs += 0 if self.pair_features is None else self.pair_features.dim
        self.relation = RelationModulation(num_relations, inputs) if num_relations else None
        self.decoder: nn.Module
        if c.hidden:
            self.decoder = nn.Sequential(nn.Linear(inputs, c.hidden), nn.GELU(), nn.Linear(c.hidden, outputs))
        else:
            self.decoder = nn.Linear(inputs, outputs)

    def forward(self, ends: Sequence[Tensor], gap: Tensor | None, relation: Tensor | None = None) -> Tensor:
        """Return (e, C) logits.

        Args:
            ends: (e, w) of the sources and of the targets, or of the nodes.
            gap: (e, G) as in `CTDGSSM.link_logits`; None where no gap is read.
            relation: (e,) as in `CTDGSSM.link_logits`.
        """
        seen = list(ends)
        if len(self.pair):
            seen.append(self.pair[0](ends[0]) * self.pair[1](ends[1]))
        if self.gap is not None and gap is not None:
            seen.append(self.gap(gap[:, : self.gaps]).flatten(1))
        if self.pair_features is not None and gap is not None:
            seen.append(self.pair_features(gap[:, self.gaps :]))
        read = torch.cat(seen, 1)
        return self.decoder(read if self.relation is None else self.relation(read, relation))


def batch_seed(batch: ActiveBatch) -> int:
    """Return a number that a batch's nodes and times decide."""
    return zlib.crc32(batch.time.cpu().numpy().tobytes(), zlib.crc32(batch.nodes.cpu().numpy().tobytes()))


def _gap_encoding(c: CTDGSSMConfig, *, learn: bool) -> TimeEncoding | None:
    return TimeEncoding.between(c.time_dim, c.min_frequency, c.max_frequency, learn=learn) if c.time_dim else None
