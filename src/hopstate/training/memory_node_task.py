"""Dynamic node classification with a node memory as a `Task`: the label of an event's source, before the event is seen.

Source: CTDG-SSM, arXiv:2606.04672, algorithm 2.
Deviation: the decoder's gap is the time since the node's own last event: what is asked names no partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.batching.following import FollowingMemory
from hopstate.batching.memory import ActiveEvents, MemoryScorer
from hopstate.data.clock import Clock
from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.node_state import NodeState
from hopstate.data.past import Past
from hopstate.evaluation.node_dynamic import (
    binary_labels,
    evaluate_dynamic_nodes,
    score_node_events,
    shown_labels,
)
from hopstate.training.link_task import asked_of, named_pairs
from hopstate.training.memory_task import MemoryTask


class MemoryNodeTask(MemoryTask):
    """Classification of an event's source at the time of the event (labels 0 and 1), before the event is seen.

    Args:
        bootstrap: resamples for confidence intervals of the test part; 0 gives none.
        eval_batch_size: events scored, then seen, together in evaluation.
        rest: see `MemoryTask`.

    Raises:
        DataError: the stream has no labels, or others than 0 and 1.
    """

    metric = "auc"
    mode: Literal["max", "min"] = "max"
    clock: Clock | None = None  # of the gaps that the model sees, kept with the run
    frozen: Sequence[nn.Module] = ()  # parts that were trained before, and stay as they are

    def __init__(
        self, model: Any, stream: EventStream, split: EventSplit, *, bootstrap: int, eval_batch_size: int, **rest: Any
    ) -> None:
        super().__init__(model, stream, split, **rest)
        self.y, self.bootstrap, self.eval_batch_size = binary_labels(stream), bootstrap, eval_batch_size

    def _queries(self, part: slice, drawn: None) -> dict[str, Tensor]:
        rows = self.split.train[part]
        src, t = self.stream.src[rows], self.stream.t[rows]
        gap = torch.from_numpy(self.train_inputs.node_gaps(src, t)).float()
        labels = torch.from_numpy(self.y[rows].astype(np.float32))
        return {"nodes": torch.from_numpy(src), "gap": gap[:, None], "labels": labels}

    def _logits(self, state: NodeState, step: dict[str, Any]) -> Tensor:
        return self.model.node_logits(state, step["nodes"], step["gap"])[:, 0]

    def node_scorer_over(self, stream: EventStream) -> MemoryScorer:
        """Return the model over another stream of the same nodes."""
        return self._scorer_of(self._make(stream))

    def evaluate(self, split: str) -> dict[str, float]:
        """Return ROC AUC and AP of a part's labels; of "train" with look-ups that see training events alone."""
        scorer = self._scorer(split)
        options = {"batch_size": self.eval_batch_size, "bootstrap": self.bootstrap if split == "test" else 0}
        return evaluate_dynamic_nodes(scorer, self.stream, self.split, split, **options)  # type: ignore[arg-type]

    def predict(self, split: str) -> dict[str, Any]:
        """Return columns node, t, score, label of the events of a part (those of `evaluate`), or of "all"."""
        asked, rows = asked_of(self.stream, self.split, split)
        scores = score_node_events(self._scorer(split), self.stream, asked, rows=rows, batch_size=self.eval_batch_size)
        named = named_pairs(self.stream, asked)
        return {
            "node": named["src"],
            "t": named["t"],
            "score": scores,
            "label": shown_labels(self.stream, self.y[asked]),
        }

    def _scorer(self, part: str) -> MemoryScorer:
        return self._scorer_of(self.train_inputs if part == "train" else self.inputs)

    @property
    def _at_once(self) -> int | None:
        return self.eval_batch_size if self.cut_ties else None

    def _scorer_of(self, inputs: ActiveEvents) -> MemoryScorer:
        return MemoryScorer(self.model, inputs, at_once=self._at_once)

    # ---- going on ----------------------------------------------------------------------------------------
    @property
    def live_batch(self) -> int:
        """Events of a batch."""
        return self.eval_batch_size

    def follow(self, past: Past) -> FollowingMemory:
        """Return the model over a past, from where its memory stands."""
        return FollowingMemory(self.model, self.inputs.over(past), past, at_once=self._at_once)

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
