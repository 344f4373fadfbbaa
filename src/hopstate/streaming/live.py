"""Online inference: continue a trained temporal model over new events.

Events are split into batches by their position since the first event. An event is scored with the memory from before
the batch that contains the first event with the same timestamp. History queries see all strictly earlier events,
including those of the same batch. A batch updates the memory once a later event shows that it is complete. The result
depends only on the events: one call or one call per event give a bit-identical memory, and scores equal up to
floating-point accuracy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, ShapeError
from hopstate.sampling.event_batches import batch_boundaries
from hopstate.streaming.memory_scorer import WarmStart
from hopstate.streaming.protocols import FollowerT, HasMemory, LiveTask, Replayable, Scores
from hopstate.streaming.replay import as_scores, check_scores, full_batches
from hopstate.streaming.slices import Steps, run_to_completion


class PairQueries:
    """Scores queries against a fixed stream state; follower is the model as the last query left it."""

    def __init__(self, task: LiveTask[Any], past: StreamState) -> None:
        self.task, self.past = task, past
        self._unsettled = past.events(past.settled)
        self._boundaries = full_batches(batch_boundaries(self._unsettled.t, task.live_batch), task.live_batch)
        self._restart()

    def scores(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, *relation: np.ndarray) -> np.ndarray:
        """Return (Q,) or (Q, C) float64 scores of queries (Q,), as if each were the next event; node models use src.

        Raises:
            DivergenceError: a score is NaN or infinite.
            DataError: a node is outside the model's vocabulary.
        """
        position = np.searchsorted(self._unsettled.t, t, side="left")
        batch = np.searchsorted(self._boundaries, position, side="right") - 1
        order, parts = [np.empty(0, np.int64)], []
        for b in np.unique(batch):
            queries = np.flatnonzero(batch == b)
            self._move_to(int(b))
            columns = (column[queries] for column in (src, dst, t, *relation))
            scores = self.task.score_events(self.follower, *columns)
            parts.append(as_scores(scores, len(queries), wide=True))
            order.append(queries)
        all_scores = np.concatenate(parts) if parts else np.empty(0)
        all_scores[np.concatenate(order)] = all_scores.copy()
        return check_scores(all_scores)

    def at(self, t: int | float) -> Any:
        """Return the follower for queries at a time: it has observed the full batches before."""
        position = np.searchsorted(self._unsettled.t, t, side="left")
        self._move_to(int(np.searchsorted(self._boundaries, position, side="right")) - 1)
        return self.follower

    @property
    def first_unobserved(self) -> int:
        """Id of the first event that has not updated the follower's memory."""
        return self.past.settled + int(self._boundaries[self._num_observed])

    def latest(self) -> Any:
        """Return the follower for queries after the last event."""
        self._move_to(len(self._boundaries) - 1)
        return self.follower

    def warm_start(self) -> WarmStart | None:
        """Return the memory after the open batches that were applied for queries; None if there are none."""
        if not self._num_observed or not isinstance(self.follower, HasMemory):
            return None
        return WarmStart(self._boundaries[: self._num_observed + 1], self.follower.state())

    def _restart(self) -> None:
        self.follower: Any = self.task.follow(self.past)
        self._num_observed = 0

    def _move_to(self, batch: int) -> None:
        if batch < self._num_observed:
            self._restart()
        for b in range(self._num_observed, batch):
            self.follower.observe(self._unsettled.take(np.arange(self._boundaries[b], self._boundaries[b + 1])))
        self._num_observed = batch


def fingerprint(task: LiveTask[FollowerT]) -> str:
    """Return a hash of the model weights, which identifies its node memories."""
    digest = hashlib.sha256()
    for name, tensor in sorted(task.model.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def state_after_stream(task: LiveTask[FollowerT], stream: EventStream) -> StreamState:
    """Return the stream state of a model after all events of a stream."""
    return continue_stream(task, initial_state(task, stream), stream, score=False)[1]


def initial_state(task: LiveTask[FollowerT], stream: EventStream) -> StreamState:
    """Return the stream state of a model before the first event, with the node features of a stream."""
    return StreamState(model=fingerprint(task), x=stream.x if task.feature_dims[0] else None)


def continue_stream(
    task: LiveTask[FollowerT],
    past: StreamState,
    events: EventStream,
    *,
    score: bool = True,
    allow_duplicates: bool = False,
) -> tuple[dict[str, np.ndarray], StreamState]:
    """Score new events and add them to the stream state.

    Args:
        task: the trained model.
        past: the stream state, which is not modified.
        events: events with the user's ids, not before the last event of the state. Features of unseen nodes are zeros.
        score: if False, only update the state. Default: True.
        allow_duplicates: the last events of the state occur once more. Default: False.

    Returns:
        Columns of scores (empty if score is False), and the stream state after the events.

    Raises:
        CheckpointError: the state belongs to another model.
        ShapeError: the event features have another width than the model's.
        TimeOrderError, DataError: see `StreamState.joined`; or a node is outside a fixed vocabulary.
    """
    return run_to_completion(continue_stream_sliced(task, past, events, score=score, allow_duplicates=allow_duplicates))


def continue_stream_sliced(
    task: LiveTask[FollowerT],
    past: StreamState,
    events: EventStream,
    *,
    score: bool = True,
    allow_duplicates: bool = False,
    checked: bool = False,
    slice_size: int | None = None,
    warm_start: WarmStart | None = None,
) -> Steps[tuple[dict[str, np.ndarray], StreamState]]:
    """Do what `continue_stream` does, in slices that stop after scores and after each memory update.

    Args:
        checked: skip the check that the state belongs to this model.
        slice_size: maximum number of events to score per slice. Default: full batches.
        warm_start: memory of this state after its open batches, used if the new events do not change these batches.
    """
    if not checked and past.model != fingerprint(task):
        raise CheckpointError("this state belongs to a model of other weights; start from this run's own")
    _, edge_dim = task.feature_dims
    _check_width(edge_dim, events)
    new, whole = past.joined(events, skip_features=not edge_dim, allow_duplicates=allow_duplicates)
    pending = whole.events(past.settled)
    follower, rows = task.follow(whole), task.rows_to_score(new) if score else np.empty(0, np.int64)
    boundaries, positions = batch_boundaries(pending.t, task.live_batch), rows + len(pending) - len(new)
    batch = np.searchsorted(boundaries, np.searchsorted(pending.t, pending.t, side="left"), side="right") - 1
    starts = np.searchsorted(batch[positions], np.arange(len(boundaries)))
    last_batch = int(batch[-1]) if len(pending) else 0  # stays open: later events may join it
    scores, num_observed, observes = [], 0, getattr(follower, "observes", True)
    if warm_start is not None and isinstance(follower, HasMemory):
        first = int(batch[positions[0]]) if len(positions) else last_batch
        if warm_start.fits(boundaries, min(first, last_batch)):
            follower.restore(warm_start.state)
            num_observed = len(warm_start.boundaries) - 1
    for b in range(last_batch + 1):
        queried = positions[slice(*starts[b : b + 2])]
        if len(queried):
            columns, score_part = task.query_columns(pending, queried), partial(task.score_events, follower)
            scores.append((yield from _scored(score_part, *columns, slice_size=slice_size)))
        if observes and num_observed <= b < last_batch:
            observed = pending.take(np.arange(boundaries[b], boundaries[b + 1]))
            if isinstance(follower, HasMemory):
                yield from follower.observing(observed)
            else:
                follower.observe(observed)
                yield
    next_state = _state_after(whole, follower, past.settled + int(boundaries[last_batch]))
    all_scores = np.concatenate(scores) if scores else np.empty(0)  # queries stand in order of time, as batches do
    return task.score_columns(new, rows, check_scores(all_scores)) if score else {}, next_state


def _scored(score: Callable[..., Scores], *columns: np.ndarray, slice_size: int | None) -> Steps[np.ndarray]:
    """Return (Q,) or (Q, C) scores of the rows of columns (Q,), in slices of `slice_size` rows."""
    count, parts = len(columns[0]), []
    size = slice_size or count
    for start in range(0, count, size):
        rows = [column[start : start + size] for column in columns]
        parts.append(as_scores(score(*rows), len(rows[0]), wide=True))
        yield
    return np.concatenate(parts)


def _state_after(state: StreamState, follower: Replayable, settled: int) -> StreamState:
    """Return the stream state with the follower's node memory, updated by the events before id `settled`."""
    if not isinstance(follower, HasMemory):
        return replace(state, settled=settled)
    memory = follower.memory
    return state.settled_at(settled, moved=follower.moved(), clock=memory.clock, tag=memory.tag)


def _check_width(width: int, events: EventStream) -> None:
    found = 0 if events.edge_attr is None else events.edge_attr.shape[1]
    if width and found != width:
        raise ShapeError(
            f"the model takes edge_attr of {width} columns; {events.name} has {found}: give the event features that it "
            "was trained with; in a table, name their columns (--read.edge_columns '[amount]')"
        )
