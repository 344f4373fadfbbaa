"""Classes of nodes at their events that stand in an order: how far off an answer is counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.evaluation.event_classes import event_classes
from hopstate.evaluation.metrics import class_mae, quadratic_kappa


def stream(labels: Any, **more: Any) -> EventStream:
    t = np.arange(len(labels))
    return EventStream.from_arrays(t % 5, t % 3 + 5, t, labels=np.asarray(labels), **more)


@pytest.mark.parametrize(("count", "width"), [(4, 4), (2, 1)])
def test_ordinal_metrics_are_those_of_the_known_events(count: int, width: int) -> None:
    rng = np.random.default_rng(count)
    labels = np.append(rng.integers(0, count, 60), [-1] * 5)
    made = stream(labels)
    chances = rng.dirichlet(np.ones(count), 65)
    found, rows = chances[:, 1] if width == 1 else chances, np.arange(65)
    for name, naive in (("class_mae", class_mae), ("quadratic_kappa", quadratic_kappa)):
        judged = event_classes(made, metric=name).metrics(rows, found)
        assert judged[name] == naive(labels[:60], chances[:60])


def test_a_class_that_training_lacks_is_left_out_of_what_goes_by_order() -> None:
    labels = np.array([1, 2, 3] * 10 + [9] * 3)
    with pytest.warns(hopstate.errors.HopstateWarning, match="9"):
        classes = event_classes(stream(labels), metric="class_mae", train=np.arange(30))
    said = np.eye(3)[np.append(np.tile([0, 1, 1], 10), [2, 2, 2])]
    assert classes.metrics(np.arange(33), said)["class_mae"] == pytest.approx(1 / 3)


def test_texts_have_no_order() -> None:
    with pytest.raises(ConfigError, match="class_mae"):
        event_classes(stream([0, 1, 2] * 5, class_names=("mid", "low", "high")), metric="class_mae")


def test_texts_are_in_the_order_that_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"src": rng.integers(0, 6, 90), "dst": rng.integers(6, 12, 90), "t": np.arange(90)})
    made["label"] = np.array(["low", "mid", "high"])[made.src % 3]
    made.loc[::9, "label"] = None
    made.to_csv(tmp_path / "own.csv", index=False)
    read = hopstate.read_events(tmp_path / "own.csv", order=("low", "mid", "high"))
    assert read.class_names == ("low", "mid", "high")
    assert read.labels.tolist() == [-1 if i % 9 == 0 else s % 3 for i, s in enumerate(made.src)]
    loop = {"epochs": 1, "progress": False, "tensorboard": "no", "device": "cpu"}
    config = {"loop": loop, "metric": "class_mae", "model.dim": 6, "model.time_dim": 4, "model.hidden": 6}
    config |= {"read.order": ["low", "mid", "high"]}
    run = hopstate.fit("ctdg-ssm-nodes", tmp_path / "own.csv", out=tmp_path / "run", config=config)
    found = run.predict(split="test").dropna()
    place = {"low": 0, "mid": 1, "high": 2}
    errors = (found["prediction"].map(place) - found["label"].map(place)).abs()
    assert run.metrics["test"]["class_mae"] == pytest.approx(errors.mean())
    later = made.assign(t=made.t + 100, label=made.label.replace("low", "new"))
    assert list(run.predict(later)["prediction"]) == list(run.predict(later.drop(columns="label"))["prediction"])
    with pytest.raises(hopstate.errors.DataError, match="high"):
        hopstate.read_events(tmp_path / "own.csv", order=("low", "mid"))
    with pytest.raises(ConfigError, match="order"):
        hopstate.read_events(tmp_path / "own.csv", order=("low", "mid", "high"), label_cells="all")


def test_a_model_is_chosen_by_the_least_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"src": rng.integers(0, 6, 90), "dst": rng.integers(6, 12, 90), "t": np.arange(90)})
    made.assign(label=made.src % 3).to_csv(tmp_path / "own.csv", index=False)
    loop = {"epochs": 2, "progress": False, "tensorboard": "no", "device": "cpu"}
    config = {"loop": loop, "metric": "class_mae", "model.dim": 6, "model.time_dim": 4, "model.hidden": 6}
    run = hopstate.fit("ctdg-ssm-nodes", tmp_path / "own.csv", out=tmp_path / "run", config=config)
    told = pd.read_csv(tmp_path / "run" / "metrics.csv")["val_class_mae"].dropna()
    assert run.metrics["val"]["class_mae"] == told.min()
    assert hopstate.evaluate(run.path)["class_mae"] == run.metrics["test"]["class_mae"]
