"""What a pair's score owes to single events: what it loses in log-odds where one of them is taken out of what is known.

For each pair the latest events of both ends are taken out, one at a time, and the pair is scored anew; whatever the
model reads of histories, it reads without that event. A node memory cannot forget: there the difference that an event
makes is told from the latest updates (`streaming.memory_influence`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from hopstate.data.stream_state import Event
from hopstate.streaming.following import FollowingMemory
from hopstate.streaming.history_scorer import HistoryScorer, plain
from hopstate.streaming.memory_influence import LATEST as IN_MEMORY
from hopstate.streaming.memory_influence import MemoryInfluence
from hopstate.streaming.pair_queries import PairQueries
from hopstate.streaming.protocols import LinkFollower, OnlyLooksUp, Scores
from hopstate.streaming.replay import as_scores
from hopstate.streaming.slices import Steps

LATEST = 16  # events of each end that are taken out, where histories are read

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], Scores]


@dataclass(frozen=True)
class Influence:
    """What one event gives a pair.

    Args:
        event: it.
        weight: what it adds to the pair's log-odds.
    """

    event: Event
    weight: float


def tells_influences(follower: LinkFollower) -> bool:
    """Return whether single events can be taken out of what a model knows."""
    return isinstance(follower, HistoryScorer | FollowingMemory | OnlyLooksUp)


def influences(queries: PairQueries, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Steps[list[list[Influence]]]:
    """Return for each pair u (Q,), v (Q,) at t (Q,) what its ends' latest events add to it, oldest first.

    Comes in slices, one an event; the past must stay as it is, and no pair's weights depend on the others.

    Args:
        queries: the model over what is known.
        u, v, t: (Q,).
    """
    found: list[list[Influence]] = [[] for _ in t]
    for when in np.unique(t):
        rows = np.flatnonzero(t == when)
        yield from _at(queries, u[rows], v[rows], when, [found[row] for row in rows])
    return found


def _at(
    queries: PairQueries,
    u: np.ndarray,
    v: np.ndarray,
    when: int | float,
    found: list[list[Influence]],
) -> Steps[None]:
    """Write into lists what events add to pairs at one time."""
    follower, times, past = queries.at(when), np.full(len(u), when), queries.past
    whole = as_scores(_log_odds(follower)(u, v, times), len(u))
    memory = None
    if isinstance(follower, FollowingMemory):
        memory = MemoryInfluence(follower, past, queries.moved, queries.task.live_batch, when)
    count = LATEST if memory is None else IN_MEMORY
    near = past.store().last(np.concatenate([u, v]), np.concatenate([times, times]), count)
    pairs = near.rows() % max(len(u), 1)
    for number in np.unique(near.event_ids):
        rows = np.unique(pairs[near.event_ids == number])
        event = past.event(int(number))
        now = queries.at(when)  # others may have asked since the last slice
        if memory is None:
            made = _without(follower, event, queries)
        else:
            assert isinstance(now, FollowingMemory)
            memory.follower = now
            made = memory.without(event, np.concatenate([u[rows], v[rows]]))
        left = as_scores(_log_odds(made)(u[rows], v[rows], times[rows]), len(rows))
        for row, weight in zip(rows, whole[rows] - left, strict=True):
            found[row].append(Influence(event, float(weight)))
        yield


def _without(follower: LinkFollower, event: Event, queries: PairQueries) -> LinkFollower:
    """Return a scorer that reads histories, without an event."""
    past = queries.past.without(event)
    if isinstance(follower, HistoryScorer):
        made = copy(follower)
        made.tokenizer = follower.tokenizer.over(past)
        return made
    assert isinstance(follower, OnlyLooksUp)
    return follower.over(past)


def _log_odds(follower: LinkFollower) -> Score:
    if isinstance(follower, HistoryScorer | FollowingMemory):
        made = copy(follower)
        made.answer = plain
        return made.score
    assert isinstance(follower, OnlyLooksUp)
    return follower.log_odds


__all__ = ["Influence", "influences", "tells_influences"]
