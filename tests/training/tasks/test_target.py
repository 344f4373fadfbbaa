"""Targets: missing values are ignored, for any batches and units; nodes with regression values and labels."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.metrics import balanced_accuracy, micro_f1, r2, spearman
from hopstate.runs.run import fit
from hopstate.testing.conformance import F32_TIGHT
from hopstate.training.tasks.target import (
    class_weights,
    goal_of,
    make_target,
    metric_names,
    target_from_record,
    target_record,
)

ALL = np.arange(40)


def made(goal: str, seed: int = 0) -> tuple[np.ndarray, torch.Tensor]:
    rng = np.random.default_rng(seed)
    if goal == "classes":
        y, width = rng.integers(-1, 3, 40), 3
    elif goal == "labels":
        y, width = rng.integers(0, 2, (40, 3)).astype(np.float32), 3
        y[rng.random(y.shape) < 0.3] = np.nan
    else:
        y, width = rng.normal(1e4, 300, (40, 2)).astype(np.float32), 2
        y[rng.random(y.shape) < 0.3] = np.nan
    return y, torch.from_numpy(rng.normal(size=(40, width)))


def test_goals_follow_from_the_stored_labels():
    assert goal_of(np.array([0, 2, -1])) == "classes"
    assert goal_of(np.array([0.0, 1.0, np.nan])) == "labels"
    assert goal_of(np.array([0.0, 0.5])) == "values"
    assert goal_of(np.full((3, 2), np.nan)) == "values"


@pytest.mark.parametrize("goal", ["classes", "labels", "values"])
def test_missing_labels_change_neither_loss_nor_metrics(goal):
    y, out = made(goal)
    target = make_target(y, ALL, None, "auto")
    rows = target.rows(y)
    known = target.has_label(rows)
    assert 0 < known.sum() < 40 or goal == "labels"
    loss = target.loss(out, torch.from_numpy(rows))
    assert math.isclose(loss, target.loss(out[known], torch.from_numpy(rows[known])), rel_tol=1e-12)
    assert target.score(rows, out) == pytest.approx(target.score(rows[known], out[known]))
    assert all(np.isfinite(v) for v in target.score(rows, out).values())
    blank = rows.copy()
    blank[:] = -1 if goal == "classes" else np.nan
    assert target.loss(out.requires_grad_(), torch.from_numpy(blank)) == 0
    with pytest.raises(DataError):
        target.score(blank, out.detach())


@pytest.mark.parametrize("goal", ["classes", "labels", "values"])
def test_weights_of_one_part_by_row_count_give_the_mean(goal):
    y, out = made(goal)
    target = make_target(y, ALL, None, "auto")
    rows = target.rows(y)
    full = rows[(rows >= 0) if goal == "classes" else ~np.isnan(rows).any(1)]
    out = out[: len(full)]
    whole = target.loss(out, torch.from_numpy(full))
    even = target.loss(out, torch.from_numpy(full), torch.full((len(full),), 1 / len(full), dtype=out.dtype))
    assert math.isclose(whole, even, rel_tol=1e-9)
    cut = [target.loss(out[i : i + 1], torch.from_numpy(full[i : i + 1])) for i in range(len(full))]
    assert math.isclose(whole, sum(cut) / len(cut), rel_tol=1e-6)


def test_regression_does_not_depend_on_the_unit():
    y, out = made("values")
    metres, km = make_target(y, ALL, None, "rmse"), make_target(y / 1000, ALL, None, "rmse")
    a = metres.loss(out, torch.from_numpy(metres.rows(y)))
    b = km.loss(out, torch.from_numpy(km.rows(y / 1000)))
    assert math.isclose(a, b, rel_tol=1e-5)
    np.testing.assert_allclose(metres.predictions(out), 1000 * km.predictions(out), rtol=F32_TIGHT)
    few = make_target(np.where(ALL[:, None] < 10, y, 5 * y), ALL[:10], None, "auto")
    assert few == make_target(y, ALL[:10], None, "auto")  # rows outside training are ignored
    constant = make_target(np.full((4, 1), 7.0, np.float32), ALL[:4], None, "auto")
    assert constant.scale == (1.0,)


def test_class_weights_come_from_training_rows():
    y = np.array([0] * 30 + [1] * 10)
    balanced, complement = (make_target(y, ALL, None, "auto", weights=kind) for kind in ("balanced", "complement"))
    assert complement.class_weights == (0.25, 0.75)
    np.testing.assert_allclose(balanced.class_weights, (40 / 60, 2))
    out = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 2)))
    share = torch.from_numpy(y)
    expected = F.cross_entropy(out, share, out.new_tensor((0.25, 0.75)))
    assert math.isclose(complement.loss(out, share), expected)
    assert math.isclose(balanced.loss(out, share), expected)  # equal for two classes, up to scale
    assert class_weights(np.array([1, 1]), ("a", "b", "c"), "balanced") == (0, 1, 0)
    with pytest.raises(ConfigError, match="class_weights"):
        make_target(np.array([0.5, 2.0]), ALL[:2], None, "auto", weights="balanced")


def test_metrics_depend_on_the_goal_and_the_dataset():
    assert metric_names("auto", ("macro_f1",), "classes", 3)[0] == "macro_f1"
    assert metric_names("auto", ("macro_f1",), "values", 1)[0] == "mae"
    assert metric_names("accuracy-SBM", (), "classes", 2)[0] == "balanced_accuracy"
    with pytest.raises(ConfigError, match="rmse"):
        metric_names("rmse", (), "classes", 2)


def test_a_run_saves_its_target():
    for goal in ("classes", "labels", "values"):
        y, _ = made(goal)
        target = make_target(y, ALL, None, "auto", weights="balanced" if goal == "classes" else "none")
        assert target_from_record({"target": target_record(target), "metrics": []}, "auto") == target
    old = target_from_record({"class_names": ["a", "b"], "metrics": ["roc_auc"]}, "auto")
    assert (old.goal, old.names, old.metrics[0]) == ("classes", ("a", "b"), "roc_auc")


def test_metrics_equal_scikit_learns():
    from sklearn.metrics import balanced_accuracy_score, f1_score, r2_score

    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), 50)
    assert math.isclose(balanced_accuracy(y, p), balanced_accuracy_score(y, p.argmax(1)))
    labels, chances = rng.integers(0, 2, (50, 4)).astype(float), rng.random((50, 4))
    assert math.isclose(micro_f1(labels, chances), f1_score(labels, chances > 0.5, average="micro"))
    values = rng.normal(size=(50, 2))
    assert math.isclose(r2(values, values + 0.1 * labels[:, :2]), r2_score(values, values + 0.1 * labels[:, :2]))


@pytest.mark.parametrize(
    ("method", "goal"),
    [
        ("sage", "column"),
        ("nagphormer", "labels"),
        pytest.param("sage", "binary", marks=pytest.mark.slow),
        pytest.param("gmn", "values", marks=pytest.mark.slow),
    ],
)
def test_nodes_have_regression_and_multilabel_targets(tmp_path, method, goal):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = {
        "values": 1e4 + 100 * x[:, 0],
        "column": (1e4 + 100 * x[:, :1]),
        "labels": (x[:, :2] > 0).astype(np.float32),
        "binary": (x[:, 0] > 0).astype(np.float32),
    }[goal].astype(np.float32)
    y[::9] = np.nan
    part = np.arange(60) % 3
    masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
    graph = Graph.from_edges(rng.integers(0, 60, (150, 2)), 60, x=x, y=y, masks=masks)
    small = {
        "sage": {"model": {"dim": 16, "num_layers": 1}},
        "nagphormer": {"model": {"dim": 16, "num_heads": 2}, "tokens": {"num_hops": 1, "eigenvectors": 1}},
        "gmn": {"model": {"dim": 16, "state_dim": 4, "mpnn_layers": 1}, "walks": {"max_length": 1, "walks": 1}},
    }[method]
    loop = {"epochs": 1, "optim": {"lr": 1e-2}}
    run = fit(method, graph, out=tmp_path / "run", config={**small, "loop": loop})
    found = run.metrics["test"]
    assert all(np.isfinite(v) for v in found.values())
    assert set(found) >= ({"mae", "rmse", "r2"} if goal in ("values", "column") else {"average_precision", "micro_f1"})
    table = run.predict(data=graph)
    assert len(table) == 60
    assert table.notna().any().all()
    if goal in ("values", "column"):
        assert 9e3 < table.prediction.mean() < 1.1e4  # in the data's unit
    unlabeled = run.predict(data=graph.with_(y=None, masks={}))
    mine = [c for c in unlabeled if not c.startswith("label")]
    pd.testing.assert_frame_equal(unlabeled[mine], table[mine], rtol=1e-5)
    assert run.evaluate(data=graph) == pytest.approx(found, rel=1e-5)


def test_spearman_equals_scipys():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    values, found = rng.normal(size=(2, 60, 1)).round(1)  # with ties
    assert math.isclose(spearman(values, found), spearmanr(values[:, 0], found[:, 0]).statistic)
    gaps = np.where(rng.random((60, 1)) < 0.2, np.nan, values)
    known = ~np.isnan(gaps[:, 0])
    assert math.isclose(spearman(gaps, found), spearmanr(values[known, 0], found[known, 0]).statistic)
