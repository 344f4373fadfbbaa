"""Recency and EdgeBank: link predictors without parameters that serve as baselines.

Source: Poursafaei et al., NeurIPS 2022, arXiv:2207.10128 (EdgeBank).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import EventRelations, Histories, NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import refuse_idle
from hopstate.io.scratch import release_pages
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.method import Baselines, Context, Method
from hopstate.methods.shared.link import LinkRun, auto_selection, clock_of, evaluation_negatives
from hopstate.sampling.negatives import Negatives
from hopstate.streaming.history_scorer import StatelessScorer
from hopstate.streaming.protocols import FollowsStream
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.events import Untrained
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Task

OTHER_RELATION = 1.0  # as if the time since the pair's last event were 3 times as long
NEVER = -100.0  # score of a new pair; other scores are clipped above it


class Recency(StatelessScorer):
    """Score a pair by the time since its last event.

    If events have relations, pairs without an event of the query's relation lose `OTHER_RELATION`. A new kind of event
    may follow another one, so that they still rank above pairs without a recent event.

    Args:
        store: events. It may hold the full stream, because queries only see events strictly before the query time.
        directed: count only events from u to v.
        clock: time normalization, in the unit of the store's times. None: none.
        relations: relations of the events, if they have some.
    """

    def __init__(
        self,
        store: Histories,
        *,
        directed: bool = False,
        clock: Clock | None = None,
        relations: EventRelations | None = None,
    ) -> None:
        self.store: Histories = store
        self.directed, self.clock, self.relations = directed, clock or Clock(), relations

    def over(self, past: StreamState) -> Recency:
        scorer = copy(self)
        scorer.store, scorer.clock = past.store(), self.clock.over(past.time_unit or "")
        scorer.relations = past.relations
        return scorer

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> np.ndarray:
        last, seen = self.store.last_meeting(src, dst, t, directed=self.directed)
        scores = np.where(seen, -self.clock.log_time_deltas(t, last, -NEVER), NEVER)
        if relation is None or self.relations is None:
            return scores
        _, typed = self.store.last_meeting(src, dst, t, self.directed, relation=relation, relations=self.relations)
        return np.where(seen & ~typed, np.maximum(scores - OTHER_RELATION, NEVER), scores)

    def log_odds(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> np.ndarray:
        return self.score(src, dst, t, relation)


@dataclass(frozen=True, kw_only=True)
class RecencyRun(LinkRun):
    """Configuration of the recency score: minus the logarithm of the time since the pair's last event.

    Args:
        directed: count only events from source to destination.
        loop: only its seed and device are used.
    """

    directed: bool = False
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def scorer(self, stream: EventStream, clock: Clock) -> FollowsStream:
        store = NeighborStore.from_stream(stream)
        clock, relations = clock.over(stream.time_unit), EventRelations.of(stream)
        return Recency(store, directed=self.directed, clock=clock, relations=relations)


@dataclass(frozen=True, kw_only=True)
class EdgeBankRun(LinkRun):
    """Configuration of EdgeBank: 1 for a pair in the memory, else 0.

    Args:
        model: content of the memory.
        loop: only its seed and device are used.
    """

    model: EdgeBank.Config = field(default_factory=EdgeBank.Config)
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def __post_init__(self) -> None:
        refuse_idle(self, time_scale="EdgeBank does not use time differences")

    def scorer(self, stream: EventStream, clock: Clock) -> FollowsStream:
        """Return the scorer over a stream; it needs no clock."""
        return EdgeBank(stream.num_nodes, self.model, stream)


def build(stream: EventStream, config: RecencyRun | EdgeBankRun, context: Context) -> LinkTask:
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.time_scale, context)
    return LinkTask(
        Untrained(lambda events: config.scorer(events, clock), stream, split),
        evaluation=config.evaluation,
        negatives=evaluation_negatives(stream, split, config, context),
        clock=clock,
    )


METHODS = {
    "recency": Method(
        "recency",
        RecencyRun,
        build,
        "events",
        "time since the pair's last event; nothing to train",
        "baseline",
        auto_config=auto_selection,
        automatic=("evaluation.select_by",),
        export="it has no weights: the score is the time since the pair's last event",
        relations=True,
    ),
    "edgebank": Method(
        "edgebank",
        EdgeBankRun,
        build,
        "events",
        "whether the pair has interacted; nothing to train",
        "arXiv:2207.10128",
        auto_config=auto_selection,
        automatic=("evaluation.select_by",),
        space={"model.memory": ["unlimited", "window", "threshold"], "model.window": ["proportion", "repeat"]},
        export="it has no weights: the score is whether the pair has interacted",
        relations=True,
    ),
}


def heuristic_baselines(stream: EventStream, config: LinkRun, context: Context, task: Task[Any]) -> Baselines:
    """Return test metrics of recency and EdgeBank on the run's split and negatives; arguments as in `graph_baselines`.

    Both share one history index, which is the run's own if it has one. An index of 100 million events takes almost 1
    GB.
    """
    if isinstance(task, LinkTask):
        split, negatives, store = task.split, task.negatives, task.source.index()
    else:
        split, store = config.split.of(stream), None
        negatives = evaluation_negatives(stream, split, config, context)
    store = NeighborStore.from_stream(stream) if store is None else store
    clock = _clock(stream, split, config, context, task).over(stream.time_unit)
    scorers: dict[str, FollowsStream] = {
        "recency": Recency(store, clock=clock, relations=EventRelations.of(stream)),
        "edgebank": EdgeBank(stream.num_nodes, stream=stream, index=store),
    }
    metrics_by_name: Baselines = {}
    for name, scorer in scorers.items():
        release_pages(stream.src, stream.dst, stream.t)  # release pages of a mapped stream
        store.release_pages()
        metrics_by_name[name] = _evaluate(scorer, stream, split, config, negatives)
    metric = next((name for name in metrics_by_name["recency"] if name.startswith("val_")), "")
    if metric.endswith(("average_precision", "roc_auc")):  # one negative per event
        metrics_by_name["chance"] = {metric: 0.5}
    return metrics_by_name


def _clock(stream: EventStream, split: EventSplit, config: LinkRun, context: Context, task: Task[Any]) -> Clock:
    default_unit = RecencyRun(data="").time_scale
    task_clock = task.clock if isinstance(task, LinkTask) else None
    if task_clock is not None and config.time_scale == default_unit:
        return task_clock
    return clock_of(stream, split, default_unit, replace(context, trained=None))


def _evaluate(
    scorer: FollowsStream,
    stream: EventStream,
    split: EventSplit,
    config: LinkRun,
    negatives: dict[tuple[str, str], Negatives],
) -> dict[str, float]:
    task = LinkTask(Untrained(lambda _: scorer, stream, split), evaluation=config.evaluation, negatives=negatives)
    with torch.no_grad():
        return task.evaluate("test") | {f"val_{task.metric}": task.evaluate("val")[task.metric]}
