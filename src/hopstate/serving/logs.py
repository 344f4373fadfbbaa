"""Logs by name: a folder, a schema of PostgreSQL, or a topic of Kafka."""

from __future__ import annotations

from pathlib import Path

from hopstate.errors import ConfigError
from hopstate.serving.event_log import EventLog
from hopstate.serving.kafka_log import KafkaLog
from hopstate.serving.log import SqliteLog
from hopstate.serving.postgres import is_postgres
from hopstate.serving.postgres_log import PostgresLog


def open_log(place: str | Path, *, read_only: bool = False) -> EventLog:
    """Return the log at a place.

    Args:
        place: a folder, in which `SqliteLog` has a file, or the address of a `PostgresLog` or `KafkaLog`.
        read_only: look at it while another process may write.

    Raises:
        ConfigError: no such kind of place.
        Others: see `SqliteLog`, `PostgresLog`, `KafkaLog`.
    """
    kind, colon, _ = str(place).partition("://")
    if is_postgres(str(place)):
        return PostgresLog(str(place), read_only=read_only)
    if kind == "kafka":
        return KafkaLog(str(place), read_only=read_only)
    if colon:
        raise ConfigError(f"no log is called {kind}://; give a folder, postgresql://... or kafka://...")
    return SqliteLog(place, read_only=read_only)
