"""A database of PostgreSQL: one connection, made anew when it broke; errors by name; passwords are never shown."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from hopstate.errors import ConfigError, DataError, MissingExtraError, MissingFileError, StorageError
from hopstate.serving.event_log import taken


class Database:
    """A connection, used by one thread at a time.

    Args:
        url: `postgresql://USER@HOST/DATABASE?...` with libpq's parameters.
        own: names of parameters that are none of libpq's; see `own`.
        begin: what to do with each new connection.

    own: values of these parameters.
    place: the address as it may be shown.

    Raises:
        MissingExtraError: psycopg is not installed.
        ConfigError: the address cannot be read.
    """

    def __init__(self, url: str, own: tuple[str, ...], begin: Callable[[Any], None] = lambda connection: None) -> None:
        self.psycopg = _psycopg()
        self._address, self.own, self.place = _parts(url, own)
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
        """Let go of it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def is_postgres(place: str) -> bool:
    """Return whether a place is an address of PostgreSQL."""
    return place.startswith(("postgresql://", "postgres://"))


def _parts(url: str, own: tuple[str, ...]) -> tuple[str, dict[str, str], str]:
    """Return libpq's address, what is our own, and both as they may be shown."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        host = f"{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}"
    except ValueError:
        raise ConfigError("an address is postgresql://USER@HOST/DATABASE?...; this one cannot be read") from None
    mine = {key: value for key, value in options if key in own}
    rest = urlencode([(key, value) for key, value in options if key not in own], quote_via=quote)
    shown = f"postgresql://{host}{parts.path}" + (f"?{urlencode(mine)}" if mine else "")
    return parts._replace(query=rest).geturl(), mine, shown


def _first(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("PostgreSQL needs psycopg: pip install 'hopstate[postgres]'") from None
    return psycopg
