"""What the parts of a past tell of pairs: newest first, so that what is asked of the latest events stops early.

Of old parts a pair costs two searches, and a count of its meetings in the shorter of two histories; nothing of them is
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hopstate.data.event_times import EventTimes
from hopstate.data.lookup import Part
from hopstate.errors import DataError
from hopstate.ops.neighbors import PackedNeighbors

ALONE = 66  # features that need no more than the histories of both ends
COUNTED = 71  # and those that count the stream's events
JOINED = 78  # and those of paths over other nodes; after these come those of moves on from a partner
LatestOf = Callable[[np.ndarray, np.ndarray, int], PackedNeighbors]  # as `EventLookup.last`
PartsOf = Callable[[np.ndarray], Sequence[Part]]  # as `Histories.parts`


class Last(NamedTuple):
    """The last events of pairs and of their ends before the time asked about.

    Args:
        ids: (Q, 3) int64: the last event of the pair, of u and of v, or -1.
        times: (Q, 3) of these, in the stream's own numbers; 0 where there is none.
    """

    ids: np.ndarray
    times: np.ndarray


def read_pairs(
    parts: Sequence[Part],
    u: np.ndarray,
    v: np.ndarray,
    t: np.ndarray,
    unit: float,
    out: np.ndarray,
    counts: EventTimes,
    latest: LatestOf,
    parts_of: PartsOf,
) -> Last:
    """Write the features of pairs u (Q,), v (Q,) at t (Q,).

    Args:
        parts: oldest first.
        u, v, t: as `Histories.checked` returns them.
        unit: the gap that counts as 1.
        out: (Q, at least 81) float32; see `pair_features.NAMES`.
        counts: times of all events.
        latest: looks up the latest events of any node.
        parts_of: looks up the parts with what nodes did.

    Raises:
        DataError: a part is damaged.
    """
    from hopstate.tokens.pair_feature_kernels import latest_events
    from hopstate.tokens.pair_meeting_kernels import PUT, SEEN, WIDE, look_back, look_on

    count = len(u)
    out[:, :16] = np.nan
    last = Last(np.full((count, 3), -1, np.int64), np.zeros((count, 3), t.dtype))
    first, fades, seen = np.zeros((count, 3), t.dtype), np.zeros((count, 4)), np.zeros((count, SEEN), np.int64)
    rows, places = np.empty((count, 2), np.int64), np.empty((len(parts), count, 4), np.int64)
    alone = len(parts) == 1 and not len(parts[0].nodes)
    kept = 0 if alone else count
    codes, times = np.empty((kept, 2, WIDE), np.int32), np.empty((kept, 2, WIDE), t.dtype)
    for part, where in zip(reversed(parts), places, strict=True):
        entries = [part.arrays[name] for name in ("start", "length", "codes", "events", "times")]
        if not look_back(u, v, t, part.nodes, *entries, unit, out, *last, first, seen, fades, where, rows):
            raise _astray(part)
    for part, where in zip(reversed(parts), places, strict=True):
        if not look_on(part.nodes, part.arrays["codes"], part.arrays["times"], last.times, where, seen, codes, times):
            raise _unknown(part)
    if alone:
        codes, times, where = parts[0].arrays["codes"], parts[0].arrays["times"], places[0]
    else:
        ends = np.arange(1, 2 * count + 1).reshape(count, 2) * WIDE
        where = np.stack([ends - seen[:, PUT : PUT + 2], ends], 2).reshape(count, 4)
    ways, went = np.zeros((count, 2), t.dtype), np.zeros((count, 2), np.bool_)
    latest_events(u, v, t, codes.reshape(-1), times.reshape(-1), where, first, seen, fades, unit, out, ways, went)
    since, there = np.concatenate([last.times, ways], 1), np.concatenate([last.ids >= 0, went], 1)
    out[:, ALONE:COUNTED] = np.where(there, np.log1p(counts.between(since, t[:, None])), np.nan)
    pairs = _Ends(u, v, t, codes.reshape(-1), times.reshape(-1), where)
    partners = _partners(pairs)
    _write_paths(pairs, partners, latest, unit, out)
    _write_moves(pairs, partners, latest, parts_of, out)
    return last


class _Ends(NamedTuple):
    """Queries, and the latest events of their ends; as the compiled loops take them."""

    u: np.ndarray
    v: np.ndarray
    t: np.ndarray
    codes: np.ndarray
    times: np.ndarray
    where: np.ndarray


class _Partners(NamedTuple):
    """The latest partners of sources, each source looked up once for all queries of it that follow each other.

    Args:
        run: (Q,) which of R sources a query has.
        first: (R+1,) where the partners of each begin.
        nodes: (P, 2) partners, newest first, and the query that they were found for.
    """

    run: np.ndarray
    first: np.ndarray
    nodes: np.ndarray


def _partners(ends: _Ends) -> _Partners:
    from hopstate.tokens.pair_path_kernels import PARTNERS, partners_of

    count = len(ends.u)
    run, first = np.empty(count, np.int64), np.empty(count + 1, np.int64)
    nodes = np.empty((count * (PARTNERS + 1), 2), np.int64)
    runs = partners_of(ends.u, ends.t, ends.codes, ends.where, run, first, nodes)
    return _Partners(run, first[: runs + 1], nodes[: first[runs]])


def _write_paths(ends: _Ends, partners: _Partners, latest: LatestOf, unit: float, out: np.ndarray) -> None:
    """Write the features of paths of three events."""
    from hopstate.tokens.pair_path_kernels import ONWARD, paths_of

    onward = latest(partners.nodes[:, 0], ends.t[partners.nodes[:, 1]], ONWARD)
    paths_of(*ends, *partners, onward.offsets, onward.nodes, onward.times, unit, out, COUNTED)


def _write_moves(ends: _Ends, partners: _Partners, latest: LatestOf, parts_of: PartsOf, out: np.ndarray) -> None:
    """Write the features of moves on from the source's latest partner.

    Raises:
        DataError: a part is damaged.
    """
    from hopstate.tokens.pair_move_kernels import CAME, SOON, go_on, moves_of

    some = partners.first[1:] > partners.first[:-1]
    met, query = partners.nodes[partners.first[:-1][some]].T.copy()
    at = np.where(some, np.cumsum(some) - 1, -1)[partners.run]
    came = latest(met, ends.t[query], CAME)
    until, put = np.repeat(ends.t[query], came.lengths), np.zeros(len(came.nodes), np.int64)
    went = np.empty((len(came.nodes), SOON), np.int64)
    for part in parts_of(came.nodes):
        entries = [part.arrays[name] for name in ("start", "length", "codes", "times")]
        lies, known = go_on(came.nodes, came.times, until, part.nodes, *entries, put, went)
        if not lies:
            raise _astray(part)
        if not known:
            raise _unknown(part)
    moves_of(*ends, at, met, came.offsets, came.nodes, put, went, out, JOINED)


def _astray(part: Part) -> DataError:
    return DataError(f"{part.path} is damaged: its histories do not lie where its index says")


def _unknown(part: Part) -> DataError:
    return DataError(f"{part.path} is damaged: its index names nodes that it does not hold")
