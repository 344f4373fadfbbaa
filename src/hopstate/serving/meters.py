"""What a live run tells of itself: counts, latencies and ages, for Prometheus and for the page."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hopstate.serving.draft import Receipt
from hopstate.serving.live import LiveRun
from hopstate.serving.quality import Quality

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_WINDOW = 60.0  # seconds over which the page tells a rate


class Meters:
    """Counters of one service; `registry` holds them."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.events = Counter("hopstate_events", "events committed", registry=own)
        self.again = Counter("hopstate_events_again", "events that the log held already", registry=own)
        self.requests = Counter("hopstate_requests", "requests", ["door", "status"], registry=own)
        self.seconds = Histogram(
            "hopstate_request_seconds", "seconds to an answer", ["door"], buckets=_SECONDS, registry=own
        )
        self.waiting = Gauge("hopstate_waiting", "requests that wait", registry=own)
        self.position = Gauge("hopstate_position", "events of the log that have been observed", registry=own)
        self.last_time = Gauge("hopstate_last_event_time", "time of the last event, in the run's unit", registry=own)
        self.arrived = Gauge("hopstate_last_event_arrived", "when the last event came, Unix seconds", registry=own)
        self.snapshot = Gauge("hopstate_snapshot_position", "events in the last snapshot", registry=own)
        self.lag = Gauge("hopstate_lag", "events of the log that a replica has not observed", registry=own)
        self._lag = 0
        self.trouble = ""  # why a replica cannot follow
        self.quality = Gauge(
            "hopstate_quality",
            "of the last events judged, by kind of other targets",
            ["metric", "others"],
            registry=own,
        )
        self.alarms = Gauge("hopstate_alarms", "alarms of quality that are kept, ten at most", registry=own)
        self.shadow_lag = Gauge("hopstate_shadow_lag", "events that the shadow has not observed", registry=own)
        self.shadow_quality = Gauge(
            "hopstate_shadow_quality", "of the last events the shadow judged", ["metric", "others"], registry=own
        )
        self.shadow_trouble = ""  # why it cannot follow
        self._behind = self._queue = 0
        self._came: float | None = None
        self._recent: list[tuple[float, int]] = []

    def follow(self, live: LiveRun) -> None:
        """Take over where a run stands."""
        self.position.set(live.position)
        self.snapshot.set(live.kept)
        if len(live.past):
            self.last_time.set(live.past.last_time)

    def took(self, receipts: list[Receipt], live: LiveRun) -> None:
        """Count events that were taken."""
        again = sum(receipt.again for receipt in receipts)
        new = sum(receipt.position is not None for receipt in receipts) - again
        self.again.inc(again)
        self.events.inc(new)
        if new:
            now = time.time()
            self.arrived.set(now)
            self._came = now
            self._recent = [(t, n) for t, n in self._recent if t > now - _WINDOW] + [(now, new)]
        self.follow(live)

    def lagged(self, events: int | None, live: LiveRun, trouble: str = "") -> None:
        """Tell how far behind its log a replica is, and what keeps it from following."""
        self.trouble = trouble
        if events is not None:
            self.lag.set(events)
            self._lag = events
        self.follow(live)

    def waits(self, requests: int) -> None:
        """Tell how many requests wait."""
        self.waiting.set(requests)
        self._queue = requests

    def answered(self, door: str, status: int, start: float) -> None:
        """Count a request."""
        self.requests.labels(door, str(status)).inc()
        self.seconds.labels(door).observe(time.perf_counter() - start)

    def judged(self, quality: Quality) -> None:
        """Show figures of quality."""
        for kind, row in quality.told.items():
            for name, value in row.items():
                self.quality.labels(name, kind).set(value)
        self.alarms.set(len(quality.alarms))

    def shadowed(self, left: int, quality: Quality) -> None:
        """Tell how far a shadow is behind, and how good it is."""
        self._behind = left
        self.shadow_lag.set(left)
        for kind, row in quality.told.items():
            for name, value in row.items():
                self.shadow_quality.labels(name, kind).set(value)

    def told_of(self, shadow: LiveRun, quality: Quality) -> dict[str, Any]:
        """Return what the page shows of a shadow."""
        return {
            "run": shadow.run.path.name,
            "model": shadow.model,
            "lag": self._behind,
            "trouble": self.shadow_trouble,
            "quality": quality.told,
            "judged": quality.judged,
        }

    def told(self, live: LiveRun, quality: Quality, parked: int) -> dict[str, Any]:
        """Return what the page shows, with how many late events are kept aside."""
        now = time.time()
        return {
            "run": live.run.path.name,
            "model": live.model,
            "position": live.position,
            "events_per_second": sum(n for t, n in self._recent if t > now - _WINDOW) / _WINDOW,
            "last_time": live.past.last_time if len(live.past) else None,
            "arrived": None if self._came is None else now - self._came,
            "waiting": self._queue,
            "nodes": live.past.num_nodes,
            "known_events": len(live.past),
            "snapshot": live.kept,
            "follows": live.follows,
            "lag": self._lag,
            "trouble": self.trouble,
            "quality": quality.told,
            "judged": quality.judged,
            "alarms": [vars(alarm) for alarm in quality.alarms],
            "parked": parked,
        }
