"""Dynamic node classification as a `Task`: the label of an event's source, from the source's past alone.

Source: Kumar et al. 2019, arXiv:1908.01207 (the task); DyG-Mamba, arXiv:2408.06966, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hopstate.data.clock import Clock
from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import ConfigError
from hopstate.evaluation.event_classes import EventClasses, event_classes
from hopstate.evaluation.node_dynamic import evaluate_dynamic_nodes, score_node_events
from hopstate.sampling.prefetch import Prefetcher
from hopstate.streaming.history_scorer import HistoryNodeScorer, NodeTokenizer
from hopstate.streaming.protocols import HistoryModel
from hopstate.training.tasks.event_target import ClassAnswers, class_loss, event_target
from hopstate.training.tasks.link import events_to_score
from hopstate.training.tasks.target import Target


class HistoryNodeTask(ClassAnswers):
    """Training of a node classifier that is fed past events.

    Args:
        model: input of S nodes → (S, C) logits; (S, 1) of two classes.
        stream: events with labels, of the source at the event's time; those without teach nothing.
        split: the parts; their new nodes have no meaning here.
        train_inputs: tokenizer over the training events alone.
        inputs: stream → tokenizer over all of it, for evaluation.
        batch_size: training events a step.
        eval_batch: events scored together.
        bootstrap: resamples for confidence intervals of the test part, of two classes; 0 gives none.
        classes: of the events; None takes the stream's labels.
        target: how they are learned; None weighs no class.

    Raises:
        DataError: no labels, or such as are no classes.
        ConfigError: batch_size under 1.
    """

    metric: str
    mode: Literal["max", "min"] = "max"
    clock: Clock | None = None  # of the gaps in the input, kept with the run
    frozen: Sequence[nn.Module] = ()  # parts that were trained before, and stay as they are

    def __init__(
        self,
        model: HistoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        train_inputs: NodeTokenizer,
        inputs: Callable[[EventStream], NodeTokenizer],
        batch_size: int = 200,
        eval_batch: int = 200,
        bootstrap: int = 0,
        classes: EventClasses | None = None,
        target: Target | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}")
        self.model: nn.Module = model
        self.stream, self.split = stream, split
        self.classes = event_classes(stream) if classes is None else classes
        self.target = event_target(self.classes, split) if target is None else target
        self.metric, self._rows = self.classes.metric, split.train[self.classes.y[split.train] >= 0]
        self._dims = model.feature_dims
        self.train_inputs, self._make, self.inputs = train_inputs, inputs, inputs(stream)
        self.batch_size, self.eval_batch, self.bootstrap = batch_size, eval_batch, bootstrap

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the training events with a label."""
        return -(-len(self._rows) // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, Tensor]]:
        """Yield (input, classes) of the events with a label, in time order."""
        yield from Prefetcher(self._batches(start))

    def _batches(self, start: int) -> Iterator[tuple[Any, Tensor]]:
        rows, stream = self._rows, self.stream
        for first in range(start * self.batch_size, len(rows), self.batch_size):
            part = rows[first : first + self.batch_size]
            yield self.train_inputs.nodes(stream.src[part], stream.t[part]), torch.from_numpy(self.classes.y[part])

    def loss(self, batch: tuple[Any, Tensor]) -> Tensor:
        """Return the mean cross-entropy."""
        inputs, labels = batch
        for part in self.frozen:
            part.eval()
        return class_loss(self.target, self.model(inputs), labels)

    def scorer(self, part: str) -> HistoryNodeScorer:
        """Return the model over the training events for "train", else over the whole stream."""
        return HistoryNodeScorer(self.model, self.train_inputs if part == "train" else self.inputs)

    def node_scorer_over(self, stream: EventStream) -> HistoryNodeScorer:
        """Return the model over another stream of the same nodes."""
        return HistoryNodeScorer(self.model, self._make(stream))

    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of a part's sources (`EventClasses.metrics`); of "train" from training events alone."""
        options = {
            "classes": self.classes,
            "batch_size": self.eval_batch,
            "bootstrap": self.bootstrap if split == "test" else 0,
        }
        return evaluate_dynamic_nodes(self.scorer(split), self.stream, self.split, split, **options)  # type: ignore[arg-type]

    def predict(self, split: str) -> dict[str, Any]:
        """Return a table of the events of a part (those of `evaluate`), or of "all"; see `ClassAnswers`."""
        asked, rows = events_to_score(self.stream, self.split, split)
        asked = self.asked(self.stream, asked)
        scores = score_node_events(self.scorer(split), self.stream, asked, rows=rows, batch_size=self.eval_batch)
        return self.labelled(self.stream, asked, scores)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes, without the mark of a deletion."""
        return self._dims[0], self._dims[1] - self.inputs.marked

    @property
    def live_batch(self) -> int:
        """Events of a batch."""
        return self.eval_batch

    def follow(self, past: Past) -> HistoryNodeScorer:
        """Return the model over a past."""
        return HistoryNodeScorer(self.model, self.inputs.over(past))

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond the model."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to take back."""
