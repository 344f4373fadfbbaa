"""Logs by name: a folder, or a schema of PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from hopstate.errors import ConfigError
from hopstate.serving.event_log import EventLog
from hopstate.serving.log import SqliteLog
from hopstate.serving.postgres import is_postgres
from hopstate.serving.postgres_log import PostgresLog


def open_log(place: str | Path, *, read_only: bool = False) -> EventLog:
    """Return the log at a place.

    Args:
        place: a folder, in which `SqliteLog` has a file, or the address of a `PostgresLog`.
        read_only: look at it while another process may write.

    Raises:
        ConfigError: no such kind of place.
        Others: see `SqliteLog`, `PostgresLog`.
    """
    if is_postgres(str(place)):
        return PostgresLog(str(place), read_only=read_only)
    if "://" in str(place):
        kind = str(place).partition("://")[0]
        raise ConfigError(f"no log is called {kind}://; give a folder or postgresql://...")
    return SqliteLog(place, read_only=read_only)
