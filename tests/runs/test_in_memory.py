"""The Python interface: tables, arrays and torch-geometric objects in fit, and runs without their data."""

import copy
import gc
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch_geometric.data import TemporalData

import hopstate
from hopstate.errors import ConfigError, DataError
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.training.checkpoint import load_checkpoint
from made_tables import N, tables

LOOP = {"epochs": 1, "progress": False}


def events(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(0, 5000, 160)) + 0.25
    return pd.DataFrame({"user": rng.integers(0, 9, 160), "item": rng.integers(20, 30, 160), "timestamp": t})


def weights(run: hopstate.Run) -> dict[str, torch.Tensor]:
    return load_checkpoint(Path(run.path) / "model.safetensors").tensors["model"]


def same_runs(one: hopstate.Run, two: hopstate.Run) -> None:
    a, b = weights(one), weights(two)
    assert a.keys() == b.keys()
    torch.testing.assert_close(a, b, rtol=F32, atol=F32_TIGHT)
    assert one.metrics["test"] == pytest.approx(two.metrics["test"])
    near(one.predict(), two.predict())


def near(one: pd.DataFrame, two: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, two, rtol=F32, atol=F32_TIGHT)


def test_tables_train_like_their_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edges, features, labels = tables()
    for name, table in (("e", edges), ("f", features), ("l", labels)):
        table.to_csv(f"{name}.csv", index=False)
    filed = hopstate.fit("sage", "e.csv", features="f.csv", labels="l.csv", loop=LOOP, out="filed")
    given = hopstate.fit(
        "sage", edges, features=features.set_index("id"), labels=pa.table(labels), loop=LOOP, out="given"
    )
    same_runs(given, filed)


@pytest.mark.parametrize("method", ["recency", pytest.param("dyg-mamba", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_table_of_events_trains_like_its_file(tmp_path, monkeypatch, method):
    monkeypatch.chdir(tmp_path)
    table = events()
    table.to_csv("events.csv", index=False)
    filed = hopstate.fit(method, "events.csv", loop=LOOP, out="filed")
    given = hopstate.fit(method, pa.Table.from_pandas(table), loop=LOOP, out="given")
    if method != "recency":
        same_runs(given, filed)
    pairs = [(1, 25), (2, 26)]
    near(given.score(pairs, 6000), filed.score(pairs, 6000))
    later = pd.DataFrame({"user": [1, 2], "item": [21, 22], "timestamp": [6000.0, 6001.0]})
    near(given.predict(later), filed.predict(pa.Table.from_pandas(later)))


def test_a_run_of_tables_can_be_applied_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edges, features, labels = tables()
    run = hopstate.fit("sage", edges, features=features, labels=labels, loop=LOOP, out="run")
    expected = run.predict()
    shutil.move("run", "moved")
    del run
    moved = hopstate.load("moved")
    near(moved.predict(), expected)
    assert moved.evaluate() == pytest.approx(moved.metrics["test"])
    new = moved.predict(edges, read={"features": features, "labels": labels})
    near(new, expected)
    again = hopstate.fit(
        "sage", edges, features=features, labels=labels, loop=LOOP | {"epochs": 2}, out="moved", resume=True
    )
    assert again.metrics


@pytest.mark.slow
def test_data_that_are_not_saved_are_available_during_the_session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = hopstate.read_graph(tables()[0], features=tables()[1], labels=tables()[2])
    run = hopstate.fit("sage", graph, loop=LOOP, out="run", keep_data=False)
    expected = run.predict()
    del graph, run
    gc.collect()
    with pytest.raises(ConfigError, match="table"):
        hopstate.load("run").predict()
    kept = hopstate.fit("sage", *tables()[:1], features=tables()[1], labels=tables()[2], loop=LOOP, out="kept")
    near(kept.predict(), expected)


def test_torch_geometric_data_train_like_graphs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = hopstate.read_graph(tables()[0], features=tables()[1], labels=tables()[2])
    data = graph.to_pyg()
    run = hopstate.fit("sage", data, loop=LOOP, out="data")
    near(hopstate.load("data").predict(hopstate.Graph.from_pyg(data)), run.predict())
    table = events()
    stream = TemporalData(*(torch.from_numpy(table[name].to_numpy()) for name in ("user", "item", "timestamp")))
    stream.msg = torch.zeros(len(table), 0)
    found = hopstate.fit("recency", stream, out="temporal")
    assert len(hopstate.load("temporal").predict()) == len(table)
    assert found.metrics["test"]
    with pytest.raises(ConfigError, match="Data"):
        hopstate.fit("recency", data, out="wrong")
    with pytest.raises(ConfigError, match="TemporalData"):
        hopstate.fit("sage", stream, out="wrong")
    with pytest.raises(ConfigError, match="Graph"):
        hopstate.fit("recency", graph, out="wrong")


@pytest.mark.slow
def test_feature_arrays_are_rows_of_nodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    edges = pd.DataFrame({"source": rng.integers(0, N, 99), "target": rng.integers(0, N, 99)})
    x, y = rng.normal(size=(N, 3)).astype(np.float32), np.arange(N) % 2
    run = hopstate.fit("sage", edges, features=torch.from_numpy(x), labels=y, loop=LOOP, out="run")
    np.save("x.npy", x)
    np.save("y.npy", y)
    edges.to_csv("e.csv", index=False)
    same_runs(run, hopstate.fit("sage", "e.csv", features="x.npy", labels="y.npy", loop=LOOP, out="filed"))


@pytest.mark.parametrize(
    "method", ["gcn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nagphormer", "gmn"))]
)
def test_the_model_and_its_embeddings_agree_with_predict(trained, method):
    run = trained(method)
    model, table = run.model, run.predict()
    assert isinstance(model, torch.nn.Module)
    logits = model()
    assert np.array_equal(model.ids, table["node"])
    names = [name.removeprefix("p_") for name in table if name.startswith("p_")]  # in the order of outputs
    assert [names[k] for k in logits.argmax(1).tolist()] == table["prediction"].tolist()
    assert torch.allclose(model(["n7", "n3"]), logits[model.rows(["n7", "n3"])], atol=F32_TIGHT)
    vectors = run.embeddings()
    made = model.network.head(torch.from_numpy(vectors.drop(columns="node").to_numpy(copy=True)))
    assert vectors["node"].tolist() == table["node"].tolist()
    assert torch.allclose(made, logits, atol=F32)
    with pytest.raises(DataError, match="n99"):
        model(["n99"])


@pytest.mark.parametrize("method", ["gcn", "ctdg-ssm", "dyg-mamba", "pair-trees"])
def test_copies_of_a_model_are_equal_and_independent(trained, method):
    """Copies before and after a call are equal; no call and no flag changes its outputs or its state."""
    model, inputs = trained(method).model, () if method == "gcn" else (["u1"], ["v2"], 6000)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    copies = [copy.deepcopy(model)]
    expected = model(*inputs)
    assert not model.training
    model.train()
    assert not any(part.training for part in model.modules())
    copies += [copy.deepcopy(model), model.to("cpu")]
    for made in copies:
        assert torch.equal(made(*inputs), expected)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_the_model_of_a_stream_agrees_with_score(trained):
    run = trained("ctdg-ssm")
    expected = run.score([("u1", "v2"), ("u2", "v6")], 6000)["score"]
    found = run.model(["u1", "u2"], ["v2", "v6"], 6000)
    np.testing.assert_allclose(found, expected, rtol=F32, atol=F32_TIGHT)
    assert len(run.embeddings(["u1", "u2"])) == 2
    run = trained("dyg-mamba")
    with pytest.raises(ConfigError):
        run.embeddings()
