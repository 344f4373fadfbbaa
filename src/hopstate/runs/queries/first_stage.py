"""The first of two stages: a few candidates by a student of the model, for a model that takes long over each.

It is made when a ranking first has more candidates than it keeps, and put into the run folder. What it costs is told in
two ways: how many of the model's own best candidates it keeps, and of how many validation events it keeps the
destination, from what was known then (no more than the model itself would rank so high).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hopstate.data.clock import Clock
from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateError, HopstateWarning, StorageError
from hopstate.io.tensors import read_tensors, write_tensors
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.random import named_rng
from hopstate.runs.load import load_run
from hopstate.runs.queries.rule import Rule
from hopstate.runs.queries.student import MANY, TREES, Student, learned, places_of
from hopstate.streaming.slices import Pace, Steps, in_slices
from hopstate.tokens.pair_features import NAMES
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.runs.queries.session import Session

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


__all__ = ["FirstStage"]
