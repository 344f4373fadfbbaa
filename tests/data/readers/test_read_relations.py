"""Relations and node types are read from tables, stores and torch-geometric objects, and saved."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData, TemporalData

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.preprocessing import FeatureScaler
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.stream_checkpoint import load_stream_state, save_stream_state
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError

TYPED = {"relation_column": "what", "node_type_column": "st,tt"}


def table() -> pd.DataFrame:
    """Return events with a relation named delete, which deletes nothing."""
    return pd.DataFrame(
        {
            "source": ["a", "b", "a", "c"],
            "target": ["x", "y", "y", "x"],
            "time": [1, 2, 3, 4],
            "what": ["call", "pay", "pay", "delete"],
            "st": ["u", "u", "u", "v"],
            "tt": "m",
        }
    )


def test_a_column_that_may_hold_relations_is_named() -> None:
    named = table().rename(columns={"what": "relation_type"})
    assert any("relation_column relation_type" in note for note in read_events(named).notes)
    read = read_events(named, relation_column="relation_type")
    assert not any("relation_column" in note for note in read.notes)


def test_relations_of_a_table_are_not_deletions() -> None:
    stream = read_events(table(), **TYPED)
    assert stream.kind is None
    assert stream.edge_attr is None
    assert [stream.relation_names[r] for r in stream.relation] == ["call", "pay", "pay", "delete"]
    names = dict(zip(stream.node_ids.ids.tolist(), (stream.node_type_names[k] for k in stream.node_type), strict=True))
    assert names == {"a": "u", "b": "u", "c": "v", "x": "m", "y": "m"}


def test_numbers_of_relations_are_sorted_by_value() -> None:
    stream = read_events(table().assign(what=[10, 9, 9, 2]), relation_column="what")
    assert stream.relation_names == ("2", "9", "10")
    assert stream.relation.tolist() == [2, 1, 1, 0]


def test_written_relations_are_read_again_or_ignored(tmp_path) -> None:
    stream, name = read_events(table(), **TYPED), "folder"
    stream.save(tmp_path / name)
    again = read_events(tmp_path / name)
    assert again.content_hash == stream.content_hash
    plain = read_events(tmp_path / name, relation_column="none", node_type_column="none")
    assert plain.relation is None
    assert plain.node_type is None
    assert plain.content_hash == read_events(table()).content_hash


@pytest.mark.parametrize(
    ("change", "options", "error", "named"),
    [
        ({"what": ["call", None, "pay", "pay"]}, TYPED, DataError, "what"),
        ({"st": ["u", "u", "m", "v"]}, TYPED, DataError, "st"),
        ({}, {"relation_column": "nothing"}, DataError, "nothing"),
        ({}, {"node_type_column": "st"}, ConfigError, "node_type_column"),
        ({}, TYPED | {"edge_columns": ["what"]}, ConfigError, "what"),
    ],
)
def test_a_bad_relation_is_named(change, options, error, named) -> None:
    with pytest.raises(error, match=named):
        read_events(table().assign(**change), **options)


def test_too_many_relations_are_rejected(monkeypatch) -> None:
    monkeypatch.setattr("hopstate.data.readers.relations.MAX_RELATIONS", 2)
    with pytest.raises(DataError, match="what"):
        read_events(table(), relation_column="what")


def test_relations_of_torch_geometric() -> None:
    ends = {"src": torch.tensor([0, 1]), "dst": torch.tensor([2, 3]), "t": torch.tensor([1, 2])}
    stream = EventStream.from_pyg(TemporalData(**ends, edge_type=torch.tensor([1, 0])))
    assert stream.relation.tolist() == [1, 0]
    assert EventStream.from_pyg(stream.to_pyg()).relation.tolist() == [1, 0]
    data = HeteroData()
    data["user"].x, data["item"].x = torch.ones(3, 2), torch.ones(2, 2)
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1], [0, 1]])
    data["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    graph = read_graph(data, undirected=False)
    edges = zip(graph.edge_index().T.tolist(), (graph.relation_names[r] for r in graph.relation), strict=True)
    assert list(edges) == [([0, 1], "user-knows-user"), ([0, 3], "user-buys-item"), ([1, 4], "user-buys-item")]
    assert graph.node_type.tolist() == [0, 0, 0, 1, 1]
    assert not graph.two_sets


def test_edges_of_different_relations_are_not_equal(tmp_path) -> None:
    edges, relation = np.array([[0, 1], [0, 1], [1, 0], [0, 1]]), np.array([0, 1, 1, 0])
    graph = Graph.from_edges(edges, relation=relation)
    assert graph.indices.tolist() == [1, 1, 0, 0]
    assert graph.relation.tolist() == [0, 1, 0, 1]
    graph.save(str(tmp_path / "g"))
    assert Graph.load(str(tmp_path / "g")).relation.tolist() == [0, 1, 0, 1]
    assert graph.incoming.relation.tolist() == [0, 1, 0, 1]


@pytest.fixture
def past() -> StreamState:
    return StreamState().joined(read_events(table(), **TYPED))[1]


def later(**columns) -> EventStream:
    frame = pd.DataFrame({"source": ["a", "d"], "target": ["z", "x"], "time": [5, 6], "what": ["pay", "call"]})
    return read_events(frame.assign(st="u", tt="m", **columns), **TYPED, from_start=False)


def test_a_state_continues_relations_by_name(past: StreamState, tmp_path) -> None:
    state = save_stream_state(past, tmp_path)
    added, state = state.joined(later())
    assert [state.relation_names[r] for r in added.relation] == ["pay", "call"]
    save_stream_state(state, tmp_path)
    again = load_stream_state(tmp_path)
    assert again.relation.tolist() == state.relation.tolist() == [*past.relation, *added.relation]
    types = dict(zip(again.node_ids.ids.tolist(), again.node_type.tolist(), strict=True))
    assert again.node_type_names[types["d"]] == "u"
    assert again.node_type_names[types["z"]] == "m"


@pytest.mark.parametrize("what", [["pay", "paid"], None])
def test_a_state_rejects_unknown_relations(past: StreamState, what) -> None:
    new = later(what=what) if what else later().with_(relation=None, relation_names=())
    with pytest.raises(DataError, match="relation"):
        past.joined(new)


def test_a_deletion_ends_an_edge_of_its_relation(past: StreamState) -> None:
    frame = pd.DataFrame({"source": ["a"], "target": ["y"], "time": [5], "what": ["pay"], "op": ["delete"]})
    gone = read_events(frame, relation_column="what", from_start=False)
    _, state = past.joined(gone)
    assert np.flatnonzero(state.edge_ends == 4).tolist() == [2]
    with pytest.raises(DataError, match="event 0"):
        past.joined(read_events(frame.assign(what="call"), relation_column="what", from_start=False))
    everything = read_events(
        frame.assign(op="delete-node", target="", what=""), relation_column="what", from_start=False
    )
    added, _ = past.joined(everything)
    assert [past.relation_names[r] for r in added.relation] == ["call", "pay"]


def tables_of_nodes(folder: Path, **columns: Any) -> Path:
    folder.mkdir()
    pd.DataFrame({"id": ["a", "b", "c"], "age": [10, 20, 60]}).to_csv(folder / "user.csv", index=False)
    items = {"id": ["x", "y"], "price": [1.5, 3], "age": [3, 4], "kind": ["tea", "tea"], **columns}
    pd.DataFrame(items).to_parquet(folder / "item.parquet")
    pd.DataFrame({"id": ["z"]}).to_csv(folder / "shop.csv", index=False)
    return folder


def test_each_type_has_a_node_table(tmp_path: Path) -> None:
    edges = {"source": ["a", "b", "c", "x"], "target": ["x", "y", "z", "z"]}
    graph = read_graph(edges, features=tables_of_nodes(tmp_path / "nodes"))
    types = [graph.node_type_names[k] for k in graph.node_type]
    assert dict(zip(graph.node_ids.ids.tolist(), types, strict=True)) == {
        **dict.fromkeys("abc", "user"),
        **dict.fromkeys("xy", "item"),
        "z": "shop",
    }
    column = graph.table.columns.index
    ages = graph.table.values[:, column("user.age")]
    assert dict(zip(graph.node_ids.ids.tolist(), ages.tolist(), strict=True)) == pytest.approx(
        {"a": 10, "b": 20, "c": 60, "x": np.nan, "y": np.nan, "z": np.nan}, nan_ok=True
    )
    assert graph.x[:, column("item.age")].tolist() == [3, 4, 0, 0, 0, 0]
    assert graph.x[:, column("category item.kind=tea")].tolist() == [1, 1, 0, 0, 0, 0]


def test_a_type_is_scaled_by_its_own_nodes(tmp_path: Path) -> None:
    edges = {"source": ["a", "b", "c", "x"], "target": ["x", "y", "z", "z"]}
    graph = read_graph(edges, features=tables_of_nodes(tmp_path / "nodes"))
    columns = graph.table.columns_of(np.arange(6))
    values = graph.table.align_to(columns, "")
    scaler = FeatureScaler.fit(values, np.arange(6), kind="standard", missing="auto", columns=columns)
    x = scaler.apply(values)[:, columns.index("user.age")]
    ages = np.array([10, 20, 60])
    assert x == pytest.approx([0, 0, 0, *((ages - 30) / ages.std())], abs=1e-6)


@pytest.mark.parametrize(
    ("columns", "options", "error", "named"),
    [
        ({"id": ["x", "a"]}, {}, DataError, "'a'"),
        ({"age": ["3", "many"]}, {"columns": ["item.age=number"]}, DataError, "item.parquet"),
        ({}, {"columns": ["user.height=number"]}, DataError, "user.csv"),
        ({}, {"node_type_column": "source,target"}, ConfigError, "node_type_column"),
    ],
)
def test_a_bad_table_of_a_type_is_named(columns, options, error, named, tmp_path: Path) -> None:
    folder = tables_of_nodes(tmp_path / "nodes", **columns)
    with pytest.raises(error, match=named):
        read_graph({"source": ["a"], "target": ["x"]}, features=folder, **options)


def test_a_type_has_one_table(tmp_path: Path) -> None:
    folder = tables_of_nodes(tmp_path / "nodes")
    (folder / "user.tsv").write_text("id\tage\nd\t1\n")
    with pytest.raises(DataError, match=r"user\.tsv"):
        read_graph({"source": ["a"], "target": ["x"]}, features=folder)


def test_types_of_torch_geometric_keep_features_of_their_own_width() -> None:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.arange(6.0).reshape(3, 2), torch.ones(2, 4)
    data["paper"].y, data["paper"].train_mask = torch.tensor([0, 1, 2]), torch.tensor([True, True, False])
    data["venue"].num_nodes = 1
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    graph = read_graph(data, undirected=False)
    paper, author = (
        [graph.table.columns.index(f"{name}.{i}") for i in range(n)] for name, n in (("paper", 2), ("author", 4))
    )
    assert graph.x[:3, paper].tolist() == data["paper"].x.tolist()
    assert graph.x[3:5, author].tolist() == data["author"].x.tolist()
    assert np.isnan(graph.table.values[3:, paper]).all()
    assert np.isnan(graph.table.values[:3, author]).all()
    assert graph.y.tolist() == [0, 1, 2, -1, -1, -1]
    assert graph.masks["train"].tolist() == [True, True, False, False, False, False]
