"""A temporal scorer made of a model that is fed past events from a neighbor store."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.neighbor_store import Histories, NeighborStore
from hopstate.layers.modes import evaluating
from hopstate.tokens.history import HistoryTokenizer

if TYPE_CHECKING:
    from hopstate.data.events import EventBatch
    from hopstate.data.stream_state import StreamState

Input = tuple[Any, ...]  # nested tuples of CPU tensors


class PairTokenizer(Protocol):
    """What turns queries into a model's input."""

    store: Histories

    @property
    def deletions(self) -> bool:
        """Whether deletions stand in the store."""
        ...

    @property
    def marked(self) -> bool:
        """Whether the last feature of an event, which the library adds, says that it deletes."""
        ...

    def over(self, past: StreamState) -> Self:
        """Return the same over all events of a past."""
        ...

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Input:
        """Return the input for scoring pairs u (P,), v (P,) at t (P,)."""
        ...


TokenizerT = TypeVar("TokenizerT", bound=PairTokenizer)


class _HistoryScorer(Generic[TokenizerT]):
    """The common half of the scorers: which events are known, and the model run on microbatches.

    Args:
        model: input → (Q,), (Q, 1) or (Q, C) logits.
        tokenizer: its store is replaced by an empty one on `reset`, and grows by what is observed, where live.
        live: know only the events observed. Otherwise the store holds the whole stream, and look-ups strictly before
            a query's time alone decide what is seen, earlier events of the same batch included.
        max_queries: queries computed at once.
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
        """Whether it holds what it is shown."""
        return self.live

    @property
    def seen(self) -> NeighborStore:
        """The events observed, where live."""
        if self._seen is None:
            known = self.tokenizer.store
            self._observed(NeighborStore(known.num_nodes, time_dtype=known.time_dtype))
            return self.seen
        return self._seen

    def reset(self) -> None:
        """Forget what was observed."""
        if self.live:
            self._seen = None
            self.tokenizer.store = self.seen

    def observe(self, batch: EventBatch) -> None:
        """Take in events, where live."""
        if self.live:
            batch = batch if self.tokenizer.deletions else batch.additions()
            self.seen.append(batch.src, batch.dst, batch.t, batch.event_ids)

    def state(self) -> NeighborStore | None:
        """Return a copy of the events observed, where live; else None."""
        return deepcopy(self.seen) if self.live else None

    def restore(self, state: NeighborStore | None) -> None:
        """Go on from what `state` returned."""
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
    """Scores pairs with a model and a `PairTokenizer`; holds no memory but the tokenizer's store."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Tensor:
        """Return (Q,) probabilities of pairs src (Q,), dst (Q,) at times t (Q,), on the CPU."""
        return self._run(self.tokenizer.pairs, src, dst, t)


class HistoryNodeScorer(_HistoryScorer[HistoryTokenizer]):
    """Scores nodes with a classifier and a `HistoryTokenizer`; holds no memory but the tokenizer's store."""

    def score_nodes(self, nodes: np.ndarray, t: np.ndarray) -> Tensor:
        """Return chances of nodes (Q,) at times t (Q,), on the CPU: (Q,) of the second of two classes, or (Q, C)."""
        return self._run(self.tokenizer.nodes, nodes, t)


def to_probabilities(logits: Tensor) -> Tensor:
    """Return float64 probabilities: (Q,) of logits (Q,) or (Q, 1), (Q, C) of the logits of C classes."""
    if logits.ndim < 2 or logits.shape[1] == 1:
        return logits.double().sigmoid().flatten()
    return logits.double().softmax(1)


def to_values(outputs: Tensor) -> Tensor:
    """Return float64 outputs (Q,) of (Q,) or (Q, 1) as they are, (Q, T) of T amounts, the activation of a scorer."""
    return outputs.double() if outputs.ndim > 1 and outputs.shape[1] > 1 else outputs.double().flatten()


def to_label_probabilities(logits: Tensor) -> Tensor:
    """Return the float64 probability of each of T labels, of their logits (Q, T), the activation of a scorer."""
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
