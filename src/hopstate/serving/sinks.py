"""Scores of a live run into files of Parquet or a topic of Kafka: each position once.

A sink knows from what it holds which position comes next. It is written before a snapshot is kept, so what a kill took
from it comes after the snapshot: it is scored again, to the same bits, as the log is read; what is there is left out.
"""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from hopstate.data.dates import format_times
from hopstate.errors import ConfigError, HopstateWarning, StorageError
from hopstate.io.files import make_folder
from hopstate.io.output import write_table
from hopstate.serving.event_parser import Columns

_FILE = re.compile(r"scores-(\d{12,})-(\d{12,})\.parquet")


class Sink:
    """Where scores go; rows of position, src, dst, t and score (none of a deletion).

    batch_size: rows that are written at once.
    seconds: how long a row waits for others at most (see `tick`).
    next: the first position that is not there.
    clock: unit and zone (`EventStream.dates`) in which times are written as dates, None for numbers.
    """

    clock: tuple[str, str] | None = None

    def __init__(self, batch_size: int = 1, seconds: float = 60.0) -> None:
        self.batch_size, self.seconds = batch_size, seconds
        self._held: list[pd.DataFrame] = []
        self._since = 0.0
        self.next = self._end()

    def begin(self, events: int, unit: str, dates: str) -> None:
        """Take up where a log of so many events stands, whose times are dates in a unit and zone, or "" for numbers."""
        self.clock = (unit, dates) if dates else None
        if self.next > events:
            raise ConfigError(
                f"the sink holds scores up to event {self.next - 1}, the log {events} events: they are of another log; "
                "give another sink"
            )

    def take(self, first: int, events: Columns, scores: np.ndarray) -> None:
        """Take events of a log and (Q,) scores; what is there already is left out.

        Warns:
            HopstateWarning: it cannot be written now, or events before have never been scored for it.
        """
        until = self.next + sum(map(len, self._held))
        if first > until > 0:
            warnings.warn(f"scores of events {until} to {first - 1} are not there; `hopstate replay` gives them",
                          HopstateWarning, stacklevel=3)  # fmt: skip
        table = pd.DataFrame({name: events.fields[name] for name in ("src", "dst", "t")}, dtype=object)
        table.insert(0, "position", np.arange(first, first + len(table)))
        table["score"] = scores
        table = table[table["position"] >= until]
        if not len(table):
            return
        if not self._held:
            self.next, self._since = int(table["position"].iloc[0]), time.monotonic()
        self._held.append(table)
        if sum(map(len, self._held)) >= self.batch_size or self._is_due():
            try:
                self.flush()
            except StorageError as error:
                warnings.warn(f"scores wait: {error}", HopstateWarning, stacklevel=3)

    def _is_due(self) -> bool:
        return bool(self._held) and time.monotonic() - self._since >= self.seconds

    def tick(self) -> None:
        """Write what has waited long enough, where no more events come; to be called now and then."""
        if self._is_due():
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._held:
            table = pd.concat(self._held, ignore_index=True)
            self._write(table if self.clock is None else self._dated(table, *self.clock))
            self._held, self.next = [], int(table["position"].iloc[-1]) + 1

    @staticmethod
    def _dated(table: pd.DataFrame, unit: str, dates: str) -> pd.DataFrame:
        if isinstance(table["t"].iloc[0], str):  # it waits once more
            return table
        return table.assign(t=format_times(np.array(table["t"].tolist()), unit, dates).astype(object))

    def _end(self) -> int:
        raise NotImplementedError

    def _write(self, table: pd.DataFrame) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Close what is open."""


class ParquetSink(Sink):
    """Files `scores-FIRST-LAST.parquet` in a folder, each whole or absent."""

    def __init__(self, folder: str | Path, batch_size: int = 10_000) -> None:
        self.folder = Path(folder)
        make_folder(self.folder)
        super().__init__(batch_size)

    def _end(self) -> int:
        found = [match for path in self.folder.iterdir() if (match := _FILE.fullmatch(path.name))]
        return max((int(match[2]) + 1 for match in found), default=0)

    def _write(self, table: pd.DataFrame) -> None:
        first, last = table["position"].iloc[[0, -1]]
        write_table(table.infer_objects(), self.folder / f"scores-{first:012}-{last:012}.parquet")


def open_sink(place: str) -> Sink:
    """Return the sink at a place: a folder, or `kafka://HOST:PORT/TOPIC`."""
    if place.startswith("kafka://"):
        from hopstate.serving.kafka import KafkaSink  # it builds on this module

        return KafkaSink(place)
    if "://" in place:
        raise ConfigError("scores go into a folder or kafka://HOST:PORT/TOPIC")
    return ParquetSink(place)
