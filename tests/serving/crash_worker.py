"""The crashing process of `check_crash`: a live run on a faulty disk, which reports sent and acknowledged events."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from faulty_disk import VFS, Fault, FaultyDisk

from hopstate.errors import StorageError
from hopstate.random import named_rng
from hopstate.serving.event_parser import NEVER
from hopstate.serving.live import LiveRun
from hopstate.serving.log import SqliteLog

_SNAPSHOTS = 60  # events between snapshots
_TRIES = 12  # retries after a disk error


@dataclass(frozen=True)
class Job:
    """The work of a process.

    Args:
        run: as in `check_crash`.
        folder: of log and snapshots.
        fault: of its disk; ignored if it is killed after some time.
        first: position of the first event.
        after: seconds after which it is killed, or None.
        opened: whether they count from the first acknowledgement.
        events: its events.
    """

    run: str
    folder: Path
    fault: Fault
    first: int
    after: float | None
    opened: bool
    events: Sequence[Mapping[str, Any]]


class _Log(SqliteLog):
    """A log on the faulty disk with frequent checkpoints of its journal, and optionally without syncs."""

    def __init__(self, folder: Path, *, syncs: bool) -> None:
        super().__init__(folder, vfs=VFS)
        self._file.execute("pragma wal_autocheckpoint = 30")
        if not syncs:
            self._file.execute("pragma synchronous = off")


def work(job: Job, pipe: Connection) -> None:
    """Send events until the disk fails, or SIGKILL at the end."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    killer = threading.Thread(target=_kill, args=(job.after,), daemon=True)
    if job.after is not None and not job.opened:
        killer.start()
    try:
        fault = job.fault if job.after is None else Fault("kill", 1 << 60, 0, job.fault.syncs)
        FaultyDisk(job.folder / "state", job.folder.parent / "synced", fault, lambda: pipe.send(("fault", None)))
        rng = named_rng(job.fault.seed, "commits")
        live = _tried(lambda: _open(job))
        place = 0
        while place < len(job.events):
            part = job.events[place : place + int(rng.integers(1, 12))]
            first = job.first + place
            pipe.send(("sends", first + len(part)))
            receipts = _tried(lambda part=part: live.take(part))  # type: ignore[misc]
            pipe.send(("has", (first, [receipt.position for receipt in receipts])))
            place += len(part)
            if job.after is not None and job.opened and not killer.is_alive():
                killer.start()
        if rng.random() < 0.5:
            _tried(live.close)
    except BaseException as error:
        pipe.send(("error", f"{type(error).__name__}: {error}"))
        raise
    _kill(0)


def _open(job: Job) -> LiveRun:
    log = _Log(job.folder, syncs=job.fault.syncs)
    options: dict[str, Any] = {"snapshot_every": _SNAPSHOTS, "device": "cpu", "max_clock_skew": NEVER}
    return LiveRun(job.run, folder=job.folder, log=log, **options)


def _tried(call: Callable[[], Any]) -> Any:
    """Call, and retry after disk errors, as clients do."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(StorageError):
            return call()
    return call()


def _kill(after: float) -> None:
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)
