"""Reading pairs' features from the histories of nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hopstate.data.neighbor_store import Histories

ALONE = 66  # features that need no more than the histories of both ends
COUNTED = 71  # and those that count the stream's events
JOINED = 78  # and those of paths over other nodes; after these come those of moves on from a partner


class Last(NamedTuple):
    """The last events of pairs and of their ends before the time asked about.

    Args:
        ids: (Q, 3) int64: the last event of the pair, of u and of v, or -1.
        times: (Q, 3) of these, in the stream's own numbers; 0 where there is none.
    """

    ids: np.ndarray
    times: np.ndarray


def read_pairs(store: Histories, u: np.ndarray, v: np.ndarray, t: np.ndarray, unit: float, out: np.ndarray) -> Last:
    """Write the features of pairs u (Q,), v (Q,) at t (Q,).

    Args:
        store: the histories.
        u, v, t: as `Histories.checked` returns them.
        unit: the gap that counts as 1.
        out: (Q, at least 81) float32; see `pair_features.NAMES`.
    """
    from hopstate.tokens.pair_feature_kernels import latest_events
    from hopstate.tokens.pair_meeting_kernels import SEEN, read_meetings

    count, arrays = len(u), store.arrays_of(np.concatenate([u, v]))
    out[:, :16] = np.nan
    last = Last(np.full((count, 3), -1, np.int64), np.zeros((count, 3), t.dtype))
    first, fades, seen = np.zeros((count, 3), t.dtype), np.zeros((count, 4)), np.zeros((count, SEEN), np.int64)
    where = np.empty((count, 4), np.int64)
    entries = [arrays[name] for name in ("start", "length", "codes", "events", "times")]
    read_meetings(u, v, t, *entries, unit, out, *last, first, seen, fades, where)
    ways, went = np.zeros((count, 2), t.dtype), np.zeros((count, 2), np.bool_)
    codes, times = arrays["codes"], arrays["times"]
    latest_events(u, v, t, codes, times, where, first, seen, fades, unit, out, ways, went)
    since, there = np.concatenate([last.times, ways], 1), np.concatenate([last.ids >= 0, went], 1)
    events_since = store.event_times().between(since, t[:, None])
    out[:, ALONE:COUNTED] = np.where(there, np.log1p(events_since), np.nan)
    pairs = _Ends(u, v, t, codes, times, where)
    partners = _partners(pairs)
    _write_paths(pairs, partners, store, unit, out)
    _write_moves(pairs, partners, store, out)
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


def _write_paths(ends: _Ends, partners: _Partners, store: Histories, unit: float, out: np.ndarray) -> None:
    """Write the features of paths of three events."""
    from hopstate.tokens.pair_path_kernels import ONWARD, paths_of

    onward = store.last(partners.nodes[:, 0], ends.t[partners.nodes[:, 1]], ONWARD)
    paths_of(*ends, *partners, onward.offsets, onward.nodes, onward.times, unit, out, COUNTED)


def _write_moves(ends: _Ends, partners: _Partners, store: Histories, out: np.ndarray) -> None:
    from hopstate.tokens.pair_move_kernels import CAME, SOON, moves_of, next_moves

    some = partners.first[1:] > partners.first[:-1]
    met, query = partners.nodes[partners.first[:-1][some]].T.copy()
    at = np.where(some, np.cumsum(some) - 1, -1)[partners.run]
    came = store.last(met, ends.t[query], CAME)
    until, put = np.repeat(ends.t[query], came.lengths), np.zeros(len(came.nodes), np.int64)
    went = np.empty((len(came.nodes), SOON), np.int64)
    arrays = store.arrays_of(came.nodes)
    entries = [arrays[name] for name in ("start", "length", "codes", "times")]
    next_moves(came.nodes, came.times, until, *entries, put, went)
    moves_of(*ends, at, met, came.offsets, came.nodes, put, went, out, JOINED)
