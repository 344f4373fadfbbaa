"""Node classification and regression on one graph.

A `NodeBatches` defines the batches, the model's outputs for them, and inference: `RowBatches`, `FullGraph` and
`Subgraphs` are defined here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.gas import GasBatch, GasCache
from hopstate.data.graph import Graph
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, check_range
from hopstate.evaluation.intervals import label_intervals
from hopstate.evaluation.summaries import class_reliability
from hopstate.random import named_rng
from hopstate.sampling.subgraph import BatchSource, GraphBatch, NodeSetSource, SeedSource
from hopstate.training.tasks.target import Target
from hopstate.training.tasks.task import SourceTask, TaskFacts, TaskSource, prefetched, rows_of_split

Rows = np.ndarray


@dataclass(kw_only=True)
class NodeLabels:
    """Labels, split and names shared by all node tasks.

    Args:
        y: (N,) int64 classes, -1 for unlabeled nodes, C or more for classes unknown to the model; or (N, T) float32
            labels or regression targets, NaN if missing.
        split: rows of "train", "val" and "test". Training rows without any label or value are dropped.
        target: loss and metrics of y.
        node_ids: the user's node ids. None if ids are row numbers.
    """

    y: np.ndarray
    split: Mapping[str, Rows]
    target: Target
    node_ids: Vocabulary | None = None

    def __post_init__(self) -> None:
        self.y = self.target.rows(self.y)
        if "train" in self.split and self.target.goal != "classes":
            rows = self.split["train"]
            self.split = {**self.split, "train": rows[self.target.has_label(self.y[rows])]}

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the model's outputs: classes or targets."""
        return self.target.names

    def rows(self, split: str) -> Rows:
        """Return the rows of a split, or of "all" nodes."""
        return rows_of_split(self.split, split, len(self.y))


BatchT = TypeVar("BatchT", bound=tuple[Any, ...])
Seen = tuple[Tensor, Tensor, Tensor | None]  # (n, C) outputs used by the loss, targets, weights


class NodeBatches(TaskSource, ABC, Generic[BatchT]):
    """Batches of a node task; each batch depends only on (epoch, number)."""

    def __init__(self, labels: NodeLabels) -> None:
        self.labels = labels

    @abstractmethod
    def num_batches(self, epoch: int) -> int: ...

    @abstractmethod
    def batches(self, model: nn.Module, epoch: int, start: int = 0, step: int = 1) -> Iterator[BatchT]:
        """Yield batches of an epoch as nested tuples of CPU tensors; see `Task.batches`."""

    @abstractmethod
    def outputs(self, model: nn.Module, batch: BatchT) -> Seen: ...

    @abstractmethod
    def logits(self, model: nn.Module, rows: Rows) -> Tensor:
        """Return (n, C) outputs on the CPU for nodes rows (n,)."""

    # ---- node embeddings for tasks that choose the nodes themselves ------------------
    def num_sampled_batches(self, epoch: int) -> int | None:
        """Return the number of node sets that the source samples itself, or None if it accepts any nodes."""
        return None

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Prepare an epoch; called before its first batch."""

    def encoder_batch(self, model: nn.Module, rows: Rows, epoch: int, number: int) -> tuple[BatchT, Rows]:
        """Return the input of `encode` and its nodes: the distinct rows (n,), or nodes sampled by the source."""
        raise NotImplementedError

    def encode(self, model: nn.Module, batch: BatchT) -> Tensor:
        """Return (n, C) outputs for the nodes of an `encoder_batch`."""
        raise NotImplementedError


class NodeTask(SourceTask[BatchT, NodeBatches[BatchT]]):
    """Node classification or regression.

    Args:
        model: the model that the source calls.
        source: source of the batches.
        walks: numbers of sampled walks, stored with the run for inference on other data.
    """

    def __init__(
        self, model: nn.Module, source: NodeBatches[BatchT], *, walks: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(model, source)
        self.labels, self.walks = source.labels, walks
        self.metric, self.mode = self.labels.target.metrics[0], self.labels.target.mode

    def num_batches(self, epoch: int) -> int:
        return self.source.num_batches(epoch)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[BatchT]:
        return self.source.batches(self.model, epoch, start, step)

    def loss(self, batch: BatchT) -> Tensor | None:
        """Return the mean or weighted loss of a batch's training nodes, or None if there are none."""
        out, y, weight = self.source.outputs(self.model, batch)
        return self.labels.target.loss(out, y, weight) if len(y) else None

    def facts(self) -> TaskFacts:
        return {"target": self.labels.target, "class_names": self.labels.class_names, "walks": self.walks}

    def logits(self, rows: Rows) -> Tensor:
        return self.source.logits(self.model, rows)

    def evaluate(self, split: str) -> dict[str, float]:
        rows, target = self.labels.rows(split), self.labels.target
        y, out = self.labels.y[rows], self.logits(rows)
        if split == "test":
            self.curves = label_curves(target, y, out)
        return target.score(y, out)

    def predict(self, split: str) -> dict[str, np.ndarray]:
        rows, ids = self.labels.rows(split), self.labels.node_ids
        columns = self.labels.target.table(self.labels.y[rows], self.logits(rows))
        return {"node": rows if ids is None else ids.names(rows), **columns}


def label_curves(target: Target, y: np.ndarray, out: Tensor) -> dict[str, Any]:
    """Return the test split's calibration curve and the confidence intervals of its metrics."""
    known = target.has_label(y)
    predictions, labels = target.predictions(out)[known], y[known]
    reliability = class_reliability(predictions, labels) if target.goal == "classes" else None
    limits = (
        {} if target.goal == "labels" else label_intervals(target.metrics, labels, predictions, weights=target.weights)
    )
    intervals = {name: [interval.low, interval.high] for name, interval in limits.items()}
    return (
        {"reliability": [] if reliability is None else [reliability], "intervals": intervals}
        if reliability or intervals
        else {}
    )


class RowBatches(NodeBatches[tuple[Any, Tensor]]):
    """Mini-batches of nodes whose inputs do not depend on each other.

    Args:
        inputs: function from rows (b,) to the model's input, a tensor or nested tuples of tensors.
        labels: labels, splits and names.
        batch_size: training nodes per step.
        seed: seed of the batch order.
    """

    def __init__(self, inputs: Callable[[Rows], Any], labels: NodeLabels, *, batch_size: int, seed: int) -> None:
        super().__init__(labels)
        check_range(minimum=1, batch_size=batch_size)
        self.inputs, self.batch_size, self.seed = inputs, batch_size, seed

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.labels.split["train"]) // self.batch_size)

    def batches(self, model: nn.Module, epoch: int, start: int = 0, step: int = 1) -> Iterator[tuple[Any, Tensor]]:
        order = named_rng(self.seed, "batches", epoch).permutation(self.labels.split["train"])
        for i in range(start, self.num_batches(epoch), step):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            yield self.inputs(rows), torch.from_numpy(self.labels.y[rows])

    def outputs(self, model: nn.Module, batch: tuple[Any, Tensor]) -> Seen:
        inputs, y = batch
        return model(inputs), y, None

    def encoder_batch(self, model: nn.Module, rows: Rows, epoch: int, number: int) -> tuple[tuple[Any, Tensor], Rows]:
        return (self.inputs(rows), torch.zeros(0)), rows

    def encode(self, model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
        return model(batch[0])

    def logits(self, model: nn.Module, rows: Rows) -> Tensor:
        batches = np.split(rows, range(4 * self.batch_size, len(rows), 4 * self.batch_size))
        return torch.cat([model(to_model(self.inputs(batch), model)).float().cpu() for batch in batches])


class FullGraph(NodeBatches[tuple[Tensor, Tensor]]):
    """Full-batch training: one step over the whole graph, with the loss over the training nodes.

    Args:
        inputs: tensors (or objects with `.to(device)`) of the whole graph; model(*inputs) returns (N, C) outputs.
        labels: labels, splits and names.
    """

    single_process = "one step covers the whole graph; use mini-batches"

    def __init__(self, inputs: tuple[Any, ...], labels: NodeLabels) -> None:
        super().__init__(labels)
        self.inputs = inputs
        self._device: torch.device | None = None

    def num_batches(self, epoch: int) -> int:
        return 1

    def batches(self, model: nn.Module, epoch: int, start: int = 0, step: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        rows = self.labels.split["train"]
        if start == 0:
            yield torch.from_numpy(rows), torch.from_numpy(self.labels.y[rows])

    def outputs(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Seen:
        rows, y = batch
        return self._all(model)[rows], y, None

    def logits(self, model: nn.Module, rows: Rows) -> Tensor:
        return self._all(model).float().cpu()[torch.from_numpy(rows)]

    def encoder_batch(
        self, model: nn.Module, rows: Rows, epoch: int, number: int
    ) -> tuple[tuple[Tensor, Tensor], Rows]:
        return (torch.from_numpy(rows), torch.zeros(0)), rows

    def encode(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return self._all(model)[batch[0]]

    def _all(self, model: nn.Module) -> Tensor:
        device = device_of(model)
        if self._device != device:  # the graph moves once, not every step
            self.inputs, self._device = to_model(self.inputs, model), device
        return model(*self.inputs)


def averaged(outputs: Iterable[Tensor]) -> Tensor:
    """Return the mean of equally shaped tensors, with only one of them in memory at a time."""
    total, count = torch.zeros(()), 0
    for count, own in enumerate(outputs, 1):
        total = own if count == 1 else total + own
    return total if count == 1 else total / count


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def to_model(value: Any, model: nn.Module) -> Any:
    """Move nested tuples of tensors to the model's device, and floats to float64 if its weights are float64."""
    if isinstance(value, tuple):
        return tuple(to_model(v, model) for v in value)
    first = next(model.parameters())
    if isinstance(value, Tensor) and value.is_floating_point() and first.dtype == torch.float64:
        return value.to(first)
    return value.to(first.device)


Batch = tuple[Tensor, Any, Tensor, Tensor, Tensor | None]


class Subgraphs(NodeBatches[Batch]):
    """Mini-batches of subgraphs: blocks of nodes, or seed nodes with sampled neighborhoods.

    Args:
        source: source of the batches. The model is called as model(x, propagator).
        labels: labels, splits and names.
        predict_all: function from the model to (N, C) logits of all nodes on the CPU, for evaluation.
        state, load_state: save and restore replacements for missing neighbors if they depend on training.
        refresh: called with the model and the epoch at the start of each epoch.
        graph: the full graph, for callers that need it.
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
        graph: Graph | None = None,
    ) -> None:
        super().__init__(labels)
        self.graph = graph
        self.source, self.predict_all = source, predict_all
        self._state, self._load_state = state, load_state
        self._refresh = refresh
        self._y = torch.from_numpy(labels.y.copy())

    def num_batches(self, epoch: int) -> int:
        return self.source.num_batches(epoch)

    def batches(self, model: nn.Module, epoch: int, start: int = 0, step: int = 1) -> Iterator[Batch]:
        """Yield (x, propagator, rows, labels, weights)."""
        if start < step:
            self.begin_epoch(model, epoch)
        prepared = (self._batch(self.source.batch(epoch, i)) for i in range(start, self.num_batches(epoch), step))
        yield from prefetched(prepared)

    @property
    def single_process(self) -> str:  # type: ignore[override]
        cached = isinstance(self.source, NodeSetSource) and isinstance(self.source.compensation, GasCache)
        return "every batch writes one cache of messages; take --batching.kind top" if cached else ""

    def _batch(self, batch: GraphBatch) -> Batch:
        y = self._y[torch.from_numpy(batch.nodes)[batch.rows]]
        return batch.x, batch.graph, batch.rows, y, batch.weight

    def outputs(self, model: nn.Module, batch: Batch) -> Seen:
        return self.encode(model, batch), batch[3], batch[4]

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        if self._refresh is not None:
            self._refresh(model, epoch)

    def num_sampled_batches(self, epoch: int) -> int | None:
        return None if isinstance(self.source, SeedSource) else self.source.num_batches(epoch)

    def encoder_batch(self, model: nn.Module, rows: Rows, epoch: int, number: int) -> tuple[Batch, Rows]:
        if isinstance(self.source, SeedSource):
            batch = self.source.seed_batch(rows, epoch, number)
            return (batch.x, batch.graph, batch.rows, batch.rows, None), rows
        batch = self.source.batch(epoch, number)
        all_rows = torch.arange(len(batch.nodes))
        return (batch.x, batch.graph, all_rows, all_rows, None), batch.nodes

    def encode(self, model: nn.Module, batch: Batch) -> Tensor:
        x, graph, rows = batch[:3]
        if isinstance(graph, GasBatch):
            graph = graph.written_by(model, x)
        return model(x, graph)[rows]

    def logits(self, model: nn.Module, rows: Rows) -> Tensor:
        return self.predict_all(model)[torch.from_numpy(rows)]

    def state(self) -> dict[str, Tensor]:
        return {} if self._state is None else self._state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        if state and self._load_state is not None:
            self._load_state(state)


def one_pass(source: BatchSource, num_nodes: int, device: Callable[[], torch.device]) -> Callable[[nn.Module], Tensor]:
    """Return a function from the model to (N, C) logits that runs each batch of epoch 0 once."""

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
            raise DataError(f"the batches omit node {int(np.flatnonzero(~seen)[0])}; inference needs all nodes")
        return out

    return predict
