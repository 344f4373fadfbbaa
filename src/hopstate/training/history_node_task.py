"""Dynamic node classification as a `Task`: the label of an event's source, from the source's past alone.

Source: Kumar et al. 2019, arXiv:1908.01207 (the task); DyG-Mamba, arXiv:2408.06966, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.batching.prefetch import Prefetcher
from hopstate.batching.scorer import HistoryNodeScorer, NodeTokenizer
from hopstate.data.clock import Clock
from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import ConfigError
from hopstate.evaluation.node_dynamic import (
    binary_labels,
    evaluate_dynamic_nodes,
    score_node_events,
    shown_labels,
)
from hopstate.training.link_task import asked_of, named_pairs


class HistoryNodeTask:
    """Training of a node classifier that is fed past events.

    Args:
        model: input of S nodes → (S, 1) logits.
        stream: events with a label 0 or 1 each, of the source at the event's time.
        split: the parts; their new nodes have no meaning here.
        train_inputs: tokenizer over the training events alone.
        inputs: stream → tokenizer over all of it, for evaluation.
        batch_size: training events a step.
        eval_batch: events scored together.
        bootstrap: resamples for confidence intervals of the test part; 0 gives none.

    Raises:
        DataError: no labels, or others than 0 and 1.
        ConfigError: batch_size under 1.
    """

    metric = "auc"
    mode: Literal["max", "min"] = "max"
    clock: Clock | None = None  # of the gaps in the input, kept with the run
    frozen: Sequence[nn.Module] = ()  # parts that were trained before, and stay as they are

    def __init__(
        self,
        model: nn.Module,
        stream: EventStream,
        split: EventSplit,
        *,
        train_inputs: NodeTokenizer,
        inputs: Callable[[EventStream], NodeTokenizer],
        batch_size: int = 200,
        eval_batch: int = 200,
        bootstrap: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}")
        self.model, self.stream, self.split, self.y = model, stream, split, binary_labels(stream)
        self.train_inputs, self._make, self.inputs = train_inputs, inputs, inputs(stream)
        self.batch_size, self.eval_batch, self.bootstrap = batch_size, eval_batch, bootstrap

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the training events."""
        return -(-len(self.split.train) // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, Tensor]]:
        """Yield (input, labels) of events in time order."""
        yield from Prefetcher(self._batches(start))

    def _batches(self, start: int) -> Iterator[tuple[Any, Tensor]]:
        rows, stream = self.split.train, self.stream
        for first in range(start * self.batch_size, len(rows), self.batch_size):
            part = rows[first : first + self.batch_size]
            labels = torch.from_numpy(self.y[part].astype(np.float32))
            yield self.train_inputs.nodes(stream.src[part], stream.t[part]), labels

    def loss(self, batch: tuple[Any, Tensor]) -> Tensor:
        """Return the mean binary cross-entropy."""
        inputs, labels = batch
        for part in self.frozen:
            part.eval()
        logits = self.model(inputs).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def scorer(self, part: str) -> HistoryNodeScorer:
        """Return the model over the training events for "train", else over the whole stream."""
        return HistoryNodeScorer(self.model, self.train_inputs if part == "train" else self.inputs)

    def node_scorer_over(self, stream: EventStream) -> HistoryNodeScorer:
        """Return the model over another stream of the same nodes."""
        return HistoryNodeScorer(self.model, self._make(stream))

    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled ROC AUC and AP of a part's sources; of "train" from training events alone."""
        options = {"batch_size": self.eval_batch, "bootstrap": self.bootstrap if split == "test" else 0}
        return evaluate_dynamic_nodes(self.scorer(split), self.stream, self.split, split, **options)  # type: ignore[arg-type]

    def predict(self, split: str) -> dict[str, Any]:
        """Return columns node, t, score, label of the events of a part (those of `evaluate`), or of "all"."""
        asked, rows = asked_of(self.stream, self.split, split)
        scores = score_node_events(self.scorer(split), self.stream, asked, rows=rows, batch_size=self.eval_batch)
        named = named_pairs(self.stream, asked)
        return {
            "node": named["src"],
            "t": named["t"],
            "score": scores,
            "label": shown_labels(self.stream, self.y[asked]),
        }

    @property
    def live_batch(self) -> int:
        """Events of a batch."""
        return self.eval_batch

    def follow(self, past: Past) -> HistoryNodeScorer:
        """Return the model over a past."""
        return HistoryNodeScorer(self.model, self.inputs.over(past))

    def ask(self, follower: Any, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Any:
        """Return (Q,) scores of the sources of events."""
        return follower.score_nodes(src, t)

    def asked(self, new: EventStream) -> np.ndarray:
        """Return the positions of the events whose sources are scored: all."""
        return np.arange(len(new))

    def answer(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
        """Return columns node, t and score of events at rows."""
        named = named_pairs(new, rows)
        return {"node": named["src"], "t": named["t"], "score": scores}

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond the model."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to take back."""
