"""A model learns the classes of its training rows; unknown classes of test rows count as errors and are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.errors import DataError, HopstateWarning
from hopstate.evaluation.metrics import evaluate_metrics
from hopstate.training.tasks.target import training_classes_first
from made_tables import tables

LOOP: dict[str, Any] = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
SIZE = 60


def graph(extra: str | None) -> dict[str, pd.DataFrame]:
    """Return a ring of nodes with classes b, d, e in turns; three test nodes have the class `extra`, if given."""
    rng, ids = np.random.default_rng(0), np.arange(SIZE)
    labels = np.array(["b", "d", "e"])[ids % 3].astype(object)
    if extra:
        labels[[50, 55, 59]] = extra
    split = np.where(ids < 36, "train", np.where(ids < 48, "val", "test"))
    features = pd.DataFrame(rng.normal(size=(SIZE, 4)).round(3), columns=["f1", "f2", "f3", "f4"])
    return {
        "edges": pd.DataFrame({"source": ids, "target": (ids + 1) % SIZE}),
        "features": features.assign(id=ids),
        "labels": pd.DataFrame({"id": ids, "label": labels, "split": split}),
    }


def run_on(tables: dict[str, pd.DataFrame], out: Path, **settings: Any) -> Any:
    return hopstate.fit("mlp", tables["edges"], features=tables["features"], labels=tables["labels"], out=out,
                        config=LOOP | settings)  # fmt: skip


@pytest.mark.parametrize("extra", ["a", pytest.param("z", marks=pytest.mark.slow)])
def test_classes_of_test_nodes_do_not_influence_training(extra: str, tmp_path: Path) -> None:
    plain = run_on(graph(None), tmp_path / "plain", class_weights="balanced")
    with pytest.warns(HopstateWarning, match=rf"\b{extra}\b"):
        other = run_on(graph(extra), tmp_path / "other", class_weights="balanced")
    for one, two in zip(plain.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    predicted = other.predict(split="test")
    assert [name for name in predicted if name.startswith("p_")] == ["p_b", "p_d", "p_e"]
    assert predicted.label.tolist() == graph(extra)["labels"].label[48:].tolist()
    right = (predicted.prediction == predicted.label).mean()
    assert other.metrics["test"]["accuracy"] == pytest.approx(right)
    assert hopstate.evaluate(other.path, split="test") == pytest.approx(other.metrics["test"], rel=1e-5)
    assert other.metrics["val"] == pytest.approx(plain.metrics["val"], rel=1e-5)


def events(extra: str | None) -> pd.DataFrame:
    rng, size = np.random.default_rng(1), 120
    labels = np.array(["b", "d", "e"])[rng.integers(0, 3, size)].astype(object)
    if extra:
        labels[[105, 110, 119]] = extra
    ends = {"src": rng.integers(0, 8, size), "dst": 8 + rng.integers(0, 5, size)}
    return pd.DataFrame({**ends, "t": np.arange(size), "label": labels})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dyg-mamba-nodes", "ctdg-ssm-nodes"])
def test_classes_of_test_events_do_not_influence_training(method: str, tmp_path: Path) -> None:
    small = {"dyg-mamba-nodes": {"model.channel_dim": 4, "model.out_dim": 6, "model.time_dim": 4}}
    config = LOOP | small.get(method, {"model.dim": 6, "model.time_dim": 4, "model.hidden": 6})
    config |= {"metric": "accuracy"}
    plain = hopstate.fit(method, events(None), out=tmp_path / "plain", config=config)
    with pytest.warns(HopstateWarning, match="'a'"):
        other = hopstate.fit(method, events("a"), out=tmp_path / "other", config=config)
    for one, two in zip(plain.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    predicted = other.predict(split="test")
    assert "p_a" not in predicted
    assert "a" in predicted.label.tolist()
    assert other.metrics["test"]["accuracy"] == pytest.approx((predicted.prediction == predicted.label).mean())
    assert hopstate.evaluate(other.path, split="test") == pytest.approx(other.metrics["test"], rel=1e-5)


def test_classes_of_training_come_first() -> None:
    y = np.array([2, 0, 2, 1, -1, 4])
    found, names, others = training_classes_first(y, np.array([0, 3]), None)
    assert found.tolist() == [1, 2, 1, 0, -1, 3]
    assert (names, others) == (("1", "2"), ("0", "4"))
    assert training_classes_first(y, np.arange(6), ("a", "b", "c", "d", "e"))[1:] == (("a", "b", "c", "e"), ())
    two = np.array([0, 0, 1])
    assert training_classes_first(two, np.array([0, 1]), ("a", "b")) == (two, ("a", "b"), ())


def test_an_unknown_class_counts_as_an_error_in_the_metrics() -> None:
    chances = np.eye(3)[[0, 1, 2, 2]]
    counted = evaluate_metrics("classes", ("accuracy", "balanced_accuracy"), np.array([0, 1, 2, 3]), chances)
    assert (counted["accuracy"], counted["balanced_accuracy"]) == (0.75, 0.75)


def test_a_single_class_of_training_events_is_rejected(tmp_path: Path) -> None:
    table = events(None)
    table.loc[:100, "label"] = "d"
    with pytest.raises(DataError, match=r"\bd\b"):
        hopstate.fit("ctdg-ssm-nodes", table, out=tmp_path / "run", config=LOOP)


def test_a_single_class_of_training_nodes_is_rejected(tmp_path: Path) -> None:
    edges, features, _ = tables()
    splits = ["train"] * 20 + ["val"] * 10 + ["test"] * 10
    labels = pd.DataFrame({"id": features["id"], "label": ["a"] * 20 + ["b", "c"] * 10, "split": splits})
    few = pytest.warns(HopstateWarning, match="b, c")
    with few, pytest.raises(DataError, match=r"\ba\b"):
        hopstate.fit("gcn", edges, features=features, labels=labels, out=tmp_path / "run", config=LOOP)
