"""Regression targets of events: missing values, units, baselines, later files, and no leak from evaluated events."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.metrics import mae
from hopstate.runs.card import run_card
from hopstate.runs.run import Run, evaluate, fit, score_stream
from hopstate.testing.conformance import F32_SUM, F64
from hopstate.training.tasks.event_node import EventTargets, last_label_per_source
from hopstate.training.tasks.target import Target

SMALL: dict[str, dict[str, Any]] = {
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
}
LOOP = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
READ = {"read.task": "regression", "read.label_column": "price"}


def table(first: int, count: int) -> pd.DataFrame:
    rng = np.random.default_rng([5, first])
    source = rng.integers(0, 10, count)
    found: dict[str, Any] = {
        "source": [f"u{i}" for i in source],
        "target": [f"v{i}" for i in rng.integers(0, 8, count)],
        "time": first + np.arange(count) * 2 // 3,
    }
    price = 1.7e9 + 64 * source + rng.normal(size=count)
    price[rng.random(count) > 0.8] = np.nan
    return pd.DataFrame(found | {"price": price})


def fitted(name: str, frame: pd.DataFrame, out: Path, **more: Any) -> Run:
    frame.to_csv(out.with_suffix(".csv"), index=False)
    return fit(name, out.with_suffix(".csv"), out=out, config={**LOOP, **SMALL[name], **READ, **more})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run of a method by name, trained on first use."""
    home = tmp_path_factory.mktemp("runs")
    return cache(lambda name: fitted(name, table(0, 160), home / name))


METHODS = ["ctdg-ssm-nodes", pytest.param("dyg-mamba-nodes", marks=pytest.mark.slow)]


# ---- unit tests -------------------------------------------------------------------------------------------------
def test_the_last_known_target_is_from_strictly_earlier_events():
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 40, 200))
    stream = EventStream(src=rng.integers(0, 6, 200), dst=rng.integers(6, 9, 200), t=t)
    y = np.where(rng.random(200) < 0.4, np.nan, rng.normal(size=200))
    expected = []
    for row in range(200):
        before = [k for k in range(200) if stream.src[k] == stream.src[row] and t[k] < t[row] and not np.isnan(y[k])]
        expected.append(y[before[-1]] if before else np.nan)
    np.testing.assert_array_equal(last_label_per_source(stream, y, np.arange(200)), expected)
    rows = rng.permutation(200)[:50]
    np.testing.assert_array_equal(last_label_per_source(stream, y, rows), np.array(expected)[rows])
    assert np.isnan(last_label_per_source(stream, np.full(200, np.nan), rows)).all()


def test_missing_targets_count_in_no_metric():
    y = np.array([[1.0], [np.nan], [5.0]])
    target = Target(goal="values", names=("price",), metrics=("mae", "rmse"), center=(1.0,), scale=(2.0,))
    targets = EventTargets(y=y, target=target)
    assert targets.metrics(np.arange(3), np.array([0.5, 99.0, 1.5])) == {"mae": 1.0, "rmse": 1.0}
    assert targets.columns(np.array([0.5]))["prediction"].tolist() == [2.0]
    assert np.isnan(targets.metrics(np.array([1]), np.array([0.0]))["mae"])


# ---- runs --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", METHODS)
def test_regression_targets_are_trained_evaluated_and_predicted_in_their_unit(
    name: str, runs: Callable[[str], Run], tmp_path: Path
) -> None:
    run = runs(name)
    assert set(run.metrics["test"]) == {"mae", "rmse", "r2", "spearman"}
    assert evaluate(run.path) == pytest.approx(run.metrics["test"], rel=1e-5)
    found = run.predict(split="test")
    own = table(0, 160)[-len(found) :]
    assert list(found) == ["node", "t", "prediction", "label"]
    np.testing.assert_array_equal(found["label"], own["price"])
    y, predicted = found["label"].to_numpy()[:, None], found["prediction"].to_numpy()[:, None]
    assert run.metrics["test"]["mae"] == pytest.approx(mae(y, predicted), rel=1e-6)
    assert abs(predicted - 1.7e9).max() < 2000
    assert set(run.baselines) == {"mean", "median", "last"}
    train = run.predict(split="train")["label"].dropna()
    assert run.baselines["mean"]["mae"] == pytest.approx(mae(y, np.full_like(y, train.mean())), rel=F32_SUM)
    assert "price" in run_card(run.path)
    later = table(200, 30)
    whole = run.predict(later)
    bare = run.predict(later.drop(columns="price"))
    np.testing.assert_allclose(bare["prediction"], whole["prediction"], rtol=1e-9)
    first_row = run.predict(later[:1])
    np.testing.assert_allclose(first_row["prediction"], whole["prediction"][:1], rtol=F64)
    live = score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")
    np.testing.assert_allclose(live["prediction"], whole["prediction"], rtol=1e-9)
    outputs = run.node_outputs(["u1", "u2"], [500, 600])
    turned = run.node_outputs(["u2", "u1"], [600, 500])
    assert outputs["prediction"].tolist() == pytest.approx(turned["prediction"].tolist()[::-1], rel=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_targets_of_test_events_do_not_influence_training(
    name: str, runs: Callable[[str], Run], tmp_path: Path
) -> None:
    other = table(0, 160)
    other.loc[160 - len(runs(name).predict(split="test")) :, "price"] = 3.0
    run = fitted(name, other, tmp_path / "other")
    np.testing.assert_allclose(run.predict()["prediction"], runs(name).predict()["prediction"], rtol=1e-9)
    kept = [json.loads((one.path / "data.json").read_text())["target"] for one in (run, runs(name))]
    assert kept[0] == kept[1]
    assert run.metrics["val"] == pytest.approx(runs(name).metrics["val"], rel=1e-5)


@pytest.mark.slow
def test_rescaled_targets_give_rescaled_predictions(runs: Callable[[str], Run], tmp_path: Path) -> None:
    name = "ctdg-ssm-nodes"
    run = fitted(name, table(0, 160).assign(price=lambda f: f["price"] * 8), tmp_path / "eighths")
    np.testing.assert_allclose(run.predict()["prediction"] / 8, runs(name).predict()["prediction"], rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "settings", "error", "words"),
    [
        (lambda f: f.assign(price="dear"), {}, DataError, "price.*row 0"),
        (lambda f: f.assign(price=np.nan), {}, DataError, "label"),
        (lambda f: f.drop(columns="price"), {}, DataError, "price"),
        (lambda f: f, {"metric": "roc_auc"}, ConfigError, "roc_auc"),
        (lambda f: f, {"class_weights": "balanced"}, ConfigError, "class_weights"),
        (lambda f: f, {"read.task": "auto"}, DataError, r"read\.task"),
    ],
)
def test_invalid_regression_targets_are_named(change, settings, error, words, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        fitted("dyg-mamba-nodes", change(table(0, 160)), tmp_path / "run", **settings)
