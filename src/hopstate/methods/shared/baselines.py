"""Baselines of static data that `fit` evaluates after training, on the run's own split and with its metrics.

Nodes and sets of graphs: the majority class (of numbers the mean and the median), and logistic or ridge regression.
Links: proximity by the training links. Baselines of event streams are in `heuristics` and `pair_trees`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.evaluation.metrics import selection_value
from hopstate.evaluation.static_link import link_metrics
from hopstate.methods.method import Baselines, Context, RunConfig
from hopstate.ops.proximity import KINDS, Proximity
from hopstate.random import named_rng
from hopstate.training.tasks.graph import GraphTask, Level
from hopstate.training.tasks.node import NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.target import Target

Rows = Mapping[str, np.ndarray]  # split → rows
Predict = Callable[[np.ndarray], np.ndarray]  # features (n, F) → outputs (n, width)
FIT_CELLS, MAX_CELLS = 10**7, 10**8  # limits on array cells: to fit a linear model, to describe a set of graphs
L2_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the L2 penalty per training row; validation chooses
MIN_PROBABILITY = 1e-6  # of classes without training rows
BLOCK = 1 << 16  # rows per prediction


def graph_baselines(
    graph: Graph, config: RunConfig, context: Context, task: NodeTask[Any] | StaticLinkTask
) -> Baselines:
    """Return test metrics of a graph's baselines by name, and as "val_<metric>" the validation metric."""
    if isinstance(task, StaticLinkTask):
        return _link_baselines(task)
    labels = task.labels
    return _baselines(labels.target, labels.y, labels.split, graph.x, config.loop.seed)


def graph_set_baselines(graphs: GraphSet, config: RunConfig, context: Context, task: GraphTask) -> Baselines:
    """Return the baselines of a set of graphs; see `graph_baselines`."""
    rows = {split: task.target_rows(split) for split in ("train", "val", "test")}
    count = graphs.num_nodes if task.level != "edge" else graphs.union.num_edges
    x = summary_features(graphs, task.level) if count * (graphs.union.num_features + 4) <= MAX_CELLS else None
    return _baselines(task.target, task.y, rows, x, config.loop.seed)


def baselines_not_beaten(
    metrics: Mapping[str, float | None], baselines: Mapping[str, Mapping[str, float | None]], metric: str, mode: str
) -> list[str]:
    """Return the baselines that a run's metric does not exceed. Empty if the metric is undefined."""
    value, sign = metrics.get(metric), 1 if mode == "max" else -1
    if value is None or np.isnan(value):
        return []
    values_by_name = {
        name: number
        for name, values in baselines.items()
        if (number := values.get(metric)) is not None and number == number
    }
    return [name for name, baseline in values_by_name.items() if not sign * value > sign * baseline]


def _link_baselines(task: StaticLinkTask) -> Baselines:
    proximity = Proximity(task.messages.indptr, task.messages.indices)
    test, val, key = task.question("test"), task.question("val"), f"val_{task.metric}"
    metrics: Baselines = {}
    for kind in KINDS:
        score = partial(proximity.pairs, kind)
        metrics[kind] = {**link_metrics(test, score), key: link_metrics(val, score)[task.metric]}
    metrics["chance"] = {key: link_metrics(val, lambda u, v: np.zeros(len(u)))[task.metric]}
    return metrics


def _baselines(target: Target, y: np.ndarray, split: Rows, x: np.ndarray | None, seed: int) -> Baselines:
    if not target.known(y[split["test"]]).any():
        return {}
    train, no_features = split["train"][target.known(y[split["train"]])], np.zeros((len(y), 0))
    unweighted, values = replace(target, class_weights=None), target.goal == "values"
    metrics = {}
    for name in ("mean", "median") if values else ("majority",):
        metrics[name] = _evaluate(unweighted, y, split, _fit_baseline(unweighted, name, no_features, y, train))
    if x is None or not len(train) or not x.shape[1]:
        return metrics
    sample = np.sort(named_rng(seed).permutation(train)[: max(100, FIT_CELLS // x.shape[1])])
    name = "ridge" if values else "logistic"
    return metrics | {name: _evaluate(target, y, split, _best_linear_model(target, name, x, y, sample, split["val"]))}


def _best_linear_model(
    target: Target, name: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, val: np.ndarray
) -> Predict:
    """Return the linear model with the penalty that is best on validation."""
    val = val[target.known(y[val])]
    rows = val if len(val) else train
    models = [_fit_baseline(target, name, x, y, train, strength) for strength in L2_STRENGTHS]
    scores = [target.score(y[rows], torch.from_numpy(model(rows))) for model in models]
    return models[int(np.argmax([selection_value(s, target.metrics[0], target.mode) for s in scores]))]


def _evaluate(target: Target, y: np.ndarray, split: Rows, outputs: Predict) -> dict[str, float]:
    """Return test metrics, and the validation metric that chooses a model."""
    results = target.score(y[split["test"]], torch.from_numpy(outputs(split["test"])))
    metric, val = target.metrics[0], split["val"]
    if target.known(y[val]).any():
        results[f"val_{metric}"] = target.score(y[val], torch.from_numpy(outputs(val)))[metric]
    return results


def _fit_baseline(
    target: Target, name: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, strength: float = 1.0
) -> Predict:
    """Return rows → outputs of a baseline fitted to training rows; of several targets a model for each."""
    if target.goal == "classes":
        models = [_classifier(name, x[train], y[train], strength, target.width, target.weights)]
    else:
        fit = _regressor if target.goal == "values" else _log_odds
        labeled_rows = [train[~np.isnan(y[train, t])] for t in range(y.shape[1])]
        models = [fit(name, x[rows], y[rows, t], strength) for t, rows in enumerate(labeled_rows)]
    center, scale = np.asarray(target.center or 0.0), np.asarray(target.scale or 1.0)

    def outputs(rows: np.ndarray) -> np.ndarray:
        blocks = [x[rows[start : start + BLOCK]] for start in range(0, len(rows), BLOCK)]
        return np.concatenate(
            [(np.concatenate([model(block) for model in models], 1) - center) / scale for block in blocks]
        )

    return outputs


def _classifier(
    name: str, x: np.ndarray, y: np.ndarray, strength: float, width: int, weights: np.ndarray | None = None
) -> Predict:
    """Return features → (n, width) log-probabilities of classes; without training rows they are equal."""
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = np.unique(y)
    if not len(classes):
        return lambda rows: np.zeros((len(rows), width))
    model = DummyClassifier()
    if name == "logistic" and len(classes) > 1:
        class_weight = None if weights is None else {c: weights[c] for c in classes}
        regression = LogisticRegression(C=1 / (strength * len(y)), max_iter=300, class_weight=class_weight)
        model = make_pipeline(StandardScaler(), regression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)

    def predict(rows: np.ndarray) -> np.ndarray:
        out = np.full((len(rows), width), np.log(MIN_PROBABILITY))
        out[:, classes] = np.log(np.maximum(model.predict_proba(rows), MIN_PROBABILITY))
        return out

    return predict


def _log_odds(name: str, x: np.ndarray, y: np.ndarray, strength: float) -> Predict:
    log_probabilities = _classifier(name, x, y.astype(np.int64), strength, 2)
    return lambda rows: np.diff(log_probabilities(rows))


def _regressor(name: str, x: np.ndarray, y: np.ndarray, strength: float) -> Predict:
    """Return features → (n, 1) values; 0 without training rows."""
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not len(y):
        return lambda rows: np.zeros((len(rows), 1))
    ridge = make_pipeline(StandardScaler(), Ridge(alpha=strength * len(y)))
    model = (ridge if name == "ridge" else DummyRegressor(strategy=name)).fit(x, y.astype(np.float64))
    return lambda rows: model.predict(rows)[:, None]


def summary_features(graphs: GraphSet, level: Level) -> np.ndarray:
    """Return (R, F) features of a set's graphs, nodes or edges for a linear model: sizes, degrees, pooled features."""
    union = graphs.union
    degree = union.degree.astype(np.float64)[:, None]
    x = np.zeros((union.num_nodes, 0)) if union.x is None else union.x
    sizes = np.log1p(np.stack([np.diff(graphs.offsets), np.diff(union.indptr[graphs.offsets])], 1))
    edges = np.zeros((union.num_edges, 0)) if union.edge_attr is None else union.edge_attr
    if level == "graph":
        sums, means = _pooled(np.concatenate([x, degree, degree**2], 1), graphs.offsets)
        return np.concatenate([sizes, means, sums[:, : x.shape[1]], _pooled(edges, union.indptr[graphs.offsets])[1]], 1)
    sources, targets = union.edge_index()
    if level == "edge":
        ends = [x[sources], x[targets], np.abs(x[sources] - x[targets])]
        degrees = np.log1p([degree[sources, 0], degree[targets, 0]]).T
        return np.concatenate([*ends, edges, degrees, sizes[graphs.graph_of[sources]]], 1)
    return np.concatenate([x, _pooled(x[targets], union.indptr)[1], np.log1p(degree), sizes[graphs.graph_of]], 1)


def _pooled(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and means (R, F) of rows bounds[r]..bounds[r + 1] - 1; 0 if there are none."""
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, 0, dtype=np.float64)])
    sums = running[bounds[1:]] - running[bounds[:-1]]
    return sums, sums / np.maximum(np.diff(bounds), 1)[:, None]


__all__ = ["baselines_not_beaten", "graph_baselines", "graph_set_baselines", "summary_features"]
