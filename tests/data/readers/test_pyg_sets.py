"""Graph sets of torch-geometric's and OGB's classes, from tiny processed folders and a fake package."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from hopstate.data.readers.pyg import degree_profile, stratified_folds
from hopstate.data.readers.read_graph import read_graph, read_graph_set
from hopstate.datasets.registry import load_dataset
from hopstate.errors import ConfigError, DataError, DownloadError, FormatError
from hopstate.io.files import cache_folder
from hopstate.testing.conformance import F32_TIGHT

BENCHMARK = ("train_data", "val_data", "test_data")
PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def listed(count: int, **fields) -> list[Data]:
    return [Data(**{"x": torch.full((3, 1), float(i)), "edge_index": PATH, "y": torch.tensor([i % 2]), **fields})
            for i in range(count)]  # fmt: skip


def kept(folder, raw: str, parts: dict[str, list[Data]]) -> None:
    """Write a dataset as its class stores it: names of raw files, and processed files."""
    for name in raw.split():
        (folder / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "raw" / name).touch()
    (folder / "processed").mkdir()
    for name, part in parts.items():
        InMemoryDataset.save(part, str(folder / "processed" / f"{name}.pt"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path))
    return tmp_path / "pyg"


def test_long_range_benchmark_with_categorical_features(home):
    atoms = [listed(n, x=torch.tensor([[7, 5], [2, 5], [n, 5]]), y=torch.tensor([[1.0, 0.0]])) for n in (3, 2, 1)]
    files = dict(zip(("train", "val", "test"), atoms))
    kept(home / "LRGBDataset" / "peptides-func", "train.pt val.pt test.pt", files)
    graphs = load_dataset("peptides-func")
    assert graphs.num_graphs == 6
    assert [len(graphs.split()[name]) for name in ("train", "val", "test")] == [3, 2, 1]
    assert graphs.num_features == 4 + 1  # one column for each of 1, 2, 3 and 7, and one that never varies
    assert graphs.y.shape == (6, 2)


def test_benchmark_with_positions_and_node_labels(home):
    images = [listed(n, pos=torch.rand(3, 2)) for n in (3, 2, 1)]
    kept(home / "GNNBenchmarkDataset" / "MNIST", "MNIST_v2.pt", dict(zip(BENCHMARK, images)))
    assert read_graph_set("pyg:GNNBenchmarkDataset:MNIST").num_features == 3
    nodes = [listed(n, y=torch.tensor([0, 1, 1])) for n in (3, 2, 1)]
    kept(home / "GNNBenchmarkDataset" / "PATTERN", "PATTERN_v2.pt", dict(zip(BENCHMARK, nodes)))
    graphs = load_dataset("pattern")
    assert graphs.union.y.tolist() == [0, 1, 1] * 6
    assert graphs.y is None


def test_malnet_gets_degree_profiles(home):
    bare = [Data(edge_index=PATH, num_nodes=3, y=i % 2) for i in range(6)]
    kept(home / "MalNetTiny", "malnet-graphs-tiny split_info_tiny/type", {"data": bare})
    torch.save([0, 3, 5, 6], home / "MalNetTiny" / "processed" / "split_slices.pt")
    graphs = load_dataset("malnet-tiny")
    assert graphs.split()["val"].tolist() == [3, 4]
    np.testing.assert_allclose(graphs.union.x[1], np.log1p([2, 1, 1, 1, 0]), rtol=F32_TIGHT)  # the middle of a path
    np.testing.assert_allclose(graphs.union.x[0], np.log1p([1, 2, 2, 2, 0]), rtol=F32_TIGHT)


def test_graph_sets_without_a_split_get_stratified_folds(home):
    kept(home / "TUDataset" / "MUTAG", "MUTAG_A.txt MUTAG_graph_indicator.txt", {})
    data, slices = InMemoryDataset.collate(listed(40))
    sizes = dict.fromkeys(("num_node_labels", "num_node_attributes", "num_edge_labels", "num_edge_attributes"), 0)
    torch.save((data.to_dict(), slices, sizes, Data), home / "TUDataset" / "MUTAG" / "processed" / "data.pt")
    graphs = load_dataset("mutag")
    assert graphs.num_splits == 10
    test = graphs.masks["test"]
    assert (test.sum(0) == 1).all()
    assert (graphs.y[test[3]] == 1).sum() == 2
    again = stratified_folds(graphs.y)
    np.testing.assert_array_equal(again["val"], graphs.masks["val"])


def test_heterophilous_class_is_one_graph(home):
    data = listed(1, x=torch.rand(3, 7), y=torch.tensor([0, 1, 0]), train_mask=torch.ones(3, 10, dtype=torch.bool))
    kept(home / "HeterophilousGraphDataset" / "minesweeper", "minesweeper.npz", {"data": data})
    graph = read_graph("pyg:HeterophilousGraphDataset:Minesweeper")
    assert graph.masks["train"].shape == (10, 3)
    assert graph.num_features == 7


def test_missing_parts_and_unsupported_tasks_are_named(home, monkeypatch):
    with pytest.raises(DataError):
        read_graph_set("pyg:LRGBDataset:PCQM-Contact")
    with pytest.raises(FormatError):
        read_graph_set("pyg:LRGB:x")
    broken = dict.fromkeys(BENCHMARK, listed(2, edge_index=torch.empty(0)))
    kept(home / "GNNBenchmarkDataset" / "MNIST", "MNIST_v2.pt", broken)
    with pytest.raises(DataError, match="graph 0"):
        read_graph_set("pyg:GNNBenchmarkDataset:MNIST")
    from torch_geometric import datasets

    def refused(self) -> None:
        raise OSError("no network")

    monkeypatch.setattr(datasets.LRGBDataset, "download", refused)
    with pytest.raises(DownloadError):
        load_dataset("peptides-struct")


def test_a_degree_profile_of_an_isolated_node_is_finite():
    assert degree_profile(np.empty((2, 0), np.int64), 2).tolist() == [[0] * 5] * 2


class Nodes:
    def __init__(self, name: str, root: str) -> None:
        if "missing" in name:
            raise OSError("no network")
        assert decide_download("any") is True
        y = torch.tensor([[0.0], [float("nan")], [1.0]]) if "many" not in name else torch.zeros(3, 4)
        self.data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), y=y, num_nodes=3)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> Data:
        return self.data

    def get_idx_split(self):
        return {"train": torch.tensor([0]), "valid": torch.tensor([1]), "test": torch.tensor([2])}


class Graphs(Nodes):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Data:
        return listed(3)[i]


def decide_download(url: str) -> bool:
    raise AssertionError("the user was prompted")


@pytest.fixture
def ogb(home, monkeypatch):
    for name, key, kind in (("nodeproppred", "PygNodePropPredDataset", Nodes),
                            ("graphproppred", "PygGraphPropPredDataset", Graphs)):  # fmt: skip
        module = ModuleType(f"ogb.{name}")
        setattr(module, key, kind)
        monkeypatch.setitem(sys.modules, f"ogb.{name}", module)
    monkeypatch.setitem(sys.modules, "ogb", ModuleType("ogb"))


def test_ogb_gives_graphs_with_official_splits(ogb):
    graph = load_dataset("ogbn-arxiv")
    assert graph.y.tolist() == [0, -1, 1]
    assert graph.num_edges == 4  # both directions
    assert np.flatnonzero(graph.masks["val"]).tolist() == [1]
    assert read_graph("ogb:ogbn-arxiv", undirected=False).num_edges == 2
    graphs = read_graph_set("ogb:ogbg-molhiv")
    assert graphs.split()["test"].tolist() == [2]
    assert graphs.y.tolist() == [0, 1, 0]


def test_ogb_errors_are_named(ogb, home, monkeypatch):
    with pytest.raises(ConfigError):
        read_graph_set("ogb:ogbn-arxiv")
    with pytest.raises(ConfigError):
        read_graph("ogb:ogbl-ppa")
    assert read_graph("ogb:ogbn-many").y.shape == (3, 4)  # several labels a node
    with pytest.raises(DownloadError):
        read_graph("ogb:ogbn-missing")
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(ConfigError, match="ogb"):
        load_dataset("ogbn-products")


class Runs:
    """Executes code when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


class OnDisk(Nodes):
    """Splits in a file that is loaded like the package does, with arbitrary content."""

    def get_idx_split(self):
        return torch.load(cache_folder() / "ogb" / "split_dict.pt", weights_only=False)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Runs(), ""),
        ({"train": [0], "valid": [1], "test": [7]}, "test"),
        ({"train": [0], "valid": [1], "test": [0]}, ""),
        ({"train": [0.5], "valid": [1], "test": [2]}, "train"),
        ({"train": [0], "elsewhere": [1]}, "elsewhere"),
        ([3], "ogbn-arxiv"),
    ],
)
def test_an_ogb_split_has_tensors_and_contains_each_node_once(ogb, home, monkeypatch, split, message):
    monkeypatch.chdir(home.parent)
    monkeypatch.setattr(sys.modules["ogb.nodeproppred"], "PygNodePropPredDataset", OnDisk)
    (cache_folder() / "ogb").mkdir(parents=True, exist_ok=True)
    torch.save({k: torch.tensor(v) for k, v in split.items()} if isinstance(split, dict) else split,
               cache_folder() / "ogb" / "split_dict.pt")  # fmt: skip
    with pytest.raises(FormatError, match=message or None):
        read_graph("ogb:ogbn-arxiv")
    assert not (home.parent / "ran").exists()
