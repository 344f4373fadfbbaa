"""What a service reports: Prometheus metrics, the payload of `/state`, and log lines."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hopstate.data.dates import shown_time
from hopstate.data.splits import IN_SECOND
from hopstate.errors import FutureTimeError, HopstateWarning, TimeOrderError
from hopstate.runs.data import dates_of, settings_of_run
from hopstate.serving.live import LiveRun
from hopstate.serving.quality import WINDOW, Quality
from hopstate.serving.transaction import Receipt

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_WINDOW = 60.0  # seconds over which the page tells a rate
_ANSWERS = 1_000  # of each route, whose seconds the page tells
Form = Literal["off", "text", "json"]


class ServiceMetrics:
    """Counters of one service; `registry` holds them.

    lag: events that a replica has not observed.
    queue, events_waiting: requests that wait, and events in them that are not on the disk yet.
    source_lag: messages of the source that were not taken, None where there is none or it does not tell.
    came: when the last event came, None before the first.
    """

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self._make_of_events(own)
        self._make_of_models(own)
        self.requests = Counter("hopstate_requests", "requests", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "hopstate_request_seconds", "seconds to an answer", ["route"], buckets=_SECONDS, registry=own
        )
        self.waiting = Gauge("hopstate_waiting", "requests that wait", registry=own)
        self.queued = Gauge("hopstate_waiting_events", "events that are not on the disk yet", registry=own)
        self.queued.set_function(lambda: self.events_waiting)
        self.events_waiting = 0
        self._trouble = Gauge("hopstate_trouble", "1 while something is wrong, by what", ["of"], registry=own)
        self._troubles: dict[str, str] = {}
        self.lag = self.queue = self._stood = 0
        self.came: float | None = None
        self.source_lag: int | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._answers: defaultdict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_ANSWERS))

    def _make_of_events(self, own: CollectorRegistry) -> None:
        self.events = Counter("hopstate_events", "events committed", registry=own)
        self.again = Counter("hopstate_events_again", "events that the log held already", registry=own)
        self.differing = Counter(
            "hopstate_events_differing", "events whose id the log held with other contents", registry=own
        )
        self.out = Counter(
            "hopstate_events_out", "events that were refused or kept aside for their time", ["why"], registry=own
        )
        for why in ("late", "ahead", "unreadable"):
            self.out.labels(why)
        self.position = Gauge("hopstate_position", "events of the log that have been observed", registry=own)
        self.last_time = Gauge("hopstate_last_event_time", "time of the last event, in the run's unit", registry=own)
        self.arrived = Gauge(
            "hopstate_last_event_arrived",
            "when the last event came, Unix seconds; until one has come, when the service started",
            registry=own,
        )
        self.arrived.set_to_current_time()
        self.snapshot = Gauge("hopstate_snapshot_position", "events in the last snapshot", registry=own)
        self._kept_at: float | None = None
        age = Gauge("hopstate_snapshot_age_seconds", "seconds since the last snapshot, NaN without any", registry=own)
        age.set_function(lambda: math.nan if self._kept_at is None else max(time.time() - self._kept_at, 0.0))
        self._lag = Gauge("hopstate_lag", "events of the log that a replica has not observed", registry=own)

        self._source_lag = Gauge(
            "hopstate_source_lag",
            "messages that the source holds and that were not taken; NaN where it is not known",
            registry=own,
        )
        self._source_lag.set(math.nan)

    def _make_of_models(self, own: CollectorRegistry) -> None:
        told = "of the last events judged, by kind of other targets"
        self.quality = Gauge("hopstate_quality", told, ["metric", "others"], registry=own)
        self.score = Gauge("hopstate_score", "mean score of the last events judged", registry=own)
        self.score.set(math.nan)
        self.alarms = Counter("hopstate_alarms", "alarms of quality", registry=own)

    def follow(self, live: LiveRun) -> None:
        """Take over where a run stands."""
        self._stood = live.position
        self.position.set(self._stood)
        self.snapshot.set(live.kept)
        self._kept_at = live.kept_at
        if len(live.past):
            self.last_time.set(live.past.last_time)

    def took(self, receipts: list[Receipt], live: LiveRun) -> None:
        """Count events that were taken."""
        again = sum(receipt.again for receipt in receipts)
        new = sum(receipt.position is not None for receipt in receipts) - again
        self.again.inc(again)
        self.events.inc(new)
        if new < len(receipts):
            for receipt in receipts:
                if receipt.note == "differs":
                    self.differing.inc()
                elif receipt.note is not None:
                    self.out.labels(receipt.note).inc()
        self._count(new)
        self.follow(live)

    def _count(self, new: int) -> None:
        if new:
            self.came = now = time.time()
            self.arrived.set(now)
            self._recent.append((now, new))
            while self._recent[0][0] < now - _WINDOW:
                self._recent.popleft()

    def refused(self, error: BaseException) -> None:
        """Count a request that was refused for the time of an event."""
        if isinstance(error, TimeOrderError):
            self.out.labels("ahead" if isinstance(error, FutureTimeError) else "late").inc()

    def lagged(self, events: int | None, live: LiveRun) -> None:
        """Tell how far behind its log a replica is."""
        self._count(max(live.position - self._stood, 0))
        if events is not None:
            self.lag = events
            self._lag.set(events)
        self.follow(live)

    def drawn(self, left: int | None) -> None:
        """Tell how far behind its source the run is."""
        self.source_lag = left
        self._source_lag.set(math.nan if left is None else left)

    def troubled(self, what: str, text: str) -> bool:
        """Tell what is wrong with a part, nothing where it is well; return whether that is news."""
        before = self._troubles.get(what, "")
        self._troubles[what] = text
        self._trouble.labels(what).set(bool(text))
        return bool(text) and text != before

    def is_troubled(self, what: str) -> bool:
        """Return whether something is wrong with a part."""
        return bool(self._troubles.get(what))

    def trouble(self) -> str:
        """Return what is wrong."""
        return "; ".join(filter(None, self._troubles.values()))

    def waits(self, requests: int) -> None:
        self.waiting.set(requests)
        self.queue = requests

    def answered(self, route: str, status: int, start: float) -> None:
        """Count a request."""
        now = time.perf_counter()
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(now - start)
        if status < 400:
            self._answers[route].append((now, now - start))

    def latency(self) -> dict[str, dict[str, float]]:
        """Return by route how many were answered in the last minute (a thousand at most), and in how many seconds."""
        since, found = time.perf_counter() - _WINDOW, {}
        for route, answers in list(self._answers.items()):
            took = [seconds for when, seconds in list(answers) if when >= since]
            if took:
                p50, p99 = np.quantile(took, [0.5, 0.99]).tolist()
                found[route] = {"answers": len(took), "p50": p50, "p99": p99}
        return found

    def rate(self) -> float:
        """Return events a second over the last minute."""
        since = time.time() - _WINDOW
        return sum(n for t, n in list(self._recent) if t > since) / _WINDOW

    def judged(self, quality: Quality) -> None:
        """Show figures of quality."""
        _show(self.quality, quality)
        mean = quality.mean_score()
        self.score.set(math.nan if mean is None else mean)


def _show(gauge: Gauge, quality: Quality) -> None:
    for kind, row in quality.told.items():
        for name, value in row.items():
            gauge.labels(name, kind).set(value)


class StatePage:
    """What is told of a run.

    Args:
        metrics: of the service.
        live: the run.
    """

    def __init__(self, metrics: ServiceMetrics, live: LiveRun) -> None:
        self._metrics = metrics
        self._method = settings_of_run(live.run, live.method)[0].name
        self._dates = dates_of(live.run)

    def of(self, live: LiveRun, quality: Quality, parked: int) -> dict[str, Any]:
        """Return what is shown of the run that serves, with how many events are kept aside."""
        metrics, now = self._metrics, time.time()
        return {
            **self._named(live),
            "position": live.position,
            "events_per_second": metrics.rate(),
            **self._last(live, now),
            "arrived": None if metrics.came is None else now - metrics.came,
            "waiting": metrics.queue,
            "waiting_events": metrics.events_waiting,
            "latency": metrics.latency(),
            "nodes": live.past.num_nodes,
            "known_events": len(live.past),
            "snapshot": live.kept,
            "snapshot_age": None if live.kept_at is None else max(now - live.kept_at, 0.0),
            "follows": live.follows,
            "lag": metrics.lag,
            "source_lag": metrics.source_lag,
            "trouble": metrics.trouble(),
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
        if not len(live.past):
            return {"last_time": None, "last_shown": None, "last_age": None}
        last, unit, dates = live.past.last_time, live.past.time_unit or "", self._dates
        age = now - last / IN_SECOND[unit] if dates and unit in IN_SECOND else None
        return {"last_time": last, "last_shown": shown_time(last, unit, dates), "last_age": age}


class StructuredLogger:
    """A writer of lines; what cannot be written is left out, for no request waits for a log of words.

    Args:
        form: "json" (an object each: time, event and its fields), "text" (the same for people), "off" for none.
        out: where; the process's stderr by default.
    """

    def __init__(self, form: Form = "off", out: TextIO | None = None) -> None:
        self.form, self._out = form, out

    def __call__(self, event: str, **fields: Any) -> None:
        """Write a line.

        Args:
            event: what happened, in a word.
            fields: more of it; numbers of seconds are rounded to microseconds.
        """
        if self.form == "off":
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = {key: round(value, 6) if isinstance(value, float) else value for key, value in fields.items()}
        if self.form == "json":
            line = json.dumps({"time": now, "event": event, **told}, default=str)
        else:
            line = f"{now} {event} " + " ".join(f"{key}={_plain(value)}" for key, value in told.items())
        try:
            print(line.rstrip(), file=self._out or sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads it any more
            self.form = "off"

    def shown(self, otherwise: Callable[..., None]) -> Callable[..., None]:
        """Return what shows warnings: those of this library as lines of their own, where there are lines at all."""

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if self.form != "off" and issubclass(category, HopstateWarning):
                self("warning", text=str(message))
            else:
                otherwise(message, category, *rest, **named)

        return show

    def take_warnings(self) -> None:
        """Let warnings of this library come as lines from here on."""
        warnings.showwarning = self.shown(warnings.showwarning)


def _plain(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
