"""What the history of a pair and of its two ends says of a meeting at a time: one row of numbers a query.

Everything is looked up strictly before the time, so events of one time tell nothing of each other. Ages are
ln(1 + gap) in the unit of the stream's own clock, counts ln(1 + n); NaN stands for what never happened. Deletions are
no meetings and are left out.

Times of the clock are exact in the stream's own numbers, so the same events in seconds or nanoseconds have the same
features (to float32, in which rows are kept).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.clock import Clock
from hopstate.data.neighbor_store import Histories, Rows
from hopstate.tokens.pair_parts import Last, read_pairs

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.data.stream_state import StreamState

_PAIR = (
    "since the pair met",
    "since source sent to target",
    "since target sent to source",
    "meetings of the pair",
    "meetings, source to target",
    "since the pair's 2nd last meeting",
    "since the pair first met",
    "source's events since the pair met",
    "target's events since the pair met",
    "share of meetings in the shorter history",
    *(f"since the pair's {n} last meeting" for n in ("4th", "8th", "16th")),
    *(f"since source sent to target the {n} last time" for n in ("2nd", "4th")),
    "since target sent to source the 2nd last time",
    *(f"meetings that fade in {n} units" for n in (30, 300, 3_000, 30_000)),
)
_NODE = (
    "since {}'s last event",
    *(f"since {{}}'s {n} last event" for n in ("2nd", "4th", "8th", "16th", "32nd", "64th", "128th", "256th")),
    "since {}'s first event",
    "{}'s events",
    "since {} sent",
    "since {} received",
    "share of sent among {}'s latest 32",
)
_SOURCE = (*(f"since source sent the {n} last time" for n in ("4th", "32nd")), "target among source's latest 32 sent")
_TARGET = (
    *(f"since target received the {n} last time" for n in ("4th", "32nd")),
    "source among target's latest 32 received",
)
_BOTH = (
    "partners among source's latest 32",
    "partners among target's latest 32",
    "target among source's latest 32",
    "how far back target is there",
    "source among target's latest 32",
    "how far back source is there",
    "shared among the latest 32",
    "how far back the nearest shared one, of 32",
    "shared among the latest 256",
    "how far back the nearest shared one, of 256",
    "since both had an event at one time",
    "times at which both had an event",
)
_STREAM = (
    "stream's events since the pair met",
    *(f"stream's events since {what}" for what in ("source's last event", "target's last event")),
    *(f"stream's events since {what}" for what in ("source sent", "target received")),
)
_PATHS = (
    "paths of three events between them",
    "share of the way on from source's partners that meets target's",
    "chance of a path of three events",
    "source's latest partners with such a path",
    "target's partners on such paths",
    "share of target's partners on such paths",
    "since the newest such path",
)
_MOVES = (
    "how often source went on from its latest partner to target",
    "how often others went on from there to target",
    "how often others met target soon after there",
)
_GROWING = (
    *(f"{end}'s events since the pair met" for end in ("source", "target")),
    *(f"since {end}'s first event" for end in ("source", "target")),
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
_AT_ONCE = 4096  # pairs whose ends' latest events are put side by side, 25 MB, and those of partners, up to 60 MB
MOST_COLUMNS = 8  # features of events that are looked at, those that vary most
_WHERE = ("the pair's last event", "source's last event", "target's last event")


def feature_names(columns: np.ndarray) -> tuple[str, ...]:
    """Return the names of the features and of event columns (C,) at last events."""
    return (*NAMES, *(f"event feature {c} of {where}" for where in _WHERE for c in columns.tolist()))


class PairFeatures:
    """Queries to their features.

    Args:
        store: histories to look up, without deletions.
        stream: where features of events come from, by id.
        clock: what a gap of 1 is.
        columns: (C,) int64 columns of event features whose last values are features.
    """

    deletions = False  # stand in no store

    def __init__(self, store: Histories, stream: EventStream, clock: Clock, columns: np.ndarray) -> None:
        self.store: Histories = store
        self.clock, self.columns = clock.over(stream.time_unit), columns
        self._attr: Rows | None = stream.edge_attr
        self._first_id = stream.first_id

    @property
    def names(self) -> tuple[str, ...]:
        """The features, in the order of columns."""
        return feature_names(self.columns)

    def over(self, past: StreamState) -> PairFeatures:
        """Return the same over all events of a past."""
        made = copy(self)
        made.store, made._first_id = past.store(), 0
        made.clock = self.clock.over(past.time_unit or "")
        made._attr = past.edge_attr
        return made

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, F) float32 features of pairs u (Q,), v (Q,) at times t (Q,).

        Raises:
            ShapeError: columns of different lengths.
            DataError: a node that the store does not know, a NaN time, or a store that is damaged.
        """
        return self.read(u, v, t)[0]

    def read(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, Last]:
        """Return what `pairs` does, and the last events of the pairs and of their ends."""
        u, v, t = self.store.checked(u, v, t)
        out = np.empty((len(u), len(NAMES) + 3 * len(self.columns)), np.float32)
        found = []
        for a in range(0, max(len(u), 1), _AT_ONCE):
            some = slice(a, a + _AT_ONCE)
            found.append(read_pairs(self.store, u[some], v[some], t[some], self.clock.unit, out[some]))
        last = found[0] if len(found) == 1 else Last(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
        if len(self.columns):
            self._last_values(last.ids, out[:, len(NAMES) :])
        return out, last

    def _last_values(self, latest: np.ndarray, out: np.ndarray) -> None:
        """Write the event features of the latest events (Q, 3), NaN where there is none."""
        out[:] = np.nan
        if self._attr is None:
            return
        width = len(self.columns)
        for place in range(3):
            here = np.flatnonzero(latest[:, place] >= 0)
            if len(here):
                rows = self._attr[latest[here, place] - self._first_id]
                out[here, place * width : (place + 1) * width] = rows[:, self.columns]


def varied_columns(stream: EventStream, rows: np.ndarray, count: int) -> np.ndarray:
    """Return (count,) int64 rising columns of the event features that vary most over the additions at rows (P,).

    Columns that vary alike, as standardised ones do, come in the order of the file.
    """
    if not count:
        return np.empty(0, np.int64)
    assert stream.edge_attr is not None
    spread = stream.edge_attr[stream.additions(rows)].std(0, dtype=np.float64)
    alike = np.round(spread / max(float(spread.max(initial=0)), 1e-300), 3)
    return np.sort(np.argsort(-alike, kind="stable")[:count])
