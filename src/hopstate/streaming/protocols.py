"""Protocols and base classes of temporal models: replay, scoring, saved state and online inference.

`Replayable` is what the evaluation loop needs. `LinkScorer` and `NodeScorer` add scoring, and `HasMemory` a state that
is saved with the stream. `MemoryModel` and `HistoryModel` are the underlying modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

if TYPE_CHECKING:
    from hopstate.data.events import EventBatch, EventStream
    from hopstate.data.stream_state import Memories, StreamState
    from hopstate.streaming.active_batch import ActiveBatch
    from hopstate.streaming.event_replay import EventReplay
    from hopstate.streaming.node_state import NodeState
    from hopstate.streaming.slices import Steps

Scores = np.ndarray | Tensor


# ---- scorers -------------------------------------------------------------------------------------------
class Replayable(Protocol):
    """A temporal model that `streaming.replay` can drive. If its attribute `observes` is False, it gets no events.

    If its attribute `by_time` is True, batches must not split equal timestamps: their events would observe each other.
    """

    def reset(self) -> None:
        """Forget all observed events."""

    def observe(self, batch: EventBatch) -> None:
        """Update the state with events that were already scored, or that precede all scored events."""


class LinkScorer(Replayable, Protocol):
    """A temporal model that scores pairs; scoring must not change later scores."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> Scores:
        """Return (Q,) scores (larger is likelier) of pairs src (Q,), dst (Q,) at times t (Q,).

        relation (Q,) is that of each pair; None if the model's events are untyped.
        """


class NodeScorer(Replayable, Protocol):
    """A temporal model that scores nodes."""

    def score_nodes(self, nodes: np.ndarray, t: np.ndarray) -> Scores:
        """Return scores of nodes (Q,) at times t (Q,): (Q,) of the second of two classes, or (Q, C)."""


@runtime_checkable
class HasMemory(Replayable, Protocol):
    """A model with a node memory that is saved with the stream state."""

    @property
    def memory(self) -> NodeState:
        """The node memory, with its clock and tag."""

    def observing(self, batch: EventBatch) -> Steps[None]:
        """Do what `observe` does, in slices."""

    def scores_without(
        self, replays: Sequence[EventReplay], follow: Callable[[StreamState], LinkScorer]
    ) -> Steps[list[np.ndarray]]:
        """Return (V + 1,) scores of each replay's pair: after all events, and without each of V events.

        follow returns the model on top of a stream state.
        """

    def moved(self) -> Memories | None:
        """Return the memories of the updated nodes; None if there are none."""

    def state(self) -> Any:
        """Return a state for `restore`."""

    def restore(self, state: Any) -> None:
        """Restore a state from `state`."""


class FollowsStream(LinkScorer, Protocol):
    """A scorer that can run on top of a stream state."""

    def over(self, past: StreamState) -> LinkScorer:
        """Return a copy that reads all events of a stream state and has observed those up to `past.settled`."""


# ---- live runs -----------------------------------------------------------------------------------------
FollowerT = TypeVar("FollowerT", bound=Replayable)


@runtime_checkable
class LiveTask(Protocol[FollowerT]):
    """What online inference (`streaming.live`) needs of a task."""

    model: nn.Module

    @property
    def live_batch(self) -> int: ...

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Widths of the node and event features that the model reads, 0 for none."""

    def follow(self, past: StreamState) -> FollowerT:
        """Return the model on top of a stream state, with its saved memory."""

    def query_columns(self, stream: EventStream, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the arguments of `score_events` for the events at rows (Q,), each (Q, ...)."""

    def score_events(self, follower: FollowerT, *queries: np.ndarray) -> Scores:
        """Return the (Q,) or (Q, C) scores of queries, as `query_columns` returns them."""

    def rows_to_score(self, new: EventStream) -> np.ndarray:
        """Return the (Q,) sorted positions of the new events to score."""

    def score_columns(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Return a table of scores (Q,) or (Q, C) of events at rows (Q,), as columns with the user's ids."""


# ---- modules -------------------------------------------------------------------------------------------
class HistoryModel(nn.Module):
    """A network over event histories: `forward` maps a tokenizer's input of Q queries to (Q,) or (Q, C) logits.

    feature_dims: widths of the node and event features that it reads, 0 for none.
    """

    feature_dims: tuple[int, int]


class MemoryModel(nn.Module):
    """A network with a node memory, which is passed in and returned.

    tag: name of the states that this model reads and writes.
    node_dim, edge_dim: widths of the node and event features that it reads, 0 for none; feature_dims: both.
    order: number of hops of the active nodes of a batch.
    time_dim: width of the time encodings; 0 if updates do not use times.
    update_all: every node with an earlier event is active in every batch.
    gaps: number of time deltas that `link_logits` or `node_logits` reads, 0 for none.
    max_log_delta: ln(1 + time delta) of pairs and nodes without an earlier event.
    """

    tag: str
    node_dim: int
    edge_dim: int
    feature_dims: tuple[int, int]
    order: int = 0
    time_dim: int = 0
    update_all: bool = False
    gaps: int = 0
    max_log_delta: Tensor | float

    def initial_state(self, num_nodes: int = 0) -> NodeState:
        """Return the memory before the first event."""
        raise NotImplementedError

    def update(self, state: NodeState, batch: ActiveBatch, *, in_place: bool = False) -> NodeState:
        """Return the memory after a batch; in_place permits writing to state."""
        raise NotImplementedError

    def represent(self, state: NodeState, nodes: Tensor) -> Tensor:
        """Return (n, w) decoder inputs of nodes (n,): their memory, followed by static features."""
        raise NotImplementedError

    def link_logits(
        self, state: NodeState, source: Tensor, target: Tensor, gap: Tensor, relation: Tensor | None = None
    ) -> Tensor:
        """Return (e,) logits of a link now between source (e,) and target (e,), given their time deltas (e, G).

        relation (e,) holds the codes of the links' relations, None if the model's events are untyped.
        """
        raise NotImplementedError

    def node_logits(self, state: NodeState, nodes: Tensor, gap: Tensor) -> Tensor:
        """Return (n, C) logits of nodes (n,), or (n, 1) for two classes, given their time deltas (n, 1)."""
        raise NotImplementedError

    def sequence_logits(self, state: NodeState, nodes: Tensor) -> Tensor:
        """Return (n, C) logits of the sequences that end at nodes (n,)."""
        raise NotImplementedError
