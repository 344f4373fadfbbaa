"""`pair-trees` on an event stream: gradient-boosted trees over features of a pair's history and of both endpoints.

Source: features after the recency and EdgeBank baselines (Poursafaei et al. 2022, arXiv:2207.10128) and the common
neighbors of DyGFormer (Yu et al. 2023, arXiv:2303.13047); trees as in `trees`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from torch import nn

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError, check_range
from hopstate.io.files import write_text
from hopstate.io.scratch import release_pages
from hopstate.methods.heuristics.method import heuristic_baselines
from hopstate.methods.method import Baselines, Context, Method, Range
from hopstate.methods.pair_trees.trees import Forest, PairTrees
from hopstate.methods.shared.link import (
    HistoryIndex,
    LinkRun,
    auto_selection,
    clock_of,
    evaluation_negatives,
    used_features,
)
from hopstate.random import named_rng
from hopstate.sampling.negatives import Negatives, draw_negatives
from hopstate.streaming.history_scorer import StatelessScorer
from hopstate.tokens.pair_features import (
    GROWING,
    MOST_COLUMNS,
    PairFeatures,
    feature_names,
    frequent_relations,
    varied_columns,
)
from hopstate.training.config import LoopConfig
from hopstate.training.progress import BATCH_SECONDS, duration, note
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Task

MIN_TRAIN_EVENTS = 1_000  # below this, the baseline is skipped


def link_baselines(stream: EventStream, config: LinkRun, context: Context, task: Task[Any]) -> Baselines:
    """Return test metrics of recency, EdgeBank and, if there are enough events, pair-trees."""
    metrics = heuristic_baselines(stream, config, context, task)
    if len(stream.additions(config.split.of(stream).train)) >= MIN_TRAIN_EVENTS:
        metrics["pair-trees"] = tree_baseline(stream, config, context)
    return metrics


def tree_baseline(stream: EventStream, config: LinkRun, context: Context) -> dict[str, float]:
    """Return test metrics of pair-trees and its validation metric; arguments as in `link_baselines`."""
    shared = {name: getattr(config, name) for name in ("data", "read", "split", "evaluation")}
    tree_config = PairTreesRun(**shared)
    tree_config = replace(tree_config, loop=replace(tree_config.loop, seed=config.loop.seed, progress=False))
    task = build(stream, tree_config, replace(context, trained=None))
    task.folder = None  # the run's folder has no table of the baseline's importances
    row = task.fit_without_gradients()
    key = f"val_{task.metric}"
    return task.evaluate("test") | {name: value for name, value in row.items() if name == key}


class PairTreesScorer(StatelessScorer):
    """Score pairs by trees over their features. It has no memory except the feature store.

    Args:
        model: the trees.
        features: pair features over the observed events.
    """

    def __init__(self, model: PairTrees, features: PairFeatures) -> None:
        self.model, self.features = model, features
        self.forest: Forest = model.forest

    def over(self, past: StreamState) -> PairTreesScorer:
        scorer = copy(self)
        scorer.features = self.features.over(past)
        return scorer

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) sigmoids of the log-odds of pairs src (Q,), dst (Q,) at times t (Q,)."""
        from scipy.special import expit

        return expit(self.log_odds(src, dst, t, relation))

    def log_odds(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> np.ndarray:
        return self.forest.scores(self.features.pairs(src, dst, t, relation))

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """Return feature names, values and contributions to the logits of pairs; see `ExplainsPairs`."""
        x = self.features.pairs(src, dst, t, relation)
        return self.features.names, self.features.as_measured(x), self.forest.contributions(x)[0]


MIN_LEAVES = 20  # max. share of rows in min_leaf is 1 / MIN_LEAVES
MIN_KNOWN = 1e-3  # min. share of rows with a value; scikit-learn cannot bin a feature that is always missing


def training_table(
    stream: EventStream,
    split: EventSplit,
    features: PairFeatures,
    *,
    seed: int,
    max_events: int,
    random: int,
    historical: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (R, F) and labels (R,) of the latest training events and their negatives.

    random and historical are numbers of negatives per event. A random negative is never its own event. Historical
    negatives are skipped if there are too few repeat pairs.
    """
    rows = stream.additions(split.train)
    if not len(rows):
        raise ConfigError("the training split is empty")
    latest = slice(max(0, len(rows) - max_events), len(rows))
    rows = rows[latest]
    pairs = [(stream.src[rows], stream.dst[rows])]
    for kind, count in (("random", random), ("historical", historical)):
        for i in range(count):
            draw = int(named_rng(seed, "negatives", kind, i).integers(2**32))
            with suppress(DataError):
                negatives = draw_negatives(stream, split, "train", kind, seed=draw, part=latest, avoid_positives=True)
                pairs.append((negatives.src, negatives.dst))
    # sample first, then query: on a large stream, each takes gigabytes
    queries = stream.pairs(rows)[2:]
    x = np.concatenate([features.pairs(src, dst, *queries) for src, dst in pairs])
    release_pages(stream.src, stream.dst, stream.t)
    if isinstance(features.store, NeighborStore):
        features.store.release_pages()
    return x, np.repeat([1, 0], [len(rows), len(x) - len(rows)])


def fit_trees(model: PairTrees, x: np.ndarray, y: np.ndarray, *, seed: int, excluded: tuple[int, ...] = ()) -> None:
    """Fit trees to features x (R, F) and labels y (R,) without the columns excluded, and store them in the model."""
    # an event has several negatives: scores are log-odds of one event against one negative
    prior = float(np.log((y == 0).sum() / (y == 1).sum()))
    columns = known_columns(x, excluded)
    model.load_estimator(fitted(model.config, x, y, columns, seed=seed), columns, prior)


def known_columns(x: np.ndarray, excluded: tuple[int, ...] = ()) -> np.ndarray:
    """Return the features of x (R, F) with enough values to be binned, without those excluded."""
    known = (~np.isnan(x)).mean(0) >= MIN_KNOWN
    known[list(excluded)] = False
    return np.flatnonzero(known)


def fitted(
    config: PairTrees.Config,
    x: np.ndarray,
    y: np.ndarray,
    columns: np.ndarray,
    *,
    seed: int,
    loss: str = "log_loss",
    weight: np.ndarray | None = None,
) -> Any:
    """Return scikit-learn's trees fitted to columns (C,) of features x (R, F).

    Args:
        config: number and size of trees.
        y: (R,) classes if loss is log_loss, otherwise numbers.
        seed: of scikit-learn.
        loss: scikit-learn's name.
        weight: (R,) weights of rows.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    estimator = HistGradientBoostingClassifier if loss == "log_loss" else HistGradientBoostingRegressor
    trees = estimator(
        loss=loss,
        learning_rate=config.learning_rate,
        max_iter=config.num_trees,
        max_leaf_nodes=config.max_leaves,
        min_samples_leaf=max(1, min(config.min_leaf, len(x) // MIN_LEAVES)),
        l2_regularization=config.l2,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1, user_api="openmp"):  # sums over rows would depend on the number of threads
        return trees.fit(x[:, columns] if len(columns) else np.zeros((len(x), 1)), y, weight)


@dataclass(frozen=True, kw_only=True)
class PairTreesRun(LinkRun):
    """Configuration of pair-trees.

    Args:
        model: the trees.
        max_events: number of latest training events for training. All events are queried.
        random: random negatives per event.
        historical: historical negatives per event.
        loop: only its seed and progress are used.
    """

    model: PairTrees.Config = field(default_factory=PairTrees.Config)
    max_events: int = 100_000
    random: int = 2
    historical: int = 1
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def __post_init__(self) -> None:
        check_range(minimum=1, max_events=self.max_events, random=self.random)
        check_range(minimum=0, historical=self.historical)


class TreeFeatures(EventSource[PairTreesScorer]):
    """Pair features and trees as scorers. There is nothing to train in batches.

    Args:
        model: the trees, empty or trained.
        stream, split: the data.
        clock: time normalization.
    """

    def __init__(
        self,
        model: PairTrees,
        stream: EventStream,
        split: EventSplit,
        clock: Clock,
    ) -> None:
        super().__init__(model, stream, split, feature_dims=(0, model.edge_dim))
        self.trees, self.clock = model, clock
        self._known = HistoryIndex(stream, deletions=False)

    def features_over(self, store: NeighborStore, stream: EventStream) -> PairFeatures:
        relations = None if self.trees.relations is None else self.trees.relations.numpy()
        return PairFeatures(store, stream, self.clock, self.trees.columns.numpy(), relations)

    def features_for(self, split: str) -> PairFeatures:
        """Return pair features over the training events for "train", otherwise over the full stream."""
        rows = self.split.train if split == "train" else None
        return self.features_over(self._known.histories(self.stream, rows), self.stream)

    def index(self) -> NeighborStore | None:
        return self._known.index()

    def scorer(self, model: nn.Module, split: str) -> PairTreesScorer:
        return PairTreesScorer(self.trees, self.features_for(split))

    def scorer_over(self, model: nn.Module, stream: EventStream) -> PairTreesScorer:
        return PairTreesScorer(self.trees, self.features_over(NeighborStore.from_stream(stream), stream))

    def follow(self, model: nn.Module, past: StreamState) -> PairTreesScorer:
        return PairTreesScorer(self.trees, self.features_from_state(past))

    def features_from_state(self, past: StreamState) -> PairFeatures:
        return self.features_over(NeighborStore(0), self.stream).over(past)


class PairTreesTask(LinkTask):
    """Link prediction by trees, trained in one step.

    Args:
        source: features and trees.
        config: run configuration.
        negatives: see `LinkTask`.
        folder: run folder for the table of feature importances, None to skip it.
    """

    def __init__(
        self,
        source: TreeFeatures,
        config: PairTreesRun,
        *,
        negatives: Mapping[tuple[str, str], Negatives],
        folder: Path | None = None,
    ) -> None:
        super().__init__(source, evaluation=config.evaluation, negatives=negatives, clock=source.clock)
        self.features, self.trees, self.config, self.folder = source, source.trees, config, folder

    def fit_without_gradients(self) -> dict[str, float]:
        """Train the trees. Return their metrics, with their number as the epoch."""
        begin, config, features = time.perf_counter(), self.config, self.features.features_for("train")
        sampling: dict[str, int] = {
            "max_events": config.max_events,
            "random": config.random,
            "historical": config.historical,
        }
        x, y = training_table(self.stream, self.split, features, seed=config.loop.seed, **sampling)
        if time.perf_counter() - begin > BATCH_SECONDS:
            note(config.loop, f"{len(x):,} rows of features in {duration(time.perf_counter() - begin)}; training trees")
        fit_trees(self.trees, x, y, seed=config.loop.seed, excluded=GROWING)
        if self.folder is not None:
            write_text(self.folder / "importances.csv", importances_csv(features.names, self.trees.importances()))
        seconds = round(time.perf_counter() - begin, 4)
        val_metrics = (
            {f"val_{name}": value for name, value in self.evaluate("val").items()} if len(self.split.val) else {}
        )
        return {"epoch": self.trees.num_fitted, **val_metrics, "seconds": seconds}


def importances_csv(names: Sequence[str], share: np.ndarray) -> str:
    """Return a table of features by their shares (F,) of the split gain."""
    order = np.argsort(-share, kind="stable")
    return "feature,gain\n" + "".join(f'"{names[i]}",{share[i]:.6g}\n' for i in order)


def build(
    stream: EventStream,
    config: PairTreesRun,
    context: Context,
) -> PairTreesTask:
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.time_scale, context)
    width = used_features(stream, context)["edge_dim"]
    num_columns = min(width, MOST_COLUMNS)
    columns = varied_columns(stream, split.train, num_columns) if context.trained is None else np.arange(num_columns)
    relations = frequent_relations(stream, split.train)  # of a trained model, its own are loaded in their place
    num_features = len(feature_names(columns, None if relations is None else stream.relation_names[: len(relations)]))
    model = PairTrees(config.model, num_features, columns, width, relations)
    return PairTreesTask(
        TreeFeatures(model, stream, split, clock),
        config,
        negatives=evaluation_negatives(stream, split, config, context),
        folder=context.run if context.trained is None else None,
    )


METHODS = {
    "pair-trees": Method(
        "pair-trees",
        PairTreesRun,
        build,
        "events",
        "gradient-boosted trees over features of the event history",
        "ours; features after arXiv:2207.10128 and arXiv:2303.13047",
        baselines=heuristic_baselines,
        auto_config=auto_selection,
        automatic=("evaluation.select_by",),
        space={
            "historical": [0, 1, 2],
            "model.max_leaves": [15, 31, 63],
            "model.min_leaf": [20, 100, 500],
            "model.learning_rate": Range(0.03, 0.15, log=True),
        },
        export="trees are not a network, and their history features cannot be exported",
        relations=True,
    )
}
