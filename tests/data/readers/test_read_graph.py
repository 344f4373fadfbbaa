"""`read_graph` on every kind of file, well formed and broken: each error names its place."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from hopstate.data.graph import Graph
from hopstate.data.readers.read_graph import FORMATS, read_graph
from hopstate.errors import ConfigError, DataError, FormatError, HopstateWarning, MissingFileError

EDGES = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


# ---- npz -----------------------------------------------------------------------------------------------
def heterophilous(path: Path, **changes: Any) -> str:
    masks = np.eye(4, dtype=bool)
    arrays = {
        "node_features": np.arange(8, dtype=np.float32).reshape(4, 2),
        "node_labels": np.array([0, 1, 0, 1]),
        "edges": EDGES,
        "train_masks": masks[:2],
        "val_masks": masks[[1, 2]],
        "test_masks": masks[[2, 3]],
    }
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return str(path)


def gnn_benchmark(path: Path, **changes: Any) -> str:
    a = scipy.sparse.csr_array((np.ones(4), (EDGES[:, 0], EDGES[:, 1])), shape=(4, 4))
    x = scipy.sparse.csr_array(np.array([[1, 0], [0, 2], [0, 0], [3, 0]], np.float64))
    arrays = {f"{p}_{k}": getattr(m, k) for p, m in (("adj", a), ("attr", x)) for k in ("data", "indices", "indptr")}
    arrays |= {"adj_shape": a.shape, "attr_shape": x.shape, "labels": np.array([0, 1, 1, 0], np.int8)}
    arrays |= {"node_names": np.array(["p", "q", "r", "s"]), "class_names": np.array(["cat", "dog"])}
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return str(path)


def test_heterophilous_npz(tmp_path: Path) -> None:
    graph = read_graph(heterophilous(tmp_path / "h.npz"))
    assert (graph.num_nodes, graph.num_edges, graph.num_splits, graph.name) == (4, 8, 2, "h")
    assert graph.split(1)["val"].tolist() == [2]
    assert graph.is_undirected
    assert read_graph(heterophilous(tmp_path / "h.npz"), undirected=False).num_edges == 4


def test_gnn_benchmark_npz(tmp_path: Path) -> None:
    graph = read_graph(gnn_benchmark(tmp_path / "g.npz"))
    assert graph.x.tolist() == [[1, 0], [0, 2], [0, 0], [3, 0]]
    assert graph.x.dtype == np.float32
    assert graph.node_ids.ids.tolist() == ["p", "q", "r", "s"]
    assert graph.class_names == ("cat", "dog")
    assert (graph.num_edges, graph.y.tolist()) == (8, [0, 1, 1, 0])
    assert read_graph(gnn_benchmark(tmp_path / "no.npz", labels=None, attr_indptr=None, node_names=None)).x is None


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"edges": np.array([[0, 4]])}, DataError, r"h\.npz.*row 0"),
        ({"edges": np.array([[0, 1], [-1, 1]])}, DataError, "-1.*row 1"),
        ({"node_features": np.zeros((3, 2))}, DataError, r"h\.npz"),
        ({"node_features": np.full((4, 1), np.nan)}, DataError, r"h\.npz.*0, 1, 2, 3"),
        ({"node_features": np.array([["a"]] * 4)}, DataError, ""),
        ({"node_labels": np.array([-1, 0, 1, 0])}, DataError, ""),
        ({"test_masks": np.zeros((2, 4), bool)}, DataError, "test"),
        ({"train_masks": np.ones((2, 3), bool)}, DataError, "train"),
        ({"edges": None}, FormatError, "adj_indptr"),
        ({"node_labels": np.array([{}] * 4, dtype=object)}, FormatError, "node_labels"),
    ],
)
def test_bad_npz_content(tmp_path: Path, changes: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message or None):
        read_graph(heterophilous(tmp_path / "h.npz", **changes))


@pytest.mark.parametrize("keep", [3, 100, 0.5, 0.95])
def test_a_truncated_npz_is_named(tmp_path: Path, keep: float) -> None:
    whole = Path(heterophilous(tmp_path / "whole.npz")).read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[: int(keep if keep > 1 else keep * len(whole))])
    with pytest.raises(FormatError, match=r"cut\.npz"):
        read_graph(path)


def test_a_damaged_npz_member_is_named(tmp_path: Path) -> None:
    path = Path(heterophilous(tmp_path / "h.npz"))
    raw = bytearray(path.read_bytes())
    place = raw.find(b"\x93NUMPY") + 140
    raw[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(raw)
    with pytest.raises(FormatError):
        read_graph(path)


def test_bad_gnn_benchmark_parts(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_graph(gnn_benchmark(tmp_path / "a.npz", adj_indices=np.array([0, 1, 2, 9])))
    with pytest.raises(FormatError, match="attr_data"):
        read_graph(gnn_benchmark(tmp_path / "b.npz", attr_data=None))
    path = gnn_benchmark(tmp_path / "c.npz", class_names=np.array([{}, {}], dtype=object))
    with pytest.warns(HopstateWarning, match="names"):
        assert read_graph(path).class_names is None


# ---- tables --------------------------------------------------------------------------------------------
@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    return {
        "edges": write(tmp_path / "e.csv", "source,target,weight,note\nann,bob,1.5,a\nbob,NA,2,b\n007,ann,3,c\n"),
        "features": write(tmp_path / "f.csv", "id,age,height\nbob,1,2\nann,3,4\nNA,5,6\n007,7,8\neve,9,10\n"),
        "labels": write(tmp_path / "l.csv", "id,label,split\nann,dog,train\nbob,cat,Valid\nNA,,\n007,cat,test\n"),
    }


def test_three_tables_with_string_ids(tables: dict[str, str]) -> None:
    with pytest.warns(HopstateWarning, match="note"):
        graph = read_graph(tables["edges"], features=tables["features"], labels=tables["labels"])
    assert graph.node_ids.ids.tolist() == ["bob", "ann", "NA", "007", "eve"]
    assert graph.x[1].tolist() == [3, 4]
    assert graph.class_names == ("cat", "dog")
    assert graph.y.tolist() == [0, 1, -1, 0, -1]
    assert {k: graph.node_ids.names(v).tolist() for k, v in graph.split().items()} == {
        "train": ["ann"],
        "val": ["bob"],
        "test": ["007"],
    }
    ann = graph.node_ids.row("ann")
    row = slice(graph.indptr[ann], graph.indptr[ann + 1])
    assert dict(
        zip(graph.node_ids.names(graph.indices[row]).tolist(), graph.edge_attr[row, 0].tolist(), strict=True)
    ) == {
        "bob": 1.5,
        "007": 3.0,
    }


def test_labels_in_the_feature_table_are_not_features(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "source,target\n0,1\n1,2\n")
    nodes = write(tmp_path / "n.csv", "id,f,label,split\n0,5,0,train\n1,6,1,val\n2,7,0,test\n")
    graph = read_graph(edges, features=nodes, labels=nodes)
    assert graph.x.tolist() == [[5], [6], [7]]
    assert graph.y.tolist() == [0, 1, 0]
    with pytest.warns(HopstateWarning, match="label"):
        read_graph(edges, features=write(tmp_path / "f.csv", "id,f,label\n0,5,0\n1,6,1\n2,7,0\n"))


def test_edges_without_features_use_all_ids_sorted(tables: dict[str, str]) -> None:
    graph = read_graph(tables["edges"], edge_columns=["weight"], labels=tables["labels"])
    assert graph.node_ids.ids.tolist() == ["007", "NA", "ann", "bob"]
    assert graph.x is None
    assert read_graph(tables["edges"], edge_columns=[]).edge_attr is None


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt", "parquet", "csv.gz", "semicolon", "no header", "snap", "dat"])
def test_every_edge_format_gives_the_same_graph(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"from": [10, 20, 30], "to": [20, 30, 40], "w": [0.5, 1.5, 2.5]})
    text = frame.to_csv(index=False)
    path = tmp_path / f"edges.{kind if '.' in kind or kind.isalpha() else 'csv'}"
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif kind == "semicolon":
        path.write_text(text.replace(",", ";"))
    elif kind == "no header":
        path.write_text(frame.to_csv(index=False, header=False))
    elif kind == "snap":
        path.write_text("# Directed\n# From\tTo\n" + frame.to_csv(index=False, header=False, sep="\t"))
    elif kind == "dat":
        path.write_text(frame.to_csv(index=False, header=False, sep=" ").replace(" ", "   "))
    else:
        path.write_text(text.replace(",", "\t") if kind != "csv" else "\ufeff" + text.replace("\n", "\r\n"))
    graph = read_graph(path, undirected=False)
    assert graph.node_ids.ids.tolist() == [10, 20, 30, 40]
    assert graph.edge_index().tolist() == [[0, 1, 2], [1, 2, 3]]
    assert graph.edge_attr.ravel().tolist() == [0.5, 1.5, 2.5]


def test_headers_of_strings(tmp_path: Path) -> None:
    with_header = write(tmp_path / "a.csv", "person,friend\nann,bob\nbob,eve\n")
    assert read_graph(with_header).node_ids.ids.tolist() == ["ann", "bob", "eve"]
    without = write(tmp_path / "b.csv", "ann,bob\nbob,eve\n")
    assert read_graph(without).num_nodes == 3
    lines = write(tmp_path / "c.txt", "zoe yan\nann bob\n")
    assert read_graph(lines).num_nodes == 4


def test_names_above_numbers_and_dates_leave_no_doubt(tmp_path: Path) -> None:
    def doubts(text: str) -> int:
        graph = read_graph(write(tmp_path / "a.csv", text), edge_columns=())
        return sum("--read.header" in note for note in graph.notes)

    assert doubts("wer;wen;kosten\nann;bob;1,50\nbob;eve;2,25\n") == 0
    assert doubts("wer;wen;kosten\nann;bob;\nbob;eve;2,25\n") == 0
    assert doubts("wer;wen\nann;bob\nbob;eve2\n") == 1


def test_dense_integers_need_no_vocabulary(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "source,target\n0,1\n1,2\n")
    assert read_graph(path).node_ids is None
    assert read_graph(path, num_nodes=5).num_nodes == 5
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    np.save(tmp_path / "y.npy", np.array([0, 1, 2, 0]))
    graph = read_graph(path, features=tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert (graph.num_nodes, graph.num_classes) == (4, 3)
    assert read_graph(path, labels=tmp_path / "y.npy").num_nodes == 4


def test_duplicates_and_self_loops_are_options(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "source,target\n0,1\n0,1\n1,1\n")
    assert read_graph(path).num_edges == 3
    assert read_graph(path, duplicates="keep").num_edges == 5
    assert read_graph(path, self_loops="drop").num_edges == 2


def test_an_edge_table_without_edges(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "source,target\n")
    features = write(tmp_path / "f.csv", "id,a\nonly,1\n")
    graph = read_graph(path, features=features)
    assert (graph.num_nodes, graph.num_edges) == (1, 0)
    with pytest.raises(DataError):
        read_graph(path)


def test_kinds_of_labels(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "source,target\n0,1\n1,2\n")
    for text, y, names in [
        ("id,label\n0,5\n1,7\n2,5\n", [0, 1, 0], ("5", "7")),
        ("id,label\n0,0\n1,1\n2,\n", [0, 1, -1], None),
        ("id,label\n0,-1\n1,1\n2,-1\n", [0, 1, 0], ("-1", "1")),
        ("id,label\n0,0.5\n1,1\n2,2\n", [0.5, 1, 2], None),
        ("node,colour\n0,red\n2,blue\n", [1, -1, 0], ("blue", "red")),
    ]:
        graph = read_graph(edges, labels=write(tmp_path / "l.csv", text))
        assert graph.y.tolist() == y
        assert graph.class_names == names


BROKEN = [
    ("edges", "source,target\n0,1\n,2\n", {}, DataError, r"column 'source', row 1 \(line 3\)"),
    ("edges", "source,target\n0,1\n-3,2\n", {}, DataError, r"negative id.*-3.*column 'source', row 1 \(line 3\)"),
    ("edges", "source,target\n0,1\n1.5,2\n", {}, DataError, r"1\.5.*row 1 \(line 3\)"),
    ("edges", "source,target\n0,1\n5,2\n", {"num_nodes": 4}, DataError, r"id 5 in row 1 is not in 0\.\.3"),
    ("edges", "a,b\nb,c\n", {"num_nodes": 4}, DataError, r"holds strings such as 'a'"),
    ("edges", "a,b,c\n1,2\n1,2,3,4\n", {}, FormatError, r"could not be read as a table"),
    ("edges", "one\ntwo\n", {}, DataError, r"only 1 columns \(.*\); target_column is missing"),
    ("edges", "from,to\n1,2\n", {"source_column": "fromm"}, DataError, r"no column 'fromm'.*did you mean 'from'"),
    ("edges", "from,to\n1,2\n", {"target_column": "from"}, DataError, r"source_column"),
    ("edges", "from,to,w\n1,2,3\n", {"edge_columns": ["v"]}, DataError, r"no column 'v' \(edge_columns\)"),
    (
        "edges",
        "from,to,w\n1,2,x\n2,3,4\n3,4,5\n",
        {"edge_columns": ["w"]},
        DataError,
        "w.*row 0",
    ),
    ("edges", "from,to,w\n1,2,nan\n1,3,1\n", {}, DataError, "w.*row 0"),
    ("edges", "from,to,to\n1,2,3\n", {}, FormatError, "to"),
    ("edges", "", {}, FormatError, ""),
    ("edges", "# nothing\n", {}, FormatError, ""),
    ("features", "id,a\nann,1\nann,2\n", {}, DataError, r"f\.csv.*ann"),
    ("features", "id,a\nann,1\nbob,x\n", {}, DataError, "'a'.*row 1"),
    ("features", "id,a,b\nann,1,1\nbob,,inf\n", {}, DataError, r"f\.csv.*row 1"),
    ("features", "id,a\nann,1\nbob,2\n", {}, DataError, "007.*row 2"),
    ("features", "id\nann\n", {}, DataError, ""),
    ("labels", "id,label\nann,1\nzed,2\n", {}, DataError, r"l\.csv.*zed.*row 1"),
    ("labels", "id,label\nann,\n", {}, DataError, ""),
    ("labels", "id,label\nann,1\nann,2\n", {}, DataError, r"l\.csv.*ann"),
    (
        "labels",
        "id,label,split\nann,1,trian\n",
        {},
        DataError,
        "trian.*row 0",
    ),
    ("labels", "id,label,split\nann,,train\nbob,1,val\n", {}, DataError, ""),
    ("labels", "id,label\nann,1\n", {"label_column": "lable"}, DataError, "lable"),
]


@pytest.mark.parametrize(("which", "text", "options", "error", "message"), BROKEN)
def test_broken_tables_are_named(
    tables: dict[str, str], which: str, text: str, options: dict, error: type[Exception], message: str
) -> None:
    Path(tables[which]).write_text(text)
    extra = {} if which == "edges" else {"features": tables["features"], "labels": tables["labels"], "edge_columns": []}
    with pytest.raises(error, match=message or None):
        read_graph(tables["edges"], **extra, **options)


# ---- everything else -----------------------------------------------------------------------------------
def test_objects_that_are_not_graphs_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"nowhere\.csv"):
        read_graph(tmp_path / "nowhere.csv")
    for name, content in [("a.bin", b"\x00\x01\x02\x03"), ("b.npz", b"hello there"), ("c.csv", b"")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=name or None):
            read_graph(tmp_path / name)
    with pytest.raises(FormatError) as caught:
        read_graph(tmp_path / "a.bin")
    assert all(name in str(caught.value) for name in FORMATS)
    with pytest.raises(FormatError):
        read_graph(tmp_path)
    with pytest.raises(FormatError):
        read_graph(3)


def test_options_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "0,1\n")
    for options, message in [
        ({"format": "edge"}, "edge"),
        ({"duplicates": "both"}, "duplicates"),
        ({"feature": "x"}, "feature"),
        ({"nan": "zero"}, "nan"),
    ]:
        with pytest.raises(ConfigError, match=message or None):
            read_graph(path, **options)
    with pytest.raises(ConfigError, match="labels"):
        read_graph(heterophilous(tmp_path / "h.npz"), labels="l.csv")


def test_folder_scipy_and_graph_itself(tmp_path: Path) -> None:
    graph = Graph.from_edges(EDGES, x=np.ones((4, 1)))
    graph.save(str(tmp_path / "g"))
    assert read_graph(tmp_path / "g").content_hash == graph.content_hash
    assert read_graph(graph.to_scipy()).structure_hash == graph.structure_hash
    assert read_graph(graph) is graph


def test_pyg_in_memory_and_saved(tmp_path: Path) -> None:
    graph = Graph.from_edges(EDGES, x=np.ones((4, 1)), y=np.array([0, 1, 0, 1]))
    data = graph.to_pyg()
    assert read_graph(data).content_hash == graph.content_hash
    torch.save(data, tmp_path / "d.pt")
    torch.save((data.to_dict(), None), tmp_path / "set.pt")
    for name in ("d.pt", "set.pt"):
        again = read_graph(tmp_path / name)
        assert again.content_hash == graph.content_hash
        assert again.name == name[:-3]
    data.x[2] = torch.nan
    with pytest.raises(DataError, match="row 2"):
        read_graph(data)


class Evil:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    mark = tmp_path / "owned"
    torch.save({"x": Evil(mark)}, tmp_path / "evil.pt")
    with pytest.raises(FormatError):
        read_graph(tmp_path / "evil.pt")
    root = tmp_path / "root" / "Cora"
    (root / "processed").mkdir(parents=True)
    torch.save(({"x": Evil(mark)}, None, Evil(mark)), root / "processed" / "data.pt")
    torch.save(None, root / "processed" / "pre_transform.pt")
    torch.save(None, root / "processed" / "pre_filter.pt")
    (root / "raw").mkdir()
    from torch_geometric.datasets import Planetoid

    for name in Planetoid.raw_file_names.fget(type("P", (), {"name": "cora"})()):
        (root / "raw" / name).write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(FormatError):
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path / 'root'}")
    (root / "processed" / "data.pt").unlink()
    with pytest.raises(FormatError):
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path / 'root'}")
    assert not mark.exists()


def test_pyg_data_set_that_is_on_disk(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, 0]))
    root = tmp_path / "KarateClub"
    (root / "Cora" / "raw").mkdir(parents=True)
    (root / "Cora" / "processed").mkdir()
    for name in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (root / "Cora" / "raw" / f"ind.cora.{name}").write_bytes(b"")
    torch.save((data.to_dict(), None, Data), root / "Cora" / "processed" / "data.pt")
    graph = read_graph(f"pyg:Planetoid:Cora?root={root}")
    assert (graph.num_nodes, graph.name) == (3, "cora")
    with pytest.raises(FormatError, match="Planetoid"):
        read_graph("pyg:Planetoids:Cora")
    with pytest.raises(FormatError):
        read_graph(f"pyg:Planetoid:Cora?root={root}&wrong=1")


# ---- real files ----------------------------------------------------------------------------------------
@pytest.mark.shared
@pytest.mark.parametrize(
    ("path", "nodes", "features", "classes", "stored", "splits"),
    [
        ("heterophilous/minesweeper.npz", 10_000, 7, 2, 39_402, 10),
        ("gnn-benchmark/cora.npz", 2_708, 1_433, 7, 5_429, 0),
        pytest.param(
            *("gnn-benchmark/amazon_electronics_photo.npz", 7_650, 745, 8, 143_663, 0), marks=pytest.mark.slow
        ),
        ("temporal/collegemsg/CollegeMsg.txt", 1_899, 0, 0, 59_835, 0),
    ],
)
def test_published_files(
    shared: Path, path: str, nodes: int, features: int, classes: int, stored: int, splits: int
) -> None:
    graph = read_graph(shared / "data" / path, undirected=False, duplicates="keep")
    found = (graph.num_nodes, graph.num_features, graph.num_classes, graph.num_edges, graph.num_splits)
    assert found == (nodes, features, classes, stored, splits)
    assert read_graph(shared / "data" / path).is_undirected


def test_features_follow_their_ids_if_nodes_are_numbered(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    (tmp_path / "x.csv").write_text("id,a\n2,20\n0,0\n1,10\n")
    graph = read_graph(tmp_path / "edges.csv", features=tmp_path / "x.csv", num_nodes=3)
    assert graph.x[:, 0].tolist() == [0, 10, 20]
    with pytest.raises(DataError, match="3"):
        read_graph(tmp_path / "edges.csv", features=tmp_path / "x.csv", num_nodes=4)
    with pytest.raises(DataError, match="2"):
        read_graph(tmp_path / "edges.csv", features=tmp_path / "x.csv", num_nodes=2)
