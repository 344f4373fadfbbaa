"""Boosted trees as a scorer of pairs, and what each feature adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from hopstate.data.events import EventBatch
from hopstate.data.stream_state import StreamState
from hopstate.methods.pair_trees.trees import Forest, PairTrees
from hopstate.tokens.pair_features import PairFeatures


class PairTreesScorer:
    """Scores pairs by trees over their features; holds no memory but the features' store.

    Args:
        model: the trees; they are read once.
        features: over the events that are known.
    """

    by_time = False
    observes = False

    def __init__(self, model: PairTrees, features: PairFeatures) -> None:
        self.model, self.features = model, features
        self.forest: Forest = model.forest()

    def over(self, past: StreamState) -> PairTreesScorer:
        """Return the same over all events of a past."""
        made = copy(self)
        made.features = self.features.over(past)
        return made

    def reset(self) -> None:
        """Nothing to forget: what is visible follows from the query time."""

    def observe(self, batch: EventBatch) -> None:
        """Nothing to do: the store holds the events."""

    def state(self) -> None:
        """Return None: the store holds the events."""

    def restore(self, state: None) -> None:
        """Nothing to do."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) sigmoids of the log-odds of pairs src (Q,), dst (Q,) at times t (Q,)."""
        from scipy.special import expit

        return expit(self.log_odds(src, dst, t))

    def log_odds(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) log-odds of pairs src (Q,), dst (Q,) at times t (Q,)."""
        return self.forest.scores(self.features.pairs(src, dst, t))

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray
    ) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """Return the features' names, and what they are and add to the logits of pairs; see `ExplainsPairs`."""
        x = self.features.pairs(src, dst, t)
        return self.features.names, x, self.forest.contributions(x)[0]
