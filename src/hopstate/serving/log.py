"""The log of a live run: events in the order of their commits, each durable before it is acknowledged.

An event is a JSON object as text. A commit is a group of events that were taken together; its boundary is recorded. An
event with an id that the log holds already changes nothing and has the position of the first. There is one writer, the
holder of the folder's lock; readers see whole commits.

`SqliteLog` is a file of SQLite in WAL mode with synchronous=FULL: a commit returns when it is on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hopstate.errors import CheckpointError, DataError, MissingExtraError, MissingFileError, StorageError
from hopstate.io.files import sync_folder

NAME = "log.sqlite"
_FORMAT = "hopstate-log-1"
_TABLES = """
create table if not exists facts (key text primary key, value text not null) without rowid;
create table if not exists commits (first integer primary key, events integer not null);
create table if not exists events (position integer primary key, id text, body text not null);
create unique index if not exists ids on events (id) where id is not null;
create table if not exists parked (id text, body text not null, why text not null);
create unique index if not exists parked_ids on parked (id) where id is not null;
"""


@dataclass(frozen=True)
class Entry:
    """An event to be logged.

    Args:
        body: a JSON object.
        id: tells it from others, None where nothing does.
    """

    body: str
    id: str | None = None


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
    """What a live run asks of a log."""

    def __len__(self) -> int:
        """Events in it."""
        ...

    def append(self, entries: Sequence[Entry]) -> int:
        """Make entries one commit, on the disk when this returns; return the position of the first.

        Raises:
            DataError: an id that the log holds, or one twice; nothing was taken.
            StorageError: it could not be written; nothing was taken.
        """
        ...

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the positions of those ids that the log holds."""
        ...

    def commits(self, first: int = 0) -> Iterator[Commit]:
        """Yield what was committed from a position on; a commit that begins before it is cut."""
        ...

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """Keep entries aside, each id once, on the disk when this returns."""
        ...

    def parked(self) -> int:
        """Return how many entries were kept aside."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what was told of the log as a whole."""
        ...

    def tell(self, facts: dict[str, Any]) -> None:
        """Keep facts of the log as a whole."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class SqliteLog:
    """A log in a file.

    Args:
        folder: where; made where there is none.
        read_only: look at it while another process may write.

    Raises:
        MissingExtraError: apsw is not installed.
        MissingFileError: there is no log to be read.
        CheckpointError: the file is no log of this version, or damaged.
        StorageError: it cannot be opened.
    """

    def __init__(self, folder: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(folder) / NAME
        apsw = _apsw()
        if read_only and not self.path.is_file():
            raise MissingFileError(f"no log in {folder}; `hopstate serve` makes one")
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        fresh = not self.path.exists()
        with _named(self.path):
            self._file = apsw.Connection(str(self.path), flags=flags)
            self._file.set_busy_timeout(5_000)
            self._pragma("trusted_schema", "off")
            if not read_only:
                self._pragma("journal_mode", "wal")
                self._pragma("synchronous", "full")
                with self._file:
                    self._file.execute(_TABLES)
        if fresh:
            self.tell({"format": _FORMAT})
            sync_folder(self.path.parent)
        found = self.facts().get("format")
        if found != _FORMAT:
            raise CheckpointError(f"{self.path} is no log of this version (format {found!r}); move it away")

    def _pragma(self, name: str, value: str) -> None:
        self._file.execute(f"pragma {name} = {value}")

    def _one(self, query: str) -> Any:
        with _named(self.path):
            return next(iter(self._file.execute(query)))[0]

    def __len__(self) -> int:
        return int(self._one("select coalesce(max(position) + 1, 0) from events"))

    def append(self, entries: Sequence[Entry]) -> int:
        """See `EventLog.append`."""
        first = len(self)
        rows = [(first + i, entry.id, entry.body) for i, entry in enumerate(entries)]
        try:
            with _named(self.path), self._file:
                self._file.execute("insert into commits values (?, ?)", (first, len(rows)))
                self._file.executemany("insert into events values (?, ?, ?)", rows)
        except _TakenError as error:
            raise DataError(
                f"an event's id is in {self.path} already, or stands here twice; nothing was taken"
            ) from error
        return first

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """See `EventLog.positions`."""
        query = "select id, position from events where id in (select value from json_each(?))"
        with _named(self.path):
            return dict(self._file.execute(query, (json.dumps(list(ids)),)))

    def commits(self, first: int = 0) -> Iterator[Commit]:
        """See `EventLog.commits`."""
        bounds = "select first, events from commits where first + events > ? order by first"
        with _named(self.path):
            for begin, count in self._file.execute(bounds, (first,)).fetchall():
                start = max(begin, first)
                bodies = "select body from events where position >= ? and position < ? order by position"
                found = tuple(body for (body,) in self._file.execute(bodies, (start, begin + count)))
                if len(found) != begin + count - start:
                    raise CheckpointError(f"{self.path} lacks events of the commit at {begin}; use a copy")
                yield Commit(start, found)

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """See `EventLog.park`."""
        with _named(self.path), self._file:
            self._file.executemany(
                "insert or ignore into parked values (?, ?, ?)", [(e.id, e.body, why) for e in entries]
            )

    def parked(self) -> int:
        """See `EventLog.parked`."""
        return int(self._one("select count(*) from parked"))

    def facts(self) -> dict[str, Any]:
        """See `EventLog.facts`."""
        with _named(self.path):
            return {key: json.loads(value) for key, value in self._file.execute("select key, value from facts")}

    def tell(self, facts: dict[str, Any]) -> None:
        """See `EventLog.tell`."""
        rows = [(key, json.dumps(value)) for key, value in facts.items()]
        with _named(self.path), self._file:
            self._file.executemany("insert or replace into facts values (?, ?)", rows)

    def close(self) -> None:
        """See `EventLog.close`."""
        with _named(self.path):
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
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
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
