"""A log in a file: SQLite in WAL mode with synchronous=FULL, so a commit returns when it is on the disk.

Its writer holds a lock beside the file. A log of the first version, which had a row for each event, is read as it is;
opened to be written it becomes one of this version, with these rows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hopstate.errors import CheckpointError, DataError, HopstateError, MissingExtraError, MissingFileError, StorageError
from hopstate.io.files import named_errors, sync_folder
from hopstate.io.lock import file_lock
from hopstate.serving.event_log import PAGE, Commit, Entry, check_entries, check_start, paged, taken
from hopstate.serving.packs import from_rows, packed, texts

NAME = "log.sqlite"
_FIRST, _FORMAT = "hopstate-log-1", "hopstate-log-2"
_TABLES = """
create table if not exists facts (key text primary key, value text not null) without rowid;
create table if not exists commits (first integer primary key, events integer not null);
create table if not exists events (position integer primary key, id text, body text not null);
create unique index if not exists ids on events (id) where id is not null;
create table if not exists parked (id text, body text not null, why text not null);
create unique index if not exists parked_ids on parked (id) where id is not null;
insert into facts select 'format', '"{format}"' where not exists (select * from facts);
update facts set value = '"{format}"' where key = 'format' and value = '"{first}"';
"""


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
            if found not in (_FIRST, _FORMAT):
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
                    self._file.execute(_TABLES.format(format=_FORMAT, first=_FIRST))

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
        """Return some of the commits from a position on, of one instant."""
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


_DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    RecursionError,
    StopIteration,
)  # of values of other kinds than was written


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
