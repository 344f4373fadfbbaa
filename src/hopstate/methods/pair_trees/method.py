"""`pair-trees` on a user's event stream: boosted trees over what the histories of a pair and of its ends tell.

Source: features after the recency and EdgeBank baselines (Poursafaei et al. 2022, arXiv:2207.10128) and the common
neighbours of DyGFormer (Yu et al. 2023, arXiv:2303.13047); trees as in `trees`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from hopstate.data.clock import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import check_range
from hopstate.io.files import write_text
from hopstate.methods.heuristics.floors import heuristic_floors
from hopstate.methods.method import Context, Method
from hopstate.methods.pair_trees.fitting import fit_trees, training_table
from hopstate.methods.pair_trees.scorer import PairTreesScorer
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.methods.shared.event_run import EventRun
from hopstate.methods.shared.link import Known, clock_of, kept_negatives, used_features
from hopstate.methods.shared.suit_events import suit_judged
from hopstate.methods.space import Range
from hopstate.sampling.negative_sets import Negatives
from hopstate.tokens.pair_features import GROWING, MOST_COLUMNS, NAMES, PairFeatures, varied_columns
from hopstate.training.config import LoopConfig
from hopstate.training.progress import BATCH_SECONDS, duration, note
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.link import LinkEvaluation, LinkTask
from hopstate.training.tasks.protocols import FeatureShares


@dataclass(frozen=True, kw_only=True)
class PairTreesRun(EventRun):
    """Configuration of boosted trees over the histories of pairs.

    Args:
        model: the trees.
        max_events: latest training events that trees are trained on; all are looked up.
        random, historical: negatives of each kind per event.
        evaluation: protocol and negatives.
        loop: of it only the seed and the progress matter; how many trees there are is a setting of the model.
    """

    model: PairTrees.Config = field(default_factory=PairTrees.Config)
    max_events: int = 100_000
    random: int = 2
    historical: int = 1
    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)
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
        self._known = Known(stream, deletions=False)

    def over(self, store: NeighborStore, stream: EventStream) -> PairFeatures:
        return PairFeatures(store, stream, self.clock, self.trees.columns.numpy())

    def of(self, split: str) -> PairFeatures:
        """Return what the trees read of pairs, by the training events for "train", else by the whole stream."""
        rows = self.split.train if split == "train" else None
        return self.over(self._known.histories(self.stream, rows), self.stream)

    def index(self) -> NeighborStore | None:
        """See `EventSource.index`."""
        return self._known.index()

    def num_batches(self, epoch: int) -> int:
        """Return 0: trees are not grown by batches."""
        return 0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def loss(self, model: nn.Module, batch: Any) -> None:
        """Return None: nothing is learned from a batch."""

    def scorer(self, model: nn.Module, split: str) -> PairTreesScorer:
        """Return the trees over the training events for "train", else over the whole stream."""
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

    def explain_query(self, u: int, v: int, t: float) -> FeatureShares:
        """Return what each feature added to the score of rows u and v at t; see `FeatureExplanation`."""
        import pandas as pd
        from scipy.special import expit

        scorer = self.features.scorer(self.model, "test")
        x = scorer.features.pairs(np.array([u]), np.array([v]), np.array([t]))
        contributions, rest = scorer.forest.contributions(x)
        order = np.argsort(-np.abs(contributions[0]), kind="stable")
        names = np.array(scorer.features.names)
        logit = scorer.forest.scores(x)
        columns = {"feature": names[order], "value": x[0, order], "contribution": contributions[0, order]}
        probability = float(expit(logit[0]))
        return {"logit": float(logit[0]), "rest": rest, "probability": probability, "table": pd.DataFrame(columns)}


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
        negatives=kept_negatives(stream, split, config, context),
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
        explains=True,
        export="trees are no network, and the histories that they read have no program",
    )
}
