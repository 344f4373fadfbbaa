"""How trees are grown: from training events and pairs that did not meet, chosen and calibrated on validation.

Each training event stands beside a random pair and one that met before (both drawn as in evaluation, the past one from
what is strictly earlier), weighing 1 - w and w. Features of training see training events alone, strictly before each.
Validation, which sees all that is strictly earlier, chooses how many trees are kept: the mean average precision over
random, historical and inductive pairs, over all events and over those with new nodes (`mean_over_kinds`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError, DataError, HopstateError
from hopstate.evaluation.metrics import average_precision, mean_over_kinds
from hopstate.io.scratch import let_go
from hopstate.methods.pair_trees.bins import BINNED, Bins
from hopstate.methods.pair_trees.trees import PairTrees, platt
from hopstate.random import named_rng
from hopstate.sampling.negative_sets import Negatives, distinct_sets
from hopstate.sampling.negatives import STRATEGIES, draw_negatives
from hopstate.tokens.pair_features import PairFeatures

STAGE = 10  # trees between two looks at validation
SMALL = 20  # leaves that few pairs may at least be shared out to
SURE = 20  # values expected among them, of which all are missed once in 5e8
FURTHER = 2  # random pairs beside a training event, of trees beside these alone
BLOCK = 4_096  # rows that are turned at once
CHECKED = 256  # training pairs on which our scores are held to scikit-learn's


class PairReader(Protocol):
    """What makes features of pairs."""

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, F) float32 features of pairs u (Q,), v (Q,) at times t (Q,)."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairs:
    """Features of events and of pairs that did not meet.

    Args:
        events: (P, F) features of what happened.
        others: by (split, strategy), (P', F) features of what did not.
        own_event: by (split, strategy), (P',) bool, which of them are the very pair of their event.
    """

    events: dict[str, np.ndarray]
    others: dict[tuple[str, str], np.ndarray]
    own_event: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)


def training_pairs(
    stream: EventStream, split: EventSplit, features: PairReader, *, seed: int, most: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return features of the latest `most` training events (P, F), and of as many random and historical pairs.

    Historical pairs are missing where so few pairs met that none can be drawn.

    Raises:
        ConfigError: there are no training events.
    """
    rows = stream.additions(split.train)
    if not len(rows):
        raise ConfigError("there is nothing to grow trees from: the training split is empty")
    last = slice(max(0, len(rows) - most), len(rows))
    drawn = {}  # before anything is looked up: of a large stream either takes gigabytes
    for strategy in ("random", "historical"):
        drawn_from = int(named_rng(seed, "negatives", strategy).integers(2**32))
        with suppress(DataError):
            how: dict[str, Any] = {"seed": drawn_from, "part": last, "avoid_own": True}
            drawn[strategy] = draw_negatives(stream, split, "train", strategy, **how)
    others = {s: features.pairs(found.src, found.dst, stream.t[rows[last]]) for s, found in drawn.items()}
    own = features.pairs(stream.src[rows[last]], stream.dst[rows[last]], stream.t[rows[last]])
    _let_go(stream, features)
    return own, others


def validation_pairs(stream: EventStream, splits: EventSplit, features: PairReader, *, most: int) -> Pairs:
    """Return features of validation's first `most` events, of all and of those with new nodes, and of other pairs."""
    rows = {split: stream.additions(splits.rows(split)) for split in ("val", "new_val")}
    few = slice(0, most)
    drawn: dict[tuple[str, str], Negatives] = {}  # all before anything is looked up, as in training
    for split in [split for split in rows if len(rows[split])]:
        for strategy in STRATEGIES:
            with suppress(DataError):
                drawn[split, strategy] = draw_negatives(stream, splits, split, strategy, part=few)
    drawn = distinct_sets(drawn)
    own_event = {key: found.own_event(stream) for key, found in drawn.items()}

    def read(split: str, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        return features.pairs(src, dst, stream.t[rows[split][few]])

    events = {k: read(k, stream.src[own[few]], stream.dst[own[few]]) for k, own in rows.items() if len(own)}
    others = {key: read(key[0], found.src, found.dst) for key, found in drawn.items()}
    _let_go(stream, features)
    return Pairs(events=events, others=others, own_event=own_event)


def _let_go(stream: EventStream, features: PairReader) -> None:
    """Give back what was read of a mapped stream and of its index: to draw pairs, or to grow trees, needs the room."""
    let_go(stream.src, stream.dst, stream.t)
    if isinstance(features, PairFeatures) and isinstance(features.store, NeighborStore):
        features.store.let_go()


def random_pairs(
    stream: EventStream, split: EventSplit, features: PairReader, *, seed: int, most: int, each: int = FURTHER
) -> np.ndarray:
    """Return features of further random pairs beside the latest `most` training events, so many beside each."""
    rows = stream.additions(split.train)
    last = slice(max(0, len(rows) - most), len(rows))
    found = []
    for i in range(each):
        drawn_from = int(named_rng(seed, "negatives", "further", i).integers(2**32))
        drawn = draw_negatives(stream, split, "train", "random", seed=drawn_from, part=last)
        found.append(features.pairs(drawn.src, drawn.dst, stream.t[rows[last]]))
    _let_go(stream, features)
    return np.concatenate(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Growth:
    """Trees that are to be grown.

    Args:
        model: takes them.
        training, validation: features, as `training_pairs` and `validation_pairs` return them.
        historical: w, the weight of a historical pair; a random one weighs 1 - w.
        how: how they grow, at most as many as the model holds; None: as its own settings say.
    """

    model: PairTrees
    training: tuple[np.ndarray, dict[str, np.ndarray]]
    validation: Pairs
    historical: float
    how: PairTrees.Config | None = None

    def beside_random(self, model: PairTrees, further: np.ndarray, how: PairTrees.Config | None = None) -> Growth:
        """Return the same beside random pairs alone, more of them, of another model."""
        events, others = self.training
        kept = {key: rows for key, rows in self.validation.others.items() if key[1] == "random"}
        training = events, {"random": np.concatenate([others["random"], further])}
        validation = replace(self.validation, others=kept)
        return Growth(model=model, training=training, validation=validation, historical=0.0, how=how)


def grow(*growths: Growth, seed: int, without: Sequence[int] = ()) -> list[list[dict[str, float]]]:
    """Grow trees, keep those that validation chooses, and calibrate them; the models then hold them.

    Args:
        growths: what is to be grown; side by side, where there are threads for it.
        seed: of what the trees draw.
        without: columns that no tree is to split on.

    Returns:
        Of each a row for each stage: trees so far, and validation's figures.
    """
    first, *rest = growths
    aside: list[Future[_Grown]] = []
    if torch.get_num_threads() > 1:
        aside, rest = [_aside(partial(_Grown, one, seed, without)) for one in rest], []
    # the first grows here, where it can be interrupted; nobody waits for those aside then
    grown = [_Grown(one, seed, without) for one in (first, *rest)] + [one.result() for one in aside]
    return [one.finish() for one in grown]


def _aside(work: Callable[[], _Grown]) -> Future[_Grown]:
    """Return what work gives in a thread that ends with the program, which an executor's would not."""
    told: Future[_Grown] = Future()

    def tell() -> None:
        try:
            told.set_result(work())
        except BaseException as error:
            told.set_exception(error)

    threading.Thread(target=tell, daemon=True).start()
    return told


class _Grown:
    """Trees as scikit-learn has grown them, and some of the rows that they were grown from, as they are and in bins."""

    def __init__(self, growth: Growth, seed: int, without: Sequence[int]) -> None:
        self.growth = growth
        x, y, weight = _table(growth.training, growth.historical)
        some = slice(None, None, max(1, len(x) // CHECKED))
        self.checked, self.width = x[some].copy(), x.shape[1]
        columns = _told_apart(x, weight, without)
        if not len(columns):  # trees of one leaf are grown, of a column all the same
            x, columns = np.zeros((len(x), 1), np.float32), np.zeros(1, np.int64)
        x = _by_column(x, columns)
        self.bins = Bins.put(x, weight, seed, columns)
        self.numbers = x[some].copy()
        self.grower = _grower(growth.how or growth.model.config, seed, len(x))
        with threadpool_limits(limits=1, user_api="openmp"):  # sums over rows would follow the number of threads
            self.grower.fit(x, y, weight)

    def finish(self) -> list[dict[str, float]]:
        """Have the model hold those that validation chooses."""
        model, grower, validation = self.growth.model, self.grower, self.growth.validation
        baseline = float(np.asarray(grower._baseline_prediction).reshape(-1)[0])
        model.put(grower._predictors, baseline, self.bins)
        _hold_to(model, grower, self.checked, self.numbers)
        rows = _stages(model, validation, self.width)
        best = max(rows, key=lambda row: row["mean_average_precision"])
        model.keep(int(best["trees"]))
        _calibrate(model, validation, self.growth.historical)
        return rows


def _told_apart(x: np.ndarray, weight: np.ndarray, without: Sequence[int]) -> np.ndarray:
    """Return which columns a tree may split on, rising; a column that says nothing takes as long as one that does.

    Left out are those that are alike in all rows, and of which scikit-learn may find no value among the rows that it
    bins by, which it refuses.

    Args:
        x: (n, F) training rows.
        weight: (n,) by which scikit-learn draws rows where there are more than it bins by.
        without: columns that no tree is to split on.
    """
    missing = np.isnan(x)
    alike = missing.all(0) | (x == x[0]).all(0)
    rarely = np.zeros(x.shape[1], bool)
    if len(x) > BINNED:
        rarely = np.array([weight[~column].sum() for column in missing.T]) / weight.sum() * BINNED < SURE
    told = ~(alike | rarely)
    told[list(without)] = False
    return np.flatnonzero(told)


def _by_column(x: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return columns (C,) of x (n, F), (n, C) float64, each in one piece: so they are binned, and grown from.

    scikit-learn reads float64, of which it then makes no copy of its own.
    """
    out = np.empty((len(columns), len(x)))
    for start in range(0, len(x), BLOCK):
        part = slice(start, start + BLOCK)
        out[:, part] = x[part, columns].T
    return out.T


def _table(training: tuple[np.ndarray, dict[str, np.ndarray]], historical: float) -> tuple[np.ndarray, ...]:
    """Return rows, outcomes and weights; what weighs nothing is left out."""
    events, others = training
    shares = {"random": 1 - historical, "historical": historical}
    if len(others) == 1:
        shares = dict.fromkeys(others, 1.0)
    drawn = {name: rows for name, rows in others.items() if shares[name] > 0}
    x = np.concatenate([events, *drawn.values()])
    y = np.repeat([1, 0], [len(events), len(x) - len(events)])
    weights = [np.full(len(rows), shares[name]) for name, rows in drawn.items()]
    return x, y, np.concatenate([np.ones(len(events)), *weights])


def _grower(c: PairTrees.Config, seed: int, rows: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        learning_rate=c.learning_rate,
        max_iter=c.max_trees,
        max_leaf_nodes=c.max_leaves,
        min_samples_leaf=max(1, min(c.min_leaf, rows // SMALL)),
        l2_regularization=c.l2,
        early_stopping=False,
        random_state=seed,
    )


def _hold_to(model: PairTrees, grower: Any, x: np.ndarray, numbers: np.ndarray) -> None:
    """Check that what was read from scikit-learn scores rows as it does, which knows the numbers of their bins."""
    if not np.array_equal(model.forest().scores(x), grower.decision_function(numbers)):
        raise HopstateError(
            "this version of scikit-learn keeps its trees in another way than hopstate reads; install the one of "
            "constraints.txt"
        )


def _stages(model: PairTrees, validation: Pairs, width: int) -> list[dict[str, float]]:
    """Return validation's figures as trees are added, each tree walked once."""
    keys: list[Any] = [*validation.events, *validation.others]
    parts = [*validation.events.values(), *validation.others.values()]
    ends = np.cumsum([len(part) for part in parts])
    at = {key: slice(end - len(part), end) for key, part, end in zip(keys, parts, ends)}
    x = np.concatenate([np.empty((0, width), np.float32), *parts])
    forest, rows, kept = model.forest(), [], model.kept
    scores = np.full(len(x), forest.baseline)
    for begin in range(0, kept, STAGE):
        end = min(begin + STAGE, kept)
        forest.add(x, scores, begin, end)
        rows.append({"trees": end} | _figures(validation, at, scores))
    return rows


def _figures(validation: Pairs, at: dict[Any, slice], scores: np.ndarray) -> dict[str, float]:
    """Return average precisions by strategy, of all events and of those with new nodes, and their mean."""
    found, events = {}, []
    for split, strategy in validation.others:
        own, other = scores[at[split]], scores[at[split, strategy]]
        kind = ("new_" if split == "new_val" else "") + ("" if strategy == "random" else f"{strategy}_")
        labels = np.repeat([1, 0], [len(own), len(other)])
        found[f"{kind}average_precision"] = average_precision(labels, np.concatenate([own, other]))
        events.append(len(own))
    return found | {"mean_average_precision": mean_over_kinds(list(found.values()), events) if found else 0.0}


def _calibrate(model: PairTrees, validation: Pairs, historical: float) -> None:
    """Fit slope and shift of the log-odds to validation's events and the mixture of pairs that training had."""
    events, forest = validation.events.get("val"), model.forest()
    training = {}
    for (split, strategy), rows in validation.others.items():
        kept = rows[~validation.own_event.get((split, strategy), np.zeros(len(rows), bool))]
        if split == "val" and strategy in ("random", "historical") and len(kept):
            training[strategy] = kept
    if events is None or not training:
        return
    x, y, weight = _table((events, training), historical)
    model.platt[:] = model.platt.new_tensor(platt(forest.scores(x), y, weight))
