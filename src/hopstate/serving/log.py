"""The log of a live run: events in the order of their commits, each durable before it is acknowledged.

An event is a JSON object as text. A commit is a group of events that were taken together; its boundary is recorded. An
event with an id that the log holds already changes nothing and has the position of the first. There is one writer, and
readers see whole commits. What lies before a position may be cut off; ids are known as long as their events are kept.

`SqliteLog` is a file in WAL mode with synchronous=FULL, so a commit returns when it is on the disk. Its writer holds a
lock next to the file. `postgres_log.PostgresLog` is the other log. Both pass tests/serving/log_conformance.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, overload

from hopstate.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    HopstateError,
    MissingExtraError,
    MissingFileError,
    StorageError,
)
from hopstate.io.files import file_lock, is_broken, named_errors, sync_folder

BETWEEN = "\x1e"  # no JSON holds it, so texts may stand together with it between them
PAGE = 1_000  # commits, or a few more events, that are read at a time
ROW_EVENTS = 1_000  # events in a row, all of which are read for one of them
NAME = "log.sqlite"
_FORMAT = "hopstate-log-2"
_TABLES = """
create table if not exists facts (key text primary key, value text not null) without rowid;
create table if not exists commits (first integer primary key, events integer not null);
create table if not exists events (position integer primary key, id text, body text not null);
create unique index if not exists ids on events (id) where id is not null;
create table if not exists parked (id text, body text not null, why text not null);
create unique index if not exists parked_ids on parked (id) where id is not null;
insert into facts select 'format', '"{format}"' where not exists (select * from facts);
"""
# what reading a damaged file raises: values of other types than were written, and missing rows
_DAMAGE = (ValueError, TypeError, LookupError, RecursionError, StopIteration)
# what reading a damaged event raises
_UNREADABLE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
_ID_TYPES, _NUMBER_TYPES, _VALUE_TYPES = {str, int}, {int, float}, {str, int, float, type(None)}


class Entry(NamedTuple):
    """An event to be logged.

    Args:
        body: a JSON object.
        id: tells it from others, None where nothing does.
    """

    body: str
    id: str | None = None


class Entries(Sequence[Entry]):
    """Entries as columns: to make each of them takes longer than to log them.

    Args:
        bodies: of all; or one text with `BETWEEN` between them.
        ids: of all, None where none has any.
    """

    def __init__(self, bodies: Sequence[str] | str, ids: Sequence[str | None] | None = None) -> None:
        self._bodies, self.ids = bodies, ids
        self._count = bodies.count(BETWEEN) + 1 if isinstance(bodies, str) else len(bodies)

    @property
    def bodies(self) -> Sequence[str]:
        """Each by itself."""
        if isinstance(self._bodies, str):
            self._bodies = self._bodies.split(BETWEEN)
        return self._bodies

    @property
    def together(self) -> str | None:
        """All in one text, None where they stand each by itself."""
        return self._bodies if isinstance(self._bodies, str) else None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Entries:
        if isinstance(entries, Entries):
            return entries
        ids = [entry.id for entry in entries]
        return cls([entry.body for entry in entries], None if ids.count(None) == len(ids) else ids)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, k: int) -> Entry: ...
    @overload
    def __getitem__(self, k: slice) -> Entries: ...
    def __getitem__(self, k: int | slice) -> Entry | Entries:
        if isinstance(k, slice):
            return Entries(self.bodies[k], None if self.ids is None else self.ids[k])
        return Entry(self.bodies[k], None if self.ids is None else self.ids[k])


@dataclass(frozen=True)
class Commit:
    """Events that were taken together.

    Args:
        first: position of the first in the log, from 0.
        bodies: of all, JSON objects.
    """

    first: int
    bodies: tuple[str, ...]


class EventLog(Protocol):
    """What a live run asks of a log; `place` names it in messages."""

    place: str

    def __len__(self) -> int:
        """Events that were ever taken: the position of the next one."""
        ...

    @property
    def start(self) -> int:
        """Position of the first event that is kept."""
        ...

    def append(self, entries: Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """Make entries one commit, on the disk when this returns; return the position of the first.

        No entries make no commit.

        Args:
            entries: the events.
            facts: what is told (see `tell`) in the same commit, both or neither.

        Raises:
            DataError: an id that the log holds, or one twice, or a text that no file can hold; nothing was taken.
            BusyError: another writer has taken over; nothing was taken.
            StorageError: it could not be written; it may be there all the same, as a whole.
        """
        ...

    def positions(self, ids: Sequence[str]) -> dict[str, int]: ...

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """Return the events at those positions that are kept."""
        ...

    def commits(self, first: int | None = None) -> Iterator[Commit]:
        """Yield what was committed from a position on, or all; of a commit that begins before it, the rest.

        Raises:
            CheckpointError: what stood there is not kept any more, or is missing.
        """
        ...

    def cut(self, position: int) -> int:
        """Drop commits that lie wholly before a position, the last one never; return where the log begins now."""
        ...

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """Keep entries aside, each id once, on the disk when this returns."""
        ...

    def parked(self) -> int:
        """Return how many entries were kept aside."""
        ...

    def facts(self) -> dict[str, Any]: ...

    def tell(self, facts: Mapping[str, Any]) -> None: ...

    def close(self) -> None:
        """Let go of it."""
        ...


def check_entries(entries: Sequence[Entry]) -> Entries:
    """Return entries as columns, refusing what no log takes.

    Raises:
        DataError: an id stands twice, or a text is none that a file can hold, or not JSON's.
    """
    found = Entries.of(entries)
    ids = [] if found.ids is None else [one for one in found.ids if one is not None]
    if len(set(ids)) < len(ids):
        raise DataError(taken("the log"))
    bodies = found.together or "".join(found.bodies)
    if found.together is None and BETWEEN in bodies:
        wrong = next(body for body in found.bodies if BETWEEN in body)
        raise DataError(f"a text holds a bare control character, which no JSON does: {wrong[:40]!r}; nothing was taken")
    if bodies.isascii() and "".join(ids).isascii():
        return found
    for text in (*found.bodies, *ids):
        if not text.isascii() and is_broken(text):
            raise DataError(f"a text holds half a character, which no file can: {text[:40]!r}; nothing was taken")
    return found


def taken(place: object) -> str:
    """Return what is told of an id that comes twice."""
    return f"an event's id is in {place} already, or stands here twice; nothing was taken"


def paged(page: Callable[[int], list[Commit]], at: int) -> Iterator[Commit]:
    while found := page(at):
        yield from found
        at = found[-1].first + len(found[-1].bodies)


def check_start(first: int | None, start: int, place: object) -> int:
    """Return where to read from.

    Raises:
        CheckpointError: it lies before what is kept.
    """
    if first is not None and first < start:
        raise CheckpointError(
            f"{place} begins at event {start}; what came before was cut, and event {first} is asked for"
        )
    return start if first is None else first


def bulks(log: EventLog, first: int, least: int) -> Iterator[list[str]]:
    """Yield the events of a log from a position on, whole commits together until they are so many."""
    bodies: list[str] = []
    for commit in log.commits(first):
        bodies += commit.bodies
        if len(bodies) >= least:
            yield bodies
            bodies = []
    if bodies:
        yield bodies


def packed(entries: Entries, first: int) -> Iterable[tuple[str, str | None, int]]:
    """Return rows of (texts, id, position of the first), from a position on; an id has its row alone."""
    if entries.ids is not None:
        return zip(entries.bodies, entries.ids, range(first, first + len(entries)))
    if entries.together is not None and len(entries) <= ROW_EVENTS:
        return [(entries.together, None, first)]
    cuts = range(0, len(entries), ROW_EVENTS)
    return [(BETWEEN.join(entries.bodies[cut : cut + ROW_EVENTS]), None, first + cut) for cut in cuts]


def texts(row: object) -> list[str]:
    """Return the texts of a row.

    Raises:
        ValueError: it holds something else.
    """
    if not isinstance(row, str):
        raise ValueError(f"{str(row)[:40]!r} is no text")
    return row.split(BETWEEN)


def from_rows(rows: Iterable[tuple[int, object]], at: int, end: int) -> tuple[str, ...] | None:
    """Return the texts of positions at .. end-1, None where some are missing.

    Args:
        rows: positions of their first texts, rising, and rows; the first one may begin earlier.
        at, end: positions.
    """
    found: list[str] = []
    for position, row in rows:
        skipped = at + len(found) - position
        if skipped < 0 or (found and skipped):
            return None
        found += texts(row)[skipped:]
    return tuple(found) if len(found) == end - at else None


class SqliteLog:
    """A log in a file.

    Args:
        folder: where; made where there is none.
        read_only: look at it while another process may write.
        vfs: SQLite's way to the disk, by name; its own where None.

    Raises:
        MissingExtraError: apsw is not installed.
        MissingFileError: there is no log to be read.
        BusyError: another writes it.
        CheckpointError: the file is no log of this version, or damaged.
        StorageError: it cannot be opened.
    """

    def __init__(self, folder: str | Path, *, read_only: bool = False, vfs: str | None = None) -> None:
        self.path = Path(folder) / NAME
        self.place = str(self.path)
        apsw = _apsw()
        if read_only and not self.path.is_file():
            raise MissingFileError(f"no log in {folder}; `hopstate serve` makes one")
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._held, self._one_by_one = ExitStack(), threading.RLock()
        if not read_only:
            self._held.enter_context(file_lock(self.path))
        try:
            self._open(flags, vfs, read_only=read_only)
            if not read_only:
                with named_errors(self.path, "bring to disk"):
                    sync_folder(self.path.parent)
            found = self.facts().get("format")
            if found != _FORMAT:
                raise CheckpointError(f"{self.path} is no log of this version (format {found!r}); move it away")
            end = self._end()
            if end not in (None, len(self)):
                raise CheckpointError(
                    f"{self.path} has commits up to event {len(self)}, and events to {end}; use a copy"
                )
        except BaseException:
            self._held.close()
            raise

    def _open(self, flags: int, vfs: str | None, *, read_only: bool) -> None:
        apsw = _apsw()
        with _named(self.path):
            self._file = apsw.Connection(str(self.path), flags=flags, vfs=vfs)
            self._file.set_busy_timeout(5_000)
            self._pragma("trusted_schema", "off")
            if not read_only:
                self._pragma("journal_mode", "wal")
                self._pragma("synchronous", "full")
                with self._file:  # all of it or nothing: a start that was killed leaves no log of no format
                    self._file.execute(_TABLES.format(format=_FORMAT))

    def _pragma(self, name: str, value: str) -> None:
        self._file.execute(f"pragma {name} = {value}")

    def _one(self, query: str) -> Any:
        with self._one_by_one, _named(self.path):
            return next(iter(self._file.execute(query)))[0]

    def _end(self) -> int | None:
        """Return the position after the last event that has a row, None without any."""
        with self._one_by_one, _named(self.path):
            for position, row in self._file.execute("select position, body from events order by position desc limit 1"):
                return int(position) + len(texts(row))
        return None

    def __len__(self) -> int:
        return int(self._one("select coalesce((select first + events from commits order by first desc limit 1), 0)"))

    @property
    def start(self) -> int:
        """See `EventLog.start`."""
        return int(self._one("select coalesce(min(first), 0) from commits"))

    def append(self, entries: Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """See `EventLog.append`."""
        columns = check_entries(entries)
        try:
            with self._one_by_one, _named(self.path), self._file:
                first = len(self)
                if columns:
                    self._file.execute("insert into commits values (?, ?)", (first, len(columns)))
                    rows = packed(columns, first)
                    self._file.executemany("insert into events (body, id, position) values (?, ?, ?)", rows)
                self._tell(facts or {})
        except _TakenError as error:
            raise DataError(taken(self.path)) from error
        return first

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """See `EventLog.positions`."""
        query = "select id, position from events where id = ?"
        with self._one_by_one, _named(self.path):
            return dict(self._file.executemany(query, [(one,) for one in ids]))

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """See `EventLog.bodies`."""
        query, found = "select position, body from events where position <= ? order by position desc limit 1", {}
        begin, held = 0, list[str]()
        with self._one_by_one, _named(self.path):
            for at in sorted(positions):
                if at >= begin + len(held):
                    begin, row = next(iter(self._file.execute(query, (at,))), (0, None))
                    held = [] if row is None else texts(row)
                if begin <= at < begin + len(held):
                    found[at] = held[at - begin]
        return found

    def commits(self, first: int | None = None) -> Iterator[Commit]:
        """See `EventLog.commits`."""
        return paged(self._page, check_start(first, self.start, self.path))

    def _page(self, first: int) -> list[Commit]:
        bounds, found = "select first, events from commits where first + events > ? order by first limit ?", []
        bodies = "select position, body from events where position >= ? and position < ? order by position"
        before = "select max(position) from events where position <= ?"
        at = first
        with self._one_by_one, _named(self.path), self._file:
            for begin, count in self._file.execute(bounds, (first, PAGE)).fetchall():
                start = at if at == begin else next(iter(self._file.execute(before, (at,))))[0]
                mine = from_rows(self._file.execute(bodies, (start, begin + count)), at, begin + count)
                if begin > at or mine is None:
                    raise CheckpointError(f"{self.path} lacks events of the commit at {begin}; use a copy")
                found.append(Commit(at, mine))
                at = begin + count
                if at - first >= PAGE:
                    break
        return found

    def cut(self, position: int) -> int:
        """See `EventLog.cut`."""
        whole = "select max(first) from commits where first <= ?"
        with self._one_by_one, _named(self.path), self._file:
            start = next(iter(self._file.execute(whole, (position,))))[0] or 0
            self._file.execute("delete from events where position < ?", (start,))
            self._file.execute("delete from commits where first < ?", (start,))
        return self.start

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """See `EventLog.park`."""
        check_entries(entries)
        with self._one_by_one, _named(self.path), self._file:
            self._file.executemany(
                "insert or ignore into parked values (?, ?, ?)", [(e.id, e.body, why) for e in entries]
            )

    def parked(self) -> int:
        """See `EventLog.parked`."""
        return int(self._one("select count(*) from parked"))

    def facts(self) -> dict[str, Any]:
        """See `EventLog.facts`."""
        with self._one_by_one, _named(self.path):
            return {key: json.loads(value) for key, value in self._file.execute("select key, value from facts")}

    def tell(self, facts: Mapping[str, Any]) -> None:
        """See `EventLog.tell`."""
        with self._one_by_one, _named(self.path), self._file:
            self._tell(facts)

    def _tell(self, facts: Mapping[str, Any]) -> None:
        rows = [(key, json.dumps(value)) for key, value in facts.items()]
        self._file.executemany("insert or replace into facts values (?, ?)", rows)

    def close(self) -> None:
        """See `EventLog.close`."""
        with self._held, _named(self.path):
            self._file.close()


class _TakenError(Exception):
    """An id is there already."""


class _named:  # noqa: N801 - a context manager
    """Within it errors of SQLite are told by name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        apsw = _apsw()
        if isinstance(error, apsw.ConstraintError):
            raise _TakenError from error
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError, *_DAMAGE)) and not isinstance(error, HopstateError):
            raise CheckpointError(f"{self.path} is damaged ({error}); use a copy, or move it away") from error
        if isinstance(error, apsw.Error):
            raise StorageError(
                f"{self.path} cannot be written or read ({error}); see whether the disk is full"
            ) from error


def _apsw() -> Any:
    try:
        import apsw
    except ImportError:
        raise MissingExtraError("a live run needs apsw: pip install 'hopstate[serve]'") from None
    return apsw


def rows(texts: Sequence[str], first: int, place: object) -> list[dict[str, Any]]:
    """Return events as they were logged, from a position on.

    Raises:
        CheckpointError: one is none.
    """
    with sound(place, first, len(texts)):
        found = [json.loads(text) for text in texts]
        if _are_events(found):
            return found
    wrong = next(k for k, row in enumerate(found) if not _are_events([row]))
    raise CheckpointError(f"{place} is damaged: event {first + wrong} is {str(texts[wrong])[:80]!r}; use a copy")


@contextmanager
def sound(place: object, first: int, many: int) -> Iterator[None]:
    """Within it what is wrong with so many logged events, from a position on, is told by the log's name.

    Raises:
        CheckpointError: in place of what is no error of this library.
    """
    try:
        yield
    except _UNREADABLE as error:
        where = f"{place}, events {first} to {first + many - 1}"
        if isinstance(error, HopstateError):
            raise type(error)(f"{where}: {error}") from error
        raise CheckpointError(
            f"{where}: something else than was logged ({type(error).__name__}: {error}); use a copy, or move it away"
        ) from error


def _are_events(found: Sequence[Any]) -> bool:
    if not {dict}.issuperset(map(type, found)):
        return False
    try:
        ends = {type(row[end]) for row in found for end in ("src", "dst")}
        times = {type(row["t"]) for row in found}
    except KeyError:
        return False
    return (
        ends <= _ID_TYPES
        and times <= _NUMBER_TYPES
        and _VALUE_TYPES.issuperset(type(v) for row in found for v in row.values())
    )


def open_log(place: str | Path, *, read_only: bool = False) -> EventLog:
    """Return the log at a place.

    Args:
        place: a folder, in which `SqliteLog` has a file, or the address of a `PostgresLog`.
        read_only: look at it while another process may write.

    Raises:
        ConfigError: no such kind of place.
        Others: see `SqliteLog`, `PostgresLog`.
    """
    if str(place).startswith(("postgresql://", "postgres://")):
        from hopstate.serving.postgres_log import PostgresLog  # it builds on this module

        return PostgresLog(str(place), read_only=read_only)
    if "://" in str(place):
        kind = str(place).partition("://")[0]
        raise ConfigError(f"no log is called {kind}://; give a folder or postgresql://...")
    return SqliteLog(place, read_only=read_only)
