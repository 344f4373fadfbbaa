"""Batches of a `NodeTask` for Graph Mamba Networks: the whole graph in one step, or nodes with what walks visited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import check_range
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.ordering import node_order
from hopstate.methods.gmn.walk_tokens import Resampler, Tokens, WalkSettings, drawing_seed, token_order, walk_tokens
from hopstate.ops.rows import bounds_of, ranges
from hopstate.ops.walks import WalkTable, random_walks
from hopstate.random import named_rng
from hopstate.sampling.prefetch import Prefetcher
from hopstate.training.ranks import Ranks
from hopstate.training.tasks.node import NodeBatches, NodeLabels, Seen, averaged, device_of
from hopstate.training.tasks.protocols import Portion
from hopstate.training.tasks.spread import Rows as SharedRows


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

    @cached_property
    def table(self) -> WalkTable:
        return WalkTable.of(self.indptr, self.indices, self.weights)

    def features(
        self, rng: np.random.Generator | None, rows: np.ndarray | None = None, bounds: np.ndarray | None = None
    ) -> Tensor:
        """Return x of all rows or of some; where rng is given, eigenvectors with random signs.

        bounds (G+1,) are those of the graphs among the rows: each has signs of its own.
        """
        x = self.x if rows is None else self.x[rows]
        if rng is not None and self.signs:
            x = x.copy() if rows is None else x
            sizes = np.array([len(x)]) if bounds is None else np.diff(bounds)
            flips = rng.choice(np.array([-1, 1], np.float32), (len(sizes), self.signs))
            x[:, -self.signs :] *= np.repeat(flips, sizes, 0)
        return torch.from_numpy(x)


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

    def __init__(
        self, config: GMN.Config, prepared: PreparedGraph, labels: NodeLabels, *, seed: int, resample_every: int = 0,
        draws: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(labels)
        self.draws = draws
        self.config, self.prepared, self.seed, self.resample_every = config, prepared, seed, resample_every
        m, self.kind = prepared, config.token_kind
        self.graph = Adjacency.of(m.indptr, m.indices)
        self.edge_attr = None if m.edge_attr is None else torch.from_numpy(m.edge_attr)
        self.nodes = np.arange(len(m.x))
        self._walks = self._resampler(resample_every) if m.settings.tokens > 1 else None
        self._held: tuple[Tokens | None, dict[str, Any]] = (None, {})
        self._eval: GMNInputs | None = None

    def _resampler(self, every: int) -> Resampler:
        m = self.prepared
        return Resampler(
            m.table, self.nodes, m.settings, kind=self.kind, seed=self.seed, every=every,
            edges=self.edge_attr is not None,
        )  # fmt: skip

    def num_batches(self, epoch: int) -> int:
        """Return 1."""
        return 1

    def batches(self, model: nn.Module, epoch: int, start: int = 0) -> Iterator[tuple[GMNInputs, Tensor, Tensor]]:
        """Yield (inputs, training rows, labels) once."""
        if start == 0:
            rows = self.labels.split["train"]
            rng = named_rng(self.seed, "gmn", epoch)
            yield self._inputs(epoch, rng), torch.from_numpy(rows), torch.from_numpy(self.labels.y[rows])

    def outputs(self, model: nn.Module, batch: tuple[GMNInputs, Tensor, Tensor]) -> Seen:
        inputs, rows, y = batch
        return model(inputs)[rows], y, None

    def around(
        self, model: nn.Module, rows: np.ndarray, epoch: int, number: int
    ) -> tuple[tuple[GMNInputs, Tensor, Tensor], np.ndarray]:
        """Return all nodes, and rows, whose outputs are asked for."""
        asked = torch.from_numpy(rows)
        return (self._inputs(epoch, named_rng(self.seed, "gmn", epoch, number)), asked, asked), rows

    def encode(self, model: nn.Module, batch: tuple[GMNInputs, Tensor, Tensor]) -> Tensor:
        """Return the outputs of the nodes asked for."""
        return model(batch[0])[batch[1]]

    def logits(self, model: nn.Module, rows: np.ndarray) -> Tensor:
        """Return (n, C) logits of rows, on the CPU; ties are broken by node id."""
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
        from hopstate.training.precision import Double

        return Double().convert_input(inputs)

    def _inputs(self, epoch: int, rng: np.random.Generator | None) -> GMNInputs:
        m = self.prepared
        extra: dict[str, Any] = {}
        if self._walks is not None:
            if rng is None and (self.resample_every or epoch):  # the running rounds stay as they are
                extra = token_inputs(self._resampler(0).drawn(epoch))
            else:
                tokens = self._walks.at(epoch)
                if self._held[0] is not tokens:  # made once a round, so that adjacencies keep their weighted forms
                    self._held = tokens, token_inputs(tokens)
                extra = self._held[1]
            extra = {**extra, "token_order": token_order(len(m.x), m.settings, rng)}
        return GMNInputs(
            x=m.features(rng),
            graph=self.graph,
            edge_attr=self.edge_attr,
            order=torch.from_numpy(node_order(m.key, rng)),
            sequences=torch.tensor([0, len(m.x)]),
            **extra,
        )


CONTEXT = (2, 4)  # steps, walks of each node of a batch that has no tokens, to neighbours to receive messages from


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
        check_range(least=1, batch_size=batch_size)
        self.prepared, self.seed, self.batch_size, self.resample_every = prepared, seed, batch_size, resample_every
        self.config, self.kind, self.gps = config, config.token_kind, config.variant == "gps-mamba"
        self.passes_messages = self.gps or config.uses_mpnn
        self.everywhere = everywhere and config.uses_mpnn
        self.predict_all = predict_all

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.labels.split["train"]) // self.batch_size)

    def divide(self, ranks: Ranks) -> str:
        """Encode this rank's share of the nodes of every batch; the sequence of nodes is of all of them."""
        if self.gps:
            return "its layers pass over all nodes of a batch, one after another"
        self.ranks = ranks
        return ""

    def batches(
        self, model: nn.Module, epoch: int, start: int = 0
    ) -> Iterator[tuple[GMNInputs, Tensor] | Portion[tuple[GMNInputs, Tensor]]]:
        """Yield (inputs, labels) in an order drawn from (seed, epoch), each prepared while the one before is used."""
        order = named_rng(self.seed, "batches", epoch).permutation(self.labels.split["train"])

        def make() -> Iterator[tuple[GMNInputs, Tensor] | Portion[tuple[GMNInputs, Tensor]]]:
            for i in range(start, self.num_batches(epoch)):
                rows = order[i * self.batch_size : (i + 1) * self.batch_size]
                rng = named_rng(self.seed, "gmn", epoch, i)
                if self.ranks.size == 1:
                    yield self._inputs(rows, epoch, rng), torch.from_numpy(self.labels.y[rows])
                else:
                    yield self._portion(rows, epoch, rng)

        yield from Prefetcher(make())

    def _portion(self, rows: np.ndarray, epoch: int, rng: np.random.Generator) -> Portion[tuple[GMNInputs, Tensor]]:
        """Return this rank's share of a batch; one of fewer nodes than ranks is rank 0's."""
        if len(rows) < self.ranks.size:
            whole = (self._inputs(rows, epoch, rng), torch.from_numpy(self.labels.y[rows]))
            return Portion(whole if self.ranks.first else None)
        own = self.ranks.own(len(rows))
        y = self.labels.y[rows]
        inputs = replace(self._inputs(rows, epoch, rng, own), shared=SharedRows(self.ranks, len(rows)))
        return Portion((inputs, torch.from_numpy(y[own])), self.labels.target.part(y[own], y))

    def outputs(self, model: nn.Module, batch: tuple[GMNInputs, Tensor]) -> Seen:
        inputs, y = batch
        return model(inputs), y, None

    def around(
        self, model: nn.Module, rows: np.ndarray, epoch: int, number: int
    ) -> tuple[tuple[GMNInputs, Tensor], np.ndarray]:
        return (self._inputs(rows, epoch, named_rng(self.seed, "gmn", epoch, number)), torch.zeros(0)), rows

    def encode(self, model: nn.Module, batch: tuple[GMNInputs, Tensor]) -> Tensor:
        return model(batch[0])

    def logits(self, model: nn.Module, rows: np.ndarray) -> Tensor:
        """Return (n, C) logits of rows, on the CPU; those of the whole graph, whichever rows are asked for."""
        return self.ranks.told(lambda: self.predict_all(model))[torch.from_numpy(rows)].float()

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

    def _inputs(
        self, batch: np.ndarray, epoch: int, rng: np.random.Generator | None, own: slice | None = None
    ) -> GMNInputs:
        """Return what a batch of nodes reads; with own, for encoding some of it amid what all of it reads."""
        m = self.prepared
        extra: dict[str, Any] = {}
        tokens: Tokens | None = None
        rows, others = batch if own is None else batch[own], batch[:0]
        edges = m.edge_attr is not None
        if m.settings.tokens > 1:
            number = epoch // self.resample_every if self.resample_every else 0
            seed = drawing_seed(self.seed, number)
            tokens = walk_tokens(m.table, rows, m.settings, kind=self.kind, seed=seed, edges=edges)
            others = others if own is None else self._read_by(batch, seed)
        elif own is not None:
            others = batch
        visited = tokens["nodes"].numpy() if tokens is not None else self._around(batch, epoch)
        if self.everywhere:
            near, place, ids = np.arange(len(m.x)), np.concatenate([rows, visited]), np.arange(len(m.indices))
            graph = self._whole
        else:
            near, place = np.unique(np.concatenate([rows, visited, others]), return_inverse=True)
            indptr, indices, ids = induced(m.indptr, m.indices, near)
            graph = Adjacency.of(indptr, indices)
        edge_attr = None
        if m.edge_attr is not None:
            taken = tokens.get("edges") if tokens is not None else None
            if taken is not None and tokens is not None:  # tokens' edges lie among the induced ones
                edges_of = taken.numpy()
                tokens["edges"] = torch.from_numpy(np.where(edges_of >= 0, np.searchsorted(ids, edges_of), -1))
            edge_attr = torch.from_numpy(m.edge_attr[ids])
        if tokens is not None:
            tokens["nodes"] = torch.from_numpy(place[len(rows) : len(rows) + len(visited)])
            extra = {**token_inputs(tokens), "token_order": _own_order(len(batch), m.settings, rng, own)}
        order = node_order(m.key[near if self.gps else batch], rng)
        return GMNInputs(
            x=m.features(rng, near), graph=graph, edge_attr=edge_attr,
            targets=torch.from_numpy(place[: len(rows)]), order=torch.from_numpy(order),
            sequences=torch.tensor([0, len(order)]), **extra,
        )  # fmt: skip

    def _read_by(self, batch: np.ndarray, seed: int) -> np.ndarray:
        if not self.passes_messages or self.everywhere:
            return batch[:0]
        m = self.prepared
        tokens = walk_tokens(m.table, batch, m.settings, kind=self.kind, seed=seed)
        return np.concatenate([batch, tokens["nodes"].numpy()])

    @cached_property
    def _whole(self) -> Adjacency:
        return Adjacency.of(self.prepared.indptr, self.prepared.indices)

    def _around(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Return nodes near rows without tokens, from which they receive messages; drawn anew every epoch."""
        if not self.passes_messages or self.everywhere:
            return rows[:0]
        steps, walks = CONTEXT
        seed = drawing_seed(self.seed, epoch)
        return random_walks(self.prepared.table, rows, steps, walks=walks, seed=seed).astype(np.int64).ravel()


def _own_order(count: int, settings: WalkSettings, rng: np.random.Generator | None, own: slice | None) -> Tensor:
    """Return the `token_order` of count nodes, or of own of them among their own tokens."""
    every = token_order(count, settings, rng)
    return every if own is None else every.view(count, -1)[own].flatten() - own.start * settings.tokens


def induced(indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the CSR adjacency of the subgraph on nodes (ascending), and the rows of its edges in indices."""
    starts, counts = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
    ids = ranges(starts, counts)
    at = np.searchsorted(nodes, indices[ids])
    inside = nodes[np.minimum(at, len(nodes) - 1)] == indices[ids]
    rows = np.repeat(np.arange(len(nodes)), counts)[inside]
    own = bounds_of(np.bincount(rows, minlength=len(nodes)))
    return own, at[inside].astype(np.int64), ids[inside]
