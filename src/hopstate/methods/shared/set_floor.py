"""A floor for sets of graphs that sees sizes, degrees and pooled features: logistic regression, or a ridge for values.

A graph is described by its numbers of nodes and edges, its degrees, the sums and means of its nodes' features (sums of
columns of labels count them) and the means of its edges'; a node by its features, its neighbours' and its graph's size;
an edge by its own and those of its two ends. How strongly weights are held back is chosen on validation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from hopstate.data.graph_set import GraphSet
from hopstate.evaluation.metrics import selection_value
from hopstate.random import named_rng
from hopstate.training.tasks.graph import GraphTask, Level
from hopstate.training.tasks.target import Target

Values = Callable[[np.ndarray], np.ndarray]
Predict = Callable[[np.ndarray], Tensor]
CELLS = 10**7  # entries of the training rows that are looked at: some seconds
WIDEST = 5000  # features from which it is left out
LARGEST = 10**8  # entries of all descriptions from which it is left out: they are held at once, several times
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
SMALLEST = 1e-6


def linear_floor(graphs: GraphSet, task: GraphTask, seed: int) -> tuple[str, Predict] | None:
    """Return "logistic" or "ridge" and what predicts rows; None if nothing is known, or if it would take too much.

    Args:
        graphs: the set, its features as the run has them.
        task: the run's `GraphTask`, with its targets and split.
        seed: draws the training rows, where there are too many.
    """
    target = task.target
    if _entries(graphs, task.level) > LARGEST:
        return None
    known = {split: task.target_rows(split) for split in ("train", "val", "test")}
    known = {split: rows[target.known(task.y[rows])] for split, rows in known.items()}
    x = described(graphs, task.level)
    if not len(known["train"]) or x.shape[1] > WIDEST:
        return None
    most = max(100, CELLS // x.shape[1])
    train = np.sort(named_rng(seed).permutation(known["train"])[:most])
    center, scale = x[train].mean(0), x[train].std(0)
    x = np.where(scale > SMALLEST, (x - center) / np.maximum(scale, SMALLEST), 0)
    judged = known["val"] if len(known["val"]) else train
    best, kept = -np.inf, None  # of validation
    for strength in STRENGTHS:
        predict = _fitted(target, x[train], task.y[train], strength)
        value = selection_value(target.score(task.y[judged], predict(x[judged])), target.metrics[0], target.mode)
        if kept is None or value > best:
            best, kept = value, predict
    assert kept is not None
    best_of = kept
    return "ridge" if target.goal == "values" else "logistic", lambda rows: best_of(x[rows])


def described(graphs: GraphSet, level: Level) -> np.ndarray:
    """Return (R, F) float64 of a set's graphs, nodes or edges: what a linear model is given of each."""
    union = graphs.union
    degree = union.degree.astype(np.float64)
    features = np.zeros((union.num_nodes, 0)) if union.x is None else union.x.astype(np.float64)
    sums, means = _pooled(np.concatenate([features, degree[:, None], degree[:, None] ** 2], 1), graphs.offsets)
    sizes = np.log1p(np.stack([np.diff(graphs.offsets), np.diff(union.indptr[graphs.offsets])], 1))
    if level == "graph":
        spread = np.sqrt(np.maximum(means[:, -1] - means[:, -2] ** 2, 0))
        largest = np.maximum.reduceat(degree, graphs.offsets[:-1])
        parts = [sizes, means[:, :-1], spread[:, None], largest[:, None], sums[:, : features.shape[1]]]
        if union.edge_attr is not None:
            parts.append(_pooled(union.edge_attr.astype(np.float64), union.indptr[graphs.offsets])[1])
        return np.concatenate(parts, 1)
    rows, to = union.edge_index()
    if level == "edge":
        both = [features[rows], features[to], np.abs(features[rows] - features[to])]
        own = [] if union.edge_attr is None else [union.edge_attr.astype(np.float64)]
        return np.concatenate([*both, *own, np.log1p(degree[np.stack([rows, to], 1)]), sizes[graphs.graph_of[rows]]], 1)
    near = _pooled(features[to], union.indptr)[1]
    return np.concatenate([features, near, np.log1p(degree)[:, None], sizes[graphs.graph_of]], 1)


def _entries(graphs: GraphSet, level: Level) -> int:
    """Return about how many numbers `described` works on."""
    union = graphs.union
    attr = 0 if union.edge_attr is None else union.edge_attr.shape[1]
    own = {"graph": 0, "node": 2 * union.num_features, "edge": 3 * union.num_features + 4}[level]
    return union.num_nodes * (2 * union.num_features + 4) + union.num_edges * (attr + own)


def _pooled(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and means (R, F) of rows bounds[r]..bounds[r + 1] - 1; 0 where there are none."""
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, 0)])
    sums = running[bounds[1:]] - running[bounds[:-1]]
    return sums, sums / np.maximum(np.diff(bounds), 1)[:, None]


def _fitted(target: Target, x: np.ndarray, y: np.ndarray, strength: float) -> Predict:
    """Return rows (n, F) → outputs (n, width) of a model whose weights are held back by a strength."""
    if target.goal == "classes":
        shares, classes = _shares(x, y, strength, target.class_weights)

        def of_classes(rows: np.ndarray) -> Tensor:
            out = np.full((len(rows), target.width), np.log(SMALLEST))
            out[:, classes] = np.log(np.maximum(shares(rows), SMALLEST))
            return torch.from_numpy(out)

        return of_classes
    one = _log_odds if target.goal == "labels" else _values
    there = ~np.isnan(y)
    columns = [one(x[known], y[known, t], strength) for t, known in enumerate(there.T)]
    center = np.asarray(target.center or 0.0) if target.goal == "values" else 0.0
    scale = np.asarray(target.scale or 1.0) if target.goal == "values" else 1.0
    return lambda rows: torch.from_numpy((np.stack([column(rows) for column in columns], 1) - center) / scale)


def _shares(
    x: np.ndarray, y: np.ndarray, strength: float, weights: Sequence[float] | None = None
) -> tuple[Values, np.ndarray]:
    """Return rows → (n, C) shares of the classes that y holds, and these classes."""
    from sklearn.linear_model import LogisticRegression

    classes = np.unique(y)
    if len(classes) < 2:
        return lambda rows: np.ones((len(rows), len(classes))), classes
    own = None if weights is None else {c: weights[c] for c in classes}
    model = LogisticRegression(C=1 / (strength * len(y)), max_iter=300, class_weight=own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped early
        return model.fit(x, y).predict_proba, classes


def _log_odds(x: np.ndarray, y: np.ndarray, strength: float) -> Values:
    shares, classes = _shares(x, y.astype(np.int64), strength)
    if len(classes) < 2:
        return lambda rows: np.full(len(rows), np.log(SMALLEST) * (1 - 2 * classes.sum()))

    def odds(rows: np.ndarray) -> np.ndarray:
        share = np.clip(shares(rows)[:, 1], SMALLEST, 1 - SMALLEST)
        return np.log(share / (1 - share))

    return odds


def _values(x: np.ndarray, y: np.ndarray, strength: float) -> Values:
    from sklearn.linear_model import Ridge

    if not len(y):
        return lambda rows: np.zeros(len(rows))
    return Ridge(alpha=strength * len(y)).fit(x, y.astype(np.float64)).predict
