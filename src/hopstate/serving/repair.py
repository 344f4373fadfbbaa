"""What is intact of a damaged log, as a log again; what is damaged is moved aside and never changed.

A lost event leaves no gap: those after it move up, and snapshots that have seen them or it are moved aside too. Where
the log was cut, a snapshot must lead on to it: if none does, the log begins at one that has seen what was lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast
from warnings import warn

from hopstate.data.stream_checkpoint import HEAD, earlier_heads, num_events_of
from hopstate.errors import CheckpointError, HopstateError, HopstateWarning
from hopstate.io.files import locked, make_folder, named_errors, remove_file, sync_folder
from hopstate.runs.load import load_run, state_after_run_data
from hopstate.runs.saved_run import SavedRun
from hopstate.serving.live import signature
from hopstate.serving.log import (
    ACKNOWLEDGED,
    FORMAT,
    NAME,
    PAGE,
    REPAIRED,
    AcknowledgedPosition,
    EventLog,
    Row,
    SqliteLog,
    locked_folder,
    open_log,
    with_checksums,
)
from hopstate.streaming.live import fingerprint
from hopstate.streaming.protocols import LiveTask

Salvage = Callable[[EventLog | None, EventLog, int], None]


@dataclass(frozen=True)
class Repair:
    """What became of a log."""

    place: str
    start: int  # bounds of its positions now
    end: int
    lost: tuple[tuple[int, int], ...] = ()  # first and last position of events that were lost, as they were before
    aside: str = ""  # where the damaged log is now, "" if it was intact

    def __str__(self) -> str:
        found = f"{self.place}: {self.end - self.start} intact events"
        if not self.aside:
            return f"{found}; nothing was changed"
        ranges = [f"{first}" if first == last else f"{first} to {last}" for first, last in self.lost]
        many = sum(last - first + 1 for first, last in self.lost)
        told = f"lost: {many} events, at {', '.join(ranges)}" if ranges else "lost: none"
        begin = f", from event {self.start} on" if self.start else ""
        return f"{found}{begin}; {told}; the damaged log is kept in {self.aside}"


def repair(run: str | Path, folder: str | Path | None = None, log: str | None = None, **options: Any) -> Repair:
    """Keep what is intact of a live run's log; options are those of `LiveRun`.

    Raises:
        BusyError: it is being written.
        CheckpointError: it is a log of another version; or it was cut, and no snapshot leads on to what is intact.
    """
    home = SavedRun.open(run).path / "live" if folder is None else Path(folder)
    with locked(home, "a live run"):
        with suppress(CheckpointError), closing(open_log(log or home)) as found:
            return Repair(found.place, found.start, len(found))
        snapshots = next(path for n in count(1) if not (path := home / f"damaged-{n}").exists())
        salvage = partial(_salvage, Path(run), home / "state", snapshots, options)
        if log is not None and "://" in log:
            from hopstate.serving.postgres_log import repair_schema

            aside = repair_schema(log, salvage)
        else:
            aside = _repair_file(Path(log or home), salvage)
        with closing(open_log(log or home, read_only=True)) as found:
            lost = tuple((first, last) for first, last in found.facts()["lost"])
            return Repair(found.place, found.start, len(found), lost, aside)


def _repair_file(folder: Path, salvage: Salvage) -> str:
    """Replace a log in a folder; a call that was killed is completed by the next."""
    ready, part = folder / REPAIRED, folder / f".{REPAIRED}.part"
    with locked_folder(folder), named_errors(folder, "repair a log in"):
        if not (ready / NAME).exists():
            shutil.rmtree(ready, ignore_errors=True)
            shutil.rmtree(part, ignore_errors=True)
            is_there = (folder / NAME).is_file() and (folder / NAME).stat().st_size > 0
            acknowledged = 0
            with suppress(CheckpointError):
                acknowledged = AcknowledgedPosition.read(folder / ACKNOWLEDGED) or 0
            new = SqliteLog(part)
            old = SqliteLog(folder, read_only=True, verify=False) if is_there else None
            with closing(new), nullcontext() if old is None else closing(old):
                salvage(old, new, acknowledged)
            part.rename(ready)
            sync_folder(folder)
        aside = make_folder(
            next(path for n in count(1) if not (path := folder / f"damaged-{n}" / NAME).exists()).parent
        )
        for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
            with suppress(FileNotFoundError):
                (folder / name).rename(aside / name)
        if (ready / ACKNOWLEDGED).exists():
            with suppress(FileNotFoundError):
                (folder / ACKNOWLEDGED).rename(aside / ACKNOWLEDGED)
            (ready / ACKNOWLEDGED).rename(folder / ACKNOWLEDGED)
        sync_folder(aside)
        (ready / NAME).rename(folder / NAME)
        sync_folder(folder)
        shutil.rmtree(ready)
        return str(aside)


def _salvage(
    run: Path, state: Path, aside: Path, options: dict[str, Any], old: EventLog | None, new: EventLog, acknowledged: int
) -> None:
    """Copy what is intact to a new log; move snapshots aside that do not agree with it."""
    facts = {} if old is None else old.intact_facts()
    if facts.get("format", FORMAT) != FORMAT:
        raise CheckpointError(f"the log in {state.parent} is of another version (format {facts['format']!r})")
    if not {"model", "run", "own_events"} <= facts.keys():
        with load_run(run, bare=True, **options) as (_, task):
            own, live_task = SavedRun.open(run), cast(LiveTask[Any], task)
            known = len(state_after_run_data(own, live_task))
            facts |= {"model": fingerprint(live_task), "run": signature(own), "own_events": known}
    snapshots = list[tuple[int, Path]]()
    for path in (state / HEAD, *earlier_heads(state)):
        with suppress(HopstateError, LookupError, TypeError):  # a damaged one is of no use
            snapshots.append((num_events_of(path) - facts["own_events"], path))
    start, end = facts.get("start", 0), max(facts.get("end", 0), acknowledged)
    lost = list[tuple[int, int]]()
    is_empty = not sum(1 for _ in _intact(old, start, end, lost))
    agreeing = [at for at, _ in snapshots if start <= at <= (lost[0][0] if lost else end)]
    if (start and not agreeing) or (is_empty and snapshots):
        usable = [at for at, _ in snapshots if at >= start]
        if not usable:
            raise CheckpointError(
                f"the log begins at event {start}, and no snapshot in {state} leads on; put a copy back"
            )
        start = max(usable) if is_empty else min(usable)
    later = list[tuple[int, int]]()
    with new._atomic():
        new._insert_rows(with_checksums(_intact(old, start, end, later)))
        ((last,),) = new._query("select max(position) from events")
        place = start if last is None else last + 1
        try:
            dead_letters = [] if old is None else old._query("select id, body, why from dead_letters")
        except HopstateError as error:
            dead_letters = []
            warn(f"the dead letters of the damaged log are lost: {error}", HopstateWarning, stacklevel=2)
        new._execute_many("insert into dead_letters values (?, ?, ?)", dead_letters)
        new._write_facts(facts | {"start": start, "end": place, "lost": lost})
    if new._acknowledged is not None:
        new._acknowledged.write(place)
    if later:
        _set_aside(state, aside, [path for at, path in snapshots if at > later[0][0]])


def _intact(old: EventLog | None, start: int, end: int, lost: list[tuple[int, int]]) -> Iterator[Row]:
    """Yield intact rows from a position on, moved up over what is lost, whose ranges are appended."""
    at, to, low = start, start, start
    while old is not None and (low < end or low <= at):
        rows = list(old.intact(low, low + PAGE))
        for row in rows:
            if row.position > at:
                lost.append((at, row.position - 1))
                row = row._replace(begins=1)
            yield row._replace(position=to)
            at, to = row.position + 1, to + 1
        low = low + PAGE if rows else _next_position(old, low + PAGE, end)
    if at < end:
        lost.append((at, end - 1))


def _next_position(old: EventLog, low: int, end: int) -> int:
    """Return the next position with a row, `end` if there is none; a damaged log is searched page by page."""
    try:
        ((position,),) = old._query("select min(position) from events where position >= ?", (low,))
    except CheckpointError:
        return low
    return max(low, end) if position is None else int(position)


def _set_aside(state: Path, aside: Path, heads: list[Path]) -> None:
    """Move heads of snapshots aside, and link their files there, which others may share."""
    kept = make_folder(aside / "state")
    for path in state.iterdir() if heads else ():
        if path.suffix == ".safetensors":
            with suppress(FileExistsError):
                os.link(path, kept / path.name)
    for path in heads:
        os.link(path, kept / path.name)
        remove_file(path)
    sync_folder(kept)
