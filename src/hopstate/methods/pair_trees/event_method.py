"""`event-trees`: gradient-boosted trees for labels of events, over the event's columns and the histories of both ends.

Unlike the networks for nodes, the trees see the scored event itself: its destination, relation and features. Labels
are only those of strictly earlier events.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, check_range
from hopstate.io.files import write_text
from hopstate.methods.method import Baselines, Context, Method, Range
from hopstate.methods.pair_trees.method import MIN_TRAIN_EVENTS, fitted, importances_csv, known_columns
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.methods.shared.event_nodes import EventNodeRun, event_baselines, event_targets
from hopstate.methods.shared.link import HistoryIndex, clock_of, used_features
from hopstate.streaming.history_scorer import StatelessScorer
from hopstate.streaming.protocols import Scores
from hopstate.tokens.pair_features import MOST_COLUMNS, PairFeatures, feature_names, frequent_relations, varied_columns
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.event_node import EventNodeTask, EventTargets
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.target import Target, has_label

MAX_CLASSES = 16  # classes whose earlier labels are features
LABEL_SCALE = 1 << 20  # fixed point of labels: integer sums do not depend on the order of events
MAX_LABEL = 1 << 20  # clip of standardized labels, so that sums fit in 64 bits
NO_CLASS = -20.0  # log-odds of a class without a label among the events for training
_LABELS = ("number of labels {}", "since the last label {}")
_ENDS = ("of the source", "at the target", "of the target")


class LabelHistory:
    """Labels of the earlier events of each node.

    Args:
        nodes: (n,) node of each labeled event.
        t: (n,) times.
        values: (n, W) int64 labels.
        clock: time normalization.
    """

    def __init__(self, nodes: np.ndarray, t: np.ndarray, values: np.ndarray, clock: Clock) -> None:
        self.times, self.clock, self.width = np.unique(t), clock, values.shape[1]
        key = nodes * (len(self.times) + 1) + np.searchsorted(self.times, t)
        order = np.argsort(key, kind="stable")
        self.key, self.t = key[order], t[order]
        self.sums = np.concatenate([np.zeros((1, self.width), np.int64), np.cumsum(values[order], 0)])

    def read(self, nodes: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, 2 + 2W) features of nodes (Q,) from labels strictly before t (Q,).

        They are ln(1 + number), ln(1 + gap) since the last one, its value, and the mean. Labels at the same last time
        are averaged. NaN means that there is none.
        """
        out = np.full((len(nodes), 2 + 2 * self.width), np.nan)
        key_start = nodes * (len(self.times) + 1)
        first, end = (np.searchsorted(self.key, key) for key in (key_start, key_start + np.searchsorted(self.times, t)))
        out[:, 0] = np.log1p(end - first)
        labeled = end > first
        first, end = first[labeled], end[labeled]
        last = end - 1
        tied = np.searchsorted(self.key, self.key[last])
        out[labeled, 1] = self.clock.log_time_deltas(t[labeled], self.t[last])
        out[labeled, 2 : 2 + self.width] = self._mean(tied, end)
        out[labeled, 2 + self.width :] = self._mean(first, end)
        return out

    def _mean(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        return (self.sums[end] - self.sums[first]) / (LABEL_SCALE * (end - first)[:, None])


def label_values(y: np.ndarray, target: Target) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the labeled rows (n,) and fixed-point labels (n, W) of each history: one of classes, one per number."""
    if target.goal == "classes":
        rows = np.flatnonzero((y >= 0) & (y < target.width))
        classes = np.arange(target.width)[:MAX_CLASSES] if target.width > 2 else np.ones(1, np.int64)
        return [(rows, (y[rows, None] == classes) * LABEL_SCALE)]
    center, scale = np.asarray(target.center or 0.0), np.asarray(target.scale or 1.0)
    standard = np.clip((y.reshape(len(y), -1) - center) / scale, -MAX_LABEL, MAX_LABEL)
    known = [np.flatnonzero(~np.isnan(column)) for column in standard.T]
    return [
        (rows, np.rint(column[rows, None] * LABEL_SCALE).astype(np.int64))
        for rows, column in zip(known, standard.T, strict=True)
    ]


def label_names(target: Target) -> list[str]:
    """Return the names of the label features, in the order of `EventTreesScorer.features`."""
    names = target.names if target.goal != "classes" or target.width > 2 else target.names[1:]
    groups = [names[:MAX_CLASSES]] if target.goal == "classes" else [(name,) for name in names]
    return [
        name
        for group in groups
        for end in _ENDS
        for name in (
            *(what.format(end) for what in _LABELS),
            *(f"last label {end}: {value}" for value in group),
            *(f"mean label {end}: {value}" for value in group),
        )
    ]


def labels_as(stream: EventStream, target: Target) -> np.ndarray:
    """Return the labels of a stream as `EventTargets.y`; unknown classes are missing."""
    labels = stream.labels
    if target.goal != "classes":
        shape = len(stream), target.width
        return np.full(shape, np.nan) if labels is None else np.asarray(labels, np.float64).reshape(shape)
    y = np.full(len(stream), -1)
    if labels is not None:
        known = np.flatnonzero(has_label(labels) & (labels >= 0))
        codes, place = np.unique(labels[known], return_inverse=True)
        names = [str(int(c)) if stream.class_names is None else stream.class_names[int(c)] for c in codes]
        number_of = {name: c for c, name in enumerate(target.names)}
        y[known] = np.array([number_of.get(name, -1) for name in names], np.int64)[place]
    return y


class EventTrees(nn.Module):
    """Trees for each output: one for two classes, otherwise one per class, label or number."""

    def __init__(self, outputs: Sequence[PairTrees]) -> None:
        super().__init__()
        self.parts, self.outputs = tuple(outputs), nn.ModuleList(outputs)


class EventTreesScorer(StatelessScorer):
    """Score events by trees over the histories of the pair and of both ends, the event's own columns, earlier labels.

    Args:
        trees: the trees.
        target: activation of their outputs.
        pairs: pair features over the observed events.
        labels: histories of labels of the source, at the target and of the target, for each label; none if unused.
    """

    def __init__(
        self, trees: EventTrees, target: Target, pairs: PairFeatures, labels: Sequence[tuple[LabelHistory, ...]] = ()
    ) -> None:
        self.trees, self.target, self.pairs, self.labels = trees, target, pairs, labels

    def over(self, past: StreamState) -> EventTreesScorer:
        return EventTreesScorer(self.trees, self.target, self.pairs.over(past))

    def features(
        self,
        src: np.ndarray,
        dst: np.ndarray,
        t: np.ndarray,
        relation: np.ndarray | None = None,
        edge_attr: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return (Q, F) float32 features of events. Without edge_attr (Q, D), the event's own columns are missing."""
        width = self.trees.parts[0].edge_dim
        columns = np.full((len(src), width), np.nan) if edge_attr is None else edge_attr[:, :width]
        parts = [self.pairs.pairs(src, dst, t, relation), columns]
        for histories in self.labels:
            parts += [history.read(nodes, t) for history, nodes in zip(histories, (src, dst, dst), strict=True)]
        return np.concatenate(parts, 1, dtype=np.float32)

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, *own: Any) -> np.ndarray:
        """Return (Q, W) outputs of events, with their relations (Q,) and features (Q, D) if given."""
        found: np.ndarray = self.target.activation(torch.from_numpy(self.log_odds(src, dst, t, *own))).numpy()
        return found

    def log_odds(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, *own: Any) -> np.ndarray:
        """Return (Q, W) log-odds, or standardized values."""
        x = self.features(src, dst, t, *own)
        return np.stack([trees.forest.scores(x) for trees in self.trees.parts], 1)


class EventTreesSource(EventSource[Any]):
    """Event features and trees. There is nothing to train in batches.

    Args:
        model: the trees, empty or trained.
        stream, split: the data.
        targets: labels of the stream.
        clock: time normalization.
        label_history: whether labels of earlier events are features.
    """

    def __init__(
        self,
        model: EventTrees,
        stream: EventStream,
        split: EventSplit,
        *,
        targets: EventTargets,
        clock: Clock,
        label_history: bool,
    ) -> None:
        super().__init__(model, stream, split, feature_dims=(0, model.parts[0].edge_dim))
        self.trees, self.targets, self.clock, self.label_history = model, targets, clock, label_history
        self._index = HistoryIndex(stream, deletions=False)

    def scorer(self, model: nn.Module, split: str) -> EventTreesScorer:
        rows = self.split.train if split == "train" else None
        return self._scorer(self._index.histories(self.stream, rows), self.stream, self.targets.y, rows)

    def scorer_over(self, model: nn.Module, stream: EventStream) -> EventTreesScorer:
        return self._scorer(NeighborStore.from_stream(stream), stream, labels_as(stream, self.targets.target))

    def follow(self, model: nn.Module, past: StreamState) -> EventTreesScorer:
        if self.label_history:
            raise ConfigError(
                "event-trees with label_history cannot score later events, because a live state holds no labels. Train "
                "with --label_history false"
            )
        return self._scorer(NeighborStore(0), self.stream, self.targets.y).over(past)

    def _scorer(
        self, store: NeighborStore, stream: EventStream, y: np.ndarray, rows: np.ndarray | None = None
    ) -> EventTreesScorer:
        """Return a scorer over a store and over the labels y (E,) at rows (P,), None for all."""
        trees, target = self.trees.parts[0], self.targets.target
        relations = None if trees.relations is None else trees.relations.numpy()
        pairs = PairFeatures(store, stream, self.clock, trees.columns.numpy(), relations)
        visible = np.ones(len(stream), bool) if rows is None else np.isin(np.arange(len(stream)), rows)
        labels = []
        for known, values in label_values(y, target) if self.label_history else ():
            at, seen = known[visible[known]], values[visible[known]]
            ends = (LabelHistory(nodes[at], stream.t[at], seen, pairs.clock) for nodes in (stream.src, stream.dst))
            source, destination = ends
            labels.append((source, destination, source))
        return EventTreesScorer(self.trees, target, pairs, labels)


@dataclass(frozen=True, kw_only=True)
class EventTreesRun(EventNodeRun):
    """Configuration of event-trees.

    Args:
        model: the trees.
        label_history: use labels of earlier events as features. Later events can then not be scored live, because a
            live state holds no labels. Turn it off if labels are known long after their events.
        max_events: number of latest labeled training events for training. All events are in the histories.
        init, freeze: not supported.
        loop: only its seed and progress are used.
    """

    model: PairTrees.Config = field(default_factory=lambda: PairTrees.Config(num_trees=100, min_leaf=20))
    label_history: bool = True
    max_events: int = 100_000
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def __post_init__(self) -> None:
        check_range(minimum=1, max_events=self.max_events)
        check_range(minimum=0, bootstrap=self.bootstrap)
        if self.init is not None or self.freeze:
            raise ConfigError("event-trees have no pretrained backbone: got init or freeze. Remove it")


class EventTreesTask(EventNodeTask):
    """Labels of events by trees, trained in one step.

    Args:
        source: features and trees.
        config: run configuration.
        folder: run folder for the table of feature importances, None to skip it.
    """

    takes_nodes = False

    def __init__(self, source: EventTreesSource, config: EventTreesRun, folder: Path | None = None) -> None:
        super().__init__(source, targets=source.targets, bootstrap=config.bootstrap, clock=source.clock)
        self.trees_source, self.trees, self.config, self.folder = source, source.trees, config, folder

    def query_columns(self, stream: EventStream, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        relation = np.zeros(len(stream), np.int32) if stream.relation is None else stream.relation
        attr = np.zeros((len(stream), 0), np.float32) if stream.edge_attr is None else stream.edge_attr
        return stream.src[rows], stream.dst[rows], stream.t[rows], relation[rows], attr[rows]

    def score_events(self, follower: Any, *queries: np.ndarray) -> Scores:
        """Return (Q,) or (Q, W) outputs of events, with their relations (Q,) and features (Q, D) if given."""
        found: Scores = follower.score(*queries)
        return found

    def fit_without_gradients(self) -> dict[str, float]:
        """Train the trees. Return their metrics, with their number as the epoch."""
        begin = time.perf_counter()
        train = self.split.train
        rows = train[has_label(self.targets.y[train])][-self.config.max_events :]
        x = self.trees_source.scorer(self.model, "train").features(*self.query_columns(self.stream, rows))
        self._fit(x, self.targets.y[rows])
        if self.folder is not None:
            share = np.mean([trees.importances() for trees in self.trees.parts], 0)
            write_text(self.folder / "importances.csv", importances_csv(self._names(), share))
        seconds = round(time.perf_counter() - begin, 4)
        count = self.trees.parts[0].num_fitted
        val = {f"val_{name}": value for name, value in self.evaluate("val").items()}
        return {"epoch": count, **val, "seconds": seconds}

    def _names(self) -> list[str]:
        trees, names = self.trees.parts[0], self.stream.relation_names
        relations = None if trees.relations is None else [names[r] for r in trees.relations.tolist()]
        own = [f"event feature {c}" for c in range(trees.edge_dim)]
        labels = label_names(self.targets.target) if self.config.label_history else []
        return [*feature_names(trees.columns.numpy(), relations), *own, *labels]

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Fit the trees to features x (R, F) and labels y (R,) or (R, T)."""
        target, seed = self.targets.target, self.config.loop.seed
        columns, parts = known_columns(x), self.trees.parts
        if target.goal == "classes":
            weights = None if target.weights is None else np.asarray(target.weights)[y]
            self._fit_classes(parts, x, y, columns, weights)
            return
        loss = "absolute_error" if self.metric == "mae" else "squared_error"
        center, scale = target.center or [0.0] * len(parts), target.scale or [1.0] * len(parts)
        for at, (trees, targets) in enumerate(zip(parts, y.reshape(len(y), -1).T, strict=True)):
            known = ~np.isnan(targets)
            if target.goal == "labels":
                self._fit_classes([trees], x[known], targets[known].astype(np.int64), columns)
            else:
                value = (targets[known] - center[at]) / scale[at]
                trees.load_estimator(fitted(trees.config, x[known], value, columns, seed=seed, loss=loss), columns)

    def _fit_classes(
        self, parts: Sequence[PairTrees], x: np.ndarray, y: np.ndarray, columns: np.ndarray, weight: Any = None
    ) -> None:
        """Fit the log-odds of class 1 of two, or of each class; the first of two classes has log-odds 0."""
        classes, seed = np.unique(y).tolist(), self.config.loop.seed
        estimator = fitted(parts[0].config, x, y, columns, seed=seed, weight=weight) if len(classes) > 1 else None
        for c, trees in enumerate(parts, 1 if len(parts) == 1 else 0):
            if c not in classes:
                trees.baseline[0] = NO_CLASS
            elif len(classes) == 1:
                trees.baseline[0] = -NO_CLASS
            elif len(classes) > 2 or c == classes[1]:
                trees.load_estimator(estimator, columns, output=classes.index(c) if len(classes) > 2 else 0)


def _task(
    stream: EventStream, split: EventSplit, targets: EventTargets, config: EventTreesRun, context: Context
) -> EventTreesTask:
    clock = clock_of(stream, split, config.time_scale, context)
    width = used_features(stream, context)["edge_dim"]
    count = min(width, MOST_COLUMNS)
    columns = varied_columns(stream, split.train, count) if context.trained is None else np.arange(count)
    relations = frequent_relations(stream, split.train)  # of a trained model, its own are loaded in their place
    names = feature_names(columns, None if relations is None else stream.relation_names[: len(relations)])
    labels = len(label_names(targets.target)) if config.label_history else 0
    num_features = len(names) + width + labels
    model = EventTrees([PairTrees(config.model, num_features, columns, width, relations) for _ in range(targets.width)])
    source = EventTreesSource(model, stream, split, targets=targets, clock=clock, label_history=config.label_history)
    return EventTreesTask(source, config, folder=context.run if context.trained is None else None)


def build(stream: EventStream, config: EventTreesRun, context: Context) -> EventTreesTask:
    split = config.split.of(stream)
    return _task(stream, split, event_targets(stream, split, config, context), config, context)


def label_baselines(stream: EventStream, config: EventNodeRun, context: Context, task: EventNodeTask) -> Baselines:
    """Return test metrics of simple predictions and, if there are enough labels, event-trees."""
    metrics = event_baselines(stream, config, context, task)
    if has_label(task.targets.y[task.split.train]).sum() < MIN_TRAIN_EVENTS:
        return metrics
    own = EventTreesRun(data=config.data, read=config.read, split=config.split, time_scale=config.time_scale)
    own = replace(own, loop=replace(own.loop, seed=config.loop.seed, progress=False))
    trees = _task(stream, task.split, task.targets, own, replace(context, trained=None))
    trees.folder = None  # the run's folder has no table of the baseline's importances
    row = trees.fit_without_gradients()
    key = f"val_{task.metric}"
    return metrics | {"event-trees": trees.evaluate("test") | {key: row[key]}}


METHODS = {
    "event-trees": Method(
        "event-trees",
        EventTreesRun,
        build,
        "events",
        "labels of events by gradient-boosted trees over the event's columns, histories and earlier labels",
        "ours; features as pair-trees",
        baselines=event_baselines,
        space={
            "model.max_leaves": [15, 31, 63],
            "model.min_leaf": [20, 100, 500],
            "model.learning_rate": Range(0.03, 0.15, log=True),
        },
        export="trees are not a network, and their history features cannot be exported",
        relations=True,
    )
}
