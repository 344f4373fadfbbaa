"""Batches cut from a graph, whatever cuts them, as the source of a `NodeTask`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.gas import GasBatch, GasCache
from hopstate.data.graph import Graph
from hopstate.errors import DataError
from hopstate.sampling.prefetch import Prefetcher
from hopstate.sampling.subgraph import BatchSource, GraphBatch, NodeSetSource, SeedSource
from hopstate.training.ranks import Ranks
from hopstate.training.tasks.node import NodeBatches, NodeLabels, Rows, Seen
from hopstate.training.tasks.protocols import Portion
from hopstate.training.tasks.spread import Cuttable, Spread

Batch = tuple[Tensor, Any, Tensor, Tensor, Tensor | None]


class Subgraphs(NodeBatches[Batch]):
    """Batches of a graph: whole blocks of nodes, or seeds with what was sampled around them.

    Args:
        source: makes batches; one depends on (epoch, number) alone. The model is called as model(x, propagator).
        labels: labels, splits and names.
        predict_all: model → (N, C) logits of all nodes, on the CPU; how evaluation reads the graph.
        state, load_state: give and take what stands for missing neighbours, where that depends on training.
        refresh: called with the model and the epoch's number at the start of every epoch.
        ahead: batches made in a background thread before they are needed; 0 makes each when it is asked for.
        graph: what is cut, for who wants all of it.
    """

    def __init__(
        self,
        source: BatchSource,
        labels: NodeLabels,
        predict_all: Callable[[nn.Module], Tensor],
        *,
        state: Callable[[], dict[str, Tensor]] | None = None,
        load_state: Callable[[dict[str, Tensor]], None] | None = None,
        refresh: Callable[[nn.Module, int], None] | None = None,
        ahead: int = 1,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(labels)
        self.graph = graph
        self.source, self.predict_all, self.ahead = source, predict_all, ahead
        self._state, self._load_state = state, load_state
        self._refresh = refresh
        self._y = torch.from_numpy(labels.y.copy())

    def num_batches(self, epoch: int) -> int:
        return self.source.num_batches(epoch)

    def batches(self, model: nn.Module, epoch: int, start: int = 0) -> Iterator[Batch | Portion[Batch]]:
        """Yield (x, propagator, rows, labels, weights) from position start of an epoch."""
        if self._refresh is not None and start == 0:
            self._refresh(model, epoch)
        numbers = range(start, self.num_batches(epoch))
        alone = self.ranks.size == 1
        made = (self._batch(self.source.batch(epoch, i)) if alone else self._portion(epoch, i) for i in numbers)
        yield from Prefetcher(made, self.ahead) if self.ahead else made

    def divide(self, ranks: Ranks) -> str:
        """Take this rank's share of the seeds of every batch, or of the nodes of a set."""
        if isinstance(self.source, NodeSetSource) and isinstance(self.source.missing, GasCache):
            return "what nodes sent last is kept in one cache, which every batch writes; take --batching.kind top"
        self.ranks = ranks
        return ""

    def _portion(self, epoch: int, number: int) -> Portion[Batch]:
        """Return this rank's share of a batch: seeds stand alone, the nodes of a set send to each other at each layer.

        A set of fewer nodes than ranks is rank 0's.
        """
        ranks, target = self.ranks, self.labels.target
        if isinstance(self.source, SeedSource):
            seeds = self.source.seeds(epoch, number)
            own = seeds[ranks.own(len(seeds))]
            made = self._batch(self.source.around(own, epoch, number)) if len(own) else None
            return Portion(made, target.part(self.labels.y[own], self.labels.y[seeds]))
        whole = self.source.batch(epoch, number)
        if len(whole.nodes) < ranks.size:
            return Portion(self._batch(whole) if ranks.first else None)
        if not len(whole.rows):
            return Portion(None)
        every, place = self._batch(whole), ranks.own(len(whole.nodes))
        inside = (whole.rows >= place.start) & (whole.rows < place.stop)
        part = 1.0 if whole.weight is not None else target.part(every[3][inside].numpy(), every[3].numpy())
        if inside.any():
            rows, weight = whole.rows[inside] - place.start, None if whole.weight is None else whole.weight[inside]
            y = every[3][inside]
        else:  # the others' gradients come through this rank all the same
            rows, weight, y = torch.zeros(1, dtype=torch.int64), torch.zeros(1), every[3][:1]
            part = 1.0
        assert isinstance(whole.graph, Cuttable)
        graph = Spread(whole.graph, ranks, len(whole.nodes))
        return Portion((whole.x[place], graph, rows, y, weight), part)

    def rehearsal(self, model: nn.Module, epoch: int, start: int) -> Iterator[Batch | Portion[Batch]] | None:
        """Return batches from position start on; None where training moves what stands for missing neighbours."""
        return self.batches(model, epoch, start) if self._state is None and self._refresh is None else None

    def _batch(self, batch: GraphBatch) -> Batch:
        y = self._y[torch.from_numpy(batch.nodes)[batch.rows]]
        return batch.x, batch.graph, batch.rows, y, batch.weight

    def outputs(self, model: nn.Module, batch: Batch) -> Seen:
        """Return the outputs of the batch's training nodes; none may be there."""
        return self.encode(model, batch), batch[3], batch[4]

    def drawn(self, epoch: int) -> int | None:
        """Return the number of batches where they are sets of nodes, None where they are seeds."""
        return None if isinstance(self.source, SeedSource) else self.source.num_batches(epoch)

    def around(self, model: nn.Module, rows: Rows, epoch: int, number: int) -> tuple[Batch, Rows]:
        if isinstance(self.source, SeedSource):
            made = self.source.around(rows, epoch, number)
            return (made.x, made.graph, made.rows, made.rows, None), rows
        if self._refresh is not None and number == 0:
            self._refresh(model, epoch)
        made = self.source.batch(epoch, number)
        every = torch.arange(len(made.nodes))
        return (made.x, made.graph, every, every, None), made.nodes

    def encode(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of the batch's nodes that count; a GAS cache is written on the way."""
        x, graph, rows = batch[:3]
        if isinstance(graph, GasBatch):
            graph = graph.written_by(model, x)
        return model(x, graph)[rows]

    def logits(self, model: nn.Module, rows: Rows) -> Tensor:
        """Return (n, C) logits of rows, on the CPU."""
        return self.ranks.told(lambda: self.predict_all(model))[torch.from_numpy(rows)]

    def state(self) -> dict[str, Tensor]:
        """Return what stands for missing neighbours, where that depends on training."""
        return {} if self._state is None else self._state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned."""
        if state and self._load_state is not None:
            self._load_state(state)


def one_pass(source: BatchSource, num_nodes: int, device: Callable[[], torch.device]) -> Callable[[nn.Module], Tensor]:
    """Return a function model → (N, C) logits that runs the source's batches of epoch 0 once, all nodes in batches.

    Raises:
        DataError: when called, if the batches leave a node out.
    """

    def predict(model: nn.Module) -> Tensor:
        out: Tensor | None = None
        seen = np.zeros(num_nodes, bool)
        for number in range(source.num_batches(0)):
            batch = source.batch(0, number)
            found = model(batch.x.to(device()), batch.graph.to(device())).float().cpu()  # type: ignore[attr-defined]
            if out is None:
                out = found.new_zeros(num_nodes, found.shape[1])
            out[torch.from_numpy(batch.nodes)] = found
            seen[batch.nodes] = True
        if out is None or not seen.all():
            raise DataError(f"the batches leave out node {int(np.flatnonzero(~seen)[0])}; inference needs all nodes")
        return out

    return predict
