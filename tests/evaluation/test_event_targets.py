"""Multilabel and regression targets of events: columns in files and streams, loss, metrics, baselines."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.data.events import ADD, GONE, EventStream, canonical_tie_order
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.metrics import average_precision, mae
from hopstate.runs.card import run_card
from hopstate.runs.run import Run, evaluate, fit, score_stream
from hopstate.testing.conformance import F64
from hopstate.training.tasks.event_node import EventTargets, event_classes
from hopstate.training.tasks.target import Target, make_target

SMALL: dict[str, dict[str, Any]] = {
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
}
LOOP = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
NAMES = ("spam", "bot")
READ = {"read.label_column": "spam,bot"}


def table(first: int, count: int) -> pd.DataFrame:
    rng = np.random.default_rng([7, first])
    source = rng.integers(0, 10, count)
    found: dict[str, Any] = {
        "source": [f"u{i}" for i in source],
        "target": [f"v{i}" for i in rng.integers(0, 8, count)],
        "time": first + np.arange(count) * 2 // 3,
    }
    labels = (source[:, None] % np.array([2, 3]) == 0) ^ (rng.random((count, 2)) < 0.1)
    cells = np.where(rng.random((count, 2)) < 0.2, np.nan, labels)
    return pd.DataFrame(found | dict(zip(NAMES, cells.T, strict=True)) | {"price": 100 + 5.0 * source})


def fitted(name: str, frame: pd.DataFrame, out: Path, **more: Any) -> Run:
    frame.to_csv(out.with_suffix(".csv"), index=False)
    return fit(name, out.with_suffix(".csv"), out=out, config={**LOOP, **SMALL[name], **READ, **more})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run of a method by name, trained on first use."""
    home = tmp_path_factory.mktemp("runs")
    return cache(lambda name: fitted(name, table(0, 160), home / name))


METHODS = ["dyg-mamba-nodes", pytest.param("ctdg-ssm-nodes", marks=pytest.mark.slow)]


def stream(count: int = 60, **more: Any) -> EventStream:
    rng = np.random.default_rng(3)
    y = np.where(rng.random((count, 3)) < 0.2, np.nan, rng.random((count, 3)) < 0.4).astype(np.float32)
    ends = {"src": rng.integers(0, 6, count), "dst": rng.integers(6, 9, count)}
    made: dict[str, Any] = {
        **ends,
        "t": np.sort(rng.integers(0, 30, count)),
        "labels": y,
        "class_names": ("a", "b", "c"),
    }
    return EventStream(**made | more)


# ---- streams -----------------------------------------------------------------------------------------------
def test_label_columns_follow_their_events(tmp_path: Path) -> None:
    whole = stream()
    np.testing.assert_array_equal(whole.slice(10, 20).labels, whole.labels[10:20])
    np.testing.assert_array_equal(whole.take(np.array([5, 3])).labels, whole.labels[[5, 3]])
    order = np.random.default_rng(0).permutation(len(whole))
    columns = {name: getattr(whole, name)[order] for name in ("src", "dst", "t", "labels")}
    back = canonical_tie_order(EventStream.from_arrays(**columns, class_names=whole.class_names, warn=False))
    assert (
        back.content_hash
        == canonical_tie_order(whole).content_hash
        != whole.with_(labels=whole.labels[::-1]).content_hash
    )
    whole.save(tmp_path / "folder")
    read = read_events(tmp_path / "folder")
    assert read.content_hash == whole.content_hash
    assert read.class_names == whole.class_names
    given = EventStream.from_pyg(whole.to_pyg(), class_names=whole.class_names)
    np.testing.assert_array_equal(given.labels, whole.labels)
    kind = np.full(len(whole), ADD, np.int8)
    src = whole.src.copy()
    kind[-1], src[-1] = GONE, whole.dst[-1]
    gone = EventStream.from_arrays(src, whole.dst, whole.t, labels=whole.labels, kind=kind, num_nodes=9)
    assert len(gone) > len(whole)
    own = gone.in_file(np.arange(len(gone))) >= 0
    np.testing.assert_array_equal(gone.labels[own], whole.labels[:-1])
    assert np.isnan(gone.labels[~own]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.zeros((60, 2), np.int64)}, ""),
        ({"labels": np.zeros((60, 0), np.float32), "class_names": None}, ""),
        ({"class_names": ("a", "b")}, ""),
        ({"labels": np.where(np.arange(180).reshape(60, 3) == 17, np.inf, 0.0)}, "row 5"),
    ],
)
def test_invalid_label_tables_are_rejected(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words or None):
        stream(**change)


# ---- unit tests -------------------------------------------------------------------------------------------------
def test_one_label_is_two_classes() -> None:
    rng = np.random.default_rng(1)
    y, logits = rng.integers(0, 2, 50), torch.randn(50, 1, dtype=torch.float64)
    y[::7] = -1
    wide = np.where(y < 0, np.nan, y)[:, None]
    rows = np.arange(50)
    several = make_target(wide, rows, ("label",), "auto")
    classes = make_target(y, rows, None, "roc_auc")
    one, two = (target.class_loss(logits, torch.from_numpy(y)) for target, y in ((several, wide), (classes, y)))
    assert one.item() == pytest.approx(two.item(), abs=F64)
    chances = logits.sigmoid().flatten().numpy()
    made = EventTargets(y=wide, target=several)
    expected = event_classes(stream(50, labels=y, class_names=None)).metrics(rows, chances)
    found = made.metrics(rows, chances)
    for name in ("roc_auc", "average_precision"):
        assert found[name] == pytest.approx(expected[name], rel=F64)


def test_missing_labels_are_ignored_and_column_order_does_not_matter() -> None:
    y = stream().labels
    rows = np.arange(len(y))
    logits = torch.randn(len(y), 3, dtype=torch.float64, requires_grad=True)
    target = make_target(y, rows, ("a", "b", "c"), "auto")
    loss = target.class_loss(logits, torch.from_numpy(y))
    loss.backward()
    assert (logits.grad.numpy()[np.isnan(y)] == 0).all()
    assert (logits.grad.numpy()[~np.isnan(y)] != 0).all()
    naive = [
        np.log1p(np.exp(-x if label else x)) for x, label in zip(logits.detach()[~np.isnan(y)].numpy(), y[~np.isnan(y)])
    ]
    assert loss.item() == pytest.approx(np.mean(naive), abs=F64)
    turned = target.class_loss(logits[:, [2, 0, 1]], torch.from_numpy(y[:, [2, 0, 1]]))
    assert turned.item() == pytest.approx(loss.item(), abs=F64)
    chances = logits.detach().sigmoid().numpy()
    made = EventTargets(y=y, target=target)
    other = EventTargets(y=y[:, [2, 0, 1]], target=replace(target, names=("c", "a", "b")))
    found, again = made.metrics(rows, chances), other.metrics(rows, chances[:, [2, 0, 1]])
    assert found == pytest.approx(again, abs=F64)
    assert made.metrics(rows, np.where(np.isnan(y), 0.123, chances)) == found
    assert list(made.columns(chances)) == ["p_a", "p_b", "p_c"]


def test_regression_predictions_are_in_their_units() -> None:
    y = np.array([[1.0, 100.0], [np.nan, 300.0]])
    given = {"names": ("a", "b"), "metrics": ("mae",), "center": (1.0, 200.0), "scale": (2.0, 50.0)}
    made = EventTargets(y=y, target=Target(goal="values", **given))
    found = np.array([[0.0, -2.0], [7.0, 2.0]])
    assert made.metrics(np.arange(2), found) == {"mae": 0.0}
    assert made.columns(found)["prediction_b"].tolist() == [100.0, 300.0]


# ---- runs --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", METHODS)
def test_labels_are_trained_evaluated_and_predicted_by_name(
    name: str, runs: Callable[[str], Run], tmp_path: Path
) -> None:
    run = runs(name)
    assert set(run.metrics["test"]) == {"average_precision", "roc_auc", "micro_f1"}
    assert evaluate(run.path) == pytest.approx(run.metrics["test"], rel=1e-5)
    found = run.predict(split="test")
    assert list(found) == ["node", "t", "p_spam", "p_bot", "label_spam", "label_bot"]
    own = table(0, 160)[-len(found) :]
    np.testing.assert_array_equal(found[["label_spam", "label_bot"]], own[list(NAMES)])
    assert not np.allclose(found["p_spam"] + found["p_bot"], 1)  # independent probabilities, which need not add up to 1
    expected = [
        average_precision(found[f"label_{n}"].dropna().to_numpy(int), found[f"p_{n}"][found[f"label_{n}"].notna()])
        for n in NAMES
    ]
    assert run.metrics["test"]["average_precision"] == pytest.approx(np.mean(expected), abs=F64)
    assert set(run.baselines) == {"mean", "last"}
    assert run.baselines["mean"]["roc_auc"] == 0.5
    assert "spam, bot" in run_card(run.path)
    later = table(200, 30)
    whole = run.predict(later)
    assert list(whole) == ["node", "t", "p_spam", "p_bot"]
    bare = run.predict(later.drop(columns=list(NAMES)))
    other = run.predict(later[["source", "target", "time", "bot", "spam"]])
    for one in (bare, other):
        pd.testing.assert_frame_equal(one[["p_spam", "p_bot"]], whole[["p_spam", "p_bot"]], rtol=1e-5)
    first_row = run.predict(later[:1])
    np.testing.assert_allclose(first_row["p_bot"], whole["p_bot"][:1], rtol=1e-5)
    live = score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")
    np.testing.assert_allclose(live["p_spam"], whole["p_spam"], rtol=1e-5)
    outputs = run.node_outputs(["u1", "u2"], [500, 600])
    turned = run.node_outputs(["u2", "u1"], [600, 500])
    assert outputs["p_bot"].tolist() == pytest.approx(turned["p_bot"].tolist()[::-1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_labels_of_test_events_do_not_influence_training(name: str, runs: Callable[[str], Run], tmp_path: Path) -> None:
    other = table(0, 160)
    first = 160 - len(runs(name).predict(split="test"))
    other.loc[first:, list(NAMES)] = 1 - other.loc[first:, list(NAMES)]
    run = fitted(name, other, tmp_path / "other")
    one, other = (which.predict()[["p_spam", "p_bot"]] for which in (run, runs(name)))
    pd.testing.assert_frame_equal(one, other, rtol=1e-5)
    assert run.metrics["val"] == pytest.approx(runs(name).metrics["val"], rel=1e-5)


@pytest.mark.slow
def test_multilabel_cells_and_regression_values_are_targets(tmp_path: Path) -> None:
    frame = table(0, 160)
    words = [";".join(n for n in NAMES if row[n] == 1) for _, row in frame.iterrows()]
    cells = fitted(
        "ctdg-ssm-nodes", frame.drop(columns=list(NAMES)).assign(tags=words), tmp_path / "cells",
        **{"read.label_column": "tags", "read.multilabel": "all"},
    )  # fmt: skip
    assert {"p_spam", "p_bot"} <= set(cells.predict())
    amounts = fitted(
        "ctdg-ssm-nodes", frame.assign(half=frame.price / 2), tmp_path / "amounts",
        **{"read.label_column": "price,half", "read.task": "regression"},
    )  # fmt: skip
    found = amounts.predict(split="test")
    assert set(amounts.baselines) == {"mean", "median", "last"}
    errors = [mae(found[[f"label_{n}"]].to_numpy(), found[[f"prediction_{n}"]].to_numpy()) for n in ("price", "half")]
    assert amounts.metrics["test"]["mae"] == pytest.approx(np.mean(errors), rel=F64)
    assert abs(found["prediction_price"] - 2 * found["prediction_half"]).max() < 200


@pytest.mark.parametrize(
    ("change", "settings", "error", "words"),
    [
        (lambda f: f.assign(bot="yes"), {}, DataError, "bot.*row 0"),
        (lambda f: f.assign(bot=np.nan), {}, DataError, "bot"),
        (lambda f: f.assign(spam=np.nan, bot=np.nan), {}, DataError, ""),
        (lambda f: f.assign(bot=np.inf), {}, DataError, "bot.*row 0"),
        (lambda f: f, {"read.label_column": "spam,bat"}, DataError, "bat"),
        (lambda f: f, {"read.label_column": "spam,spam"}, DataError, "spam"),
        (lambda f: f, {"read.edge_columns": ["bot"]}, ConfigError, "bot"),
        (lambda f: f, {"class_weights": "balanced"}, ConfigError, "class_weights"),
        (lambda f: f, {"metric": "macro_f2"}, ConfigError, "macro_f2"),
    ],
)
def test_labels_that_cannot_be_trained_on_are_named(
    change: Any, settings: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words or None):
        fitted("dyg-mamba-nodes", change(table(0, 160)), tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_label_named_as_a_feature_is_rejected(tmp_path: Path) -> None:
    frame = table(0, 160).rename(columns={"bot": "f1"}).assign(f0=1.0)
    frame.to_csv(tmp_path / "events.csv", index=False)
    read = read_events(tmp_path / "events.csv", label_column="spam,f1")
    assert read.class_names == ("spam", "f1")
    assert read.edge_attr.shape == (160, 1)
