"""Training of models with a node memory: the stream in time order, truncated back-propagation through time.

Each epoch starts from an empty memory and goes through the training events in batches. Batch k is scored (links: with
pairs that did not meet beside each event) from the memory that batches 0..k-1 have made; only then does it move that.
One step of the loop is a window of T batches:

    update with batch k-1, score batch k, update with batch k, ..., score batch k+T-1,

so that every update has a score behind it in its own window, T = 1 included. The memory that enters a window carries
no gradient; T at least the number of batches is back-propagation through the whole epoch.

What is queries of a batch, and the loss, are injected: `LinkObjective` or `LabelObjective`.

Source: CTDG-SSM, arXiv:2606.04672, algorithms 1 and 2.
Deviation: the gap that a node's decoder sees is the time since the node's own last event: what is queries names no
partner.
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

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, check_range
from hopstate.sampling.event_batches import batch_boundaries, piece_boundaries
from hopstate.sampling.negatives import TrainingNegatives
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.history_scorer import to_probabilities
from hopstate.streaming.memory_scorer import ActiveEvents, FollowingMemory, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.events import EpochNegatives, TokenizedSource, link_loss, with_negatives
from hopstate.training.tasks.target import Target, has_label

Update = dict[str, Tensor]  # the fields of an `ActiveBatch`


class Step(TypedDict):
    """One batch of a window: updates before it, and what is queries of it, with labels."""

    updates: list[Update]
    queries: dict[str, Tensor]
    labels: Tensor


class Window(TypedDict):
    """What a step of the loop takes; repeat says that the next window makes the last update again."""

    steps: list[Step]
    repeat: bool


DrawnT = TypeVar("DrawnT")
MemoryScorerT = TypeVar("MemoryScorerT", bound=MemoryScorer)


class Objective(ABC, Generic[DrawnT]):
    """What is queries of each batch of training events, and the loss of the answers.

    Args:
        stream, split: the data.
        inputs: batches of the stream, look-ups seeing the training events alone.
        activation: logits → what a scorer returns.
    """

    def __init__(
        self, stream: EventStream, split: EventSplit, inputs: ActiveEvents, activation: Callable[[Tensor], Tensor]
    ) -> None:
        self.stream, self.split, self.inputs, self.activation = stream, split, inputs, activation

    @abstractmethod
    def draw(self, epoch: int) -> DrawnT:
        """Return what is random of an epoch."""

    @abstractmethod
    def of(self, batch: slice, drawn: DrawnT) -> tuple[dict[str, Tensor], Tensor]:
        """Return what is queries of some of the training rows (source and target, or nodes, and gaps), and labels."""

    @abstractmethod
    def logits(self, model: MemoryModel, state: NodeState, queries: dict[str, Tensor]) -> Tensor:
        """Return (Q,) logits of what `of` returned, or (Q, C) of classes."""

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""


class LinkObjective(Objective[tuple[np.ndarray, np.ndarray]]):
    """Whether the events' ends meet, and the pairs beside them.

    Args:
        stream, split, inputs: see `Objective`.
        batch_size: events a batch, which random destinations are drawn by.
        seed: of the pairs.
        mixture: what stands beside the events; None is one random pair each.
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
        src, dst, t = (column[rows] for column in (self.stream.src, self.stream.dst, self.stream.t))
        at = np.searchsorted(self._added, rows)
        *pairs, labels = with_negatives(src, dst, t, drawn[0][at], drawn[1][at], self.mixture.group)
        queries = {"source": torch.from_numpy(pairs[0]), "target": torch.from_numpy(pairs[1])}
        return queries | {"gap": self.inputs.query_gaps(*pairs)}, labels

    def logits(self, model: MemoryModel, state: NodeState, queries: dict[str, Tensor]) -> Tensor:
        return model.link_logits(state, queries["source"], queries["target"], queries["gap"])

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        group = self.mixture.group
        if group == 1:
            return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return link_loss(logits, labels, group) / (len(labels) // group)


class LabelObjective(Objective[None]):
    """The class of an event's source, before the event is seen; events without one move the memory, and teach nothing.

    Args:
        stream, split, inputs: see `Objective`.
        y: (E,) classes, -1 unknown, or (E,) amounts or (E, T) targets, NaN unknown.
        target: how they are learned.
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
        return {"nodes": torch.from_numpy(src), "gap": self.inputs.query_node_gaps(src, t)}, torch.from_numpy(
            self.y[rows]
        )

    def logits(self, model: MemoryModel, state: NodeState, queries: dict[str, Tensor]) -> Tensor:
        return model.node_logits(state, queries["nodes"], queries["gap"])

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.target.class_loss(logits, labels)


class MemoryWindows(TokenizedSource[MemoryScorer], Generic[DrawnT]):
    """Windows of the training stream, and the memory between them.

    Args:
        model: with the logits that the questions ask for.
        stream, split: the data.
        objective: what is queries of a batch.
        train_inputs: batches of the stream, look-ups seeing the training events alone.
        inputs: stream → the same over all of it, for evaluation.
        batch_size: events that are scored, and move the memory, together; see
            `hopstate.sampling.event_batches.piece_boundaries`. The memory moves by events of a time after all of
            them have been scored.
        cut_ties: False puts all events of a time into one batch, however many.
        tbptt_window: T, batches that gradients flow back through, and batches of one optimiser step.
        tie_batch_size: most events of one time that move the memory together in evaluation, where ties are cut.
    """

    single_process = "its events move one memory, one batch after another"

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
        super().__init__(model, stream, split, train_inputs, inputs, model.feature_dims)
        check_range(least=1, batch_size=batch_size, tbptt_window=tbptt_window)
        self.memory_model, self.objective = model, objective
        self.batch_size, self.tbptt_window, self.cut_ties = batch_size, tbptt_window, cut_ties
        self._at_once = tie_batch_size if cut_ties else None
        t = stream.t[split.train]
        self.batch_boundaries = piece_boundaries(t, batch_size) if cut_ties else batch_boundaries(t, batch_size)
        # batches whose events are all earlier than batch k's: what its scores may know of
        starts = self.batch_boundaries[:-1]
        self.known = np.searchsorted(self.batch_boundaries, np.searchsorted(t, t[starts]))
        self.memory: NodeState | None = None

    def num_batches(self, epoch: int) -> int:
        return -(-(len(self.batch_boundaries) - 1) // self.tbptt_window)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Window]:
        """Yield windows in time order, what is random drawn from (seed, epoch); window 0 empties the memory.

        All of them, one after another: step is 1.
        """
        if start == 0:
            self.memory = None
        elif self.memory is None:
            raise CheckpointError("the checkpoint holds no node memory to continue the epoch from; start the run anew")
        drawn, last = self.objective.draw(epoch), len(self.batch_boundaries) - 1
        for first in range(start * self.tbptt_window, last, self.tbptt_window):
            stop, done = min(first + self.tbptt_window, last), self._done(first)
            steps = []
            for k in range(first, stop):
                steps.append(self._step(k, done, drawn))
                done = int(self.known[k])
            yield {"steps": steps, "repeat": self._done(stop) < done}

    def _done(self, first: int) -> int:
        """Return by how many batches the memory has moved that a window from batch `first` on starts from.

        The last update before a window's first scores is made in the window, so that it is trained: again, where the
        window before has scores from the same memory.
        """
        known = self.known
        if first == 0 or first == len(known):
            return int(known[first - 1]) if first else 0
        return max(int(known[first - 1]) - int(known[first] == known[first - 1]), 0)

    def _step(self, k: int, done: int, drawn: DrawnT) -> Step:
        """Return what batch k needs: the updates that its scores know of and are not done, and what is queries of it."""
        rows, cuts = self.split.train, self.batch_boundaries
        made = [self.stream.take(rows[cuts[j] : cuts[j + 1]]) for j in range(done, self.known[k])]
        updates = [vars(self.train_inputs.batch(events)) for events in made]
        queries, labels = self.objective.of(slice(cuts[k], cuts[k + 1]), drawn)
        return {"updates": updates, "queries": queries, "labels": labels}

    def loss(self, model: nn.Module, batch: Window) -> Tensor | None:
        memory_model, steps = self.memory_model, batch["steps"]
        device = steps[0]["labels"].device
        whole = memory_model.initial_state(self.stream.num_nodes) if self.memory is None else self.memory.to(device)
        concerned = [update["nodes"] for step in steps for update in step["updates"]]
        concerned += [nodes for step in steps for key, nodes in step["queries"].items() if key != "gap"]
        before = state = whole.subset(torch.cat(concerned))  # a window's cost must not grow with the graph
        logits, labels = [], []
        for step in steps:
            for left, update in zip(range(len(step["updates"]), 0, -1), step["updates"]):
                with torch.set_grad_enabled(left <= self.tbptt_window and torch.is_grad_enabled()):
                    before = state
                    state = memory_model.update(state, ActiveBatch(**update))  # type: ignore[arg-type]
            logits.append(self.objective.logits(memory_model, state, step["queries"]))
            labels.append(step["labels"])
        self.memory = whole.put(before if batch["repeat"] else state)
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
        return self._answering(MemoryScorer(self.memory_model, inputs, at_once=self._at_once))

    def follow(self, model: nn.Module, past: StreamState) -> FollowingMemory:
        return self._answering(FollowingMemory(self.memory_model, self.inputs.over(past), past, at_once=self._at_once))

    def _answering(self, scorer: MemoryScorerT) -> MemoryScorerT:
        scorer.activation = self.objective.activation
        return scorer
