"""What the page shows of a live run: `/state`."""

from __future__ import annotations

import time
from typing import Any

from hopstate.data.dates import shown_time
from hopstate.data.event_splits import IN_SECOND
from hopstate.runs.data import settings_of_run
from hopstate.runs.queries.shown import dates_of
from hopstate.serving.live import LiveRun
from hopstate.serving.meters import Meters
from hopstate.serving.quality import WINDOW, Quality


class Told:
    """What is told of a run.

    Args:
        meters: of the service.
        live: the run.
    """

    def __init__(self, meters: Meters, live: LiveRun) -> None:
        self._meters = meters
        self._method = settings_of_run(live.run, live.method)[0].name
        self._dates = dates_of(live.run, live.method)

    def of(self, live: LiveRun, quality: Quality, parked: int) -> dict[str, Any]:
        """Return what is shown of the run that serves, with how many events are kept aside."""
        meters, now = self._meters, time.time()
        return {
            **self._named(live),
            "position": live.position,
            "events_per_second": meters.rate(),
            **self._last(live, now),
            "arrived": None if meters.came is None else now - meters.came,
            "waiting": meters.queue,
            "waiting_events": meters.events_waiting,
            "latency": meters.latency(),
            "nodes": live.past.num_nodes,
            "known_events": len(live.past),
            "snapshot": live.kept,
            "snapshot_age": None if live.kept_at is None else max(now - live.kept_at, 0.0),
            "follows": live.follows,
            "lag": meters.lag,
            "source_lag": meters.source_lag,
            "trouble": meters.trouble(),
            "quality": quality.told,
            "judged": quality.judged,
            "window": min(quality.judged, WINDOW),
            "mean_score": quality.mean_score(),
            "alarms": [vars(alarm) for alarm in quality.alarms],
            "parked": parked,
        }

    def _named(self, live: LiveRun) -> dict[str, Any]:
        return {"run": live.run.path.name, "method": self._method, "model": live.model}

    def _last(self, live: LiveRun, now: float) -> dict[str, Any]:
        """Return the time of the last event, as it is shown, and where it is a date how many seconds ago it was."""
        if not len(live.past):
            return {"last_time": None, "last_shown": None, "last_age": None}
        last, unit, dates = live.past.last_time, live.past.time_unit or "", self._dates
        age = now - last / IN_SECOND[unit] if dates and unit in IN_SECOND else None
        return {"last_time": last, "last_shown": shown_time(last, unit, dates), "last_age": age}
