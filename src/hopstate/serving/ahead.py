"""How far ahead an event may be: one of the far future would make all that come after it late, for good.

Where times are those of a clock (dates, or numbers since 1970 in a unit that is known) they are compared with this
machine's; others with the event before them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from hopstate.data.dates import shown_time
from hopstate.data.event_splits import IN_SECOND, parse_duration
from hopstate.data.stream_state import StreamState

AUTO, NEVER = "auto", "never"
USUAL = "1d"  # beyond the clock: zones that a date did not name, and clocks that are off
_SINCE = datetime(1990, 1, 1, tzinfo=UTC).timestamp()  # numbers that all lie after it are no seconds from a start of 0


class Ahead:
    """A bound on the times of events to come.

    Args:
        ahead: "auto" (a day beyond the clock where times are those of a clock, none otherwise), "never" for none, or a
            length: text such as 12h, or a number in the unit of the run's own times.
        past: what is known.
        own_events: how many of its first events are the run's own data, by which it is told what times are.
        dates: as `EventStream.dates`.
        clock: seconds since 1970.

    Raises:
        ConfigError: a length that is none, or cannot be told in the unit.
    """

    def __init__(
        self, ahead: str | float, past: StreamState, own_events: int, dates: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._unit, self._dates = clock, past.time_unit or "", dates
        self.by_clock = own_events > 0 and self._has_clock(past, own_events)
        self.length: int | float | None = None
        self.told = USUAL if ahead == AUTO else str(ahead)
        if ahead != NEVER and len(past) and (self.by_clock or ahead != AUTO):
            self.length = parse_duration(past.events(len(past) - 1), self.told)

    def _has_clock(self, past: StreamState, own_events: int) -> bool:
        if self._unit not in IN_SECOND:
            return False
        first, last = (past.events(k, k + 1).t[0].item() for k in (0, own_events - 1))
        day = 86_400 * IN_SECOND[self._unit]
        return last <= self._now() + day and (bool(self._dates) or first >= _SINCE * IN_SECOND[self._unit])

    def _now(self) -> int:
        return int(self._clock() * IN_SECOND[self._unit])

    def beyond(self, t: int | float, last: int | float | None) -> bool:
        """Return whether an event is further ahead than it may be.

        Args:
            t: its time.
            last: of the event before it.
        """
        if self.length is None:
            return False
        since = self._now() if self.by_clock else last
        return since is not None and t > since + self.length

    def allows(self, t: np.ndarray, last: int | float | None) -> bool:
        """Return whether none of events, with times (n,) in order, is."""
        if self.length is None:
            return True
        if self.by_clock:
            return not self.beyond(t[-1].item(), last)
        steps = np.diff(t)  # those beyond 64 bits come out below 0
        return not self.beyond(t[0].item(), last) and bool(((steps >= 0) & (steps <= self.length)).all())

    def said(self, last: int | float | None) -> str:
        """Return what an event that is too far ahead is told."""
        since = self._now() if self.by_clock else last
        what = "this machine's clock" if self.by_clock else "the event before it"
        return (
            f"more than {self.told} after {what} ({shown_time(since, self._unit, self._dates)}): taken, it would make "
            "all before it late; give times in the unit of the run's own (serve --ahead says how far)"
        )
