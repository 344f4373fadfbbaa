"""Edge features of tables: scaled and imputed from training edges, matched by name; weights are unchanged."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.methods.shared.node import raw_column
from hopstate.runs.data import load_data, preprocess
from hopstate.runs.run import Run
from hopstate.testing.conformance import F32_SUM, F32_TIGHT, F64
from hopstate.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("empty_folder")

N = 60
SMALL = {"loop": {"epochs": 3, "progress": False, "device": "cpu"}}
MODEL = {"gat": {"dim": 16, "num_layers": 2}, "gmn": {"dim": 8, "mpnn_layers": 1}}


def frame(seed: int = 0) -> pd.DataFrame:
    """Return edges with an hour and an amount of about two million."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, N, (4 * N, 2)), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    edges = pd.DataFrame(pairs, columns=["source", "target"])
    edges["hour"] = rng.integers(0, 24, len(edges))
    edges["amount"] = 2e6 + 100 * rng.normal(size=len(edges))
    return edges


def nodes() -> dict[str, str]:
    """Write features and labels of nodes, the first half for training; return the read options."""
    rng = np.random.default_rng(1)
    pd.DataFrame({"id": np.arange(N), "a": rng.normal(size=N), "b": rng.normal(size=N)}).to_csv("f.csv", index=False)
    split = np.where(np.arange(N) < N // 2, "train", np.where(np.arange(N) % 2, "val", "test"))
    label = np.array(["x", "y"])[np.arange(N) % 2]
    pd.DataFrame({"id": np.arange(N), "label": label, "split": split}).to_csv("l.csv", index=False)
    return {"features": "f.csv", "labels": "l.csv"}


def fit(edges: pd.DataFrame, out: str, method: str = "gat", **read: object) -> Run:
    edges.to_csv(f"{out}.csv", index=False)
    more = {"batch_size": 1000, "walks.max_length": 1, "walks.repeats": 1, "walks.walks": 1} if method == "gmn" else {}
    config = {**SMALL, "model": MODEL.get(method, MODEL["gat"]), **more}
    return hopstate.fit(method, f"{out}.csv", out=out, read={**nodes(), **read}, config=config)


def chances(run: Run, data: str | None = None, **read: object) -> np.ndarray:
    files = {"features": "f.csv", **read} if data else None
    table = run.predict(data, read=files)
    return table[[name for name in table.columns if name.startswith("p_")]].to_numpy()


def made_ready(edges: pd.DataFrame, method: str = "gat", **settings: object) -> tuple[Graph, dict]:
    """Return a graph as a method receives it, and the data record of its run."""
    edges.to_csv("e.csv", index=False)
    known = get_method(method)
    from hopstate.methods.config import config_from

    reading = {f"read.{key}": value for key, value in nodes().items()}
    config = config_from(known, {"data": "e.csv", **reading, **settings})
    record = load_data(config.data, config.read, "graph")
    context = Context(run=Path("none"), cache=Path("cache"))
    return preprocess(record, config, context, edges=known.reads_edges(config))


@pytest.mark.parametrize("method", ["gat", pytest.param("gmn", marks=pytest.mark.slow)])
def test_the_unit_of_an_edge_feature_does_not_matter(method: str) -> None:
    edges = frame()
    other = edges.assign(amount=edges.amount / 1024 + 3, hour=edges.hour * 64)
    first, second = fit(edges, "one", method), fit(other, "two", method)
    np.testing.assert_allclose(chances(first), chances(second), atol=F32_SUM)
    assert chances(first).std() > 1e-3


@pytest.mark.parametrize("scale", ["standard", "robust"])
def test_scales_come_from_edges_at_training_nodes(scale: str) -> None:
    edges = frame()
    graph, kept = made_ready(edges, **{"read.scale": scale})
    at = (edges.source < N // 2) | (edges.target < N // 2)
    assert 0 < (~at).sum() < len(edges)
    assert kept["edge_attr"]["columns"] == ["hour", "amount"]
    assert graph.edge_attr is not None
    middle = edges[at].mean() if scale == "standard" else edges[at].median()
    np.testing.assert_allclose(kept["edge_attr"]["shift"], middle[["hour", "amount"]], rtol=F64)
    changed = edges.copy()
    changed.loc[~at, "amount"] = 9e9
    assert made_ready(changed, **{"read.scale": scale})[1] == kept
    assert np.abs(graph.edge_attr).max() < 10
    assert made_ready(edges, **{"read.scale": "none"})[0].edge_attr.max() > 1e6  # type: ignore[union-attr]


def test_columns_are_matched_by_name_when_a_run_is_applied() -> None:
    edges = frame()
    run = fit(edges, "one")
    edges[["amount", "target", "hour", "source"]].to_csv("turned.csv", index=False)
    np.testing.assert_allclose(chances(run), chances(run, "turned.csv"), atol=F32_TIGHT)
    edges.rename(columns={"hour": "hours"}).to_csv("other.csv", index=False)
    with pytest.raises(DataError, match="hour"):
        run.predict("other.csv", read={"features": "f.csv"})
    edges.drop(columns="hour").to_csv("less.csv", index=False)
    with pytest.raises(DataError, match="hour"):
        run.predict("less.csv", read={"features": "f.csv"})


@pytest.mark.slow
def test_missing_edge_features_are_imputed_as_requested_and_marked() -> None:
    edges = frame()
    edges["hour"] = edges.hour.astype(float)
    edges.loc[3, "hour"] = np.nan
    edges.to_csv("e.csv", index=False)
    with pytest.raises(DataError, match="hour"):
        made_ready(edges)
    graph, kept = made_ready(edges, **{"read.missing": "median"})
    at = (edges.source < N // 2) | (edges.target < N // 2)
    assert kept["edge_attr"]["fill"][0] == edges[at].hour.median()
    assert graph.edge_attr is not None
    assert graph.edge_attr.shape[1] == 3
    assert graph.edge_attr[:, 2].sum() == 2  # both directions
    run = fit(edges, "one", missing="median")
    full = frame()
    full.to_csv("full.csv", index=False)
    assert np.isfinite(chances(run, "full.csv")).all()
    plain = fit(full, "two")
    with pytest.raises(DataError, match="hour"):
        plain.predict("one.csv", read={"features": "f.csv"})


def test_edge_weights_of_a_table_are_not_scaled() -> None:
    edges = frame()[["source", "target", "hour"]]
    graph, kept = made_ready(edges, "gcn")
    assert "edge_attr" not in kept
    assert set(np.unique(graph.edge_attr)) == set(edges.hour)
    both = frame()
    graph, kept = made_ready(both, "gmn")
    assert raw_column(graph, 1).min() > 1e6
    assert "edge_attr" in kept
    both.loc[2, "amount"] = np.nan
    with pytest.raises(DataError, match="amount"):
        fit(both[["source", "target", "amount"]], "gaps", "gcn", missing="mean")


@pytest.mark.slow
def test_a_later_file_is_read_for_the_edge_columns_of_the_run() -> None:
    edges = frame().rename(columns={"amount": "Betrag"}).drop(columns="hour")
    german = edges.assign(Betrag=edges["Betrag"].map("{:.2f}".format).str.replace(".", ","))
    run = fit(german, "german", "nagphormer", columns=("Betrag=number:comma",))
    german.assign(hour=1.0, note="x").to_csv("later.csv", index=False)
    np.testing.assert_allclose(chances(run, "later.csv"), chances(run), atol=F32_TIGHT)
    german.drop(columns="Betrag").to_csv("without.csv", index=False)
    with pytest.raises(DataError, match="Betrag"):
        chances(run, "without.csv")
    dropped = fit(german, "dropped", "nagphormer", columns=("Betrag=number:comma",), edge_columns=())
    np.testing.assert_allclose(chances(dropped, "without.csv"), chances(dropped), atol=F32_TIGHT)


def test_a_later_object_needs_the_edge_data_of_the_run() -> None:
    graph = hopstate.read_graph(frame().drop(columns="hour"), **nodes()).with_(edge_table=None)
    run = hopstate.fit("gcn", graph, out="run", config={**SMALL, "model": MODEL["gat"], "batching": "full"})
    with pytest.raises(DataError, match="edge features or weights"):
        run.predict(graph.with_(edge_attr=None))
    without = {**SMALL, "model": MODEL["gat"]}
    for method, settings in (("gcn", {**without, "edges.use": "drop"}), ("mlp", without)):
        unread = hopstate.fit(method, graph, out=f"unread-{method}", config=settings)
        assert len(unread.predict(graph.with_(edge_attr=None))) == N


def test_scaling_of_edge_features_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    frame().to_csv("e.csv", index=False)
    config = {**SMALL, "model": MODEL["gat"], "loop": {**SMALL["loop"], "progress": True}}
    hopstate.fit("gat", "e.csv", out="run", read=nodes(), config=config)
    captured = capsys.readouterr().err
    assert "edge features: standardized" in captured
    assert "training edges" in captured


@pytest.mark.slow
def test_edge_features_of_objects_are_scaled_on_request() -> None:
    table = frame()
    record = Graph.from_edges(
        table[["source", "target"]].to_numpy(), N, edge_attr=table[["hour", "amount"]].to_numpy(np.float32),
        x=np.ones((N, 1), np.float32), y=np.arange(N) % 2,
    )  # fmt: skip
    record = record.with_(published=True)
    settings = {**SMALL, "model": MODEL["gat"]}
    hopstate.fit("gat", record, out="raw", config=settings)
    assert "edge_attr" not in (RunFolder("raw").read_json("data.json").get("features") or {})
    hopstate.fit("gat", record, out="scaled", config={**settings, "read": {"scale": "standard"}})
    assert "edge_attr" in RunFolder("scaled").read_json("data.json")["features"]
    with pytest.raises(DataError, match="2"):
        hopstate.predict("scaled", data=record.with_(edge_attr=record.edge_attr[:, :1]))  # type: ignore[index]


def test_a_saved_graph_keeps_edge_weights_and_the_table_of_its_edges(tmp_path: Path) -> None:
    frame().assign(hour=0.1).to_csv("e.csv", index=False)
    graph = hopstate.read_graph("e.csv")
    weighted = graph.with_(edge_attr=None, edge_weight=np.ones(graph.num_edges, np.float32))
    for number, one in enumerate((graph, weighted)):
        one.save(str(tmp_path / f"g{number}"))
        again = Graph.load(str(tmp_path / f"g{number}"))
        assert again.content_hash == one.content_hash
        assert (again.edge_table is None) == (one.edge_table is None)
    kept = Graph.load(str(tmp_path / "g0")).edge_table
    assert kept is not None
    assert graph.edge_table is not None
    assert kept.columns == ("hour", "amount")
    np.testing.assert_array_equal(kept.values, graph.edge_table.values)


def test_the_edge_table_follows_the_edges() -> None:
    frame().to_csv("e.csv", index=False)
    graph = hopstate.read_graph("e.csv", undirected=False)
    turned = graph.reversed()
    for one in (graph, turned, graph.reversed().reversed()):
        assert one.edge_table is not None
        np.testing.assert_array_equal(one.edge_table.values.astype(np.float32), one.edge_attr)
    assert graph.with_(edge_attr=None).edge_table is None
    with pytest.raises(ConfigError):
        fit(frame(), "no", "sage")


def test_missing_edge_features_are_imputed_by_the_training_median() -> None:
    edges = frame()
    edges["hour"] = edges.hour.astype(float)
    edges.loc[3, "hour"] = np.nan
    with pytest.raises(DataError, match="hour"):
        made_ready(edges)
    graph, kept = made_ready(edges, **{"read.missing": "median"})
    at = (edges.source < N // 2) | (edges.target < N // 2)
    assert kept["edge_attr"]["fill"][0] == edges[at].hour.median()
    assert graph.edge_attr is not None
    assert graph.edge_attr[:, 2].sum() == 2  # marked in both directions
