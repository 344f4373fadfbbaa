"""Misread files of users: column roles are reported, and ambiguous roles need a choice."""

from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io

import hopstate
from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.data.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.store import load_events
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, HopstateWarning

CASES = "cases/readers"


@pytest.fixture
def folder(shared: Path) -> Path:
    """The folder of misread files; the test skips where it is absent."""
    if not (shared / CASES).is_dir():
        pytest.skip("needs the misread files, which are not here")
    return shared / CASES


def write(folder: Path, text: str, name: str = "events.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def rows(count: int, *columns: object) -> str:
    """Return lines of comma-separated cells, with one column per function of the row number."""
    return "".join(",".join(str(column(i)) for column in columns) + "\n" for i in range(count))  # type: ignore[operator]


def read_as(notes: tuple[str, ...]) -> str:
    """Return the note on the roles of columns."""
    (found,) = (note for note in notes if note.startswith("read as: "))
    return found


# ---- roles are reported -----------------------------------------------------------------------------------------
def test_the_roles_of_columns_have_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, "user_id,target,ts,feat_0,note\n1,2,1700000000,5,a\n2,3,1700000060,6,b\n")
    note = read_as(read_events(path, num_nodes=4).notes)
    for part in ("source=user_id", "target=target", "time=ts (Unix seconds)", "features: feat_0", "ignored: note"):
        assert part in note
    graph = write(tmp_path, "source,target,weight,note\na,b,1,x\nb,c,2,y\n", "g.csv")
    with pytest.warns(match="note"):
        note = read_as(read_graph(graph).notes)
    for part in ("source=source", "target=target", "features: weight", "ignored: note"):
        assert part in note


def test_every_command_prints_the_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "src,dst,t\n" + rows(60, lambda i: i % 5, lambda i: 5 + i % 7, lambda i: 10 * i))
    commands = (
        ["inspect", "events.csv"],
        ["prepare", "events.csv", "--out", "store"],
        ["fit", "recency", "--data", "events.csv", "--out", "run"],
        ["fit", "recency", "--data", "store", "--out", "other"],
        ["inspect", "run"],
        ["inspect", "store"],
    )
    for words in commands:
        assert main(words) == 0
        captured = capsys.readouterr()
        assert "read as: source=src, target=dst, time=t" in captured.out + captured.err, words


def test_notes_on_columns_do_not_contradict_each_other(tmp_path: Path) -> None:
    path = write(tmp_path, "src,dst,t,amount,venue\n0,1,1,2.5,a\n1,0,2,3.5,b\n0,1,3,1,a\n1,0,4,1,b\n")
    events = read_events(path, edge_columns=["amount"], columns=["venue=category"])
    assert "features: amount, venue" in read_as(events.notes)
    assert not any("not used" in note for note in events.notes)
    assert events.edge_table.columns[0] == "amount"
    dropped = read_events(path, edge_columns=["amount"], columns=["venue=drop"])
    assert not any("venue=category" in note for note in dropped.notes)


# ---- 02: more than three columns without names ----------------------------------------------------------------
@pytest.mark.shared
def test_a_rating_before_the_time(folder: Path, tmp_path: Path) -> None:
    path = folder / "02-rating-before-time-without-header/trust.csv"
    with pytest.raises(DataError, match="time_column"):
        read_events(path)
    assert main(["inspect", str(path)]) == 1
    named = read_events(path, time_column="column 3")
    assert float(named.t[0]) == 1289242497.4763
    assert "source=column 0, target=column 1, time=column 3 (Unix seconds)" in read_as(named.notes)
    with pytest.raises(DataError, match="time_column"):
        prepare(str(path), str(tmp_path / "store"))


@pytest.mark.parametrize("name", ["e.csv", "e.txt", "e.tsv"])
def test_four_columns_without_names_need_a_choice(tmp_path: Path, name: str) -> None:
    sign = {"e.csv": ",", "e.txt": " ", "e.tsv": "\t"}[name]
    text = rows(30, lambda i: i, lambda i: i % 7, lambda i: 10 + i % 5, lambda i: 10**9 + i).replace(",", sign)
    path = write(tmp_path, text, name)
    for read in (read_events, read_graph):
        with pytest.raises(DataError, match="source_column"):
            read(path)
    ends = {"source_column": "column 1", "target_column": "column 2"}
    assert read_events(path, **ends, time_column="column 3").t[0] == 10**9
    assert read_graph(path, **ends, edge_columns=[]).num_nodes == 12


# ---- 03: two columns that could be one end --------------------------------------------------------------------
@pytest.mark.shared
def test_the_column_target_is_the_label(folder: Path) -> None:
    path = folder / "03-column-target-is-the-label/ctr.csv"
    with pytest.raises(DataError, match=r"target.*item_id|item_id.*target"):
        read_events(path)
    events = read_events(path, target_column="item_id", label_column="target")
    assert set(events.labels.tolist()) == {0, 1}
    assert read_events(path, label_column="target").content_hash == events.content_hash
    assert read_events(path, columns=["target=drop"]).labels is None


@pytest.mark.parametrize(
    ("header", "role", "both"),
    [
        ("user_id,product_id,timestamp,target", "target", ("product_id", "target")),
        ("userId,movieId,timestamp,target", "target", ("movieId", "target")),
        ("source,target,timestamp,user_id", "source", ("source", "user_id")),
        ("src,dst,t,destination", "target", ("dst", "destination")),
        ("src,dst,t,timestamp", "time", ("t", "timestamp")),
        ("src,dst,created_at,updated_at", "time", ("created_at", "updated_at")),
        ("sender,to,when,Caller ID", "source", ("sender", "Caller ID")),
    ],
)
def test_two_columns_of_one_role_need_a_choice(tmp_path: Path, header: str, role: str, both: tuple[str, str]) -> None:
    path = write(tmp_path, f"{header}\n" + rows(9, lambda i: 100 + i, lambda i: 200 + i, lambda i: i, lambda i: i % 2))
    for source in (path, pd.read_csv(path)):
        with pytest.raises(DataError, match=f"{role}_column") as error:
            read_events(source)
        assert all(repr(name) in str(error.value) for name in both)
    read_events(path, **{f"{role}_column": both[0]})
    if role != "time":
        with pytest.raises(DataError, match=f"{role}_column"):
            read_graph(path)
    with pytest.raises(DataError, match=f"{role}_column"):
        prepare(str(path), str(tmp_path / "store"))


def test_an_endpoint_column_of_two_values_needs_a_choice(tmp_path: Path) -> None:
    body = rows(30, lambda i: i % 9, lambda i: 100 + i % 11, lambda i: i, lambda i: i % 2)
    path = write(tmp_path, f"user_id,banner,ts,target\n{body}")
    with pytest.raises(DataError, match="target"):
        read_events(path)
    assert read_events(path, target_column="banner", label_column="target").labels[1] == 1
    assert read_events(path, target_column="target", bipartite=False).num_nodes == 9


# ---- 04: two columns of time ----------------------------------------------------------------------------------
@pytest.mark.shared
def test_a_date_and_a_time_of_day(folder: Path) -> None:
    path = folder / "04-two-columns-of-time/flights.csv"
    with pytest.raises(DataError, match="time_column") as error:
        read_events(path)
    assert all(name in str(error.value) for name in ("'date'", "'time'"))
    assert main(["inspect", str(path)]) == 1
    with pytest.warns(HopstateWarning, match="sorted"):
        assert read_events(path, time_column="date").dates


@pytest.mark.parametrize("other", ["day", "hour", "event_date", "Timestamp"])
def test_two_time_columns(tmp_path: Path, other: str) -> None:
    path = write(tmp_path, f"src,dst,time,{other}\n" + rows(9, *[lambda i: i] * 4))
    with pytest.raises(DataError, match=other):
        read_events(path)
    assert len(read_events(path, time_column="time")) == 9
    assert read_events(path, edge_columns=[other]).edge_attr.shape == (9, 1)


# ---- 23: kinds as codes ---------------------------------------------------------------------------------------
@pytest.mark.shared
def test_a_numeric_kind_column_needs_a_choice(folder: Path) -> None:
    path = folder / "23-kind-is-a-code/calls.csv"
    with pytest.raises(DataError, match="'kind'") as error:
        read_events(path)
    assert "kind_column" in str(error.value)
    assert read_events(path, columns=["kind=drop"]).kind is None
    assert read_events(path, kind_column="kind").kind.sum() == 3


@pytest.mark.parametrize("name", ["kind", "op", "Operation"])
@pytest.mark.parametrize("codes", [(1, 0), (1, 2), (1, -1), (0, 3), (True, False)])
def test_numeric_codes_of_kinds_need_a_choice(tmp_path: Path, name: str, codes: tuple[int, int]) -> None:
    path = write(tmp_path, f"src,dst,t,{name}\n" + rows(6, *[lambda i: i] * 3, lambda i: codes[i % 2]))
    with pytest.raises(DataError, match=f"'{name}'"):
        read_events(path)
    assert read_events(path, kind_column="").kind is None


def test_kinds_in_words_and_in_written_files_need_no_choice(tmp_path: Path) -> None:
    path = write(tmp_path, "src,dst,t,kind\n0,1,1,add\n0,1,2,delete\n")
    events = read_events(path)
    assert events.kind.tolist() == [0, 1]
    assert "kind=kind" in read_as(events.notes)
    events.save(tmp_path / "e")
    assert read_events(tmp_path / "e").kind.tolist() == [0, 1]


@pytest.mark.parametrize("names", ["label,y", "y,state_label"])
def test_two_label_columns_need_a_choice(tmp_path: Path, names: str) -> None:
    path = write(tmp_path, f"src,dst,t,{names}\n" + rows(6, *[lambda i: i] * 5))
    with pytest.raises(DataError, match="label_column"):
        read_events(path)
    assert read_events(path, label_column="y").labels is not None
    assert read_events(path, label_column="").labels is None
    assert read_events(path, label_column=names).labels.shape == (6, 2)


@pytest.mark.parametrize(
    "text", ["u,i,ts,label,idx", "src,dst,t,label,feat_0", "Source Node, Target-Node,Time Stamp,Label,id"]
)
def test_names_that_state_their_roles_need_no_choice(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, f"{text}\n" + rows(6, *[lambda i: i] * 5))
    assert np.array_equal(read_events(path).labels, np.arange(6))


# ---- 05, 06: what cuts a line -----------------------------------------------------------------------------------
@pytest.mark.shared
def test_tabs_and_spaces_in_one_line_are_separators(folder: Path) -> None:
    path = folder / "05-tab-and-space-in-one-line/out.phones"
    with pytest.raises(DataError, match="time_column"):
        read_events(path)
    events = read_events(path, time_column="column 3")
    assert events.t[0] == 1095300000
    assert len(set(events.dst.tolist())) > 1
    ends = {"source_column": "column 0", "target_column": "column 1"}
    assert read_graph(path, **ends).num_nodes == events.num_nodes


@pytest.mark.parametrize("line", ["{} {}\t1\t{}\n", "{}\t{} 1\t{}\n", "{}  {} \t1 {}\n", "{} {}\t{}\n"])
@pytest.mark.parametrize("remark", ["", "% bip unweighted\n"])
def test_any_white_space_between_numbers_separates_them(tmp_path: Path, line: str, remark: str) -> None:
    path = write(tmp_path, remark + "".join(line.format(i, i + 1, 100 * i) for i in range(9)), "out.net")
    last = "column 3" if line.count("{}") < len(line.split()) else "column 2"
    events = read_events(path, time_column=last)
    assert events.t.tolist() == [100 * i for i in range(9)]
    assert (events.src.tolist(), events.dst.tolist()) == ([*range(9)], [*range(1, 10)])


@pytest.mark.shared
def test_commas_in_names_of_tab_separated_files(folder: Path) -> None:
    case = folder / "06-comma-inside-tab-separated-names"
    graph = read_graph(case / "coauthors.tsv")
    assert graph.num_nodes == 5
    assert "Doe, Jane" in graph.node_ids.ids.tolist()
    ragged = read_graph(case / "ragged.csv", edge_columns=[])
    assert "Doe Jane" in ragged.node_ids.ids.tolist()
    assert any("fewer cells" in note for note in ragged.notes)
    with pytest.raises(DataError, match=r"column 2.*row 0 "):
        read_graph(case / "ragged.csv")


@pytest.mark.parametrize("name", ["e.tsv", "e.txt", "e.csv", "e.tab"])
def test_tabs_separate_if_every_line_has_the_same_number(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "source\ttarget\tweight\nDoe, J\tRoe, R\t1\nRoe, R\tPoe, A\t2\nPoe, A\tDoe, J\t3\n", name)
    graph = read_graph(path)
    assert graph.node_ids.ids.tolist() == ["Doe, J", "Poe, A", "Roe, R"]


def test_names_with_spaces_between_tabs_stay_whole(tmp_path: Path) -> None:
    path = write(tmp_path, "Ann Lee\tBo Kay\t3\nBo Kay\tCy Orr\t4\n", "e.txt")
    assert read_events(path).node_ids.ids.tolist() == ["Ann Lee", "Bo Kay", "Cy Orr"]


def test_short_lines_are_counted_and_tabs_are_not_part_of_an_id(tmp_path: Path) -> None:
    path = write(tmp_path, "source,target,time,f1\na b,c d,1,5\nc d,e f,2\na b,e f,3,6\n")
    with pytest.raises(DataError, match=r"f1.*row 1 "):
        read_events(path)
    assert any("1 of 3 rows" in note for note in read_events(path, edge_columns=[]).notes)
    path = write(tmp_path, "source,target\na\tb,c\nd,e\n")
    with pytest.raises(DataError, match="'source'"):
        read_graph(path)


# ---- 10: Matrix Market ------------------------------------------------------------------------------------------
@pytest.mark.shared
def test_a_matrix_is_a_graph_and_has_no_events(folder: Path) -> None:
    path = folder / "10-size-line-of-matrix-market/graph.mtx"
    with pytest.raises(FormatError, match="Matrix Market"):
        read_events(path)
    graph = read_graph(path)
    assert (graph.num_nodes, graph.num_edges) == (9, 24)
    assert graph.node_ids.ids.tolist() == list(range(1, 10))
    assert main(["inspect", str(path)]) == 0


@pytest.mark.parametrize("kind", ["pattern general", "integer symmetric", "real general"])
@pytest.mark.parametrize("name", ["m.mtx", "m.txt", "m"])
@pytest.mark.parametrize("undirected", [True, False])
def test_matrices_give_the_edges_that_scipy_reads(tmp_path: Path, kind: str, name: str, undirected: bool) -> None:
    value = "" if "pattern" in kind else " 5"
    path = write(tmp_path, f"%%MatrixMarket matrix coordinate {kind}\n3 3 2\n2 1{value}\n3 1{value}\n", name)
    graph, matrix = read_graph(path, undirected=undirected), scipy.io.mmread(path)
    assert graph.content_hash == Graph.from_scipy(matrix, undirected=undirected, node_ids=graph.node_ids).content_hash
    assert graph.num_edges == (4 if undirected or "symmetric" in kind else 2)
    assert (graph.edge_weight is None) == ("pattern" in kind)


@pytest.mark.parametrize(
    "text",
    [
        "%%MatrixMarket matrix coordinate real general\n3 4 1\n1 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 9999999999999\n1 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n9999999999 9999999999 1\n1 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 1\n4 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 nan\n",
        "%%MatrixMarket matrix array real general\n2 2\n1\n1\n1\n1\n",
        "%%MatrixMarket matrix coordinate complex general\n3 3 1\n1 1 1 1\n",
        "%%MatrixMarket",
    ],
)
def test_matrices_that_are_no_graph_are_rejected(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text, "m.mtx")
    with pytest.raises(HopstateError, match=r"m\.mtx"):
        read_graph(path)


# ---- networkx ---------------------------------------------------------------------------------------------------
def test_networkx_graphs_keep_nodes_and_attributes() -> None:
    made = nx.Graph()
    made.add_nodes_from([("b", {"size": 1.5, "y": 0}), ("a", {"size": 2.5, "y": 1}), ("lone", {"size": 3.5, "y": 1})])
    made.add_edge("b", "a", weight=0.5)
    for undirected in (True, False):  # its edges are undirected
        graph = read_graph(made, label_column="y", undirected=undirected)
        assert graph.node_ids.ids.tolist() == ["b", "a", "lone"]
        assert (graph.x.tolist(), graph.y.tolist()) == ([[1.5], [2.5], [3.5]], [0, 1, 1])
        assert (graph.num_edges, graph.edge_table.columns) == (2, ("weight",))
    directed = nx.DiGraph([(0, 2), (2, 1)])
    directed.add_node(3)
    graph = read_graph(directed, undirected=False)
    assert (graph.num_nodes, graph.num_edges) == (4, 2)
    assert graph.node_ids.ids.tolist() == [0, 2, 1, 3]
    assert read_graph(directed).num_edges == 4
    assert read_graph(nx.empty_graph(5)).num_nodes == 5
    with pytest.raises(DataError, match="networkx"):
        read_graph(nx.Graph())


# ---- 11, 12: the first line -------------------------------------------------------------------------------------
@pytest.mark.shared
def test_a_header_of_column_numbers(folder: Path) -> None:
    case = folder / "11-header-of-column-numbers"
    for read, name in ((read_graph, "edges.csv"), (read_events, "events.csv")):
        with pytest.raises(DataError, match="header"):
            read(case / name)
        assert read(case / name, header=True).num_nodes == 4
        assert read(case / name, header=False).num_nodes == 6
    graph = read_graph(case / "edges.csv", header=True, features=case / "features.csv")
    assert graph.node_ids.ids.tolist() == [5, 6, 7, 8]
    assert graph.x.shape == (4, 2)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("sep", [",", "\t"])
def test_tables_of_arrays_as_pandas_writes_them(tmp_path: Path, index: bool, sep: str) -> None:
    events = np.stack([np.arange(9) % 4, (np.arange(9) + 1) % 4, 5 + np.arange(9)], 1)
    path = tmp_path / "events.csv"
    pd.DataFrame(events).to_csv(path, index=index, sep=sep)
    if not index:
        with pytest.raises(DataError, match="header"):
            read_events(path)
        with pytest.raises(DataError, match="header"):
            prepare(str(path), str(tmp_path / "store"))
    stream = read_events(path, header=None if index else True)
    assert (stream.src.tolist(), stream.t.tolist()) == (events[:, 0].tolist(), events[:, 2].tolist())
    for names in (range(3), "012", ["src", "dst", "t"]):  # a table in memory has column names, of any kind
        other = read_events(pd.DataFrame(events, columns=list(names)), header=False)
        assert other.content_hash == stream.content_hash


@pytest.mark.shared
def test_an_ambiguous_first_line_has_a_note(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "12-first-pair-of-names-taken-for-a-header/lives.csv"
    (header,) = (note for note in read_graph(path).notes if "first line" in note)
    assert "amy, oslo" in header
    assert "--read.header" in header
    graph = read_graph(path, header=False)
    assert graph.num_nodes == 9
    assert not any("first line" in note for note in graph.notes)
    assert main(["inspect", str(path), "--read.header", "false"]) == 0
    assert "9" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["e.csv", "e.txt"])
def test_a_header_above_text_ids_has_a_note(tmp_path: Path, name: str) -> None:
    sign = "," if name == "e.csv" else " "
    path = write(tmp_path, f"person{sign}place\nann{sign}rome\nben{sign}bonn\n", name)
    assert any("person, place" in note for note in read_graph(path).notes)
    assert read_graph(path, header=True).num_nodes == 4
    assert read_graph(path, header=False).num_nodes == 6
    known = write(tmp_path, f"source{sign}target\nann{sign}rome\nben{sign}bonn\n", name)
    assert not any("first line" in note for note in read_graph(known).notes)


# ---- 01: two sets of nodes --------------------------------------------------------------------------------------
@pytest.mark.shared
def test_users_and_items_with_equal_numbers_are_two_nodes(folder: Path, tmp_path: Path) -> None:
    path = folder / "01-user-and-item-numbers-overlap/visits.csv"
    events = read_events(path)
    assert (events.num_nodes, events.is_bipartite) == (55, True)
    events.save(tmp_path / "folder")
    assert events.two_sets
    assert load_events(tmp_path / "folder").two_sets
    assert any("two sets" in note for note in events.notes)
    table = pd.read_csv(path)
    table["user_id"], table["item_id"] = "u" + table["user_id"].astype(str), "i" + table["item_id"].astype(str)
    assert read_events(table).content_hash == events.content_hash
    one = read_events(path, bipartite=False)
    assert one.num_nodes == 40
    run = hopstate.fit("recency", str(path), out=str(tmp_path / "run"), loop={"progress": False})
    best = run.rank(["7"], top=15)
    assert len(best) == 15
    assert set(best["dst"]) == {f"i{number}" for number in range(1, 16)}
    assert run.score([(7, 7)]).equals(run.score([("u7", "i7")]))
    later = pd.DataFrame({"user_id": [7], "item_id": [9], "timestamp": [int(table["timestamp"].max()) + 5]})
    assert run.predict(later)[["src", "dst"]].to_numpy().tolist() == [["u7", "i9"]]
    with pytest.raises(DataError, match="bipartite"):
        prepare(str(path), str(tmp_path / "store"))
    assert not list((tmp_path / "store").glob("*"))
    assert prepare(str(path), str(tmp_path / "store"), bipartite=False).nodes == 40


def event_table(names: str, *, shift: int = 0) -> str:
    """Return events of a table whose two columns of ids have names, the second shifted."""
    return f"{names},time\n" + rows(9, lambda i: i % 5, lambda i: shift + i % 3, lambda i: i)


@pytest.mark.parametrize(
    ("names", "nodes"),
    [("customer,product", 8), ("userId,movieId", 8), ("source,target", 5), ("from,to", 5), ("u,v", 5), ("src,dst", 5)],
)
def test_names_decide_whether_ids_are_bipartite(tmp_path: Path, names: str, nodes: int) -> None:
    path = write(tmp_path, event_table(names))
    for source in (path, pd.read_csv(path)):
        events = read_events(source)
        assert events.num_nodes == nodes
        assert ("two sets" if nodes == 8 else "one set") in read_as(events.notes)
    assert read_events(path, bipartite=True).num_nodes == 8
    assert read_events(path, bipartite=False).num_nodes == 5
    apart = read_events(write(tmp_path, event_table(names, shift=10), "apart.csv"))
    assert apart.node_ids.ids.tolist() == [0, 1, 2, 3, 4, 10, 11, 12]


def test_other_names_need_a_choice_if_both_columns_share_numbers(tmp_path: Path) -> None:
    ends = {"source_column": "who", "target_column": "what"}
    path = write(tmp_path, event_table("who,what"))
    for read in (read_events, lambda p, **options: prepare(str(p), str(tmp_path / "store"), **options)):
        with pytest.raises(DataError, match="bipartite"):
            read(path, **ends)
    assert read_events(path, **ends, bipartite=True).is_bipartite
    assert read_events(path, **ends, bipartite=False).num_nodes == 5
    assert read_events(write(tmp_path, event_table("who,what", shift=10)), **ends).num_nodes == 8
    texts = write(tmp_path, "who,what,time\nann,bob,1\nbob,cy,2\n")
    assert read_events(texts, **ends).num_nodes == 3
    with pytest.raises(ConfigError, match="bipartite"):
        read_events(texts, **ends, bipartite="perhaps")


def test_without_names_there_is_one_set_and_deleted_nodes_are_sources(tmp_path: Path) -> None:
    assert "one set" in read_as(read_events(write(tmp_path, "3 4 1\n4 3 2\n", "e.txt")).notes)
    path = write(tmp_path, "user,item,time,kind\n1,1,1,add\n2,1,2,add\n1,,3,delete\n")
    events = read_events(path, from_start=False)
    assert events.node_ids.ids.tolist() == ["i1", "u1", "u2"]
    assert events.node_ids.ids[events.src[events.kind == 2]].tolist() == ["u1"]


@pytest.mark.parametrize(("shift", "sets"), [(0, "one set"), (9, "two sets")])
def test_known_formats_report_their_roles_too(tmp_path: Path, shift: int, sets: str) -> None:
    body = rows(6, *[lambda i: i, lambda i: 1 + i % 3, lambda i: 1 + shift + i % 4, lambda i: i, lambda i: 0], int)
    path = write(tmp_path, f",u,i,ts,label,idx\n{body}", "ml_made.csv")
    note = read_as(read_events(path).notes)
    assert "source=u, target=i, time=ts" in note
    assert sets in note
    header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"
    jodie = write(tmp_path, f"{header}\n0,0,0,0,0.5\n1,0,1,0,0.5\n", "jodie.csv")
    assert "two sets" in read_as(read_events(jodie).notes)
