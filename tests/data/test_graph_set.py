"""Graph sets: invariants, torch-geometric, TU text files."""

import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.readers.tu import read_tu
from hopstate.errors import DataError, FormatError, MissingFileError
from hopstate.testing.conformance import F32_TIGHT

TEXT = "2\n3 1\n0 1 1\n2 2 0 2\n0 1 1\n2 -1\n5 1 1\n5 1 0\n"


def write(folder, text):
    (folder / "TOY.txt").write_text(text)
    return folder / "TOY.txt"


def test_tu_text_becomes_packed_graphs(tmp_path):
    graphs = read_tu(write(tmp_path, TEXT))
    assert (graphs.num_graphs, graphs.num_nodes, graphs.union.num_edges) == (2, 5, 6)
    assert graphs.offsets.tolist() == [0, 3, 5]
    assert graphs.y.tolist() == [1, 0]
    assert graphs.class_names == ("-1", "1")
    assert graphs.union.x.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]
    assert sorted(map(tuple, graphs.union.edge_index().T.tolist())) == [(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)]
    rows, bounds = graphs.rows(np.array([1, 0]))
    assert rows.tolist() == [3, 4, 0, 1, 2]
    assert bounds.tolist() == [0, 2, 5]
    assert graphs.union.indices[graphs.edges(np.array([1]))].tolist() == [4, 3]


def test_tu_attributes_follow_the_neighbours(tmp_path):
    graphs = read_tu(write(tmp_path, "1\n2 0\n7 1 1 0.5 -2\n7 1 0 1.5 3\n"))
    assert graphs.union.x.tolist() == [[1, 0.5, -2], [1, 1.5, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT[:-6], ""),
        (TEXT.replace("2 2 0 2", "2 2 0 9"), "line 4"),
        (TEXT.replace("5 1 1", "5 x 1"), "line 7"),
        (TEXT.replace("2 -1", "0 -1"), "line 6"),
        ("1\n2 0\n7 1 1 0.5\n7 1 0\n", ""),
    ],
)
def test_broken_tu_files_are_named(tmp_path, text, message):
    with pytest.raises(FormatError, match=message or None):
        read_tu(write(tmp_path, text))


def test_folds_are_read_and_validation_is_held_out(tmp_path):
    path = write(tmp_path, "10\n" + "1 0\n0 0\n" * 10)
    (tmp_path / "10fold").mkdir()
    for k in range(1, 11):
        (tmp_path / "10fold" / f"TOY-train_idx-{k}.txt").write_text(str(k % 10))
        (tmp_path / "10fold" / f"TOY-test_idx-{k}.txt").write_text(str(k - 1))
    graphs = read_tu(path)
    assert graphs.num_splits == 10
    assert graphs.split(1)["train"].tolist() == [2]
    (tmp_path / "10fold" / "TOY-test_idx-3.txt").unlink()
    with pytest.raises(MissingFileError, match="3"):
        read_tu(path)
    masks = folds([np.arange(90)], [np.arange(90, 100)], 100)
    assert masks["val"].sum() == 10
    assert (sum(m.astype(int) for m in masks.values()) == 1).all()


def test_invariants_of_graph_sets_are_checked():
    union = Graph.from_edges(np.array([[0, 1], [2, 3]]), 4, x=np.ones((4, 1), np.float32))
    with pytest.raises(DataError):
        GraphSet(union=union, offsets=np.array([0, 2, 2, 4]))
    with pytest.raises(DataError):
        GraphSet(union=union, offsets=np.array([0, 1, 4]))
    with pytest.raises(DataError):
        GraphSet(union=union, offsets=np.array([0, 2]))
    with pytest.raises(DataError, match="labels"):
        GraphSet(union=union, offsets=np.array([0, 2, 4]), y=np.zeros(3, np.int64))


@pytest.mark.parametrize("level", ["graph", "node", "edge"])
def test_from_torch_geometric(level):
    from torch_geometric.data import Data

    rng, listed = np.random.default_rng(0), []
    for n in (3, 2):
        edges = torch.tensor([[1, 0, 1], [0, 1, 2 % n]])
        y = {"graph": torch.tensor([n]), "node": torch.arange(n), "edge": torch.arange(3)}[level]
        attr = torch.from_numpy(rng.normal(size=(3, 2)))
        listed.append(Data(x=torch.full((n, 1), n), edge_index=edges, edge_attr=attr, y=y))
    graphs = GraphSet.from_pyg(listed, level=level)
    assert graphs.offsets.tolist() == [0, 3, 5]
    assert graphs.union.x.tolist() == [[3], [3], [3], [2], [2]]
    if level == "graph":
        assert graphs.y.tolist() == [3, 2]
    elif level == "node":
        assert graphs.union.y.tolist() == [0, 1, 2, 0, 1]
    else:  # stored edges are sorted by source, and so are their labels and features
        pairs = list(zip(*graphs.union.edge_index().tolist(), graphs.edge_y.tolist()))
        assert pairs[:3] == [(0, 1, 1), (1, 0, 0), (1, 2, 2)]
        np.testing.assert_allclose(graphs.union.edge_attr[0], listed[0].edge_attr[1], rtol=F32_TIGHT)


def test_an_empty_graph_is_rejected_and_one_without_edges_is_accepted():
    from torch_geometric.data import Data

    none = torch.empty((2, 0), dtype=torch.int64)
    isolated = Data(x=torch.ones(1, 1), edge_index=none, y=torch.tensor([0]))
    empty = Data(x=torch.ones(0, 1), edge_index=none, y=torch.tensor([0]))
    assert GraphSet.from_pyg([isolated, isolated]).union.num_edges == 0
    with pytest.raises(DataError, match="1"):
        GraphSet.from_pyg([isolated, empty, isolated])


@pytest.mark.shared
@pytest.mark.parametrize(("name", "count", "features"), [("MUTAG", 188, 7), ("PROTEINS", 1113, 3)])
def test_real_files(shared, name, count, features):
    graphs = read_tu(shared / "data" / "tu" / f"{name}.txt")
    assert (graphs.num_graphs, graphs.num_features, graphs.num_splits) == (count, features, 10)
    test_graphs = np.concatenate([graphs.split(k)["test"] for k in range(10)])
    assert len(set(test_graphs)) == len(test_graphs) == count // 10 * 10
    for k in range(10):
        assert sum(len(rows) for rows in graphs.split(k).values()) == count
