"""A topic of Kafka: clients of librdkafka by an address; errors by name; passwords are never shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hopstate.errors import ConfigError, MissingExtraError, StorageError

SECONDS = 10.0  # that a broker may take


class Topic:
    """A topic, of whose partitions one is read or written at a time.

    Args:
        url: `kafka://HOST:PORT,HOST:PORT/TOPIC?...` with librdkafka's settings (`security.protocol=sasl_ssl`, ...).

    name, place: of the topic, as it may be shown.

    Raises:
        MissingExtraError: confluent-kafka is not installed.
        ConfigError: the address cannot be read.
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
            if isinstance(found, self.kafka.KafkaError) and found.code() in _SETTINGS:
                raise ConfigError(f"{self.place}: {told}") from None
            raise StorageError(
                f"{self.place} cannot be written or read ({told}); see whether its brokers run"
            ) from None

    def consumer(self, offsets: Mapping[int, int]) -> Any:
        """Return a consumer of partitions from offsets on, of no group."""
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

    def producer(self, **own: Any) -> Any:
        """Return a producer whose messages are acknowledged by all replicas, each once."""
        usual = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": int(SECONDS * 1e3)}
        with self.named():
            return self.kafka.Producer({**usual, **self.settings, **own})

    def partitions(self, consumer: Any) -> int:
        """Return how many partitions the topic has, 0 where it is not there."""
        with self.named():
            found = consumer.list_topics(timeout=SECONDS).topics.get(self.name)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def make(self) -> None:
        """Make the topic, of one partition that keeps all."""
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

    def polled(self, consumer: Any, most: int = 16) -> Iterator[tuple[int, int, bytes | None]]:
        """Yield partitions, offsets and values of messages that come next, if any came in time."""
        with self.named():
            found = consumer.consume(most, timeout=0.1)
            errors = [message.error() for message in found]
            wrong = [e for e in errors if e is not None and e.code() != self.kafka.KafkaError._PARTITION_EOF]
            if wrong and all(e is not None for e in errors):
                raise self.kafka.KafkaException(wrong[0])
        # beside messages an error waits: they would be lost with it, and it comes again where it lasts
        yield from ((m.partition(), m.offset(), m.value()) for m, e in zip(found, errors, strict=True) if e is None)


_SETTINGS = (-186, -170)  # librdkafka's codes of a setting that is none, and of one it was not built with


def _kafka() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise MissingExtraError("Kafka needs confluent-kafka: pip install 'hopstate[kafka]'") from None
    return confluent_kafka
