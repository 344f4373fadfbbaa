"""What moves through time: how a model is replayed over a stream, followed over new events, and stopped and taken up.

`Replayable` is all that the loop of evaluation drives; `LinkScorer` and `NodeScorer` add what is scored. Every temporal
method of the library is a `StreamingModel`: its state can be kept and restored, and the same calls then give the same
scores, bit for bit. `MemoryModel` and `HistoryModel` are the modules behind them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

if TYPE_CHECKING:
    from hopstate.data.events import EventBatch, EventStream
    from hopstate.data.stream_state import Memories, StreamState
    from hopstate.streaming.active_batch import ActiveBatch
    from hopstate.streaming.node_state import NodeState
    from hopstate.streaming.slices import Steps

Scores = np.ndarray | Tensor


# ---- scorers -------------------------------------------------------------------------------------------
@runtime_checkable
class Replayable(Protocol):
    """A temporal model as `streaming.replay` feeds it; one whose attribute `observes` is False is shown no events."""

    def reset(self) -> None:
        """Forget every event observed."""
        ...

    def observe(self, batch: EventBatch) -> None:
        """Take in events that have been scored, or that lie before what is scored."""
        ...


@runtime_checkable
class LinkScorer(Replayable, Protocol):
    """What evaluation asks of a temporal model of links; scoring must not change what later scores are."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        """Return (Q,) scores (larger is likelier) of pairs src (Q,), dst (Q,) at times t (Q,)."""
        ...


@runtime_checkable
class NodeScorer(Replayable, Protocol):
    """What evaluation asks of a temporal node classifier."""

    def score_nodes(self, nodes: np.ndarray, t: np.ndarray) -> Scores:
        """Return scores of nodes (Q,) at times t (Q,): (Q,) of two classes, else (Q, C).

        Of two classes larger means likelier the second.
        """
        ...


@runtime_checkable
class Follower(Protocol):
    """A model over a past."""

    def observe(self, batch: EventBatch) -> None:
        """Take in a batch of events."""
        ...


class LinkFollower(Follower, LinkScorer, Protocol):
    """A model of links over a past."""


class NodeFollower(Follower, NodeScorer, Protocol):
    """A node classifier over a past."""


StateT = TypeVar("StateT")


@runtime_checkable
class StreamingModel(LinkScorer, Protocol[StateT]):
    """A model of links that moves through time, and whose state can be kept and restored.

    by_time: whether batches that end amid a time would let events see others of that time.
    """

    by_time: bool

    def state(self) -> StateT:
        """Return what was observed, as a copy that later events do not touch."""
        ...

    def restore(self, state: StateT) -> None:
        """Go on from what `state` returned; it may be restored again."""
        ...


@runtime_checkable
class HasMemory(Follower, Protocol):
    """A model over a past whose node memory moves on: it is kept with the past.

    memory: with its clock and tag.
    """

    @property
    def memory(self) -> NodeState:
        """See above."""
        ...

    def observing(self, batch: EventBatch) -> Steps[None]:
        """Do what `observe` does, in slices."""
        ...

    def moved(self) -> Memories | None:
        """Return what is remembered now of the nodes whose memory moved; None where none did."""
        ...

    def state(self) -> Any:
        """Return what `restore` takes back."""
        ...

    def restore(self, state: Any) -> None:
        """Go on from what `state` returned."""
        ...


class FollowsStream(LinkFollower, Protocol):
    """A scorer that can be put over the past of a live run."""

    def over(self, past: StreamState) -> LinkFollower:
        """Return the same over all events of a past; what must be observed has been, up to `past.settled`."""
        ...


class StatelessScorer(ABC):
    """A scorer that holds nothing of the events: it scores from look-ups strictly before the query time."""

    by_time = False
    observes = False

    @abstractmethod
    def over(self, past: StreamState) -> LinkFollower:
        """Return the same over all events of a past."""

    @abstractmethod
    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) scores of pairs src (Q,), dst (Q,) at times t (Q,)."""

    def reset(self) -> None:  # noqa: B027
        """Nothing to forget."""

    def observe(self, batch: EventBatch) -> None:  # noqa: B027
        """Nothing to do: the store holds the events."""

    def state(self) -> None:
        return None

    def restore(self, state: None) -> None:  # noqa: B027
        """Nothing to do."""

    @abstractmethod
    def log_odds(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) log-odds of pairs before they are calibrated; scores where these are no probabilities."""


# ---- live runs -----------------------------------------------------------------------------------------
FollowerT = TypeVar("FollowerT", bound=Follower)


@runtime_checkable
class LiveTask(Protocol[FollowerT]):
    """What `streaming.live` asks of a task."""

    model: nn.Module

    @property
    def live_batch(self) -> int: ...

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes from the stream, 0 for none."""
        ...

    def follow(self, past: StreamState) -> FollowerT:
        """Return the model over a past, from where its memory stands."""
        ...

    def score_events(self, follower: FollowerT, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        """Return (Q,) or (Q, C) scores of what is asked at events."""
        ...

    def rows_to_score(self, new: EventStream) -> np.ndarray:
        """Return (Q,) rising positions of the new events that are scored."""
        ...

    def score_columns(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Return columns that tell the scores (Q,) or (Q, C) of events at rows (Q,) with the user's ids."""
        ...


# ---- modules -------------------------------------------------------------------------------------------
class TemporalModel(nn.Module):
    """A network over event streams.

    feature_dims: columns of the features of a node and of an event that it takes, 0 for none.
    """

    feature_dims: tuple[int, int]


class HistoryModel(TemporalModel):
    """A network that is fed past events: `forward` maps a tokenizer's input of Q queries to (Q,) or (Q, C) logits."""


class MemoryModel(TemporalModel):
    """A network with a node memory, which is passed in and returned.

    tag: name of the states that this model reads and writes.
    node_dim, edge_dim: as `feature_dims`.
    order: how many hops the active nodes of a batch reach.
    time_dim: columns of the encodings of gaps in time; 0 where updates see no times.
    update_all: whether every node that has been met is active in every batch.
    gaps: columns of the gaps in time that `link_logits` or `node_logits` takes, 0 for none.
    never: what stands for the gap of what has not happened.
    """

    tag: str
    node_dim: int
    edge_dim: int
    order: int = 0
    time_dim: int = 0
    update_all: bool = False
    gaps: int = 0
    never: Tensor | float

    def initial_state(self, num_nodes: int = 0) -> NodeState:
        """Return the memory before the first event."""
        raise NotImplementedError

    def update(self, state: NodeState, batch: ActiveBatch, *, in_place: bool = False) -> NodeState:
        """Return the memory after a batch; in_place may write into state."""
        raise NotImplementedError

    def represent(self, state: NodeState, nodes: Tensor) -> Tensor:
        """Return (n, w) what scores read of nodes (n,): of their memory first, then what no event changes."""
        raise NotImplementedError

    def link_logits(self, state: NodeState, source: Tensor, target: Tensor, gap: Tensor) -> Tensor:
        """Return (e,) logits that pairs source (e,), target (e,) meet now, with their gaps (e, G)."""
        raise NotImplementedError

    def node_logits(self, state: NodeState, nodes: Tensor, gap: Tensor) -> Tensor:
        """Return (n, C) logits of nodes (n,), or (n, 1) of the second of two classes, with their gaps (n, 1)."""
        raise NotImplementedError

    def sequence_logits(self, state: NodeState, nodes: Tensor) -> Tensor:
        """Return (n, C) logits of the sequences that end at nodes (n,)."""
        raise NotImplementedError
