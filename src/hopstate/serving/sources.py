"""Events from elsewhere: a topic of Kafka, a table of PostgreSQL. How far they were read stands in the log's commits.

An event without an `event_id` gets one of where it stood, so that it is taken once however often it is read.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol

from hopstate.errors import CheckpointError, ConfigError, DataError, StorageError
from hopstate.serving.event_columns import ID
from hopstate.serving.kafka import Topic
from hopstate.serving.postgres import Database, is_postgres
from hopstate.serving.postgres_key import check_key, inserting

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
_HORIZON = """select (select max({column}) from {table}),
    pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint from pg_current_snapshot() s"""


@dataclass(frozen=True)
class Arrived:
    """An event as it came.

    Args:
        event: its fields, None where they cannot be read.
        text: as it came.
        id: of where it stood.
        offset: how far the source has been read with it, as JSON has it.
    """

    event: dict[str, Any] | None
    text: str
    id: str
    offset: Any


class Source(Protocol):
    """Where events come from; `key` names it among a log's facts."""

    key: str

    def read(self, most: int) -> list[Arrived]:
        """Return what comes next, nothing where nothing has.

        Raises:
            StorageError: it cannot be reached.
        """
        ...

    def behind(self) -> int | None:
        """Return how many messages, or keys, it holds that were not read yet, by its last answer; None if unknown."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class KafkaSource:
    """Messages of a topic, of all partitions, each a JSON object; partitions that are added later too.

    Args:
        url: see `Topic`.
        offset: the next offset by partition; None for the beginning.

    look: seconds between two looks for new partitions.

    Raises:
        CheckpointError: a log says something else than offsets.
    """

    look = 30.0

    def __init__(self, url: str, offset: dict[str, int] | None) -> None:
        self.topic = Topic(url)
        self.key = f"source {self.topic.place}"
        self._next = dict(offset or {})
        if not all(p.isdecimal() and type(at) is int and at >= 0 for p, at in self._next.items()):
            raise CheckpointError(f"the log says of {self.topic.place} that it was read to {offset!r}, which is none")
        self._consumer = self.topic.consumer({})
        if not self._find():
            raise ConfigError(f"there is no {self.topic.place}")
        self._assign()

    def _find(self) -> int:
        """Note partitions that are not known yet, from their first message on; return how many there are."""
        self._looked = time.monotonic()
        many = self.topic.partitions(self._consumer)
        new = [p for p in range(many) if str(p) not in self._next]
        self._next |= {str(p): self.topic.bounds(self._consumer, p)[0] for p in new}
        return many

    def _assign(self) -> None:
        self._consumer.close()
        self._consumer = self.topic.consumer({int(p): at for p, at in self._next.items()})

    def read(self, most: int) -> list[Arrived]:
        """See `Source.read`."""
        if time.monotonic() - self._looked >= self.look:
            known = len(self._next)
            self._find()
            if len(self._next) > known:
                self._assign()
        found = []
        for partition, offset, value in self.topic.polled(self._consumer, most):
            self._next = {**self._next, str(partition): offset + 1}
            text = (value or b"").decode("utf-8", "replace")
            place = f"{self.topic.name}/{partition}/{offset}"
            found.append(Arrived(_parsed(text), text, place, self._next))
        return found

    def behind(self) -> int | None:
        """See `Source.behind`; what brokers told beside the last messages, without asking them."""
        try:
            ends = {p: self.topic.bounds(self._consumer, int(p), cached=True)[1] for p in self._next}
        except StorageError:
            return None
        return None if min(ends.values()) < 0 else sum(max(end - self._next[p], 0) for p, end in ends.items())

    def close(self) -> None:
        """See `Source.close`."""
        self._consumer.close()


@dataclass(frozen=True)
class _Fence:
    """What must have ended before no row can come any more up to a key.

    Args:
        key: the greatest that was there.
        coming: transactions with lower numbers.
        inserting: transactions that held the table to insert into it; such as have written nothing have no number.
    """

    key: int
    coming: int
    inserting: frozenset[str]


class PostgresSource:
    """Rows of a table by a key that grows (`postgresql://...?table=NAME&key=id`); columns are the events' fields.

    A row is read once no transaction runs any more that may yet add one before it: none of those that have written
    anywhere, and none that inserts into the table (it may hold a key and have written nothing yet).

    Args:
        url: the address.
        offset: the last key that was read, None for none.

    Raises:
        ConfigError: the key is none that grows: no whole number, not unique, or handed out ahead of its use.
        MissingFileError: there is no such table.
    """

    def __init__(self, url: str, offset: int | None) -> None:
        self._database = Database(url, ("table", "key"), self._begin)
        own = {"table": "events", "key": "id"} | self._database.own
        self.table, self._column = own["table"], own["key"]
        if not _NAME.fullmatch(self.table) or not _NAME.fullmatch(self._column):
            raise ConfigError(f"a table and its key have plain names; got {self.table!r} and {self._column!r}")
        self.key, self._last = f"source {self._database.place}", offset
        self._fence: _Fence | None = None
        self._greatest: int | None = None
        self._ready: int | None = None
        with suppress(StorageError), self._database.work():  # a server that is away comes back
            pass

    def _begin(self, connection: Any) -> None:
        connection.read_only = True
        check_key(connection, self.table, self._column)

    def read(self, most: int) -> list[Arrived]:
        """See `Source.read`."""
        with self._database.work() as db:
            if self._ready is None or (self._last is not None and self._last >= self._ready):
                self._look(db)
            if self._ready is None:
                return []
            query = f"select * from {self.table} where {self._column} <= %s"
            query += "" if self._last is None else f" and {self._column} > {int(self._last)}"
            cursor = db.execute(f"{query} order by {self._column} limit {int(most)}", (self._ready,))
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        found = []
        for row in rows:
            self._last = int(row.pop(self._column))
            event = {name: _plain(value) for name, value in row.items() if value is not None}
            found.append(Arrived(event, json.dumps(event), f"{self.table}/{self._last}", self._last))
        if not found:
            self._last = self._ready
        return found

    def _look(self, db: Any) -> None:
        """See up to which key no more rows can come."""
        last, oldest, coming = db.execute(_HORIZON.format(column=self._column, table=self.table)).fetchone()
        self._ready, self._greatest = None, last
        fence = self._fence
        if fence is not None and oldest >= fence.coming:
            fence = replace(fence, inserting=fence.inserting & inserting(db, self.table))
        if fence is None and last is not None and (self._last is None or last > self._last):
            fence = _Fence(int(last), coming, inserting(db, self.table))
        if fence is not None and oldest >= fence.coming and not fence.inserting:
            self._ready, fence = fence.key, None
        self._fence = fence

    def behind(self) -> int | None:
        """See `Source.behind`; keys that are missing count, since to count rows takes as long as to read them."""
        if self._greatest is None or self._last is None:
            return None
        return max(self._greatest - self._last, 0)

    def close(self) -> None:
        """See `Source.close`."""
        self._database.close()


def open_source(place: str, facts: dict[str, Any]) -> Source:
    """Return a source, which goes on where a log's facts say.

    Raises:
        ConfigError: no such kind of place.
        CheckpointError: the facts say something else than how far it was read.
    """
    if not is_postgres(place) and not place.startswith("kafka://"):
        raise ConfigError("a source is kafka://HOST:PORT/TOPIC or postgresql://HOST/DATABASE?table=NAME&key=COLUMN")
    kind: Any = PostgresSource if is_postgres(place) else KafkaSource
    first = kind(place, None)
    if first.key not in facts:
        return first  # type: ignore[no-any-return]
    first.close()
    offset = facts[first.key]
    if type(offset) is not (int if kind is PostgresSource else dict):
        raise CheckpointError(f"the log says of {first.key} that it was read to {offset!r}, which is none; use a copy")
    return kind(place, offset)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def _parsed(text: str) -> dict[str, Any] | None:
    def refuse(name: str) -> None:
        raise DataError(name)

    try:
        found = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def named(arrived: Arrived) -> dict[str, Any]:
    """Return an event with an id."""
    event = arrived.event or {}
    return event if event.get(ID) is not None else event | {ID: arrived.id}
