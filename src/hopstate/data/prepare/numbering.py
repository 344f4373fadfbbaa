"""Codes of the ids of all pieces: those of sources and those of targets each by a table in memory, with a log on disk.

A piece then holds codes alone, and what an engine puts in order are the distinct ids, not those of each piece. A table
that would outgrow its memory is left for a new one, of the next generation, in which ids may be met again: what memory
does not hold costs the engine more rows. New ids are logged before a piece that has them is saved, so that a run that
was killed goes on with the table that it had.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.prepare.id_table import MOST_CODES, IdTable, packed
from hopstate.errors import StorageError
from hopstate.io.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

PLAIN = {"compression": "none", "write_statistics": False, "use_dictionary": False}  # of files of work


@dataclass(frozen=True, order=True)
class Logged:
    """A file of ids, as they came first.

    Args:
        generation, side: of the table; 0 is the side of sources.
        first: code of the first of them.
        count: how many.
        path: of the file, with columns generation, side, code and id.
    """

    generation: int
    side: int
    first: int
    count: int
    path: Path


def logged(folder: Path) -> list[Logged]:
    """Return the files of ids in a folder of work, in order."""
    import pyarrow.parquet as pq

    found = []
    for path in folder.glob("*.ids"):
        generation, side, first = map(int, path.stem.split("-"))
        found.append(Logged(generation, side, first, pq.read_metadata(path).num_rows, path))
    return sorted(found)


class Numbering:
    """The tables of both sides; several threads may ask.

    Args:
        folder: of work; what stands there is gone on with.
        memory: bytes that both tables have together, but for a table of one piece's ids alone.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        known = logged(folder)
        self._sides = [_Side(folder, side, memory // 2, [one for one in known if one.side == side]) for side in (0, 1)]

    def codes(self, side: int, ids: pa.Array) -> tuple[np.ndarray, int]:
        """Return (n,) int32 codes of ids, int64 or texts in all calls, and the generation that they are of."""
        return self._sides[side].codes(ids)


class _Side:
    def __init__(self, folder: Path, side: int, memory: int, known: list[Logged]) -> None:
        import pyarrow.parquet as pq

        self._folder, self._side, self._memory, self._lock = folder, side, memory, threading.Lock()
        self._table, self._whole = IdTable(), True
        self._generation = known[-1].generation if known else 0
        for one in known:
            if one.generation == self._generation:
                self._table.enter(packed(pq.read_table(one.path, columns=["id"])["id"].combine_chunks()))

    def codes(self, ids: pa.Array) -> tuple[np.ndarray, int]:
        some = packed(ids)
        with self._lock:
            if not self._whole:
                raise StorageError(f"could not write the ids in {self._folder}; run the same command again")
            full = self._table.bytes_with(some) > self._memory or self._table.count + len(ids) > MOST_CODES
            if full and self._table.count:
                self._table, self._generation = IdTable(), self._generation + 1
            first, self._whole = self._table.count, False
            codes, fresh = self._table.enter(some)
            if len(fresh):
                self._log(ids.take(fresh), first)
            self._whole = True
            return codes, self._generation

    def _log(self, ids: pa.Array, first: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({
            "generation": np.full(len(ids), self._generation), "side": np.full(len(ids), self._side, np.int8),
            "code": np.arange(first, first + len(ids)), "id": ids,
        })  # fmt: skip
        path = self._folder / f"{self._generation:06d}-{self._side}-{first:012d}.ids"
        replace_file(path, lambda part: pq.write_table(table, part, **PLAIN))


__all__ = ["PLAIN", "Logged", "Numbering", "logged"]
