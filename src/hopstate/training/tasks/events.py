"""Tasks on event streams: where their batches come from, and their model over splits, other streams and a past.

`HistoryPairs` and `HistoryNodes` (`history`) feed past events, `MemoryWindows` (`memory`) moves a node memory,
`Untrained` here has nothing to train. What is predicted, and how it is judged, is the task's: `link`, `event_node`.
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
from hopstate.sampling.event_batches import epoch_batches, in_batches
from hopstate.sampling.negatives import MixedNegatives, TrainingNegatives, random_destinations
from hopstate.streaming.history_scorer import (
    HistoryNodeScorer,
    HistoryScorer,
    Input,
    PairTokenizer,
)
from hopstate.streaming.protocols import Follower, HistoryModel, LinkFollower, LooksUp, Scores
from hopstate.tokens.history import HistoryTokenizer, HistoryTokens
from hopstate.training.tasks.target import Target, is_known
from hopstate.training.tasks.task import Microbatches, Prefetcher, SourceTask, TaskFacts, TaskSource


def training_negatives(stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, *number: int) -> np.ndarray:
    """Return (P,) a random destination for each event at rows (P,), other than its own if there are several.

    Args:
        stream, rows, batch_size, seed: as of `EpochNegatives`.
        number: of the epoch, and of the candidate if it is not the first.
    """
    draw = int(named_rng(seed, "negatives", *number).integers(2**32))
    part = as_slice(rows)
    return random_destinations(stream.src[part], stream.dst[part], len(rows), batch_size, draw, avoid_own=True)


class EpochNegatives:
    """The pairs beside the training events at rows (P,), drawn anew from (seed, epoch)."""

    def __init__(
        self, stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, mixture: TrainingNegatives
    ) -> None:
        self._of, self._config = (stream, rows, batch_size, seed), mixture

    @cached_property
    def _mixed(self) -> MixedNegatives:
        return MixedNegatives(*self._of[:2], self._config)

    def of(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of an epoch's pairs."""
        stream, rows, batch_size, seed = self._of
        numbers = [(epoch,), *((epoch, k) for k in range(1, self._config.candidates))]
        random = [training_negatives(stream, rows, batch_size, seed, *number) for number in numbers]
        return self._mixed.draw(np.stack(random, 1), int(named_rng(seed, "mixture", epoch).integers(2**32)))


def beside(
    src: np.ndarray, dst: np.ndarray, t: np.ndarray, others_src: np.ndarray, others_dst: np.ndarray, group: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Tensor]:
    """Return ends, times and labels of events (B,) and of the pairs beside them (B, K).

    Args:
        src, dst, t: the events.
        others_src, others_dst: the pairs.
        group: 1 puts all events first, then all pairs; else each event stands before its own K = group - 1.
    """
    width = 1 + others_src.shape[1]
    columns = [np.concatenate([own[:, None], other], 1) for own, other in ((src, others_src), (dst, others_dst))]
    columns.append(np.repeat(t[:, None], width, 1))
    labels = np.zeros((len(src), width), np.float32)
    labels[:, 0] = 1
    order: Literal["F", "C"] = "F" if group == 1 else "C"
    u, v, when = (column.flatten(order) for column in columns)
    return u, v, when, torch.from_numpy(labels.flatten(order))


def link_loss(logits: Tensor, labels: Tensor, group: int) -> Tensor:
    """Return the summed cross-entropy of logits (Q,): binary where group is 1, else of each event among its group.

    Args:
        labels: (Q,) 1 of events, 0 of pairs that did not meet.
        group: rows that are told apart together, the event first.
    """
    if group == 1:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return -logits.view(-1, group).log_softmax(1)[:, 0].sum()


ScorerT_co = TypeVar("ScorerT_co", bound=Follower, covariant=True)


class EventSource(TaskSource, ABC, Generic[ScorerT_co]):
    """How a model of an event stream is trained and asked.

    Methods take the model as the loop has wrapped it. By default there is nothing to train: a source that is trained in
    batches defines `num_batches`, `batches` and `loss`.

    Args:
        model: what the loop trains.
        stream, split: the data.
        feature_dims: features of a node and of an event that the model takes from the stream, 0 for none.
    """

    single_process = "it is not trained in batches"  # see `Task.single_process`

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
        """Return the loss of a batch, or of one of its microbatches; None where there is nothing to learn from."""
        return None

    # ---- scoring ---------------------------------------------------------------------------------------
    def index(self) -> NeighborStore | None:
        """Return an index of all edges that are added, where one is held: of a large stream a second is dear."""
        return None

    @abstractmethod
    def scorer(self, model: nn.Module, split: str) -> ScorerT_co:
        """Return the model over the training events for "train", else over the whole stream."""

    @abstractmethod
    def scorer_over(self, model: nn.Module, stream: EventStream) -> ScorerT_co: ...

    @abstractmethod
    def follow(self, model: nn.Module, past: StreamState) -> ScorerT_co: ...


class TokenizedSource(EventSource[ScorerT_co]):
    """A source whose model reads what a tokenizer makes of a stream.

    Args:
        model: what the loop trains.
        stream, split: the data.
        train_inputs: tokenizer over the training events alone.
        make_inputs: stream → tokenizer over all of it, for evaluation.
        feature_dims: as in `EventSource`.
    """

    single_process = ""

    def __init__(
        self,
        model: nn.Module,
        stream: EventStream,
        split: EventSplit,
        train_inputs: Any,
        make_inputs: Callable[[EventStream], Any],
        feature_dims: tuple[int, int],
    ) -> None:
        super().__init__(model, stream, split, feature_dims=feature_dims)
        self.train_inputs, self.inputs, self.make_inputs = train_inputs, make_inputs(stream), make_inputs

    @abstractmethod
    def scorer_of(self, model: nn.Module, inputs: Any) -> ScorerT_co:
        """Return the model over a tokenizer."""

    def scorer(self, model: nn.Module, split: str) -> ScorerT_co:
        return self.scorer_of(model, self.train_inputs if split == "train" else self.inputs)

    def scorer_over(self, model: nn.Module, stream: EventStream) -> ScorerT_co:
        return self.scorer_of(model, self.make_inputs(stream))

    def follow(self, model: nn.Module, past: StreamState) -> ScorerT_co:
        return self.scorer_of(model, self.inputs.over(past))


class HistorySource(TokenizedSource[ScorerT_co]):
    """A tokenized source of a model of histories, whose tokens may mark deletions by a feature of their own."""

    def __init__(
        self,
        model: HistoryModel,
        stream: EventStream,
        split: EventSplit,
        train_inputs: PairTokenizer | HistoryTokenizer,
        make_inputs: Callable[[EventStream], PairTokenizer | HistoryTokenizer],
    ) -> None:
        node, edge = model.feature_dims
        super().__init__(model, stream, split, train_inputs, make_inputs, (node, edge))
        self.feature_dims = node, edge - self.inputs.marked


class EventTask(SourceTask[Any, EventSource[Any]], Generic[ScorerT_co]):
    """What the tasks on events share: training as the source does it, and the model over splits, streams and a past.

    Args:
        source: of the batches, and of the model as a scorer.
        clock: of the gaps that the model sees, kept with the run.
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
        """Return the model over the training events for "train", else over the whole stream."""
        return self.source.scorer(self.model, split)

    def scorer_over(self, stream: EventStream) -> ScorerT_co:
        """Return the model over another stream of the same nodes and features."""
        return self.source.scorer_over(self.model, stream)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes."""
        return self.source.feature_dims

    def follow(self, past: StreamState) -> ScorerT_co:
        """Return the model over a past, from where its memory stands."""
        return self.source.follow(self.model, past)

    @abstractmethod
    def score_events(self, follower: Any, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        """Return (Q,) or (Q, C) scores of what is asked at events."""


class Untrained(EventSource[LinkFollower]):
    """A scorer, made of a stream, that has nothing to train."""

    def __init__(self, scorer: Callable[[EventStream], LooksUp], stream: EventStream, split: EventSplit) -> None:
        super().__init__(nn.Module(), stream, split)
        self._make, self._scorer = scorer, scorer(stream)

    def scorer(self, model: nn.Module, split: str) -> LinkFollower:
        return self._scorer

    def scorer_over(self, model: nn.Module, stream: EventStream) -> LinkFollower:
        return self._make(stream)

    def follow(self, model: nn.Module, past: StreamState) -> LinkFollower:
        return self._scorer.over(past)


def events_to_score(stream: EventStream, splits: EventSplit, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of a split's events, or of "all", and those of the split that they are scored amid."""
    if split == "all":
        return np.arange(len(stream)), np.arange(len(stream))
    return splits.rows(split), splits.rows(split.removeprefix("new_"))


def to_user_ids(stream: EventStream, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return columns src, dst (the user's ids) and t of the events at rows."""
    src, dst, ids = stream.src[rows], stream.dst[rows], stream.node_ids
    names = (src, dst) if ids is None else (ids.names(src), ids.names(dst))
    return {"src": names[0], "dst": names[1], "t": stream.t[rows]}


TOGETHER = 128  # pairs scored at once: more are slower, as what they need no longer stays near


Labelled = tuple[Input, Tensor, int]  # a model's input, labels, and the pairs of the whole batch
Classified = tuple[Input, Tensor]  # a model's input, and classes


class HistoryPairs(HistorySource[HistoryScorer]):
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
        microbatch_size: pairs computed together, to bound memory; a step's gradient is the whole batch's all the same.
            None computes all at once.
        microbatch_tokens: pairs that hold more tokens than this are cut once more, evenly; None does not look.
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
        check_range(least=1, batch_size=batch_size, max_events=max_events)
        check_range(least=1, microbatch_size=microbatch_size, microbatch_tokens=microbatch_tokens)
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
        yield from Prefetcher(self._batches(epoch, start, step))

    def _batches(self, epoch: int, start: int, step: int) -> Iterator[Microbatches[Labelled]]:
        numbers, stream = self._numbers(epoch), self.stream
        rows, *drawn = (in_batches(of, numbers, self.batch_size) for of in (self._rows, *self.drawn.of(epoch)))
        for first in range(start * self.batch_size, len(rows), step * self.batch_size):
            own = slice(first, first + self.batch_size)
            src, dst, t = stream.src[rows[own]], stream.dst[rows[own]], stream.t[rows[own]]
            yield self._microbatches(*beside(src, dst, t, drawn[0][own], drawn[1][own], self.mixture.group))

    def _microbatches(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, labels: Tensor) -> Microbatches[Labelled]:
        group, found = self.mixture.group, []
        size = max(group, (self.microbatch_size or len(u)) // group * group)
        for first in range(0, len(u), size):
            p = slice(first, first + size)
            for tokens, q in split_by_tokens(self.train_inputs, u[p], v[p], t[p], self.microbatch_tokens, group):
                found.append((tokens, labels[p][q], len(u)))
        return Microbatches(found)

    def loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        """Return the microbatch's share of the batch's mean cross-entropy."""
        inputs, labels, count = batch
        return link_loss(model(inputs), labels, self.mixture.group) / (count // self.mixture.group)

    def scorer_of(self, model: nn.Module, inputs: PairTokenizer) -> HistoryScorer:
        return HistoryScorer(model, inputs, max_queries=min(TOGETHER, self.microbatch_size or TOGETHER))


class HistoryNodes(HistorySource[HistoryNodeScorer]):
    """Sources of the events with a class, in time order.

    Args:
        model: input of S nodes → (S, C) logits; (S, 1) of two classes.
        stream, split: the data.
        y: (E,) classes, -1 unknown, or (E,) amounts or (E, T) targets, NaN unknown: those events teach nothing.
        target: how they are learned.
        train_inputs, inputs: as in `HistoryPairs`.
        batch_size: training events a step.
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
        check_range(least=1, batch_size=batch_size)
        self.y, self.target, self.batch_size = y, target, batch_size
        self._rows = split.train[is_known(y[split.train])]

    def num_batches(self, epoch: int) -> int:
        return -(-len(self._rows) // self.batch_size)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Classified]:
        yield from Prefetcher(self._batches(start, step))

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
