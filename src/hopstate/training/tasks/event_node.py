"""Classes of an event's source at the time of the event, before it is seen, as a `Task`.

Source: Kumar et al. 2019, arXiv:1908.01207 (the task); DyG-Mamba, arXiv:2408.06966, algorithm 3; CTDG-SSM,
arXiv:2606.04672, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.evaluation.event_targets import EventAmounts, EventClasses, EventTargets, shown_labels
from hopstate.evaluation.intervals import KEPT, apart
from hopstate.evaluation.node_dynamic import evaluate_dynamic_nodes, score_node_events
from hopstate.streaming.protocols import NodeFollower, Scores
from hopstate.training.tasks.events import EventSource, EventTask, events_to_score, to_user_ids
from hopstate.training.tasks.target import ClassWeights, Target, class_weights
from hopstate.training.tasks.task import TaskFacts


def event_target(classes: EventClasses, split: EventSplit, weights: ClassWeights = "none") -> Target:
    """Return how classes are learned, weighted by the training events whose class is known.

    Raises:
        ConfigError: weights of an unknown kind.
    """
    found = class_weights(classes.y[split.train], classes.names, weights)
    return Target(
        goal="classes", names=classes.names, metrics=(classes.metric,), class_weights=found, others=classes.others
    )


class EventNodeTask(EventTask[NodeFollower]):
    """Classification of an event's source, from what came before the event.

    Tables have columns node and t, those of `EventClasses.columns`, and label where the stream has labels.

    Args:
        source: of the batches, and of the model as a scorer.
        classes: of the events, or their amounts, or several targets.
        target: how they are learned.
        eval_batch_size: events scored, then seen, together in evaluation, as `LinkEvaluation.batch_size`.
        bootstrap: resamples for confidence intervals of the test split, of two classes; 0 gives none.
        clock: of the gaps that the model sees, kept with the run.
        frozen: modules that were trained before, and stay as they are.
    """

    def __init__(
        self,
        source: EventSource[NodeFollower],
        *,
        classes: EventClasses | EventAmounts | EventTargets,
        target: Target,
        eval_batch_size: int = 200,
        bootstrap: int = 0,
        clock: Clock | None = None,
        frozen: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__(source, clock=clock)
        self.classes, self.target, self.metric, self.mode = classes, target, classes.metric, target.mode
        self.eval_batch_size, self.bootstrap, self.frozen = eval_batch_size, bootstrap, frozen

    def loss(self, batch: Any) -> Tensor | None:
        for module in self.frozen:
            module.eval()
        return super().loss(batch)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of a split's sources (`EventClasses.metrics`), of "train" from training events."""
        found = evaluate_dynamic_nodes(
            self.scorer(split),
            self.stream,
            self.split,
            split,
            classes=self.classes,
            batch_size=self.eval_batch_size,
            bootstrap=(self.bootstrap or KEPT) if split == "test" else 0,
        )
        if split != "test" or self.bootstrap:
            return found
        judged, limits = apart(found)  # limits that nobody asked for are kept, and no metrics
        self.curves = {"ranking": [], "reliability": [], "intervals": limits} if limits else {}
        return judged

    def predict(self, split: str) -> dict[str, np.ndarray]:
        """Return a table of the events of a split (those of `evaluate`), or of "all"."""
        at, rows = events_to_score(self.stream, self.split, split)
        at = self._of_file(self.stream, at)
        scores = score_node_events(self.scorer(split), self.stream, at, rows=rows, batch_size=self.eval_batch_size)
        return self.answer(self.stream, at, scores) | shown_labels(self.stream, at)

    def facts(self) -> TaskFacts:
        return {"clock": self.clock, "target": self.target}

    # ---- going on --------------------------------------------------------------------------------------
    @property
    def live_batch(self) -> int:
        """Events of a batch where the model goes on over new ones."""
        return self.eval_batch_size

    def ask(self, follower: NodeFollower, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        """Return (Q,) or (Q, C) outputs of the sources of events."""
        return follower.score_nodes(src, t)

    def asked(self, new: EventStream) -> np.ndarray:
        """Return the positions of the events whose sources are scored: not deletions that follow from a node's."""
        return self._of_file(new, np.arange(len(new)))

    def answer(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Return columns row (of the user's table), node, t and the outputs of events at rows."""
        named = to_user_ids(new, rows)
        return {"row": new.in_file(rows), "node": named["src"], "t": named["t"]} | self.classes.columns(scores)

    @staticmethod
    def _of_file(stream: EventStream, rows: np.ndarray) -> np.ndarray:
        return rows[stream.in_file(rows) >= 0]
