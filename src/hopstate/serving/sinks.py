"""Scores of a live run into files of Parquet, a table of PostgreSQL or a topic of Kafka: each position once.

A sink knows from what it holds which position comes next. It is written before a snapshot is kept, so what a kill took
from it comes after the snapshot: it is scored again, to the same bits, as the log is read; what is there is left out.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hopstate.data.dates import shown_times
from hopstate.errors import ConfigError, HopstateWarning, StorageError
from hopstate.io.files import make_folder
from hopstate.io.opening import reading
from hopstate.io.output import write_table
from hopstate.serving.kafka import SECONDS, Topic
from hopstate.serving.postgres import Database, is_postgres

_FILE = re.compile(r"scores-(\d{12,})-(\d{12,})\.parquet")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")
_TABLE = """create table if not exists {table} (
    position bigint primary key, src text not null, dst text not null, t numeric not null, score double precision)"""
_KIND = "select format_type(atttypid, null) from pg_attribute where attrelid = %s::regclass and attname = 't'"


class Sink:
    """Where scores go; rows of position, src, dst, t and score (none of a deletion).

    Args:
        together: rows that are written at once.
        seconds: how long a row waits for others at most (see `tick`).

    next: the first position that is not there.
    clock: unit and zone (`EventStream.dates`) in which times are written as dates, None for numbers.
    numbers: whether what is there already has times as numbers; then more numbers follow.
    """

    clock: tuple[str, str] | None = None
    numbers = False

    def __init__(self, together: int = 1, seconds: float = 60.0) -> None:
        self.together, self.seconds = together, seconds
        self._held: list[pd.DataFrame] = []
        self._since = 0.0
        self.next = self._end()

    def begin(self, events: int, unit: str, dates: str) -> None:
        """Take up where a log of so many events stands, whose times are dates in a unit and zone, or "" for numbers.

        Raises:
            ConfigError: what is there is of another log.
        """
        self.clock = (unit, dates) if dates else None
        if self.next > events:
            raise ConfigError(
                f"the sink holds scores up to event {self.next - 1}, the log {events} events: they are of another log; "
                "give another sink"
            )

    def take(self, first: int, bodies: Sequence[Mapping[str, Any]], scores: np.ndarray) -> None:
        """Take events of a log and (Q,) scores; what is there already is left out.

        Warns:
            HopstateWarning: it cannot be written now, or events before have never been scored for it.
        """
        until = self.next + sum(map(len, self._held))
        if first > until > 0:
            warnings.warn(f"scores of events {until} to {first - 1} are not there; `hopstate replay` gives them",
                          HopstateWarning, stacklevel=3)  # fmt: skip
        table = pd.DataFrame({name: [body[name] for body in bodies] for name in ("src", "dst", "t")}, dtype=object)
        table.insert(0, "position", np.arange(first, first + len(bodies)))
        table["score"] = scores
        table = table[table["position"] >= until]
        if not len(table):
            return
        if not self._held:
            self.next, self._since = int(table["position"].iloc[0]), time.monotonic()
        self._held.append(table)
        if sum(map(len, self._held)) >= self.together or self._is_due():
            try:
                self.flush()
            except StorageError as error:
                warnings.warn(f"scores wait: {error}", HopstateWarning, stacklevel=3)

    def _is_due(self) -> bool:
        return bool(self._held) and time.monotonic() - self._since >= self.seconds

    def tick(self) -> None:
        """Write what has waited long enough, where no more events come; to be called now and then.

        Raises:
            StorageError: it cannot be written; it goes on waiting.
        """
        if self._is_due():
            self.flush()

    def flush(self) -> None:
        """Write what waits.

        Raises:
            StorageError: it cannot be written; it goes on waiting.
        """
        if self._held:
            table = pd.concat(self._held, ignore_index=True)
            self._write(table if self.numbers or self.clock is None else self._dated(table, *self.clock))
            self._held, self.next = [], int(table["position"].iloc[-1]) + 1

    @staticmethod
    def _dated(table: pd.DataFrame, unit: str, dates: str) -> pd.DataFrame:
        if isinstance(table["t"].iloc[0], str):  # it waits once more
            return table
        return table.assign(t=shown_times(np.array(table["t"].tolist()), unit, dates).astype(object))

    def _end(self) -> int:
        raise NotImplementedError

    def _write(self, table: pd.DataFrame) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of it."""


class ParquetSink(Sink):
    """Files `scores-FIRST-LAST.parquet` in a folder, each whole or absent."""

    def __init__(self, folder: str | Path, together: int = 10_000) -> None:
        self.folder = Path(folder)
        make_folder(self.folder)
        super().__init__(together)

    def _end(self) -> int:
        found = [match for path in self.folder.iterdir() if (match := _FILE.fullmatch(path.name))]
        last = max(found, key=lambda match: int(match[2]), default=None)
        if last is None:
            return 0
        self.numbers = _has_numbers(self.folder / last[0])
        return int(last[2]) + 1

    def _write(self, table: pd.DataFrame) -> None:
        first, last = table["position"].iloc[[0, -1]]
        write_table(table.infer_objects(), self.folder / f"scores-{first:012}-{last:012}.parquet")


class PostgresSink(Sink):
    """Rows of a table (`postgresql://...?table=NAME`), which is made where there is none."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, ("table",))
        self.table = self._database.own.get("table", "scores")
        if not _NAME.fullmatch(self.table):
            raise ConfigError(f"table={self.table!r}: a table's name is of small letters, digits and _")
        super().__init__()

    def _end(self) -> int:
        with self._database.work() as db:
            db.execute("set client_min_messages = warning")
            db.execute(_TABLE.format(table=self.table))
            end = int(db.execute(f"select coalesce(max(position) + 1, 0) from {self.table}").fetchone()[0])
            kind = db.execute(_KIND, (self.table,)).fetchone()[0]
            self.numbers, self._alter = kind != "text" and end > 0, kind != "text" and end == 0
            return end

    def _write(self, table: pd.DataFrame) -> None:
        dated = self.clock is not None and not self.numbers
        rows = [
            (int(p), str(s), str(d), str(t) if dated else Decimal(str(t)), None if np.isnan(score) else float(score))
            for p, s, d, t, score in table.itertuples(index=False)
        ]
        query = f"insert into {self.table} values (%s, %s, %s, %s, %s) on conflict do nothing"
        with self._database.work() as db, db.transaction():
            if dated and self._alter:  # still empty
                db.execute(f"alter table {self.table} alter column t type text")
            db.cursor().executemany(query, rows)
        self._alter = False

    def close(self) -> None:
        """Let go of it."""
        self._database.close()


class KafkaSink(Sink):
    """Messages in partition 0 of a topic, each a JSON object; no others may stand there.

    What the brokers have not acknowledged in time stays with the producer, which sends it again under the same number:
    they take each once. A message's key is its position.

    wait: seconds that an acknowledgement may take before scores wait.
    """

    wait = 2 * SECONDS

    def __init__(self, url: str) -> None:
        self.topic = Topic(url)
        self._begin()
        super().__init__()

    def _begin(self) -> None:
        self._producer = self.topic.producer(**{"message.timeout.ms": 0})  # none is given up, or it might come twice
        self._sent = self._acknowledged = 0  # of the rows that are held
        self._lost: Any = None

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
                for _, _, value in self.topic.polled(reader, 1):
                    row = json.loads(value or b"{}")
                    self.numbers = not isinstance(row["t"], str)
                    return int(row["position"]) + 1
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self.topic.place} holds other messages than scores; choose another topic") from None
        finally:
            reader.close()
        raise StorageError(f"{self.topic.place} cannot be read; see whether its brokers run")

    def _write(self, table: pd.DataFrame) -> None:
        until = time.monotonic() + self.wait
        with self.topic.named():
            for row in table.iloc[self._sent :].to_dict("records"):
                row["score"] = None if np.isnan(row["score"]) else row["score"]
                self._send(row, until)
        self._producer.flush(max(until - time.monotonic(), 0))
        if self._lost is None and self._acknowledged == len(table):
            self._sent = self._acknowledged = 0
            return
        if self._lost is not None:  # see what came, and go on behind it
            self._producer.purge()
            self._producer.flush(self.wait)
            self._begin()
            end = self._end()
            self._held = [table[table["position"] >= end]] if end <= table["position"].iloc[-1] else []
            self.next = max(self.next, end)
        if self._held:
            raise StorageError(f"{self.topic.place} cannot be written; see whether its brokers run")

    def _send(self, row: dict[Any, Any], until: float) -> None:
        while True:
            try:
                self._producer.produce(
                    self.topic.name,
                    json.dumps(row).encode(),
                    key=str(row["position"]),
                    partition=0,
                    on_delivery=self._told,
                )
            except BufferError:  # so many wait for the brokers
                if time.monotonic() > until:
                    raise StorageError(f"{self.topic.place} cannot be written; see whether its brokers run") from None
                self._producer.poll(0.1)
            else:
                self._sent += 1
                return

    def _told(self, error: Any, sent: Any) -> None:
        self._acknowledged += error is None
        self._lost = self._lost or error


def _has_numbers(path: Path) -> bool:
    """Return whether times are numbers in a file of scores."""
    from pyarrow import parquet, types

    with reading(path, "scores"):
        kind = parquet.read_schema(path).field("t").type
    return not (types.is_string(kind) or types.is_large_string(kind))


def open_sink(place: str) -> Sink:
    """Return the sink at a place: a folder, `postgresql://...?table=NAME` or `kafka://HOST:PORT/TOPIC`.

    Raises:
        ConfigError: no such kind of place.
    """
    if is_postgres(place):
        return PostgresSink(place)
    if place.startswith("kafka://"):
        return KafkaSink(place)
    if "://" in place:
        raise ConfigError("scores go into a folder, postgresql://HOST/DATABASE?table=NAME or kafka://HOST:PORT/TOPIC")
    return ParquetSink(place)
