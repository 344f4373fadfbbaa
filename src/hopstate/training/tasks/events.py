"""Tasks on event streams and the sources of their batches.

`HistoryPairs` and `HistoryNodes` train on past events, `MemoryWindows` (in `memory`) updates a node memory, and
`Untrained` has nothing to train. The tasks in `link` and `event_node` define predictions and metrics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream, as_slice
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import check_range
from hopstate.random import named_rng
from hopstate.sampling.event_batches import epoch_batches, rows_of_batches
from hopstate.sampling.negatives import MixedNegatives, RelationEnds, TrainingNegatives, random_destinations
from hopstate.streaming.history_scorer import (
    HistoryNodeScorer,
    HistoryScorer,
    Input,
    PairTokenizer,
)
from hopstate.streaming.protocols import FollowsStream, HistoryModel, LinkScorer, MemoryModel, Replayable, Scores
from hopstate.tokens.history import HistoryTokenizer, HistoryTokens
from hopstate.training.tasks.target import Target, has_label
from hopstate.training.tasks.task import Microbatches, SourceTask, TaskFacts, TaskSource, prefetched


def training_negatives(stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, *number: int) -> np.ndarray:
    """Return (P,) a random destination for each event at rows (P,), different from its own if possible."""
    draw = int(named_rng(seed, "negatives", *number).integers(2**32))
    part = as_slice(rows)
    return random_destinations(stream.src[part], stream.dst[part], len(rows), batch_size, draw, avoid_positives=True)


class EpochNegatives:
    """Negative samples for the training events at rows (P,), redrawn from (seed, epoch)."""

    def __init__(
        self, stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, mixture: TrainingNegatives
    ) -> None:
        self._of, self._config = (stream, rows, batch_size, seed), mixture

    @cached_property
    def _ends(self) -> RelationEnds | None:
        stream, rows = self._of[:2]
        return None if stream.relation is None else RelationEnds(stream, rows)

    @cached_property
    def _mixed(self) -> MixedNegatives:
        return MixedNegatives(*self._of[:2], self._config)

    def of(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of an epoch's negative samples."""
        stream, rows, batch_size, seed = self._of
        numbers = [(epoch,), *((epoch, k) for k in range(1, self._config.candidates))]
        random = [training_negatives(stream, rows, batch_size, seed, *number) for number in numbers]
        draw = int(named_rng(seed, "mixture", epoch).integers(2**32))
        src, dst = self._mixed.draw(np.stack(random, 1), draw)
        if self._ends is None:
            return src, dst
        return self._ends.respected(rows, src, dst, seed=draw, avoid_positives=True)


def with_negatives(
    events: tuple[np.ndarray, ...], others_src: np.ndarray, others_dst: np.ndarray, group: int
) -> tuple[tuple[np.ndarray, ...], Tensor]:
    """Return the columns and labels of events (B,) and their negative samples (B, K).

    Args:
        events: sources, destinations and times of the events, and their relations if they are typed.
        others_src, others_dst: the negative samples, at the time and of the relation of their event.
        group: 1 puts all events before all negatives. Otherwise each event precedes its own K = group - 1 negatives.
    """
    src, dst, *rest = events
    width = 1 + others_src.shape[1]
    columns = [
        np.concatenate([positive[:, None], negative], 1)
        for positive, negative in ((src, others_src), (dst, others_dst))
    ]
    columns += [np.repeat(column[:, None], width, 1) for column in rest]
    labels = np.zeros((len(src), width), np.float32)
    labels[:, 0] = 1
    order: Literal["F", "C"] = "F" if group == 1 else "C"
    return tuple(column.flatten(order) for column in columns), torch.from_numpy(labels.flatten(order))


def link_loss(logits: Tensor, labels: Tensor, group: int) -> Tensor:
    """Return the summed cross-entropy of logits (Q,): binary if group is 1, otherwise softmax within each group.

    Args:
        labels: (Q,) 1 for events, 0 for negative samples.
        group: rows per softmax; the event comes first.
    """
    if group == 1:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return -logits.view(-1, group).log_softmax(1)[:, 0].sum()


ScorerT_co = TypeVar("ScorerT_co", bound=Replayable, covariant=True)


class EventSource(TaskSource, ABC, Generic[ScorerT_co]):
    """Training batches and scorers of a model on an event stream.

    Methods take the model as wrapped by the training loop. By default there is nothing to train. A trained source
    overrides `num_batches`, `batches` and `loss`.

    Args:
        model: the trained model.
        stream, split: the data.
        feature_dims: numbers of node and edge features that the model reads, 0 for none.
    """

    single_process = "it is not trained in batches"

    def __init__(
        self, model: nn.Module, stream: EventStream, split: EventSplit, *, feature_dims: tuple[int, int] = (0, 0)
    ) -> None:
        self.model, self.stream, self.split, self.feature_dims = model, stream, split, feature_dims

    # ---- training --------------------------------------------------------------------------------------
    def num_batches(self, epoch: int) -> int:
        return 0

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Any]:
        return iter(())

    def loss(self, model: nn.Module, batch: Any) -> Tensor | None:
        """Return the loss of a batch or microbatch, or None if it has no labels."""
        return None

    # ---- scoring ---------------------------------------------------------------------------------------
    def index(self) -> NeighborStore | None:
        """Return an existing index of all added edges, if any; large streams should not build a second one."""
        return None

    @abstractmethod
    def scorer(self, model: nn.Module, split: str) -> ScorerT_co:
        """Return a scorer over the training events for "train", otherwise over the whole stream."""

    @abstractmethod
    def scorer_over(self, model: nn.Module, stream: EventStream) -> ScorerT_co: ...

    @abstractmethod
    def follow(self, model: nn.Module, past: StreamState) -> ScorerT_co: ...


class TokenizedSource(EventSource[ScorerT_co]):
    """A source whose model reads tokenized histories.

    Args:
        model: the trained model.
        stream, split: the data.
        train_inputs: tokenizer over the training events only.
        make_inputs: function from a stream to a tokenizer over all of it, for evaluation.
    """

    single_process = ""

    def __init__(
        self,
        model: HistoryModel | MemoryModel,
        stream: EventStream,
        split: EventSplit,
        train_inputs: Any,
        make_inputs: Callable[[EventStream], Any],
    ) -> None:
        self.train_inputs, self.inputs, self.make_inputs = train_inputs, make_inputs(stream), make_inputs
        node, edge = model.feature_dims
        marked = getattr(self.inputs, "marked", False)  # a deletion flag in tokens, which events do not have
        super().__init__(model, stream, split, feature_dims=(node, edge - marked))

    @abstractmethod
    def scorer_of(self, model: nn.Module, inputs: Any) -> ScorerT_co:
        """Return a scorer that reads a tokenizer."""

    def scorer(self, model: nn.Module, split: str) -> ScorerT_co:
        return self.scorer_of(model, self.train_inputs if split == "train" else self.inputs)

    def scorer_over(self, model: nn.Module, stream: EventStream) -> ScorerT_co:
        return self.scorer_of(model, self.make_inputs(stream))

    def follow(self, model: nn.Module, past: StreamState) -> ScorerT_co:
        return self.scorer_of(model, self.inputs.over(past))


class EventTask(SourceTask[Any, EventSource[Any]], Generic[ScorerT_co]):
    """Base class of tasks on events: training through an `EventSource`, and scorers over splits and streams.

    Args:
        source: source of the batches and scorers.
        clock: time normalization of the model's inputs, stored with the run.
    """

    def __init__(self, source: EventSource[ScorerT_co], *, clock: Clock | None = None) -> None:
        super().__init__(source.model, source)
        self.clock, self.stream, self.split = clock, source.stream, source.split

    def num_batches(self, epoch: int) -> int:
        return self.source.num_batches(epoch)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Any]:
        return self.source.batches(epoch, start, step)

    def loss(self, batch: Any) -> Tensor | None:
        return self.source.loss(self.model, batch)

    def facts(self) -> TaskFacts:
        return {"clock": self.clock}

    def scorer(self, split: str) -> ScorerT_co:
        """Return a scorer over the training events for "train", otherwise over the whole stream."""
        return self.source.scorer(self.model, split)

    def scorer_over(self, stream: EventStream) -> ScorerT_co:
        """Return a scorer over another stream with the same nodes and features."""
        return self.source.scorer_over(self.model, stream)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Numbers of node and edge features that the model reads."""
        return self.source.feature_dims

    def follow(self, past: StreamState) -> ScorerT_co:
        """Return a scorer that continues from a stream state and its node memory."""
        return self.source.follow(self.model, past)

    def query_columns(self, stream: EventStream, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the arguments of `score_events` for the events at rows (Q,), each (Q, ...)."""
        return stream.pairs(rows)

    @abstractmethod
    def score_events(self, follower: Any, *queries: np.ndarray) -> Scores:
        """Return (Q,) or (Q, C) scores of queries, as `query_columns` returns them."""


class Untrained(EventSource[LinkScorer]):
    """A scorer of a stream without trainable parameters."""

    def __init__(self, scorer: Callable[[EventStream], FollowsStream], stream: EventStream, split: EventSplit) -> None:
        super().__init__(nn.Module(), stream, split)
        self._make, self._scorer = scorer, scorer(stream)

    def scorer(self, model: nn.Module, split: str) -> LinkScorer:
        return self._scorer

    def scorer_over(self, model: nn.Module, stream: EventStream) -> LinkScorer:
        return self._make(stream)

    def follow(self, model: nn.Module, past: StreamState) -> LinkScorer:
        return self._scorer.over(past)


def events_to_score(stream: EventStream, splits: EventSplit, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the event positions of a split or of "all", and those of the stream segment to replay."""
    if split == "all":
        return np.arange(len(stream)), np.arange(len(stream))
    return splits.rows(split), splits.rows(split.removeprefix("new_"))


def to_user_ids(stream: EventStream, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return columns src, dst (the user's ids) and t of the events at rows."""
    src, dst, ids = stream.src[rows], stream.dst[rows], stream.node_ids
    names = (src, dst) if ids is None else (ids.names(src), ids.names(dst))
    return {"src": names[0], "dst": names[1], "t": stream.t[rows]}


MAX_QUERIES = 128  # pairs per scoring call; larger calls no longer fit in the cache


Labelled = tuple[Input, Tensor, int]  # a model's input, labels, number of pairs in the batch
Classified = tuple[Input, Tensor]  # a model's input, and classes


class HistoryPairs(TokenizedSource[HistoryScorer]):
    """Training events in time order, with negative samples.

    Args:
        model: maps the input of P pairs to (P,) logits.
        stream, split: the data.
        train_inputs: tokenizer over the training events only.
        inputs: function from a stream to a tokenizer over all of it, for evaluation.
        index: see `EventSource.index`.
        batch_size: training events per step.
        max_events: maximum training events per epoch. Longer streams use a sample of whole batches, redrawn each epoch.
            None uses all events.
        seed: seed of the negatives and of the sampled batches.
        mixture: training negatives. Default: one random negative per event.
        microbatch_size: pairs per microbatch, to limit memory; the gradient is still that of the whole batch. None
            disables microbatches.
        microbatch_tokens: maximum tokens per microbatch; larger ones are split evenly. None sets no limit.
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
        microbatch_size: int | None = None,
        microbatch_tokens: int | None = None,
    ) -> None:
        super().__init__(model, stream, split, train_inputs, inputs)
        self._index = index
        check_range(minimum=1, batch_size=batch_size, max_events=max_events)
        check_range(minimum=1, microbatch_size=microbatch_size, microbatch_tokens=microbatch_tokens)
        self.microbatch_size, self.microbatch_tokens = microbatch_size, microbatch_tokens
        self.batch_size, self.max_events, self.seed = batch_size, max_events, seed
        self._rows, self.mixture = stream.additions(split.train), mixture or TrainingNegatives()
        self.drawn = EpochNegatives(stream, self._rows, batch_size, seed, self.mixture)

    def index(self) -> NeighborStore | None:
        return self._index()

    def num_batches(self, epoch: int) -> int:
        return len(self._numbers(epoch))

    def _numbers(self, epoch: int) -> np.ndarray:
        return epoch_batches(len(self._rows), self.max_events, self.batch_size, self.seed, epoch)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Microbatches[Labelled]]:
        yield from prefetched(self._batches(epoch, start, step))

    def _batches(self, epoch: int, start: int, step: int) -> Iterator[Microbatches[Labelled]]:
        numbers, stream = self._numbers(epoch), self.stream
        columns = (self._rows, *self.drawn.of(epoch))  # events, then sources and destinations of their negatives
        rows, src, dst = (rows_of_batches(column, numbers, self.batch_size) for column in columns)
        for first in range(start * self.batch_size, len(rows), step * self.batch_size):
            own = slice(first, first + self.batch_size)
            events = stream.pairs(rows[own])
            yield self._microbatches(*with_negatives(events, src[own], dst[own], self.mixture.group))

    def _microbatches(self, columns: tuple[np.ndarray, ...], labels: Tensor) -> Microbatches[Labelled]:
        group, count, found = self.mixture.group, len(labels), []
        size = max(group, (self.microbatch_size or count) // group * group)
        for first in range(0, count, size):
            p = slice(first, first + size)
            part = tuple(column[p] for column in columns)
            for tokens, q in split_by_tokens(self.train_inputs, part, self.microbatch_tokens, group):
                found.append((tokens, labels[p][q], count))
        return Microbatches(found)

    def loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        """Return the microbatch's part of the batch's mean cross-entropy."""
        inputs, labels, count = batch
        return link_loss(model(inputs), labels, self.mixture.group) / (count // self.mixture.group)

    def scorer_of(self, model: nn.Module, inputs: PairTokenizer) -> HistoryScorer:
        return HistoryScorer(model, inputs, max_queries=min(MAX_QUERIES, self.microbatch_size or MAX_QUERIES))


class HistoryNodes(TokenizedSource[HistoryNodeScorer]):
    """Labeled source nodes of events in time order.

    Args:
        model: maps the input of S nodes to (S, C) logits, (S, 1) for two classes.
        stream, split: the data.
        y: (E,) classes, -1 if missing; or (E,) or (E, T) regression targets, NaN if missing. Unlabeled events are
            skipped.
        target: loss and metrics of y.
        train_inputs, inputs: see `HistoryPairs`.
        batch_size: training events per step.
    """

    def __init__(
        self,
        model: HistoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        y: np.ndarray,
        target: Target,
        train_inputs: HistoryTokenizer,
        inputs: Callable[[EventStream], HistoryTokenizer],
        batch_size: int = 200,
    ) -> None:
        super().__init__(model, stream, split, train_inputs, inputs)
        check_range(minimum=1, batch_size=batch_size)
        self.y, self.target, self.batch_size = y, target, batch_size
        self._rows = split.train[has_label(y[split.train])]

    def num_batches(self, epoch: int) -> int:
        return -(-len(self._rows) // self.batch_size)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Classified]:
        yield from prefetched(self._batches(start, step))

    def _batches(self, start: int, step: int) -> Iterator[Classified]:
        stream = self.stream
        for first in range(start * self.batch_size, len(self._rows), step * self.batch_size):
            rows = self._rows[first : first + self.batch_size]
            yield self.train_inputs.nodes(stream.src[rows], stream.t[rows]), torch.from_numpy(self.y[rows])

    def loss(self, model: nn.Module, batch: tuple[Input, Tensor]) -> Tensor:
        inputs, y = batch
        return self.target.class_loss(model(inputs), y)

    def scorer_of(self, model: nn.Module, inputs: HistoryTokenizer) -> HistoryNodeScorer:
        scorer = HistoryNodeScorer(model, inputs)
        scorer.activation = self.target.activation
        return scorer


def split_by_tokens(
    inputs: PairTokenizer, columns: tuple[np.ndarray, ...], max_tokens: int | None, group: int = 1
) -> Iterator[tuple[Input, slice]]:
    """Yield the inputs of P pairs and their slices, split evenly so that each has about `max_tokens` tokens at most.

    columns (P,) are those of `EventStream.pairs`.

    A microbatch may exceed the limit by one pair, or by one softmax group. Histories are never cut. None, or few
    tokens, gives one microbatch.
    """
    # Tokenized once to know the lengths, and again in parts if there are too many tokens.
    tokens, size = inputs.pairs(*columns), len(columns[0])
    if max_tokens is None or not isinstance(tokens, HistoryTokens) or len(tokens.nodes) <= max_tokens:
        yield tokens, slice(0, size)
        return
    until = tokens.lengths.view(2, -1).sum(0).cumsum(0).numpy()  # tokens of both nodes, up to each pair
    count = -(-until[-1] // max_tokens)
    inner = np.searchsorted(until, until[-1] * np.arange(1, count) / count, side="right")
    for a, b in pairwise(np.unique([0, *(inner // group * group), size]).tolist()):
        yield inputs.pairs(*(column[a:b] for column in columns)), slice(a, b)
