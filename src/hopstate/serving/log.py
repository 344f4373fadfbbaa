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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
FORMAT = "hopstate-log-2"
TABLES = """
create table if not exists facts (key text primary key, value text not null);
create table if not exists commits (first {integer} primary key, events {integer} not null);
create table if not exists events (position {integer} primary key, id {id}, body text not null);
create unique index if not exists ids on events (id) where id is not null;
create table if not exists parked (id {id}, body text not null, why text not null);
create unique index if not exists parked_ids on parked (id) where id is not null;
insert into facts select 'format', '"hopstate-log-2"' where not exists (select * from facts);
"""  # {integer} and {id} are the database's types of positions and ids
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


class Entries:
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
    def of(cls, entries: Entries | Sequence[Entry]) -> Entries:
        if isinstance(entries, Entries):
            return entries
        ids = [entry.id for entry in entries]
        return cls([entry.body for entry in entries], None if ids.count(None) == len(ids) else ids)

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True)
class Commit:
    """Events that were taken together.

    Args:
        first: position of the first in the log, from 0.
        bodies: of all, JSON objects.
    """

    first: int
    bodies: tuple[str, ...]


class EventLog(ABC):
    """A log in a SQL database; `place` names it in messages.

    The tables are those of `TABLES` in both databases. Events without ids share rows (`pack`), an event with an id has
    its row alone. Subclasses connect, and name the errors of their database.
    """

    place: str

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    @abstractmethod
    def _atomic(self) -> AbstractContextManager[Any]:
        """Return a context in which all is done or nothing, by one thread, and reads see one instant."""

    @abstractmethod
    def _insert_events(self, rows: Iterable[tuple[str, str | None, int]]) -> None: ...

    @abstractmethod
    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the positions of the events with these ids, as far as they are in the log."""

    @abstractmethod
    def close(self) -> None: ...

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._atomic():
                yield
        except _DAMAGE as error:
            if isinstance(error, HopstateError):
                raise
            raise CheckpointError(f"{self.place} is damaged ({error}); use a copy, or move it away") from error

    def _encode_id(self, id_: str | None) -> Any:
        return id_

    def __len__(self) -> int:
        """Return how many events were ever logged: the position of the next one."""
        end = "select first + events from commits order by first desc limit 1"
        return int(self._query(f"select coalesce(({end}), 0)")[0][0])

    @property
    def start(self) -> int:
        """Position of the first event that is still in the log."""
        return int(self._query("select coalesce(min(first), 0) from commits")[0][0])

    def append(self, entries: Entries | Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """Make entries one commit, durable when this returns; return the position of the first.

        No entries make no commit. Facts (see `tell`) are written in the same transaction.

        Raises:
            DataError: an id is in the log or stands twice, or a text cannot be stored; nothing was written.
            BusyError: another writer has taken over; nothing was written.
            StorageError: it could not be written; it may be there all the same, as a whole.
        """
        columns = check_entries(entries)
        with self._transaction():
            first = len(self)
            if columns:
                self._query("insert into commits values (?, ?)", (first, len(columns)))
                self._insert_events(pack(columns, first))
            self._write_facts(facts or {})
        return first

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """Return the events at those positions, as far as they are still in the log."""
        query = "select position, body from events where position <= ? order by position desc limit 1"
        found, first, texts = dict[int, str](), 0, list[str]()
        with self._transaction():
            for at in sorted(positions):
                if at >= first + len(texts) and (rows := self._query(query, (at,))):
                    first, texts = rows[0][0], unpack(rows[0][1])
                if first <= at < first + len(texts):
                    found[at] = texts[at - first]
        return found

    def commits(self, first: int | None = None) -> Iterator[Commit]:
        """Yield commits from a position on, or all; of a commit that begins before the position, the rest.

        Raises:
            CheckpointError: the position lies before `start`, or events are missing.
        """
        at = self.start
        if first is not None and first < at:
            raise CheckpointError(
                f"{self.place} begins at event {at}; what came before was cut, and event {first} is asked for"
            )
        at = at if first is None else first
        while page := self._page(at):
            yield from page
            at = page[-1].first + len(page[-1].bodies)

    def _page(self, first: int) -> list[Commit]:
        commits = """select first, events from commits
            where first >= (select coalesce(max(first), 0) from commits where first <= ?) order by first limit ?"""
        rows = """select position, body from events where position < ?
            and position >= (select max(position) from events where position <= ?) order by position"""
        with self._transaction():
            bounds = [(begin, begin + count) for begin, count in self._query(commits, (first, PAGE))]
            bounds = [(begin, end) for begin, end in bounds if end > first]
            ends = [end for _, end in bounds]
            bounds = bounds[: next((k for k, end in enumerate(ends) if end - first >= PAGE), len(ends)) + 1]
            if not bounds:
                return []
            bodies = joined(self._query(rows, (bounds[-1][1], first)), first)
        found, at = [], first
        for begin, end in bounds:
            if begin > at or end - first > len(bodies):
                raise CheckpointError(f"{self.place} lacks events of the commit at {begin}; use a copy")
            found.append(Commit(at, bodies[at - first : end - first]))
            at = end
        return found

    def cut(self, position: int) -> int:
        """Drop commits that lie wholly before a position, the last one never; return where the log begins now."""
        with self._transaction():
            start = self._query("select coalesce(max(first), 0) from commits where first <= ?", (position,))[0]
            self._query("delete from events where position < ?", start)
            self._query("delete from commits where first < ?", start)
        return self.start

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """Store entries outside the log, each id once, durable when this returns."""
        check_entries(entries)
        rows = [(self._encode_id(entry.id), entry.body, why) for entry in entries]
        with self._transaction():
            self._execute_many("insert into parked values (?, ?, ?) on conflict do nothing", rows)

    def parked(self) -> int:
        """Return how many entries were parked."""
        return int(self._query("select count(*) from parked")[0][0])

    def facts(self) -> dict[str, Any]:
        with self._transaction():
            return {key: json.loads(value) for key, value in self._query("select key, value from facts")}

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Set facts: key to any JSON value."""
        with self._transaction():
            self._write_facts(facts)

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        query = "insert into facts values (?, ?) on conflict (key) do update set value = excluded.value"
        self._execute_many(query, [(key, json.dumps(value)) for key, value in facts.items()])

    def _check_format(self) -> None:
        found = self.facts().get("format")
        if found != FORMAT:
            raise CheckpointError(f"{self.place} is no log of this version (format {found!r}); choose another place")


def check_entries(entries: Entries | Sequence[Entry]) -> Entries:
    """Return entries as columns, refusing what no log takes."""
    found = Entries.of(entries)
    ids = [] if found.ids is None else [one for one in found.ids if one is not None]
    if len(set(ids)) < len(ids):
        raise DataError(known_id("the log"))
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


def known_id(place: object) -> str:
    """Return what is told of an id that comes twice."""
    return f"an event's id is in {place} already, or stands here twice; nothing was taken"


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


def pack(entries: Entries, first: int) -> Iterable[tuple[str, str | None, int]]:
    """Return rows of (texts, id, position of the first) from a position on; an event with an id has its row alone."""
    if entries.ids is not None:
        return zip(entries.bodies, entries.ids, range(first, first + len(entries)))
    if entries.together is not None and len(entries) <= ROW_EVENTS:
        return [(entries.together, None, first)]
    cuts = range(0, len(entries), ROW_EVENTS)
    return [(BETWEEN.join(entries.bodies[cut : cut + ROW_EVENTS]), None, first + cut) for cut in cuts]


def unpack(row: object) -> list[str]:
    """Return the texts of a row; ValueError if it holds something else."""
    if not isinstance(row, str):
        raise ValueError(f"{str(row)[:40]!r} is no text")
    return row.split(BETWEEN)


def joined(rows: Iterable[tuple[int, object]], first: int) -> tuple[str, ...]:
    """Return the texts of rows from a position on, up to the first gap.

    Args:
        rows: positions of their first texts, rising, and rows; the first one may begin earlier.
        first: position.
    """
    found: list[str] = []
    for position, row in rows:
        skipped = first + len(found) - position
        if skipped < 0 or (found and skipped):
            break
        found += unpack(row)[skipped:]
    return tuple(found)


class SqliteLog(EventLog):
    """A log in a file.

    Args:
        folder: where; made if there is none.
        read_only: read while another process may write.
        vfs: name of SQLite's layer to the disk; SQLite's own if None.

    Raises:
        MissingExtraError: apsw is not installed.
        MissingFileError: there is no log to read.
        BusyError: another process writes it.
        CheckpointError: the file is no log of this version, or damaged.
        StorageError: it cannot be opened.
    """

    def __init__(self, folder: str | Path, *, read_only: bool = False, vfs: str | None = None) -> None:
        self.path = Path(folder) / NAME
        self.place = str(self.path)
        self._apsw = apsw = _apsw()
        if read_only and not self.path.is_file():
            raise MissingFileError(f"no log in {folder}; `hopstate serve` makes one")
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._resources, self._lock = ExitStack(), threading.RLock()
        if not read_only:
            self._resources.enter_context(file_lock(self.path))
        try:
            self._open(flags, vfs)
            if not read_only:
                with named_errors(self.path, "bring to disk"):
                    sync_folder(self.path.parent)
            self._check_format()
            self._check_end()
        except BaseException:
            self._resources.close()
            raise

    def _open(self, flags: int, vfs: str | None) -> None:
        try:
            self._file = self._apsw.Connection(self.place, flags=flags, vfs=vfs)
            self._file.set_busy_timeout(5_000)
            self._file.execute("pragma trusted_schema = off")
            if flags & self._apsw.SQLITE_OPEN_READONLY:
                return
            self._file.execute("pragma journal_mode = wal")
            self._file.execute("pragma synchronous = full")
            with self._file:  # all or nothing: a start that was killed leaves no log without a format
                self._file.execute(TABLES.format(integer="integer", id="text"))
        except self._apsw.Error as error:
            raise self._named(error) from error

    def _check_end(self) -> None:
        with self._transaction():
            last = self._query("select position, body from events order by position desc limit 1")
            ends = [position + len(unpack(row)) for position, row in last]
        if ends not in ([], [len(self)]):
            raise CheckpointError(
                f"{self.place} has commits up to event {len(self)}, and events to {ends[0]}; use a copy"
            )

    def _named(self, error: Exception) -> HopstateError:
        if isinstance(error, self._apsw.ConstraintError):
            return DataError(known_id(self.place))
        if isinstance(error, (self._apsw.CorruptError, self._apsw.NotADBError)):
            return CheckpointError(f"{self.place} is damaged ({error}); use a copy, or move it away")
        return StorageError(f"{self.place} cannot be written or read ({error}); see whether the disk is full")

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        try:
            with self._lock, self._file:
                yield
        except self._apsw.Error as error:
            raise self._named(error) from error

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._file.execute(sql, values).fetchall()
        except self._apsw.Error as error:
            raise self._named(error) from error

    def _execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._file.executemany(sql, rows)

    def _insert_events(self, rows: Iterable[tuple[str, str | None, int]]) -> None:
        self._execute_many("insert into events (body, id, position) values (?, ?, ?)", rows)

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        query = "select id, position from events where id = ?"
        with self._transaction():
            return dict(self._file.executemany(query, [(one,) for one in ids]))

    def close(self) -> None:
        with self._resources:
            self._file.close()


def _apsw() -> Any:
    try:
        import apsw
    except ImportError:
        raise MissingExtraError("a live run needs apsw: pip install 'hopstate[serve]'") from None
    return apsw


def rows(texts: Sequence[str], first: int, place: object) -> list[dict[str, Any]]:
    """Return events as they were logged, from a position on."""
    with sound(place, first, len(texts)):
        found = [json.loads(text) for text in texts]
        if _are_events(found):
            return found
    wrong = next(k for k, row in enumerate(found) if not _are_events([row]))
    raise CheckpointError(f"{place} is damaged: event {first + wrong} is {str(texts[wrong])[:80]!r}; use a copy")


@contextmanager
def sound(place: object, first: int, many: int) -> Iterator[None]:
    """Within it what is wrong with so many logged events, from a position on, is told by the log's name."""
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
