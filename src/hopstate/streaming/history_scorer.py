"""Scorers for models that read event histories from a neighbor store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.events import not_none
from hopstate.data.neighbor_store import Histories, NeighborStore
from hopstate.layers.modes import evaluating
from hopstate.tokens.history import HistoryTokenizer, HistoryTokens

if TYPE_CHECKING:
    from hopstate.data.events import EventBatch
    from hopstate.data.stream_state import StreamState

Input = tuple[Any, ...]  # nested tuples of CPU tensors


class PairTokenizer(Protocol):
    """Converts queries to model inputs."""

    store: Histories

    @property
    def deletions(self) -> bool:
        """Whether the store contains deletions."""

    @property
    def marked(self) -> bool:
        """Whether the last event feature, added by the library, marks deletions."""

    def over(self, past: StreamState) -> Self:
        """Return a copy that reads all events of a stream state."""

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> Input:
        """Return the model input for pairs u (P,), v (P,) at times t (P,), of a relation (P,)."""


TokenizerT = TypeVar("TokenizerT", bound=PairTokenizer)


class _HistoryScorer(Generic[TokenizerT]):
    """Base of the history scorers: tracks the visible events and runs the model in microbatches.

    Args:
        model: maps an input to (Q,), (Q, 1) or (Q, C) logits.
        live: the tokenizer's store starts empty and grows with the observed events. Otherwise it contains the full
            stream, and every query uses the events strictly before its time, including those of the same batch.
        max_queries: queries per microbatch.
    """

    by_time = False

    def __init__(
        self,
        model: nn.Module,
        tokenizer: TokenizerT,
        *,
        live: bool = False,
        max_queries: int = 512,
    ) -> None:
        self.activation: Callable[[Tensor], Tensor] = to_probabilities  # of the logits
        self.model, self.tokenizer, self.live, self.max_queries = model, tokenizer, live, max_queries
        self._seen: NeighborStore | None = None

    @property
    def observes(self) -> bool:
        """Whether observed events are stored."""
        return self.live

    @property
    def seen(self) -> NeighborStore:
        """The observed events, if live."""
        if self._seen is None:
            known = self.tokenizer.store
            self._observed(NeighborStore(known.num_nodes, time_dtype=known.time_dtype))
            return self.seen
        return self._seen

    def reset(self) -> None:
        if self.live:
            self._seen = None
            self.tokenizer.store = self.seen

    def observe(self, batch: EventBatch) -> None:
        """Store events, if live."""
        if self.live:
            batch = batch if self.tokenizer.deletions else batch.additions()
            self.seen.append(batch.src, batch.dst, batch.t, batch.event_ids)

    def state(self) -> NeighborStore | None:
        """Return a copy of the observed events if live, otherwise None."""
        return deepcopy(self.seen) if self.live else None

    def restore(self, state: NeighborStore | None) -> None:
        if state is not None:
            self._observed(deepcopy(state))

    def _observed(self, store: NeighborStore) -> None:
        self._seen = self.tokenizer.store = store

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
