"""The Kafka bridge: events from a topic into a live run, and its scores into another topic.

What was read is committed together with how far, so that a kill doubles nothing. An event without an `event_id` gets
one of its partition and offset, so that it is taken once however often it is read. What cannot be read is kept aside in
the log, with the reason. Passwords are never shown.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pandas as pd

from hopstate.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    HopstateError,
    HopstateWarning,
    MissingExtraError,
    StorageError,
)
from hopstate.serving.event_parser import ID
from hopstate.serving.live import LiveRun
from hopstate.serving.log import Entry
from hopstate.serving.sinks import Sink
from hopstate.serving.transaction import Receipt

SECONDS = 10.0  # that a broker may take
_BAD_SETTING_CODES = (-186, -170)  # librdkafka's codes of a setting that is none, and of one it was not built with
BATCH = 500  # events that are committed together
_REFUSALS = (HopstateError, RecursionError, OverflowError, UnicodeError)  # of an event that cannot be taken


class Topic:
    """A topic, of whose partitions one is read or written at a time.

    Args:
        url: `kafka://HOST:PORT,HOST:PORT/TOPIC?...` with librdkafka's settings (`security.protocol=sasl_ssl`, ...).

    name, place: of the topic, as it may be shown.
    """

    def __init__(self, url: str) -> None:
        self.kafka = _kafka()
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            parts, options = urlsplit(""), {}
        hosts, self.name = parts.netloc.rpartition("@")[2], parts.path.removeprefix("/")
        if not hosts or not self.name or "/" in self.name or "@" in parts.netloc:
            raise ConfigError("an address is kafka://HOST:PORT/TOPIC?SETTING=VALUE; this one cannot be read")
        self.place, self.settings = f"kafka://{hosts}/{self.name}", {"bootstrap.servers": hosts, **options}

    @contextmanager
    def named(self) -> Iterator[None]:
        """Within it errors of Kafka are told by name."""
        try:
            yield
        except self.kafka.KafkaException as error:
            found = error.args[0]
            told = found.str() if isinstance(found, self.kafka.KafkaError) else error
            if isinstance(found, self.kafka.KafkaError) and found.code() in _BAD_SETTING_CODES:
                raise ConfigError(f"{self.place}: {told}") from None
            raise StorageError(
                f"{self.place} cannot be written or read ({told}); see whether its brokers run"
            ) from None

    def consumer(self, offsets: Mapping[int, int]) -> Any:
        own = {
            "group.id": "hopstate",  # librdkafka asks for a name; nothing is committed under it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 50,
        }
        with self.named():
            made = self.kafka.Consumer({**self.settings, **own})
            made.assign([self.kafka.TopicPartition(self.name, *place) for place in offsets.items()])
            return made

    def producer(self) -> Any:
        """Return a producer whose messages are acknowledged by all replicas, each once."""
        usual = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": int(SECONDS * 1e3)}
        with self.named():
            return self.kafka.Producer({**usual, **self.settings})

    def partitions(self, consumer: Any) -> int:
        """Return how many partitions the topic has, 0 where it is not there."""
        with self.named():
            found = consumer.list_topics(timeout=SECONDS).topics.get(self.name)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def make(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        keep = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
        with self.named():
            new = NewTopic(self.name, num_partitions=1, config=keep)
            AdminClient(self.settings).create_topics([new], request_timeout=SECONDS)[self.name].result()

    def bounds(self, consumer: Any, partition: int, *, cached: bool = False) -> tuple[int, int]:
        """Return the first offset that is kept, and the next one; cached, as last heard of, below zero where never."""
        with self.named():
            place = self.kafka.TopicPartition(self.name, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=SECONDS, cached=cached)
            return int(low), int(high)

    def poll(self, consumer: Any, max_messages: int = 16) -> Iterator[tuple[int, int, bytes | None]]:
        """Yield partitions, offsets and values of messages that come next, if any came in time."""
        with self.named():
            found = consumer.consume(max_messages, timeout=0.1)
            errors = [message.error() for message in found]
            wrong = [e for e in errors if e is not None and e.code() != self.kafka.KafkaError._PARTITION_EOF]
            if wrong and all(e is not None for e in errors):
                raise self.kafka.KafkaException(wrong[0])
        # beside messages an error waits: they would be lost with it, and it comes again where it lasts
        yield from ((m.partition(), m.offset(), m.value()) for m, e in zip(found, errors, strict=True) if e is None)


def _kafka() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise MissingExtraError("Kafka needs confluent-kafka: pip install 'hopstate[kafka]'") from None
    return confluent_kafka


@dataclass(frozen=True)
class Message:
    """A message of the source."""

    text: str
    id: str  # topic, partition and offset
    offset: Any  # how far the source has been read with it, as JSON has it

    def event(self) -> dict[str, Any]:
        """Return the event, with the message's own id if it has none; DataError if it is no JSON object."""

        def refuse(constant: str) -> None:  # NaN and infinities, which JSON does not have
            raise ValueError(constant)

        try:
            found = json.loads(self.text, parse_constant=refuse)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise DataError("no JSON object")
        return found if found.get(ID) is not None else found | {ID: self.id}


class KafkaSource:
    """Messages of a topic, of all partitions, each a JSON object; partitions that are added later too.

    It is read from the next offset by partition on, None for the beginning.
    """

    look = 30.0  # seconds between two looks for new partitions

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
        self._looked = time.monotonic()
        many = self.topic.partitions(self._consumer)
        new = [p for p in range(many) if str(p) not in self._next]
        self._next |= {str(p): self.topic.bounds(self._consumer, p)[0] for p in new}
        return many

    def _assign(self) -> None:
        self._consumer.close()
        self._consumer = self.topic.consumer({int(p): at for p, at in self._next.items()})

    def read(self, max_messages: int) -> list[Message]:
        """Return what comes next, nothing if nothing has."""
        if time.monotonic() - self._looked >= self.look:
            known = len(self._next)
            self._find()
            if len(self._next) > known:
                self._assign()
        found = []
        for partition, offset, value in self.topic.poll(self._consumer, max_messages):
            self._next = {**self._next, str(partition): offset + 1}
            text = (value or b"").decode("utf-8", "replace")
            found.append(Message(text, f"{self.topic.name}/{partition}/{offset}", self._next))
        return found

    def behind(self) -> int | None:
        """Return how many messages were not read yet, as of the last answer of the brokers; None if unknown."""
        try:
            ends = {p: self.topic.bounds(self._consumer, int(p), cached=True)[1] for p in self._next}
        except StorageError:
            return None
        return None if min(ends.values()) < 0 else sum(max(end - self._next[p], 0) for p, end in ends.items())

    def close(self) -> None:
        self._consumer.close()


def open_source(place: str, facts: dict[str, Any]) -> KafkaSource:
    """Return a source, which goes on where a log's facts say."""
    if not place.startswith("kafka://"):
        raise ConfigError("a source is kafka://HOST:PORT/TOPIC")
    key = KafkaSource.key_of(place)
    offset = facts.get(key)
    if offset is not None and not isinstance(offset, dict):
        raise CheckpointError(f"the log says of {key} that it was read to {offset!r}, which is none; use a copy")
    return KafkaSource(place, offset)


class IngestLoop:
    """A source beside a live run, in its thread."""

    def __init__(self, live: LiveRun, source: KafkaSource, *, score: bool = True) -> None:
        if live.late == "reject":
            raise ConfigError("late=reject cannot be used with a source. Give --late clamp or --late dead-letter")
        self.live, self.source, self.score = live, source, score
        self._pending: list[Message] = []
        self._ignored: set[str] = set()  # fields that were warned of

    def run_once(self) -> list[Receipt]:
        """Take what comes next; return receipts. If source or log cannot be reached, the next call tries again."""
        self._pending = self._pending or self.source.read(BATCH)
        try:
            found = self._take(self._pending) if self._pending else []
        except StorageError:
            raise
        except _REFUSALS:
            found = self._one_by_one()
        self._pending = []
        return found

    def behind(self) -> int | None:
        """Return how far the run is behind the source, what was read and not taken counted; None if unknown."""
        left = self.source.behind()
        return None if left is None else left + len(self._pending)

    def _take(self, messages: list[Message]) -> list[Receipt]:
        facts = {self.source.key: messages[-1].offset}
        events = [message.event() for message in messages]
        found = self.live.take(events, score=self.score, facts=facts, strict=False)
        if new := set(self.live.unread_fields(events)) - self._ignored:
            self._ignored |= new
            text = f"fields of the source that the run does not read are left out: {', '.join(sorted(new))[:500]}"
            warnings.warn(text, HopstateWarning, stacklevel=4)
        return found

    def _one_by_one(self) -> list[Receipt]:
        found = []
        for message in self._pending:
            try:
                found += self._take([message])
            except StorageError:
                raise
            except _REFUSALS as error:
                body = json.dumps({"text": message.text, "error": str(error)})
                self.live.log.add_dead_letters([Entry(body, message.id)], "unreadable")
                self.live.log.set_facts({self.source.key: message.offset})
                found.append(Receipt(None, note="unreadable"))
        return found


class KafkaSink(Sink):
    """Messages in partition 0 of a topic, each a JSON object; no others may stand there.

    The producer is idempotent. After a failure the sink looks which rows arrived, and sends the others. A message's key
    is its position.

    wait: seconds that an acknowledgement may take before scores wait.
    """

    wait = 2 * SECONDS

    def __init__(self, url: str) -> None:
        self.topic = Topic(url)
        self._producer, self._is_uncertain = self.topic.producer(), False
        super().__init__()

    def _end(self) -> int:
        reader = self.topic.consumer({})
        if not self.topic.partitions(reader):
            self.topic.make()
        low, high = self.topic.bounds(reader, 0)
        reader.close()
        if low == high:
            return 0
        reader, until = self.topic.consumer({0: high - 1}), time.monotonic() + SECONDS
        try:
            while time.monotonic() < until:
                for _, _, value in self.topic.poll(reader, 1):
                    return int(json.loads(value or b"{}")["position"]) + 1
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self.topic.place} holds other messages than scores; choose another topic") from None
        finally:
            reader.close()
        raise StorageError(f"{self.topic.place} cannot be read; see whether its brokers run")

    def _write(self, table: pd.DataFrame) -> None:
        if self._is_uncertain:  # rows of a try that failed may have arrived
            table = table[table["position"] >= self._end()]
        self._is_uncertain = True
        errors: list[Any] = []  # None of a message that the brokers acknowledged
        with self.topic.named():
            for row in table.to_dict("records"):
                row["score"] = None if np.isnan(row["score"]) else row["score"]
                self._send(row, lambda error, _: errors.append(error))
            self._producer.flush(self.wait)
        if errors.count(None) < len(table):
            self._producer.purge()  # nothing is sent behind our back
            self._producer.flush(self.wait)
            self._producer = self.topic.producer()
            raise StorageError(f"{self.topic.place} cannot be written; see whether its brokers run")
        self._is_uncertain = False

    def _send(self, row: dict[Any, Any], on_delivery: Callable[[Any, Any], None]) -> None:
        message = {"value": json.dumps(row).encode(), "key": str(row["position"])}
        try:
            self._producer.produce(self.topic.name, partition=0, on_delivery=on_delivery, **message)
        except BufferError:  # the queue of messages is full
            self._producer.flush(self.wait)
            self._producer.produce(self.topic.name, partition=0, on_delivery=on_delivery, **message)
