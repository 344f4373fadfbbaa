"""Baselines of static data that `fit` evaluates after training, on the run's own split and with its metrics.

Nodes and sets of graphs: the majority class (of numbers the mean and the median), and logistic or ridge regression.
Links: proximity by the training links. Baselines of event streams are in `heuristics.floors` and `pair_trees`.
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
from hopstate.methods.method import Context, Floors, RunConfig
from hopstate.ops.proximity import KINDS, Proximity
from hopstate.random import named_rng
from hopstate.training.tasks.graph import GraphTask, Level
from hopstate.training.tasks.node import NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.target import Target

Rows = Mapping[str, np.ndarray]  # split → rows
Predict = Callable[[np.ndarray], np.ndarray]  # features (n, F) → outputs (n, width)
FIT_CELLS, MAX_CELLS = 10**7, 10**8  # most numbers that a linear model is fitted to, and that describe a set of graphs
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the L2 penalty per training row; validation chooses
TINY = 1e-6  # probability of what never occurs
BLOCK = 1 << 16  # rows that are predicted at a time


def graph_baselines(graph: Graph, config: RunConfig, context: Context, task: NodeTask[Any] | StaticLinkTask) -> Floors:
    """Return test metrics of a graph's baselines by name, and as "val_<metric>" the validation metric."""
    if isinstance(task, StaticLinkTask):
        return _link_baselines(task)
    labels = task.labels
    return _baselines(labels.target, labels.y, labels.split, graph.x, config.loop.seed)


def graph_set_baselines(graphs: GraphSet, config: RunConfig, context: Context, task: GraphTask) -> Floors:
    """Return the baselines of a set of graphs; see `graph_baselines`."""
    rows = {split: task.target_rows(split) for split in ("train", "val", "test")}
    count = graphs.num_nodes if task.level != "edge" else graphs.union.num_edges
    x = describe(graphs, task.level) if count * (graphs.union.num_features + 4) <= MAX_CELLS else None
    return _baselines(task.target, task.y, rows, x, config.loop.seed)


def below(
    metrics: Mapping[str, float | None], floors: Mapping[str, Mapping[str, float | None]], metric: str, mode: str
) -> list[str]:
    """Return the baselines that a run's metric does not exceed; none of an undefined metric."""
    value, sign = metrics.get(metric), 1 if mode == "max" else -1
    if value is None or np.isnan(value):
        return []
    known = {name: own for name, values in floors.items() if (own := values.get(metric)) is not None and own == own}
    return [name for name, floor in known.items() if not sign * value > sign * floor]


def _link_baselines(task: StaticLinkTask) -> Floors:
    near = Proximity(task.messages.indptr, task.messages.indices)
    test, val, key = task.question("test"), task.question("val"), f"val_{task.metric}"
    found: Floors = {}
    for kind in KINDS:
        score = partial(near.pairs, kind)
        found[kind] = {**link_metrics(test, score), key: link_metrics(val, score)[task.metric]}
    found["chance"] = {key: link_metrics(val, lambda u, v: np.zeros(len(u)))[task.metric]}
    return found


def _baselines(target: Target, y: np.ndarray, split: Rows, x: np.ndarray | None, seed: int) -> Floors:
    if not target.has_label(y[split["test"]]).any():
        return {}
    train, nothing = split["train"][target.has_label(y[split["train"]])], np.zeros((len(y), 0))
    unweighted, values = replace(target, class_weights=None), target.goal == "values"
    found = {}
    for name in ("mean", "median") if values else ("majority",):
        found[name] = _evaluate(unweighted, y, split, _fitted(unweighted, name, nothing, y, train))
    if x is None or not len(train) or not x.shape[1]:
        return found
    some = np.sort(named_rng(seed).permutation(train)[: max(100, FIT_CELLS // x.shape[1])])
    name = "ridge" if values else "logistic"
    return found | {name: _evaluate(target, y, split, _best(target, name, x, y, some, split["val"]))}


def _best(target: Target, name: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, val: np.ndarray) -> Predict:
    """Return the linear model whose penalty is best on validation."""
    val = val[target.has_label(y[val])]
    rows = val if len(val) else train
    models = [_fitted(target, name, x, y, train, strength) for strength in STRENGTHS]
    scores = [target.score(y[rows], torch.from_numpy(model(rows))) for model in models]
    return models[int(np.argmax([selection_value(s, target.metrics[0], target.mode) for s in scores]))]


def _evaluate(target: Target, y: np.ndarray, split: Rows, outputs: Predict) -> dict[str, float]:
    """Return test metrics, and the validation metric that chooses a model."""
    found = target.score(y[split["test"]], torch.from_numpy(outputs(split["test"])))
    metric, val = target.metrics[0], split["val"]
    if target.has_label(y[val]).any():
        found[f"val_{metric}"] = target.score(y[val], torch.from_numpy(outputs(val)))[metric]
    return found


def _fitted(
    target: Target, name: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, strength: float = 1.0
) -> Predict:
    """Return rows → outputs of a baseline fitted to training rows; of several targets a model for each."""
    if target.goal == "classes":
        models = [_classifier(name, x[train], y[train], strength, target.width, target.weights)]
    else:
        fit = _regressor if target.goal == "values" else _log_odds
        known = [train[~np.isnan(y[train, t])] for t in range(y.shape[1])]
        models = [fit(name, x[rows], y[rows, t], strength) for t, rows in enumerate(known)]
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
        own = None if weights is None else {c: weights[c] for c in classes}
        regression = LogisticRegression(C=1 / (strength * len(y)), max_iter=300, class_weight=own)
        model = make_pipeline(StandardScaler(), regression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)

    def predict(rows: np.ndarray) -> np.ndarray:
        out = np.full((len(rows), width), np.log(TINY))
        out[:, classes] = np.log(np.maximum(model.predict_proba(rows), TINY))
        return out

    return predict


def _log_odds(name: str, x: np.ndarray, y: np.ndarray, strength: float) -> Predict:
    both = _classifier(name, x, y.astype(np.int64), strength, 2)
    return lambda rows: np.diff(both(rows))


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


def describe(graphs: GraphSet, level: Level) -> np.ndarray:
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


__all__ = ["below", "describe", "graph_baselines", "graph_set_baselines"]
