"""Leakage test: events at or after a time must not change any score for that time.

At several times t of a stream, the test changes, adds and removes events at or after t, at random and between the
scored pairs. Every score for a time up to t must stay the same within `TOLERANCE`. `hopstate check-leak` computes in
double precision to exclude rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.errors import DataError, LeakError
from hopstate.random import named_rng
from hopstate.streaming.protocols import Scores
from hopstate.streaming.replay import replay_anywhere

TOLERANCE = 1e-9  # of a score: relative, and absolute
ALTERATIONS = ("change", "add", "add between the pairs", "remove", "remove all", "move")


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """Result of a passed leakage test.

    Args:
        times: times at which scores were compared.
        scores: number of compared scores.
    """

    times: tuple[float, ...]
    scores: int

    def __str__(self) -> str:
        return f"no leak: {self.scores:,} scores at {len(self.times)} times did not change when the future did"


def link_scores(scorer: Any, src: np.ndarray, dst: np.ndarray, t: np.ndarray, *relation: np.ndarray) -> Scores:
    return scorer.score(src, dst, t, *relation)


def check_leak(
    build: Callable[[EventStream], Any],
    stream: EventStream,
    *,
    score: Callable[..., Scores] = link_scores,
    times: int = 6,
    queries: int = 64,
    batch_size: int = 200,
    seed: int = 0,
) -> LeakReport:
    """Check that no event or label at or after a time changes a score for that time.

    Args:
        build: makes a model, ready to replay, from an altered stream. A neighbor store must contain that stream.
        stream: the event stream; a few thousand events are enough.
        score: maps (model, src (Q,), dst (Q,), t (Q,)), and relations (Q,) if the stream has some, to scores (Q,) or
            (Q, C). Default: link scores.
        times: number of times to check. Default: 6.
        queries: number of pairs scored at and before each time. Default: 64.
        batch_size: events per batch in the replay. Default: 200.
        seed: random seed. Default: 0.

    Raises:
        LeakError: a score changed; the message names the pair, its time and the alteration.
        DataError: the stream has fewer than two distinct times.

    Example:
        >>> from hopstate.methods.heuristics.method import Recency
        >>> stream = hopstate.load_dataset("messages-generated", num_events=600)
        >>> build = lambda altered: Recency(hopstate.NeighborStore.from_stream(altered))
        >>> print(check_leak(build, stream, times=2, queries=4))
        no leak: 48 scores at 2 times did not change when the future did
    """

    def scores(altered: EventStream, *queried: np.ndarray) -> np.ndarray:
        model = build(altered)

        def of(rows: np.ndarray) -> Scores:
            return score(model, *(column[rows] for column in queried))

        return replay_anywhere(model, of, altered, queried[2], batch_size, wide=True)

    rng = named_rng(seed)
    chosen, compared = _times(stream, times, batch_size, rng), 0
    for t in chosen:
        pairs = _queries(stream, t, queries, rng)
        before = scores(stream, *pairs)
        for alteration in ALTERATIONS:
            after = scores(_alter(stream, t, alteration, pairs, rng), *pairs)
            compared += len(after)
            same = np.isclose(after, before, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
            differs = np.flatnonzero(~same.reshape(len(before), -1).all(1))
            if len(differs):
                q = differs[0]
                raise LeakError(
                    f"the score of {pairs[0][q]} -> {pairs[1][q]} at time {pairs[2][q]} changed from {before[q]!r} to "
                    f"{after[q]!r} when only events at or after time {t} were altered ({alteration}); "
                    f"{len(differs)} of {len(after)} scores changed. Use only events strictly before the query time"
                )
    return LeakReport(times=tuple(chosen.tolist()), scores=compared)


def _times(stream: EventStream, count: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Choose times in the last three quarters: with the most equal timestamps, at batch boundaries, and random ones."""
    values, sizes = np.unique(stream.t, return_counts=True)
    if len(values) < 2:
        raise DataError(f"{stream.name}: a leak check needs events at two times at least")
    later = np.arange(len(values) // 4 if len(values) > 4 else 1, len(values))
    tied = later[np.argsort(-sizes[later], kind="stable")][: max(1, count // 3)]
    cut = np.searchsorted(values, stream.t[batch_size::batch_size])
    cut = rng.permutation(np.intersect1d(cut, later))[: max(1, count // 3)]
    rest = rng.permutation(later)
    chosen = list(dict.fromkeys([*tied, *cut, *rest]))[:count]
    return values[np.sort(chosen)]


def _queries(stream: EventStream, t: float, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Choose pairs with an event at t, pairs with an earlier event and random pairs; some are queried before t."""
    now = np.flatnonzero(stream.t == t)[: count // 4]
    past = rng.integers(0, np.searchsorted(stream.t, t), count // 2)
    rows = np.concatenate([now, past])
    free = rng.integers(0, stream.num_nodes, (2, max(count - len(rows), 1)))
    src = np.concatenate([stream.src[rows], free[0]])
    dst = np.concatenate([stream.dst[rows], free[1]])
    when = np.full(len(src), t, stream.t.dtype)
    earlier = len(now) + np.arange(0, len(past), 4)
    when[earlier] = stream.t[rows[earlier]]  # at the time of the pair's own event, which must not count
    if stream.relation is None:
        return src, dst, when
    free_relation = rng.integers(0, len(stream.relation_names), len(free[0]), np.int32)
    return src, dst, when, np.concatenate([stream.relation[rows], free_relation])


def _alter(
    stream: EventStream, t: float, alteration: str, queries: tuple[np.ndarray, ...], rng: np.random.Generator
) -> EventStream:
    """Return the stream with altered events at or after t; earlier events stay the same."""
    at = int(np.searchsorted(stream.t, t, side="left"))
    columns = {k: np.array(v) for k, v in _columns(stream).items()}
    future = {k: v[at:] for k, v in columns.items()}
    if alteration == "change":
        future = _randomize(future, stream.num_nodes, rng)
    elif alteration == "add":
        future = _concatenate(future, _randomize(future, stream.num_nodes, rng))
    elif alteration == "add between the pairs":
        copied = rng.integers(0, len(future["src"]), 2 * len(queries[0]))
        more = _randomize({k: v[copied] for k, v in future.items()}, stream.num_nodes, rng)
        more["src"], more["dst"] = np.concatenate(queries[:2]), np.concatenate([queries[1], queries[0]])
        more["t"][:] = t
        if len(queries) > 3:
            more["relation"] = np.concatenate([queries[3], queries[3]])
        future = _concatenate(more, future)
    elif alteration == "remove":
        keep = rng.random(len(future["src"])) < 0.5
        future = {k: v[keep] for k, v in future.items()}
    elif alteration == "remove all":
        future = {k: v[:0] for k, v in future.items()}
    else:
        future["t"] = future["t"] + (future["t"].max() - t + 1)
    order = np.argsort(future["t"], kind="stable")
    merged = {k: np.concatenate([columns[k][:at], v[order]]) for k, v in future.items()}
    return stream.with_(**merged, from_start=False)  # altered deletions may end no edge


def _columns(stream: EventStream) -> dict[str, np.ndarray]:
    named = ("src", "dst", "t", "kind", "edge_attr", "labels", "relation")
    return {name: getattr(stream, name) for name in named if getattr(stream, name) is not None}


def _randomize(columns: dict[str, np.ndarray], num_nodes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    out = {k: v.copy() for k, v in columns.items()}
    size = len(out["src"])
    out["src"], out["dst"] = rng.integers(0, num_nodes, (2, size))
    if "labels" in out:
        out["labels"] = rng.permutation(out["labels"])
        out["labels"] = np.where(np.isin(out["labels"], (0, 1)), 1 - out["labels"], out["labels"])
    if "relation" in out:
        out["relation"] = rng.permutation(out["relation"])
    if "edge_attr" in out:
        out["edge_attr"] = rng.normal(size=out["edge_attr"].shape).astype(np.float32)
    return out


def _concatenate(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: np.concatenate([a[k], b[k]]) for k in a}
