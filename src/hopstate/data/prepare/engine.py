"""What needs all events at once, as expressions of Ibis: the distinct ids in order, the rows that they get, the order.

An engine runs them: `on_duckdb` in the process, `on_spark` on a cluster. The orders leave nothing open (texts go by
their UTF-8 bytes, events of one time by their place in the source), so that any engine gives the same rows.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1 << 17  # rows that an engine hands over at a time


class Engine(abc.ABC):
    """An engine at work in a folder; a context, which ends what it began."""

    def __enter__(self) -> Engine:
        return self

    @abc.abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abc.abstractmethod
    def _read(self, paths: Sequence[Path]) -> Any:
        """Return a table of Ibis of the rows of Parquet files."""

    @abc.abstractmethod
    def _number(self, texts: Any) -> Any:
        """Return int64 of texts of whole numbers, written as `piece_ids` says."""

    @abc.abstractmethod
    def _batches(self, expression: Any, path: Path) -> Iterator[pa.RecordBatch]:
        """Return an expression's rows in its order.

        Args:
            expression: of Ibis, ordered.
            path: in the folder of work, for messages.

        Raises:
            DataError: an id beyond 2^63 - 1.
            StorageError: too little memory or disk.
        """

    def vocabulary(self, ids: Sequence[Path], whole: tuple[bool, bool], text: bool, path: Path) -> None:
        """Write the distinct ids in order, with their rows, as a Parquet file.

        Args:
            ids: files of ids; see `hopstate.data.prepare.numbering.Logged`.
            whole: whether those of the sources and of the targets are whole numbers.
            text: the ids are texts in the end.
            path: of the file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        count, kind = 0, pa.string() if text else pa.int64()
        schema = pa.schema([("id", kind), ("row", pa.int64())])
        known = self._keys(ids, whole, text).select("id").distinct().order_by("id")
        with pq.ParquetWriter(path, schema, use_dictionary=False) as out:
            for batch in self._batches(known, path):
                rows = pa.array(np.arange(count, count + len(batch)))
                out.write_batch(pa.record_batch([batch.column(0).cast(kind), rows], schema=schema))
                count += len(batch)

    def rows(self, ids: Sequence[Path], whole: tuple[bool, bool], text: bool, vocabulary: Path) -> Iterator[pa.Array]:
        """Return the rows of the ids, in the order of generation, side and code."""
        keys, known = self._keys(ids, whole, text), self._read([vocabulary])
        found = keys.join(known, "id").order_by("generation", "side", "code").select("row")
        yield from (batch.column(0) for batch in self._batches(found, vocabulary))

    def ordered(self, events: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        """Return events by time, those of one time in the order of the source."""
        yield from self._batches(self._read(events).order_by("t", "position"), events[0])

    def entries(self, edges: Sequence[Path], undirected: bool, loops: bool) -> Iterator[pa.RecordBatch]:
        """Return edges by source, target and place in the source, each in both directions where it is undirected.

        Args:
            edges: files of src, dst, position and what edges carry.
            undirected: every edge but those from a node to itself stands for its reverse too.
            loops: keep edges from a node to itself.
        """
        table = self._read(edges)
        if not loops:
            table = table.filter(table.src != table.dst)
        if undirected:
            back = table.filter(table.src != table.dst).mutate(src=table.dst, dst=table.src)
            table = table.union(back.select(*table.columns))
        yield from self._batches(table.order_by("src", "dst", "position"), edges[0])

    def _keys(self, ids: Sequence[Path], whole: tuple[bool, bool], text: bool) -> Any:
        """Return ids as they are told apart: numbers written in two ways are one."""
        import ibis

        table = self._read(ids)
        if table.id.type().is_string() and any(whole):
            number = self._number(table.id)
            number = number.cast("string") if text else number
            own = [number if one else table.id for one in whole]
            key = number if all(whole) else ibis.cases((table.side == 0, own[0]), else_=own[1])
        else:
            key = table.id.cast("string") if text else table.id
        return table.select("generation", "side", "code", id=key)


def told(error: Exception) -> str:
    """Return the first line of what an engine says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
