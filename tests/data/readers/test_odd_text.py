"""Cells that look like something else: words for the present moment, byte-order marks, NULs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from hopstate import read_events, read_graph
from hopstate.data.prepare import prepare
from hopstate.errors import DataError, FormatError


@pytest.mark.parametrize("word", ["now", "today", "Now", " TODAY "])
def test_words_for_the_present_moment_are_no_times(tmp_path: Path, word: str) -> None:
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


@pytest.mark.parametrize("sign", ["\0", "\ufeff"])
def test_ids_with_invisible_signs_are_refused(tmp_path: Path, sign: str) -> None:
    frame = pd.DataFrame({"src": ["a", f"a{sign}", "b"], "dst": ["b", "b", "c"], "t": [1, 2, 3]})
    frame.to_parquet(tmp_path / "e.parquet")
    for source in (frame, tmp_path / "e.parquet"):
        with pytest.raises(DataError, match=r"src.*row 1"):
            read_events(source)
