"""Trees grown beside random pairs alone: the order of candidates, and probabilities, beside scores.

A score says how a pair compares with a mixture of random pairs and of pairs that met, as one tells best who of those
that were met comes next. Among all others, which is what a ranking and a probability are among, trees that were grown
beside random pairs alone say more, and on pairs that met beside as many of those they say much less: two questions,
two forests over one set of features.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hopstate.data.past import Past
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.tokens.pair_features import PairFeatures

TREES = PairTrees.Config(max_trees=100, learning_rate=0.1)  # the tensors of runs hold so many
SOONER = replace(TREES, max_trees=70, learning_rate=0.15)  # how those of pair-trees grow, on validation as good
BLOCK = 65_536  # pairs whose features are held at once
NOTE = "ranker"  # in data.json


class TreeRanker:
    """Such trees over what is known; a `hopstate.training.tasks.ranker.Ranker`.

    Args:
        trees: empty until they are grown.
        features: of pairs by split, as `Ranker.of` has it.
        past: of pairs by the events of a past.
    """

    def __init__(
        self, trees: PairTrees, features: Callable[[str], PairFeatures], past: Callable[[Past], PairFeatures]
    ) -> None:
        self.trees, self._features, self._past = trees, features, past

    @property
    def there(self) -> bool:
        """See `Ranker`."""
        return self.trees.kept > 0

    def of(self, split: str) -> TreesOver:
        """See `Ranker`."""
        return TreesOver(self.trees, self._features(split))

    def over(self, past: Past) -> TreesOver:
        """See `Ranker`."""
        return TreesOver(self.trees, self._past(past))


class TreesOver:
    """Trees over what is known of pairs; a `hopstate.training.tasks.ranker.Rules`.

    Args:
        trees: as they are now.
        features: of pairs.
    """

    def __init__(self, trees: PairTrees, features: PairFeatures) -> None:
        self.forest, self.features = trees.forest(), features

    def __call__(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """See `Rules`."""
        found = np.empty(len(src))
        for start in range(0, len(src), BLOCK):
            part = slice(start, start + BLOCK)
            found[part] = self.forest.scores(self.features.pairs(src[part], dst[part], t[part]))
        return found

    def feature_shares(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """See `Rules`."""
        return self.forest.contributions(self.features.pairs(src, dst, t))[0]


def ranks_by_trees(context: Context, wanted: bool) -> bool:
    """Return whether a run has trees that rank, noted for its data.json: an earlier run has what it began with.

    Args:
        context: of the build.
        wanted: whether a run that begins is to have them.
    """
    known = context.begun()
    found = wanted if known is None else bool(known.get(NOTE, False))
    if context.trained is None:
        context.noted[NOTE] = found
    return found


__all__ = ["NOTE", "SOONER", "TREES", "TreeRanker", "TreesOver", "ranks_by_trees"]
