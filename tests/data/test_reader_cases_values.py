"""What cells of users' tables say: words for nothing, numbers and dates as people write them, columns that say nothing.

Each test is of a kind of file that was misread once; those of /work/shared/cases/readers are read as they lie there.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from hopstate.data.prepare.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import DataError

CASES = Path(os.environ.get("HOPSTATE_SHARED", "/work/shared")) / "cases" / "readers"


def written(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def case(number: int, name: str) -> Path:
    return next(CASES.glob(f"{number:02}-*")) / name


# ---- ids that are words for nothing ----------------------------------------------------------------------------------
@pytest.mark.parametrize("word", [r"\N", "NULL", "-", "?", "nan"])
@pytest.mark.parametrize("others", [("2965", "2990"), ("AER", "KZN")])
def test_a_word_for_nothing_is_no_node(tmp_path, word, others):
    a, b = others
    edges = written(tmp_path, f"source,target\n{a},{b}\n{b},{word}\n{a},{word}\n")
    with pytest.raises(DataError, match=r"'target', row 1 \(line 3\)"):
        read_graph(edges)
    events = written(tmp_path, f"source,target,time\n{a},{b},1\n{b},{a},2\n{word},{a},3\n", "events.csv")
    with pytest.raises(DataError, match=r"'source', row 2 \(line 4\)"):
        read_events(events)
    with pytest.raises(DataError, match="'source', row 4"):
        prepare(events, tmp_path / "store")


@pytest.mark.shared
def test_routes_with_airports_that_nobody_knows():
    with pytest.raises(DataError, match=r"'source', row 2 \(line 4\)"):
        read_graph(case(13, "routes.csv"))


# ---- NA is a country, beside others ----------------------------------------------------------------------------------
@pytest.mark.parametrize("header", ["from,importer", "exporter,importer", "exporter,to", "a,b"])
def test_na_is_an_id_among_texts_at_both_ends(tmp_path, header):
    graph = read_graph(written(tmp_path, f"{header}\nFR,DE\nDE,IT\nIT,NA\nNA,FR\n"))
    assert graph.node_ids is not None
    assert sorted(graph.node_ids.ids.tolist()) == ["DE", "FR", "IT", "NA"]


@pytest.mark.parametrize("header", ["from,importer", "a,b"])
def test_na_among_numbers_is_no_id(tmp_path, header):
    with pytest.raises(DataError, match=r"row 1 \(line 3\)"):
        read_graph(written(tmp_path, f"{header}\n1,2\n2,NA\n"))
