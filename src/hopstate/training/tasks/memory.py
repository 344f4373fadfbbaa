"""Tasks with a node memory, links and nodes: the stream in time order, truncated back-propagation through time.

Each epoch starts from an empty memory and goes through the training events in batches. Batch k is scored (links: with
pairs that did not meet beside each event) from the memory that batches 0..k-1 have made; only then does it move that.
One step of the loop is a window of T batches:

    update with batch k-1, score batch k, update with batch k, ..., score batch k+T-1,

so that every update has a score behind it in its own window, T = 1 included. The memory that enters a window carries
no gradient; T at least the number of batches is back-propagation through the whole epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import CheckpointError, ConfigError
from hopstate.sampling.event_batches import batch_boundaries, piece_boundaries
from hopstate.sampling.mixture import TrainingNegatives
from hopstate.sampling.negative_sets import Negatives
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.following import FollowingMemory
from hopstate.streaming.memory_scorer import ActiveEvents, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.link import EpochNegatives, LinkEvaluation, LinkTask, beside, link_loss


class MemoryTask:
    """What tasks with a node memory share: windows of the training stream, and the memory between them.

    Args:
        model: `initial_state`, `update(state, batch)` and the logits that a task asks for.
        stream, split: the data.
        train_inputs: batches of the stream, look-ups seeing the training events alone.
        inputs: stream → the same over all of it, for evaluation.
        batch_size: events that are scored, and move the memory, together; see
            `hopstate.sampling.event_batches.piece_boundaries`. The memory moves by events of a time after all of
            them have been scored.
        cut_ties: False puts all events of a time into one batch, however many.
        truncate: T, batches that gradients flow back through, and batches of one optimiser step.
        seed: fixes what is random in training.

    Raises:
        ConfigError: batch_size or truncate under 1.
    """

    model: nn.Module  # as the loop wraps it
    memory_model: MemoryModel

    def __init__(
        self,
        model: MemoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        train_inputs: ActiveEvents,
        inputs: Callable[[EventStream], ActiveEvents],
        batch_size: int = 128,
        truncate: int = 1,
        cut_ties: bool = True,
        seed: int = 0,
    ) -> None:
        if min(batch_size, truncate) < 1:
            raise ConfigError(f"batch_size and truncate must be at least 1; got {batch_size} and {truncate}")
        self.model, self.memory_model, self.stream, self.split = model, model, stream, split
        self.train_inputs, self._make, self.inputs = train_inputs, inputs, inputs(stream)
        self.batch_size, self.truncate, self.seed = batch_size, truncate, seed
        self.cut_ties, t = cut_ties, stream.t[split.train]
        self._boundaries = piece_boundaries(t, batch_size) if cut_ties else batch_boundaries(t, batch_size)
        # batches whose events are all earlier than batch k's: what its scores may know of
        self._known = np.searchsorted(self._boundaries, np.searchsorted(t, t[self._boundaries[:-1]]))
        self._state: NodeState | None = None

    def num_batches(self, epoch: int) -> int:
        """Return how many windows hold the training events."""
        return -(-(len(self._boundaries) - 1) // self.truncate)

    def batches(self, epoch: int, start: int = 0) -> Iterator[dict[str, Any]]:
        """Yield windows in time order, what is random drawn from (seed, epoch); window 0 empties the memory.

        Raises:
            CheckpointError: a later window, and no memory to go on from.
        """
        if start == 0:
            self._state = None
        elif self._state is None:
            raise CheckpointError("the checkpoint holds no node memory to continue the epoch from; start the run anew")
        yield from self.rehearsal(epoch, start)

    def rehearsal(self, epoch: int, start: int) -> Iterator[dict[str, Any]]:
        """Yield windows from position start on, whatever the memory; without one they are scored from an empty one."""
        drawn, known, last = self._draw(epoch), self._known, len(self._boundaries) - 1
        for first in range(start * self.truncate, last, self.truncate):
            stop, done = min(first + self.truncate, last), self._done(first)
            steps = []
            for k in range(first, stop):
                steps.append(self._step(k, done, drawn))
                done = known[k]
            yield {"steps": steps, "repeat": self._done(stop) < done}

    def _done(self, first: int) -> int:
        """Return by how many batches the memory has moved that a window from batch `first` on starts from.

        The last update before a window's first scores is made in the window, so that it is trained: again, where the
        window before has scores from the same memory.
        """
        known = self._known
        if first == 0 or first == len(known):
            return int(known[first - 1]) if first else 0
        return max(int(known[first - 1]) - int(known[first] == known[first - 1]), 0)

    def _step(self, k: int, done: int, drawn: Any) -> dict[str, Any]:
        """Return what batch k needs: the updates that its scores know of and are not done, and what is asked of it."""
        rows, edges = self.split.train, self._boundaries
        made = [self.stream.take(rows[edges[j] : edges[j + 1]]) for j in range(done, self._known[k])]
        updates = [[vars(piece) for piece in self.train_inputs.batches(events)] for events in made]
        return {"updates": updates} | self._queries(slice(edges[k], edges[k + 1]), drawn)

    def loss(self, batch: dict[str, Any]) -> Tensor | None:
        """Return the mean cross-entropy of a window, None where nothing is asked; the memory is kept."""
        model = self.memory_model
        device = batch["steps"][0]["labels"].device
        whole = model.initial_state(self.stream.num_nodes) if self._state is None else self._state.to(device)
        steps = batch["steps"]
        concerned = [piece["nodes"] for step in steps for update in step["updates"] for piece in update]
        concerned += [step[key] for step in steps for key in ("source", "target", "nodes") if key in step]
        before = state = whole.part(torch.cat(concerned))  # a window's cost must not grow with the graph
        logits, labels = [], []
        for step in steps:
            for left, update in zip(range(len(step["updates"]), 0, -1), step["updates"]):
                with torch.set_grad_enabled(left <= self.truncate and torch.is_grad_enabled()):
                    before = state
                    for piece in update:
                        state = model.update(state, ActiveBatch(**piece))
            logits.append(self._logits(state, step))
            labels.append(step["labels"])
        self._state = whole.put(before if batch["repeat"] else state)
        scores = torch.cat(logits)
        if not len(scores):
            return None
        return self._loss(scores, torch.cat(labels))

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def _draw(self, epoch: int) -> Any:
        """Return what an epoch draws at random."""
        return None

    def _queries(self, part: slice, drawn: Any) -> dict[str, Tensor]:
        """Return what is asked of a part of the training rows: nodes as "nodes", or "source" and "target"; "labels"."""
        raise NotImplementedError

    def _logits(self, state: NodeState, step: dict[str, Any]) -> Tensor:
        """Return (Q,) logits of what `_queries` returned, or (Q, C) of classes."""
        raise NotImplementedError

    # ---- checkpoints -------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        """Return the memory that the next window starts from."""
        if self._state is None:
            return {}
        return self._state.tensors() | {"clock": torch.tensor(self._state.clock, dtype=torch.float64)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned.

        Raises:
            CheckpointError: a memory of another model or of other widths.
        """
        if not state:
            self._state = None
            return
        tensors = dict(state)
        clock = float(tensors.pop("clock", torch.tensor(-math.inf)))
        self._state = NodeState.from_tensors(tensors, clock, self.memory_model.tag)


class MemoryLinkTask(MemoryTask, LinkTask):
    """Link prediction by a model with a node memory.

    Args:
        model: see `hopstate.streaming.memory_scorer.MemoryScorer`.
        stream, split: the data.
        evaluation, negatives: see `LinkTask`.
        mixture: what stands beside the events in training; None is one random pair each.
        rest: see `MemoryTask`; seed fixes the negatives of training.
    """

    def __init__(
        self,
        model: MemoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        evaluation: LinkEvaluation,
        negatives: Mapping[tuple[str, str], Negatives] | None = None,
        mixture: TrainingNegatives | None = None,
        **rest: Any,
    ) -> None:
        LinkTask.__init__(self, model, stream, split, evaluation=evaluation, negatives=negatives)
        MemoryTask.__init__(self, model, stream, split, **rest)
        self._added, self.mixture = stream.additions(split.train), mixture or TrainingNegatives()
        self._drawn = EpochNegatives(stream, self._added, self.batch_size, self.seed, self.mixture)

    def _draw(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        return self._drawn.of(epoch)

    def _queries(self, part: slice, drawn: tuple[np.ndarray, np.ndarray]) -> dict[str, Tensor]:
        rows = self.stream.additions(self.split.train[part])
        src, dst, t = (column[rows] for column in (self.stream.src, self.stream.dst, self.stream.t))
        at = np.searchsorted(self._added, rows)
        *pairs, labels = beside(src, dst, t, drawn[0][at], drawn[1][at], self.mixture.group)
        return {
            "source": torch.from_numpy(pairs[0]),
            "target": torch.from_numpy(pairs[1]),
            "gap": self.train_inputs.query_gaps(*pairs),
            "labels": labels,
        }

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        group = self.mixture.group
        if group == 1:
            return super()._loss(logits, labels)
        return link_loss(logits, labels, group) / (len(labels) // group)

    def _logits(self, state: NodeState, step: dict[str, Any]) -> Tensor:
        return self.memory_model.link_logits(state, step["source"], step["target"], step["gap"], back=True)

    # ---- evaluation --------------------------------------------------------------------------------------
    def scorer(self, part: str) -> MemoryScorer:
        """Return the model over the training events for "train", else over the whole stream."""
        return self._scorer(self.train_inputs if part == "train" else self.inputs)

    def scorer_over(self, stream: EventStream) -> MemoryScorer:
        """Return the model over another stream of the same nodes."""
        return self._scorer(self._make(stream))

    def scorer_with(self, store: Any) -> MemoryScorer:
        """Return the model over other edges of the same stream: what has a `NeighborStore`'s look-ups."""
        inputs = self._make(self.stream)
        inputs.store = store
        return self._scorer(inputs)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes."""
        return self.memory_model.feature_dims

    @property
    def _at_once(self) -> int | None:
        return self.evaluation.batch_size if self.cut_ties else None

    def _scorer(self, inputs: ActiveEvents) -> MemoryScorer:
        return MemoryScorer(self.memory_model, inputs, at_once=self._at_once)

    def follow(self, past: Past) -> FollowingMemory:
        """Return the model over a past, from where its memory stands."""
        return FollowingMemory(self.memory_model, self.inputs.over(past), past, at_once=self._at_once)
