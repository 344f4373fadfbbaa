"""The log in Kafka, against the mock cluster of librdkafka (see conftest.py for what it cannot show)."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from log_conformance import LogConformance, Logs, entries

from hopstate.errors import BusyError, CheckpointError, ConfigError, DataError, StorageError
from hopstate.serving.event_log import Commit, Entry
from hopstate.serving.kafka_index import Index
from hopstate.serving.kafka_log import KafkaLog
from hopstate.serving.logs import open_log

pytestmark = pytest.mark.slow

NUMBER = itertools.count()


@pytest.fixture
def url(kafka: Callable[[str], str]) -> str:
    return kafka(f"log-{next(NUMBER)}")


class TestKafkaLog(LogConformance):
    @pytest.fixture
    def logs(self, url: str) -> Logs:
        return Logs(partial(KafkaLog, url), url, second="takes over", cuts=False, long=40)


def send(log: KafkaLog, message: Any) -> None:
    producer = log.topic.producer()
    producer.produce(
        log.topic.name, message if isinstance(message, bytes) else json.dumps(message).encode(), partition=0
    )
    producer.flush(10)


def test_a_commit_that_is_too_large_is_refused_whole(url: str) -> None:
    log = open_log(url)
    log.append(entries("a"))
    with pytest.raises(DataError, match="give fewer events at once"):
        log.append([Entry(json.dumps({"a": "x" * 1_000_001}), "b")])
    assert (len(log), log.positions(["b"]), log.append(entries("b"))) == (1, {}, 1)
    log.close()


def test_what_was_sent_twice_or_late_is_void(url: str) -> None:
    """To this writer, to one that opens later, and to readers."""
    log = KafkaLog(url)
    log.append(entries("a"))
    again = {"writer": log._me, "first": 0, "events": [("a", "1")], "facts": {"x": 1}}
    send(log, again)  # a retry that came twice
    assert log.append(entries("b")) == 1
    send(log, {**again, "first": 2, "events": [("late", "2")]})  # was said to have failed, and came after all
    with pytest.raises(StorageError, match="came after all"):
        log.append(entries("c"))
    assert (len(log), log.positions(["late", "c"])) == (3, {"late": 2})
    assert log.append(entries("c")) == 3
    other = KafkaLog(url)
    send(log, {**again, "first": 4, "events": [("stale", "3")]})  # of a writer that was overtaken
    assert other.append(entries("d")) == 4
    with pytest.raises(BusyError, match="taken over by process"):
        log.append(entries("e"))
    reader = KafkaLog(url, read_only=True)
    found = [body for commit in reader.commits() for body in commit.bodies]
    assert found == ['{"n": "a"}', '{"n": "b"}', "2", '{"n": "c"}', '{"n": "d"}']
    assert [c.first for c in reader.commits(3)] == [3, 4]
    for one in (log, other, reader):
        one.close()


def test_an_index_from_the_middle_of_a_log() -> None:
    """What is left where the brokers have deleted the beginning (which the mock cluster cannot)."""
    whole = [
        {"writer": "w", "opened": "me", "format": "f"},
        *({"writer": "w", "first": 2 * k, "events": [(f"{k}", "1"), (None, "2")], "facts": {"s": k}} for k in range(3)),
        {"writer": "w", "parked": [("p", "1", "late")]},
        {"writer": "w", "facts": {"format": "f", "s": 2}, "parked_before": 1},
        {"writer": "w", "first": 6, "events": [("3", "1")]},
    ]
    one, rest = Index(), Index()
    assert all(one.take(k, message) for k, message in enumerate(whole))
    one.cut(3)
    assert all(rest.take(k, whole[k]) for k in range(2, len(whole)))
    shown = lambda index: {k: v for k, v in vars(index).items() if k not in ("holder", "parked_ids")}  # noqa: E731
    assert shown(one) == shown(rest)
    assert (one.start, one.length, one.ids, one.parked) == (2, 7, {"1": 2, "2": 4, "3": 6}, 1)
    assert not rest.take(9, {"writer": "v", "first": 7, "events": [("4", "1")]})


def test_topics_and_addresses_that_are_none(url: str, kafka: Callable[[str], str]) -> None:
    log = KafkaLog(url)
    send(log, b"something else")
    with pytest.raises(CheckpointError, match="other messages"):
        KafkaLog(url)
    log.close()
    for bad in ("kafka://h:1", "kafka:///t", "kafka://h:1/a/b", "kafka://me:secret@h:1/t", f"{url}&no.such.setting=1"):
        with pytest.raises(ConfigError) as raised:
            open_log(bad)
        assert "secret" not in str(raised.value)


def test_a_commit_is_one_message(url: str) -> None:
    log = KafkaLog(url)
    high = log.topic.bounds(log._consumer, 0)[1]
    log.append([Entry("1")] * 100, {"source": 3})
    assert log.topic.bounds(log._consumer, 0)[1] == high + 1
    assert list(log.commits()) == [Commit(0, ("1",) * 100)]
    log.close()
