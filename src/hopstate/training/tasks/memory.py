"""Training of models with a node memory: the stream in time order, with truncated back-propagation through time.

Each epoch starts with an empty memory and visits the training events in batches. Batch k is scored with the memory
after batches 0..k-1, and then updates the memory. One optimizer step covers a window of T batches:

    update with batch k-1, score batch k, update with batch k, ..., score batch k+T-1,

so that every update is followed by a score in its own window, even for T = 1. The memory that enters a window carries
no gradient. If T is at least the number of batches, gradients flow through the whole epoch.

`LinkObjective` and `LabelObjective` define the queries of a batch and the loss.

Source: CTDG-SSM, arXiv:2606.04672, algorithms 1 and 2.
Deviation: the decoder reads the time since the node's own last event, because a node query has no partner.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypedDict, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.events import EventStream, type_codes
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, check_range
from hopstate.sampling.event_batches import batch_boundaries, update_boundaries
from hopstate.sampling.negatives import TrainingNegatives
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.history_scorer import to_probabilities
from hopstate.streaming.memory_scorer import ActiveEvents, LazyMemoryScorer, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.events import EpochNegatives, TokenizedSource, link_loss, with_negatives
from hopstate.training.tasks.target import Target, has_label

Update = dict[str, Tensor]  # the fields of an `ActiveBatch`
NODES = ("source", "target", "nodes")  # the queries that are nodes


class Step(TypedDict):
    """One batch of a window: memory updates before scoring, queries and labels."""

    updates: list[Update]
    queries: dict[str, Tensor]
    labels: Tensor


class Window(TypedDict):
    """Input of one training step; `repeat` says that the next window recomputes the last update."""

    steps: list[Step]
    repeat: bool


DrawnT = TypeVar("DrawnT")
MemoryScorerT = TypeVar("MemoryScorerT", bound=MemoryScorer)


class Objective(ABC, Generic[DrawnT]):
    """Queries for each batch of training events, and the loss of their logits.

    Args:
        stream, split: the data.
        inputs: batches of the stream, with neighbor queries over the training events only.
        activation: maps logits to a scorer's output.
    """

    def __init__(
        self, stream: EventStream, split: EventSplit, inputs: ActiveEvents, activation: Callable[[Tensor], Tensor]
    ) -> None:
        self.stream, self.split, self.inputs, self.activation = stream, split, inputs, activation

    @abstractmethod
    def draw(self, epoch: int) -> DrawnT:
        """Return the random samples of an epoch."""

    @abstractmethod
    def of(self, batch: slice, drawn: DrawnT) -> tuple[dict[str, Tensor], Tensor]:
        """Return queries (source and target, or nodes, and gaps) and labels for some training rows."""

    @abstractmethod
    def logits(self, model: MemoryModel, state: NodeState, queries: dict[str, Tensor]) -> Tensor:
        """Return (Q,) logits of queries, or (Q, C) for classes."""

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""


class LinkObjective(Objective[tuple[np.ndarray, np.ndarray]]):
    """Link prediction: events against negative samples.

    Args:
        stream, split, inputs: see `Objective`.
        batch_size: events per batch of random destinations.
        seed: seed of the negatives.
        mixture: training negatives. Default: one random negative per event.
    """

    def __init__(
        self,
        stream: EventStream,
        split: EventSplit,
        inputs: ActiveEvents,
        *,
        batch_size: int,
        seed: int,
        mixture: TrainingNegatives | None = None,
    ) -> None:
        super().__init__(stream, split, inputs, to_probabilities)
        self.seed = seed
        self._added, self.mixture = stream.additions(split.train), mixture or TrainingNegatives()
        self.drawn = EpochNegatives(stream, self._added, batch_size, seed, self.mixture)

    def draw(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        return self.drawn.of(epoch)

    def of(self, batch: slice, drawn: tuple[np.ndarray, np.ndarray]) -> tuple[dict[str, Tensor], Tensor]:
        rows = self.stream.additions(self.split.train[batch])
        at = np.searchsorted(self._added, rows)
        pairs, labels = with_negatives(self.stream.pairs(rows), drawn[0][at], drawn[1][at], self.mixture.group)
        src, dst, t, *relation = pairs
        queries = {"source": torch.from_numpy(src), "target": torch.from_numpy(dst)}
        queries["gap"] = self.inputs.query_time_deltas(src, dst, t)
        if relation:
            queries["relation"] = type_codes(relation[0])
        return queries, labels

    def logits(self, model: MemoryModel, state: NodeState, queries: dict[str, Tensor]) -> Tensor:
        return model.link_logits(state, **queries)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        group = self.mixture.group
        if group == 1:
            return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return link_loss(logits, labels, group) / (len(labels) // group)


class LabelObjective(Objective[None]):
    """Prediction of the source's label before its event; unlabeled events only update the memory.

    Args:
        stream, split, inputs: see `Objective`.
        y: (E,) classes, -1 if missing; or (E,) or (E, T) regression targets, NaN if missing.
        target: loss and metrics of y.
    """

    def __init__(
        self, stream: EventStream, split: EventSplit, inputs: ActiveEvents, *, y: np.ndarray, target: Target
    ) -> None:
        super().__init__(stream, split, inputs, target.activation)
        self.y, self.target = y, target

    def draw(self, epoch: int) -> None: ...

    def of(self, batch: slice, drawn: None) -> tuple[dict[str, Tensor], Tensor]:
        rows = self.split.train[batch]
        rows = rows[has_label(self.y[rows])]
        src, t = self.stream.src[rows], self.stream.t[rows]
        return {"nodes": torch.from_numpy(src), "gap": self.inputs.query_node_time_deltas(src, t)}, torch.from_numpy(
            self.y[rows]
        )

    def logits(self, model: MemoryModel, state: NodeState, queries: dict[str, Tensor]) -> Tensor:
        return model.node_logits(state, queries["nodes"], queries["gap"])

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.target.class_loss(logits, labels)


class MemoryWindows(TokenizedSource[MemoryScorer], Generic[DrawnT]):
    """Windows of the training stream, and the node memory between them.

    Args:
        model: a memory model with the logits that the objective needs.
        stream, split: the data.
        objective: queries and loss of a batch.
        train_inputs: batches of the stream, with neighbor queries over the training events only.
        inputs: function from a stream to batches with queries over all of it, for evaluation.
        batch_size: events per batch, see `hopstate.sampling.event_batches.update_boundaries`. Events with equal
            timestamps update the memory only after all of them have been scored.
        cut_ties: False puts all events with equal timestamps into one batch.
        tbptt_window: T, batches per optimizer step and per gradient path.
        tie_batch_size: maximum number of simultaneous events per memory update in evaluation, if ties are cut.
    """

    single_process = "all batches update one node memory in sequence"

    def __init__(
        self,
        model: MemoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        objective: Objective[DrawnT],
        train_inputs: ActiveEvents,
        inputs: Callable[[EventStream], ActiveEvents],
        batch_size: int = 128,
        tie_batch_size: int = 128,
        tbptt_window: int = 1,
        cut_ties: bool = True,
    ) -> None:
        super().__init__(model, stream, split, train_inputs, inputs)
        check_range(minimum=1, batch_size=batch_size, tbptt_window=tbptt_window)
        self.memory_model, self.objective = model, objective
        self.batch_size, self.tbptt_window, self.cut_ties = batch_size, tbptt_window, cut_ties
        self._tie_batch = tie_batch_size if cut_ties else None
        t = stream.t[split.train]
        self.batch_boundaries = update_boundaries(t, batch_size) if cut_ties else batch_boundaries(t, batch_size)
        # number of batches that precede batch k in time, which its scores may use
        starts = self.batch_boundaries[:-1]
        self.known = np.searchsorted(self.batch_boundaries, np.searchsorted(t, t[starts]))
        self.memory: NodeState | None = None

    def num_batches(self, epoch: int) -> int:
        return -(-(len(self.batch_boundaries) - 1) // self.tbptt_window)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Window]:
        """Yield windows in time order, with samples drawn from (seed, epoch); window 0 resets the memory.

        Windows depend on each other, so step must be 1.
        """
        if start == 0:
            self.memory = None
        elif self.memory is None:
            raise CheckpointError("the checkpoint has no node memory to resume the epoch from; restart the run")
        drawn, last = self.objective.draw(epoch), len(self.batch_boundaries) - 1
        for first in range(start * self.tbptt_window, last, self.tbptt_window):
            stop, done = min(first + self.tbptt_window, last), self._done(first)
            steps = []
            for k in range(first, stop):
                steps.append(self._step(k, done, drawn))
                done = int(self.known[k])
            yield {"steps": steps, "repeat": self._done(stop) < done}

    def _done(self, first: int) -> int:
        """Return how many batches have updated the memory before the window that starts at batch `first`.

        The last update before a window's first scores belongs to the window, so that it is trained. It is recomputed if
        the previous window also scores from that memory.
        """
        known = self.known
        if first == 0 or first == len(known):
            return int(known[first - 1]) if first else 0
        return max(int(known[first - 1]) - int(known[first] == known[first - 1]), 0)

    def _step(self, k: int, done: int, drawn: DrawnT) -> Step:
        """Return batch k's missing memory updates, queries and labels."""
        rows, cuts = self.split.train, self.batch_boundaries
        batches = [self.stream.take(rows[cuts[j] : cuts[j + 1]]) for j in range(done, self.known[k])]
        updates = [vars(self.train_inputs.batch(events)) for events in batches]
        queries, labels = self.objective.of(slice(cuts[k], cuts[k + 1]), drawn)
        return {"updates": updates, "queries": queries, "labels": labels}

    def loss(self, model: nn.Module, batch: Window) -> Tensor | None:
        memory_model, steps = self.memory_model, batch["steps"]
        device = steps[0]["labels"].device
        memory = memory_model.initial_state(self.stream.num_nodes) if self.memory is None else self.memory.to(device)
        active_nodes = [update["nodes"] for step in steps for update in step["updates"]]
        active_nodes += [nodes for step in steps for key, nodes in step["queries"].items() if key in NODES]
        before = state = memory.subset(torch.cat(active_nodes))  # a window's cost must not grow with the graph
        logits, labels = [], []
        for step in steps:
            for left, update in zip(range(len(step["updates"]), 0, -1), step["updates"]):
                with torch.set_grad_enabled(left <= self.tbptt_window and torch.is_grad_enabled()):
                    before = state
                    state = memory_model.update(state, ActiveBatch(**update))  # type: ignore[arg-type]
            logits.append(self.objective.logits(memory_model, state, step["queries"]))
            labels.append(step["labels"])
        self.memory = memory.put(before if batch["repeat"] else state)
        scores = torch.cat(logits)
        return self.objective.loss(scores, torch.cat(labels)) if len(scores) else None

    # ---- checkpoints -------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        if self.memory is None:
            return {}
        return self.memory.tensors() | {"clock": torch.tensor(self.memory.clock, dtype=torch.float64)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        if not state:
            self.memory = None
            return
        tensors = dict(state)
        clock = float(tensors.pop("clock", torch.tensor(-math.inf)))
        self.memory = NodeState.from_tensors(tensors, clock, self.memory_model.tag)

    # ---- scoring -----------------------------------------------------------------------------------------
    def scorer_of(self, model: nn.Module, inputs: ActiveEvents) -> MemoryScorer:
        return self._with_activation(MemoryScorer(self.memory_model, inputs, at_once=self._tie_batch))

    def follow(self, model: nn.Module, past: StreamState) -> LazyMemoryScorer:
        return self._with_activation(
            LazyMemoryScorer(self.memory_model, self.inputs.over(past), past, at_once=self._tie_batch)
        )

    def _with_activation(self, scorer: MemoryScorerT) -> MemoryScorerT:
        scorer.activation = self.objective.activation
        return scorer
