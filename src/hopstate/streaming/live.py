"""A trained temporal model goes on over new events: the machine behind `stream`, and behind `predict` of a later file.

Events are cut into batches by their positions since the first event of all. An event is scored from what came before
the batch in which the first event of its time stands, so by nothing as late as itself; look-ups see all that is
strictly earlier, the batch's own events too. A batch moves the memory as soon as a later event shows that none to come
can belong to it or be scored before it. All three follow from the events alone: one call, ten or one for each event
leave the same memory and give the same scores, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import CheckpointError, ShapeError
from hopstate.ops.rows import ranges
from hopstate.sampling.event_batches import batch_boundaries
from hopstate.streaming.following import Begun, asked_alone
from hopstate.streaming.protocols import BLOCK, Follower, FollowerT, LiveTask, MovesMemory, NodeFollower
from hopstate.streaming.scores import check_scores
from hopstate.streaming.slices import Pace, Steps, finished, in_slices


def fingerprint(task: LiveTask[FollowerT]) -> str:
    """Return what tells a model's memories from those of other weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(task.model.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def past_of(task: LiveTask[FollowerT], stream: EventStream) -> Past:
    """Return the past of a model after all events of a stream."""
    return go_on(task, empty_past(task, stream), stream, score=False)[1]


def empty_past(task: LiveTask[FollowerT], stream: EventStream) -> Past:
    """Return the past of a model before the first event of a stream, with the features of its nodes."""
    return Past(model=fingerprint(task), x=stream.x if task.feature_dims[0] else None)


def go_on(
    task: LiveTask[FollowerT],
    past: Past,
    events: EventStream,
    *,
    score: bool = True,
    again: bool = False,
    checked: bool = False,
) -> tuple[dict[str, np.ndarray], Past]:
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
        TimeOrderError, DataError: see `Past.joined`; or an event of a node beyond a fixed vocabulary.
    """
    return finished(going_on(task, past, events, score=score, again=again, checked=checked))


def going_on(
    task: LiveTask[FollowerT],
    past: Past,
    events: EventStream,
    *,
    score: bool = True,
    again: bool = False,
    checked: bool = False,
    pace: Pace | None = None,
    begun: Begun | None = None,
) -> Steps[tuple[dict[str, np.ndarray], Past]]:
    """Do what `go_on` does, to the bit, and stop before and after the memory moves.

    Args:
        task, past, events, score, again, checked: as there.
        pace: of slices of scores, where these depend on no company; None scores whole batches.
        begun: what the memory of this very past came to by its open batches, where somebody has moved it; used where
            the new events leave these batches as they are.
    """
    if not checked and past.model != fingerprint(task):
        raise CheckpointError("this state belongs to a model of other weights; start from this run's own")
    _, edge_dim = task.feature_dims
    _check_width(edge_dim, events)
    new, whole = past.joined(events, skip_features=not edge_dim, again=again)
    open_ = whole.events(past.settled)
    follower, rows = task.follow(whole), task.asked(new) if score else np.empty(0, np.int64)
    edges, asked = batch_boundaries(open_.t, task.live_batch), rows + len(open_) - len(new)
    place = np.searchsorted(edges, np.searchsorted(open_.t, open_.t, side="left"), side="right") - 1
    starts = np.searchsorted(place[asked], np.arange(len(edges)))
    settled = int(place[-1]) if len(open_) else 0  # events to come are scored before this batch, or in it
    scores, done = [], 0
    if begun is not None and isinstance(follower, MovesMemory):
        first = int(place[asked[0]]) if len(asked) else settled
        if begun.fits(edges, min(first, settled)):
            follower.restore(begun.state)
            done = len(begun.edges) - 1
    for b in range(settled + 1):
        mine = asked[slice(*starts[b : b + 2])]
        if len(mine):
            columns, ids = (open_.src[mine], open_.dst[mine]), mine + open_.first_id
            ask = partial(asked_alone, follower, partial(task.ask, follower))
            scores.append((yield from _scored(ask, columns, open_.t[mine], ids, pace if follower.alike else None)))
        if done <= b < settled:
            yield
            moved = open_.take(np.arange(edges[b], edges[b + 1]))
            if isinstance(follower, MovesMemory):
                yield from follower.observing(moved)
            else:
                follower.observe(moved)
                yield
    after = _after(whole, follower, past.settled + int(edges[settled]))
    found = np.concatenate(scores) if scores else np.empty(0)  # queries stand in order of time, as batches do
    return task.answer(new, rows, check_scores(found)) if score else {}, after


def _scored(
    ask: Callable[..., np.ndarray],
    columns: Sequence[np.ndarray],
    t: np.ndarray,
    ids: np.ndarray,
    pace: Pace | None,
) -> Steps[np.ndarray]:
    """Return (Q,) or (Q, C) scores, in slices where there is a pace."""
    if pace is None:
        return ask(columns, t, ids)

    def work(part: slice) -> np.ndarray:
        return ask([column[part] for column in columns], t[part], ids[part])

    return (yield from in_slices(work, len(t), pace))


def outputs_at(task: LiveTask[NodeFollower], past: Past, nodes: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return (Q,) or (Q, C) outputs of nodes at times: what events there, each the next to come, would be scored as.

    Args:
        task: the trained model, of nodes.
        past: what it has seen; it stays as it is.
        nodes: (Q,) rows.
        t: (Q,) times, none before the last event of the past.
    """
    open_, follower = past.events(past.settled), task.follow(past)
    edges, position = batch_boundaries(open_.t, task.live_batch), np.searchsorted(open_.t, t, side="left")
    if len(edges) > 1 and edges[-1] - edges[-2] < task.live_batch:
        edges = edges[:-1]  # the last batch is still open: it has moved nothing yet
    place = np.searchsorted(edges, position, side="right") - 1
    # where a query stands in its block must not depend on what else is asked
    hashed = (nodes.astype(np.uint64) * 0x9E3779B1 + t.view(np.uint64) * 0x85EBCA77) >> 5
    found = []
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(edges) + 1))
    for b in range(len(edges)):
        mine = order[starts[b] : starts[b + 1]]
        if len(mine):
            at = _spread((hashed[mine] % BLOCK).astype(np.int64))
            found.append(asked_alone(follower, follower.score_nodes, (nodes[mine],), t[mine], at))
        if b + 1 < len(edges):
            follower.observe(open_.take(np.arange(edges[b], edges[b + 1])))
    if not found:
        return np.empty(0)
    whole = np.concatenate(found)
    whole[order] = whole.copy()
    return check_scores(whole)


def _spread(places: np.ndarray) -> np.ndarray:
    """Return (Q,) different numbers: places (Q,) in blocks, the k-th query of a place in block k."""
    order = np.argsort(places, kind="stable")
    sizes = np.bincount(places, minlength=BLOCK)
    rank = np.empty(len(places), np.int64)
    rank[order] = ranges(np.zeros_like(sizes), sizes)
    return rank * BLOCK + places


def _after(whole: Past, follower: Follower, settled: int) -> Past:
    """Return the past with what the follower's memory has become, kept beside the last layer."""
    if not isinstance(follower, MovesMemory):
        return replace(whole, settled=settled)
    moved, state, layers = follower.moved(), follower.memory, whole.layers
    if moved is not None:
        *before, last = layers
        # what has moved the memory is not needed with its features any more, unless others read them (no tag)
        needed = settled if state.tag else last.first
        attr = None if last.edge_attr is None else last.edge_attr[max(needed - last.first, 0) :]
        layers = (*before, replace(last, memories=moved, edge_attr=attr))
    return replace(whole, layers=layers, settled=settled, clock=state.clock, tag=state.tag)


def _check_width(width: int, events: EventStream) -> None:
    found = 0 if events.edge_attr is None else events.edge_attr.shape[1]
    if width and found != width:
        raise ShapeError(
            f"the model takes edge_attr of {width} columns; {events.name} has {found}: give the event features that it "
            "was trained with; in a table, name their columns (--read.edge_columns '[amount]')"
        )
