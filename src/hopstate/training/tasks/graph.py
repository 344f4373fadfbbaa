"""Graph-level, node-level and edge-level prediction on sets of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph_set import GraphSet
from hopstate.errors import DataError, check_range
from hopstate.random import named_rng
from hopstate.training.tasks.node import averaged, label_curves
from hopstate.training.tasks.target import Target
from hopstate.training.tasks.task import Task, TaskFacts, prefetched, rows_of_split

Level = Literal["graph", "node", "edge"]
Collate = Callable[[np.ndarray, int, "np.random.Generator | None"], Any]


class GraphTask(Task[tuple[Any, Tensor]]):
    """Mini-batch training on whole graphs.

    Args:
        model: maps the result of collate to one row of outputs per graph, node or edge.
        graphs: the set of graphs.
        collate: function of (graph numbers, epoch, generator) that returns the model's input, with `.to(device)`. The
            generator is None in evaluation.
        level: what is labeled: "graph", "node" or "edge".
        y: targets of all rows of that level, as returned by `Target.rows`.
        target: loss and metrics of y.
        split: graph numbers of "train", "val" and "test".
        batch_size: graphs per step in training and evaluation.
        seed: seed of the batch order and of collate's generators.
        walks: numbers of sampled walks, stored with the run for inference on other data.
        eval_samples: evaluation rounds to average over; collate gets the epochs 0, -1, and so on.
    """

    def __init__(
        self,
        model: nn.Module,
        graphs: GraphSet,
        collate: Collate,
        *,
        level: Level,
        y: np.ndarray,
        target: Target,
        split: Mapping[str, np.ndarray],
        batch_size: int = 32,
        seed: int = 0,
        walks: Mapping[str, int] | None = None,
        eval_samples: int = 1,
    ) -> None:
        check_range(minimum=1, batch_size=batch_size)
        self.walks, self.eval_samples = walks, eval_samples
        super().__init__(model)
        self.graphs, self.collate, self.level = graphs, collate, level
        self.y, self.target, self.split, self.batch_size, self.seed = y, target, split, batch_size, seed
        self.metric, self.mode = target.metrics[0], target.mode

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.split["train"]) // self.batch_size)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[tuple[Any, Tensor]]:
        """Yield (inputs, targets) in an order drawn from (seed, epoch), prefetching one batch."""
        order = named_rng(self.seed, "batches", epoch).permutation(self.split["train"])

        def make() -> Iterator[tuple[Any, Tensor]]:
            for i in range(start, self.num_batches(epoch), step):
                ids = order[i * self.batch_size : (i + 1) * self.batch_size]
                inputs = self.collate(ids, epoch, named_rng(self.seed, "graphs", epoch, i))
                yield inputs, torch.from_numpy(self.y[self._rows(ids)])

        yield from prefetched(make())

    def loss(self, batch: tuple[Any, Tensor]) -> Tensor | None:
        """Return the target's loss, or None if no target in the batch is labeled."""
        inputs, y = batch
        known = (y >= 0) if self.target.goal == "classes" else ~y.isnan()
        return self.target.loss(self.model(inputs), y) if known.any() else None

    def evaluate(self, split: str) -> dict[str, float]:
        ids = self._ids(split)
        y, out = self.y[self._rows(ids)], self._outputs(ids)
        if split == "test":
            self.curves = label_curves(self.target, y, out)
        return self.target.score(y, out)

    def predict(self, split: str) -> dict[str, Any]:
        ids = self._ids(split)
        rows = self._rows(ids)
        columns = self.target.table(self.y[rows], self._outputs(ids))
        return {**self._names(ids, rows), **columns}

    def facts(self) -> TaskFacts:
        return {"target": self.target, "walks": self.walks}

    def target_rows(self, split: str) -> np.ndarray:
        return self._rows(self._ids(split))

    def _ids(self, split: str) -> np.ndarray:
        return rows_of_split(self.split, split, self.graphs.num_graphs)

    def _rows(self, ids: np.ndarray) -> np.ndarray:
        if self.level == "graph":
            return ids
        return self.graphs.rows(ids)[0] if self.level == "node" else self.graphs.edges(ids)

    def _names(self, ids: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        g = self.graphs
        if self.level == "graph":
            return {"graph": ids}
        if self.level == "node":
            graph = g.graph_of[rows]
            return {"graph": graph, "node": rows - g.offsets[graph]}
        ends = g.union.edge_index()[:, rows]
        graph = g.graph_of[ends[0]]
        return {"graph": graph, "source": ends[0] - g.offsets[graph], "target": ends[1] - g.offsets[graph]}

    def _outputs(self, ids: np.ndarray) -> Tensor:
        device = next(self.model.parameters()).device
        batches = np.split(ids, range(self.batch_size, len(ids), self.batch_size))

        def drawn(batch: np.ndarray) -> Iterator[Tensor]:
            for number in range(self.eval_samples):
                yield self.model(self.collate(batch, -number, None).to(device)).float().cpu()

        return torch.cat([averaged(drawn(batch)) for batch in batches])


def level_targets(graphs: GraphSet, level: Level) -> np.ndarray:
    """Return the targets of the graphs, nodes or edges of a set."""
    y = {"graph": graphs.y, "node": graphs.union.y, "edge": graphs.edge_y}[level]
    if y is None:
        raise DataError(f"{graphs.name} has no labels of its {level}s")
    return y
