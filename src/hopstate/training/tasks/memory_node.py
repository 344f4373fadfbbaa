"""Dynamic node classification with a node memory as a `Task`: the label of an event's source, before the event is seen.

Source: CTDG-SSM, arXiv:2606.04672, algorithm 2.
Deviation: the decoder's gap is the time since the node's own last event: what is asked names no partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hopstate.data.clock import Clock
from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.evaluation.event_classes import EventClasses
from hopstate.evaluation.node_dynamic import evaluate_dynamic_nodes, score_node_events
from hopstate.streaming.following import FollowingMemory
from hopstate.streaming.memory_scorer import ActiveEvents, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.event_target import ClassAnswers, class_loss
from hopstate.training.tasks.link import events_to_score
from hopstate.training.tasks.memory import MemoryTask
from hopstate.training.tasks.target import Target


class MemoryNodeTask(ClassAnswers, MemoryTask):
    """Classification of an event's source at the time of the event, before the event is seen.

    Events without a label move the memory, and teach nothing.

    Args:
        classes: of the events.
        target: how they are learned.
        bootstrap: resamples for confidence intervals of the test part, of two classes; 0 gives none.
        eval_batch_size: events scored, then seen, together in evaluation.
        rest: see `MemoryTask`.
    """

    metric: str
    mode: Literal["max", "min"] = "max"
    clock: Clock | None = None  # of the gaps that the model sees, kept with the run
    frozen: Sequence[nn.Module] = ()  # parts that were trained before, and stay as they are

    def __init__(
        self,
        model: MemoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        classes: EventClasses,
        target: Target,
        bootstrap: int,
        eval_batch_size: int,
        **rest: Any,
    ) -> None:
        super().__init__(model, stream, split, **rest)
        self.classes, self.target, self.metric = classes, target, classes.metric
        self.bootstrap, self.eval_batch_size = bootstrap, eval_batch_size

    def _queries(self, part: slice, drawn: None) -> dict[str, Tensor]:
        rows = self.split.train[part]
        rows = rows[self.classes.y[rows] >= 0]
        src, t = self.stream.src[rows], self.stream.t[rows]
        gap = torch.from_numpy(self.train_inputs.node_gaps(src, t)).float()
        return {"nodes": torch.from_numpy(src), "gap": gap[:, None], "labels": torch.from_numpy(self.classes.y[rows])}

    def _logits(self, state: NodeState, step: dict[str, Any]) -> Tensor:
        return self.memory_model.node_logits(state, step["nodes"], step["gap"], back=True)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return class_loss(self.target, logits, labels)

    def node_scorer_over(self, stream: EventStream) -> MemoryScorer:
        """Return the model over another stream of the same nodes."""
        return self._scorer_of(self._make(stream))

    def evaluate(self, split: str) -> dict[str, float]:
        """Return metrics of a part (`EventClasses.metrics`); look-ups of "train" see training events alone."""
        scorer = self._scorer(split)
        options = {
            "classes": self.classes,
            "batch_size": self.eval_batch_size,
            "bootstrap": self.bootstrap if split == "test" else 0,
        }
        return evaluate_dynamic_nodes(scorer, self.stream, self.split, split, **options)  # type: ignore[arg-type]

    def predict(self, split: str) -> dict[str, Any]:
        """Return a table of the events of a part (those of `evaluate`), or of "all"; see `ClassAnswers`."""
        asked, rows = events_to_score(self.stream, self.split, split)
        asked = self.asked(self.stream, asked)
        scores = score_node_events(self._scorer(split), self.stream, asked, rows=rows, batch_size=self.eval_batch_size)
        return self.labelled(self.stream, asked, scores)

    def _scorer(self, part: str) -> MemoryScorer:
        return self._scorer_of(self.train_inputs if part == "train" else self.inputs)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes."""
        return self.memory_model.feature_dims

    @property
    def _at_once(self) -> int | None:
        return self.eval_batch_size if self.cut_ties else None

    def _scorer_of(self, inputs: ActiveEvents) -> MemoryScorer:
        return MemoryScorer(self.memory_model, inputs, at_once=self._at_once)

    # ---- going on ----------------------------------------------------------------------------------------
    @property
    def live_batch(self) -> int:
        """Events of a batch."""
        return self.eval_batch_size

    def follow(self, past: Past) -> FollowingMemory:
        """Return the model over a past, from where its memory stands."""
        return FollowingMemory(self.memory_model, self.inputs.over(past), past, at_once=self._at_once)
