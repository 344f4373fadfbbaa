"""Baselines of graph sets: a linear model on sizes, degrees and features, for each target and level."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.methods.shared import baselines
from hopstate.methods.shared.baselines import graph_set_baselines, summary_features
from hopstate.runs.run import fit
from hopstate.testing.conformance import F64
from hopstate.training.tasks.graph import GraphTask
from hopstate.training.tasks.target import make_target

COUNT = 120


def rings(seed: int = 0) -> GraphSet:
    """Return rings of 3 to 12 nodes with random tags."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 13, COUNT)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    near = [first + (np.arange(size) + 1) % size for first, size in zip(offsets, sizes, strict=False)]
    edges = np.stack([np.arange(offsets[-1]), np.concatenate(near)], 1)
    x = np.eye(3, dtype=np.float32)[rng.integers(0, 3, offsets[-1])]
    return GraphSet(union=Graph.from_edges(edges, x=x), offsets=offsets, masks=masks())


def masks() -> dict[str, np.ndarray]:
    order = np.random.default_rng(1).permutation(COUNT)
    return folds([order[:80]], [order[80:]], COUNT)


def baselines_of(graphs: GraphSet, y: np.ndarray, level: Any = "graph", metric: str = "auto") -> dict[str, Any]:
    split = graphs.split(0)
    rows = split["train"] if level == "graph" else graphs.rows(split["train"])[0]
    target = make_target(y, rows if level != "edge" else graphs.edges(split["train"]), None, metric)
    task = GraphTask(
        None, graphs, None, level=level, y=target.rows(y), target=target, split=split  # type: ignore[arg-type]
    )  # fmt: skip
    config = type("Config", (), {"loop": type("Loop", (), {"seed": 0})})
    return graph_set_baselines(graphs, config, None, task)  # type: ignore[arg-type]


def test_sizes_and_tags_are_features() -> None:
    graphs = rings()
    sizes, tags = np.diff(graphs.offsets), np.add.reduceat(graphs.union.x[:, 0], graphs.offsets[:-1])
    for y in ((sizes > 7).astype(np.int64), (tags > 2).astype(np.int64), np.digitize(sizes, (6, 9))):
        found = baselines_of(graphs, y)
        assert set(found) == {"majority", "logistic"}
        assert found["logistic"]["accuracy"] > 0.9 > found["majority"]["accuracy"]


def test_regression_has_mean_and_ridge_baselines() -> None:
    graphs = rings()
    y = (2.5 * np.diff(graphs.offsets) + 7).astype(np.float32)
    y[::7] = np.nan
    found = baselines_of(graphs, y)
    assert set(found) == {"mean", "median", "ridge"}
    assert found["ridge"]["mae"] < 0.3 < 3 < found["mean"]["mae"]
    both = baselines_of(graphs, np.stack([y, -y], 1))
    assert both["ridge"]["mae"] < 0.3


def test_labels_with_missing_values_and_a_constant_label() -> None:
    graphs = rings()
    y = np.stack([np.diff(graphs.offsets) > 7, np.ones(COUNT)], 1).astype(np.float32)
    y[::5, 0] = np.nan
    found = baselines_of(graphs, y)
    assert found["logistic"]["average_precision"] > 0.95


@pytest.mark.parametrize("level", ["node", "edge"])
def test_baselines_of_nodes_and_edges(level: str) -> None:
    graphs = rings()
    big = (np.diff(graphs.offsets) > 7)[graphs.graph_of]
    y = (big if level == "node" else big[graphs.union.edge_index()[0]]).astype(np.int64)
    assert baselines_of(graphs, y, level)["logistic"]["accuracy"] > 0.9


@pytest.mark.parametrize("level", ["graph", "node", "edge"])
def test_features_of_a_graph_do_not_depend_on_the_set(level: str) -> None:
    """Neither other graphs of the set nor its position among them matter."""
    graphs = rings()
    attr = np.random.default_rng(3).normal(size=(graphs.union.num_edges, 2)).astype(np.float32)
    graphs = GraphSet(union=graphs.union.with_(edge_attr=attr), offsets=graphs.offsets)
    first, bound = graphs.offsets[1], graphs.union.indptr[graphs.offsets[1]]
    single = GraphSet(
        union=Graph(
            indptr=graphs.union.indptr[: first + 1], indices=graphs.union.indices[:bound], x=graphs.union.x[:first],
            edge_attr=attr[:bound],
        ),
        offsets=graphs.offsets[:2],
    )  # fmt: skip
    own = summary_features(single, level)
    np.testing.assert_allclose(summary_features(graphs, level)[: len(own)], own, rtol=F64)


def test_one_class_and_unknown_targets_are_accepted() -> None:
    graphs, y = rings(), np.zeros(COUNT, np.int64)
    assert baselines_of(graphs, y, metric="accuracy")["logistic"]["accuracy"] == 1.0
    y[graphs.split(0)["train"]] = -1
    assert set(baselines_of(graphs, y, metric="accuracy")) == {"majority"}


def test_baselines_that_need_too_much_memory_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = rings()
    y = (np.diff(graphs.offsets) > 7).astype(np.int64)
    monkeypatch.setattr(baselines, "MAX_CELLS", 7 * graphs.num_nodes - 1)
    assert set(baselines_of(graphs, y)) == {"majority"}
    monkeypatch.setattr(baselines, "MAX_CELLS", 7 * graphs.num_nodes)
    assert set(baselines_of(graphs, y)) == {"majority", "logistic"}


def test_a_run_below_the_logistic_baseline(tmp_path: Path) -> None:
    graphs = rings()
    named = GraphSet(
        union=graphs.union, offsets=graphs.offsets, masks=graphs.masks, y=(np.diff(graphs.offsets) > 7).astype(np.int64)
    )
    settings = {"loop.epochs": 1, "loop.progress": False, "model.dim": 2, "loop.optim.lr": 1e-9}
    run = fit("gin-graphs", named, out=tmp_path / "run", config=settings)
    assert run.baselines["logistic"]["accuracy"] > run.metrics["test"]["accuracy"]


def test_constant_baselines_use_training_rows() -> None:
    graphs = rings()
    train, test = graphs.split(0)["train"], graphs.split(0)["test"]
    y = np.arange(COUNT, dtype=np.float32) ** 2
    y[train[:5]] = np.nan
    found = baselines_of(graphs, y)
    assert found["mean"]["mae"] == pytest.approx(np.abs(y[test] - np.nanmean(y[train])).mean(), rel=1e-5)
    assert found["median"]["mae"] == pytest.approx(np.abs(y[test] - np.nanmedian(y[train])).mean(), rel=1e-5)
    classes = np.arange(COUNT) % 4 % 3
    assert baselines_of(graphs, classes)["majority"]["accuracy"] == pytest.approx((classes[test] == 0).mean())


def test_a_target_missing_in_training_is_accepted() -> None:
    graphs = rings()
    y = np.stack([np.diff(graphs.offsets), np.ones(COUNT)], 1).astype(np.float32)
    y[graphs.split(0)["train"], 1] = np.nan
    assert {"mean", "median", "ridge"} == set(baselines_of(graphs, y))
