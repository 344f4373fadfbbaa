"""Node tables of event streams: one per type, from files and objects, in stores and in runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData, TemporalData

import hopstate
from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, DataError
from made_events import LOOP, RANDOM

USERS, ITEMS, EVENTS = 12, 8, 200


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a table of events with relations, and a folder with a table of users and one of items."""
    rng = np.random.default_rng(0)
    users, items = [f"u{i}" for i in range(USERS)][::-1], [f"i{i}" for i in range(ITEMS)]
    (tmp_path / "nodes").mkdir()
    age = rng.integers(20, 70, USERS).astype(float)
    age[3] = np.nan
    pd.DataFrame({"id": users, "age": age}).to_csv(tmp_path / "nodes/user.csv", index=False)
    item = pd.DataFrame({"id": items, "price": rng.random(ITEMS), "kind": rng.choice(["a", "b"], ITEMS)})
    item.to_parquet(tmp_path / "nodes/item.parquet", index=False)
    ends = {"source": rng.choice(users[:-1], EVENTS), "target": rng.choice(items, EVENTS)}
    events = pd.DataFrame(ends | {"time": np.arange(EVENTS), "what": rng.choice(["buy", "look"], EVENTS)})
    events.to_csv(tmp_path / "events.csv", index=False)
    return tmp_path / "events.csv", tmp_path / "nodes"


def read(files: tuple[Path, Path], **options: Any) -> EventStream:
    return read_events(files[0], features=files[1], relation_column="what", missing="mean", **options)


def test_each_node_type_has_its_own_columns(files: tuple[Path, Path]) -> None:
    stream, plain = read(files), read_events(files[0], relation_column="what")
    assert stream.node_type_names == ("item", "user")
    assert stream.num_nodes == USERS + ITEMS  # also those without events
    assert np.array_equal(stream.node_ids.names(stream.src), plain.node_ids.names(plain.src))
    assert np.array_equal(stream.node_ids.names(stream.dst), plain.node_ids.names(plain.dst))
    column = stream.table.columns.index("user.age")
    known = pd.read_csv(files[1] / "user.csv").set_index("id")["age"]
    for node in ("u0", "u8", "u11", "i3"):
        found = stream.table.values[stream.node_ids.row(node), column]
        assert found == pytest.approx(known.get(node, np.nan), nan_ok=True)
    assert np.isnan(stream.table.values[stream.node_type == 0, column]).all()


def test_stores_keep_tables_of_nodes(files: tuple[Path, Path], tmp_path: Path) -> None:
    stream = read(files)
    stream.save(tmp_path / "store")
    stored = read_events(tmp_path / "store")
    assert stored.content_hash == stream.content_hash != stream.with_(x=stream.x).content_hash
    assert stored.table.columns == stream.table.columns
    read_events(files[0], relation_column="what").save(tmp_path / "plain")
    again = read_events(tmp_path / "plain", features=files[1], missing="mean")
    assert np.array_equal(again.src, stream.src)
    assert np.array_equal(again.x, stream.x)


def test_one_node_table_without_types(files: tuple[Path, Path]) -> None:
    nodes = pd.concat([pd.read_csv(files[1] / "user.csv"), pd.read_parquet(files[1] / "item.parquet")[["id"]]])
    types = {"node_type_column": "from,to"}
    events = pd.read_csv(files[0]).assign(**{"from": "user", "to": "item"})
    stream = read_events(events, features=nodes, missing="mean", **types)
    assert stream.table.columns == ("age",)
    item, user = (stream.node_type_names.index(name) for name in ("item", "user"))
    assert (stream.node_type[stream.src] == user).all()
    assert (stream.node_type[stream.dst] == item).all()
    with pytest.raises(ConfigError, match="node_type_column"):
        read_events(events, features=files[1], missing="mean", **types)


def test_a_node_without_a_row_is_named(files: tuple[Path, Path]) -> None:
    events = pd.read_csv(files[0])
    events.loc[5, "target"] = "i99"
    with pytest.raises(DataError, match=r"nodes: got 'i99'"):
        read_events(events, features=files[1], missing="mean")
    with pytest.raises(DataError, match="wage"):
        read(files, columns=["user.wage=number"])


@pytest.mark.parametrize("method", ["graphmixer", "ctdg-ssm"])
def test_new_nodes_have_zero_features(method: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {"read.features": str(files[1]), "read.relation_column": "what", **LOOP, **RANDOM}
    run = hopstate.fit(method, files[0], out=tmp_path / "run", **settings)
    later = pd.DataFrame({"source": ["new", "u0"], "target": ["i1", "i2"], "time": [300, 301], "what": "buy"})
    scores, other = (
        run.stream(later.replace("new", name), ignore_state=True)["score"].to_numpy() for name in ("first", "second")
    )
    assert np.isfinite(scores).all()
    assert np.array_equal(scores, other) or method == "ctdg-ssm"  # its nodes have random vectors


def test_a_run_of_tables_in_memory_is_loaded_and_serves_live(files: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")
    from hopstate.serving.live import LiveRun

    nodes = pd.concat([pd.read_csv(files[1] / "user.csv"), pd.read_parquet(files[1] / "item.parquet")])
    settings = {"read.relation_column": "what", **LOOP, **RANDOM}
    events = pd.read_csv(files[0])
    run = hopstate.fit("graphmixer", events, features=nodes, out=tmp_path / "run", config=settings)
    later = pd.DataFrame({"source": ["new", "u0"], "target": ["i1", "i2"], "time": [300, 301], "what": "buy"})
    expected = hopstate.load(run.path).stream(later, ignore_state=True)["score"].to_numpy()
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        live.take(later.to_dict("records"))
        assert live.past.num_nodes == USERS + ITEMS + 1
        assert len(live.past.x) == USERS + ITEMS
    assert np.isfinite(expected).all()


def test_hetero_data_with_times() -> None:
    data, x = HeteroData(), torch.randn(4, 2)
    data["user"].num_nodes, data["item"].x = 5, x
    for name, ends, times in (("buys", [[0, 1, 2], [0, 3, 1]], [3, 1, 2]), ("likes", [[4, 1], [2, 3]], [0, 9])):
        data["user", name, "item"].edge_index = torch.tensor(ends)
        data["user", name, "item"].time = torch.tensor(times)
    stream = EventStream.from_pyg(data, warn=False)
    assert stream.src.tolist() == [4, 1, 2, 0, 1]
    assert stream.dst.tolist() == [7, 8, 6, 5, 8]
    assert [stream.relation_names[r] for r in stream.relation[:2]] == ["user-likes-item", "user-buys-item"]
    assert np.array_equal(stream.x[5:], x)
    del data["user", "likes", "item"].time
    with pytest.raises(DataError, match=r"likes.*time"):
        read_events(data)


def test_temporal_data_has_features_of_nodes() -> None:
    ends, x = torch.tensor([0, 1]), torch.randn(6, 2)
    data = TemporalData(src=ends, dst=ends + 2, t=ends, x=x)
    assert np.array_equal(read_events(data).x, x)


def test_a_number_of_nodes_agrees_with_the_table() -> None:
    events = pd.DataFrame({"source": [0, 1], "target": [2, 2], "time": [1, 2]})
    features = pd.DataFrame({"id": [0, 1, 2], "age": [30.0, 40.0, 50.0]})
    assert read_events(events, features=features, num_nodes=3).num_nodes == 3
    with pytest.raises(ConfigError, match="num_nodes"):
        read_events(events, features=features, num_nodes=5)
