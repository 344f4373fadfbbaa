"""What a service reports: Prometheus metrics, the payload of `/state`, and log lines."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import warnings
from collections import defaultdict, deque
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TextIO

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hopstate.data.dates import format_time, format_times
from hopstate.data.splits import IN_SECOND
from hopstate.errors import FutureTimeError, HopstateWarning, TimeOrderError
from hopstate.serving.live import LiveRun
from hopstate.serving.quality import WINDOW, Quality
from hopstate.serving.transaction import Receipt

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_WINDOW = 60.0  # seconds over which the page tells a rate
_ANSWERS = 1_000  # of each route, whose seconds the page tells
SHOWN_EVENTS = 5  # the last ones, on the page
SERVER_LINES = 10  # of the web server, written in a window
Form = Literal["off", "text", "json"]


class ServiceMetrics:
    """Counters of one service; `registry` holds them.

    lag: events that a replica has not observed.
    queue, events_waiting: requests that wait, and events in them that are not durable yet.
    source_lag: messages of the source that were not taken, None if there is none or it does not tell.
    last_arrival: when the last event came, on the clock of `time.monotonic`, None before the first.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.events = counter("hopstate_events", "events committed")
        self.duplicates = counter("hopstate_events_duplicate", "events that the log held already")
        self.differing = counter("hopstate_events_differing", "events whose id the log held with other contents")
        self.out = counter("hopstate_events_out", "events rejected or dead-lettered, by reason", ["why"])
        for why in ("late", "future", "unreadable"):
            self.out.labels(why)
        self.position = gauge("hopstate_position", "events of the log that have been observed")
        self.last_time = gauge("hopstate_last_event_time", "time of the last event, in the run's unit")
        self.arrived = gauge("hopstate_last_event_arrived", "Unix seconds of the last event, at first of the start")
        self.arrived.set_to_current_time()
        self.snapshot = gauge("hopstate_snapshot_position", "events in the last snapshot")
        age = gauge("hopstate_snapshot_age_seconds", "seconds since the last snapshot, NaN without any")
        age.set_function(lambda: math.nan if self._snapshot_time is None else time.monotonic() - self._snapshot_time)
        gauge("hopstate_lag", "events of the log that a replica has not observed").set_function(lambda: self.lag)
        source_lag = gauge("hopstate_source_lag", "messages of the source not taken yet, NaN if unknown")
        source_lag.set_function(lambda: math.nan if self.source_lag is None else self.source_lag)
        self.quality = gauge("hopstate_quality", "of the last evaluated events, by negatives", ["metric", "others"])
        self.score = gauge("hopstate_score", "mean score of the last evaluated events")
        self.score.set(math.nan)
        self.alarms = counter("hopstate_alarms", "alarms of quality")
        self.requests = counter("hopstate_requests", "requests", ["route", "status"])
        self.seconds = Histogram(
            "hopstate_request_seconds", "seconds to an answer", ["route"], buckets=_SECONDS, registry=registry
        )
        gauge("hopstate_waiting", "requests that wait").set_function(lambda: self.queue)
        gauge("hopstate_waiting_events", "events not durable yet").set_function(lambda: self.events_waiting)
        self._trouble = gauge("hopstate_trouble", "1 while something is wrong, by what", ["of"])
        self._troubles: dict[str, str] = {}
        self.lag = self.queue = self.events_waiting = self._last_position = 0
        self.last_arrival: float | None = None
        self.source_lag: int | None = None
        self._snapshot_time: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._answers: defaultdict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_ANSWERS))

    def follow(self, live: LiveRun) -> None:
        """Set position, time and snapshot to where a run is."""
        self._last_position = live.position
        self.position.set(live.position)
        self.snapshot.set(live.snapshot_position)
        self._snapshot_time = live.snapshot_time
        if len(live.past):
            self.last_time.set(live.past.last_time)

    def count_receipts(self, receipts: list[Receipt], live: LiveRun) -> None:
        duplicates = sum(receipt.duplicate for receipt in receipts)
        new = sum(receipt.position is not None for receipt in receipts) - duplicates
        self.duplicates.inc(duplicates)
        self.events.inc(new)
        if new < len(receipts):
            for receipt in receipts:
                if receipt.note == "differs":
                    self.differing.inc()
                elif receipt.note is not None:
                    self.out.labels(receipt.note).inc()
        self._count_new(new)
        self.follow(live)

    def _count_new(self, new: int) -> None:
        if new:
            self.last_arrival = now = time.monotonic()
            self.arrived.set_to_current_time()
            self._recent.append((now, new))
            while self._recent[0][0] < now - _WINDOW:
                self._recent.popleft()

    def count_refusal(self, error: BaseException) -> None:
        """Count a request that was refused for the time of an event."""
        if isinstance(error, TimeOrderError):
            self.out.labels("future" if isinstance(error, FutureTimeError) else "late").inc()

    def set_lag(self, events: int | None, live: LiveRun) -> None:
        """Set how many events a replica is behind its log, None if it cannot be read."""
        self._count_new(max(live.position - self._last_position, 0))
        if events is not None:
            self.lag = events
        self.follow(live)

    def set_trouble(self, part: str, text: str) -> bool:
        """Set what is wrong with a part, "" if nothing is; return whether that is news."""
        before = self._troubles.get(part, "")
        self._troubles[part] = text
        self._trouble.labels(part).set(bool(text))
        return bool(text) and text != before

    def has_trouble(self, part: str) -> bool:
        return bool(self._troubles.get(part))

    def trouble(self) -> str:
        """Return what is wrong, "" if nothing is."""
        return "; ".join(filter(None, self._troubles.values()))

    def count_request(self, route: str, status: int, start: float) -> None:
        now = time.perf_counter()
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(now - start)
        if status < 400:
            self._answers[route].append((now, now - start))

    def latency(self) -> dict[str, dict[str, float]]:
        """Return by route the number of answers of the last minute (a thousand at most) and quantiles of seconds."""
        since, found = time.perf_counter() - _WINDOW, {}
        for route, answers in list(self._answers.items()):
            took = [seconds for when, seconds in list(answers) if when >= since]
            if took:
                p50, p99 = np.quantile(took, [0.5, 0.99]).tolist()
                found[route] = {"answers": len(took), "p50": p50, "p99": p99}
        return found

    def rate(self) -> float:
        """Return events per second over the last minute."""
        since = time.monotonic() - _WINDOW
        return sum(n for t, n in list(self._recent) if t > since) / _WINDOW

    def set_quality(self, quality: Quality) -> None:
        for kind, row in quality.metrics.items():
            for name, value in row.items():
                self.quality.labels(name, kind).set(value)
        mean = quality.mean_score()
        self.score.set(math.nan if mean is None else mean)


def state_of(live: LiveRun, quality: Quality, metrics: ServiceMetrics, dead_letters: int) -> dict[str, Any]:
    """Return what `/state` answers and the page shows."""
    past, now, unit = live.past, time.monotonic(), live.past.time_unit or ""
    last = past.last_time if len(past) else None
    is_date = last is not None and live.dates and unit in IN_SECOND
    return {
        "run": live.run.path.name,
        "method": live.method_name,
        "model": live.model,
        "position": live.position,
        "events_per_second": metrics.rate(),
        "last_time": last,
        "last_shown": None if last is None else format_time(last, unit, live.dates),
        "last_age": time.time() - last / IN_SECOND[unit] if is_date and last is not None else None,
        "arrived": None if metrics.last_arrival is None else now - metrics.last_arrival,
        "waiting": metrics.queue,
        "waiting_events": metrics.events_waiting,
        "latency": metrics.latency(),
        "nodes": past.num_nodes,
        "known_events": len(past),
        "snapshot": live.snapshot_position,
        "snapshot_age": None if live.snapshot_time is None else now - live.snapshot_time,
        "is_replica": live.is_replica,
        "lag": metrics.lag,
        "source_lag": metrics.source_lag,
        "trouble": metrics.trouble(),
        "quality": quality.metrics,
        "evaluated": quality.num_evaluated,
        "window": min(quality.num_evaluated, WINDOW),
        "mean_score": quality.mean_score(),
        "alarms": [vars(alarm) for alarm in quality.alarms],
        "latest": _latest(live),
        "dead_letters": dead_letters,
    }


def _latest(live: LiveRun) -> list[dict[str, Any]]:
    past = live.past
    events = past.events(max(0, past.num_events - SHOWN_EVENTS))
    src, dst = (rows if past.node_ids is None else past.node_ids.names(rows) for rows in (events.src, events.dst))
    times = format_times(events.t, past.time_unit or "", live.dates)
    columns = (src.tolist(), dst.tolist(), times.tolist())
    return [{"src": u, "dst": v, "t": t} for u, v, t in zip(*columns, strict=True)][::-1]


class StructuredLogger:
    """A writer of lines to stderr; what cannot be written is left out, for no request waits for a log of words.

    Their form is "json" (an object each: time, event and its fields), "text" (the same for people), or "off".
    """

    def __init__(self, form: Form = "off", out: TextIO | None = None) -> None:
        self.form, self._out = form, out

    def __call__(self, event: str, **fields: Any) -> None:
        """Write a line: what happened, in a word, and more of it; seconds are rounded to microseconds."""
        if self.form == "off":
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in fields.items()}
        if self.form == "json":
            line = json.dumps({"time": now, "event": event, **rounded}, default=str)
        else:
            line = f"{now} {event} " + " ".join(f"{key}={_plain(value)}" for key, value in rounded.items())
        try:
            print(line.rstrip(), file=self._out or sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads it any more
            self.form = "off"

    def take_warnings(self) -> None:
        """Write warnings of this library and of the web server as lines from here on."""
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *args: Any, **named: Any) -> None:
            if self.form != "off" and issubclass(category, HopstateWarning):
                self("warning", text=str(message))
            else:
                before(message, category, *args, **named)

        warnings.showwarning = show
        logger = logging.getLogger("uvicorn.error")
        logger.handlers, logger.propagate = [_ServerLines(self)], False


class _ServerLines(logging.Handler):
    """Records of the web server as lines; whoever connects can cause them, so only so many a minute are written."""

    def __init__(self, lines: StructuredLogger) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines
        self._start, self._count = -math.inf, 0

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._start > _WINDOW:
            left_out = self._count - SERVER_LINES
            self._start, self._count = now, 0
            if left_out > 0:
                self._write("WARNING", f"{left_out} more lines of the web server were left out")
        self._count += 1
        if self._count <= SERVER_LINES:
            self._write(record.levelname, self.format(record))

    def _write(self, level: str, text: str) -> None:
        if self._lines.form == "off":
            with suppress(OSError, ValueError):  # nobody reads it any more
                print(f"{level}: {text}", file=sys.stderr, flush=True)
        else:
            self._lines("server", level=level, text=text)


def _plain(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
