"""A log in a topic of Kafka: each commit is one message, so that it is there as a whole or not at all.

Whoever opens the log to write says so in it, and from there on messages of earlier writers are void to every reader; so
is a commit that does not begin where the one before ended (a retry that came twice, or late). This asks nothing of the
brokers beyond the order of one partition, and no transactions: a writer that was overtaken learns it with its next
message, which was not taken. Ids are held in memory, and read again on opening.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from hopstate.errors import BusyError, CheckpointError, DataError, MissingFileError, StorageError
from hopstate.serving.event_log import Commit, Entry, check_entries, check_start, taken
from hopstate.serving.kafka import SECONDS, Topic
from hopstate.serving.kafka_index import Index

_FORMAT = "hopstate-log-1"
LARGEST = 1_000_000  # bytes of a message, unless the address says otherwise: what brokers take by default


class KafkaLog:
    """A log in partition 0 of a topic, which is made where there is none; no other messages may stand in it.

    Args:
        url: see `Topic`; `message.max.bytes` bounds a commit.
        read_only: look at it while another process may write.

    Raises:
        MissingExtraError: confluent-kafka is not installed.
        ConfigError: the address cannot be read.
        MissingFileError: there is no log to be read.
        CheckpointError: the topic is no log of this version.
        StorageError: no broker answers.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.topic, self.read_only = Topic(url), read_only
        self.place, self._me, self._one_by_one = self.topic.place, uuid.uuid4().hex, threading.RLock()
        self._index, self._sure = Index(), False
        self._producer: Any = None
        self._consumer = self.topic.consumer({})
        try:
            if not self.topic.partitions(self._consumer):
                if read_only:
                    raise MissingFileError(f"no log in {self.place}; `hopstate serve` makes one")
                self.topic.make()
            self._next = self.topic.bounds(self._consumer, 0)[0]
            self._consumer.close()
            self._consumer = self.topic.consumer({0: self._next})
            self._catch_up()
            if read_only and self._index.writer is None:
                raise MissingFileError(f"no log in {self.place}; `hopstate serve` makes one")
            if not read_only:
                who = f"process {os.getpid()} on {socket.gethostname()}"
                self._write({"opened": who, "format": _FORMAT})
        except BaseException:
            self.close()
            raise

    # ---- messages -----------------------------------------------------------------------------------------
    def _catch_up(self, watched: int = -1) -> bool:
        """Read to the end; return whether the message at an offset counts."""
        counts, high = False, self.topic.bounds(self._consumer, 0)[1]
        while self._next < high:
            for _, offset, value in self.topic.polled(self._consumer):
                known = self._index.take(offset, self._read(value))
                counts |= known and offset == watched
                self._next = offset + 1
        self._sure = not self.read_only
        return counts

    def _read(self, value: bytes | None) -> dict[str, Any]:
        with suppress(ValueError, TypeError):
            found = json.loads(value or b"")
            if "writer" in found and found.get("format", _FORMAT) == _FORMAT:
                return found
        raise CheckpointError(f"{self.place} is no log of this version, or holds other messages; choose another topic")

    def _known(self) -> Index:
        with self._one_by_one:
            if not self._sure:
                self._catch_up()
            return self._index

    def _write(self, message: dict[str, Any]) -> None:
        """Append a message.

        Raises:
            DataError: it is too large.
            BusyError: another writer has taken over.
            StorageError: it may not be there.
        """
        if self.read_only:
            raise StorageError(f"{self.place} cannot be written: it was opened to be read")
        found: list[tuple[Any, int]] = []
        message = {"writer": self._me, **message}
        kafka = self.topic.kafka
        try:
            if self._producer is None:
                self._producer = self.topic.producer(**self._bound())
            with self.topic.named():
                told = lambda error, sent: found.append((error, sent.offset()))  # noqa: E731
                self._producer.produce(self.topic.name, json.dumps(message).encode(), partition=0, on_delivery=told)
                self._producer.flush(2 * SECONDS)
            if not found or found[0][0] is not None:
                raise kafka.KafkaException(found[0][0] if found else kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
        except (kafka.KafkaException, StorageError) as error:
            self._sure, self._producer = False, None
            cause = error.__context__ if isinstance(error, StorageError) else error
            if _is_too_large(kafka, cause):
                raise DataError(
                    f"a commit is larger than {self.place} takes: give fewer events at once, or raise the topic's "
                    "max.message.bytes and its address's message.max.bytes; nothing was taken"
                ) from error
            raise StorageError(f"{self.place} cannot be written ({error}); see whether its brokers run") from error
        self._check_taken(message, found[0][1])

    def _check_taken(self, message: dict[str, Any], offset: int) -> None:
        if self._sure and offset == self._next and self._index.writer == self._me:
            self._index.take(offset, message)
            self._next += 1
            self._consumer.seek(self.topic.kafka.TopicPartition(self.topic.name, 0, self._next))
        elif not self._catch_up(offset):
            if self._index.writer != self._me:
                raise BusyError(f"{self.place} has been taken over by {self._index.holder}; stop one of the two")
            raise StorageError(f"{self.place}: a commit that seemed lost came after all; give the events again")

    def _bound(self) -> dict[str, Any]:
        return {} if "message.max.bytes" in self.topic.settings else {"message.max.bytes": LARGEST}

    # ---- the log ------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self._known().length

    @property
    def start(self) -> int:
        """See `EventLog.start`."""
        return self._known().start

    def append(self, entries: Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """See `EventLog.append`; a commit is bounded by the size of a message."""
        check_entries(entries)
        with self._one_by_one:
            index = self._known()
            if any(entry.id in index.ids for entry in entries if entry.id is not None):
                raise DataError(taken(self.place))
            first = index.length
            if entries or facts:
                events = [(entry.id, entry.body) for entry in entries]
                self._write({"first": first, "events": events, "facts": dict(facts or {})})
        return first

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """See `EventLog.positions`."""
        known = self._known().ids
        return {one: known[one] for one in ids if one in known}

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """See `EventLog.bodies`; each commit that holds one is read."""
        index, found = self._known(), dict[int, str]()
        for k in sorted({index.commit_of(at) for at in positions if index.start <= at < index.length}):
            with closing(self.commits(index.firsts[k])) as commits:
                commit = next(commits)
            found |= dict(enumerate(commit.bodies, commit.first))
        return {at: found[at] for at in positions if at in found}

    def commits(self, first: int | None = None) -> Generator[Commit]:
        """See `EventLog.commits`."""
        index = self._known()
        at, end = check_start(first, index.start, self.place), index.length
        if at >= end:
            return
        k = index.commit_of(at)
        consumer, wanted = self.topic.consumer({0: index.offsets[k]}), iter(list(zip(index.firsts, index.offsets))[k:])
        try:
            begin, place = next(wanted)
            while at < end:
                for _, offset, value in self.topic.polled(consumer):
                    if offset > place:
                        raise CheckpointError(f"{self.place} lacks events of the commit at {begin}; use a copy")
                    if offset == place:
                        bodies = tuple(body for _, body in self._read(value)["events"])
                        yield Commit(at, bodies[at - begin :])
                        at = begin + len(bodies)
                        begin, place = next(wanted, (end, 1 << 62))
        finally:
            consumer.close()

    def cut(self, position: int) -> int:
        """See `EventLog.cut`; what was kept aside goes with what lies beside it, and is still counted."""
        with self._one_by_one:
            index = self._known()
            self._write({"facts": index.facts, "parked_before": index.parked})
            index.cut(position)
            if index.offsets:
                self.topic.delete_before(index.offsets[0])
        return index.start

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """See `EventLog.park`."""
        check_entries(entries)
        with self._one_by_one:
            known = self._known().parked_ids
            new = [(e.id, e.body, why) for e in entries if e.id is None or e.id not in known]
            if new:
                self._write({"parked": new})

    def parked(self) -> int:
        """See `EventLog.parked`."""
        return self._known().parked

    def facts(self) -> dict[str, Any]:
        """See `EventLog.facts`."""
        return dict(self._known().facts)

    def tell(self, facts: Mapping[str, Any]) -> None:
        """See `EventLog.tell`."""
        self.append([], facts)

    def close(self) -> None:
        """See `EventLog.close`."""
        self._producer = None
        self._consumer.close()


def _is_too_large(kafka: Any, error: BaseException | None) -> bool:
    found = error.args[0] if isinstance(error, kafka.KafkaException) else None
    return isinstance(found, kafka.KafkaError) and found.code() == kafka.KafkaError.MSG_SIZE_TOO_LARGE
