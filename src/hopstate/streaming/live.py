"""A trained temporal model goes on over new events: the machine behind `stream`, and behind `predict` of a later file.

Events are cut into batches by their positions since the first event of all. An event is scored from what came before
the batch in which the first event of its time stands, so by nothing as late as itself; look-ups see all that is
strictly earlier, the batch's own events too. A batch moves the memory as soon as a later event shows that none to come
can belong to it or be scored before it. All three follow from the events alone: one call, ten or one for each event
leave the same memory, bit for bit, and give the same scores to the accuracy of floats (the same calls give the same
bits).
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
from hopstate.streaming.protocols import Follower, FollowerT, HasMemory, LiveTask, Scores
from hopstate.streaming.replay import as_scores, check_scores
from hopstate.streaming.slices import Steps, run_to_completion


class PairQueries:
    """A model of links or nodes over a past, asked again and again; the past stays as it is.

    Args:
        task: the trained model.
        past: what it has seen.

    follower: the model over the past, as the last query left it.
    """

    def __init__(self, task: LiveTask[Any], past: StreamState) -> None:
        self.task, self.past = task, past
        self._open = past.events(past.settled)
        boundaries = batch_boundaries(self._open.t, task.live_batch)
        full = len(boundaries) < 2 or boundaries[-1] - boundaries[-2] >= task.live_batch
        self._boundaries = (
            boundaries if full else boundaries[:-1]
        )  # the last batch is still open: it has moved nothing yet
        self._restart()

    def scores(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) or (Q, C) float64 scores of pairs src (Q,), dst (Q,) at times t (Q,), of nodes those of src.

        No time lies before the past's last event. Each is what an event there, the next to come, would be scored as.

        Raises:
            DataError: a score is NaN or infinite, or a node that the model cannot have.
        """
        position = np.searchsorted(self._open.t, t, side="left")
        place = np.searchsorted(self._boundaries, position, side="right") - 1
        order, parts = [np.empty(0, np.int64)], []
        for b in np.unique(place):
            mine = np.flatnonzero(place == b)
            self._move_to(int(b))
            scores = self.task.score_events(self.follower, src[mine], dst[mine], t[mine])
            parts.append(as_scores(scores, len(mine), wide=True))
            order.append(mine)
        found = np.concatenate(parts) if parts else np.empty(0)
        found[np.concatenate(order)] = found.copy()
        return check_scores(found)

    def at(self, t: int | float) -> Any:
        position = np.searchsorted(self._open.t, t, side="left")
        self._move_to(int(np.searchsorted(self._boundaries, position, side="right")) - 1)
        return self.follower

    @property
    def moved(self) -> int:
        """The id of the first event that has not moved the follower's memory, as the last query left it."""
        return self.past.settled + int(self._boundaries[self._moved])

    def latest(self) -> Any:
        """Return the follower as it stands for whatever comes after the past's last event."""
        self._move_to(len(self._boundaries) - 1)
        return self.follower

    def begun(self) -> WarmStart | None:
        """Return by which open batches the memory has been moved for the queries so far, None where by none."""
        if not self._moved or not isinstance(self.follower, HasMemory):
            return None
        return WarmStart(self._boundaries[: self._moved + 1], self.follower.state())

    def _restart(self) -> None:
        self.follower: Any = self.task.follow(self.past)
        self._moved = 0

    def _move_to(self, batch: int) -> None:
        if batch < self._moved:
            self._restart()
        for b in range(self._moved, batch):
            self.follower.observe(self._open.take(np.arange(self._boundaries[b], self._boundaries[b + 1])))
        self._moved = batch


def fingerprint(task: LiveTask[FollowerT]) -> str:
    """Return what tells a model's memories from those of other weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(task.model.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def state_after_stream(task: LiveTask[FollowerT], stream: EventStream) -> StreamState:
    """Return the past of a model after all events of a stream."""
    return continue_stream(task, initial_state(task, stream), stream, score=False)[1]


def initial_state(task: LiveTask[FollowerT], stream: EventStream) -> StreamState:
    """Return the past of a model before the first event of a stream, with the features of its nodes."""
    return StreamState(model=fingerprint(task), x=stream.x if task.feature_dims[0] else None)


def continue_stream(
    task: LiveTask[FollowerT],
    past: StreamState,
    events: EventStream,
    *,
    score: bool = True,
    again: bool = False,
    checked: bool = False,
) -> tuple[dict[str, np.ndarray], StreamState]:
    """Score further events and take them in.

    Args:
        task: the trained model.
        past: what it has seen; it stays as it is.
        events: with the user's ids, not before the last event of the past; nodes not met before have features of zeros.
        score: False only takes them in.
        again: the very events that were taken last have happened once more.
        checked: the past is known to be this model's.

    Returns:
        Columns of scores (none where score is False), and the past after the events.

    Raises:
        CheckpointError: a past of another model.
        ShapeError: event features of another width than the model's.
        TimeOrderError, DataError: see `StreamState.joined`; or an event of a node beyond a fixed vocabulary.
    """
    return run_to_completion(continue_stream_sliced(task, past, events, score=score, again=again, checked=checked))


def continue_stream_sliced(
    task: LiveTask[FollowerT],
    past: StreamState,
    events: EventStream,
    *,
    score: bool = True,
    again: bool = False,
    checked: bool = False,
    slice_size: int | None = None,
    begun: WarmStart | None = None,
) -> Steps[tuple[dict[str, np.ndarray], StreamState]]:
    """Do what `continue_stream` does, and stop before and after the memory moves.

    Args:
        task, past, events, score, again, checked: as there.
        slice_size: most events that are scored before it stops; None scores whole batches.
        begun: what the memory of this very past came to by its open batches, where somebody has moved it; used where
            the new events leave these batches as they are.
    """
    if not checked and past.model != fingerprint(task):
        raise CheckpointError("this state belongs to a model of other weights; start from this run's own")
    _, edge_dim = task.feature_dims
    _check_width(edge_dim, events)
    new, whole = past.joined(events, skip_features=not edge_dim, again=again)
    open_ = whole.events(past.settled)
    follower, rows = task.follow(whole), task.rows_to_score(new) if score else np.empty(0, np.int64)
    edges, asked = batch_boundaries(open_.t, task.live_batch), rows + len(open_) - len(new)
    place = np.searchsorted(edges, np.searchsorted(open_.t, open_.t, side="left"), side="right") - 1
    starts = np.searchsorted(place[asked], np.arange(len(edges)))
    settled = int(place[-1]) if len(open_) else 0  # events to come are scored before this batch, or in it
    scores, done = [], 0
    if begun is not None and isinstance(follower, HasMemory):
        first = int(place[asked[0]]) if len(asked) else settled
        if begun.fits(edges, min(first, settled)):
            follower.restore(begun.state)
            done = len(begun.edges) - 1
    for b in range(settled + 1):
        mine = asked[slice(*starts[b : b + 2])]
        if len(mine):
            columns = open_.src[mine], open_.dst[mine], open_.t[mine]
            scores.append((yield from _scored(partial(task.score_events, follower), *columns, slice_size=slice_size)))
        if done <= b < settled:
            yield
            moved = open_.take(np.arange(edges[b], edges[b + 1]))
            if isinstance(follower, HasMemory):
                yield from follower.observing(moved)
            else:
                follower.observe(moved)
                yield
    after = _state_after(whole, follower, past.settled + int(edges[settled]))
    found = np.concatenate(scores) if scores else np.empty(0)  # queries stand in order of time, as batches do
    return task.score_columns(new, rows, check_scores(found)) if score else {}, after


def _scored(score: Callable[..., Scores], *columns: np.ndarray, slice_size: int | None) -> Steps[np.ndarray]:
    """Return (Q,) or (Q, C) scores of rows of columns (Q,), `slice_size` after another with a stop between them."""
    count, parts = len(columns[0]), []
    size = slice_size or count
    for start in range(0, count, size):
        rows = [column[start : start + size] for column in columns]
        parts.append(as_scores(score(*rows), len(rows[0]), wide=True))
        if start + size < count:
            yield
    return np.concatenate(parts)


def _state_after(state: StreamState, follower: Follower, settled: int) -> StreamState:
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
