"""Pair features: numbers that describe the joint event history of two nodes at a query time.

Only events strictly before the query time count. Ages are ln(1 + gap) in units of the stream's clock and counts are
ln(1 + n). NaN means that it never happened. Deletions are ignored.

Times are subtracted exactly in the stream's own unit. Therefore the same events in seconds or nanoseconds have the same
features up to float32 precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hopstate.data.dates import Clock
from hopstate.data.events import order_of_first
from hopstate.data.neighbor_store import EventRelations, Histories, Rows
from hopstate.errors import DataError

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.data.stream_state import StreamState


NUM_HISTORY = 66  # number of features from both nodes' histories
NUM_WITH_COUNTS = 71  # including counts of the stream's events
NUM_WITH_PATHS = 78  # including paths over other nodes; features of next moves follow


class Last(NamedTuple):
    """Last events of pairs and of their nodes before the query time.

    Args:
        ids: (Q, 3) int64 last event of the pair, of u and of v, or -1.
        times: (Q, 3) their times in the stream's unit, or 0.
    """

    ids: np.ndarray
    times: np.ndarray


def read_pairs(store: Histories, u: np.ndarray, v: np.ndarray, t: np.ndarray, unit: float, out: np.ndarray) -> Last:
    """Write the features of pairs u, v, t (Q,) to out (Q, at least 81), float32; see `pair_features.NAMES`."""
    from hopstate.tokens.kernels import SEEN, read_meetings, write_history_features

    count, arrays = len(u), store.arrays_of(np.concatenate([u, v]))
    out[:, :16] = np.nan
    last = Last(np.full((count, 3), -1, np.int64), np.zeros((count, 3), t.dtype))
    first, fades, seen = np.zeros((count, 3), t.dtype), np.zeros((count, 4)), np.zeros((count, SEEN), np.int64)
    where = np.empty((count, 4), np.int64)
    entries = [arrays[name] for name in ("start", "length", "codes", "events", "times")]
    read_meetings(u, v, t, *entries, unit, out, *last, first, seen, fades, where)
    ways, went = np.zeros((count, 2), t.dtype), np.zeros((count, 2), np.bool_)
    codes, times = arrays["codes"], arrays["times"]
    write_history_features(u, v, t, codes, times, where, first, seen, fades, unit, out, ways, went)
    since, there = np.concatenate([last.times, ways], 1), np.concatenate([last.ids >= 0, went], 1)
    events_since = store.event_times().between(since, t[:, None])
    out[:, NUM_HISTORY:NUM_WITH_COUNTS] = np.where(there, np.log1p(events_since), np.nan)
    pairs = _Ends(u, v, t, codes, times, where)
    partners = _partners(pairs)
    _write_paths(pairs, partners, store, unit, out)
    _write_moves(pairs, partners, store, out)
    return last


class _Ends(NamedTuple):
    """Queries and the recent events of their nodes, in the order of the kernels' arguments."""

    u: np.ndarray
    v: np.ndarray
    t: np.ndarray
    codes: np.ndarray
    times: np.ndarray
    where: np.ndarray


class _Partners(NamedTuple):
    """Recent partners of source nodes; consecutive queries with the same source share them.

    Args:
        run: (Q,) index of the query's source.
        first: (R+1,) offsets of each source's partners.
        nodes: (P, 2) partners, newest first, and the query they were found for.
    """

    run: np.ndarray
    first: np.ndarray
    nodes: np.ndarray


def _partners(ends: _Ends) -> _Partners:
    from hopstate.tokens.kernels import PARTNERS, find_partners

    count = len(ends.u)
    run, first = np.empty(count, np.int64), np.empty(count + 1, np.int64)
    nodes = np.empty((count * (PARTNERS + 1), 2), np.int64)
    runs = find_partners(ends.u, ends.t, ends.codes, ends.where, run, first, nodes)
    return _Partners(run, first[: runs + 1], nodes[: first[runs]])


def _write_paths(ends: _Ends, partners: _Partners, store: Histories, unit: float, out: np.ndarray) -> None:
    """Write the features of paths of three events."""
    from hopstate.tokens.kernels import ONWARD, write_path_features

    onward = store.last(partners.nodes[:, 0], ends.t[partners.nodes[:, 1]], ONWARD)
    write_path_features(*ends, *partners, onward.offsets, onward.nodes, onward.times, unit, out, NUM_WITH_COUNTS)


def _write_moves(ends: _Ends, partners: _Partners, store: Histories, out: np.ndarray) -> None:
    from hopstate.tokens.kernels import CAME, SOON, find_next_moves, write_move_features

    has_partner = partners.first[1:] > partners.first[:-1]
    partner, query = partners.nodes[partners.first[:-1][has_partner]].T.copy()
    at = np.where(has_partner, np.cumsum(has_partner) - 1, -1)[partners.run]
    came = store.last(partner, ends.t[query], CAME)
    until, put = np.repeat(ends.t[query], came.lengths), np.zeros(len(came.nodes), np.int64)
    went = np.empty((len(came.nodes), SOON), np.int64)
    arrays = store.arrays_of(came.nodes)
    entries = [arrays[name] for name in ("start", "length", "codes", "times")]
    find_next_moves(came.nodes, came.times, until, *entries, put, went)
    write_move_features(*ends, at, partner, came.offsets, came.nodes, put, went, out, NUM_WITH_PATHS)


_PAIR = (
    "time since the pair's last event",
    "time since source sent to target",
    "time since target sent to source",
    "events of the pair",
    "events from source to target",
    "time since the pair's 2nd last event",
    "time since the pair's first event",
    "source's events since the pair's last event",
    "target's events since the pair's last event",
    "the pair's share of the shorter history",
    *(f"time since the pair's {n} last event" for n in ("4th", "8th", "16th")),
    *(f"time since source sent to target, {n} last" for n in ("2nd", "4th")),
    "time since target sent to source, 2nd last",
    *(f"events of the pair, decayed over {n} units" for n in (30, 300, 3_000, 30_000)),
)
_NODE = (
    "time since {}'s last event",
    *(f"time since {{}}'s {n} last event" for n in ("2nd", "4th", "8th", "16th", "32nd", "64th", "128th", "256th")),
    "time since {}'s first event",
    "{}'s events",
    "time since {} sent",
    "time since {} received",
    "share of sent events in {}'s latest 32",
)
_SOURCE = (
    *(f"time since source sent, {n} last" for n in ("4th", "32nd")),
    "events with target in source's latest 32 sent",
)
_TARGET = (
    *(f"time since target received, {n} last" for n in ("4th", "32nd")),
    "events with source in target's latest 32 received",
)
_BOTH = (
    "partners in source's latest 32 events",
    "partners in target's latest 32 events",
    "events with target in source's latest 32",
    "position of target in source's latest 32",
    "events with source in target's latest 32",
    "position of source in target's latest 32",
    "common partners in the latest 32 events",
    "position of the nearest common partner, of 32",
    "common partners in the latest 256 events",
    "position of the nearest common partner, of 256",
    "time since both had an event at the same time",
    "times at which both had an event",
)
_STREAM = (
    "all events since the pair's last event",
    *(f"all events since {what}" for what in ("source's last event", "target's last event")),
    *(f"all events since {what}" for what in ("source sent", "target received")),
)
_PATHS = (
    "three-event paths from source to target",
    "share of source's two-event paths that reach a partner of target",
    "probability of a three-event path",
    "source's partners on three-event paths",
    "target's partners on three-event paths",
    "share of target's partners on three-event paths",
    "time since the latest three-event path",
)
_MOVES = (
    "share of source's transitions from its latest partner to target",
    "share of other nodes' transitions from source's latest partner to target",
    "share of other nodes with target soon after source's latest partner",
)
_GROWING = (
    *(f"{end}'s events since the pair's last event" for end in ("source", "target")),
    *(f"time since {end}'s first event" for end in ("source", "target")),
    *(f"{end}'s events" for end in ("source", "target")),
)
NAMES = (
    *_PAIR,
    *(f.format("source") for f in _NODE),
    *_SOURCE,
    *(f.format("target") for f in _NODE),
    *_TARGET,
    *_BOTH,
    *_STREAM,
    *_PATHS,
    *_MOVES,
)
GROWING = tuple(  # what is larger the longer a stream has gone on, whoever is asked about: no measure for later
    i for i, name in enumerate(NAMES) if name in _GROWING
)
_BATCH = 4096  # pairs per kernel call; their events take 25 MB, their partners' up to 60 MB
MOST_COLUMNS = 8  # maximum number of event features to use, by variance
_WHERE = ("the pair's last event", "source's last event", "target's last event")


MAX_RELATIONS = 32  # maximum number of relations with columns of their own, by number of events

_TYPED = (
    "time since the pair's last event in the relation",
    "time since source sent to target in the relation",
    "time since target sent to source in the relation",
    "events of the pair in the relation",
    "events from source to target in the relation",
    "time since source sent in the relation",
    "time since target received in the relation",
    "share of the relation in source's sent events",
    "share of the relation in target's received events",
    "source's events in the relation since it sent to target in it",
)


TIME = "time since"  # begins the names of times
_COUNTS = (
    "events of the pair",
    "events from source to target",
    *(f"{end}'s events" for end in ("source", "target")),
    *(f"{end}'s events since the pair's last event" for end in ("source", "target")),
    *_STREAM,
    "three-event paths from source to target",
    "events of the pair in the relation",
    "events from source to target in the relation",
    "source's events in the relation since it sent to target in it",
)


def feature_names(columns: np.ndarray, relations: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the names of all features, including the last values of event columns (C,) and those of K relations."""
    names = (*NAMES, *(f"event feature {c} of {where}" for where in _WHERE for c in columns.tolist()))
    if relations is None:
        return names
    by_relation = ("time since source sent {} to target", "time since target sent {} to source", "the query is {}")
    return (*names, *_TYPED, *(what.format(repr(r)) for what in by_relation for r in relations))


class PairFeatures:
    """Compute the pair features of queries.

    Args:
        store: event histories without deletions.
        stream: source of the event features.
        clock: time normalization.
        columns: (C,) int64 columns of event features whose last values are included.
        relations: (K,) int64 relations with features of their own; None for features of events without relations.
    """

    deletions = False  # the store has none

    def __init__(
        self,
        store: Histories,
        stream: EventStream,
        clock: Clock,
        columns: np.ndarray,
        relations: np.ndarray | None = None,
    ) -> None:
        self.store: Histories = store
        self.relations, self._types = relations, EventRelations.of(stream)
        self._relation_names = stream.relation_names
        self._column_of = np.full(len(stream.relation_names), -1, np.int64)
        if relations is not None:
            self._column_of[relations] = np.arange(len(relations))
        self.clock, self.columns = clock.over(stream.time_unit), columns
        self._attr: Rows | None = stream.edge_attr
        self._first_id = stream.first_id

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names in column order."""
        names = None if self.relations is None else [self._relation_names[r] for r in self.relations]
        return feature_names(self.columns, names)

    def as_measured(self, x: np.ndarray) -> np.ndarray:
        """Return features (Q, F) with times, in the stream's unit, and counts instead of their ln(1 + value)."""
        times = np.array([name.startswith(TIME) for name in self.names])
        counts = np.array([name in _COUNTS for name in self.names])
        values = np.where(times | counts, np.expm1(x, dtype=np.float64), x) * np.where(times, self.clock.unit, 1)
        return np.where(counts, np.round(values), values)

    def over(self, past: StreamState) -> PairFeatures:
        """Return the features over all events of a stream state."""
        copied = copy(self)
        copied.store, copied._first_id = past.store(), 0
        copied.clock = self.clock.over(past.time_unit or "")
        copied._attr, copied._types = past.edge_attr, past.relations
        return copied

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> np.ndarray:
        """Return (Q, F) float32 features of pairs u (Q,), v (Q,) at times t (Q,), of a relation (Q,)."""
        return self.read(u, v, t, relation)[0]

    def read(
        self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> tuple[np.ndarray, Last]:
        """Return the result of `pairs`, and the last events of the pairs and their nodes."""
        u, v, t = self.store.checked(u, v, t)
        untyped = len(NAMES) + 3 * len(self.columns)
        out = np.empty((len(u), untyped if self.relations is None else len(self.names)), np.float32)
        parts = []
        for a in range(0, max(len(u), 1), _BATCH):
            block = slice(a, a + _BATCH)
            parts.append(read_pairs(self.store, u[block], v[block], t[block], self.clock.unit, out[block]))
        last = parts[0] if len(parts) == 1 else Last(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        if len(self.columns):
            self._last_values(last.ids, out[:, len(NAMES) : untyped])
        if self.relations is not None:
            self._typed(u, v, t, relation, out[:, untyped:])
        return out, last

    def _typed(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None, out: np.ndarray) -> None:
        """Write the features of the query's relation, NaN before the first event."""
        from hopstate.tokens.kernels import write_typed_features

        out[:] = np.nan
        if self._types is None:
            return
        if relation is None:
            raise DataError("events have relations, so a question names one: give a relation with each pair")
        for a in range(0, len(u), _BATCH):
            b = slice(a, a + _BATCH)
            arrays = self.store.arrays_of(np.concatenate([u[b], v[b]]))
            entries = [arrays[name] for name in ("start", "length", "codes", "events", "times")]
            query = (u[b], v[b], t[b], relation[b])
            write_typed_features(*query, self._column_of, *self._types, *entries, self.clock.unit, out[b])

    def _last_values(self, latest: np.ndarray, out: np.ndarray) -> None:
        """Write the event features of the latest events (Q, 3), NaN if there is none."""
        out[:] = np.nan
        if self._attr is None:
            return
        width = len(self.columns)
        for place in range(3):
            here = np.flatnonzero(latest[:, place] >= 0)
            if len(here):
                rows = self._attr[latest[here, place] - self._first_id]
                out[here, place * width : (place + 1) * width] = rows[:, self.columns]


def frequent_relations(stream: EventStream, rows: np.ndarray) -> np.ndarray | None:
    """Return the relations of most events at rows (P,), at most `MAX_RELATIONS`; None if there is only one."""
    if len(stream.relation_names) < 2:
        return None
    assert stream.relation is not None
    relation, every = stream.relation[stream.additions(rows)], np.arange(len(stream.relation_names))
    order = np.array(order_of_first(np.concatenate([relation, every])))
    counts = np.bincount(relation, minlength=len(every))
    return order[np.argsort(-counts[order], kind="stable")][:MAX_RELATIONS]


def varied_columns(stream: EventStream, rows: np.ndarray, count: int) -> np.ndarray:
    """Return (count,) int64 the event features with the largest variance over additions at rows (P,), ascending.

    Columns with equal variance, such as standardized ones, keep the file's order.
    """
    if not count:
        return np.empty(0, np.int64)
    assert stream.edge_attr is not None
    deviation = stream.edge_attr[stream.additions(rows)].std(0, dtype=np.float64)
    rounded = np.round(deviation / max(float(deviation.max(initial=0)), 1e-300), 3)
    return np.sort(np.argsort(-rounded, kind="stable")[:count])
