"""Link predictors without parameters, the floor that every model must stand above: recency and EdgeBank.

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
from hopstate.data.neighbor_store import Histories, NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.errors import refuse_idle
from hopstate.io.scratch import release_pages
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.method import Context, Floors, Method
from hopstate.methods.shared.link import LinkRun, clock_of, evaluation_negatives, suit_judged
from hopstate.sampling.negatives import Negatives
from hopstate.streaming.protocols import LooksUp, OnlyLooksUp
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.events import Untrained
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Task

NEVER = -100.0  # the score of a pair that never met; gaps are held to scores above it


class Recency(OnlyLooksUp):
    """Score a pair by how lately it met.

    Args:
        store: the events; it may hold the whole stream, since look-ups are strictly before the query time.
        directed: count only events from u to v.
        clock: what a gap of 1 is, in the unit of the store's times; None takes them as they stand.
    """

    def __init__(self, store: Histories, *, directed: bool = False, clock: Clock | None = None) -> None:
        self.store: Histories = store
        self.directed, self.clock = directed, clock or Clock()

    def over(self, past: StreamState) -> Recency:
        made = copy(self)
        made.store, made.clock = past.store(), self.clock.over(past.time_unit or "")
        return made

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        last, met = self.store.last_meeting(src, dst, t, directed=self.directed)
        return np.where(met, -self.clock.log_gaps(t, last, -NEVER), NEVER)

    def log_odds(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        return self.score(src, dst, t)


@dataclass(frozen=True, kw_only=True)
class RecencyRun(LinkRun):
    """Configuration of the recency score: minus the logarithm of the time since the pair last met.

    Args:
        directed: count only meetings in the direction asked for.
        loop: only its seed and device matter, nothing is trained.
    """

    directed: bool = False
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def scorer(self, stream: EventStream, clock: Clock) -> LooksUp:
        store = NeighborStore.from_stream(stream)
        return Recency(store, directed=self.directed, clock=clock.over(stream.time_unit))


@dataclass(frozen=True, kw_only=True)
class EdgeBankRun(LinkRun):
    """Configuration of EdgeBank: 1 for a pair in the memory, else 0.

    Args:
        model: what the memory holds.
        loop: only its seed and device matter, nothing is trained.
    """

    model: EdgeBank.Config = field(default_factory=EdgeBank.Config)
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def __post_init__(self) -> None:
        refuse_idle(self, gap_unit="EdgeBank compares times, and measures no gap")

    def scorer(self, stream: EventStream, clock: Clock) -> LooksUp:
        """Return the scorer over a stream; it needs no clock."""
        return EdgeBank(stream.num_nodes, self.model, stream)


def build(stream: EventStream, config: RecencyRun | EdgeBankRun, context: Context) -> LinkTask:
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.gap_unit, context)
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
        "how lately the pair met; nothing to train",
        "baseline",
        suit=suit_judged,
        automatic=("evaluation.choose",),
        export="it has no weights: a score is the time since the pair met, which is read from the past",
    ),
    "edgebank": Method(
        "edgebank",
        EdgeBankRun,
        build,
        "events",
        "whether the pair has met; nothing to train",
        "arXiv:2207.10128",
        suit=suit_judged,
        automatic=("evaluation.choose",),
        space={"model.memory": ["unlimited", "window", "threshold"], "model.window": ["proportion", "repeat"]},
        export="it has no weights: a score is whether the pair has met, which is read from the past",
    ),
}


def heuristic_floors(stream: EventStream, config: LinkRun, context: Context, task: Task[Any]) -> Floors:
    """Return test metrics of recency and EdgeBank on the run's split and negatives; arguments as in `node_floors`.

    Both look up in one index, and what the run has is taken: of a hundred million events each is most of a gigabyte.
    """
    if isinstance(task, LinkTask):
        split, negatives, store = task.split, task.negatives, task.source.index()
    else:
        split, store = config.split.of(stream), None
        negatives = evaluation_negatives(stream, split, config, context)
    store = NeighborStore.from_stream(stream) if store is None else store
    clock = _clock(stream, split, config, context, task).over(stream.time_unit)
    scorers: dict[str, LooksUp] = {
        "recency": Recency(store, clock=clock),
        "edgebank": EdgeBank(stream.num_nodes, stream=stream, whole=store),
    }
    found: Floors = {}
    for name, scorer in scorers.items():
        release_pages(
            stream.src, stream.dst, stream.t
        )  # of a mapped stream: what the run, and the floor before, have read
        store.release_pages()
        found[name] = _judged(scorer, stream, split, config, negatives)
    metric = next((name for name in found["recency"] if name.startswith("val_")), "")
    if metric.endswith(("average_precision", "roc_auc")):  # a negative an event
        found["chance"] = {metric: 0.5}
    return found


def _clock(stream: EventStream, split: EventSplit, config: LinkRun, context: Context, task: Task[Any]) -> Clock:
    usual = RecencyRun(data="").gap_unit
    known = task.clock if isinstance(task, LinkTask) else None
    if known is not None and config.gap_unit == usual:
        return known
    return clock_of(stream, split, usual, replace(context, trained=None))


def _judged(
    scorer: LooksUp,
    stream: EventStream,
    split: EventSplit,
    config: LinkRun,
    negatives: dict[tuple[str, str], Negatives],
) -> dict[str, float]:
    judge = LinkTask(Untrained(lambda _: scorer, stream, split), evaluation=config.evaluation, negatives=negatives)
    with torch.no_grad():
        return judge.evaluate("test") | {f"val_{judge.metric}": judge.evaluate("val")[judge.metric]}
