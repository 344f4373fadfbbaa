"""How good a live run is: of events as they come, what their scores would have been among others that might have come.

Some events of a commit are judged by what was known before the commit: each beside targets drawn at random and beside
earlier partners of its source, by the model and by recency. The last of them make a window. Nothing of this moves the
model's state. Judging takes at most a twentieth of the time; which commits are judged so depends on the machine.

An alarm is raised where the model is below recency over a full window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from hopstate.data.events import ADD, EventBatch, not_none
from hopstate.data.stream_state import StreamState
from hopstate.evaluation.calibration import calibration
from hopstate.evaluation.metrics import average_precision
from hopstate.evaluation.ranking import mrr, ranks
from hopstate.methods.heuristics.method import Recency
from hopstate.random import named_rng
from hopstate.runs.queries import load_calibration
from hopstate.serving.live import LiveRun
from hopstate.streaming.live import PairQueries
from hopstate.streaming.slices import SliceSizer, Steps, map_sliced, run_to_completion

WINDOW = 1_000  # latest evaluated events in the window
NUM_NEGATIVES = 10  # negatives of each strategy
_EACH = 4  # events of a commit
_OFTEN = 50  # evaluated events between two updates of the metrics
_POOL = 10_000  # events that targets are drawn from
_SHARE = 0.02
KINDS = ("random", "historical")


@dataclass(frozen=True)
class Alarm:
    """Something to look at."""

    position: int  # of the event in the log after which it was raised
    text: str  # a sentence


class Quality:
    """A window over the last events of a run, which were judged as they came.

    share: of the time, for judging; 1 judges every commit.
    alarms: the last ten; on_alarm is called with each.
    num_evaluated: events so far.
    metrics: what `compute_metrics` returned a few events ago.
    """

    def __init__(
        self,
        live: LiveRun,
        *,
        share: float = _SHARE,
        window: int = WINDOW,
        clock: Callable[[], float] = time.perf_counter,
        on_alarm: Callable[[Alarm], None] = lambda alarm: None,
    ) -> None:
        self.live, self.share, self.clock, self.on_alarm = live, share, clock, on_alarm
        self.alarms: deque[Alarm] = deque(maxlen=10)
        self.num_evaluated, self._next, self._below = 0, -np.inf, dict.fromkeys(KINDS, False)
        self._curve = load_calibration(live.run, live.task)
        # each (2, 1 + 2 NUM_NEGATIVES): the model's scores, recency's
        self._window: deque[np.ndarray] = deque(maxlen=window)
        self._pace = SliceSizer()
        self.metrics: dict[str, dict[str, float]] = {}

    def update(self, before: StreamState) -> None:
        """Evaluate some of the events after a state, if it is time to."""
        run_to_completion(self.update_sliced(before))

    def update_sliced(self, before: StreamState) -> Steps[None]:
        """Evaluate some of the events after a state, in slices."""
        start = begin = self.clock()
        if begin < self._next or len(self.live.past) == len(before) or not len(before):
            return
        before_count, took = self.num_evaluated, 0.0
        for _ in self._evaluate(before):
            took += self.clock() - begin
            yield
            begin = self.clock()
        if before_count // _OFTEN != self.num_evaluated // _OFTEN or not self.metrics:
            self.metrics = self.compute_metrics() if self._window else {}
            self._check_baseline()
        took += self.clock() - begin
        self._next = start + took / self.share

    def _evaluate(self, before: StreamState) -> Steps[None]:
        first = len(before)
        events = self.live.past.events(first, min(first + _EACH, len(self.live.past)))
        new = events.take(np.flatnonzero(np.ones(len(events), bool) if events.kind is None else events.kind == ADD))
        if not len(new):
            return
        rng = named_rng(0, "judged", first)
        others = np.concatenate([self._random(before, new, rng), self._partners(before, new, rng)], 1)
        targets, known = np.concatenate([new.dst[:, None], others], 1), before.num_nodes
        wider = replace(before, num_nodes=known + 2, node_ids=None)
        queries, recency = PairQueries(self.live.task, wider), Recency(wider.store(), relations=wider.relations)
        for u, row, t, *own in zip(new.src, targets, new.t, *not_none(new.relation), strict=True):
            valid = row >= 0
            v = np.where(row[valid] < known, row[valid], known + 1)  # such as were not met
            ends = np.full(len(v), min(u, known)), v, np.full(len(v), t), *(one.repeat(len(v)) for one in own)
            found = np.full((2, len(row)), np.nan)
            found[0][valid] = yield from map_sliced(partial(_scored, queries, ends), len(v), self._pace)
            found[1][valid] = recency.score(*ends)
            self._count(found)
            yield

    def _count(self, found: np.ndarray) -> None:
        self.num_evaluated += 1
        self._window.append(found)

    def _random(self, before: StreamState, new: EventBatch, rng: np.random.Generator) -> np.ndarray:
        pool = np.unique(before.events(max(0, len(before) - _POOL)).dst)
        drawn = rng.choice(pool, (len(new), NUM_NEGATIVES))
        return np.where(drawn == new.dst[:, None], -1, drawn)

    def _partners(self, before: StreamState, new: EventBatch, rng: np.random.Generator) -> np.ndarray:
        found = np.full((len(new), NUM_NEGATIVES), -1, np.int64)
        met = np.flatnonzero(new.src < before.num_nodes)
        last = before.store().last(new.src[met], new.t[met], 5 * NUM_NEGATIVES)
        for i, row in enumerate(met.tolist()):  # a few events
            partners = np.unique(last.nodes[last.offsets[i] : last.offsets[i + 1]])
            partners = rng.permutation(partners[partners != new.dst[row]])[:NUM_NEGATIVES]
            found[row, : len(partners)] = partners
        return found

    def _check_baseline(self) -> None:
        if len(self._window) < (self._window.maxlen or 0):
            return
        for kind, row in self.metrics.items():
            below = row["average_precision"] < row["recency_average_precision"]
            if below and not self._below[kind]:
                self.alarm(
                    f"below recency among {kind} targets: average precision {row['average_precision']:.3f} against "
                    f"{row['recency_average_precision']:.3f} over the last {len(self._window):,} events judged"
                )
            self._below[kind] = below

    def alarm(self, text: str) -> None:
        self.alarms.append(Alarm(self.live.position, text))
        self.on_alarm(self.alarms[-1])

    def mean_score(self) -> float | None:
        """Return the mean score of the window's events, None without any."""
        return float(np.mean([row[0, 0] for row in self._window])) if self._window else None

    def compute_metrics(self) -> dict[str, dict[str, float]]:
        """Return average precision and mean reciprocal rank by kind of other targets, of the model and of recency.

        Average precision has one other target beside each event, pooled over the window; ranks have all of the kind.
        """
        window = np.stack(self._window)
        found = {}
        for k, kind in enumerate(KINDS):
            others = window[:, :, 1 + k * NUM_NEGATIVES : 1 + (k + 1) * NUM_NEGATIVES]
            there = ~np.isnan(others[:, 0])
            some = there.any(1)
            if not some.any():
                continue
            row: dict[str, float] = {"events": int(some.sum())}
            at = there[some].argmax(1)
            y, offsets = np.repeat([1, 0], len(at)), np.concatenate([[0], np.cumsum(there[some].sum(1))])
            pairs = [
                np.concatenate([own, rest[np.arange(len(at)), at]])
                for own, rest in zip(window[some, :, 0].T, others[some].swapaxes(0, 1), strict=True)
            ]
            for i, name in enumerate(("", "recency_")):
                row[f"{name}average_precision"] = average_precision(y, pairs[i])
                row[f"{name}mrr"] = mrr(ranks(window[some, i, 0], others[some, i][there[some]], offsets))
            found[kind] = row | self._calibrated(y, pairs[0])
        return found

    def _calibrated(self, y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
        if self._curve is None:
            return {}
        found = calibration(y, self._curve(scores))
        return {"ece": found.ece, "brier": found.brier}


def _scored(queries: PairQueries, ends: tuple[np.ndarray, ...], part: slice) -> np.ndarray:
    with torch.no_grad():
        return queries.scores(*(column[part] for column in ends))
