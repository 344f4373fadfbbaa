"""Why a pair stands where it does, a short text a pair: the events that weighed most, and of trees the features first.

An event's weight is what the pair loses in log-odds where the event is taken out (`influences`), the same for every
model. EdgeBank answers yes or no: there, and where no event changes the score, the text says what is known of the pair.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from hopstate.data.neighbor_store import NeighborView
from hopstate.data.stream_state import Event
from hopstate.runs.queries.names import Nodes, with_rows
from hopstate.runs.queries.session import Session
from hopstate.streaming.following import FollowingMemory
from hopstate.streaming.history_scorer import HistoryScorer, plain
from hopstate.streaming.memory_influence import LATEST as IN_MEMORY
from hopstate.streaming.memory_influence import MemoryInfluence
from hopstate.streaming.pair_queries import PairQueries
from hopstate.streaming.protocols import LinkFollower, OnlyLooksUp, Scores
from hopstate.streaming.replay import as_scores
from hopstate.streaming.slices import Steps
from hopstate.training.tasks.task import ExplainsPairs

__all__ = ["reasons"]

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


SHOWN = 3  # events or features a pair
TOGETHER = 64  # pairs taken apart at once


def reasons(asked: Session, u: Nodes, v: Nodes, t: np.ndarray) -> Steps[np.ndarray]:
    """Return (Q,) texts of pairs u (Q,), v (Q,) at t (Q,), in slices; the past must stay as it is between them."""
    src, dst = with_rows(asked.past, u, v)
    follower, found = asked.queries.follower, np.full(len(t), "", object)
    for start in range(0, len(t), TOGETHER):
        chunk = slice(start, start + TOGETHER)
        pairs = src[chunk], dst[chunk], t[chunk]
        weights: list[list[Influence]] = [[] for _ in pairs[0]]
        if tells_influences(follower):
            weights = yield from influences(asked.queries, *pairs)
        texts = [_told(asked, a, b, each) for a, b, each in zip(src[chunk], dst[chunk], weights, strict=True)]
        for i, fact in enumerate(_facts(asked, *pairs)):
            texts[i] = texts[i] or fact
        if isinstance(follower, ExplainsPairs):
            told = _features(follower, *pairs)
            texts = ["; ".join(part) for part in zip(told, texts, strict=True)]
        found[chunk] = texts
    return found


def _features(scorer: ExplainsPairs, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> list[str]:
    names, x, shares = scorer.feature_shares(u, v, t)
    best = np.argsort(-np.abs(shares), axis=1, kind="stable")[:, :SHOWN]
    return [
        "; ".join(
            f"{names[k]} {'never' if np.isnan(x[i, k]) else f'{x[i, k]:.3g}'} ({shares[i, k]:+.2f})"
            for k in best[i].tolist()
            if shares[i, k]
        )
        for i in range(len(u))
    ]


def _told(asked: Session, source: int, target: int, weights: list[Influence]) -> str:
    """Return the events that weigh most, "" where none does: who met whom, when, and what it adds."""
    best = sorted((one for one in weights if one.weight), key=lambda one: -abs(one.weight))[:SHOWN]
    kind = asked.queries.past.time_dtype if best else np.int64
    when = asked.shown(np.array([one.event.t for one in best], kind))
    told = []
    for one, time in zip(best, when, strict=True):
        ends = (one.event.src, one.event.dst)
        end = source if source in ends else target
        other = ends[0] if end == ends[1] else ends[1]
        told.append(f"{_name(asked, end)} with {_name(asked, other)} at {time} ({_weight(one.weight)})")
    return "; ".join(told)


def _weight(value: float) -> str:
    return f"{value:+.2f}" if abs(value) >= 0.01 else f"{value:+.1g}"


def _facts(asked: Session, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> list[str]:
    store = asked.queries.past.store()
    last, met = store.last_meeting(u, v, t)
    count, when = store.count_meetings(u, v, t), asked.shown(last)
    shared = [_shared(store, *one) for one in zip(u.tolist(), v.tolist(), t, strict=True)]
    known = [f"meetings: {n}, the last at {at}" for n, at in zip(count, when, strict=True)]
    return [
        f"{known[i] if met[i] else 'never met'}; {shared[i]} shared among the latest 32 of each" for i in range(len(u))
    ]


def _shared(store: NeighborView, u: int, v: int, t: float) -> int:
    near = store.last(np.array([u, v]), np.array([t, t]), 32)
    first, second = (set(near.of(k)[0].tolist()) - {u, v} for k in (0, 1))
    return len(first & second)


def _name(asked: Session, row: int) -> str:
    ids = asked.past.node_ids
    return str(row if ids is None else ids.names(np.array([row]))[0] if row < len(ids) else "the new node")
