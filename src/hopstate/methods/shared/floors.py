"""What a trained model must stand above: the floors of its kind, on the same split and with the same metrics.

Nodes: the majority class (or the mean) of the training nodes, and a small perceptron on the features alone. Graphs: the
majority (or the mean), and a linear model of sizes, degrees and pooled features (`set_floor`). Links of a graph:
nearness by training links (`ops.proximity`). Those of links in a stream stand in `heuristics.floors` and
`pair_trees.floor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.evaluation.metrics import selection_value
from hopstate.evaluation.static_link import PairScorer, link_metrics
from hopstate.methods.method import Context, RunConfig
from hopstate.methods.shared.set_floor import linear_floor
from hopstate.ops.proximity import KINDS, Proximity
from hopstate.random import named_rng, torch_seeded
from hopstate.training.tasks.graph import GraphTask
from hopstate.training.tasks.node import NodeLabels, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.target import Target

Floors = dict[str, dict[str, float]]
Outputs = Callable[[np.ndarray], Tensor]
Values = Mapping[str, float | None]
CELLS = 10**7  # entries of the training nodes' features that the perceptron sees at most: some seconds
WIDEST = 10**5  # features from which it is left out
BLOCK = 1 << 16


def graph_run_floors(graph: Graph, config: RunConfig, context: Context, task: NodeTask[Any] | StaticLinkTask) -> Floors:
    """Return the floors of what a run on one graph predicts: nodes or links; see `node_floors`."""
    if isinstance(task, StaticLinkTask):
        return static_link_floors(task)
    return node_floors(graph, config, context, task)


def static_link_floors(task: StaticLinkTask) -> Floors:
    """Return test metrics of nearness by the training links alone: common neighbours and what is made of them."""
    near = Proximity(task.messages.indptr, task.messages.indices)
    scorers: dict[str, PairScorer] = {kind: partial(near.pairs, kind) for kind in KINDS}
    test, val = task.question("test"), task.question("val")
    key = f"val_{task.metric}"
    found = {
        kind: {**link_metrics(test, score), key: link_metrics(val, score)[task.metric]}
        for kind, score in scorers.items()
    }
    return found | {"chance": {key: link_metrics(val, lambda u, v: np.zeros(len(u)))[task.metric]}}


def _of_splits(target: Target, y: np.ndarray, rows: Mapping[str, np.ndarray], outputs: Outputs) -> dict[str, float]:
    """Return test metrics of a baseline, and "val_<metric>": that metric of validation which chooses a model.

    Args:
        target: how it is evaluated.
        y: what `Target.rows` returned.
        rows: of y, by split.
        outputs: rows (n,) → (n, C) outputs.
    """
    found, metric, val = target.score(y[rows["test"]], outputs(rows["test"])), target.metrics[0], rows["val"]
    if target.known(y[val]).any():
        found[f"val_{metric}"] = target.score(y[val], outputs(val))[metric]
    return found


def _constant(
    target: Target, y: np.ndarray, rows: Mapping[str, np.ndarray], *, median: bool = False
) -> dict[str, float]:
    plain = replace(target, class_weights=None)  # nothing is learned from weighted classes
    return _of_splits(plain, y, rows, lambda own: constant(plain, y[rows["train"]], len(own), median=median))


def node_floors(graph: Graph, config: RunConfig, context: Context, task: NodeTask[Any]) -> Floors:
    """Return test metrics of the majority (of numbers the mean, and the median) and of a perceptron on the features.

    Args:
        graph: the data.
        config: the run's configuration; its loop.seed fixes the perceptron.
        context: what surrounds the run.
        task: the run's task, with its labels and split.
    """
    labels = task.labels
    if not labels.target.known(labels.y[labels.split["test"]]).any():
        return {}
    found = {_simplest(labels.target): _constant(labels.target, labels.y, labels.split)}
    if labels.target.goal == "values":
        found["median"] = _constant(labels.target, labels.y, labels.split, median=True)
    if graph.x is not None and graph.x.shape[1] <= WIDEST:
        predict = partial(_outputs, _perceptron(graph.x, labels, config.loop.seed), graph.x)
        found["mlp"] = _of_splits(labels.target, labels.y, labels.split, predict)
    return found


def graph_floors(graphs: GraphSet, config: RunConfig, context: Context, task: GraphTask) -> Floors:
    """Return test metrics of the majority (or mean) of the training rows and of a linear model; see `node_floors`."""
    rows = {split: task.target_rows(split) for split in ("train", "val", "test")}
    if not task.target.known(task.y[rows["test"]]).any():
        return {}
    found = {_simplest(task.target): _constant(task.target, task.y, rows)}
    linear = linear_floor(graphs, task, config.loop.seed)
    return found if linear is None else found | {linear[0]: _of_splits(task.target, task.y, rows, linear[1])}


def _simplest(target: Target) -> str:
    return "mean" if target.goal == "values" else "majority"


def constant(target: Target, y: np.ndarray, rows: int, *, median: bool = False) -> Tensor:
    """Return the outputs that say the same of every row: the shares of the training rows y, or their mean or median."""
    if target.goal == "classes":
        counts = np.bincount(y[y >= 0], minlength=target.width) + 1e-9
        out = np.log(counts / counts.sum())
    elif target.goal == "labels":
        share = np.clip(_mean(y, 0.5), 1e-6, 1 - 1e-6)
        out = np.log(share / (1 - share))
    else:
        center, scale = np.asarray(target.center or 0.0), np.asarray(target.scale or 1.0)
        middle = np.nanmedian(np.where(np.isnan(y).all(0), center, y), 0) if median else _mean(y, center)
        out = (middle - center) / scale
    return torch.from_numpy(np.tile(out, (rows, 1)))


def _mean(y: np.ndarray, unknown: float | np.ndarray) -> np.ndarray:
    known = ~np.isnan(y)
    return np.where(known.any(0), np.where(known, y, 0).sum(0) / np.maximum(known.sum(0), 1), unknown)


def _perceptron(x: np.ndarray, labels: NodeLabels, seed: int) -> nn.Module:
    rng = named_rng(seed)
    train, val = labels.split["train"], labels.split["val"]
    train = np.sort(rng.permutation(train)[: max(100, CELLS // max(x.shape[1], 1))])
    kept, best = None, float("-inf")
    with torch_seeded(seed):
        model = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, labels.target.width)
        )
        optimizer = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-4)
        own, y = torch.from_numpy(x[train]), torch.from_numpy(labels.y[train])
        for step in range(150):
            model.train()
            optimizer.zero_grad()
            labels.loss(model(own), y).backward()
            optimizer.step()
            if step % 10 == 9:
                metrics = labels.score(val, _outputs(model, x, val))
                value = selection_value(metrics, labels.target.metrics[0], labels.target.mode)
                if value > best:
                    best, kept = value, {k: v.clone() for k, v in model.state_dict().items()}
    if kept is not None:
        model.load_state_dict(kept)
    return model


def _outputs(model: nn.Module, x: np.ndarray, rows: np.ndarray) -> Tensor:
    model.eval()
    chunks = np.split(rows, range(BLOCK, len(rows), BLOCK))
    with torch.no_grad():
        return torch.cat([model(torch.from_numpy(np.array(x[chunk]))) for chunk in chunks])


def below(metrics: Values, floors: Mapping[str, Values], metric: str, mode: str) -> list[str]:
    """Return the floors that a run's metric does not exceed; of a metric that is undefined none."""
    value, sign = metrics.get(metric), 1 if mode == "max" else -1
    if value is None or np.isnan(value):
        return []
    known = {name: own for name, values in floors.items() if (own := values.get(metric)) is not None and own == own}
    return [name for name, floor in known.items() if not sign * value > sign * floor]


__all__ = [
    "Floors",
    "below",
    "constant",
    "graph_floors",
    "graph_run_floors",
    "node_floors",
    "static_link_floors",
]
