"""Logs by name: a folder, a schema of PostgreSQL, a topic of Kafka."""

from __future__ import annotations

from pathlib import Path

from hopstate.errors import ConfigError
from hopstate.serving.event_log import EventLog
from hopstate.serving.log import SqliteLog


def open_log(place: str | Path, *, read_only: bool = False) -> EventLog:
    """Return the log at a place.

    Args:
        place: a folder, in which `SqliteLog` has a file.
        read_only: look at it while another process may write.

    Raises:
        ConfigError: no such kind of place.
        Others: see `SqliteLog`.
    """
    kind, colon, _ = str(place).partition("://")
    if colon:
        raise ConfigError(f"no log is called {kind}://; give a folder")
    return SqliteLog(place, read_only=read_only)
