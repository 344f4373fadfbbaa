"""Cells of users' tables: words for missing values, local numbers and dates, uninformative columns.

Each test covers a kind of file that is easily misread; files of the shared folder are read unchanged.
"""

import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, TemporalData

import hopstate
from hopstate.cli.main import main
from hopstate.data.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import ConfigError, DataError, FormatError, HopstateWarning

CASES = Path(os.environ.get("HOPSTATE_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "cases" / "readers"


def written(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def case(number: int, name: str) -> Path:
    return next(CASES.glob(f"{number:02}-*")) / name


# ---- ids that are words for nothing ----------------------------------------------------------------------------------
@pytest.mark.parametrize("word", [r"\N", "NULL", "-", "?"])
@pytest.mark.parametrize("others", [("2965", "2990"), ("AER", "KZN")])
def test_a_word_for_missing_is_not_a_node(tmp_path, word, others):
    a, b = others
    edges = written(tmp_path, f"source,target\n{a},{b}\n{b},{word}\n{a},{word}\n")
    with pytest.raises(DataError, match=r"'target', row 1 \(line 3\)"):
        read_graph(edges)
    events = written(tmp_path, f"source,target,time\n{a},{b},1\n{b},{a},2\n{word},{a},3\n", "events.csv")
    with pytest.raises(DataError, match=r"'source', row 2 \(line 4\)"):
        read_events(events)
    with pytest.raises(DataError, match=r"'source', row 2 \(line 4\)"):
        prepare(events, tmp_path / "store")


@pytest.mark.shared
def test_routes_with_unknown_airports():
    with pytest.raises(DataError, match=r"'source', row 2 \(line 4\)"):
        read_graph(case(13, "routes.csv"))


# ---- NA is a country among others -----------------------------------------------------------------------------------
@pytest.mark.parametrize("header", ["from,importer", "exporter,importer", "exporter,to", "a,b"])
def test_na_is_an_id_among_texts_at_both_ends(tmp_path, header):
    graph = read_graph(written(tmp_path, f"{header}\nFR,DE\nDE,IT\nIT,NA\nNA,FR\n"))
    assert graph.node_ids is not None
    assert sorted(graph.node_ids.ids.tolist()) == ["DE", "FR", "IT", "NA"]


@pytest.mark.parametrize("header", ["from,importer", "a,b"])
@pytest.mark.parametrize("word", ["NA", "nan", "None"])
def test_na_among_numbers_is_not_an_id(tmp_path, header, word):
    with pytest.raises(DataError, match=r"row 1 \(line 3\)"):
        read_graph(written(tmp_path, f"{header}\n1,2\n2,{word}\n"))


@pytest.mark.parametrize("word", ["NA", "NULL", "?"])
def test_a_text_that_may_mean_missing_needs_a_choice_among_features(tmp_path, word):
    edges = written(tmp_path, "exporter,importer\nFR,DE\nDE,IT\nIT,NA\n")
    rows = f"id,region,x\nFR,EU,1\nDE,EU,2\nIT,,3\nNA,{word},4\n"
    features = written(tmp_path, rows, "features.csv")
    with pytest.raises(DataError, match=r"'region'.*row 3 \(line 5\).*region=category"):
        read_graph(edges, features=features)
    found = read_graph(edges, features=features, columns=["region=category"])
    assert found.table is not None
    assert found.table.texts[0].words == tuple(sorted(("", "EU", word)))
    read_graph(edges, features=written(tmp_path, rows.replace(word + ",4", "AF,4"), "features.csv"))


def test_a_label_that_may_mean_missing_needs_a_choice_in_any_column(tmp_path):
    edges = written(tmp_path, "a,b\n1,2\n2,3\n3,1\n")
    labels = written(tmp_path, "id,party\n1,red\n2,NA\n3,red\n", "labels.csv")
    with pytest.raises(DataError, match=r"'party'.*row 1.*unlabeled_value"):
        read_graph(edges, labels=labels)
    assert read_graph(edges, labels=labels, unlabeled_value="NA").y.tolist() == [0, -1, 0]


# ---- times that a spreadsheet cut ------------------------------------------------------------------------------------
@pytest.mark.parametrize("times", ["1.58E+12 1.58E+12 1.58E+12", "1.58E+12 1583020799123 1583020800000", "1.58302e+12 "
                                   "1.58302e+12 1.58303e+12", "1.58E+09 1.58E+09 ", "1E+05 2E+05 x"])  # fmt: skip
def test_times_rounded_by_a_spreadsheet_are_rejected(tmp_path, times):
    cells = times.split(" ")
    cells = ["" if cell == "x" else cell for cell in cells]
    rows = "".join(f"a{i},b{i},{t}\n" for i, t in enumerate(cells))
    table = written(tmp_path, f"source,target,time\n{rows}")
    with pytest.raises(DataError, match=r"'time', row 0 \(line 2\)"):
        read_events(table, drop_missing_time=True)


@pytest.mark.parametrize(
    "times", ["99999 1e+05 100001", "1.583020799123E12 1.5830208E12 1.583020801123E12", "2.5e+00 1.500000000000000e+03"]
)
def test_times_with_exponents_that_hold_all_digits_are_read(tmp_path, times):
    rows = "".join(f"a{i},b{i},{t}\n" for i, t in enumerate(times.split()))
    events = read_events(written(tmp_path, f"source,target,time\n{rows}"))
    assert events.t.tolist() == sorted(map(float, times.split()))


@pytest.mark.shared
def test_a_log_saved_by_a_spreadsheet():
    with pytest.raises(DataError, match="'time', row 0"):
        read_events(case(16, "log.csv"))


# ---- ids with a point ------------------------------------------------------------------------------------------------
def test_ids_with_a_point_are_texts_on_request(tmp_path):
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
def test_a_bike_trip_table(capsys):
    options = ["--read.source_column", "start_station_id", "--read.target_column", "end_station_id"]
    options += ["--read.time_column", "started_at"]
    assert main(["inspect", str(case(17, "trips.csv")), *options]) == 1
    assert "--read.text_ids true" in capsys.readouterr().err
    assert main(["inspect", str(case(17, "trips.csv")), *options, "--read.text_ids", "true"]) == 0


# ---- numbers and dates as people write them --------------------------------------------------------------------------
EDGES = "a,b\nn0,n1\nn1,n2\nn2,n3\nn3,n0\n"
NUMBERS = {
    '"1,234";"98";"12,345,678.5";""': ("point", [1234, 98, 12345678.5, np.nan]),
    "1.234,5;7,25;1.000;-3,5": ("comma", [1234.5, 7.25, 1000, -3.5]),
    "45%;5%;0.5%;100 %": ("point", [45, 5, 0.5, 100]),
    '"$1,200.50";$3;-$4;($5)': ("point", [1200.5, 3, -4, -5]),
    "1 234;12 345 678;5;1 000": ("point", [1234, 12345678, 5, 1000]),
    "12,50 €;3 €;1.000,00 €;7": ("comma", [12.5, 3, 1000, 7]),
}


@pytest.mark.parametrize("cells", NUMBERS)
def test_numbers_with_separators_are_rejected_or_read_as_specified(tmp_path, cells):
    edges, (form, numbers) = written(tmp_path, EDGES), NUMBERS[cells]
    rows = "".join(f"n{i};{cell};{i}\n" for i, cell in enumerate(cells.split(";")))
    features = written(tmp_path, f"id;size;x\n{rows}", "features.csv")
    with pytest.raises(DataError, match=rf"'size'.*row 0 \(line 2\).*size=number:{form}"):
        read_graph(edges, features=features)
    found = read_graph(edges, features=features, columns=[f"size=number:{form}"], missing="mean")
    assert found.table is not None
    assert np.array_equal(found.table.values[:, 0], numbers, equal_nan=True)
    with pytest.raises(DataError, match="'size'"):
        read_graph(edges, labels=features, label_column="size")


def test_numbers_with_separators_are_rejected_among_edges(tmp_path):
    edges = written(tmp_path, 'a,b,sum\nn0,n1,"1,200"\nn1,n2,"3,400"\n')
    with pytest.raises(DataError, match=r"'sum'.*row 0"):
        read_graph(edges)
    found = read_graph(edges, columns=["sum=number:point"])
    assert found.edge_table is not None
    assert sorted(set(found.edge_table.values[:, 0])) == [1200, 3400]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        ("31/12/2026;30/12/2026;01/02/2026;", "%d/%m/%Y"),
        ("12/31/2026;12/30/2026;01/02/2026;", "%m/%d/%Y"),
        ("31.12.2026 14:05;30.12.2026 09:00;1.2.2026 00:00;2.2.2026 00:00", "%d.%m.%Y %H:%M"),
        ("01/02/2026;03/04/2026;05/06/2026;05/06/2026", "%m/%d/%Y"),
    ],
)
def test_ambiguous_local_dates_need_a_format(tmp_path, cells, form):
    edges = written(tmp_path, EDGES)
    rows = "".join(f"n{i},{cell},{i}\n" for i, cell in enumerate(5 * cells.split(";")))
    features = written(tmp_path, f"id,when,x\n{rows}", "features.csv")
    with pytest.raises(DataError, match=rf"'when'.*row 0.*when=date:{form}"):
        read_graph(edges, features=features)
    found = read_graph(edges, features=features, columns=[f"when=date:{form}"], missing="mean")
    assert found.table is not None
    first = datetime.strptime(cells.split(";")[0], form).replace(tzinfo=UTC)
    assert found.table.values[0, 0] == first.timestamp()


@pytest.mark.shared
def test_numbers_with_thousands_separators_are_named():
    with pytest.raises(DataError, match=r"'population'.*row 0"):
        read_graph(case(14, "edges.csv"), features=case(14, "features.csv"), labels=case(14, "labels.csv"))


def test_codes_and_names_with_points_are_texts(tmp_path):
    edges = written(tmp_path, EDGES)
    for cells in (
        "1.2.3;1.2.3;2.0.1;2.0.1",
        "a,b;c;a,b;c",
        "10.0.0.1;10.0.0.1;10.0.0.2;1.0.0.2",
        "5 kg;6 kg;5 kg;6 kg",
    ):
        rows = "".join(f"n{i};{cell};{i}\n" for i, cell in enumerate(cells.split(";")))
        found = read_graph(edges, features=written(tmp_path, f"id;code;x\n{rows}", "features.csv"))
        assert any("'code' holds texts" in note for note in found.notes)


def test_local_times_are_read_in_the_given_format(tmp_path):
    table = written(tmp_path, "src,dst,time\na,b,31.12.2026 14:05\nb,c,01.01.2027 00:00\n")
    with pytest.raises(DataError, match=r"'time', row 0.*%d\.%m\.%Y %H:%M"):
        read_events(table)
    events = read_events(table, time_format="%d.%m.%Y %H:%M")
    assert (events.t.tolist(), events.time_unit, events.dates) == ([1798725900, 1798761600], "s", "naive")
    assert events.edge_attr is None
    with pytest.raises(DataError, match=r"'time', row 0"):
        read_events(table, time_format="%d/%m/%Y")
    with pytest.raises(FormatError, match="time_column"):
        read_events(table, columns=["time=date:%d.%m.%Y %H:%M"])
    with pytest.raises(ConfigError, match="time_format"):
        read_events(table, columns=["time=date"], time_column="time")


# ---- labels of events ------------------------------------------------------------------------------------------------
def events(tmp_path: Path, *labels: object, name: str = "events.csv") -> Path:
    rows = "".join(f"a{i % 5},b{i % 7},{i},{label}\n" for i, label in enumerate(6 * labels))
    return written(tmp_path, f"source,target,time,label\n{rows}", name)


def test_an_event_label_of_minus_one_needs_a_choice(tmp_path):
    table = events(tmp_path, 0, -1, 1)
    for read in (read_events, lambda path: prepare(path, tmp_path / "store")):
        with pytest.raises(DataError, match=r"'label'.*-1"):
            read(table)
    assert set(read_events(table, unlabeled_value="-1").labels.tolist()) == {-1, 0, 1}
    found = read_events(table, unlabeled_value="none")
    assert found.labels[:3].tolist() == [1, 0, 2]
    assert found.class_names == ("-1", "0", "1")
    signs = read_events(events(tmp_path, -1, 1))
    assert (signs.labels[:2].tolist(), signs.class_names) == ([0, 1], ("-1", "1"))
    assert read_events(events(tmp_path, 0, 1, 9), unlabeled_value="9").labels[:3].tolist() == [0, 1, -1]
    assert read_events(events(tmp_path, -0.5, -1, 1), task="regression").labels[1] == -1


def test_event_labels_that_may_mean_missing_need_a_choice(tmp_path):
    table = events(tmp_path, "good", "NA", "bad")
    with pytest.raises(DataError, match=r"'label'.*row 1.*unlabeled_value NA"):
        read_events(table)
    assert read_events(table, unlabeled_value="NA").labels[:3].tolist() == [1, -1, 0]
    assert read_events(table, unlabeled_value="none").class_names == ("NA", "bad", "good")
    assert read_events(events(tmp_path, "0", "", "1")).labels[:3].tolist() == [0, -1, 1]


def test_unknown_labels_that_hopstate_wrote_are_read_again(tmp_path):
    stream = read_events(events(tmp_path, 0, "", 1))
    stream.save(tmp_path / "again")
    assert read_events(tmp_path / "again").labels[:3].tolist() == [0, -1, 1]


@pytest.mark.shared
def test_sentiment_labels_of_minus_one_need_a_choice():
    with pytest.raises(DataError, match=r"'label'.*-1"):
        read_events(case(8, "posts.csv"))


def test_separators_in_event_columns_have_a_note_or_are_rejected(tmp_path):
    rows = "".join(f'a{i},b{i},{i},"{i + 1},000"\n' for i in range(12))
    table = written(tmp_path, f"source,target,time,sum\n{rows}")
    assert any("sum=number:point" in note for note in read_events(table).notes)
    with pytest.raises(DataError, match=r"'sum'.*row 0"):
        read_events(table, edge_columns=["sum"])
    found = read_events(table, columns=["sum=number:point"])
    assert found.edge_attr[:2, 0].tolist() == [1000, 2000]


# ---- columns that say nothing ----------------------------------------------------------------------------------------
def test_empty_columns_and_row_numbers_are_not_edge_features(tmp_path):
    rows = "".join(f"n{i},n{i + 1},{100 + 7 * i % 11},,{i % 3}\n" for i in range(9))
    table = written(tmp_path, f"Source,Target,edge_id,timeset,Weight\n{rows}")
    graph = read_graph(table)
    assert graph.edge_table is not None
    assert graph.edge_table.columns == ("Weight",)
    for name in ("edge_id", "timeset"):
        assert any(name in note for note in graph.notes)
    options = read_graph(table, edge_columns=["edge_id"])
    assert options.edge_table is not None
    assert options.edge_table.columns == ("edge_id",)
    again = written(tmp_path, "source,target,venue_id\na,b,1\nb,c,1\nc,d,2\n")  # not row numbers
    assert read_graph(again).edge_table is not None


@pytest.mark.shared
def test_edges_as_gephi_writes_them():
    with pytest.warns(HopstateWarning, match="Type"):
        graph = read_graph(case(18, "edges.csv"))
    assert graph.edge_table is not None
    assert graph.edge_table.columns == ("Weight",)
    assert read_graph(case(18, "edges_id.csv")).edge_attr is None


# ---- days and clocks apart -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("zone", ["", " +0000", " UTC"])
def test_a_date_column_and_a_time_column_form_one_time(tmp_path, zone):
    rows = "".join(f"{i} {i + 1} 2021-01-0{1 + i // 4} {i % 4:02}:30:00{zone}\n" for i in range(8))
    table = written(tmp_path, rows, "calls.txt")
    events = read_events(table, time_column="column 2")
    assert np.diff(events.t).tolist() == [3600] * 3 + [86400 - 3 * 3600] + [3600] * 3
    assert any("'column 3'" in note for note in events.notes)
    with pytest.raises(DataError, match="'column 3'"):
        prepare(table, tmp_path / "store", time_column="column 2")


@pytest.mark.shared
def test_a_table_of_phone_calls():
    with pytest.raises(DataError, match="'column 2'"):
        read_events(case(15, "calls.txt"))
    assert len(set(read_events(case(15, "calls.txt"), time_column="column 2").t.tolist())) == 240


# ---- tables of nodes without ids, and matrices -----------------------------------------------------------------------
def test_tables_without_ids_report_the_columns_used_and_a_remedy(tmp_path):
    edges = written(tmp_path, "1,2\n0,1\n2,3\n3,0\n")
    with pytest.raises(DataError, match=r"column 0.*\.npy"):
        read_graph(edges, labels=written(tmp_path, "4\n5\n4\n5\n", "l.csv"))
    with pytest.raises(DataError, match=r"row 0.*\.npy"):
        read_graph(edges, features=written(tmp_path, "0.5,0.1\n0.2,0.3\n0.7,1\n2,3\n", "f.csv"))
    with pytest.raises(DataError, match=r"twice|more than once|\.npy"):
        read_graph(edges, features=written(tmp_path, "1,0\n1,1\n0,1\n0,1\n", "f.csv"))
    graph = read_graph(edges, features=written(tmp_path, "3,0.5\n2,0.1\n1,0.7\n0,0.2\n", "f.csv"))
    assert any("'column 0'" in note and ".npy" in note for note in graph.notes)
    named = read_graph(edges, features=written(tmp_path, "id,x\n3,0.5\n2,0.1\n1,0.7\n0,0.2\n", "f.csv"))
    assert not any(".npy" in note for note in named.notes)


@pytest.mark.parametrize("kind", ["names", "corner", "header", "plain", "weights", "spaces"])
def test_adjacency_matrices_are_rejected(tmp_path, kind):
    n = 6
    matrix = np.roll(np.eye(n, dtype=int), 1, 0) + np.roll(np.eye(n, dtype=int), -1, 0)
    matrix = matrix * 3 if kind == "weights" else matrix
    names = [f"N{i}" for i in range(n)]
    rows = [[*([names[i]] if kind in ("names", "corner") else []), *map(str, row)] for i, row in enumerate(matrix)]
    head = {"names": [["", *names]], "corner": [["node", *names]], "header": [names]}.get(kind, [])
    sep, name = (" ", "m.txt") if kind == "spaces" else (",", "m.csv")
    table = written(tmp_path, "".join(sep.join(row) + "\n" for row in head + rows), name)
    with pytest.raises(DataError, match="adjacency matrix"):
        read_graph(table)


def test_the_advice_on_a_matrix_converts_it(tmp_path, monkeypatch):
    """A directed matrix with weights, names separated by tabs and an empty corner; then one of numbers only."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named.tsv").write_text("\ta\tb\tc\na\t0\t2\t0\nb\t0\t0\t5\nc\t0\t0\t0\n")
    (tmp_path / "plain.csv").write_text("0,1,0,0\n1,0,0,0\n0,0,0,1\n0,0,1,0\n")
    edges = {"named.tsv": [["a", "b", 2], ["b", "c", 5]], "plain.csv": [[0, 1, 1], [1, 0, 1], [2, 3, 1], [3, 2, 1]]}
    for name, expected in edges.items():
        with pytest.raises(DataError, match="adjacency matrix") as error:
            read_graph(name)
        advice = str(error.value).split("list of edges: ")[1].split(", or scipy")[0]
        exec(advice, {"pandas": pd})
        assert pd.read_csv("edges.csv").values.tolist() == expected


def test_text_that_is_not_utf_8_is_named(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("source,target\nJos\u00e9,b\n".encode("latin-1"))
    with pytest.raises(FormatError, match=r"latin\.csv.*UTF-8"):
        read_graph(path)


def test_a_broken_character_in_an_uneven_row_is_named(tmp_path):
    """The row is beyond the lines that decide the layout: pyarrow cannot pass on exceptions of its callback."""
    (tmp_path / "uneven.csv").write_bytes(b"src,dst,t\n" + b"1,2,3\n" * 5_000 + b"4,5\xff\n")
    with pytest.raises(FormatError, match=r"uneven\.csv.*UTF-8"):
        read_events(tmp_path / "uneven.csv")


def test_an_error_in_a_second_table_names_only_that_table(tmp_path):
    edges = written(tmp_path, "a,b\n1,2\n2,3\n", "edges.csv")
    features = written(tmp_path, "id,x\n1,0.5\n1,0.7\n", "features.csv")
    with pytest.raises(DataError, match=r"features\.csv") as error:
        read_graph(edges, features=features)
    assert "edges.csv" not in str(error.value)


@pytest.mark.shared
def test_a_matrix_with_names():
    with pytest.raises(DataError, match="adjacency matrix"):
        read_graph(case(9, "matrix.csv"))


# ---- objects in memory -----------------------------------------------------------------------------------------------
def test_a_matrix_and_pyg_data_note_what_undirected_drops():
    matrix = sp.csr_matrix(np.array([[0, 2.0, 0], [5.0, 0, 3.0], [0, 0, 0]]))
    data = Data(
        x=torch.ones(3, 1),
        edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]),
        edge_weight=torch.tensor([2.0, 5.0, 3.0]),
    )
    for source in (matrix, data):
        graph = read_graph(source)
        assert graph.edge_weight.tolist() == [2, 2, 3, 3]
        assert any("direction" in note for note in graph.notes)
        assert any("1 pairs" in note and "weights" in note for note in graph.notes)
        assert read_graph(source, undirected=False).notes == ()
    even = sp.csr_matrix(np.array([[0, 2.0], [2.0, 0]]))
    assert read_graph(even).notes == ()


def test_temporal_data_without_messages_is_accepted(tmp_path):
    made = TemporalData(src=torch.tensor([0, 1, 2] * 40), dst=torch.tensor([3, 4, 3] * 40), t=torch.arange(120))
    events = read_events(made)
    assert (len(events), events.edge_attr) == (120, None)
    hopstate.fit("recency", made, out=tmp_path / "run", loop={"progress": False})


@pytest.mark.parametrize("kind", ["directional", "bidirectional", "induced"])
def test_seeds_drawn_with_replacement_have_a_row_each(kind):
    torch.manual_seed(0)
    data = Data(x=torch.arange(30.0)[:, None], edge_index=torch.randint(0, 30, (2, 200)))
    seeds = torch.tensor([4, 7, 4, 4, 9, 7, 1])
    loader = hopstate.NeighborLoader(data, [-1, -1], input_nodes=seeds, batch_size=7, subgraph_type=kind)
    (batch,) = loader
    assert batch.n_id[:7].tolist() == seeds.tolist()
    assert torch.equal(batch.x, data.x[batch.n_id])
    near = [sorted(batch.n_id[batch.edge_index[0][batch.edge_index[1] == row]].tolist()) for row in range(7)]
    assert near == [near[seeds.tolist().index(seed)] for seed in seeds.tolist()]
    if kind != "bidirectional":
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert near[0] == sorted(data.edge_index[0][data.edge_index[1] == 4].tolist())
    if kind == "directional":
        assert sum(batch.num_sampled_nodes) == len(batch.n_id)
        assert sum(batch.num_sampled_edges) == batch.edge_index.shape[1]
        assert (batch.edge_index[1, : batch.num_sampled_edges[0]] < 7).all()


# ---- files of other kinds --------------------------------------------------------------------------------------------
FOREIGN = {
    "g.graphml": '<?xml version="1.0"?>\n<!-- made -->\n<graphml xmlns="x"><graph/></graphml>',
    "g.gexf": '<gexf xmlns="x">\n<graph/></gexf>',
    "g.gml": 'Creator "me"\ngraph [\n  node [ id 1 ]\n]\n',
    "g.net": '*Vertices 2\n1 "a"\n2 "b"\n*Edges\n1 2\n',
    "g.col": "c a comment\nc another\np edge 4 2\ne 1 2\ne 2 3\n",
    "g.gr": "p sp 4 2\na 1 2 7\na 2 3 1\n",
    "g.adjlist": "1 2 3 4\n2 5\n3 4 5 6 7\n4 5\n",
    "g.txt": "a b c\nb c\nc a b d e\nd a\n",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_file_types_are_rejected_with_a_conversion(tmp_path, name):
    path = written(tmp_path, FOREIGN[name], name)
    kind = {"adjlist": "adjacency list", "txt": "adjacency list", "net": "Pajek", "col": "DIMACS", "gr": "DIMACS"}
    name_of_kind = kind.get(path.suffix[1:], path.suffix[1:])
    for read in (read_graph, read_events):
        with pytest.raises(FormatError, match=rf"(?i){name_of_kind}.*edges\.csv"):
            read(path)


def test_a_zip_of_one_table_is_read_and_others_are_rejected(tmp_path):
    text = "source,target,time\n" + "".join(f"a{i},b{i},{i}\n" for i in range(9))
    with zipfile.ZipFile(tmp_path / "one.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/one.csv", text)
        archive.writestr("__MACOSX/._one.csv", "x")
    assert len(read_events(tmp_path / "one.csv.zip")) == 9
    assert read_graph(tmp_path / "one.csv.zip").num_nodes == 18
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("edges.csv", text)
        archive.writestr("nodes.csv", "id,x\n")
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
        archive.writestr("xl/workbook.xml", "<x/>")
    for name, message in (("two.zip", "edges.csv, nodes.csv"), ("book.xlsx", "read_excel")):
        for read in (read_graph, read_events):
            with pytest.raises(FormatError, match=message):
                read(tmp_path / name)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_that_scipy_saved_are_read(tmp_path, form):
    matrix = sp.random(20, 20, 0.2, format=form, random_state=1)
    sp.save_npz(tmp_path / "m.npz", matrix)
    found, expected = read_graph(tmp_path / "m.npz", undirected=False), read_graph(matrix, undirected=False)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.edge_weight, expected.edge_weight)


@pytest.mark.shared
def test_errors_name_the_problem():
    for name, message in (("bank.csv", "'Account'"), ("pipe.csv", "comma"), ("graph.graphml", "GraphML")):
        with pytest.raises(DataError, match=message):
            read_graph(case(22, name))
    with pytest.raises(DataError, match=r"^((?!'From Bank').)*$"):
        read_graph(case(22, "bank.csv"))
