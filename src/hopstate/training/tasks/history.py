"""Batches of models that are fed past events, of pairs or of nodes; look-ups see training events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import EventLookup, NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import check_range
from hopstate.sampling.event_batches import epoch_batches, in_batches
from hopstate.sampling.mixture import TrainingNegatives
from hopstate.sampling.prefetch import Prefetcher
from hopstate.streaming.history_scorer import (
    HistoryNodeScorer,
    HistoryScorer,
    Input,
    NodeTokenizer,
    PairTokenizer,
    Shared,
)
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import HistoryTokens
from hopstate.training.ranks import Ranks
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.protocols import Microbatches, Portion
from hopstate.training.tasks.target import Target, is_known
from hopstate.training.tasks.training_pairs import EpochNegatives, beside, link_loss

TOGETHER = 128  # pairs scored at once: more are slower, as what they need no longer stays near


Labelled = tuple[Input, Tensor, int]  # a model's input, labels, and the pairs of the whole batch
Classified = tuple[Input, Tensor]  # a model's input, and classes


class HistoryPairs(EventSource[HistoryScorer]):
    """Events in time order, and pairs that did not meet beside them.

    Args:
        model: input of P pairs → (P,) logits.
        stream, split: the data.
        train_inputs: tokenizer over the training events alone.
        inputs: stream → tokenizer over all of it, for evaluation.
        index: what `EventSource.index` returns.
        batch_size: training events a step.
        max_events: most training events of an epoch; of more, whole batches spread over all, drawn anew for each
            epoch. None takes all.
        seed: fixes the negatives of training, and which events an epoch takes.
        mixture: what stands beside the events in training; None is one random pair each.
        prefetch: prepare the next batch in a background thread.
        microbatch_size: pairs computed together, to bound memory; a step's gradient is the whole batch's all the same.
            None computes all at once.
        microbatch_tokens: pairs that hold more tokens than this are cut once more, evenly; None does not look.

    Raises:
        ConfigError: batch_size, microbatch_size or microbatch_tokens under 1.
    """

    def __init__(
        self,
        model: HistoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        train_inputs: PairTokenizer,
        inputs: Callable[[EventStream], PairTokenizer],
        index: Callable[[], NeighborStore | None] = lambda: None,
        batch_size: int = 200,
        max_events: int | None = None,
        seed: int = 0,
        mixture: TrainingNegatives | None = None,
        prefetch: bool = True,
        microbatch_size: int | None = None,
        microbatch_tokens: int | None = None,
    ) -> None:
        self.train_inputs, self.inputs, self._make = train_inputs, inputs(stream), inputs
        super().__init__(model, stream, split, feature_dims=own_features(model, self.inputs.marked))
        self._index = index
        check_range(least=1, batch_size=batch_size, max_events=max_events)
        check_range(least=1, microbatch_size=microbatch_size, microbatch_tokens=microbatch_tokens)
        self.microbatch_size, self.microbatch_tokens = microbatch_size, microbatch_tokens
        self.batch_size, self.max_events, self.seed, self.prefetch = batch_size, max_events, seed, prefetch
        self._rows, self.mixture = stream.additions(split.train), mixture or TrainingNegatives()
        self.drawn = EpochNegatives(stream, self._rows, batch_size, seed, self.mixture)

    def index(self) -> NeighborStore | None:
        """See `EventSource.index`."""
        return self._index()

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the events of an epoch."""
        return len(self._numbers(epoch))

    def _numbers(self, epoch: int) -> np.ndarray:
        return epoch_batches(len(self._rows), self.max_events, self.batch_size, self.seed, epoch)

    def divide(self, ranks: Ranks) -> str:
        """Take this rank's share of every batch of events, each with the pairs beside it."""
        self.ranks = ranks
        return ""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Microbatches[Labelled]]:
        """Yield (input, labels, pairs of the batch): events in time order, negatives drawn from (seed, epoch)."""
        made = self._batches(epoch, start)
        yield from Prefetcher(made) if self.prefetch else made

    def _batches(self, epoch: int, start: int) -> Iterator[Microbatches[Labelled]]:
        numbers, stream = self._numbers(epoch), self.stream
        rows, *drawn = (in_batches(of, numbers, self.batch_size) for of in (self._rows, *self.drawn.of(epoch)))
        for first in range(start * self.batch_size, len(rows), self.batch_size):
            count = min(self.batch_size, len(rows) - first)
            share = self.ranks.own(count)
            own = slice(first + share.start, first + share.stop)
            src, dst, t = stream.src[rows[own]], stream.dst[rows[own]], stream.t[rows[own]]
            pairs = beside(src, dst, t, drawn[0][own], drawn[1][own], self.mixture.group)
            yield self._microbatches(*pairs, count * (1 + drawn[0].shape[1]))

    def _microbatches(
        self, u: np.ndarray, v: np.ndarray, t: np.ndarray, labels: Tensor, count: int
    ) -> Microbatches[Labelled]:
        group, found = self.mixture.group, []
        size = max(group, (self.microbatch_size or len(u)) // group * group)
        for first in range(0, len(u), size):
            p = slice(first, first + size)
            for tokens, q in split_by_tokens(self.train_inputs, u[p], v[p], t[p], self.microbatch_tokens, group):
                found.append((tokens, labels[p][q], count))
        return Microbatches(found)

    def loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        """Return the microbatch's share of the batch's mean cross-entropy."""
        inputs, labels, count = batch
        return link_loss(model(inputs), labels, self.mixture.group) / (count // self.mixture.group)

    def scorer(self, model: nn.Module, split: str) -> HistoryScorer:
        """Return the model over the training events for "train", else over the whole stream."""
        return self._scorer(model, self.train_inputs if split == "train" else self.inputs)

    def scorer_over(self, model: nn.Module, stream: EventStream) -> HistoryScorer:
        return self._scorer(model, self._make(stream))

    def scorer_with(self, model: nn.Module, store: EventLookup) -> HistoryScorer:
        inputs = self._make(self.stream)
        inputs.store = store
        return self._scorer(model, inputs)

    def follow(self, model: nn.Module, past: StreamState) -> HistoryScorer:
        return self._scorer(model, self.inputs.over(past))

    def _scorer(self, model: nn.Module, inputs: PairTokenizer) -> HistoryScorer:
        most = min(TOGETHER, self.microbatch_size or TOGETHER)
        return HistoryScorer(model, inputs, max_queries=most, shared=_sharing(self.ranks))


class HistoryNodes(EventSource[HistoryNodeScorer]):
    """Sources of the events with a class, in time order.

    Args:
        model: input of S nodes → (S, C) logits; (S, 1) of two classes.
        stream, split: the data.
        y: (E,) classes, -1 unknown, or (E,) amounts or (E, T) targets, NaN unknown: those events teach nothing.
        target: how they are learned.
        train_inputs, inputs: as in `HistoryPairs`.
        batch_size: training events a step.

    Raises:
        ConfigError: batch_size under 1.
    """

    def __init__(
        self,
        model: HistoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        y: np.ndarray,
        target: Target,
        train_inputs: NodeTokenizer,
        inputs: Callable[[EventStream], NodeTokenizer],
        batch_size: int = 200,
    ) -> None:
        self.train_inputs, self.inputs, self._make = train_inputs, inputs(stream), inputs
        super().__init__(model, stream, split, feature_dims=own_features(model, self.inputs.marked))
        check_range(least=1, batch_size=batch_size)
        self.y, self.target, self.batch_size = y, target, batch_size
        self._rows = split.train[is_known(y[split.train])]

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the training events with a class."""
        return -(-len(self._rows) // self.batch_size)

    def divide(self, ranks: Ranks) -> str:
        """Take this rank's share of every batch of events."""
        self.ranks = ranks
        return ""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Classified | Portion[Classified]]:
        """Yield (input, classes) of the events with a class, in time order."""
        yield from Prefetcher(self._batches(start))

    def _batches(self, start: int) -> Iterator[Classified | Portion[Classified]]:
        rows, stream = self._rows, self.stream
        for first in range(start * self.batch_size, len(rows), self.batch_size):
            every = rows[first : first + self.batch_size]
            own = every[self.ranks.own(len(every))]
            batch = self.train_inputs.nodes(stream.src[own], stream.t[own]), torch.from_numpy(self.y[own])
            if self.ranks.size == 1:
                yield batch
            else:
                y, known = self.target.rows(self.y[own]), self.target.rows(self.y[every])
                yield Portion(batch if len(own) else None, self.target.part(y, known))

    def loss(self, model: nn.Module, batch: tuple[Input, Tensor]) -> Tensor:
        """Return the mean cross-entropy."""
        inputs, y = batch
        return self.target.class_loss(model(inputs), y)

    def scorer(self, model: nn.Module, split: str) -> HistoryNodeScorer:
        """Return the model over the training events for "train", else over the whole stream."""
        return self._answering(HistoryNodeScorer(model, self.train_inputs if split == "train" else self.inputs))

    def scorer_over(self, model: nn.Module, stream: EventStream) -> HistoryNodeScorer:
        return self._answering(HistoryNodeScorer(model, self._make(stream)))

    def follow(self, model: nn.Module, past: StreamState) -> HistoryNodeScorer:
        return self._answering(HistoryNodeScorer(model, self.inputs.over(past)))

    def _answering(self, scorer: HistoryNodeScorer) -> HistoryNodeScorer:
        scorer.answer = self.target.answer
        scorer.shared = _sharing(self.ranks)
        return scorer


def _sharing(ranks: Ranks) -> Shared | None:
    return None if ranks.size == 1 else ranks.shared


def own_features(model: HistoryModel, marked: bool) -> tuple[int, int]:
    """Return features of a node and of an event that a model takes from a stream, without the mark of a deletion."""
    node, edge = model.feature_dims
    return node, edge - marked


def split_by_tokens(
    inputs: PairTokenizer, u: np.ndarray, v: np.ndarray, t: np.ndarray, most: int | None, group: int = 1
) -> Iterator[tuple[Input, slice]]:
    """Yield the input of P pairs and which of them it holds, cut into about equally many tokens each, at most `most`.

    A microbatch may hold up to one pair's tokens more (one group's, of pairs that are told apart together), and no
    history is ever cut. None, or few tokens, gives one microbatch.
    """
    tokens = inputs.pairs(u, v, t)
    if most is None or not isinstance(tokens, HistoryTokens) or len(tokens.nodes) <= most:
        yield tokens, slice(0, len(u))
        return
    until = tokens.lengths.view(2, -1).sum(0).cumsum(0).numpy()
    count = -(-until[-1] // most)
    inner = np.searchsorted(until, until[-1] * np.arange(1, count) / count, side="right")
    for a, b in pairwise(np.unique([0, *(inner // group * group), len(u)]).tolist()):
        yield inputs.pairs(u[a:b], v[a:b], t[a:b]), slice(a, b)
