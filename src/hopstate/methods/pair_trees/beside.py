"""Trees beside a learned head: grown once from the run's own training events, their share of the logit validation's.

The trees are as those of `pair-trees`, without features of events, from at most `GROWN` of the latest training events;
they see what the head sees, and weigh pairs that met by `LEAST_MET`, or more where the run's own mixture of training
negatives does. Beside them grow the trees that rank (`ranker`). Each time that validation is judged, each of `SHARES`
is tried on scores that are there already, and the best by the run's own metric is taken; of equal ones the network's
larger share.

Source: ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.past import Past
from hopstate.evaluation.link import LinkReport
from hopstate.evaluation.link_scores import LinkScores
from hopstate.layers.joined_logits import JoinedLogits, mean_of_logits
from hopstate.layers.pair_history import PairHistory
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.fitting import Growth, grow, random_pairs, training_pairs, validation_pairs
from hopstate.methods.pair_trees.floor import LEAST
from hopstate.methods.pair_trees.ranker import TREES, TreeRanker, ranks_by_trees
from hopstate.methods.pair_trees.scorer import PairTreesScorer
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.methods.shared.pair_history import features_known
from hopstate.sampling.mixture import Mixture
from hopstate.streaming.history_scorer import HistoryScorer, chances, plain
from hopstate.streaming.memory_scorer import MemoryScorer
from hopstate.streaming.protocols import LinkScorer
from hopstate.tokens.pair_features import GROWING, PairFeatures
from hopstate.training.config import LoopConfig
from hopstate.training.progress import BATCH_SECONDS, duration, note
from hopstate.training.tasks.link import AllScores, LinkTask

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the trees
GROWN = 100_000  # latest training events that they grow from
LEAST_MET = 0.4  # weight of pairs that met where the run's own negatives have any: random ones are told by the ranker
FURTHER = 5  # further random pairs beside an event, of trees that rank: networks take longer than trees in any case
JUDGED = 30_000  # validation events that choose how many trees are kept


class TreesBeside:
    """What a task of links does for the trees beside its head while it is trained; see `training.tasks.link.Beside`.

    Args:
        joined: the trees, and their share.
        task: whose head they stand beside.
        loop: its seed and its messages.
        historical: weight of pairs that met before among those that did not meet.
    """

    def __init__(self, joined: JoinedLogits, task: LinkTask, loop: LoopConfig, historical: float) -> None:
        assert isinstance(joined.rules, PairTrees)
        self.joined, self.trees, self.task, self.loop = joined, joined.rules, task, loop
        self.historical = historical
        self._said: AllScores | None = None  # of validation, which the trees say once

    def choose(
        self,
        scored: Callable[[LinkScorer], AllScores],
        told: Callable[[AllScores], LinkReport],
        figure: Callable[[LinkReport], float],
    ) -> LinkReport:
        """See `training.tasks.link.Beside`."""
        scorer = self.task.scorer("val")
        assert isinstance(scorer, HistoryScorer | MemoryScorer)
        self._set(0.0)
        scorer.answer = plain
        network = scored(scorer)
        if self._said is None:
            self._said = scored(_LogOdds(self.trees, _features(scorer))) if self._grown(_features(scorer)) else {}
        found = [(0.0, told(_joined(network, network, 0.0)))]
        if self._said:
            found += [(share, told(_joined(network, self._said, share))) for share in SHARES if share]
        share, best = max(found, key=lambda one: figure(one[1]))
        self._set(share)
        return best

    def tell(self) -> None:
        """Say whose a score is."""
        if self.trees.kept:
            share = self.share
            note(self.loop, f"note: of a score's logit {share:.0%} are the trees' beside the head (model.pair_trees)")

    @property
    def share(self) -> float:
        """See `hopstate.training.tasks.link.Beside`."""
        return float(self.joined.share) if self.trees.kept else 0.0

    def _set(self, share: float) -> None:
        self.joined.share.fill_(share)

    def _grown(self, whole: PairFeatures) -> bool:
        """Return whether there are trees; where there were none, and enough events, they are grown."""
        task, begin = self.task, time.perf_counter()
        if not self.trees.kept and len(task.stream.additions(task.split.train)) >= LEAST:
            train = _features(task.scorer("train"))
            drawn = training_pairs(task.stream, task.split, train, seed=self.loop.seed, most=GROWN)
            judged = validation_pairs(task.stream, task.split, whole, most=JUDGED)
            growths = [Growth(model=self.trees, training=drawn, validation=judged, historical=self.historical)]
            if isinstance(self.joined.ranker, PairTrees):
                further = random_pairs(task.stream, task.split, train, seed=self.loop.seed, most=GROWN, each=FURTHER)
                growths.append(growths[0].beside_random(self.joined.ranker, further))
                del further  # a copy is in the growth
            grow(*growths, seed=self.loop.seed, without=GROWING)
            spent = time.perf_counter() - begin
            if spent > BATCH_SECONDS:
                note(self.loop, f"the trees beside the head are grown, in {duration(spent)}")
        return self.trees.kept > 0


class _LogOdds(PairTreesScorer):
    """The trees' log-odds as scores."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) log-odds of pairs src (Q,), dst (Q,) at times t (Q,)."""
        return self.log_odds(src, dst, t)


def _features(scorer: object) -> PairFeatures:
    """Return what a scorer reads of pairs' histories."""
    told = scorer.inputs.told if isinstance(scorer, MemoryScorer) else scorer.tokenizer.features  # type: ignore[attr-defined]
    assert isinstance(told, PairFeatures)
    return told


def _joined(network: AllScores, trees: AllScores, share: float) -> dict[tuple[str, str], LinkScores]:
    """Return probabilities of joined logits, as the model gives them with that share."""

    def chance(own: np.ndarray, other: np.ndarray) -> np.ndarray:
        z = torch.from_numpy(own)
        return chances(mean_of_logits(z, torch.from_numpy(other), share) if share else z).numpy()

    return {
        key: LinkScores(
            rows=own.rows,
            positive=chance(own.positive, trees[key].positive),
            negative=chance(own.negative, trees[key].negative),
            offsets=own.offsets,
        )
        for key, own in network.items()
    }


def tree_features(context: Context, grown: bool) -> int:
    """Return how many features trees beside a head read, see `features_known`; 0 where there are none."""
    return features_known(context, name="tree_features") if grown else 0


def with_trees(task: LinkTask, loop: LoopConfig, context: Context, mixture: Mixture) -> LinkTask:
    """Return a task, which lets validation choose the share of the trees beside its head where it is to be trained.

    Args:
        task, loop, context: of the run.
        mixture: of its training negatives: the trees learn from as large a share of pairs that met, or `LEAST_MET`.
    """
    heads = (layer for layer in task.model.modules() if isinstance(layer, PairHistory))
    joined = next((head.joined for head in heads), None)
    if joined is None:
        return task
    assert isinstance(joined.rules, PairTrees)
    if ranks_by_trees(context, task.evaluation.raise_met):
        read = joined.rules.num_features
        joined.ranker = PairTrees(TREES, read, np.empty(0, np.int64))
        task.ranker = TreeRanker(
            joined.ranker, lambda split: _features(task.scorer(split)), partial(_of_past, task, read)
        )
    if context.trained is None:
        task.beside = TreesBeside(joined, task, loop, max(mixture.met, LEAST_MET) if mixture.met else 0.0)
    return task


def _of_past(task: LinkTask, read: int, past: Past) -> PairFeatures:
    """Return the features that trees read over a past, so many."""
    assert task.clock is not None
    return PairFeatures(NeighborStore(0), task.stream, task.clock, np.empty(0, np.int64), read).over(past)


__all__ = ["SHARES", "TreesBeside", "tree_features", "with_trees"]
