"""Amounts of nodes at their events: gaps, units, floors, later files, and no look at what is judged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.event_amounts import EventAmounts, last_known
from hopstate.evaluation.metrics import mae
from hopstate.methods.settings import BEFORE
from hopstate.methods.shared.event_run import EventReadOptions
from hopstate.runs.api import Run, evaluate, fit, score_stream
from hopstate.runs.queries.card import run_card
from hopstate.testing.asserts import F32_SUM, F64

SMALL: dict[str, dict[str, Any]] = {
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
}
LOOP = {"loop": {"epochs": 1, "progress": False, "tensorboard": "no", "device": "cpu"}}
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
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    home = tmp_path_factory.mktemp("runs")
    return {name: fitted(name, table(0, 160), home / name) for name in SMALL}


# ---- alone -------------------------------------------------------------------------------------------------
def test_the_last_known_amount_is_of_strictly_earlier_events():
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 40, 200))
    stream = EventStream(src=rng.integers(0, 6, 200), dst=rng.integers(6, 9, 200), t=t)
    y = np.where(rng.random(200) < 0.4, np.nan, rng.normal(size=200))
    want = []
    for row in range(200):
        before = [k for k in range(200) if stream.src[k] == stream.src[row] and t[k] < t[row] and not np.isnan(y[k])]
        want.append(y[before[-1]] if before else np.nan)
    np.testing.assert_array_equal(last_known(stream, y, np.arange(200)), want)
    rows = rng.permutation(200)[:50]
    np.testing.assert_array_equal(last_known(stream, y, rows), np.array(want)[rows])
    assert np.isnan(last_known(stream, np.full(200, np.nan), rows)).all()


def test_gaps_count_in_no_metric():
    y = np.array([1.0, np.nan, 5.0])
    held = EventAmounts(y=y, metrics_of=("mae", "rmse"), center=1.0, scale=2.0)
    assert held.metrics(np.arange(3), np.array([0.5, 99.0, 1.5])) == {"mae": 1.0, "rmse": 1.0}
    assert held.columns(np.array([0.5]))["prediction"].tolist() == [2.0]
    assert np.isnan(held.metrics(np.array([1]), np.array([0.0]))["mae"])


# ---- runs --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SMALL)
def test_amounts_are_learned_judged_and_answered_in_their_unit(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs[name]
    assert set(run.metrics["test"]) == {"mae", "rmse", "r2", "spearman"}
    assert evaluate(run.path) == run.metrics["test"]
    found = run.predict(split="test")
    own = table(0, 160)[-len(found) :]
    assert list(found) == ["node", "t", "prediction", "label"]
    np.testing.assert_array_equal(found["label"], own["price"])
    y, said = found["label"].to_numpy()[:, None], found["prediction"].to_numpy()[:, None]
    assert run.metrics["test"]["mae"] == mae(y, said)
    assert abs(said - 1.7e9).max() < 2000
    assert set(run.floors) == {"mean", "median", "last"}
    train = run.predict(split="train")["label"].dropna()
    assert run.floors["mean"]["mae"] == pytest.approx(mae(y, np.full_like(y, train.mean())), rel=F32_SUM)
    assert "target  amounts: price (mean 1.7e+09" in run_card(run.path)
    later = table(200, 30)
    whole = run.predict(later)
    bare = run.predict(later.drop(columns="price"))
    assert bare["prediction"].equals(whole["prediction"])
    alone = run.predict(later[:1])
    np.testing.assert_allclose(alone["prediction"], whole["prediction"][:1], rtol=F64)
    live = score_stream(run.path, later, fresh=True, save=tmp_path / "state")
    assert live["prediction"].equals(whole["prediction"])
    outputs = run.node_outputs(["u1", "u2"], [500, 600])
    turned = run.node_outputs(["u2", "u1"], [600, 500])
    assert outputs["prediction"].tolist() == turned["prediction"].tolist()[::-1]


@pytest.mark.parametrize("name", SMALL)
def test_amounts_of_test_events_decide_nothing(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    other = table(0, 160)
    other.loc[160 - len(runs[name].predict(split="test")) :, "price"] = 3.0
    run = fitted(name, other, tmp_path / "other")
    assert run.predict()["prediction"].equals(runs[name].predict()["prediction"])
    kept = [json.loads((one.path / "data.json").read_text())["target"] for one in (run, runs[name])]
    assert kept[0] == kept[1]
    assert run.metrics["val"] == runs[name].metrics["val"]


def test_another_unit_is_another_unit_of_the_answers(runs: dict[str, Run], tmp_path: Path) -> None:
    name = "dyg-mamba-nodes"
    run = fitted(name, table(0, 160).assign(price=lambda f: f["price"] * 8), tmp_path / "eighths")
    np.testing.assert_allclose(run.predict()["prediction"] / 8, runs[name].predict()["prediction"], rtol=F64)


@pytest.mark.parametrize(
    ("change", "settings", "error", "words"),
    [
        (lambda f: f.assign(price="dear"), {}, DataError, "'price' of labels holds 'dear' in row 0"),
        (lambda f: f.assign(price=np.nan), {}, DataError, "label"),
        (lambda f: f.drop(columns="price"), {}, DataError, "no column 'price'"),
        (lambda f: f, {"metric": "roc_auc"}, ConfigError, "unknown metric 'roc_auc' for numbers"),
        (lambda f: f, {"class_weights": "balanced"}, ConfigError, "these targets are values"),
        (lambda f: f, {"read.task": "auto"}, DataError, "amounts.*--read.task regression"),
    ],
)
def test_what_is_no_amount_is_named(change, settings, error, words, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        fitted("dyg-mamba-nodes", change(table(0, 160)), tmp_path / "run", **settings)


def test_runs_from_before_read_classes_whatever_their_files_are(tmp_path: Path) -> None:
    """Settings that a run folder lacks are filled with what they stood for: none that a source has no use for."""
    known = EventReadOptions()
    assert known.task == BEFORE["task"]  # so that named data and other formats are read with nothing that differs
    held = {"user_id": [0, 1], "item_id": [0, 0], "timestamp": [0.0, 1.0], "state_label": [0, 1], "f": [0.5, 1.5]}
    pd.DataFrame(held).to_csv(tmp_path / "jodie.csv", index=False)
    for task in ("auto", "classification"):
        assert read_events(tmp_path / "jodie.csv", format="jodie", task=task).labels.tolist() == [0, 1]
    with pytest.raises(ConfigError, match="task"):
        read_events(tmp_path / "jodie.csv", format="jodie", task="regression")
