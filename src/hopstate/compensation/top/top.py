"""TOP: mini-batches whose missing neighbors are expressed by the nodes that are there.

R with H_out ~ R H_in is fitted on basic embeddings (`basis`), for each layer its own. In training, a batch B aggregates
A_BB H_B + dA (P H_S): dA (|B|, k) and P (k, |S|) replace A_B,out R and are made once for a batch. That is the
linear form, for layers that sum with fixed weights. The general form gives any aggregator the missing rows themselves,
L (P H_S), one for each out-of-batch neighbor. Weights are those of the whole graph's degrees in both.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1, algorithms
1 and 2, equations 12-13, appendix B.1 (general form) and B.5.
Deviation: basic embeddings are computed again from the present weights after some epochs (`refresh`; section 5.1
suggests it if random weights have a large error). Random weights cannot predict wide sparse features of missing nodes.
Each layer has its own R, fitted on what that layer receives. `basis="global"` takes one basis Q of the whole graph, so
that P is Q_S's pseudo-inverse; `basis="batch"` is the paper's text. The pseudo-inverse has a ridge; where it matters it
is the one that best predicts, in each batch, embeddings that the basis was not fitted on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.top.basis import (
    FEW,
    FIXED_RIDGE,
    PROBES,
    Basis,
    LowRankCompensation,
    best_ridge,
    fit_in_range,
    random_mixing,
    range_mixing,
    ridge_inverse,
    times,
)
from hopstate.compensation.top.batch import GeneralTop, LinearTop, not_linear
from hopstate.compensation.top.probes import Embed, Forward, FullGraphPass, LayerInputs, basic_embeddings, with_changes
from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, ConfigError, DataError, check_range
from hopstate.io.scratch import Scratch
from hopstate.layers.message import Adjacency, Normalization
from hopstate.layers.modes import evaluating
from hopstate.ops.sampling import LocalGraph, Neighborhoods
from hopstate.ops.threads import one_thread
from hopstate.random import named_rng
from hopstate.sampling.samplers import DRAWS, cutter_of
from hopstate.sampling.subgraph import Compensation, PrefetchedRows, full_adjacency, sampled_adjacency


class Refresher:
    """Refreshes a compensation: often at the start of training, later at regular intervals.

    A checkpoint stores the weights of the last two refreshes, not the bases.

    Args:
        top: the compensation, prepared for model.
        model: the model, as it was when `top` was prepared.
        embed: computes the layer inputs on the full graph.
        every: epochs between refreshes in the long run.
    """

    def __init__(self, top: Top, model: nn.Module, embed: Embed, every: int) -> None:
        self.top, self.model, self.embed, self.every = top, model, embed, every
        self.last = _weights(model)
        self.before: dict[str, Tensor] | None = None

    def due(self, epoch: int) -> bool:
        """Return whether an epoch begins with a refresh: epochs 1, 2, 4, ... and multiples of `every`."""
        return epoch > 0 and (epoch % self.every == 0 or (epoch < self.every and epoch & (epoch - 1) == 0))

    def __call__(self, model: nn.Module, epoch: int) -> None:
        if self.due(epoch):
            self.before, self.last = self.last, _weights(self.model)
            self.top.refresh(self.model, self.embed)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of the last two refreshes."""
        named = {"last": self.last} if self.before is None else {"last": self.last, "before": self.before}
        return {f"{when}.{name}": tensor for when, weights in named.items() for name, tensor in weights.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned, and make from it what the compensation was."""
        present = _weights(self.model)
        kept: dict[str, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            when, key = name.split(".", 1)
            kept.setdefault(when, {})[key] = tensor
        if "last" not in kept or any(weights.keys() != present.keys() for weights in kept.values()):
            raise CheckpointError("the saved compensation is of another model; start the run again")
        self.last, self.before, self.top.previous = kept["last"], kept.get("before"), None
        for weights in (self.before, self.last):
            if weights is not None:
                self.model.load_state_dict(weights)
                self.top.refresh(self.model, self.embed)
        self.model.load_state_dict(present)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


@dataclass(frozen=True, kw_only=True)
class TopConfig:
    """Settings of TOP.

    Args:
        form: "linear" adds a low-rank product, "general" estimates rows of missing neighbors. "auto" is linear if the
            model allows it.
        basis: one basis of the whole graph ("global"), or one for each batch ("batch", as in the paper's text).
        layers: one basis for each layer ("each"), or one for all layers together ("shared", as in the paper's text).
        rank: k, maximum number of columns of a basis. null takes as many as one set of weights gives, and up to four
            times as many with directions (basis=batch: the width d of a layer's messages).
        refresh: compute the basis from the model's weights at the start, after 1, 2, 4, ... epochs, and then every
            `refresh` epochs. 0 computes it once, from random weights.
        directions: number of random directions of weight changes that the basis also covers, for example 8. Gradients
            then pass through missing neighbors. It helps if batches are many times larger than the model is wide. Each
            direction costs one more pass over the graph per refresh.
        num_initializations: number of random initializations that the basis combines if refresh is 0.
        samples: |S|, maximum number of in-batch nodes in the estimate of a missing one. null: all (basis=batch: k).
        ridge: regularization, relative to the mean diagonal of the normal equations. null chooses it for each batch.

    Example:
        >>> hopstate.TopConfig(rank=16, refresh=0).form
        'auto'
    """

    form: Literal["auto", "linear", "general"] = "auto"
    basis: Literal["global", "batch"] = "global"
    layers: Literal["each", "shared"] = "each"
    rank: int | None = None
    refresh: int = 5
    directions: int = 0
    num_initializations: int = 3
    samples: int | None = None
    ridge: float | None = None

    def __post_init__(self) -> None:
        check_range(
            "top.", minimum=1, rank=self.rank, num_initializations=self.num_initializations, samples=self.samples
        )
        check_range("top.", minimum=0, refresh=self.refresh, directions=self.directions, ridge=self.ridge)
        if self.directions and not self.refresh:
            raise ConfigError(f"top.directions={self.directions} needs refreshes; got top.refresh={self.refresh}")


LINEAR = ("symmetric", "mean", "sum")
WIDEST = 4  # times as many columns as messages have are enough for messages and their changes


class _ThreadLocalCutter(threading.local):
    """Subgraph sampler per thread, because it has a workspace."""

    cutter: Neighborhoods | None = None

    def __reduce__(self) -> tuple[type[_ThreadLocalCutter], tuple[()]]:
        return _ThreadLocalCutter, ()  # a copy makes its own


class Top(Compensation):
    """Makes compensated batches of one graph for one model.

    Args:
        graph: the full graph.
        config: settings.
        normalization: neighbor weights of the model's layers; "edges" if layers weigh edges themselves.
        seed: random seed.
        rows: all nodes that batches can contain; the linear form stores the basis only there. Default: all.
        store: allocates the tables. Default: in memory.

    Raises:
        ConfigError: the linear form is requested but the aggregator is not linear. Use the general form.
    """

    def __init__(
        self,
        graph: Graph,
        config: TopConfig,
        normalization: Normalization,
        *,
        seed: int,
        rows: np.ndarray | None = None,
        store: Scratch | None = None,
    ) -> None:
        if config.form == "linear" and normalization not in LINEAR:
            raise ConfigError(not_linear("the model's aggregator", normalization))
        self.graph, self.config, self.normalization, self.seed = graph, config, normalization, seed
        self.linear = config.form != "general" and normalization in LINEAR
        self._own, self._made, self._near = _ThreadLocalCutter(), store or Scratch(), PrefetchedRows()
        self.rows = None if rows is None or not self.linear else np.sort(rows)
        self._place = np.full(graph.num_nodes, -1)
        self._place[slice(None) if self.rows is None else self.rows] = np.arange(
            graph.num_nodes if self.rows is None else len(self.rows)
        )
        self.bases: list[Basis] = []
        self._of_present_weights = False
        self.previous: list[LayerInputs] | None = None  # probes for the next refresh

    # ---- making the basis ------------------------------------------------------------------------------
    def full_graph_pass(self, forward: Forward, adjacency: Adjacency | None = None) -> Embed:
        """Return a function that computes a model's layer inputs on the full graph.

        Args:
            forward: runs a model on the full graph.
            adjacency: adjacency of the full graph. Default: compute it.
        """
        if not self.linear:
            return FullGraphPass(forward)
        adjacency = adjacency or full_adjacency(self.graph)
        return FullGraphPass(forward, lambda: adjacency.normalized_adjacency(self.normalization), self.rows)

    def prepare(self, model: nn.Module, embed: Embed) -> None:
        """Fit the basis to the model's weights, or to random initializations; embed computes the layer inputs."""
        if self.config.refresh:
            self.refresh(model, embed)
            return
        c, probes = self.config, None
        with one_thread():
            if c.ridge is None and c.basis == "global":
                other = basic_embeddings(model, embed, num_initializations=1, seed=self.seed + c.num_initializations)
                probes = [self._probe(group) for group in self._groups(other)]
            embeddings = basic_embeddings(model, embed, num_initializations=c.num_initializations, seed=self.seed)
            self.take(embeddings, probes=probes, sets=c.num_initializations)

    def refresh(self, model: nn.Module, embed: Embed) -> None:
        """Fit the basis to the model's present weights; the embeddings of the last refresh choose the ridge."""
        chosen = self.config.ridge is None and self.config.basis == "global"
        with evaluating(model):
            embeddings = with_changes(model, embed, self.config.directions, seed=self.seed)
            self.previous = self.take(embeddings, probes=self.previous, keep_probes=chosen)
        self._of_present_weights = True

    def take(
        self,
        embeddings: Iterable[list[LayerInputs]],
        *,
        probes: list[LayerInputs] | None = None,
        sets: int = 1,
        keep_probes: bool = False,
    ) -> list[LayerInputs] | None:
        """Fit bases to layer inputs.

        Args:
            embeddings: inputs of each layer, one or several per layer.
            probes: embeddings to choose the ridge, one per basis.
            sets: number of weight sets behind the embeddings; the default rank is the number of columns of one set.
            keep_probes: return probes to choose the next ridge.

        Returns:
            Probes, or None without keep_probes.

        Raises:
            DataError: embeddings are not finite, or all zero.
        """
        bases, probes_kept = [], []
        for number, group in enumerate(self._groups(embeddings)):
            values = [e.values for e in group]
            num_columns = sum(v.shape[1] for v in values)
            default_rank = min(num_columns, WIDEST * sum(e.values.shape[1] for e in group if e.weight == 1)) // sets
            rank = num_columns if self.config.basis == "batch" else self.config.rank or default_rank
            mixed = self._mixed(group, range_mixing(values, rank, seed=self.seed, weights=[e.weight for e in group]))
            probe = LayerInputs(mixed.values[:, :0], mixed.sums[:, :0]) if probes is None else probes[number]
            width = max(e.values.shape[1] for e in group)
            bases.append(Basis(mixed.values, mixed.sums, probe.values, probe.sums, width))
            if keep_probes:
                probes_kept.append(self._probe(group))
        if not any(bool(basis.values.any()) for basis in bases):
            raise DataError("basic embeddings are all zero; the model or the features carry nothing")
        self.bases = bases
        self._near.forget()
        return probes_kept if keep_probes else None

    def _groups(self, embeddings: Iterable[list[LayerInputs]]) -> Iterable[list[LayerInputs]]:
        if self.config.layers == "shared":
            return [[e for layer in embeddings for e in layer]]
        return embeddings

    def _probe(self, group: list[LayerInputs]) -> LayerInputs:
        """Return random combinations of the messages of a basis."""
        group = [e for e in group if e.weight == 1]
        return self._mixed(group, random_mixing([e.values for e in group], PROBES, seed=self.seed))

    def _mixed(self, group: list[LayerInputs], mixing: list[Tensor]) -> LayerInputs:
        sums = [e.sums for e in group]
        none = mixing[0].new_zeros(len(sums[0]), 0)
        values = times([e.values for e in group], mixing, self._made)
        return LayerInputs(values, times(sums, mixing, self._made) if sums[0].shape[1] else none)

    # ---- batches ---------------------------------------------------------------------------------------
    @property
    def cutter(self) -> Neighborhoods:
        """The subgraph sampler of this thread, which has a workspace."""
        if self._own.cutter is None:
            self._own.cutter = cutter_of(self.graph)
        return self._own.cutter

    def propagator(self, graph: Graph, cutter: Neighborhoods, nodes: np.ndarray) -> LinearTop | GeneralTop:
        """Return the compensated batch of nodes; graph and cutter are ignored."""
        return self.batch(nodes)

    def batch(self, nodes: np.ndarray) -> LinearTop | GeneralTop:
        """Return the compensated batch of nodes (distinct rows of the graph)."""
        subgraph = self.cutter.induced(nodes, halo=not self.linear)
        adjacency = sampled_adjacency(self.graph, subgraph)
        with nullcontext() if self.config.refresh else one_thread():  # what is made once is the same for any threads
            substitutes = self._substitutes(nodes, adjacency, subgraph)
        return (
            LinearTop(adjacency, substitutes, self.normalization) if self.linear else GeneralTop(adjacency, substitutes)
        )

    def _substitutes(self, nodes: np.ndarray, adjacency: Adjacency, local: LocalGraph) -> list[LowRankCompensation]:
        rows, found = self._at(nodes), []
        for basis in self.bases:
            if not self._needs_probes(len(nodes), basis):
                basis = replace(basis, probe=basis.probe[:, :0], probe_sums=basis.probe_sums[:, :0])
            if self.linear:  # A_B,out times values
                adjacency_matrix = adjacency.normalized_adjacency(self.normalization)
                missing, target = (
                    self._read_rows(total, rows) - adjacency_matrix.to(values.dtype) @ self._read_rows(values, rows)
                    for values, total in ((basis.values, basis.sums), (basis.probe, basis.probe_sums))
                )
            else:
                far = torch.from_numpy(local.nodes[len(nodes) :])
                missing, target = self._read_rows(basis.values, far), self._read_rows(basis.probe, far)
            found.append(self._fit(nodes, rows, basis, missing, target))
        return found

    def _fit(
        self, nodes: np.ndarray, every: Tensor, basis: Basis, missing: Tensor, target: Tensor
    ) -> LowRankCompensation:
        """Return the estimate of missing (m, r), a function of the basis at the batch nodes.

        Args:
            nodes: the batch nodes.
            every: positions of the nodes in the tables.
            basis: the basis.
            missing: (m, r) basis at the missing rows.
            target: (m, p) probes at the missing rows, which choose the ridge.
        """
        c, count, rows = self.config, len(nodes), None
        num_samples = self._num_samples(count, basis)
        if num_samples < count:
            draw = named_rng(DRAWS, self.seed, 8, int(nodes[0]), count)
            rows = torch.from_numpy(np.sort(draw.choice(count, num_samples, replace=False)))
        ridge = FIXED_RIDGE if c.ridge is None else c.ridge
        if c.basis == "batch":
            return fit_in_range(
                self._read_rows(basis.values, every), rows, missing, self._width(basis), ridge, seed=self.seed
            )
        place = every if rows is None else every[rows]
        known = self._read_rows(basis.values, place)
        if target.numel():
            ridge = best_ridge(known, missing, self._read_rows(basis.probe, place), target)
        return LowRankCompensation(missing.contiguous(), ridge_inverse(known, ridge), rows)

    def _num_samples(self, count: int, basis: Basis) -> int:
        """Return the number of batch nodes that express the missing ones."""
        c = self.config
        samples = c.samples if c.samples is not None or c.basis == "global" else self._width(basis)
        return count if samples is None else min(samples, count)

    def _needs_probes(self, count: int, basis: Basis) -> bool:
        """Return whether probes choose the ridge; with many nodes, present messages are well determined without."""
        return not self._of_present_weights or self._num_samples(count, basis) < 2 * basis.values.shape[1]

    def _read_rows(self, table: Tensor, rows: Tensor) -> Tensor:
        if self._made.folder is None or not table.shape[1]:
            return table[rows]
        near = self._near.of(table, rows)
        if near is not None:
            return near
        out = table.new_empty(len(rows), table.shape[1])
        for chunk, target in zip(rows.split(FEW), out.split(FEW)):  # the system maps pages around those that are read
            target.copy_(table[chunk])
            self._made.release_pages(table)
        return out

    def row_bytes(self) -> int:
        return 0 if self._made.folder is None else sum(t.shape[1] * t.element_size() for t in self._batch_tables())

    def prefetch(self, nodes: np.ndarray) -> None:
        if self._made.folder is not None:
            self._near.read(self._at(nodes).numpy(), self._batch_tables(), self._read_rows)

    def _batch_tables(self) -> list[Tensor]:
        """Return the tables that batches read."""
        probes = [] if self._of_present_weights else [t for b in self.bases for t in (b.probe, b.probe_sums)]
        return [t for b in self.bases for t in (b.values, b.sums)] + probes

    def _width(self, basis: Basis) -> int:
        return self.config.rank or basis.width

    def _at(self, nodes: np.ndarray) -> Tensor:
        place = self._place[nodes]
        if (place < 0).any():
            raise DataError(f"node {nodes[place < 0][0]} is not among the rows that this compensation was made for")
        return torch.from_numpy(place)
