"""Misleading cells: words for the present, byte-order marks, NULs."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopstate import read_events, read_graph
from hopstate.data.prepare import prepare
from hopstate.errors import DataError, FormatError


@pytest.mark.parametrize("word", ["now", "today", "Now", " TODAY "])
def test_words_for_the_present_are_not_times(tmp_path: Path, word: str) -> None:
    path = tmp_path / "e.csv"
    path.write_text(f"src,dst,t\na,b,2020-01-01\nb,c,{word}\nc,a,2020-01-03\n")
    with pytest.raises(DataError, match="row 1"):
        read_events(path)
    with pytest.raises(DataError, match="row 1"):
        read_events(pd.read_csv(path))
    assert prepare(path, tmp_path / "store").bad == 1


@pytest.mark.parametrize("cells", ["\ufeffb,c,2", "b,c\ufeff,2", "b,c,\ufeff2"])
def test_a_byte_order_mark_in_the_middle_names_its_line(tmp_path: Path, cells: str) -> None:
    path = tmp_path / "e.csv"
    path.write_text(f"\ufeffsrc,dst,t\na,b,1\n{cells}\n", encoding="utf-8")
    packed = tmp_path / "e.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for read in (read_events, read_graph, lambda path: prepare(path, tmp_path / "store")):
        for file in (path, packed):
            with pytest.raises(FormatError, match=r"line 3\b.*byte-order mark"):
                read(file)
    assert not (tmp_path / "store").exists()


def _flipped(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x55]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize(
    ("pack", "named"),
    [
        (lambda data: gzip.compress(data)[:-100], "gzip"),
        (lambda data: _flipped(gzip.compress(data)), "gzip"),
        (lambda data: gzip.compress(data) + b"junk", "gzip"),
        (bz2.compress, "bzip2"),
        (lambda data: bz2.compress(data)[:-100], "bzip2"),
        (lzma.compress, "xz"),
    ],
)
@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz", "e.unknown"])
def test_compression_that_is_damaged_or_unknown_is_named(
    tmp_path: Path, pack: Callable[[bytes], bytes], named: str, name: str
) -> None:
    if named != "gzip" and name.endswith(".gz"):
        pytest.skip("its name says gzip")
    rows = "".join(f"{k % 50},{k * 7 % 97},{k}\n" for k in range(2000))
    (tmp_path / name).write_bytes(pack(f"src,dst,t\n{rows}".encode()))
    for read in (read_events, read_graph, lambda path: prepare(path, tmp_path / "store")):
        with pytest.raises(FormatError, match=f"{name}.*{named}"):
            read(tmp_path / name)


@pytest.mark.parametrize("sign", ["\0", "\ufeff"])
def test_ids_with_invisible_characters_are_rejected(tmp_path: Path, sign: str) -> None:
    frame = pd.DataFrame({"src": ["a", f"a{sign}", "b"], "dst": ["b", "b", "c"], "t": [1, 2, 3]})
    frame.to_parquet(tmp_path / "e.parquet")
    for source in (frame, tmp_path / "e.parquet"):
        with pytest.raises(DataError, match=r"src.*row 1"):
            read_events(source)


@pytest.mark.parametrize("cell", ["0x20", "true", "1_000", "-9223372036854775808", "inf"])
def test_cells_that_are_not_times_are_rejected_by_every_reader(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "e.csv"
    path.write_text(f"src,dst,t\na,b,16\nb,c,{cell}\nc,a,20\n")
    with pytest.raises(DataError, match=r"'t', row 1 \(line 3\)"):
        read_events(path)
    assert prepare(path, tmp_path / "store").bad == 1
    assert read_events(tmp_path / "store").t.tolist() == [16, 20]


def test_compression_bombs_are_rejected(tmp_path: Path) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["a" * 1_000_000]))
    pq.write_table(pa.table({"src": long, "dst": ["b"] * 2000, "t": np.arange(2000)}), tmp_path / "e.parquet")
    assert (tmp_path / "e.parquet").stat().st_size < 200_000
    for read in (read_events, read_graph, lambda path: prepare(path, tmp_path / "store")):
        with pytest.raises(FormatError, match="max_bytes"):
            read(tmp_path / "e.parquet")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("cells", [pa.array([1, 2], pa.duration("s")), pa.array([1, 2], pa.time64("ns")), [b"a", b"b"]])
def test_columns_without_times_are_named(tmp_path: Path, cells: object) -> None:
    pq.write_table(pa.table({"src": ["a", "b"], "dst": ["b", "c"], "t": cells}), tmp_path / "e.parquet")
    for read in (read_events, lambda path: prepare(path, tmp_path / "store")):
        with pytest.raises(FormatError, match=r"e\.parquet.*'t'"):
            read(tmp_path / "e.parquet")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("labels", [[-1, 0, 1], [-1.0, 0.0, 1.0]])
def test_a_label_of_minus_one_needs_a_choice_in_a_store_too(tmp_path: Path, labels: list[float]) -> None:
    frame = pd.DataFrame({"src": ["a", "b", "c"], "dst": ["b", "c", "a"], "t": [1, 2, 3], "label": labels})
    frame.to_parquet(tmp_path / "e.parquet")
    for read in (read_events, lambda path: prepare(path, tmp_path / "store")):
        with pytest.raises(DataError, match=r"label.*-1"):
            read(tmp_path / "e.parquet")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("end", ["", 'd,e,4,"w\n'])
def test_a_missing_quotation_mark_does_not_hide_rows(tmp_path: Path, end: str) -> None:
    path = tmp_path / "e.csv"
    for separator in (",", "\t", ";"):
        rows = f'src,dst,t,word\na,b,1,x\nb,c,2,"y\nc,d,3,z\n{end}'
        path.write_text(rows.replace(",", separator))
        for read in (read_events, lambda path: prepare(path, tmp_path / "store")):
            with pytest.raises(FormatError, match=r"line 3\b.*quotation mark"):
                read(path)
    path.write_text('src,dst,t,word\na,b,1,"x\ny, z, w, v"\nb,c,2,y\n')
    assert len(read_events(path)) == 2
