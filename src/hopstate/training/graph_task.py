"""Tasks over many graphs: classification and regression of graphs, classification of their nodes or edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.batching.prefetch import Prefetcher
from hopstate.data.graph_set import GraphSet
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.metrics import classification_metrics
from hopstate.training.seed import stream

Level = Literal["graph", "node", "edge"]
Goal = Literal["classes", "labels", "values"]
Collate = Callable[[np.ndarray, int, "np.random.Generator | None"], Any]


class GraphTask:
    """Batches of whole graphs.

    Args:
        model: what collate returns → one row of outputs a graph, node or edge.
        graphs: the set; its labels say what the task is.
        collate: (graph numbers, epoch, generator; None when evaluating) → the model's input, with `.to(device)`.
        level: what is labelled.
        split: graph numbers of "train", "val", "test".
        metrics: metric names for classes; "labels" has average_precision and roc_auc averaged over them, "values" mae.
        batch_size: graphs a step.
        seed: fixes the batch order and what collate draws.
    """

    def __init__(
        self,
        model: nn.Module,
        graphs: GraphSet,
        collate: Collate,
        *,
        level: Level,
        split: Mapping[str, np.ndarray],
        metrics: tuple[str, ...] = ("accuracy",),
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}")
        self.model, self.graphs, self.collate, self.level = model, graphs, collate, level
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self.goal = goal_of(graphs, level)
        own = {"classes": metrics, "labels": ("average_precision", "roc_auc"), "values": ("mae", "rmse")}
        self.metrics = own[self.goal]
        self.metric = self.metrics[0]
        self.mode: Literal["max", "min"] = "min" if self.goal == "values" else "max"

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the training graphs."""
        return -(-len(self.split["train"]) // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, Tensor]]:
        """Yield (inputs, labels) in an order drawn from (seed, epoch), each prepared while the one before is used."""
        order = stream(self.seed, "batches", epoch).permutation(self.split["train"])

        def make() -> Iterator[tuple[Any, Tensor]]:
            for i in range(start, self.num_batches(epoch)):
                ids = order[i * self.batch_size : (i + 1) * self.batch_size]
                inputs = self.collate(ids, epoch, stream(self.seed, "graphs", epoch, i))
                yield inputs, torch.from_numpy(self._labels(ids))

        yield from Prefetcher(make())

    def loss(self, batch: tuple[Any, Tensor]) -> Tensor:
        """Return cross-entropy (classes), binary cross-entropy (labels) or mean absolute error (values)."""
        inputs, y = batch
        out = self.model(inputs)
        if self.goal == "classes":
            return F.cross_entropy(out, y, ignore_index=-1)
        known = ~y.isnan()
        return F.binary_cross_entropy_with_logits(out[known], y[known]) if self.goal == "labels" else F.l1_loss(out, y)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return metrics pooled over a split."""
        ids = self._ids(split)
        y, out = self._labels(ids), self._outputs(ids)
        if self.goal == "classes":
            known = y >= 0
            return classification_metrics(self.metrics, y[known], out[known].double().softmax(1).numpy())
        scores = out.double().numpy()
        if self.goal == "values":
            error = scores - y
            return {"mae": float(np.abs(error).mean()), "rmse": float(np.sqrt((error**2).mean()))}
        chances = 1 / (1 + np.exp(-scores))
        found = [_binary(y[:, t], chances[:, t]) for t in range(y.shape[1])]
        return {name: float(np.nanmean([f[name] for f in found])) for name in self.metrics}

    def predict(self, split: str) -> dict[str, Any]:
        """Return the prediction columns of a split, or of "all" graphs."""
        ids = self._ids(split)
        out = self._outputs(ids).double()
        rows = {"graph": ids} if self.level == "graph" else {"row": np.arange(len(out))}
        if self.goal != "classes":
            values = out.numpy() if self.goal == "values" else out.sigmoid().numpy()
            return rows | {f"value_{t}": values[:, t] for t in range(values.shape[1])}
        chances = out.softmax(1).numpy()
        names = np.asarray(self.graphs.class_names or range(chances.shape[1])).astype(str)
        columns = rows | {"prediction": names[chances.argmax(1)]}
        return columns | {f"p_{name}": chances[:, c] for c, name in enumerate(names)}

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond the model."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to take back."""

    def _ids(self, split: str) -> np.ndarray:
        if split == "all":
            return np.arange(self.graphs.num_graphs)
        if split not in self.split:
            raise ConfigError(f"these data have no split {split!r}; known: {', '.join([*self.split, 'all'])}")
        return self.split[split]

    def _labels(self, ids: np.ndarray) -> np.ndarray:
        g = self.graphs
        if self.level == "graph":
            assert g.y is not None
            return g.y[ids]
        if self.level == "node":
            assert g.union.y is not None
            return g.union.y[g.rows(ids)[0]]
        assert g.edge_y is not None
        return g.edge_y[g.edges(ids)]

    def _outputs(self, ids: np.ndarray) -> Tensor:
        device = next(self.model.parameters()).device
        parts = np.split(ids, range(4 * self.batch_size, len(ids), 4 * self.batch_size))
        return torch.cat([self.model(self.collate(part, 0, None).to(device)).float().cpu() for part in parts])


def goal_of(graphs: GraphSet, level: Level) -> Goal:
    """Return whether rows have one class, several 0/1 labels, or values.

    Raises:
        DataError: the set has no labels of that level.
    """
    y = {"graph": graphs.y, "node": graphs.union.y, "edge": graphs.edge_y}[level]
    if y is None:
        raise DataError(f"{graphs.name} has no labels of its {level}s")
    if y.dtype.kind == "i":
        return "classes"
    known = y[~np.isnan(y)]
    return "labels" if y.ndim == 2 and np.isin(known, (0, 1)).all() else "values"


def _binary(y: np.ndarray, chances: np.ndarray) -> dict[str, float]:
    known = ~np.isnan(y)
    return classification_metrics(
        ("average_precision", "roc_auc"), y[known].astype(np.int64), np.stack([1 - chances, chances], 1)[known]
    )
