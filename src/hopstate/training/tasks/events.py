"""Tasks on event streams: where their batches come from, and their model over splits, other streams and a past.

`HistoryPairs` and `HistoryNodes` (`history`) feed past events, `MemoryWindows` (`memory`) moves a node memory,
`Untrained` here has nothing to train. What is predicted, and how it is judged, is the task's: `link`, `event_node`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from torch import Tensor, nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.streaming.protocols import Follower, LinkFollower, LooksUp
from hopstate.training.ranks import ALONE, Ranks
from hopstate.training.tasks.protocols import TaskFacts

ScorerT_co = TypeVar("ScorerT_co", bound=Follower, covariant=True)


class EventSource(Generic[ScorerT_co]):
    """How a model of an event stream is trained and asked.

    Methods take the model as the loop has wrapped it. What a batch is, is between `batches` and `loss` of one source: a
    task holds any, so that its batches are Any.

    Args:
        model: what the loop trains.
        stream, split: the data.
        feature_dims: features of a node and of an event that the model takes from the stream, 0 for none.
    """

    def __init__(
        self, model: nn.Module, stream: EventStream, split: EventSplit, *, feature_dims: tuple[int, int] = (0, 0)
    ) -> None:
        self.model, self.stream, self.split, self.feature_dims = model, stream, split, feature_dims
        self.ranks = ALONE

    def divide(self, ranks: Ranks) -> str:
        """Take this rank's share of every batch from now on; return why that cannot be, or nothing."""
        return "its events move one memory, one batch after another, which several processes would each have to hold"

    # ---- training --------------------------------------------------------------------------------------
    def num_batches(self, epoch: int) -> int:
        raise NotImplementedError

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield an epoch's batches from position start on, what is random drawn from (seed, epoch)."""
        raise NotImplementedError

    def rehearsal(self, epoch: int, start: int) -> Iterator[Any]:
        """Yield batches that cost what an epoch's do."""
        for _ in range(3):  # an epoch may be one batch
            yield from self.batches(epoch, start)

    def loss(self, model: nn.Module, batch: Any) -> Tensor | None:
        """Return the loss of a batch, or of one of its microbatches; None where there is nothing to learn from."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Return what training moves beside the weights; by default nothing."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned."""

    # ---- scoring ---------------------------------------------------------------------------------------
    def index(self) -> NeighborStore | None:
        """Return an index of all edges that are added, where one is held: of a large stream a second is dear."""
        return None

    def scorer(self, model: nn.Module, split: str) -> ScorerT_co:
        """Return the model over the training events for "train", else over the whole stream."""
        raise NotImplementedError

    def scorer_over(self, model: nn.Module, stream: EventStream) -> ScorerT_co:
        raise NotImplementedError

    def scorer_with(self, model: nn.Module, store: NeighborStore) -> ScorerT_co:
        """Return the model over other histories of the same stream: what has a `NeighborStore`'s look-ups."""
        raise NotImplementedError

    def follow(self, model: nn.Module, past: StreamState) -> ScorerT_co:
        raise NotImplementedError


class EventTask(Generic[ScorerT_co]):
    """What the tasks on events share: training as the source does it, and the model over splits, streams and a past.

    Args:
        source: of the batches, and of the model as a scorer.
        clock: of the gaps that the model sees, kept with the run.
    """

    mode: Literal["max", "min"] = "max"
    metric: str

    def __init__(self, source: EventSource[ScorerT_co], *, clock: Clock | None = None) -> None:
        self.source, self.clock = source, clock
        self.model, self.stream, self.split = source.model, source.stream, source.split

    def divide(self, ranks: Ranks) -> str:
        """Take this rank's share of every batch; return why the source cannot, or nothing."""
        return self.source.divide(ranks)

    def num_batches(self, epoch: int) -> int:
        return self.source.num_batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        return self.source.batches(epoch, start)

    def rehearsal(self, epoch: int, start: int) -> Iterator[Any]:
        """Return batches that cost what an epoch's do."""
        return self.source.rehearsal(epoch, start)

    def loss(self, batch: Any) -> Tensor | None:
        return self.source.loss(self.model, batch)

    def facts(self) -> TaskFacts:
        """Return what a run must remember."""
        return {"clock": self.clock}

    def state(self) -> dict[str, Tensor]:
        """Return what training moves beside the weights."""
        return self.source.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned."""
        self.source.load_state(state)

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


class Untrained(EventSource[LinkFollower]):
    """A scorer that has nothing to train.

    Args:
        scorer: stream → the model over it.
        stream, split: the data.
    """

    def __init__(self, scorer: Callable[[EventStream], LooksUp], stream: EventStream, split: EventSplit) -> None:
        super().__init__(nn.Module(), stream, split)
        self._make, self._scorer = scorer, scorer(stream)

    def divide(self, ranks: Ranks) -> str:
        """Return that there is nothing to share."""
        return "it has nothing to train"

    def num_batches(self, epoch: int) -> int:
        """Return 0."""
        return 0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def loss(self, model: nn.Module, batch: Any) -> None:
        """Return None: nothing is learned from a batch."""

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
