"""Node classification as a `Task`: mini-batches of rows, or the whole graph in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError
from hopstate.random import named_rng
from hopstate.training.tasks.target import Target

Rows = np.ndarray


@dataclass(kw_only=True)
class NodeLabels:
    """What every node task shares: targets, split rows, and the names that predictions are given in.

    Args:
        y: (N,) int64 classes, -1 where unknown, or (N, T) float32 labels or values, NaN where unknown.
        split: rows of "train", "val", "test"; training rows of which no label or value is known are left out.
        target: how y is learned and judged.
        node_ids: the user's own node ids, None where they are the rows.
    """

    y: np.ndarray
    split: Mapping[str, Rows]
    target: Target
    node_ids: Vocabulary | None = None

    def __post_init__(self) -> None:
        self.y = self.target.rows(self.y)
        if "train" in self.split and self.target.goal != "classes":
            rows = self.split["train"]
            self.split = {**self.split, "train": rows[self.target.known(self.y[rows])]}

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the model's outputs: classes, or targets."""
        return self.target.names

    def rows(self, split: str) -> Rows:
        """Return the rows of a split, or of "all" nodes.

        Raises:
            ConfigError: an unknown split.
        """
        if split == "all":
            return np.arange(len(self.y))
        if split not in self.split:
            raise ConfigError(f"these data have no split {split!r}; known: {', '.join([*self.split, 'all'])}")
        return self.split[split]

    def loss(self, out: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the target's loss of outputs (n, C); see `Target.loss`."""
        return self.target.loss(out, y, weight)

    def score(self, rows: Rows, out: Tensor) -> dict[str, float]:
        """Return the metrics of outputs (n, C) over those of rows (n,) of which something is known."""
        return self.target.score(self.y[rows], out)

    def table(self, rows: Rows, out: Tensor) -> dict[str, Any]:
        """Return prediction columns: node, then those of `Target.columns`."""
        ids = rows if self.node_ids is None else self.node_ids.names(rows)
        return {"node": ids, **self.target.columns(self.y[rows], out)}


class _NodeTask:
    """Shared half of the two node tasks: evaluation and prediction from logits."""

    mode: Literal["max", "min"]
    model: nn.Module

    def __init__(self, model: nn.Module, labels: NodeLabels, *, seed: int) -> None:
        self.model, self.labels, self.seed = model, labels, seed
        self.metric, self.mode = labels.target.metrics[0], labels.target.mode

    def logits(self, rows: Rows) -> Tensor:
        """Return (n, C) logits of rows, on the CPU."""
        raise NotImplementedError

    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of a split."""
        rows = self.labels.rows(split)
        return self.labels.score(rows, self.logits(rows))

    def predict(self, split: str) -> dict[str, Any]:
        """Return the prediction columns of a split, or of "all" nodes."""
        rows = self.labels.rows(split)
        return self.labels.table(rows, self.logits(rows))

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond the model."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to take back."""

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next(self.model.parameters()).device


class NodeBatchTask(_NodeTask):
    """Nodes in mini-batches of any order; each node's input stands alone.

    Args:
        model: input of a batch of nodes → (b, C) logits.
        inputs: rows (b,) → what the model takes (a tensor, or nested tuples of tensors).
        labels: labels, splits and names.
        batch_size: training nodes a step.
        seed: fixes the batch order.
        eval_batch_size: nodes a step when evaluating; 4 × batch_size where None.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Callable[[Rows], Any],
        labels: NodeLabels,
        *,
        batch_size: int,
        seed: int,
        eval_batch_size: int | None = None,
    ) -> None:
        super().__init__(model, labels, seed=seed)
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}")
        self.inputs, self.batch_size = inputs, batch_size
        self.eval_batch_size = eval_batch_size or 4 * batch_size

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the training nodes."""
        return -(-len(self.labels.split["train"]) // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, Tensor]]:
        """Yield (inputs, labels) in an order drawn from (seed, epoch)."""
        order = named_rng(self.seed, "batches", epoch).permutation(self.labels.split["train"])
        for i in range(start, self.num_batches(epoch)):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            yield self.inputs(rows), torch.from_numpy(self.labels.y[rows])

    def loss(self, batch: tuple[Any, Tensor]) -> Tensor:
        """Return the mean loss."""
        inputs, y = batch
        return self.labels.loss(self.model(inputs), y)

    def logits(self, rows: Rows) -> Tensor:
        """Return (n, C) logits of rows, on the CPU."""
        parts = np.split(rows, range(self.eval_batch_size, len(rows), self.eval_batch_size))
        return torch.cat([self.model(_to(self.inputs(part), self.device)).float().cpu() for part in parts])


class FullGraphTask(_NodeTask):
    """The whole graph in one step: inputs → logits of every node, the loss over the training nodes.

    Args:
        model: called as model(*inputs) → (N, C) logits.
        inputs: tensors (or objects with `.to(device)`) of the whole graph.
        labels: labels, splits and names.
        seed: without effect, as a full batch has no order.
    """

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...], labels: NodeLabels, *, seed: int) -> None:
        super().__init__(model, labels, seed=seed)
        self.inputs = inputs
        self._device: torch.device | None = None

    def num_batches(self, epoch: int) -> int:
        """Return 1."""
        return 1

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the training rows and their labels once."""
        rows = self.labels.split["train"]
        if start == 0:
            yield torch.from_numpy(rows), torch.from_numpy(self.labels.y[rows])

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean loss over the training nodes."""
        rows, y = batch
        return self.labels.loss(self._all()[rows], y)

    def logits(self, rows: Rows) -> Tensor:
        """Return (n, C) logits of rows, on the CPU."""
        return self._all().float().cpu()[torch.from_numpy(rows)]

    def _all(self) -> Tensor:
        if self._device != self.device:  # the graph moves once, not every step
            self.inputs, self._device = _to(self.inputs, self.device), self.device
        return self.model(*self.inputs)


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, tuple):
        return tuple(_to(v, device) for v in value)
    return value.to(device)
