"""The features of `pair_features`, row by row in float64 from the events: the reference of the compiled loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hopstate.tokens.pair_features import NAMES

if TYPE_CHECKING:
    from hopstate.data.dates import Clock
    from hopstate.data.events import EventStream

LAST, WIDE, RECENT = 32, 256, 64
PARTNERS, ONWARD = 8, 16  # of paths of three events
CAME, SOON = 32, 4  # of moves on from a partner

Event = tuple[int, int, float]


def pair_features_naive(
    stream: EventStream, clock: Clock, u: np.ndarray, v: np.ndarray, t: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """Return (Q, F) float64 features of pairs u (Q,), v (Q,) at t (Q,) from a stream's additions.

    Args:
        stream: the events.
        clock: what a gap of 1 is.
        u, v, t: the queries.
        rows: positions of the events that are known; None for all.
    """
    rows = stream.additions(rows)
    columns = (stream.src[rows].tolist(), stream.dst[rows].tolist(), stream.t[rows].tolist())
    events = list(zip(*columns, strict=True))
    found = [_row(events, clock, *query) for query in zip(u.tolist(), v.tolist(), t.tolist(), strict=True)]
    return np.array(found, np.float64).reshape(len(found), len(NAMES))


def _row(events: list[Event], clock: Clock, a: int, b: int, t: float) -> list[float]:
    past = [event for event in events if event[2] < t]
    of = {node: [e for e in past if node in e[:2]] for node in (a, b)}

    def age(found: list[Event], back: int = 1) -> float:
        return math.log1p((t - found[-back][2]) / clock.unit) if len(found) >= back else math.nan

    row = _pair(of, past, a, b, t, clock.unit, age)
    for node, other, sends in ((a, b, True), (b, a, False)):
        row += _node(of[node], node, other, sends, age)
    partners = {node: [e[1] if e[0] == node else e[0] for e in of[node][::-1]] for node in (a, b)}
    near = {node: found[:LAST] for node, found in partners.items()}
    row += [len(set(near[a])), len(set(near[b]))]
    for node, other in ((a, b), (b, a)):
        row += [near[node].count(other), near[node].index(other) if other in near[node] else math.nan]
    for most in (LAST, WIDE):
        mine, theirs = partners[a][:most], partners[b][:most]
        shared = [i + theirs.index(w) for i, w in enumerate(mine) if w in theirs and w != b]
        row += [len(shared), min(shared, default=math.nan)]
    row += _together(of[a][-RECENT:], of[b][-RECENT:], age)
    between = [e for e in past if e[:2] in ((a, b), (b, a))]
    sent = [e for e in of[a][-WIDE:] if e[0] == a]
    received = [e for e in of[b][-WIDE:] if e[0] != b]
    row += [_since(past, found) for found in (between, of[a], of[b], sent, received)]
    return row + _paths(past, of, a, b, age) + _moves(past, of, a, b)


def _paths(past: list[Event], of: dict[int, list[Event]], a: int, b: int, age: Callable[..., float]) -> list[float]:
    """Follow a's latest partners p to theirs, w, and count those that are partners of b too."""

    def partners_of(node: int, found: list[Event]) -> list[tuple[int, Event]]:
        others = [(e[1] if e[0] == node else e[0], e) for e in found[::-1]]
        return [(other, e) for other, e in others if other not in (a, b)]

    partners = list(dict.fromkeys(p for p, _ in partners_of(a, of[a][-LAST:])))[:PARTNERS]
    theirs = partners_of(b, of[b][-WIDE:])
    ends, hits, newest = [w for w, _ in theirs], [], []
    share, walk = 0.0, 0.0
    for p in partners:
        onward = partners_of(p, [e for e in past if p in e[:2]][-ONWARD:])
        here = [(w, e) for w, e in onward if w in ends]
        hits.append([w for w, _ in here])
        newest += [min(e, theirs[ends.index(w)][1], key=lambda one: one[2]) for w, e in here]
        share += len(here) / max(len(onward), 1)
        walk += sum(ends.count(w) for w, _ in here) / max(len(onward), 1)
    reached = {w for some in hits for w in some}
    row = [math.log1p(sum(map(len, hits))), share / len(partners) if partners else math.nan]
    row.append(walk / len(partners) / len(ends) if partners and ends else math.nan)
    row += [sum(map(bool, hits)), len(reached), len(reached) / len(set(ends)) if ends else math.nan]
    return [*row, age(sorted(newest, key=lambda e: e[2]))]


def _moves(past: list[Event], of: dict[int, list[Event]], a: int, b: int) -> list[float]:
    """Follow a, and other partners of a's latest partner, to their next later events."""

    def went(node: int, own: list[Event], since: float) -> list[int]:
        return [e[1] if e[0] == node else e[0] for e in own if node in e[:2] and e[2] > since]

    own = of[a][-WIDE:]
    partners = [p for p in went(a, of[a][-LAST:], -math.inf) if p != a]
    if not partners:
        return [math.nan] * 3
    p = partners[-1]
    mine = [went(a, own, e[2]) for e in own if set(e[:2]) == {a, p}]
    came = [(e[1] if e[0] == p else e[0], e[2]) for e in [e for e in past if p in e[:2]][-CAME:]]
    theirs = [went(w, past, time) for w, time in came if w not in (a, p)]

    def share(moves: list[list[int]], soon: int) -> float:
        made = [b in on[:soon] for on in moves if on]
        return sum(made) / len(made) if made else math.nan

    return [share(mine, 1), share(theirs, 1), share(theirs, SOON)]


def _since(past: list[Event], found: list[Event]) -> float:
    """Return ln(1 + n) of the number n of stream events since the latest found one."""
    return math.log1p(sum(e[2] > found[-1][2] for e in past)) if found else math.nan


def _pair(
    of: dict[int, list[Event]], past: list[Event], a: int, b: int, t: float, unit: float, age: Callable[..., float]
) -> list[float]:
    between = [e for e in past if e[:2] in ((a, b), (b, a))]
    sent, back = [e for e in past if e[:2] == (a, b)], [e for e in past if e[:2] == (b, a)]
    late = between[-RECENT:]
    sent_late, back_late = ([e for e in late if e in found] for found in (sent, back))
    since = [math.log1p(sum(e[2] > between[-1][2] for e in of[node])) if between else math.nan for node in (a, b)]
    row = [age(late), age(sent_late), age(back_late), math.log1p(len(between)), math.log1p(len(sent)), age(late, 2)]
    row += [age(between[:1]) if len(between) > 1 else math.nan, *since]
    row.append(len(between) / min(len(of[a]), len(of[b])) if between else math.nan)
    row += [age(late, 4), age(late, 8), age(late, 16), age(sent_late, 2), age(sent_late, 4), age(back_late, 2)]
    return row + [sum(math.exp(-(t - e[2]) / unit / span) for e in late) for span in (30, 300, 3_000, 30_000)]


def _node(own: list[Event], node: int, other: int, sends: bool, age: Callable[..., float]) -> list[float]:
    latest = own[-LAST:]
    out, into = ([e for e in latest if (e[0] == node) == way] for way in (True, False))
    row = [age(own, 2**k) for k in range(9)]
    row += [age(own[:1]), math.log1p(len(own)), age(out), age(into), len(out) / len(latest) if latest else math.nan]
    counted = [e for e in own[-WIDE:] if (e[0] == node) == sends][-LAST:]
    return [*row, age(counted, 4), age(counted, LAST), sum((e[1] if e[0] == node else e[0]) == other for e in counted)]


def _together(mine: list[Event], theirs: list[Event], age: Callable[..., float]) -> list[float]:
    """Match events with equal timestamps, the latest first."""
    left, both = [e[2] for e in theirs], []
    for event in mine:
        if event[2] in left:
            left.remove(event[2])
            both.append(event)
    return [age(both), len(both)]
