"""The arrays of a store, written batch by batch as .npy files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import DTypeLike

from hopstate.data.prepare.source import LARGEST
from hopstate.data.vocabulary import ids_array
from hopstate.errors import StorageError
from hopstate.io.files import save_array, sync_file


class Npy:
    """A .npy file that is written batch by batch."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path, self.dtype, self._shape = path, np.dtype(dtype), shape
        self._file = path.open("wb")
        self._header(shape)
        self._rows = 0

    def _header(self, shape: tuple[int, ...]) -> None:
        facts = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, facts)

    def add(self, rows: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(rows, self.dtype).view(np.uint8).data)
        self._rows += len(rows)

    def close(self, count: int | None = None) -> None:
        """Close the file; count is the number of rows if fewer than announced are right."""
        expected = self._shape[0] if count is None else count
        if self._rows != expected:
            self._file.close()
            raise StorageError(f"{self.path}: the engine gave {self._rows:,} rows, not {expected:,}; take another one")
        if count is not None:
            self._file.seek(0)
            self._header((count, *self._shape[1:]))  # numpy pads the header, so that it keeps its length
        self._file.close()
        sync_file(self.path)


@dataclass
class Writer:
    """A store in the making."""

    out: Path
    width: int  # columns of features
    exact: bool  # whether float32 has all features as they are
    names: set[str]  # of the arrays so far

    def save(self, name: str, array: np.ndarray | None) -> None:
        """Write an array that is in memory, if there is one."""
        if array is not None:
            path = self.out / f"{name}.npy"
            save_array(path, array)
            sync_file(path)
            self.names.add(name)

    def node_ids(self, path: Path) -> None:
        with pq.ParquetFile(path) as file:
            count, kind = file.metadata.num_rows, file.schema_arrow.field("id").type
            ids = lambda: (batch.column(0) for batch in file.iter_batches(1 << 16, columns=["id"]))  # noqa: E731
            if pa.types.is_integer(kind):
                array = Npy(self.out / "node_ids.npy", (count,), np.int64)
                for some in ids():
                    array.add(some.to_numpy())
                self._close({"node_ids": array})
                return
            size = sum(pc.sum(pc.binary_length(some)).as_py() or 0 for some in ids())
            texts = Npy(self.out / "node_ids.npy", (size,), np.uint8)
            offsets = Npy(self.out / "node_id_offsets.npy", (count + 1,), np.int64)
            end = np.zeros(1, np.int64)
            offsets.add(end)
            for some in ids():
                ends = end[-1] + np.cumsum(pc.binary_length(ids_array(some)).to_numpy())
                offsets.add(ends)
                texts.add(np.frombuffer("".join(some.to_pylist()).encode(), np.uint8))
                end = ends if len(ends) else end
        self._close({"node_ids": texts, "node_id_offsets": offsets})

    def _close(self, arrays: dict[str, Npy], count: int | None = None) -> None:
        for name, array in arrays.items():
            array.close(count)
            self.names.add(name)

    def events(
        self, batches: Iterator[pa.RecordBatch], count: int, time: Time, labels: Labels | None, relations: list[str]
    ) -> None:
        """Write sorted events; relations are the names of theirs, none without."""
        arrays = {name: Npy(self.out / f"{name}.npy", (count,), np.int64) for name in ("src", "dst")}
        arrays["t"] = Npy(self.out / "t.npy", (count,), time.dtype)
        if labels is not None:
            arrays["labels"] = Npy(self.out / "labels.npy", (count,), labels.dtype)
        if relations:
            arrays["relation"] = Npy(self.out / "relation.npy", (count,), np.int32)
        arrays |= self._features(count, np.float64)
        if self.exact:
            arrays.pop("edge_table", None)
        for batch in batches:
            arrays["src"].add(batch["src"].to_numpy())
            arrays["dst"].add(batch["dst"].to_numpy())
            arrays["t"].add(batch["t"].to_numpy() // time.divisor if time.divisor > 1 else batch["t"].to_numpy())
            if labels is not None:
                arrays["labels"].add(labels.of(batch["label"]))
            if relations:
                arrays["relation"].add(pc.index_in(batch["relation"], pa.array(relations)).to_numpy())
            if self.width:
                values = np.stack([batch[f"f{i}"].to_numpy() for i in range(self.width)], 1)
                for name in arrays.keys() & {"edge_attr", "edge_table"}:
                    arrays[name].add(values)
        self._close(arrays)

    def graph(self, batches: Iterator[pa.RecordBatch], edges: int, nodes: int, *, unique: bool) -> tuple[int, int]:
        """Write sorted edges as CSR; return how many came and how many were kept."""
        arrays = {"indices": Npy(self.out / "indices.npy", (edges,), np.int64)}
        arrays |= self._features(edges, np.float32 if self.exact else np.float64)
        starts = np.zeros(nodes + 1, np.int64)
        seen = kept = 0
        last = (-1, -1)
        for batch in batches:
            source, target = batch["src"].to_numpy(), batch["dst"].to_numpy()
            if not len(source):
                continue
            first = np.ones(len(source), bool)
            if unique:
                first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
                first[0] = (int(source[0]), int(target[0])) != last
            last = int(source[-1]), int(target[-1])
            low = int(source[0])
            degrees = np.bincount(source[first] - low)
            starts[low + 1 : low + 1 + len(degrees)] += degrees
            seen, kept = seen + len(source), kept + int(first.sum())
            arrays["indices"].add(target[first])
            if self.width:
                values = np.stack([batch[f"f{i}"].to_numpy()[first] for i in range(self.width)], 1)
                arrays["edge_table"].add(values)
                arrays["edge_attr"].add(np.clip(values, -LARGEST, LARGEST))
        self._close(arrays, kept)
        self.save("indptr", np.cumsum(starts))
        return seen, kept

    def _features(self, count: int, kind: DTypeLike) -> dict[str, Npy]:
        shape, kinds = (count, self.width), {"edge_attr": np.float32, "edge_table": kind}
        return {name: Npy(self.out / f"{name}.npy", shape, kinds[name]) for name in kinds if self.width}


@dataclass(frozen=True)
class Time:
    """The times of a store."""

    dtype: np.dtype[Any]
    unit: str  # "" if unknown
    divisor: int = 1  # nanoseconds of a unit for dates
    zone: str = ""  # as `EventStream.dates`


@dataclass(frozen=True)
class Labels:
    """The labels of a store."""

    dtype: np.dtype[Any]
    classes: tuple[str, ...] | None = None  # in the order of their numbers; None if labels are numbers
    names: tuple[str, ...] | None = None  # classes, unless they are true and false

    def of(self, column: pa.Array) -> np.ndarray:
        """Return a batch of labels; -1 is unknown."""
        if self.classes is not None:
            column = pc.index_in(column if self.names else pc.utf8_lower(column), pa.array(self.classes))
        return pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(self.dtype)
