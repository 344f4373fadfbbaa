"""Training of the trees: events and mixed negatives as rows of features, one gradient-boosted classifier.

Features of training see training events alone, strictly before each.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError, DataError
from hopstate.io.scratch import let_go
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.random import named_rng
from hopstate.sampling.negatives import draw_negatives
from hopstate.tokens.pair_features import PairFeatures

MIN_LEAVES = 20  # a leaf holds at most one of so many rows, however few there are
MIN_KNOWN = 1e-3  # share of rows in which a feature is known; scikit-learn finds no bins of one that is always missing


class PairReader(Protocol):
    """What makes features of pairs."""

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, F) float32 features of pairs u (Q,), v (Q,) at times t (Q,)."""
        ...


def training_table(
    stream: EventStream, split: EventSplit, features: PairReader, *, seed: int, most: int, random: int, historical: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (R, F) and outcomes (R,) of the latest training events and their negatives.

    Historical negatives are missing if so few pairs met that none can be drawn.

    Args:
        stream, split: the data.
        features: of pairs, by the training events.
        seed: of the negatives.
        most: training events at most.
        random, historical: negatives of each kind per event. A random one is never its own event.

    Raises:
        ConfigError: there are no training events.
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
                found = draw_negatives(stream, split, "train", kind, seed=draw, part=last, avoid_own=True)  # type: ignore[arg-type]
                pairs.append((found.src, found.dst))
    # all are drawn before any is looked up: of a large stream, either takes gigabytes
    x = np.concatenate([features.pairs(src, dst, stream.t[rows]) for src, dst in pairs])
    let_go(stream.src, stream.dst, stream.t)
    if isinstance(features, PairFeatures) and isinstance(features.store, NeighborStore):
        features.store.let_go()
    return x, np.repeat([1, 0], [len(rows), len(x) - len(rows)])


def fit_trees(model: PairTrees, x: np.ndarray, y: np.ndarray, *, seed: int, without: tuple[int, ...] = ()) -> None:
    """Fit trees, which the model then holds.

    Args:
        model: takes them; its settings say how many and how large.
        x: (R, F) features.
        y: (R,) outcomes, 0 or 1.
        seed: of scikit-learn.
        without: columns that no tree is to split on.
    """
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


__all__ = ["PairReader", "fit_trees", "training_table"]
