"""The log of a live run: events in the order of their commits, each durable before it is acknowledged.

An event is a JSON object as text. A commit is a group of events that were taken together; its boundary is recorded. An
event with an id that the log holds already changes nothing and has the position of the first. There is one writer, and
readers see whole commits. What lies before a position may be cut off; ids are known as long as their events are kept.

Each row has a checksum, and how far events were acknowledged is kept apart from them. Whoever opens a log reads all of
it, and refuses one of which an acknowledged event is damaged or missing; `repair` keeps the rest of it.

`SqliteLog` is a file in WAL mode with synchronous=FULL, so a commit returns when it is on the disk. Its writer locks
the folder itself. `postgres_log.PostgresLog` is the other log. Both pass tests/serving/log_conformance.py.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

from hopstate.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    DataError,
    HopstateError,
    MissingFileError,
    StorageError,
    import_extra,
)
from hopstate.io.files import file_lock, make_folder, named_errors, replace_file, sync_folder

PAGE = 1_000  # positions whose rows are read at a time
NAME = "log.sqlite"
ACKNOWLEDGED = "log.acknowledged"
REPAIRED = "repaired"  # the folder of a new log, from when it is complete until it is in its place (`repair`)
FORMAT = "hopstate-log-4"
TABLES = """
create table if not exists facts (key text primary key, value text not null, checksum {integer} not null);
create table if not exists events (position {integer} primary key, begins {integer} not null, id text,
    body text not null, checksum {integer} not null);
create unique index if not exists ids on events (id) where id is not null;
create table if not exists dead_letters (id text, body text not null, why text not null);
create unique index if not exists dead_letter_ids on dead_letters (id) where id is not null;
"""  # {integer} is the database's type of positions
REMEDY = "Put a copy back, or keep what is intact: hopstate serve RUN --repair"
_SCHEMA = "select type, name, sql from sqlite_schema where sql is not null"
_ROW = "select position, begins, id, body, checksum from events"
# what reading a damaged event raises
_UNREADABLE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
_ID_TYPES, _NUMBER_TYPES, _VALUE_TYPES = {str, int}, {int, float}, {str, int, float, type(None)}


class Entry(NamedTuple):
    """An event to be logged: a JSON object, and what tells it from others, None where nothing does."""

    body: str
    id: str | None = None


class Row(NamedTuple):
    """A row of the table of events; begins is 1 if a commit begins with it, else 0."""

    position: int
    begins: int
    id: str | None
    body: str


StoredRow = tuple[int, int, str | None, str, int]


def with_checksums(rows: Iterable[tuple[int, int, str | None, str]]) -> Iterator[StoredRow]:
    """Yield rows with their checksums, a CRC-32 of all columns."""
    for position, begins, id, body in rows:
        yield position, begins, id, body, zlib.crc32(f"{id or ''}{body}".encode(), 2 * position + begins)


def checksum(*texts: str) -> int:
    return zlib.crc32("\x1e".join(texts).encode())


@dataclass(frozen=True)
class Commit:
    """Events that were taken together."""

    first: int  # position of the first in the log, from 0
    bodies: tuple[str, ...]  # of all, JSON objects


class EventLog(ABC):
    """A log in a SQL database; `place` names it in messages.

    The tables are those of `TABLES` in both databases. The facts "start" and "end" bound the positions. Subclasses
    connect, and name the errors of their database.
    """

    place: str
    _acknowledged: AcknowledgedPosition | None = None  # apart from the database

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    @abstractmethod
    def _atomic(self) -> AbstractContextManager[Any]:
        """Return a context in which all is done or nothing, by one thread, and reads see one instant."""

    @abstractmethod
    def _insert_rows(self, rows: Iterable[StoredRow]) -> None: ...

    @abstractmethod
    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the positions of the events with these ids, as far as they are in the log."""

    @abstractmethod
    def close(self) -> None: ...

    def _corrupt_error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.place} is damaged: {what}. {REMEDY}")

    def __len__(self) -> int:
        """Return how many events were ever logged: the position of the next one."""
        return int(self._fact("end", 0))

    @property
    def start(self) -> int:
        """Position of the first event that is still in the log."""
        return int(self._fact("start", 0))

    def append(self, entries: Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """Make entries one commit, durable when this returns; return the position of the first.

        No entries make no commit. Facts (see `set_facts`) are written in the same transaction.

        Raises:
            DataError: an id is in the log or stands twice; nothing was written.
            BusyError: another writer has taken over; nothing was written.
            StorageError: it could not be written; it may be there all the same, as a whole.
        """
        with self._atomic():
            first = len(self)
            end = first + len(entries)
            ids, bodies = [entry.id for entry in entries], [entry.body for entry in entries]
            self._insert_rows(with_checksums(zip(range(first, end), chain([1], repeat(0)), ids, bodies)))
            self._write_facts({**(facts or {}), "end": end})
        if self._acknowledged is not None:
            self._acknowledged.write(end)
        return first

    # ---- reading ------------------------------------------------------------------------------------------
    def _row(self, values: Sequence[Any]) -> Row | None:
        """Return a row as it was written, None if it is damaged."""
        row = Row(*values[:-1])
        with suppress(TypeError):  # other types than were written
            if row.begins in (0, 1) and isinstance(row.body, str) and next(with_checksums([row])) == tuple(values):
                return row
        return None

    def intact(self, low: int, high: int) -> Iterator[Row]:
        """Yield the rows that begin in a range of positions; what is damaged is left out."""
        query, ranges = f"{_ROW} where position >= ? and position < ? order by position", [(low, high)]
        while ranges:
            low, high = ranges.pop()
            try:
                found = [self._row(values) for values in self._query(query, (low, high))]
            except CheckpointError:  # a page or a text that cannot be read: what stands around it can
                middle = (low + high) // 2
                ranges += [(middle, high), (low, middle)] if high - low > 1 else []
                continue
            yield from (row for row in found if row is not None)

    def _row_at(self, position: int) -> Row:
        for row in self.intact(position, position + 1):
            return row
        if position < self.start:
            raise CheckpointError(
                f"{self.place} begins at event {self.start}, what came before was cut; event {position} is asked for"
            )
        raise self._corrupt_error(f"event {position} is not as it was acknowledged")

    def _rows(self, position: int) -> Iterator[Row]:
        while position < len(self):
            self._row_at(position)  # names what is missing
            for row in self.intact(position, position + PAGE):
                if row.position > position:
                    break
                yield row
                position += 1

    def commits(self, first: int | None = None) -> Iterator[Commit]:
        """Yield commits from a position on, or all; of a commit that begins before the position, the rest.

        Raises:
            CheckpointError: the position lies before `start`, or events are missing.
        """
        begin = self.start if first is None else first
        bodies = list[str]()
        for row in self._rows(begin):
            if bodies and row.begins:
                yield Commit(begin, tuple(bodies))
                begin, bodies = row.position, []
            bodies.append(row.body)
        if bodies:
            yield Commit(begin, tuple(bodies))

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """Return the events at those positions, as far as they are still in the log."""
        with self._atomic():
            start, end = self.start, len(self)
            return {at: self._row_at(at).body for at in positions if start <= at < end}

    def _verify(self, acknowledged: int) -> None:
        """Read all; CheckpointError if one of the events that were acknowledged is damaged or missing."""
        found = self.facts().get("format")
        if found != FORMAT:
            raise CheckpointError(f"{self.place} is not a log of this version (format {found!r}); choose another place")
        end = len(self)
        if end < acknowledged:
            raise self._corrupt_error(f"events {end} to {acknowledged - 1} were acknowledged and are missing")
        for _ in self._rows(self.start):
            pass

    # ---- other changes ------------------------------------------------------------------------------------
    def cut(self, position: int) -> int:
        """Drop commits that lie wholly before a position, the last one never; return where the log begins now."""
        with self._atomic():
            last = min(position, len(self) - 1)
            if last >= self.start:
                query = "select max(position) from events where position <= ? and begins = 1"
                ((start,),) = self._query(query, (last,))
                self._query("delete from events where position < ?", (start,))
                self._write_facts({"start": start})
        return self.start

    def add_dead_letters(self, entries: Sequence[Entry], why: str) -> None:
        """Store entries outside the log, each id once, durable when this returns."""
        rows = [(entry.id, entry.body, why) for entry in entries]
        with self._atomic():
            self._execute_many("insert into dead_letters values (?, ?, ?) on conflict do nothing", rows)

    def num_dead_letters(self) -> int:
        return int(self._query("select count(*) from dead_letters")[0][0])

    def facts(self) -> dict[str, Any]:
        rows = self._query("select key, value, checksum from facts")
        return {key: self._fact_of(key, value, expected) for key, value, expected in rows}

    def intact_facts(self) -> dict[str, Any]:
        """Return the facts that are as they were written."""
        found = {}
        with suppress(CheckpointError):
            for key, value, expected in self._query("select key, value, checksum from facts"):
                with suppress(CheckpointError):
                    found[key] = self._fact_of(key, value, expected)
        return found

    def _fact(self, key: str, default: Any) -> Any:
        rows = self._query("select key, value, checksum from facts where key = ?", (key,))
        return self._fact_of(*rows[0]) if rows else default

    def _fact_of(self, key: str, value: str, expected: int) -> Any:
        if checksum(key, str(value)) != expected:
            raise self._corrupt_error(f"{key!r} among its facts is not as it was written")
        return json.loads(value)

    def set_facts(self, facts: Mapping[str, Any]) -> None:
        """Set facts: key to any JSON value."""
        with self._atomic():
            self._write_facts(facts)

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        query = """insert into facts values (?, ?, ?)
            on conflict (key) do update set value = excluded.value, checksum = excluded.checksum"""
        texts = {key: json.dumps(value) for key, value in facts.items()}
        self._execute_many(query, [(key, text, checksum(key, text)) for key, text in texts.items()])


def duplicate_id_message(place: object) -> str:
    """Return what is told of an id that comes twice."""
    return f"an event's id is in {place} already, or stands here twice; no event was stored"


def commit_batches(log: EventLog, first: int, min_events: int) -> Iterator[list[str]]:
    """Yield the events of a log from a position on, whole commits together until they are so many."""
    bodies: list[str] = []
    for commit in log.commits(first):
        bodies += commit.bodies
        if len(bodies) >= min_events:
            yield bodies
            bodies = []
    if bodies:
        yield bodies


# ---- in a file --------------------------------------------------------------------------------------------------
class AcknowledgedPosition:
    """A position in a file: exact after a kill, and after a power cut as it was a second before or later.

    It is written before each acknowledgement, and synced at most once a second: to wait for the disk each time would
    double the time of a commit. Two records are written in turn, so that one of them is always whole.
    """

    _RECORD = 512  # bytes from one record to the other: a sector
    _SECONDS = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path
        found = self._positions(path)
        self._last = found.index(max(found))
        with named_errors(path, "open"):
            self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._due = 0.0

    @classmethod
    def make(cls, path: Path) -> None:
        """Make a file with position 0."""
        replace_file(path, lambda part: part.write_bytes(cls._record(0).ljust(2 * cls._RECORD)))

    @staticmethod
    def _record(position: int) -> bytes:
        return f"{position:020} {checksum(str(position)):08x}\n".encode()

    @classmethod
    def _positions(cls, path: Path) -> list[int]:
        found = []
        with path.open("rb") as file:
            content = file.read(2 * cls._RECORD)
        for place in (0, cls._RECORD):
            record = content[place : place + 30]
            digits = record[:20]
            found.append(int(digits) if digits.isdigit() and cls._record(int(digits)) == record else -1)
        return found

    @classmethod
    def read(cls, path: Path) -> int | None:
        """Return the position in a file, None if there is no file; CheckpointError if it is damaged."""
        if not path.is_file():
            return None
        with named_errors(path, "read"):
            found = max(cls._positions(path))
        if found < 0:
            raise CheckpointError(f"{path} is damaged. {REMEDY}")
        return found

    def write(self, position: int) -> None:
        self._last = 1 - self._last
        with named_errors(self.path):
            os.lseek(self._file, self._last * self._RECORD, os.SEEK_SET)
            os.write(self._file, self._record(position))
            if time.monotonic() >= self._due:
                os.fsync(self._file)
                self._due = time.monotonic() + self._SECONDS

    def close(self) -> None:
        with suppress(OSError):  # the log has all that is needed
            os.fsync(self._file)
        os.close(self._file)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder itself, which is made if there is none: no file of it can be deleted to get around the lock."""
    try:
        import fcntl
    except ImportError:  # Windows, where nobody deletes a file that is open
        with file_lock(folder / NAME):
            yield
        return
    with named_errors(folder, "lock"):
        handle = os.open(make_folder(folder), os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise BusyError(
                f"the log in {folder} is being written by another process; stop it, or choose another folder"
            ) from None
    try:
        yield
    finally:
        os.close(handle)


class SqliteLog(EventLog):
    """A log in a file of a folder, which is made if there is none.

    Args:
        read_only: read while another process may write.
        vfs: name of SQLite's layer to the disk; SQLite's own if None.
        verify: False opens a damaged one, of which `intact` and `intact_facts` are read.

    Raises:
        MissingExtraError: apsw is not installed.
        MissingFileError: there is no log to read.
        BusyError: another process writes it.
        CheckpointError: the file is not a log of this version, or damaged.
        StorageError: it cannot be opened.
    """

    def __init__(
        self, folder: str | Path, *, read_only: bool = False, vfs: str | None = None, verify: bool = True
    ) -> None:
        self.path = Path(folder) / NAME
        self.place = str(self.path)
        self._apsw = import_extra("apsw", "serve")
        self._resources, self._lock = ExitStack(), threading.RLock()
        journals = [self.path.with_name(f"{NAME}{end}") for end in ("-wal", "-shm")]
        created = [path for path in journals if not path.exists()]
        if not read_only:
            self._resources.enter_context(locked_folder(self.path.parent))
        try:
            if verify:
                self._open(read_only, vfs)
            else:
                self._connect(self._apsw.SQLITE_OPEN_READONLY, vfs)
                self._check_schema()
        except BaseException:
            self._resources.close()
            with suppress(HopstateError), locked_folder(self.path.parent):
                if not journals[0].exists() or not journals[0].stat().st_size:  # otherwise a writer came since
                    for path in created:
                        path.unlink(missing_ok=True)
            raise

    def _open(self, read_only: bool, vfs: str | None) -> None:
        apsw, noted = self._apsw, self.path.with_name(ACKNOWLEDGED)
        acknowledged = AcknowledgedPosition.read(noted)
        is_there = self.path.is_file() and self.path.stat().st_size > 0  # SQLite deletes the journal of an empty file
        if (self.path.parent / REPAIRED / NAME).exists():
            raise self._corrupt_error("its repair was stopped")
        if is_there and acknowledged is None:
            raise self._corrupt_error(f"{noted} is missing, which says how far events were acknowledged")
        if not is_there and acknowledged:
            raise self._corrupt_error(f"the file is missing or empty, and {acknowledged} events were acknowledged")
        if not is_there and read_only:
            raise MissingFileError(f"no log in {self.path.parent}; `hopstate serve` makes one")
        if not read_only and not acknowledged:
            AcknowledgedPosition.make(noted)
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._connect(flags, vfs)
        self._check_schema()
        if not read_only:
            self._begin(new=not acknowledged)
        self._verify(acknowledged or 0)
        ((found,),) = self._query("pragma integrity_check(1)")
        if found != "ok":
            raise self._corrupt_error(found)
        if not read_only:
            self._acknowledged = AcknowledgedPosition(noted)
            self._resources.callback(self._acknowledged.close)
            self._acknowledged.write(len(self))
        self._file.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)

    def _connect(self, flags: int, vfs: str | None) -> None:
        try:
            self._file = self._apsw.Connection(self.place, flags=flags, vfs=vfs)
            self._resources.callback(self._file.close)
            self._file.config(self._apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a refusal leaves the journal as it is
            self._file.set_busy_timeout(5_000)
        except self._apsw.Error as error:
            raise self._named(error) from error
        self._query("pragma trusted_schema = off")

    def _check_schema(self) -> None:
        """Refuse other tables than `TABLES`: a view is read without end, and a trigger deletes events."""
        with self._apsw.Connection(":memory:") as empty:
            empty.execute(TABLES.format(integer="integer"))
            expected = set(empty.execute(_SCHEMA))
        with suppress(self._apsw.Error):  # it is damaged, as whoever reads the tables says
            if added := set(self._file.execute(_SCHEMA)) - expected:
                kind, name, _ = min(added)
                raise self._corrupt_error(f"it has the {kind} {name[:40]!r}, which no log has")

    def _begin(self, *, new: bool) -> None:
        self._query("pragma journal_mode = wal")
        self._query("pragma synchronous = full")
        if new:
            with self._atomic():  # all or nothing: a start that was killed leaves no log without a format
                self._query(TABLES.format(integer="integer"))
                self._write_facts({"format": FORMAT} | self.facts())
            with named_errors(self.path, "bring to disk"):
                sync_folder(self.path.parent)

    def _named(self, error: Exception) -> HopstateError:
        if isinstance(error, self._apsw.ConstraintError):
            return DataError(duplicate_id_message(self.place))
        if isinstance(error, (self._apsw.CorruptError, self._apsw.NotADBError, self._apsw.SQLError)):
            return self._corrupt_error(str(error))
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
        except UnicodeDecodeError as error:
            raise self._corrupt_error(str(error)) from error

    def _execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._file.executemany(sql, rows)

    def _insert_rows(self, rows: Iterable[StoredRow]) -> None:
        self._execute_many("insert into events values (?, ?, ?, ?, ?)", rows)

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        query = "select id, position from events where id = ?"
        with self._atomic():
            return dict(self._file.executemany(query, [(one,) for one in ids]))

    def close(self) -> None:
        self._resources.close()


def parse_events(texts: Sequence[str], first: int, place: object) -> list[dict[str, Any]]:
    """Return events as they were logged, from a position on."""
    with corruption_errors(place, first, len(texts)):
        found = [json.loads(text) for text in texts]
        if _are_valid_events(found):
            return found
    wrong = next(k for k, row in enumerate(found) if not _are_valid_events([row]))
    raise CheckpointError(f"{place} is damaged: event {first + wrong} is {str(texts[wrong])[:80]!r}; use a copy")


@contextmanager
def corruption_errors(place: object, first: int, many: int) -> Iterator[None]:
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


def _are_valid_events(found: Sequence[Any]) -> bool:
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
    """Return the log at a place: a folder, in which `SqliteLog` has a file, or the address of a `PostgresLog`."""
    if str(place).startswith(("postgresql://", "postgres://")):
        from hopstate.serving.postgres_log import PostgresLog  # it builds on this module

        return PostgresLog(str(place), read_only=read_only)
    if "://" in str(place):
        kind = str(place).partition("://")[0]
        raise ConfigError(f"no log is called {kind}://; give a folder or postgresql://...")
    return SqliteLog(place, read_only=read_only)
