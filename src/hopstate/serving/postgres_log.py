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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
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
from hopstate.serving.log import FORMAT, TABLES, EventLog, StoredRow, checksum, duplicate_id_message

_PATIENCE = 3.0  # seconds in which the server may yet learn that the writer before has gone
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class PostgresLog(EventLog):
    """A log in a schema, which is made where there is none.

    Args:
        url: `postgresql://USER@HOST/DATABASE?log=NAME` with libpq's parameters; NAME is the schema, `hopstate` by
            default. A password is better kept in `~/.pgpass` or PGPASSWORD; it is never shown.
        read_only: look at it while another process may write.
        verify: False opens a damaged one, of which `intact` and `intact_facts` are read.

    Raises:
        MissingExtraError: psycopg is not installed.
        ConfigError: the address cannot be read.
        MissingFileError: there is no log to be read.
        BusyError: another writes it.
        CheckpointError: the schema is not a log of this version.
        StorageError: the server does not answer, or refuses.
    """

    def __init__(self, url: str, *, read_only: bool = False, verify: bool = True) -> None:
        self._psycopg, self.read_only = _psycopg(), read_only
        self._address, self.schema, self.place = _parts(url)
        self._connection, self._lock = None, threading.RLock()
        if not _NAME.fullmatch(self.schema):
            raise ConfigError(f"log={self.schema!r}: a log's name is of small letters, digits and _, at most 63")
        try:
            if verify:
                self._verify(0)  # the server keeps the position in the same way as the events
        except BaseException:
            self.close()
            raise

    def _begin(self, connection: Any) -> None:
        connection.isolation_level = self._psycopg.IsolationLevel.REPEATABLE_READ  # a page is of one instant
        connection.read_only = self.read_only
        connection.execute(f'set search_path to "{self.schema}"')  # the name is checked to be plain
        if self.read_only:
            return
        self._lock_writer(connection)
        connection.execute("set synchronous_commit = on")
        if connection.execute("show fsync").fetchone()[0] == "off":
            text = f"the server of {self.place} runs with fsync off: a power cut loses acknowledged events"
            warnings.warn(text, HopstateWarning, stacklevel=6)
        with connection.transaction():
            connection.execute("set local client_min_messages = warning")
            connection.execute(f'create schema if not exists "{self.schema}"')
            connection.execute(TABLES.format(integer="bigint"))
            value = json.dumps(FORMAT)
            query = "insert into facts values ('format', %s, %s) on conflict do nothing"
            connection.execute(query, (value, checksum("format", value)))

    def _lock_writer(self, connection: Any) -> None:
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

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        errors = self._psycopg.errors
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._connect()
                yield self._connection
            except errors.UniqueViolation as error:
                raise DataError(duplicate_id_message(self.place)) from error
            except self._psycopg.DataError as error:
                raise DataError(f"{self.place} cannot hold a value ({_first(error)}); no event was stored") from error
            except errors.UndefinedColumn as error:
                raise CheckpointError(f"{self.place} is not a log of this version ({_first(error)})") from error
            except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
                raise MissingFileError(f"nothing at {self.place} ({_first(error)})") from error
            except self._psycopg.Error as error:
                if isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
                    self.close()
                raise StorageError(
                    f"{self.place} cannot be written or read ({_first(error)}); see whether the server runs and "
                    "whether its disk is full"
                ) from error

    def _connect(self) -> Any:
        name = f"hopstate {os.getpid()} {socket.gethostname()}"[:63]
        try:
            made = self._psycopg.connect(self._address, autocommit=True, application_name=name, connect_timeout=10)
        except self._psycopg.ProgrammingError:
            raise ConfigError(f"{self.place} cannot be read as an address of PostgreSQL") from None
        try:
            self._begin(made)
        except BaseException:
            made.close()
            raise
        return made

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        with self._connected() as connection, connection.transaction():
            yield

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            cursor = connection.execute(sql.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

    def _execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._connected() as connection:
            connection.cursor().executemany(sql.replace("?", "%s"), list(rows))

    def _insert_rows(self, rows: Iterable[StoredRow]) -> None:
        query = "copy events from stdin (format binary)"
        with self._connected() as connection, connection.cursor().copy(query) as copy:
            copy.set_types(["int8", "int8", "text", "text", "int8"])
            for row in rows:
                copy.write_row(row)

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        query = "select id, position from events where id = any(?)"
        return dict(self._query(query, (list(ids),))) if ids else {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def repair_schema(url: str, salvage: Callable[[EventLog | None, EventLog, int], None]) -> str:
    """Replace a log by what is intact of it, in one transaction; return where the damaged one is."""
    with closing(PostgresLog(url, verify=False)) as old:
        part = f"{old.schema}_repaired"
        old._query(f'drop schema if exists "{part}" cascade')
        names = {name for (name,) in old._query("select nspname from pg_namespace")}
        aside = next(name for n in count(1) if (name := f"{old.schema}_damaged_{n}") not in names)
        with closing(PostgresLog(_with_schema(url, part))) as new:
            salvage(old, new, 0)
        with old._atomic():
            old._query(f'alter schema "{old.schema}" rename to "{aside}"')
            old._query(f'alter schema "{part}" rename to "{old.schema}"')
        return old.place.replace(f"log={old.schema}", f"log={aside}")


def _with_schema(url: str, schema: str) -> str:
    parts = urlsplit(url)
    options = {**dict(parse_qsl(parts.query, keep_blank_values=True)), "log": schema}
    return parts._replace(query=urlencode(options, quote_via=quote)).geturl()


def _parts(url: str) -> tuple[str, str, str]:
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
