"""From tables to a trained run and other files: scaling and imputation from training nodes, saved with the run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods.message_passing.method import FullBatchRun
from hopstate.methods.method import Context, ReadOptions
from hopstate.runs.data import data_metrics, load_data, preprocess
from hopstate.runs.run import Run
from hopstate.testing.conformance import F32, F32_SUM, F32_TIGHT

pytestmark = pytest.mark.usefixtures("empty_folder")

SMALL = {
    "loop": {"epochs": 8, "progress": False, "device": "cpu", "optim": {"lr": 0.02}},
    "model": {"dim": 16, "num_layers": 2},
}


def frames(seed: int = 0, n: int = 120) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return edges, features (one predicts the class, a year has a much larger scale) and labels with a split."""
    rng = np.random.default_rng(seed)
    side = np.arange(n) % 2
    pairs = rng.integers(0, n, (4 * n, 2))
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) | (rng.random(len(pairs)) < 0.3)]
    features = pd.DataFrame({"id": np.arange(n), "length": rng.normal(size=n) + 1.5 * side})
    features["year"] = 1998 + rng.integers(0, 26, n)
    split = np.array(["train", "train", "val", "test"])[rng.permutation(n) % 4]
    labels = pd.DataFrame({"id": np.arange(n), "label": np.array(["x", "y"])[side], "split": split})
    return pd.DataFrame(pairs, columns=["source", "target"]), features, labels


def write(folder: str, edges: pd.DataFrame, features: pd.DataFrame, labels: pd.DataFrame) -> dict:
    Path(folder).mkdir(exist_ok=True)
    edges.to_csv(f"{folder}/e.csv", index=False)
    features.to_csv(f"{folder}/f.csv", index=False)
    labels.to_csv(f"{folder}/l.csv", index=False)
    return {"features": f"{folder}/f.csv", "labels": f"{folder}/l.csv"}


def fit(folder: str, read: dict, method: str = "sage", **more) -> Run:
    return hopstate.fit(method, f"{folder}/e.csv", out=f"run-{folder}", read=read, **{**SMALL, **more})


def test_a_column_of_years_does_not_reduce_accuracy():
    read = write("a", *frames())
    run = fit("a", read)
    assert run.metrics["test"]["accuracy"] > 0.8
    kept = json.loads(Path("run-a/data.json").read_text())["features"]["x"]
    assert (kept["kind"], kept["columns"]) == ("standard", ["length", "year"])


def ready(folder: str, read: dict) -> tuple[Graph, dict]:
    """Return the graph as a method receives it, and the data record of its run."""
    options = {key: value for key, value in read.items() if key != "scale"}
    config = FullBatchRun(data="made", read=ReadOptions(**read))
    context = Context(run=Path(folder), cache=Path(folder))
    return preprocess(hopstate.read_graph(f"{folder}/e.csv", **options), config, context)


@pytest.mark.parametrize("scale", ["auto", "robust"])
def test_meters_and_kilometers_are_equivalent(scale):
    edges, features, labels = frames()
    one, _ = ready("a", write("a", edges, features, labels) | {"scale": scale})
    other = features.assign(length=features["length"] * 1000, year=features["year"] - 2000)
    two, _ = ready("b", write("b", edges, other, labels) | {"scale": scale})
    np.testing.assert_allclose(one.x, two.x, atol=F32)


@pytest.mark.parametrize("missing", ["mean", "median"])
def test_rows_outside_training_do_not_influence_training(missing):
    edges, features, labels = frames()
    features.loc[labels.index[labels["split"] == "train"][:3], "length"] = np.nan
    held_out = (labels["split"] != "train").to_numpy()
    changed = features.copy()
    changed.loc[held_out, "length"] = 1e6
    changed.loc[held_out, "year"] = np.nan
    one, kept = ready("a", write("a", edges, features, labels) | {"missing": missing})
    two, again = ready("b", write("b", edges, changed, labels) | {"missing": missing})
    assert json.dumps(kept) == json.dumps(again)
    np.testing.assert_array_equal(one.x[~held_out], two.x[~held_out])


def test_predictions_of_a_row_do_not_depend_on_other_rows():
    edges, features, labels = frames()
    features.loc[[3, 40], "length"] = np.nan
    run = fit("a", write("a", edges, features, labels) | {"missing": "median"}, "mlp")
    whole = run.predict().set_index("node")
    for node in (3, 7):
        write("one", edges.iloc[:0], features[features["id"] == node], labels.iloc[:0])
        single = run.predict("one/e.csv", read={"features": "one/f.csv"})  # imputed by the run
        np.testing.assert_allclose(single["p_x"][0], whole["p_x"][node], atol=F32_TIGHT)
    swapped = features[["id", "year", "length"]]
    write("other", edges, swapped, labels)
    again = run.predict("other/e.csv", read={"features": "other/f.csv"}).set_index("node")
    np.testing.assert_allclose(again["p_x"], whole["p_x"], atol=F32_TIGHT)


def test_incompatible_data_are_named():
    edges, features, labels = frames()
    run = fit("a", write("a", edges, features, labels) | {"missing": "error"}, "mlp")
    write("b", edges, features.rename(columns={"year": "decade"}), labels)
    with pytest.raises(DataError, match="year"):
        run.predict("b/e.csv", read={"features": "b/f.csv"})
    features.loc[[3, 40], "length"] = np.nan
    read = write("c", edges, features, labels) | {"missing": "error"}
    with pytest.raises(DataError, match="length"):
        fit("c", read)
    with pytest.raises(DataError, match="length"):
        run.predict("c/e.csv", read={"features": "c/f.csv"})
    assert len(run.predict("c/e.csv", read={"features": "c/f.csv", "missing": "mean"})) == 120
    with pytest.raises(ConfigError, match="scale"):
        run.predict("a/e.csv", read={"features": "a/f.csv", "scale": "none"})


@pytest.mark.slow
def test_missing_values_are_marked_in_separate_columns():
    edges, features, labels = frames()
    rng = np.random.default_rng(1)
    informative = (labels["label"] == "y").to_numpy() & (rng.random(120) < 0.9)
    features.loc[informative, "year"] = np.nan  # only missingness predicts the class
    features["length"] = rng.normal(size=120)
    run = fit("a", write("a", edges, features, labels) | {"missing": "mean"}, "mlp")
    assert json.loads(Path("run-a/data.json").read_text())["num_features"] == 3
    assert run.metrics["test"]["accuracy"] > 0.75  # chance is 0.5, and the best 0.95 +- 0.04 of 30 nodes


def test_objects_are_scaled_like_tables_unless_published():
    edges, features, labels = frames()
    graph = hopstate.read_graph("a/e.csv", **write("a", edges, features, labels))
    context = Context(run=Path("a"), cache=Path("a"))
    _, kept = preprocess(graph, FullBatchRun(data="made"), context)
    assert kept["x"]["kind"] == "standard"
    bare = graph.with_(x=graph.x)
    _, same = preprocess(bare, FullBatchRun(data="made"), context)
    np.testing.assert_allclose(same["x"]["scale"], kept["x"]["scale"], rtol=F32_TIGHT)
    published = bare.with_(published=True)
    assert preprocess(published, FullBatchRun(data="made"), context) == (published, {})


def test_named_data_are_not_scaled_by_default():
    for scale, kind in (("auto", None), ("none", None), ("standard", "standard")):
        read = ReadOptions(scale=scale)
        graph = load_data("minesweeper-generated", read, "graph")
        config = FullBatchRun(data="minesweeper-generated", read=read)
        _, kept = preprocess(graph, config, Context(run=Path("a"), cache=Path("a")))
        assert (kept["x"]["kind"] if kept else None) == kind


def test_seconds_since_1970_keep_their_digits():
    edges, features, labels = frames()
    features["length"] = (1.7e9 + np.round(60 * features["length"])).astype(np.int64)
    del features["year"]
    graph, _ = ready("a", write("a", edges, features, labels))
    assert graph.x[labels["label"] == "y", 0].mean() > graph.x[labels["label"] == "x", 0].mean() + 0.5
    assert len(np.unique(graph.x)) > 100


def test_a_saved_graph_keeps_its_table_and_notes():
    edges, features, labels = frames()
    features.loc[3, "length"] = np.nan
    features["year"] = features["year"] * 10**9 + 1
    graph = hopstate.read_graph("a/e.csv", **write("a", edges, features, labels), missing="mean")
    graph.save("saved")
    loaded = Graph.load("saved")
    np.testing.assert_array_equal(loaded.table.values, graph.table.values)
    assert (loaded.table.columns, loaded.notes) == (graph.table.columns, graph.notes)
    assert loaded.content_hash == graph.content_hash
    assert loaded.with_(x=np.ones((120, 1))).table is None


def test_other_files_are_read_with_the_options_of_the_run():
    edges, features, labels = frames()
    edges = edges.rename(columns={"source": "a", "target": "b"}).assign(length=1.5, other=2.5)[
        ["other", "b", "a", "length"]
    ]
    labels = labels.rename(columns={"split": "part"})
    read = write("a", edges, features, labels) | {
        "undirected": False, "self_loops": "drop", "source_column": "a", "target_column": "b",
        "edge_columns": ("length",), "split_column": "part",
    }  # fmt: skip
    run = fit("a", read, "gat", loop={**SMALL["loop"], "epochs": 2})
    own, same = run.predict(), write("copy", edges, features, labels)
    again = run.predict("copy/e.csv", read=same)
    np.testing.assert_allclose(again["p_x"], own["p_x"], atol=F32_TIGHT)
    assert run.evaluate("copy/e.csv", read=same) == pytest.approx(run.evaluate())
    both = run.predict("copy/e.csv", read=same | {"undirected": True})  # a given option wins
    assert np.abs(both["p_x"] - own["p_x"]).max() > F32
    write("unsplit", edges, features, labels.drop(columns="part"))
    less = run.predict("unsplit/e.csv", read={"features": "unsplit/f.csv", "labels": "unsplit/l.csv"})
    np.testing.assert_allclose(less["p_x"], own["p_x"], atol=F32_TIGHT)


@pytest.mark.slow
def test_integer_regression_targets_of_other_data_are_not_classes():
    edges, features, labels = frames()
    amounts = labels.assign(label=10.0 + 20 * (labels["label"] == "y") + features["length"])
    read = write("a", edges, features, amounts)
    run = fit("a", read, loop={**SMALL["loop"], "epochs": 2})
    whole = labels.assign(label=np.array([10, 20, 30, -1])[np.arange(120) % 4])
    whole.loc[whole["label"] == -1, "split"] = ""
    other = write("b", edges, features, whole)
    found = run.predict("b/e.csv", read=other)
    np.testing.assert_array_equal(found["label"], whole["label"])
    unknown = run.predict("b/e.csv", read=other | {"unlabeled_value": "-1"})
    np.testing.assert_array_equal(unknown["label"].isna(), whole["label"] == -1)
    scored = run.evaluate("b/e.csv", read=other)["mae"]
    test = (whole["split"] == "test").to_numpy()
    assert scored == pytest.approx(np.abs(found["prediction"] - whole["label"])[test].mean(), rel=F32_SUM)
    as_classes = run.predict("b/e.csv", read=other | {"task": "classification", "unlabeled_value": "-1"})
    np.testing.assert_array_equal(as_classes["label"], unknown["label"])  # named by their numbers
    with pytest.raises(DataError, match="'x'"):
        run.predict("b/e.csv", read=write("c", edges, features, labels) | {"task": "classification"})


def test_mismatched_columns_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    events = pd.DataFrame(rng.integers(0, 9, (90, 2)), columns=["src", "dst"]).assign(t=np.arange(90))
    events[["feat_0", "feat_1"]] = rng.normal(size=(90, 2))
    config = {"model.num_links": 3, "model.dim": 6, "model.out_dim": 6, "loop": {"epochs": 0, "progress": False}}
    run = hopstate.fit("graphmixer", events[:70], out=tmp_path / "run", config=config)
    more = events[70:].assign(feat_2=1.0)
    with pytest.raises(DataError, match="feat_2"):
        run.predict(more)
    found = run.predict(more, read={"columns": ["feat_2=drop"]})
    np.testing.assert_allclose(found["score"], run.predict(events[70:])["score"], atol=F32_TIGHT)
    with pytest.raises(DataError, match="feat_1"):
        run.predict(more.rename(columns={"feat_1": "feat_3"}).drop(columns="feat_2"))


def test_a_dropped_text_column_gives_no_second_warning(tmp_path: Path) -> None:
    ids = np.arange(60)
    edges = pd.DataFrame({"source": ids, "target": (ids + 1) % 60})
    features = pd.DataFrame({"id": ids, "a": ids % 7 * 1.0, "title": [f"title {i}" for i in ids]})
    labels = pd.DataFrame({"id": ids, "label": np.array(["lo", "hi"])[ids % 2]})
    config = {"loop": {"epochs": 0, "progress": False}}
    run = hopstate.fit("mlp", edges, features=features, labels=labels, out=tmp_path / "run", config=config)
    assert len(run.predict(edges[:5], read={"features": features[:6]})) == 6  # a warning would be an error here


def test_a_file_called_as_a_dataset_does_not_have_its_metric() -> None:
    assert data_metrics("questions") == ("roc_auc",)
    Path("questions").mkdir()
    assert data_metrics("questions") == ()
