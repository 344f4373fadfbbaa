"""`pair-trees` on a user's event stream: boosted trees over what the histories of a pair and of its ends tell.

Source: features after the recency and EdgeBank baselines (Poursafaei et al. 2022, arXiv:2207.10128) and the common
neighbours of DyGFormer (Yu et al. 2023, arXiv:2303.13047); trees as in `trees`.
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
from hopstate.methods.heuristics.method import heuristic_floors
from hopstate.methods.method import Context, Floors, Method, Range
from hopstate.methods.pair_trees.trees import Forest, PairTrees
from hopstate.methods.shared.link import (
    HistoryIndex,
    LinkRun,
    clock_of,
    evaluation_negatives,
    suit_judged,
    used_features,
)
from hopstate.random import named_rng
from hopstate.sampling.negatives import Negatives, draw_negatives
from hopstate.streaming.protocols import OnlyLooksUp
from hopstate.tokens.pair_features import GROWING, MOST_COLUMNS, NAMES, PairFeatures, varied_columns
from hopstate.training.config import LoopConfig
from hopstate.training.progress import BATCH_SECONDS, duration, note
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Task

FEWEST = 1_000  # training events for which trees are trained: few say little, and a small fit stays quick


def link_floors(stream: EventStream, config: LinkRun, context: Context, task: Task[Any]) -> Floors:
    """Return test metrics of recency, EdgeBank and, of a stream that is not too short, pair-trees."""
    found = heuristic_floors(stream, config, context, task)
    if len(stream.additions(config.split.of(stream).train)) >= FEWEST:
        found["pair-trees"] = tree_floor(stream, config, context)
    return found


def tree_floor(stream: EventStream, config: LinkRun, context: Context) -> dict[str, float]:
    """Return test metrics of pair-trees and its validation metric; arguments as in `link_floors`."""
    shared = {name: getattr(config, name) for name in ("data", "read", "split", "evaluation")}
    own = PairTreesRun(**shared)
    own = replace(own, loop=replace(own.loop, seed=config.loop.seed, progress=False))
    trees = build(stream, own, replace(context, trained=None))
    trees.folder = None  # the run's folder has no table of the baseline's importances
    rows, _ = trees.fit_whole()
    key = f"val_{trees.metric}"
    return trees.evaluate("test") | {name: value for name, value in rows[0].items() if name == key}


class PairTreesScorer(OnlyLooksUp):
    """Scores pairs by trees over their features; holds no memory but the features' store.

    Args:
        model: the trees; they are read once.
        features: over the events that are known.
    """

    def __init__(self, model: PairTrees, features: PairFeatures) -> None:
        self.model, self.features = model, features
        self.forest: Forest = model.forest

    def over(self, past: StreamState) -> PairTreesScorer:
        made = copy(self)
        made.features = self.features.over(past)
        return made

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) sigmoids of the log-odds of pairs src (Q,), dst (Q,) at times t (Q,)."""
        from scipy.special import expit

        return expit(self.log_odds(src, dst, t))

    def log_odds(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        return self.forest.scores(self.features.pairs(src, dst, t))

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray
    ) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """Return the features' names, and what they are and add to the logits of pairs; see `ExplainsPairs`."""
        x = self.features.pairs(src, dst, t)
        return self.features.names, x, self.forest.contributions(x)[0]


MIN_LEAVES = 20  # a leaf holds at most one of so many rows, however few there are
MIN_KNOWN = 1e-3  # share of rows in which a feature is known; scikit-learn finds no bins of one that is always missing


def training_table(
    stream: EventStream,
    split: EventSplit,
    features: PairFeatures,
    *,
    seed: int,
    most: int,
    random: int,
    historical: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (R, F) and outcomes (R,) of the latest training events and their negatives.

    random and historical are the numbers of negatives of an event; a random one is never its own event. Historical
    ones are missing if so few pairs met that none can be drawn.
    """
    rows = stream.additions(split.train)
    if not len(rows):
        raise ConfigError("there is nothing to train trees on: the training split is empty")
    last = slice(max(0, len(rows) - most), len(rows))
    rows = rows[last]
    pairs = [(stream.src[rows], stream.dst[rows])]
    for kind, count in (("random", random), ("historical", historical)):
        for i in range(count):
            draw = int(named_rng(seed, "negatives", kind, i).integers(2**32))
            with suppress(DataError):
                found = draw_negatives(stream, split, "train", kind, seed=draw, part=last, avoid_own=True)
                pairs.append((found.src, found.dst))
    # all are drawn before any is looked up: of a large stream, either takes gigabytes
    x = np.concatenate([features.pairs(src, dst, stream.t[rows]) for src, dst in pairs])
    release_pages(stream.src, stream.dst, stream.t)
    if isinstance(features.store, NeighborStore):
        features.store.release_pages()
    return x, np.repeat([1, 0], [len(rows), len(x) - len(rows)])


def fit_trees(model: PairTrees, x: np.ndarray, y: np.ndarray, *, seed: int, without: tuple[int, ...] = ()) -> None:
    """Fit trees to features x (R, F) and outcomes y (R,) and put them in the model; none splits on columns without."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    c = model.config
    known = (~np.isnan(x)).mean(0) >= MIN_KNOWN
    known[list(without)] = False
    columns = np.flatnonzero(known) if known.any() else np.zeros(1, np.int64)
    classifier = HistGradientBoostingClassifier(
        learning_rate=c.learning_rate,
        max_iter=c.num_trees,
        max_leaf_nodes=c.max_leaves,
        min_samples_leaf=max(1, min(c.min_leaf, len(x) // MIN_LEAVES)),
        l2_regularization=c.l2,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1, user_api="openmp"):  # sums over rows would follow the number of threads
        classifier.fit(x[:, columns] if known.any() else np.zeros((len(x), 1)), y)
    # an event has several negatives: scores are log-odds of one event against one negative
    prior = float(np.log((y == 0).sum() / (y == 1).sum()))
    model.put(classifier, columns, prior)


@dataclass(frozen=True, kw_only=True)
class PairTreesRun(LinkRun):
    """Configuration of boosted trees over the histories of pairs.

    Args:
        model: the trees.
        max_events: latest training events that trees are trained on; all are looked up.
        random, historical: negatives of each kind per event.
        loop: of it only the seed and the progress matter; how many trees there are is a setting of the model.
    """

    model: PairTrees.Config = field(default_factory=PairTrees.Config)
    max_events: int = 100_000
    random: int = 2
    historical: int = 1
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def __post_init__(self) -> None:
        check_range(least=1, max_events=self.max_events, random=self.random)
        check_range(least=0, historical=self.historical)


class TreeFeatures(EventSource[PairTreesScorer]):
    """Trees over the features of pairs, as scorers; nothing is learned from batches.

    Args:
        model: the trees, empty or trained.
        stream, split: the data.
        clock: what a gap of 1 is.
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

    def over(self, store: NeighborStore, stream: EventStream) -> PairFeatures:
        return PairFeatures(store, stream, self.clock, self.trees.columns.numpy())

    def of(self, split: str) -> PairFeatures:
        """Return what the trees read of pairs, by the training events for "train", else by the whole stream."""
        rows = self.split.train if split == "train" else None
        return self.over(self._known.histories(self.stream, rows), self.stream)

    def index(self) -> NeighborStore | None:
        return self._known.index()

    def scorer(self, model: nn.Module, split: str) -> PairTreesScorer:
        return PairTreesScorer(self.trees, self.of(split))

    def scorer_over(self, model: nn.Module, stream: EventStream) -> PairTreesScorer:
        return PairTreesScorer(self.trees, self.over(NeighborStore.from_stream(stream), stream))

    def follow(self, model: nn.Module, past: StreamState) -> PairTreesScorer:
        return PairTreesScorer(self.trees, self.of_past(past))

    def of_past(self, past: StreamState) -> PairFeatures:
        return self.over(NeighborStore(0), self.stream).over(past)


class PairTreesTask(LinkTask):
    """Links from trees over pairs, which are trained at once.

    Args:
        source: of the features.
        config: of the run.
        negatives: see `LinkTask`.
        folder: of the run, for the table of importances; None writes none.
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

    def fit_whole(self) -> tuple[list[dict[str, float]], int]:
        """Train the trees; return one row, the trees as its epoch, and that epoch."""
        begin, c, reader = time.perf_counter(), self.config, self.features.of("train")
        drawn: dict[str, int] = {"most": c.max_events, "random": c.random, "historical": c.historical}
        x, y = training_table(self.stream, self.split, reader, seed=c.loop.seed, **drawn)
        if time.perf_counter() - begin > BATCH_SECONDS:
            note(c.loop, f"{len(x):,} rows of features in {duration(time.perf_counter() - begin)}; training trees")
        fit_trees(self.trees, x, y, seed=c.loop.seed, without=GROWING)
        if self.folder is not None:
            write_text(self.folder / "importances.csv", self._importances(reader.names))
        spent = round(time.perf_counter() - begin, 4)
        found = {f"val_{name}": value for name, value in self.evaluate("val").items()} if len(self.split.val) else {}
        return [{"epoch": self.trees.kept, **found, "seconds": spent}], self.trees.kept

    def _importances(self, names: tuple[str, ...]) -> str:
        share = self.trees.importances()
        order = np.argsort(-share, kind="stable")
        return "feature,gain\n" + "".join(f'"{names[i]}",{share[i]:.6g}\n' for i in order)


def build(
    stream: EventStream,
    config: PairTreesRun,
    context: Context,
) -> PairTreesTask:
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.gap_unit, context)
    width = used_features(stream, context)["edge_dim"]
    few = min(width, MOST_COLUMNS)
    columns = varied_columns(stream, split.train, few) if context.trained is None else np.arange(few)
    read = len(NAMES) + 3 * few
    model = PairTrees(config.model, read, columns, width)
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
        "boosted trees over the histories of a pair and of its ends",
        "ours; features after arXiv:2207.10128 and arXiv:2303.13047",
        floors=heuristic_floors,
        suit=suit_judged,
        automatic=("evaluation.choose",),
        space={
            "historical": [0, 1, 2],
            "model.max_leaves": [15, 31, 63],
            "model.min_leaf": [20, 100, 500],
            "model.learning_rate": Range(0.03, 0.15, log=True),
        },
        export="trees are no network, and the histories that they read have no program",
    )
}
