"""Link predictors without parameters, the floor that every model must stand above: recency and EdgeBank.

Source: Poursafaei et al., NeurIPS 2022, arXiv:2207.10128 (EdgeBank).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopstate.data.dates import Clock, GapUnit
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.recency import Recency
from hopstate.methods.method import Context, Method
from hopstate.methods.shared.event_run import EventReadOptions, EventRun, LinkSplitConfig
from hopstate.methods.shared.link import clock_of, kept_negatives
from hopstate.methods.shared.suit_events import suit_judged
from hopstate.streaming.protocols import LooksUp
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.events import Untrained
from hopstate.training.tasks.link import LinkEvaluation, LinkTask


@dataclass(frozen=True, kw_only=True)
class RecencyRun(EventRun):
    """Configuration of the recency score: minus the logarithm of the time since the pair last met.

    Args:
        directed: count only meetings in the direction asked for.
        evaluation: protocol and negatives.
        loop: only its seed and device matter, nothing is trained.
    """

    directed: bool = False
    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def scorer(self, stream: EventStream, clock: Clock) -> LooksUp:
        store = NeighborStore.from_stream(stream)
        return Recency(store, directed=self.directed, clock=clock.over(stream.time_unit))


@dataclass(frozen=True, kw_only=True)
class EdgeBankRun:
    """Configuration of EdgeBank: 1 for a pair in the memory, else 0.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`).
        read: how a file is read.
        split: which events are for training, validation and test.
        model: what the memory holds.
        evaluation: protocol and negatives.
        loop: only its seed and device matter, nothing is trained.
    """

    data: str
    read: EventReadOptions = field(default_factory=EventReadOptions)
    split: LinkSplitConfig = field(default_factory=LinkSplitConfig)
    model: EdgeBank.Config = field(default_factory=EdgeBank.Config)
    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def scorer(self, stream: EventStream, clock: Clock) -> LooksUp:
        """Return the scorer over a stream; it needs no clock."""
        return EdgeBank(stream.num_nodes, self.model, stream)


def build(stream: EventStream, config: RecencyRun | EdgeBankRun, context: Context) -> LinkTask:
    split = config.split.of(stream)
    unit: GapUnit = config.gap_unit if isinstance(config, RecencyRun) else "raw"
    clock = clock_of(stream, split, unit, context)
    return LinkTask(
        Untrained(lambda events: config.scorer(events, clock), stream, split),
        evaluation=config.evaluation,
        negatives=kept_negatives(stream, split, config, context),
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
