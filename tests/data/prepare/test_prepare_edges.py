"""A prepared edge table equals the graph read in memory: ids, direction, duplicates, self-loops, node features."""

import mmap

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from hopstate.cli.main import main
from hopstate.data.prepare import prepare
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import ConfigError, DataError, HopstateError, StorageError

pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")


def same(one, other):
    for name in ("indptr", "indices", "x", "y", "edge_attr"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            assert mine.dtype == theirs.dtype, name
            np.testing.assert_array_equal(mine, theirs, name)
    assert (one.node_ids is None) == (other.node_ids is None)
    if one.node_ids is not None:
        assert one.node_ids.ids.tolist() == other.node_ids.ids.tolist()
    for name in ("class_names", "content_hash", "name"):
        assert getattr(one, name) == getattr(other, name), name
    assert {k: m.tolist() for k, m in one.masks.items()} == {k: m.tolist() for k, m in other.masks.items()}
    for mine, theirs in ((one.table, other.table), (one.edge_table, other.edge_table)):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert (mine.columns, mine.values.dtype) == (theirs.columns, theirs.values.dtype)
            np.testing.assert_array_equal(mine.values, theirs.values)


def both(tmp, path, **read):
    """Return the graph from the store and the one that is read."""
    prepare(path, tmp / "store", kind="edges", batch_rows=60, **read)
    return read_graph(tmp / "store"), read_graph(path, **read)


def mapped(array):
    """Return whether an array is memory-mapped."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def table(n=300, seed=0):
    r = np.random.default_rng(seed)
    columns = {"source": [f"n{k}" for k in r.integers(0, 40, n)], "target": [f"n{k}" for k in r.integers(0, 40, n)]}
    return pd.DataFrame(columns | {"weight": r.normal(size=n), "count": r.integers(0, 5, n)})


ids = st.integers(0, 9).map(str) | st.sampled_from(["007", "+5", "5.0", "a b", " x", "é", "zz", "𝔘", "n1"])
whole = st.integers(0, 9).map(str) | st.sampled_from(["+5", "5.0", "90000", "-3"])


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(whole, whole), min_size=1, max_size=25) | st.lists(st.tuples(ids, ids), min_size=1, max_size=25),
    st.booleans(),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["keep", "drop"]),
    st.booleans(),
)
def test_prepared_edges_equal_the_graph_read(tmp_path_factory, pairs, undirected, duplicates, self_loops, featured):
    folder = tmp_path_factory.mktemp("any")
    rows = "".join(f"{u},{v}{f',{i * 0.1}' if featured else ''}\n" for i, (u, v) in enumerate(pairs))
    (folder / "e.csv").write_text(f"source,target{',weight' if featured else ''}\n{rows}", "utf-8")
    read = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    try:
        expected = read_graph(folder / "e.csv", **read)
    except DataError:
        with pytest.raises(DataError):
            prepare(folder / "e.csv", folder / "store", kind="edges", batch_rows=7, **read)
        return
    prepare(folder / "e.csv", folder / "store", kind="edges", batch_rows=7, **read)
    same(read_graph(folder / "store"), expected)


@pytest.mark.parametrize("kind", ["csv", "parquet", "txt"])
def test_edge_features_of_any_format(tmp_path, kind):
    path = tmp_path / f"e.{kind}"
    if kind == "parquet":
        table().to_parquet(path)
    else:
        table().to_csv(path, index=False, sep=" " if kind == "txt" else ",")
    store, expected = both(tmp_path, path)
    same(store, expected)
    assert mapped(store.indices)
    assert mapped(store.edge_attr)
    assert not (tmp_path / "store" / "work").exists()


@pytest.mark.parametrize("case", ["features", "labels", "both", "one table", "npy", "num_nodes"])
def test_tables_of_nodes(tmp_path, case):
    edges, r = tmp_path / "e.csv", np.random.default_rng(3)
    named = case not in ("npy", "num_nodes")
    name = "n{}" if named else "{}"
    pairs = r.integers(0, 12, (40, 2))
    edges.write_text("source,target\n" + "".join(f"{name.format(u)},{name.format(v)}\n" for u, v in pairs))
    nodes = pd.DataFrame({"id": [name.format(k) for k in r.permutation(14)], "f": r.normal(size=14), "g": range(14)})
    classes = pd.DataFrame(
        {"id": nodes["id"][::-1], "label": ["a", "b"] * 7, "split": ["train", "val", "test", ""][:2] * 7}
    )
    nodes.to_csv(tmp_path / "x.csv", index=False)
    classes.to_csv(tmp_path / "y.csv", index=False)
    nodes.merge(classes, on="id").to_csv(tmp_path / "xy.csv", index=False)
    np.save(tmp_path / "x.npy", r.normal(size=(15, 3)).astype(np.float32))
    np.save(tmp_path / "y.npy", r.integers(0, 3, 15))
    read = {
        "features": {"features": tmp_path / "x.csv"},
        "labels": {"labels": tmp_path / "y.csv"},
        "both": {"features": tmp_path / "x.csv", "labels": tmp_path / "y.csv"},
        "one table": {"features": tmp_path / "xy.csv", "labels": tmp_path / "xy.csv"},
        "npy": {"features": tmp_path / "x.npy", "labels": tmp_path / "y.npy"},
        "num_nodes": {"num_nodes": 20},
    }[case]
    same(*both(tmp_path, edges, **{key: value if key == "num_nodes" else str(value) for key, value in read.items()}))


def test_bad_rows_are_written_with_their_line_numbers(tmp_path):
    text = "source,target,w\na,b,1\n,b,2\na,c,much\na,c\nb,c,2\nb,c,1,9\n"
    (tmp_path / "e.csv").write_text(text)
    done = prepare(tmp_path / "e.csv", tmp_path / "s", kind="edges", batch_rows=2, edge_columns=["w"])
    assert (done.events, done.nodes, done.bad) == (4, 3, 4)
    assert pd.read_csv(done.bad_rows).line.tolist() == [3, 4, 5, 7]


@pytest.mark.parametrize(
    ("texts", "read", "name"),
    [
        (("source,target\n1,2\n", "source,target,w\n1,2,3\n"), {}, "1.csv.*w"),
        (("source,target\n1,2\n", "source,target\na,2\n"), {}, "0.csv.*1.csv"),
        (("source,target\n1,2\n-4,2\n",), {}, "-4"),
        (("source,target\n,2\n",), {}, ""),
        (("source,target\n1,2\n",), {"num_nodes": 2}, "2"),
        (("source,target\na,b\n",), {"num_nodes": 2}, "a"),
        (("source,target\n1,2\n",), {"time_column": "t"}, "time_column"),
    ],
)
def test_tables_that_are_not_a_graph_are_named(tmp_path, texts, read, name):
    (tmp_path / "folder").mkdir()
    for place, text in enumerate(texts):
        (tmp_path / "folder" / f"{place}.csv").write_text(text)
    with pytest.raises((DataError, ConfigError), match=name or None):
        prepare(tmp_path / "folder", tmp_path / "s", kind="edges", **read)
    assert not (tmp_path / "s" / "graph.json").exists()


def test_a_folder_of_tables_gives_types_of_nodes(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\na,x\nb,y\n")
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "user.csv").write_text("id,age\na,1\nb,2\n")
    (tmp_path / "nodes" / "item.csv").write_text("id,price\nx,1.5\ny,3\n")
    prepare(tmp_path / "e.csv", tmp_path / "s", kind="edges", features=str(tmp_path / "nodes"))
    store = read_graph(tmp_path / "s")
    assert store.node_type_names == ("item", "user")
    assert store.content_hash == read_graph(tmp_path / "e.csv", features=tmp_path / "nodes").content_hash


def test_an_id_without_a_row_of_features_is_named(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "x.csv").write_text("id,f\na,1\nb,2\n")
    with pytest.raises(DataError, match="c"):
        prepare(tmp_path / "e.csv", tmp_path / "s", kind="edges", features=str(tmp_path / "x.csv"))
    with pytest.raises(HopstateError, match=r"absent\.csv"):
        prepare(tmp_path / "e.csv", tmp_path / "t", kind="edges", features=str(tmp_path / "absent.csv"))
    assert not (tmp_path / "t").exists()


def test_events_and_edges_reject_each_others_store(tmp_path):
    (tmp_path / "e.csv").write_text("source,target,time\na,b,1\nb,c,2\n")
    prepare(tmp_path / "e.csv", tmp_path / "s")
    with pytest.raises(StorageError):
        prepare(tmp_path / "e.csv", tmp_path / "s", kind="edges")
    with pytest.raises(ConfigError):
        prepare(tmp_path / "e.csv", tmp_path / "t", kind="nodes")


@pytest.mark.parametrize("kind", ["events", "edges"])
def test_a_partial_store_is_named_with_a_remedy(tmp_path, kind):
    (tmp_path / "e.csv").write_text("source,target,time\na,b,1\nb,c,2\n")
    whole = prepare(tmp_path / "e.csv", tmp_path / "s", kind=kind)
    before = (whole.path / "node_ids.npy").read_bytes()
    (whole.path / ("events.json" if kind == "events" else "graph.json")).unlink()
    with pytest.raises(StorageError, match=r"\.npy"):
        prepare(tmp_path / "e.csv", tmp_path / "s", kind=kind)
    assert (whole.path / "node_ids.npy").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("mine")
    with pytest.raises(StorageError):
        prepare(tmp_path / "e.csv", tmp_path / "other", kind=kind)
    with pytest.raises(StorageError):
        prepare(tmp_path / "e.csv", tmp_path / "e.csv", kind=kind)


def test_the_prepare_command_for_edges(tmp_path, capsys):
    (tmp_path / "e.csv").write_text("source,target,w\na,b,1\nb,a,2\nb,b,3\n")
    words = ["prepare", str(tmp_path / "e.csv"), "--out", str(tmp_path / "s"), "--kind", "edges"]
    assert main([*words, "--read.undirected", "false", "--read.self_loops", "drop", "--read.edge_columns", "[]"]) == 0
    assert capsys.readouterr().out
    graph = read_graph(tmp_path / "s")
    assert (graph.indices.tolist(), graph.edge_attr) == ([1, 0], None)
