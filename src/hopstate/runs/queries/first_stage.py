"""The first of two stages: a few candidates by a student of the model, for a model that takes long over each.

It is made when a ranking first has more candidates than it keeps, and put into the run folder. What it costs is told in
two ways: how many of the model's own best candidates it keeps, and of how many validation events it keeps the
destination, from what was known then (no more than the model itself would rank so high).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from hopstate.data.dates import Clock
from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateError, HopstateWarning, StorageError
from hopstate.io.tensors import read_tensors, write_tensors
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.random import named_rng
from hopstate.runs.load import load_run
from hopstate.runs.queries.pool import usual_candidates
from hopstate.runs.queries.rule import LATEST, Rule
from hopstate.streaming.slices import Pace, Steps, in_slices
from hopstate.tokens.pair_features import NAMES, PairFeatures
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.runs.queries.session import Session

if TYPE_CHECKING:
    from hopstate.runs.queries.session import Session


__all__ = ["FirstStage"]

SOURCES, EACH = 200, 20  # of latest events, and candidates of each, that the model scores for the student to learn from
NEAR = 200  # candidates, first by the rule, of which half of them are drawn
CHECKED, BEST, MOST = 5, 10, 2_000  # sources ranked by both, the model's best of each, candidates of each at most
BLOCK = 65_536  # pairs whose features are held at once
MANY = 20_000  # candidates that the rule orders
TREES = PairTrees.Config(num_trees=150, learning_rate=0.1, min_leaf=20)


@dataclass(frozen=True, eq=False)
class Student:
    """Trees that order candidates as a model does.

    Args:
        trees: what they are kept as.
        clock: what a gap of 1 is to their features.
        places: (n,) where the model's best candidates of sources that it did not learn from stand in its order, from 0.
    """

    trees: PairTrees
    clock: Clock
    places: np.ndarray

    def kept(self, count: int) -> float:
        """Return the share of the model's best candidates that are among the student's count first."""
        return float((self.places < count).mean()) if len(self.places) else 1.0

    def over(self, past: StreamState) -> Order:
        return Order(self.trees, features_of(past, self.clock))


class Order:
    """The order of candidates by a student.

    Args:
        trees: of the student.
        features: of pairs, over what is known.
    """

    def __init__(self, trees: PairTrees, features: PairFeatures) -> None:
        self.forest, self.features = trees.forest(), features

    def scores(self, source: int, candidates: np.ndarray, t: Any) -> np.ndarray:
        """Return (q,) float64 scores of candidates (q,) of a source at a time; rows of nodes that the past has."""
        found = np.empty(len(candidates))
        for start in range(0, len(candidates), BLOCK):
            some = candidates[start : start + BLOCK]
            rows = self.features.pairs(np.full(len(some), source), some, np.full(len(some), t))
            found[start : start + BLOCK] = self.forest.scores(rows)
        return found


def features_of(past: StreamState, clock: Clock) -> PairFeatures:
    """Return the features of pairs over a past, without those of events."""
    return PairFeatures(past.store(), past.events(0, 0), clock, np.empty(0, np.int64))


def learned(asked: Session, seed: int = 0) -> Student:
    """Return trees that learned from the model's order at the end of what it knows, and where its best then stand."""
    past, t = asked.queries.past, asked.now()

    def order_of(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return asked.queries.scores(u, v, np.full(len(u), t))

    clock = Clock.fit(past.t, past.time_unit or "")
    features, trees = features_of(past, clock), PairTrees(TREES, len(NAMES), np.empty(0, np.int64))
    drawn = _Drawn(past, t, named_rng(seed, "first stage"))
    checked, taught = drawn.sources()
    near = [drawn.near(u) for u in taught.tolist()]
    u, v = np.repeat(taught, [len(some) for some in near]), np.concatenate([np.empty(0, np.int64), *near])
    if len(u):
        _grow(trees, features.pairs(u, v, np.full(len(u), t)), order_of(u, v), seed)
    order = Order(trees, features)
    places = [np.empty(0, np.int64)]
    for source in checked.tolist():
        some = drawn.some(source, MOST)
        own = order_of(np.full(len(some), source), some)
        places.append(places_of(order.scores(source, some, t))[np.argsort(-own, kind="stable")[:BEST]])
    return Student(trees, clock, np.concatenate(places))


def places_of(scores: np.ndarray) -> np.ndarray:
    """Return (q,) where each of scores (q,) stands, best first from 0, equal ones in the order given."""
    found = np.empty(len(scores), np.int64)
    found[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return found


class _Drawn:
    """Sources and candidates at a time that a student learns from, and is held to."""

    def __init__(self, past: StreamState, t: Any, rng: np.random.Generator) -> None:
        self.past, self.t, self.rng = past, t, rng
        self.pool, self.rule = usual_candidates(past, t), Rule(past)

    def sources(self) -> tuple[np.ndarray, np.ndarray]:
        """Return sources of events drawn from the latest third, a few to be held to and others to learn from."""
        src = self.past.src
        drawn = src[self.rng.integers(len(src) * 2 // 3, len(src), SOURCES + CHECKED)]
        checked, taught = np.unique(drawn[:CHECKED]), drawn[CHECKED:]
        others = taught[~np.isin(taught, checked)]
        return checked, others if len(others) else taught

    def some(self, source: int, count: int) -> np.ndarray:
        """Return rising candidates of a source, so many at most: those that it met last, and others at random."""
        pool = self.pool[self.pool != source]
        if len(pool) <= count:
            return pool
        met = self.past.store().last(np.array([source]), np.array([self.t]), LATEST).nodes
        return np.union1d(met[np.isin(met, pool)], self.rng.choice(pool, count - LATEST, replace=False))

    def near(self, source: int) -> np.ndarray:
        pool = self.some(source, MANY)
        if not len(pool):
            return pool
        near = pool[self.rule.best(source, pool, self.t, NEAR)]
        return np.concatenate([self.rng.choice(pool, EACH // 2), self.rng.choice(near, EACH - EACH // 2)])


def _grow(trees: PairTrees, x: np.ndarray, scores: np.ndarray, seed: int) -> None:
    from scipy.stats import rankdata
    from sklearn.ensemble import HistGradientBoostingRegressor

    share = (rankdata(scores) - 0.5) / len(scores)
    x = x.astype(np.float64)
    x[:, np.isnan(x).all(0)] = 0  # scikit-learn refuses to bin what is always missing
    c = trees.config
    grower = HistGradientBoostingRegressor(
        learning_rate=c.learning_rate,
        max_iter=c.num_trees,
        max_leaf_nodes=c.max_leaves,
        min_samples_leaf=max(1, min(c.min_leaf, len(x) // c.min_leaf)),
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1, user_api="openmp"):  # sums over rows would follow the number of threads
        grower.fit(x, np.log(share / (1 - share)))
    trees.put(grower, np.arange(x.shape[1]))


NAME = "first_stage.safetensors"
SAMPLED = 300  # events of validation whose destination is looked for
_FORMAT = "hopstate-first-stage-2"
_NOBODY = np.iinfo(np.int64).max  # the place of who was no candidate


class FirstStage:
    """The first stage of a run.

    Args:
        asked: the run.
    """

    def __init__(self, asked: Session) -> None:
        self.past = asked.queries.past
        if "student" not in asked.found:
            asked.found["student"] = _kept(asked) or _made(asked)
        self.student, self.destinations = asked.found["student"]
        self.order, self.rule = self.student.over(self.past), Rule(self.past)
        self._pace: Pace = asked.found.setdefault("student's pace", Pace())

    def best(self, source: int, candidates: np.ndarray, t: Any, count: int) -> Steps[np.ndarray]:
        """Return rising places of the count first candidates (q,) of a source, in slices; all rows are of the past."""
        if len(candidates) <= count:
            return np.arange(len(candidates))
        some = self.rule.best(source, candidates, t, max(MANY, count))
        yield
        rows = candidates[some]
        scores = yield from in_slices(lambda part: self.order.scores(source, rows[part], t), len(rows), self._pace)
        return np.sort(some[np.argsort(-scores, kind="stable")[:count]])

    def keeps(self, count: int) -> float:
        """Return the share of the model's own best candidates that are among the count first."""
        return self.student.kept(count)

    def finds(self, count: int) -> float | None:
        """Return the share of validation events whose destination is among the count first, None without any."""
        return float((self.destinations < count).mean()) if len(self.destinations) else None


def _made(asked: Session) -> tuple[Student, np.ndarray]:
    student = learned(asked)
    try:
        with load_run(asked.folder.path, asked.own, method=asked.method) as (_, task):
            assert isinstance(task, LinkTask)
            found = _destinations(task.stream, task.split.val, student)
    except HopstateError as error:
        warnings.warn(f"validation events are not looked at: {error}", HopstateWarning, stacklevel=6)
        found = np.empty(0, np.int64)
    record = {"model": asked.key, "unit": student.clock.unit, "time_unit": student.clock.time_unit}
    tensors = {**student.trees.state_dict()}
    tensors |= {"places": torch.from_numpy(student.places), "destinations": torch.from_numpy(found)}
    try:
        write_tensors(asked.folder.path / NAME, tensors, record, format=_FORMAT)
    except StorageError as error:
        warnings.warn(f"the first stage is not kept: {error}", HopstateWarning, stacklevel=6)
    return student, found


def _kept(asked: Session) -> tuple[Student, np.ndarray] | None:
    try:
        tensors, record = read_tensors(asked.folder.path / NAME, format=_FORMAT, what="first stage")
        if record["model"] != asked.key:
            return None
        places, found = (tensors.pop(name).numpy().astype(np.int64) for name in ("places", "destinations"))
        trees = PairTrees(TREES, len(NAMES), np.empty(0, np.int64))
        trees.load_state_dict(tensors)
        clock = Clock(unit=float(record["unit"]), time_unit=str(record["time_unit"]))
        return Student(trees, clock, places), found
    except (HopstateError, RuntimeError, KeyError, TypeError, ValueError):
        return None


def _destinations(stream: EventStream, val: np.ndarray, student: Student, seed: int = 0) -> np.ndarray:
    """Return (E,) where destinations of validation events stand among those that were met before each."""
    past = StreamState().joined(stream, skip_features=True)[1]
    order, rule = student.over(past), Rule(past)
    added = stream.additions(np.arange(len(stream)))
    src, dst = stream.src[added], stream.dst[added]
    ends = dst if not len(np.intersect1d(src, dst)) else np.concatenate([src, dst])
    times = np.concatenate([stream.t[added]] * (len(ends) // max(len(dst), 1)))
    by_time = np.argsort(times, kind="stable")
    pool, first = np.unique(ends[by_time], return_index=True)
    since = times[by_time][first]  # when each candidate was first met
    rows = stream.additions(val)
    rows = np.sort(named_rng(seed, "first stage").permutation(rows)[:SAMPLED])
    found = np.full(len(rows), _NOBODY)
    for i, row in enumerate(rows.tolist()):
        u, v, t = int(stream.src[row]), int(stream.dst[row]), stream.t[row]
        here = pool[(since < t) & (pool != u)]
        some = here[rule.best(u, here, t, MANY)]
        at = np.searchsorted(some, v)
        if at < len(some) and some[at] == v:
            found[i] = places_of(order.scores(u, some, t))[at]
    return found
