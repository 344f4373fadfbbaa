"""Regression and multilabel node targets in every static method: units, missing values, baselines, other data."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.testing.conformance import F32_SUM

N = 80
LOOP = {"epochs": 2, "progress": False}
SMALL = {
    "gcn": {},
    "sage": {"batching": {"kind": "top", "batch_size": 40}},
    "gin": {"batching": {"kind": "cluster", "partitioner": "bisection"}},
    "nagphormer": {},
    "gmn": {},
}


@cache
def tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    edges = pd.DataFrame({"source": np.arange(N), "target": np.roll(np.arange(N), 3)})
    x = rng.normal(size=(N, 2))
    features = pd.DataFrame({"id": np.arange(N), "a": x[:, 0], "b": x[:, 1]})
    score = 50 + 8 * x[:, 0] + rng.normal(size=N)
    labels = pd.DataFrame({"id": np.arange(N), "score": score, "spam": (x[:, 0] > 0) * 1.0, "bot": (x[:, 1] > 0) * 1.0})
    labels.loc[::5, ["score", "bot"]] = np.nan
    return edges, features, labels


def fitted(method, out, labels=None, read=None, **more):
    edges, features, own = tables()
    return hopstate.fit(
        method, edges, features=features, labels=own if labels is None else labels, out=out, loop=LOOP,
        read={"label_column": "score"} if read is None else read, **more,
    )  # fmt: skip


@pytest.mark.parametrize("method", SMALL)
def test_regression_outputs_are_in_the_unit_of_the_target(method, tmp_path):
    run = fitted(method, tmp_path / "run", **SMALL[method])
    table = run.predict()
    assert list(table.columns) == ["node", "prediction", "label"]
    assert len(table) == N
    assert 10 < table["prediction"].mean() < 90  # standardized outputs are near 0
    assert set(run.metrics["test"]) >= {"mae", "rmse", "r2", "spearman"}
    known = table["label"].notna()
    assert known.sum() == N - N // 5
    assert {"mean", "median"} <= set(run.baselines)


def test_units_and_unlabeled_rows_do_not_change_training(tmp_path):
    _, _, labels = tables()
    own = fitted("gcn", tmp_path / "0").predict()["prediction"]
    eighth = fitted("gcn", tmp_path / "1", labels.assign(score=labels["score"] * 8)).predict()["prediction"]
    np.testing.assert_allclose(eighth / 8, own, rtol=F32_SUM)
    without = fitted("gcn", tmp_path / "2", labels[labels["score"].notna()]).predict()
    np.testing.assert_array_equal(without["prediction"], own)


def test_multilabel_targets_with_missing_values_and_other_data(tmp_path):
    edges, features, labels = tables()
    run = fitted("gcn", tmp_path / "run", read={"label_column": "spam,bot"})
    table = run.predict()
    assert {"p_spam", "p_bot", "label_spam", "label_bot"} <= set(table.columns)
    turned = run.predict(edges, read={"features": features, "labels": labels, "label_column": "bot,spam"})
    pd.testing.assert_frame_equal(turned[["p_spam", "p_bot"]], table[["p_spam", "p_bot"]])
    np.testing.assert_array_equal(turned["label_spam"], labels["spam"])
    predicted = run.predict(edges, read={"features": features})
    np.testing.assert_array_equal(predicted["p_bot"], table["p_bot"])
