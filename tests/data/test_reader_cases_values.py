"""What cells of users' tables say: words for nothing, numbers and dates as people write them, columns that say nothing.

Each test is of a kind of file that was misread once; those of /work/shared/cases/readers are read as they lie there.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from hopstate.cli.main import main
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


@pytest.mark.parametrize("word", ["NA", "NULL", "?"])
def test_a_text_that_may_be_none_is_asked_about_among_features(tmp_path, word):
    edges = written(tmp_path, "exporter,importer\nFR,DE\nDE,IT\nIT,NA\n")
    rows = f"id,region,x\nFR,EU,1\nDE,EU,2\nIT,,3\nNA,{word},4\n"
    features = written(tmp_path, rows, "features.csv")
    with pytest.raises(DataError, match=r"'region'.*row 3 \(line 5\).*region=category"):
        read_graph(edges, features=features)
    found = read_graph(edges, features=features, columns=["region=category"])
    assert found.table is not None
    assert found.table.texts[0].words == tuple(sorted(("", "EU", word)))
    read_graph(edges, features=written(tmp_path, rows.replace(word + ",4", "AF,4"), "features.csv"))


def test_a_label_that_may_be_none_is_asked_about_whatever_its_column_is_called(tmp_path):
    edges = written(tmp_path, "a,b\n1,2\n2,3\n3,1\n")
    labels = written(tmp_path, "id,party\n1,red\n2,NA\n3,red\n", "labels.csv")
    with pytest.raises(DataError, match=r"'party'.*row 1.*unlabelled"):
        read_graph(edges, labels=labels)
    assert read_graph(edges, labels=labels, unlabelled="NA").y.tolist() == [0, -1, 0]


# ---- times that a spreadsheet cut ------------------------------------------------------------------------------------
@pytest.mark.parametrize("times", ["1.58E+12 1.58E+12 1.58E+12", "1.58E+12 1583020799123 1583020800000", "1.58302e+12 "
                                   "1.58302e+12 1.58303e+12", "1.58E+09 1.58E+09 ", "1E+05 2E+05 x"])  # fmt: skip
def test_times_that_lost_digits_are_refused(tmp_path, times):
    cells = times.split(" ")
    cells = ["" if cell == "x" else cell for cell in cells]
    rows = "".join(f"a{i},b{i},{t}\n" for i, t in enumerate(cells))
    table = written(tmp_path, f"source,target,time\n{rows}")
    with pytest.raises(DataError, match=r"'time', row 0 \(line 2\)"):
        read_events(table, missing_time="drop")


@pytest.mark.parametrize(
    "times", ["99999 1e+05 100001", "1.583020799123E12 1.5830208E12 1.583020801123E12", "2.5e+00 1.500000000000000000e+03"]
)
def test_times_with_exponents_that_hold_all_digits_are_read(tmp_path, times):
    rows = "".join(f"a{i},b{i},{t}\n" for i, t in enumerate(times.split()))
    events = read_events(written(tmp_path, f"source,target,time\n{rows}"))
    assert events.t.tolist() == sorted(map(float, times.split()))


@pytest.mark.shared
def test_the_log_that_a_spreadsheet_saved():
    with pytest.raises(DataError, match="'time', row 0"):
        read_events(case(16, "log.csv"))


# ---- ids with a point ------------------------------------------------------------------------------------------------
def test_ids_with_a_point_are_texts_where_said_and_the_message_says_how(tmp_path):
    table = written(tmp_path, "source,target\n5746.10,6926.01\n5746.1,5746.10\n")
    with pytest.raises(DataError, match=r"row 0.*read\.text_ids"):
        read_graph(table)
    labels = written(tmp_path, "id,label\n5746.10,a\n5746.1,b\n", "labels.csv")
    features = written(tmp_path, "id,x\n5746.1,1\n5746.10,2\n6926.01,3\n", "features.csv")
    graph = read_graph(table, labels=labels, features=features, text_ids=True)
    assert graph.node_ids is not None
    assert graph.node_ids.ids.tolist() == ["5746.1", "5746.10", "6926.01"]
    assert graph.y.tolist() == [1, 0, -1]


@pytest.mark.shared
def test_the_trips_of_a_city(capsys):
    asked = ["--read.source_column", "start_station_id", "--read.target_column", "end_station_id"]
    asked += ["--read.time_column", "started_at"]
    assert main(["inspect", str(case(17, "trips.csv")), *asked]) == 1
    assert "--read.text_ids true" in capsys.readouterr().err
    assert main(["inspect", str(case(17, "trips.csv")), *asked, "--read.text_ids", "true"]) == 0
