"""The arrays of a store, each written once from its start to its end, with its check sum."""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hopstate.data.prepare.engine import Engine
from hopstate.data.prepare.layout import Columns
from hopstate.data.prepare.numbering import PLAIN, Logged
from hopstate.data.prepare.settle import Labels, Settled
from hopstate.errors import StorageError
from hopstate.io.files import replace_file, sync_file

Batch = dict[str, np.ndarray]


@dataclass(frozen=True)
class Writing:
    """What is written where.

    Args:
        out, work: the store, and its folder of work.
        events: files of the pieces, in order.
        ids: files of ids, in order.
        facts: of the pieces.
        columns, settled, labels: what they hold.
        say: takes lines of progress.
        source: as it was named, for messages.
    """

    out: Path
    work: Path
    events: list[Path]
    ids: list[Logged]
    facts: list[dict[str, Any]]
    columns: Columns
    settled: Settled
    labels: Labels | None
    say: Callable[[str], None]
    source: str = ""


class Npy:
    """A .npy file that is written row by row; its check sum is that of all its bytes."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path, self.dtype, self._shape = path, np.dtype(dtype), shape
        self._digest = hashlib.sha256()
        self._left = math.prod(shape) * self.dtype.itemsize
        self._file = path.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self, header)  # type: ignore[arg-type]

    def write(self, data: Any) -> None:
        """Add bytes; numpy does, of the header."""
        self._digest.update(data)
        self._file.write(data)

    def add(self, rows: np.ndarray) -> None:
        """Add rows."""
        data = np.ascontiguousarray(rows, self.dtype)
        self._left -= data.nbytes
        self.write(data.view(np.uint8).data)

    def close(self) -> str:
        """Bring the file to disk; return its check sum.

        Raises:
            StorageError: other rows were added than were announced.
        """
        self._file.close()
        if self._left:
            what = f"{abs(self._left):,} bytes {'fewer' if self._left > 0 else 'more'}"
            raise StorageError(f"{self.path}: the engine gave {what} than its rows take; take another --engine")
        sync_file(self.path)
        return self._digest.hexdigest()

    def close_at(self, count: int) -> str:
        """Close a file that has fewer rows than were announced; return its check sum."""
        header, digest = BytesIO(), hashlib.sha256()
        facts = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(header, facts | {"shape": (count, *self._shape[1:])})
        self._file.seek(0)  # numpy leaves room for the first axis to grow, so that the header is as long
        self._file.write(header.getbuffer())
        self._file.close()
        sync_file(self.path)
        with self.path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        return digest.hexdigest()


def write_store(w: Writing, engine: Engine) -> tuple[dict[str, str], dict[str, Any]]:
    """Write the arrays; return their check sums by name, and the facts that follow from them."""
    sums: dict[str, str] = {}
    nodes = write_vocabulary(w, numbered(w, engine), sums)
    batches = mapped_pieces(w) if w.settled.in_order else _sorted(w, engine)
    w.say("writing the events")
    _columns(w, batches, sums)
    names = None if w.labels is None or w.labels.names is None else list(w.labels.names)
    own = {"num_nodes": nodes, "columns": list(w.columns.features) or None, "class_names": names}
    return {key: sums[key] for key in sorted(sums)}, own


def numbered(w: Writing, engine: Engine) -> Path:
    """Number the distinct ids in order, and write the number of each as it was logged; return the file of the ids."""
    vocabulary, rows = w.work / "vocabulary.parquet", w.work / "rows.npy"
    whole, text = w.settled.whole, w.settled.text
    if not vocabulary.is_file():
        w.say("numbering the ids")
        replace_file(vocabulary, lambda part: engine.vocabulary([one.path for one in w.ids], whole, text, part))
    if not rows.is_file():
        replace_file(rows, lambda part: _rows(w, engine, vocabulary, part))
    return vocabulary


def write_vocabulary(w: Writing, path: Path, sums: dict[str, str]) -> int:
    """Write the ids, but where they are their own rows; return how many there are."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        count = file.metadata.num_rows
        if not w.settled.text:
            last = file.read_row_group(file.num_row_groups - 1, ["id"])["id"][-1].as_py()
            first = file.read_row_group(0, ["id"])["id"][0].as_py()
            if (first, last) == (0, count - 1):
                return count
        array = Npy(w.out / "node_ids.npy", (count,), f"<U{_longest(file)}" if w.settled.text else np.int64)
        for batch in file.iter_batches(1 << 16, columns=["id"]):
            ids = batch.column(0)
            array.add(np.array(ids.to_pylist(), array.dtype) if w.settled.text else ids.to_numpy())
        sums["node_ids"] = array.close()
    return count


def _longest(file: Any) -> int:
    import pyarrow.compute as pc

    lengths = (pc.max(pc.utf8_length(batch.column(0))).as_py() for batch in file.iter_batches(1 << 16, columns=["id"]))
    return max(1, *lengths, 1)


def _rows(w: Writing, engine: Engine, vocabulary: Path, path: Path) -> None:
    """Write the rows of all ids, in the order of the log."""
    array = Npy(path, (sum(one.count for one in w.ids),), np.int64)
    for rows in engine.rows([one.path for one in w.ids], w.settled.whole, w.settled.text, vocabulary):
        array.add(rows.to_numpy())
    array.close()


def mapped_pieces(w: Writing) -> Iterator[Batch]:
    """Return the pieces with nodes' rows for codes of their own, times and labels as they are to be."""
    import pyarrow.parquet as pq

    rows = _Rows(w.work / "rows.npy", w.ids)
    for place, path in enumerate(w.events):
        table = pq.read_table(path, memory_map=False, use_threads=False)
        batch = {name: table[name].to_numpy() for name in table.column_names}
        for side, name in enumerate(("src", "dst")):
            batch[name] = rows.of(w.facts[place]["generations"][side], side)[batch[name]]
        if "t" in batch:
            t = batch["t"] // w.settled.divide if w.settled.divide > 1 else batch["t"]
            batch["t"] = t.astype(w.settled.t, copy=False)
        if w.labels is not None:
            label = batch["label"]
            label = label if w.labels.places is None else w.labels.places[place][label.astype(np.int64)]
            batch["label"] = label.astype(w.labels.dtype)
        yield batch


class _Rows:
    """The rows of ids by their codes, of a generation of each side at a time.

    They are read: pages of a mapped file would count as memory in use.
    """

    def __init__(self, path: Path, ids: Sequence[Logged]) -> None:
        self._path, self._ids = path, ids
        self._held: dict[int, tuple[int, np.ndarray]] = {}

    def of(self, generation: int, side: int) -> np.ndarray:
        """Return the rows of all ids of one table, by code."""
        if side not in self._held or self._held[side][0] != generation:
            self._held.pop(side, None)
            before = sum(one.count for one in self._ids if (one.generation, one.side) < (generation, side))
            count = sum(one.count for one in self._ids if (one.generation, one.side) == (generation, side))
            with self._path.open("rb") as file:
                np.lib.format.read_magic(file)
                _, _, dtype = np.lib.format.read_array_header_1_0(file)
                file.seek(before * dtype.itemsize, os.SEEK_CUR)
                self._held[side] = generation, np.fromfile(file, dtype, count)
        return self._held[side][1]


def _sorted(w: Writing, engine: Engine) -> Iterator[Batch]:
    """Return all events in the order of time."""
    w.say("sorting the events by time")
    some = (
        {key: v for key, v in batch.items() if key != "label" or w.labels is not None} for batch in mapped_pieces(w)
    )
    for found in engine.ordered(put_pieces(w, some)):
        yield plain(found)


def put_pieces(w: Writing, batches: Iterator[Batch]) -> list[Path]:
    """Write pieces as files for the engine to sort, with the place of each row; return their paths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths, count = [], 0
    for number, batch in enumerate(batches):
        path, place = w.work / f"mapped-{number:06d}.parquet", np.arange(count, count + len(batch["src"]))
        if not path.is_file():
            table = pa.table({"position": place, **batch})
            replace_file(path, functools.partial(pq.write_table, table, **PLAIN))
        paths.append(path)
        count += len(place)
    return paths


def plain(batch: Any) -> Batch:
    """Return the columns of a batch of the engine as arrays."""
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}


def _columns(w: Writing, batches: Iterator[Batch], sums: dict[str, str]) -> None:
    count, width = sum(fact["count"] for fact in w.facts), len(w.columns.features)
    exact = all(fact["exact"] for fact in w.facts)
    arrays = {name: Npy(w.out / f"{name}.npy", (count,), np.int64) for name in ("src", "dst")}
    arrays["t"] = Npy(w.out / "t.npy", (count,), w.settled.t)
    if w.labels is not None:
        arrays["labels"] = Npy(w.out / "labels.npy", (count,), w.labels.dtype)
    if width:
        arrays["edge_attr"] = Npy(w.out / "edge_attr.npy", (count, width), np.float32)
        if not exact:
            arrays["edge_table"] = Npy(w.out / "edge_table.npy", (count, width), np.float64)
    for batch in batches:
        for name in ("src", "dst", "t"):
            arrays[name].add(batch[name])
        if w.labels is not None:
            arrays["labels"].add(batch["label"])
        if width:
            values = np.stack([batch[f"f{i}"] for i in range(width)], 1)
            arrays["edge_attr"].add(values)
            if not exact:
                arrays["edge_table"].add(values)
    sums |= {name: array.close() for name, array in arrays.items()}
