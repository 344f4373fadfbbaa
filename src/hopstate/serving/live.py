"""A trained model of links over a log: events are scored, committed, then observed.

The past is a value: what comes after events is computed beside it, and takes its place only when the log holds them.
An event that cannot be read, or is refused, so leaves neither a row in the log nor a trace in the memory. A state does
not depend on how events are cut (see `streaming.live`), and the log keeps the bounds of commits, each of which is
scored by itself: so a replay of the log gives the same scores, to the bit.

A start takes the newest whole snapshot (`serving.snapshots`), or the end of the run's own data where there is none,
and goes on over what the log holds beyond.

A `Replica` follows the log that another process writes, and answers as the writer does at the same position.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, ConfigError, HopstateError, HopstateWarning, MissingFileError
from hopstate.io.files import locked
from hopstate.ops.threads import one_thread
from hopstate.runs.load import load_run, state_after_run_data
from hopstate.runs.queries import QuerySession
from hopstate.runs.saved_run import SavedRun
from hopstate.serving.event_parser import (
    AUTO,
    ClockSkewLimit,
    Columns,
    EventParser,
    Late,
    UnknownFields,
    check_handling,
)
from hopstate.serving.log import EventLog, commit_batches, corruption_errors, open_log, parse_events
from hopstate.serving.sinks import Sink
from hopstate.serving.snapshots import (
    apply_retention,
    check_duration,
    check_retention,
    latest_snapshot,
    latest_snapshot_time,
    save_snapshot,
    snapshot_sizes,
)
from hopstate.serving.transaction import Receipt, Transaction, read
from hopstate.streaming.live import continue_stream_sliced, fingerprint
from hopstate.streaming.slices import SliceSizer, Steps, run_in_context, run_to_completion
from hopstate.training.tasks.events import Untrained
from hopstate.training.tasks.link import LinkTask

_ELSEWHERE = ("data", "read", "loop")  # settings that may change where data are moved, or tell of training alone
BULK = 5_000  # events that are taken together when a log is read again without scores
SLICE = 32  # events of a commit that are scored before others may ask


def check_log(facts: Mapping[str, Any], run: SavedRun, model: str, place: object) -> int | None:
    """Return how many events the run's own data had when a log was begun, None if the log is new.

    The run and the fingerprint of its weights must be those in the log's facts; messages name the place of the log.
    """
    if "model" not in facts:
        return None
    if facts["model"] != model:
        raise ConfigError(f"the log in {place} is of a model of other weights; give another folder")
    if facts.get("run") != signature(run):
        raise ConfigError(
            f"the log in {place} is another run's: of other data, or of other settings (method, model, evaluation), "
            "though its weights, if it has any, are these; give another folder"
        )
    found = facts.get("own_events")
    if type(found) is not int or found < 0:
        raise CheckpointError(f"the log in {place} has {found!r} as the number of events before it; use a copy of it")
    return found


def signature(run: SavedRun) -> str:
    """Return a hash of what scores follow from besides the weights: settings and data."""
    settings = {name: value for name, value in run.settings().items() if name not in _ELSEWHERE}
    text = json.dumps([settings, run.facts["content_hash"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class LiveRun:
    """A run that takes events in and answers; to be used by one thread.

    Args:
        run: the run folder, of a temporal method for links.
        folder: where log and snapshots lie; RUN/live by default.
        late: what becomes of an event earlier than the last one: "reject" refuses the request, "clamp" takes the
            last one's time, "dead-letter" keeps it aside.
        snapshot_every: events between two snapshots.
        retention: how many of the log's last events are kept, or for how long ("30d"), None for ever; cut with a
            snapshot.
        log: another log than the file in the folder, or its place (see `log.open_log`).
        sink: where scores of all events go, whether they were asked for or not; closed with the run.
        max_clock_skew: how far ahead of the clock an event may be (see `ClockSkewLimit`). Later ones are rejected, or
            become dead letters if late is "dead-letter".
        unknown_fields: "refuse" an event with fields that the run does not read, or "ignore" them.
        device: as in `hopstate.score`.

    past: what is known.
    snapshot_position: events of the log in the last snapshot.
    snapshot_time: when that was saved, on the clock of `time.monotonic`, None where there is none.

    Raises:
        ConfigError: the run's method scores no pairs, or the log is another run's.
        BusyError: another process serves from the folder.
        CheckpointError: the log is damaged, or shorter than the snapshot.
    """

    home = "live"  # the folder in the run's
    is_replica = False  # a log that another one writes

    def __init__(
        self,
        run: str | Path,
        *,
        folder: str | Path | None = None,
        late: Late = "reject",
        snapshot_every: int = 100_000,
        retention: str | int | None = None,
        log: EventLog | str | None = None,
        sink: Sink | None = None,
        max_clock_skew: str | float = AUTO,
        unknown_fields: UnknownFields = "refuse",
        device: str | None = None,
    ) -> None:
        check_handling(late, unknown_fields)
        if snapshot_every < 1:
            raise ConfigError(f"snapshot_every is a number of events, at least 1; got {snapshot_every}")
        check_retention(retention)
        self.run, self.late, self.snapshot_every, self.retention = SavedRun.open(run), late, snapshot_every, retention
        self.folder = self.run.path / self.home if folder is None else Path(folder)
        self.max_clock_skew, self.unknown_fields = max_clock_skew, unknown_fields
        self.run.require_events()
        self._resources, self.sink = ExitStack(), sink
        if sink is not None:
            self._resources.callback(sink.close)
        try:
            self._resources.enter_context(locked(self.folder, "a live run"))
            computation, task = self._resources.enter_context(load_run(run, device=device, bare=True))
            if not isinstance(task, LinkTask):
                raise ConfigError(
                    f"{self.run.path} is a run of {self.run.method.name}, which scores no pairs; see predict and stream"
                )
            self.task: LinkTask = task
            # for good: to go there and back, and to look for other weights, takes as long as a question's arithmetic
            task.model.eval().requires_grad_(False)
            self._resources.enter_context(computation.precision())
            self.log = self._log_at(log)
            self._resources.callback(self.log.close)
            self.method_name = self.run.method.name
            self._parser = EventParser(self.run, late)
            self._session: QuerySession | None = None
            self._recover()
            self.session()
            if retention is not None and len(self.past):
                check_duration(self.past, retention)
        except BaseException:
            self._resources.close()
            raise

    # ---- start and end ------------------------------------------------------------------------------------
    def _log_at(self, log: EventLog | str | None) -> EventLog:
        return open_log(log or self.folder) if log is None or isinstance(log, str) else log

    def _begin(self, facts: Mapping[str, Any]) -> None:
        self.log.set_facts(facts)

    def _recover(self) -> None:
        self.model, self.snapshot_folder = fingerprint(self.task), self.folder / "state"
        known = check_log(self.log.facts(), self.run, self.model, self.folder)
        past = None if known is None else latest_snapshot(self.snapshot_folder, self.model)
        if past is None:
            past = state_after_run_data(self.run, self.task)
            if known not in (None, len(past)):
                raise ConfigError(
                    f"the run's own data have {len(past)} events, and had {known} when its log was begun; "
                    "put them back, or give another folder"
                )
        if known is None:
            known = len(past)
            if snapshot_sizes(self.snapshot_folder):
                raise CheckpointError(
                    f"the log in {self.folder} is empty, and snapshots in {self.snapshot_folder} have seen events of "
                    "one: it was deleted or replaced; put it back, or move the folder away"
                )
            self._begin({"model": self.model, "run": signature(self.run), "own_events": known})
        self.own_events, self.past = known, past
        dates = self.dates = self.run.dates
        self._parser.skew_limit = ClockSkewLimit(self.max_clock_skew, past, known, dates)
        if self.position > len(self.log):
            raise CheckpointError(
                f"the snapshot in {self.folder} has seen {self.position} events and the log holds {len(self.log)}: "
                "it has been cut; put the whole log back, or move the folder away"
            )
        self._check_snapshot()
        if self.sink is not None:
            self.sink.begin(len(self.log), past.time_unit or "", dates)
        written = latest_snapshot_time(self.snapshot_folder)
        age = None if written is None else max(time.time() - written, 0.0)
        self.snapshot_position, self.snapshot_time = self.position, None if age is None else time.monotonic() - age
        self._catch_up()

    def _check_snapshot(self) -> None:
        """Refuse a snapshot whose last event is not the log's: of a log that was repaired, or put in its place."""
        if self.position <= self.log.start:
            return
        last = self.position - 1
        (logged,) = parse_events([self.log.bodies([last])[last]], last, self.log.place)
        event = self.past.events(len(self.past) - 1)
        ends = np.concatenate([event.src, event.dst])
        names = ends if event.node_ids is None else event.node_ids.names(ends)
        if [event.t[0], *map(str, names.tolist())] != [logged["t"], str(logged["src"]), str(logged["dst"])]:
            raise CheckpointError(
                f"event {last} of {self.log.place} is not the one that the snapshot in {self.snapshot_folder} has "
                "seen: they are of different logs; move the snapshots away, or put the log back"
            )

    def _catch_up(self) -> None:
        for _ in self._observing() if self.lag else ():
            pass

    def follow(self) -> int:
        """Observe some of what the log holds beyond what was observed; return how many events are left."""
        next(self._observing(), None)
        self._snapshot_if_due()
        return self.lag

    def _observing(self) -> Iterator[None]:
        """Observe what the log holds beyond what was observed, and yield after each group of commits."""
        # with a sink one commit at a time, since each is scored by itself
        for bodies in commit_batches(self.log, self.position, BULK if self.sink is None else 1):
            with corruption_errors(self.log.place, self.position, len(bodies)):
                self.observe(parse_events(bodies, self.position, self.log.place))
            yield

    @property
    def lag(self) -> int:
        """Events of the log that have not been observed."""
        return max(len(self.log) - self.position, 0)

    def observe(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Take in logged events."""
        first, events = self.position, self._parser.columns(bodies)
        scores, self.past = self._after(events, score=self.sink is not None)
        if self.sink is not None:
            self.sink.take(first, events, scores)

    def snapshot(self) -> int:
        """Keep the state as it is now; return its position in the log."""
        if self.sink is not None:
            self.sink.flush()  # first: what is lost of it later is scored again from here on
        self.past = save_snapshot(self.past, self.snapshot_folder)
        self.snapshot_position, self.snapshot_time = self.position, time.monotonic()
        if self.retention is not None:
            apply_retention(self.log, self.past, self.snapshot_folder, self.own_events, self.retention)
        return self.snapshot_position

    def tick(self, *, again: bool = False) -> None:
        """Do what is due without an event: the sink's, or with again all that failed. For now and then."""
        if self.sink is not None:
            (self.sink.flush if again else self.sink.tick)()
        if again:
            self._snapshot_if_due()

    def close(self, *, snapshot: bool = True) -> None:
        with self._resources:
            if snapshot and self.position > self.snapshot_position:
                self.snapshot()
            elif snapshot and self.sink is not None:
                self.sink.flush()

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(snapshot=error[0] is None)

    def unread_fields(self, events: Sequence[Mapping[str, Any]]) -> list[str]:
        return self._parser.unread_fields(events)

    @property
    def position(self) -> int:
        """Events of the log that have been observed."""
        return len(self.past) - self.own_events

    def check_writer(self) -> None:
        """Raise ReplicaError if events are given to a replica."""
        if self.is_replica:
            raise ReplicaError("a replica takes no events: give them to the service that writes the log")

    # ---- events in ----------------------------------------------------------------------------------------
    def take(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        score: bool = True,
        facts: Mapping[str, Any] | None = None,
        strict: bool = True,
    ) -> list[Receipt]:
        """Score events, commit them, observe them: all of them, or on any error none.

        Args:
            events: in order of time; of each the columns of the run's own file, and perhaps an id (`event_id`), by
                which it is taken once however often it is given.
            score: False only stores them, which is quicker; it changes no later score.
            facts: what the log is told in the same commit.
            strict: refuse fields that the run does not read, where `unknown_fields` says so.

        Raises:
            TimeOrderError: one is earlier than the one before it, or too far ahead, and such are rejected.
            DataError: one cannot be read.
            StorageError: the log cannot be written.
        """
        self.check_writer()
        draft = run_to_completion(self.drafting(events, score=score, facts=facts, strict=strict))
        first = draft.commit(self.log)
        self.accept(draft)
        self.settle(draft, first)
        return draft.receipts(first)

    def drafting(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        score: bool = True,
        facts: Mapping[str, Any] | None = None,
        strict: bool = True,
    ) -> Steps[Transaction]:
        """Return events scored and observed beside the run, in slices; they are then written, accepted and settled.

        Between slices, and until it is accepted, the run may answer, and does so as if they had not come. There is one
        draft at a time.
        """
        self._catch_up()  # a commit of which we were told that it failed may be on the disk
        strict = strict and self.unknown_fields == "refuse"
        draft = read(events, self.past, self._parser, self.log, strict=strict)
        draft = replace(draft, facts=facts or {}, has_scores=score)
        if draft.stream is None:
            return draft
        scores, after = yield from self._continue(draft.stream, score=score or self.sink is not None)
        return replace(draft, scores=scores, after=after)

    def accept(self, draft: Transaction) -> None:
        """Make the state after a commit the current one. Any thread may call it while no other replaces the state."""
        if draft.after is not None:
            self.past = draft.after

    def settle(self, draft: Transaction, first: int) -> None:
        """Do what is due after events that were committed from a position on: the sink, a snapshot."""
        if draft.columns is not None and draft.after is not None and self.sink is not None:
            self.sink.take(first, draft.columns, draft.scores)
        self._snapshot_if_due()

    def _snapshot_if_due(self) -> None:
        if self.position - self.snapshot_position >= self.snapshot_every:
            try:
                self.snapshot()
            except (HopstateError, MemoryError) as error:  # the log has all that is needed
                warnings.warn(f"no snapshot was kept: {error}", HopstateWarning, stacklevel=3)

    def _after(self, events: Columns, *, score: bool) -> tuple[np.ndarray, StreamState]:
        return run_to_completion(self._continue(self._parser.stream(events, self.past), score=score))

    def _continue(self, new: EventStream, *, score: bool) -> Steps[tuple[np.ndarray, StreamState]]:
        given: dict[str, Any] = {"score": score, "allow_duplicates": True, "checked": True}
        # without weights an event takes microseconds, of which the call of a small slice would be most
        given["slice_size"] = None if isinstance(self.task.source, Untrained) else SLICE
        if self._session is not None and self._session.past is self.past:  # it may have observed open batches
            given["warm_start"] = self._session.queries.warm_start()
        answer, after = yield from run_in_context(
            _inference_mode, continue_stream_sliced(self.task, self.past, new, **given)
        )
        scores = np.full(len(new), np.nan)
        if score:
            scores[self.task.rows_to_score(new)] = answer["score"]
        return scores, after

    def prepare(self) -> None:
        """Move the memory by events that no later one can change any more: questions and the next commit need it."""
        if self.past.tag:
            self.session().queries.latest()

    # ---- answers out --------------------------------------------------------------------------------------
    def session(self) -> QuerySession:
        """Return what questions are put to (`runs.queries`); it stands on the past as it is now."""
        made = self._session
        if made is None:
            made = QuerySession(self.run, self.task, self.past, pace=SliceSizer())
        made = made.over(self.past)
        self._session = made
        return made


@contextmanager
def _inference_mode() -> Iterator[None]:
    with torch.no_grad(), one_thread():
        yield


class ReplicaError(HopstateError):
    """Events were given to a replica."""


class Replica(LiveRun):
    """A live run that follows a log; its own snapshots lie in RUN/replica, the writer's log in RUN/live by default."""

    home = "replica"
    is_replica = True

    def _log_at(self, log: EventLog | str | None) -> EventLog:
        place = log or str(self.run.path / "live")
        return open_log(place, read_only=True) if isinstance(place, str) else place

    def _begin(self, facts: Mapping[str, Any]) -> None:
        if "own_events" not in self.log.facts():
            raise MissingFileError(f"the log of {self.run.path} has not been begun; start its writer first")
