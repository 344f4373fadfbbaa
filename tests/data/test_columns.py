"""Runs on tables with texts, dates and missing values: scales of training rows only, later files encoded alike."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.readers.read_events import read_events
from hopstate.errors import DataError, HopstateWarning
from hopstate.methods.message_passing.method import FullBatchRun
from hopstate.methods.method import Context
from hopstate.runs.data import preprocess
from hopstate.serving.live import LiveRun

N = 60
QUICK = {"loop": {"epochs": 1, "progress": False}, "model": {"dim": 8, "num_layers": 1, "dropout": 0.0}}


def tables(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    edges = pd.DataFrame({"source": np.arange(N), "target": np.roll(np.arange(N), 1)})
    venue = np.array(["1", "KDD", "VLDB"])[rng.integers(0, 3, N)]
    features = pd.DataFrame({"id": np.arange(N), "price": rng.uniform(1, 90, N), "venue": venue})
    features["when"] = (pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), unit="D")).strftime("%Y-%m-%d")
    split = np.array(["train"] * 30 + ["val"] * 15 + ["test"] * 15)
    labels = pd.DataFrame({"id": np.arange(N), "label": np.where(venue == "KDD", "a", "b"), "split": split})
    return edges, features, labels


def trained(edges, features, labels, **more):
    return hopstate.fit("sage", edges, features=features, labels=labels, **{**QUICK, **more})


def metrics(run) -> np.ndarray:
    return (
        run.predict().set_index("node").sort_index().filter(regex="^p_|^prediction$").select_dtypes("number").to_numpy()
    )


def same(one, other):
    pd.testing.assert_frame_equal(one, other, rtol=1e-5)


@cache
def one_run():
    import tempfile

    folder = tempfile.TemporaryDirectory()
    run = trained(*tables(), out=f"{folder.name}/run")
    return run, folder


def test_later_files_are_encoded_by_the_run(recwarn):
    run, _ = one_run()
    edges, features, _ = tables()
    expected = run.predict().filter(like="p_")
    mixed = features[["id", "when", "venue", "price"]]
    same(run.predict(edges, read={"features": mixed}).filter(like="p_"), expected)
    both = features.assign(venue=["1"] * 15 + ["KDD"] * 45)
    one = run.predict(edges, read={"features": both.assign(venue="1")}).filter(like="p_")  # a column of numbers now
    two = run.predict(edges, read={"features": both}).filter(like="p_")
    same(one[2:12], two[2:12])
    assert not [one for one in recwarn if isinstance(one.message, HopstateWarning)]


def test_texts_that_a_run_does_not_know_are_one_class_with_a_warning():
    run, _ = one_run()
    edges, features, _ = tables()
    for text in ("NIPS", "ICLR"):
        other = features.assign(venue=features["venue"].where(features.index > 1, text))
        with pytest.warns(HopstateWarning, match=f"venue={text}"):
            found = run.predict(edges, read={"features": other}).filter(like="p_").to_numpy()
        assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda f: f.drop(columns="venue"), "venue"),
        (lambda f: f.drop(columns="when"), "when"),
        (lambda f: f.assign(more=1.0), "more"),
        (lambda f: f.assign(price="dear"), "price"),
        (lambda f: f.assign(when="soon"), "soon"),
    ],
)
def test_columns_unknown_to_a_run_are_named(change, name):
    run, _ = one_run()
    edges, features, _ = tables()
    with pytest.raises(DataError, match=name):
        run.predict(edges, read={"features": change(features)})


@pytest.mark.slow
def test_a_text_column_may_be_absent(tmp_path):
    edges, features, labels = tables()
    run = trained(edges, features.assign(title=[f"title {i}" for i in range(N)]), labels, out=tmp_path / "run")
    few = features.assign(title="one title")
    same(run.predict(edges, read={"features": features}).filter(like="p_"), run.predict().filter(like="p_"))
    run.predict(edges, read={"features": few})  # one warning about the columns dropped in training
    with pytest.warns(HopstateWarning, match="remark"):
        run.predict(edges, read={"features": few.assign(remark="one remark")})


def test_units_names_and_order_of_columns_and_rows_do_not_matter(tmp_path):
    edges, features, labels = tables()
    expected = metrics(trained(edges, features, labels, out=tmp_path / "0"))
    other = features.assign(price=features["price"] * 128).rename(columns={"price": "cost", "venue": "place"})
    found = metrics(trained(edges, other.sample(frac=1, random_state=0), labels, out=tmp_path / "1"))
    assert np.abs(found - expected).max() < 1e-4


def test_test_rows_do_not_influence_training(tmp_path):
    edges, features, labels = tables()
    edges = edges[(edges["source"] < 44) & (edges["target"] < 44)]  # no test node has a neighbour
    layer = {"model": {**QUICK["model"], "norm": "layer"}}  # statistics of batch norm are those of all nodes
    expected = metrics(trained(edges, features, labels, out=tmp_path / "0", **layer))
    gaps = features.assign(
        price=features["price"].where(features.index < 50), venue=features["venue"].where(features.index < 50, "new")
    )
    found = metrics(trained(edges, gaps, labels, out=tmp_path / "1", **layer))
    np.testing.assert_allclose(found[:45], expected[:45], rtol=1e-5, atol=1e-6)


def test_categories_come_from_training_rows_only(tmp_path):
    edges, features, labels = tables()
    config, found = FullBatchRun(data="made"), []
    for text in ("KDD", "new {}", "w{}"):
        own = [text.format(i % 7 if text[0] == "w" else i) for i in features["id"]]
        table = features.assign(venue=features["venue"].where(features.index < 30, own))
        graph = hopstate.read_graph(edges, features=table, labels=labels, missing="auto")
        ready, kept = preprocess(graph, config, Context(run=tmp_path, cache=tmp_path))
        found.append((json.dumps(kept), ready.x[:30].tobytes()))
    assert len(set(found)) == 1
    assert "category venue=KDD" in found[0][0]


def test_missing_values_are_imputed_by_the_mean(tmp_path):
    edges, features, labels = tables()
    gaps = features.assign(price=features["price"].where(features.index % 3 > 0))
    run = trained(edges, gaps, labels, out=tmp_path / "run")
    data = json.loads((run.path / "data.json").read_text())
    assert data["features"]["x"]["marked"] == [0]
    assert len(run.predict()) == N
    with pytest.raises(DataError, match="20"):
        trained(edges, gaps, labels, read={"missing": "error"}, out=tmp_path / "error")


def test_later_events_with_texts_dates_and_missing_values_are_encoded_alike(tmp_path):
    pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"src": rng.integers(0, 6, 120), "dst": rng.integers(6, 12, 120), "t": np.arange(120)})
    table["kind"] = np.array(["mail", "call"])[rng.integers(0, 2, 120)]
    table["paid"] = rng.uniform(1, 9, 120)
    table.loc[::7, "paid"] = np.nan
    read = {"columns": ["kind=category", "paid=number"]}
    quick = {"loop": {"epochs": 1, "progress": False}}
    run = hopstate.fit("ctdg-ssm", table, read=read, out=tmp_path / "run", **quick)
    later = table[:4].assign(t=300 + np.arange(4), kind=["mail", "call", "fax", "mail"])
    with pytest.warns(HopstateWarning, match="kind=fax"):
        expected = run.predict(later)
    assert len(expected) == 4
    turned = later[["t", "paid", "kind", "dst", "src"]]
    with pytest.warns(HopstateWarning, match="kind=fax"):
        np.testing.assert_allclose(run.predict(turned)["score"], expected["score"], rtol=1e-5)
    first_row = run.predict(later[:1])
    np.testing.assert_allclose(first_row["score"], expected["score"][:1], rtol=1e-5)
    rows = [row if row["paid"] == row["paid"] else row | {"paid": None} for row in later.to_dict("records")]
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        found = [receipt.score for receipt in live.take(rows)]
        with pytest.raises(DataError, match="kind"):
            live.take([rows[0] | {"kind": ["mail"], "t": 400}])
    np.testing.assert_allclose(found, expected["score"], rtol=1e-5)


def test_numbers_with_none_in_a_table_are_read_as_in_a_file(tmp_path):
    """pandas stores a column of numbers and None as objects."""
    ends = {"source": [0, 1, 2, 3] * 8, "target": [4, 5, 6, 7] * 8, "time": range(32)}
    columns = {"price": [1.5, None, 3, 4] * 8, "count": [1, None, 3, 4] * 8, "label": [1, None, 0, 1] * 8}
    table = pd.DataFrame(ends | {name: pd.Series(values, dtype=object) for name, values in columns.items()})
    table.to_csv(tmp_path / "events.csv", index=False)
    own, read = (
        read_events(one, edge_columns=["price", "count"], missing="mean") for one in (table, tmp_path / "events.csv")
    )
    assert own.edge_table.columns == read.edge_table.columns == ("price", "count")
    np.testing.assert_array_equal(own.edge_table.values, read.edge_table.values)
    assert own.labels.tolist() == read.labels.tolist()
    assert own.labels.dtype == read.labels.dtype == np.int64
