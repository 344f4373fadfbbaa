"""Trees for labels of events: their inputs, no leaks, and invariances."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.dates import Clock
from hopstate.data.events import EventStream, canonical_tie_order
from hopstate.errors import ConfigError
from hopstate.methods.pair_trees.event_method import LabelHistory, label_names
from hopstate.runs.inference import check_leak
from hopstate.runs.run import Run, evaluate, fit, score_stream

NAMES = ("idle", "busy", "gone")
SETTINGS: dict[str, Any] = {
    "loop": {"progress": False, "logger": "none", "device": "cpu"},
    "model.num_trees": 40,
    "model.min_leaf": 5,
    "read.time_unit": "s",
}


def table(first: int, count: int, labels: str = "binary") -> pd.DataFrame:
    """Return events with ties. Labels follow from the amount and the source, some are unknown; those named "state"
    are constant over four events of a source.
    """
    rng = np.random.default_rng([5, first])
    src, dst = rng.integers(0, 10, count), rng.integers(0, 8, count)
    amount = rng.normal(size=count).round(3)
    found = pd.DataFrame(
        {
            "source": [f"u{i}" for i in src],
            "target": [f"v{i}" for i in dst],
            "time": first + np.arange(count) * 2 // 3,
            "amount": amount,
        }
    )
    if labels == "values":
        return found.assign(label=amount + src)
    if labels == "state":
        return found.assign(label=found.groupby("source").cumcount() // 4 % 2)
    if labels == "columns":
        return found.assign(big=(amount > 0).astype(float), odd=src % 2)
    own = np.array(NAMES)[(src + (amount > 0)) % 3] if labels == "classes" else (amount > 0).astype(int).astype(object)
    own = np.array(own, object)
    own[rng.random(count) > 0.8] = None
    return found.assign(label=own)


def trained(home: Path, events: pd.DataFrame, name: str = "run", **settings: Any) -> Run:
    events.to_csv(home / f"{name}.csv", index=False)
    config = {**SETTINGS, "read.edge_columns": ["amount"], **settings}
    return fit("event-trees", home / f"{name}.csv", out=home / name, config=config)


@pytest.mark.parametrize("labels", ["binary", "classes", "values", "columns"])
def test_labels_are_predicted_from_columns_of_the_event(labels: str, tmp_path: Path) -> None:
    extra = {"values": {"read.task": "regression"}, "columns": {"read.label_column": "big,odd"}}.get(labels, {})
    run = trained(tmp_path, table(0, 600, labels), **extra)
    metrics = run.metrics["test"]
    assert evaluate(run.path) == pytest.approx(metrics)
    if labels == "values":
        assert metrics["mae"] < 1
    else:
        assert metrics["accuracy" if labels == "classes" else "roc_auc"] > 0.8
    assert len(run.predict(split="test")) == 90
    assert check_leak(run.path).scores > 0


def test_labels_at_or_after_an_event_do_not_matter(tmp_path: Path) -> None:
    run = trained(tmp_path, table(0, 300, "state"))
    task, stream = task_and_stream(run)
    rows = np.arange(100, 200)
    before = scores(task, stream, rows)
    later = stream.t >= stream.t[100]
    assert np.array_equal(
        scores(task, stream.with_(labels=np.where(later, 1 - stream.labels, stream.labels)), rows[:1]), before[:1]
    )
    earlier = np.where(later, stream.labels, 1 - stream.labels)
    assert not np.array_equal(scores(task, stream.with_(labels=earlier), rows), before)


def test_order_of_ties_ids_and_time_units_do_not_matter(tmp_path: Path) -> None:
    run = trained(tmp_path, table(0, 300, "state"))
    task, stream = task_and_stream(run)
    stream, rows = canonical_tie_order(stream), np.arange(100, 300)
    before = scores(task, stream, rows)
    columns = ("src", "dst", "edge_attr", "labels")
    order = np.lexsort((np.random.default_rng(0).random(300), stream.t))
    shuffled = stream.with_(**{name: getattr(stream, name)[order] for name in columns})
    assert np.array_equal(scores(task, canonical_tie_order(shuffled), rows), before)
    place, labels = np.argsort(order)[rows], slice(-len(label_names(task.targets.target)), None)
    own, other = (
        task.scorer_over(events).features(*task.query_columns(events, at))
        for events, at in ((stream, rows), (shuffled, place))
    )
    assert np.array_equal(own[:, labels], other[:, labels], equal_nan=True)
    number = np.random.default_rng(1).permutation(stream.num_nodes)
    relabeled = stream.with_(src=number[stream.src], dst=number[stream.dst], node_ids=None)
    assert np.array_equal(scores(task, relabeled, rows), before)
    millis = stream.with_(t=stream.t * 1000, time_unit="ms")
    assert scores(task, millis, rows) == pytest.approx(before, rel=1e-5)


def test_later_events_are_scored_live_without_label_history(tmp_path: Path) -> None:
    run = trained(tmp_path, table(0, 300), label_history=False)
    later = table(300, 40)
    live = score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")
    pd.testing.assert_frame_equal(live, run.predict(later).drop(columns="label", errors="ignore"))
    assert live["score"].corr((later["amount"] > 0).astype(float)) > 0.5
    with pytest.raises(ConfigError, match="event-trees"):
        run.node_outputs(["u1"], 500)


def test_later_events_are_rejected_with_label_history(tmp_path: Path) -> None:
    run = trained(tmp_path, table(0, 200))
    with pytest.raises(ConfigError, match="label_history"):
        score_stream(run.path, table(200, 10), save=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_label_history_equals_a_manual_computation() -> None:
    values = np.array([[1], [0], [1], [1]]) << 20
    history = LabelHistory(np.array([0, 1, 0, 0]), np.array([1, 2, 4, 4]), values, Clock())
    found = history.read(np.array([0, 0, 0, 1, 2]), np.array([1, 4, 5, 3, 9]))
    number, gap = np.log1p([0, 1, 3, 1, 0]), np.log1p([np.nan, 3, 1, 1, np.nan])
    last, mean = [np.nan, 1, 1, 0, np.nan], [np.nan, 1, 1, 0, np.nan]
    np.testing.assert_allclose(found, np.stack([number, gap, last, mean], 1))


@pytest.mark.parametrize("method", ["dyg-mamba-nodes", "ctdg-ssm-nodes"])
def test_neural_runs_list_the_trees_as_a_baseline(method: str, tmp_path: Path) -> None:
    small = {
        "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
        "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4},
    }
    table(0, 2000).to_csv(tmp_path / "own.csv", index=False)
    loop = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
    config = {**loop, **small[method], "read.edge_columns": ["amount"]}
    run = hopstate.fit(method, tmp_path / "own.csv", out=tmp_path / "run", config=config)
    assert run.baselines["event-trees"]["roc_auc"] > 0.9
    assert not (tmp_path / "run" / "importances.csv").exists()


def task_and_stream(run: Run) -> tuple[Any, EventStream]:
    from hopstate.runs.load import load_run

    with load_run(run.path) as (_, task):
        return task, task.stream


def scores(task: Any, stream: EventStream, rows: np.ndarray) -> np.ndarray:
    """Return the scores of events of an altered stream."""
    found: np.ndarray = task.score_events(task.scorer_over(stream), *task.query_columns(stream, rows))
    return found
