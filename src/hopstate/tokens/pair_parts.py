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
WHOLE = 78  # and those of paths over other nodes
LatestOf = Callable[[np.ndarray, np.ndarray, int], PackedNeighbors]  # as `EventLookup.last`


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
    counts: EventTimes | None = None,
    latest: LatestOf | None = None,
) -> Last:
    """Write the features of pairs u (Q,), v (Q,) at t (Q,).

    Args:
        parts: oldest first.
        u, v, t: as `Histories.checked` returns them.
        unit: the gap that counts as 1.
        out: (Q, at least 66, 71 with counts, 78 with latest) float32; see `pair_features.NAMES`.
        counts: times of all events; None leaves out the features that count them.
        latest: looks up the latest events of any node; None leaves out the features of paths.

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
            raise DataError(f"{part.path} is damaged: its histories do not lie where its index says")
    for part, where in zip(reversed(parts), places, strict=True):
        if not look_on(part.nodes, part.arrays["codes"], part.arrays["times"], last.times, where, seen, codes, times):
            raise DataError(f"{part.path} is damaged: its index names nodes that it does not hold")
    if alone:
        codes, times, where = parts[0].arrays["codes"], parts[0].arrays["times"], places[0]
    else:
        ends = np.arange(1, 2 * count + 1).reshape(count, 2) * WIDE
        where = np.stack([ends - seen[:, PUT : PUT + 2], ends], 2).reshape(count, 4)
    ways, went = np.zeros((count, 2), t.dtype), np.zeros((count, 2), np.bool_)
    latest_events(u, v, t, codes.reshape(-1), times.reshape(-1), where, first, seen, fades, unit, out, ways, went)
    if counts is not None:
        since, there = np.concatenate([last.times, ways], 1), np.concatenate([last.ids >= 0, went], 1)
        out[:, ALONE:COUNTED] = np.where(there, np.log1p(counts.between(since, t[:, None])), np.nan)
    if latest is not None:
        _write_paths(u, v, t, codes.reshape(-1), times.reshape(-1), where, latest, unit, out)
    return last


def _write_paths(
    u: np.ndarray,
    v: np.ndarray,
    t: np.ndarray,
    codes: np.ndarray,
    times: np.ndarray,
    where: np.ndarray,
    latest: LatestOf,
    unit: float,
    out: np.ndarray,
) -> None:
    """Write the features of paths of three events; arguments as of the compiled loops."""
    from hopstate.tokens.pair_path_kernels import ONWARD, PARTNERS, partners_of, paths_of

    run, first = np.empty(len(u), np.int64), np.empty(len(u) + 1, np.int64)
    partners = np.empty((len(u) * (PARTNERS + 1), 2), np.int64)
    runs = partners_of(u, t, codes, where, run, first, partners)
    partners = partners[: first[runs]]
    onward = latest(partners[:, 0], t[partners[:, 1]], ONWARD)
    found = onward.offsets, onward.nodes, onward.times
    paths_of(u, v, t, codes, times, where, run, first, partners, *found, unit, out, COUNTED)
