"""A temporal scorer made of a model that is fed past events from a neighbour store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.neighbor_store import NeighborStore

if TYPE_CHECKING:
    from hopstate.data.events import EventBatch


class PairTokenizer(Protocol):
    """What turns queries into a model's input."""

    store: NeighborStore

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Any:
        """Return the input for scoring pairs u (P,), v (P,) at t (P,): nested tuples of CPU tensors."""
        ...


class HistoryScorer:
    """Scores pairs with a model and a tokenizer; holds no memory but the tokenizer's store.

    Args:
        model: input of P pairs → (P,) logits.
        tokenizer: its store is replaced by an empty one on `reset`, and grows by what is observed, where live.
        live: know only the events observed. Otherwise the store holds the whole stream, and look-ups strictly before
            a query's time alone decide what is seen, earlier events of the same batch included.
        max_pairs: pairs computed at once.
    """

    def __init__(self, model: nn.Module, tokenizer: PairTokenizer, *, live: bool = False, max_pairs: int = 512) -> None:
        self.model, self.tokenizer, self.live, self.max_pairs = model, tokenizer, live, max_pairs

    def reset(self) -> None:
        """Forget what was observed."""
        if self.live:
            held = self.tokenizer.store
            self.tokenizer.store = NeighborStore(held.num_nodes, time_dtype=held.time_dtype)

    @torch.no_grad()
    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Tensor:
        """Return (Q,) probabilities of pairs src (Q,), dst (Q,) at times t (Q,), on the CPU."""
        training = self.model.training
        self.model.eval()
        device = next(self.model.parameters()).device
        parts = []
        for start in range(0, len(src), self.max_pairs):
            part = slice(start, start + self.max_pairs)
            inputs = to_device(self.tokenizer.pairs(src[part], dst[part], t[part]), device)
            parts.append(self.model(inputs).double().sigmoid().cpu())
        self.model.train(training)
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def observe(self, batch: EventBatch) -> None:
        """Take in events, where live."""
        if self.live:
            self.tokenizer.store.append(batch.src, batch.dst, batch.t, batch.event_ids)


def to_device(value: Any, device: torch.device) -> Any:
    """Return nested tuples with their tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple):
        moved = [to_device(v, device) for v in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
