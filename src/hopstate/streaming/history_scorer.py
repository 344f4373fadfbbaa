"""Scorers that read event histories from a neighbor store, without a memory of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.events import not_none
from hopstate.layers.modes import evaluating
from hopstate.tokens.history import HistoryTokenizer, HistoryTokens

if TYPE_CHECKING:
    from hopstate.data.events import EventBatch
    from hopstate.data.stream_state import StreamState

Input = tuple[Any, ...]  # nested tuples of CPU tensors


class PairTokenizer(Protocol):
    """Converts queries to model inputs.

    marked: whether the last event feature, added by the library, marks deletions.
    """

    marked: bool

    def over(self, past: StreamState) -> Self:
        """Return a copy that reads all events of a stream state."""

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> Input:
        """Return the model input for pairs u (P,), v (P,) at times t (P,), of a relation (P,)."""


TokenizerT = TypeVar("TokenizerT", bound=PairTokenizer)


class StatelessScorer:
    """A scorer without state: it reads events from a neighbor store, strictly before the query time."""

    observes = False

    def reset(self) -> None:
        """Do nothing: there is no state."""

    def observe(self, batch: EventBatch) -> None:
        """Do nothing: the store contains the events."""


class _HistoryScorer(StatelessScorer, Generic[TokenizerT]):
    """Base of the history scorers: runs the model in microbatches.

    Args:
        model: maps an input to (Q,), (Q, 1) or (Q, C) logits.
        tokenizer: its store holds all events; a query uses those strictly before its time.
        max_queries: queries per microbatch.
    """

    def __init__(self, model: nn.Module, tokenizer: TokenizerT, *, max_queries: int = 512) -> None:
        self.activation: Callable[[Tensor], Tensor] = to_probabilities  # of the logits
        self.model, self.tokenizer, self.max_queries = model, tokenizer, max_queries

    def _run(self, tokens: Callable[..., Input], *columns: np.ndarray) -> Tensor:
        starts = range(0, len(columns[0]), self.max_queries)
        parts = [self._answers(tokens(*(column[at : at + self.max_queries] for column in columns))) for at in starts]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def _answers(self, inputs: Input) -> Tensor:
        device = next(self.model.parameters()).device
        with evaluating(self.model):
            return self.activation(self.model(to_device(inputs, device))).cpu()


class HistoryScorer(_HistoryScorer[PairTokenizer]):
    """Scores pairs from event histories, without a node memory."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> Tensor:
        """Return (Q,) probabilities of pairs src (Q,), dst (Q,) at times t (Q,), on the CPU."""
        return self._run(self.tokenizer.pairs, *not_none(src, dst, t, relation))

    def score_over(self, others: Sequence[HistoryScorer], *query: np.ndarray) -> list[Tensor]:
        """Return (1,) probabilities of one query of `score` by scorers of the same model over several states."""
        inputs = [other.tokenizer.pairs(*query) for other in others]
        if not all(isinstance(tokens, HistoryTokens) for tokens in inputs):
            return [self._answers(tokens) for tokens in inputs]
        return list(self._answers(HistoryTokens.concatenate(inputs)).split(1))  # type: ignore[arg-type]


class HistoryNodeScorer(_HistoryScorer[HistoryTokenizer]):
    """Scores nodes from event histories, without a node memory."""

    def score_nodes(self, nodes: np.ndarray, t: np.ndarray) -> Tensor:
        """Return CPU probabilities of nodes (Q,) at times t (Q,): (Q,) of the second of two classes, or (Q, C)."""
        return self._run(self.tokenizer.nodes, nodes, t)


def to_probabilities(logits: Tensor) -> Tensor:
    """Return float64 probabilities: (Q,) from logits (Q,) or (Q, 1), (Q, C) from logits of C classes."""
    if logits.ndim < 2 or logits.shape[1] == 1:
        return logits.double().sigmoid().flatten()
    return logits.double().softmax(1)


def to_values(outputs: Tensor) -> Tensor:
    """Return float64 regression outputs: (Q,) from (Q,) or (Q, 1), (Q, T) from T targets."""
    return outputs.double() if outputs.ndim > 1 and outputs.shape[1] > 1 else outputs.double().flatten()


def to_label_probabilities(logits: Tensor) -> Tensor:
    """Return the float64 probabilities of T binary labels from logits (Q, T)."""
    return to_values(logits.double().sigmoid())


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "classes": to_probabilities,
    "labels": to_label_probabilities,
    "values": to_values,
}


def to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple):
        moved = [to_device(v, device) for v in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
