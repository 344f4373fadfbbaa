"""Consecutive crashes of a live run on one log.

No acknowledged event may be lost or duplicated, commits are atomic, and the state after each start is bit-identical to
a replay. A process sends synthetic events in commits of random sizes, reports sent and acknowledged events, and ends by
a fault of its disk (`faulty_disk`) or by SIGKILL at a random moment. The next process continues after the
acknowledged events, so that unacknowledged ones are sent again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, get_args

import numpy as np
from crash_worker import Job, work
from faulty_disk import Fault, Kind

from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateError, HopstateWarning
from hopstate.io.files import make_folder
from hopstate.random import named_rng
from hopstate.serving.event_parser import ID
from hopstate.serving.live import LiveRun

KINDS: tuple[Kind, ...] = get_args(Kind)
_EACH = 200  # maximum events of one process
_OF_A_LOG = 10  # crashes of one log
_CALLS = 120  # disk calls before a fault
_FIRST_CALLS = 20  # disk calls before a fault if there is no log yet


class DurabilityError(AssertionError):
    """A crash lost or doubled an acknowledged event, or left a state that differs from a replay's."""


@dataclass(frozen=True)
class CrashReport:
    """The report of a check that lost nothing.

    Args:
        crashes: faults that occurred, by kind.
        events: in the log at the end.
        slowest: seconds of the slowest start after a crash, beyond the import.
    """

    crashes: dict[str, int]
    events: int
    slowest: float

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self.crashes.items() if count)
        return (
            f"nothing lost or duplicated: {self.events:,} events over {sum(self.crashes.values())} crashes ({counts}); "
            f"each state was bit-identical to a replay; slowest start {self.slowest:.1f} s"
        )


def check_crash(
    run: str | Path,
    folder: str | Path,
    crashes: Mapping[Kind, int],
    *,
    seed: int = 0,
    syncs: bool = True,
    on_crash: Callable[[Kind], None] = lambda kind: None,
) -> CrashReport:
    """Crash a live run repeatedly, and check its log and state each time.

    Args:
        run: the run folder, of a temporal method for links.
        folder: an empty folder for log, snapshots and a second state; it is kept at the end.
        crashes: how many of each kind (`faulty_disk`).
        seed: draws events, commits and faults; the moments of "kill" also depend on the machine.
        syncs: False skips every sync, so that a power failure must lose something.
        on_crash: called with the kind of each crash.

    Raises:
        DurabilityError: an event was lost or duplicated, a commit is incomplete, or a state differs; the message names
            the crash.
        ConfigError: the run's method scores no pairs.
    """
    rng = named_rng(seed, "crashes")
    folder, done, count, slowest = Path(folder), Counter[str](), 0, 0.0
    kinds = [kind for kind in KINDS for _ in range(crashes.get(kind, 0))]
    kinds = [kinds[i] for i in rng.permutation(len(kinds))]
    with warnings.catch_warnings(), LiveRun(run, folder=folder / "replay", device="cpu") as replay:
        warnings.simplefilter("ignore", HopstateWarning)  # about damaged snapshots, which are ignored
        events, began = _made(replay, _EACH * 3 * _OF_A_LOG, rng), replay.past
        for first in range(0, len(kinds), _OF_A_LOG):
            replay.past = began
            state = _Checked(replay, events, run, folder / f"live-{first}")
            for kind in kinds[first : first + _OF_A_LOG]:
                while not state.crash(_drawn(kind, state, rng, syncs)):  # until the fault occurs
                    pass
                done[kind] += 1
                on_crash(kind)
            count += replay.position
            slowest = max(slowest, state.slowest)
        replay.snapshot_position = replay.position
        return CrashReport({kind: done[kind] for kind in KINDS}, count, slowest)


def _drawn(kind: Kind, state: _Checked, rng: np.random.Generator, syncs: bool) -> Job:
    """Return the work of the next process: without a log yet, it crashes early."""
    call = int(rng.integers(1, _CALLS if state.acknowledged else _FIRST_CALLS))
    timed = kind == "kill" and rng.random() < 0.5
    after, opened = (float(rng.uniform(0, 0.5)), bool(rng.random() < 0.7)) if timed else (None, False)
    part = state.events[state.acknowledged : state.acknowledged + _EACH]
    fault = Fault(kind, call, int(rng.integers(1 << 31)), syncs)
    return Job(str(state.run), state.folder, fault, state.acknowledged, after, opened, part)


def warm_context() -> ForkServerContext:
    """Return a fork server context with the imports of this process."""
    context = multiprocessing.get_context("forkserver")
    used = [name for name in sys.modules if name.startswith(("hopstate.", "lightning_fabric."))]
    context.set_forkserver_preload([name for name in used if "._" not in name])
    return context


class _Checked:
    """A crashed log and its expected content."""

    def __init__(self, replay: LiveRun, events: list[dict[str, Any]], run: str | Path, folder: Path) -> None:
        self.replay, self.events, self.run, self.folder = replay, events, run, folder
        self.acknowledged, self.ends, self.slowest = 0, {0}, 0.0
        make_folder(folder)
        self.context = warm_context()

    def crash(self, job: Job) -> bool:
        """Crash a process and check the log afterwards; return whether its fault occurred."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=work, args=(job, theirs))
        process.start()
        theirs.close()
        came, what = job.after is not None, f"{job.fault.kind} at call {job.fault.call} (seed {job.fault.seed})"
        with contextlib.suppress(EOFError), ours:
            while True:
                word, value = ours.recv()
                if word == "sends":
                    self.ends.add(value)
                elif word == "has":
                    first, positions = value
                    if positions != list(range(first, first + len(positions))):
                        raise DurabilityError(f"before {what}, events {first} on were acknowledged at {positions}")
                    self.acknowledged = first + len(positions)
                elif word == "fault":
                    came = True
                else:
                    raise DurabilityError(f"after {what}, the live run ended by itself: {value}")
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise DurabilityError(f"after {what}, the live run ended with exit code {process.exitcode}")
        process.close()
        try:
            self._check(what)
        except DurabilityError:
            raise
        except HopstateError as error:
            raise DurabilityError(f"after {what}, there is no start from {self.folder}: {error}") from error
        return came

    def _check(self, what: str) -> None:
        begin = time.perf_counter()
        with LiveRun(self.run, folder=self.folder, device="cpu") as live:
            self.slowest = max(self.slowest, time.perf_counter() - begin)
            live.snapshot_position = live.position  # the next process starts from the state after the crash
            count, log = len(live.log), live.log
            if count < self.acknowledged:
                raise DurabilityError(f"after {what}, {self.acknowledged - count} acknowledged events are lost")
            place = self.replay.position
            for commit in log.commits(place):
                expected = self.events[commit.first : commit.first + len(commit.bodies)]
                bodies = [json.loads(body) for body in commit.bodies]
                if bodies != [{key: value for key, value in event.items() if key != ID} for event in expected]:
                    raise DurabilityError(f"after {what}, the commit at {commit.first} does not hold what was sent")
                if commit.first + len(bodies) not in self.ends:
                    raise DurabilityError(f"after {what}, the commit at {commit.first} is a part of what was sent")
                self.replay.observe(bodies)
            if self.replay.position != count:
                raise DurabilityError(f"after {what}, commits hold {self.replay.position} events, the log {count}")
            if digest(live.past) != digest(self.replay.past):
                raise DurabilityError(f"after {what}, the state at event {count} is not the replay's")


def digest(past: StreamState) -> str:
    """Return a hash of everything that later scores depend on: events, clock, and memory of every node."""
    found = hashlib.sha256(f"{past.num_nodes} {past.settled} {past.clock} {past.model} {past.tag}".encode())
    events, memories = past.events(), past.memories(np.arange(past.num_nodes))
    latest = past.events(past.settled)
    arrays = [events.src, events.dst, events.t, events.kind, latest.edge_attr]
    if past.node_ids is not None:
        found.update(str(past.node_ids.ids.tolist()).encode())
    arrays += [] if memories is None else [memories.nodes, memories.memory, memories.output, memories.last_time]
    for array in arrays:
        if array is not None:
            found.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _made(live: LiveRun, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return plausible next events: sources, destinations and time deltas of the history, with ties."""
    past = live.past.events(max(0, len(live.past) - 10_000))
    ids = past.node_ids
    ends = [rng.choice(end, count) for end in (past.src, past.dst)]
    src, dst = (end.tolist() if ids is None else ids.names(end).tolist() for end in ends)
    gaps = np.diff(past.t) if len(past) > 1 else np.ones(1, past.t.dtype)
    t = (past.t[-1] + np.cumsum(rng.choice(gaps, count) * (rng.random(count) < 0.7))).astype(past.t.dtype).tolist()
    parser = live._parser
    names = parser._reading.get("edge_columns") or [f"f{i}" for i in range(parser._width)]
    values = rng.normal(size=(count, len(names))).round(3).tolist()
    return [
        {"src": u, "dst": v, "t": when, **dict(zip(names, row, strict=True)), ID: f"e{i}"}
        for i, (u, v, when, row) in enumerate(zip(src, dst, t, values, strict=True))
    ]
