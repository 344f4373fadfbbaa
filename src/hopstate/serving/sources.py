"""Events from a topic of Kafka. How far they were read stands in the log's commits.

An event without an `event_id` gets one of where it stood, so that it is taken once however often it is read.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Protocol

from hopstate.errors import CheckpointError, ConfigError, DataError, StorageError
from hopstate.serving.event_columns import ID
from hopstate.serving.kafka import Topic


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
        """Return how many messages it holds that were not read yet, by its last answer; None if unknown."""
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
        self.key = self.key_of(url)
        self._next = dict(offset or {})
        if not all(p.isdecimal() and type(at) is int and at >= 0 for p, at in self._next.items()):
            raise CheckpointError(f"the log says of {self.topic.place} that it was read to {offset!r}, which is none")
        self._consumer = self.topic.consumer({})
        if not self._find():
            raise ConfigError(f"there is no {self.topic.place}")
        self._assign()

    @staticmethod
    def key_of(url: str) -> str:
        """Return under which fact a log keeps how far the topic was read."""
        return f"source {Topic(url).place}"

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


def open_source(place: str, facts: dict[str, Any]) -> Source:
    """Return a source, which goes on where a log's facts say.

    Raises:
        ConfigError: no such kind of place.
        CheckpointError: the facts say something else than how far it was read.
    """
    if not place.startswith("kafka://"):
        raise ConfigError("a source is kafka://HOST:PORT/TOPIC")
    key = KafkaSource.key_of(place)
    offset = facts.get(key)
    if offset is not None and not isinstance(offset, dict):
        raise CheckpointError(f"the log says of {key} that it was read to {offset!r}, which is none; use a copy")
    return KafkaSource(place, offset)


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
