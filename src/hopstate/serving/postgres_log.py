"""A log in a schema of a PostgreSQL database, which processes on other machines can follow.

A commit is a transaction with synchronous_commit on. The writer holds an advisory lock of the database by the very
connection that it writes with: if that breaks, the lock goes and nothing can be written without it. A broken connection
is opened again, errors are named, and passwords are never shown.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from hopstate.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    DataError,
    HopstateWarning,
    MissingExtraError,
    MissingFileError,
    StorageError,
)
from hopstate.serving.log import PAGE, Commit, Entry, check_entries, check_start, paged, taken

_FORMAT = "hopstate-log-1"
_PATIENCE = 3.0  # seconds in which the server may yet learn that the writer before has gone
_FEW = 16  # events that are inserted by one statement rather than copied
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TABLES = """
create schema if not exists {log};
create table if not exists {log}.facts (key text primary key, value text not null);
create table if not exists {log}.commits (first bigint primary key, events bigint not null);
create table if not exists {log}.events (position bigint primary key, id bytea, body text not null);
create unique index if not exists ids on {log}.events (id) where id is not null;
create table if not exists {log}.parked (id bytea, body text not null, why text not null);
create unique index if not exists parked_ids on {log}.parked (id) where id is not null;
"""


class _Connection:
    """A connection, used by one thread at a time and opened again if it broke.

    schema: of the log, from `log=NAME` of the address.
    place: the address as it may be shown, without user and password.
    """

    def __init__(self, url: str, begin: Callable[[Any], None]) -> None:
        self.psycopg = _psycopg()
        self._address, self.schema, self.place = _parts(url)
        self._begin, self._one_by_one, self._connection = begin, threading.RLock(), None

    @contextmanager
    def work(self) -> Iterator[Any]:
        """Give the connection.

        Raises:
            DataError: an id that is there already, or a text that cannot be kept.
            MissingFileError: no such table.
            StorageError: the server does not answer, or refuses.
        """
        errors = self.psycopg.errors
        with self._one_by_one:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._connected()
                yield self._connection
            except errors.UniqueViolation as error:
                raise DataError(taken(self.place)) from error
            except self.psycopg.DataError as error:
                raise DataError(f"{self.place} cannot hold a value ({_first(error)}); nothing was taken") from error
            except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
                raise MissingFileError(f"nothing at {self.place} ({_first(error)})") from error
            except self.psycopg.Error as error:
                if isinstance(error, (self.psycopg.OperationalError, self.psycopg.InterfaceError)):
                    self.close()
                raise StorageError(
                    f"{self.place} cannot be written or read ({_first(error)}); see whether the server runs and "
                    "whether its disk is full"
                ) from error

    def _connected(self) -> Any:
        name = f"hopstate {os.getpid()} {socket.gethostname()}"[:63]
        try:
            made = self.psycopg.connect(self._address, autocommit=True, application_name=name, connect_timeout=10)
        except self.psycopg.ProgrammingError:
            raise ConfigError(f"{self.place} cannot be read as an address of PostgreSQL") from None
        try:
            self._begin(made)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _parts(url: str) -> tuple[str, str, str]:
    """Return libpq's address, the schema, and the address as it may be shown."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        host = f"{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}"
    except ValueError:
        raise ConfigError("an address is postgresql://USER@HOST/DATABASE?...; this one cannot be read") from None
    schema = dict(options).get("log", "hopstate")
    rest = urlencode([(key, value) for key, value in options if key != "log"], quote_via=quote)
    shown = f"postgresql://{host}{parts.path}?{urlencode({'log': schema})}"
    return parts._replace(query=rest).geturl(), schema, shown


def _first(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("PostgreSQL needs psycopg: pip install 'hopstate[postgres]'") from None
    return psycopg


class PostgresLog:
    """A log in a schema, which is made where there is none.

    Args:
        url: `postgresql://USER@HOST/DATABASE?log=NAME` with libpq's parameters; NAME is the schema, `hopstate` by
            default. A password is better kept in `~/.pgpass` or PGPASSWORD; it is never shown.
        read_only: look at it while another process may write.

    Raises:
        MissingExtraError: psycopg is not installed.
        ConfigError: the address cannot be read.
        MissingFileError: there is no log to be read.
        BusyError: another writes it.
        CheckpointError: the schema is no log of this version.
        StorageError: the server does not answer, or refuses.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self._database = _Connection(url, self._begin)
        self.place, self.schema = self._database.place, self._database.schema
        if not _NAME.fullmatch(self.schema):
            raise ConfigError(f"log={self.schema!r}: a log's name is of small letters, digits and _, at most 63")
        try:
            found = self.facts().get("format")
            if found != _FORMAT:
                raise CheckpointError(f"{self.place} is no log of this version (format {found!r}); choose another name")
        except BaseException:
            self.close()
            raise

    def _begin(self, connection: Any) -> None:
        """Take the writer's lock, and make tables."""
        connection.isolation_level = self._database.psycopg.IsolationLevel.REPEATABLE_READ  # a page is of one instant
        connection.read_only = self.read_only
        if self.read_only:
            return
        key = int.from_bytes(hashlib.sha256(f"hopstate log {self.schema}".encode()).digest()[:7], "big")
        until = time.monotonic() + _PATIENCE
        while not connection.execute("select pg_try_advisory_lock(%s)", (key,)).fetchone()[0]:
            if time.monotonic() < until:
                time.sleep(0.05)
                continue
            query = """select a.application_name from pg_locks l join pg_stat_activity a using (pid)
                where l.locktype = 'advisory' and l.granted and (l.classid::bigint << 32) | l.objid::bigint = %s"""
            (holder,) = connection.execute(query, (key,)).fetchone() or ("another",)
            raise BusyError(f"{self.place} is being written by {holder!r}; stop it, or choose another log")
        connection.execute("set synchronous_commit = on")
        if connection.execute("show fsync").fetchone()[0] == "off":
            told = f"the server of {self.place} runs with fsync off: a loss of power loses acknowledged events"
            warnings.warn(told, HopstateWarning, stacklevel=6)
        with connection.transaction():
            connection.execute("set local client_min_messages = warning")
            connection.execute(self._sql(_TABLES))
            format_ = self._sql("insert into {log}.facts values ('format', %s) on conflict do nothing")
            connection.execute(format_, (json.dumps(_FORMAT),))

    def _sql(self, text: str) -> str:
        return text.replace("{log}", f'"{self.schema}"')  # checked to be plain

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._database.work() as connection:
            return connection.execute(self._sql(query), values).fetchall()

    # ---- the log ------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        found = self._rows("select first + events from {log}.commits order by first desc limit 1")
        return int(found[0][0]) if found else 0

    @property
    def start(self) -> int:
        """See `EventLog.start`."""
        return int(self._rows("select coalesce(min(first), 0) from {log}.commits")[0][0])

    def append(self, entries: Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """See `EventLog.append`."""
        check_entries(entries)
        with self._database.work() as connection, connection.transaction():
            first = len(self)
            if entries:
                connection.execute(self._sql("insert into {log}.commits values (%s, %s)"), (first, len(entries)))
                self._insert(connection, [(first + i, _bytes(e.id), e.body) for i, e in enumerate(entries)])
            self._tell(connection, facts or {})
        return first

    def _insert(self, connection: Any, rows: list[tuple[int, bytes | None, str]]) -> None:
        if len(rows) <= _FEW:
            values = ", ".join(["(%s::bigint, %s::bytea, %s::text)"] * len(rows))
            connection.execute(
                self._sql("insert into {log}.events values " + values), [value for row in rows for value in row]
            )
            return
        with connection.cursor().copy(self._sql("copy {log}.events from stdin (format binary)")) as copy:
            copy.set_types(["int8", "bytea", "text"])
            for row in rows:
                copy.write_row(row)

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """See `EventLog.positions`."""
        if not ids:
            return {}
        found = self._rows("select id, position from {log}.events where id = any(%s)", ([_bytes(i) for i in ids],))
        return {bytes(one).decode(): position for one, position in found}

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """See `EventLog.bodies`."""
        query = "select position, body from {log}.events where position = any(%s)"
        return dict(self._rows(query, (list(positions),))) if positions else {}  # type: ignore[arg-type]

    def commits(self, first: int | None = None) -> Iterator[Commit]:
        """See `EventLog.commits`."""
        return paged(self._page, check_start(first, self.start, self.place))

    def _page(self, first: int) -> list[Commit]:
        found: list[Commit] = []
        with self._database.work() as connection, connection.transaction():
            bounds = "select first, events from {log}.commits where first >= %s order by first limit %s"
            before = "select coalesce(max(first), 0) from {log}.commits where first <= %s"
            begin = self._rows(before, (first,))[0][0]
            rows = [(b, n) for b, n in self._rows(bounds, (begin, PAGE)) if b + n > first]
            ends = [b + n for b, n in rows]
            rows = rows[: next((k for k, end in enumerate(ends) if end - first >= PAGE), len(rows)) + 1]
            if not rows:
                return []
            query = "select body from {log}.events where position >= %s and position < %s order by position"
            bodies = [body for (body,) in self._rows(query, (first, sum(rows[-1])))]
        at = first
        for begin, count in rows:
            if begin > at or len(bodies) != sum(rows[-1]) - first:
                raise CheckpointError(f"{self.place} lacks events of the commit at {begin}; use a copy")
            found.append(Commit(at, tuple(bodies[at - first : begin + count - first])))
            at = begin + count
        return found

    def cut(self, position: int) -> int:
        """See `EventLog.cut`."""
        with self._database.work() as connection, connection.transaction():
            start = self._rows("select coalesce(max(first), 0) from {log}.commits where first <= %s", (position,))[0]
            connection.execute(self._sql("delete from {log}.events where position < %s"), start)
            connection.execute(self._sql("delete from {log}.commits where first < %s"), start)
        return self.start

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """See `EventLog.park`."""
        check_entries(entries)
        query = self._sql("insert into {log}.parked values (%s, %s, %s) on conflict do nothing")
        with self._database.work() as connection, connection.transaction():
            connection.cursor().executemany(query, [(_bytes(e.id), e.body, why) for e in entries])

    def parked(self) -> int:
        """See `EventLog.parked`."""
        return int(self._rows("select count(*) from {log}.parked")[0][0])

    def facts(self) -> dict[str, Any]:
        """See `EventLog.facts`."""
        return {key: json.loads(value) for key, value in self._rows("select key, value from {log}.facts")}

    def tell(self, facts: Mapping[str, Any]) -> None:
        """See `EventLog.tell`."""
        with self._database.work() as connection, connection.transaction():
            self._tell(connection, facts)

    def _tell(self, connection: Any, facts: Mapping[str, Any]) -> None:
        if facts:
            query = "insert into {log}.facts values (%s, %s) on conflict (key) do update set value = excluded.value"
            rows = [(key, json.dumps(value)) for key, value in facts.items()]
            connection.cursor().executemany(self._sql(query), rows)

    def close(self) -> None:
        """See `EventLog.close`."""
        self._database.close()


def _bytes(text: str | None) -> bytes | None:
    """Return an id as it is kept: PostgreSQL's texts hold no NUL."""
    return None if text is None else text.encode()
