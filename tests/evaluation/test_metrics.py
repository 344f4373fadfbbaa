"""Metrics are found by name, in their direction; a registered one can be named like any other."""

import numpy as np
import pytest
import torch

import hopstate
from hopstate.errors import ConfigError
from hopstate.evaluation.metrics import METRICS, Metric, check_metric, evaluate_metrics, metrics_of_kind, register
from hopstate.training.tasks.target import Target


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> Metric:
    """A classification metric that is lower for better models."""
    monkeypatch.setitem(METRICS, "error_rate", METRICS["accuracy"])  # restored afterwards
    return register(
        Metric(
            name="error_rate",
            label="error rate",
            higher_is_better=False,
            functions={"classes": lambda y, p: float((p.argmax(1) != y).mean())},
        )
    )


def test_a_registered_metric_is_computed_by_name_in_its_direction(errors: Metric) -> None:
    y, p = np.array([0, 1, 1, 1]), np.eye(2)[[0, 1, 1, 0]]
    assert evaluate_metrics("classes", ("error_rate", "accuracy"), y, p)["error_rate"] == 0.25
    target = Target(goal="classes", names=("a", "b"), metrics=("error_rate",))
    assert target.mode == "min"
    assert target.score(y, torch.from_numpy(p))["error_rate"] == 0.25


def test_a_registered_metric_chooses_and_evaluates_a_run(errors: Metric, tmp_path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = (rng.normal(size=(60, 4)) + y[:, None]).astype(np.float32)
    graph = hopstate.Graph.from_edges(rng.integers(0, 60, (200, 2)), 60, x=x, y=y)
    loop = {"epochs": 2, "progress": False, "device": "cpu"}
    run = hopstate.fit("mlp", graph, out=tmp_path / "run", metric="error_rate", loop=loop)
    test = run.metrics["test"]
    assert test["error_rate"] == pytest.approx(1 - test["accuracy"])
    assert run.evaluate(split="test")["error_rate"] == pytest.approx(test["error_rate"])


def test_metrics_of_other_targets_are_rejected_by_name() -> None:
    assert check_metric("mae", "values").higher_is_better is False
    assert "mae" not in metrics_of_kind("classes")
    with pytest.raises(ConfigError, match="mae"):
        check_metric("mae", "classes")
    with pytest.raises(ConfigError, match="roc_auc"):
        evaluate_metrics("classes", ("roc_auc",), np.array([0, 1, 2]), np.eye(3))
