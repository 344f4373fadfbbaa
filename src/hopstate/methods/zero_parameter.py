"""Link predictors without parameters, the floor that every model must stand above: recency and EdgeBank.

Source: Poursafaei et al., NeurIPS 2022, arXiv:2207.10128 (EdgeBank).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.evaluation.link import LinkScorer
from hopstate.methods.base import Context, Method
from hopstate.methods.link import EventReadOptions, LinkSplitConfig, kept_negatives
from hopstate.models.baselines.edgebank import EdgeBank
from hopstate.models.baselines.recency import Recency
from hopstate.training.link_task import LinkEvaluation, ScorerLinkTask
from hopstate.training.loop import LoopConfig


@dataclass(frozen=True, kw_only=True)
class RecencyRun:
    """Configuration of the recency score: minus the logarithm of the time since the pair last met.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`).
        read: how a file is read.
        split: which events are for training, validation and test.
        directed: count only meetings in the direction asked for.
        evaluation: protocol and negatives.
        loop: only its seed and device matter, nothing is trained.
    """

    data: str
    read: EventReadOptions = field(default_factory=EventReadOptions)
    split: LinkSplitConfig = field(default_factory=LinkSplitConfig)
    directed: bool = False
    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))

    def scorer(self, stream: EventStream) -> LinkScorer:
        """Return the scorer over a stream."""
        return Recency(NeighborStore.from_stream(stream), directed=self.directed)


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

    def scorer(self, stream: EventStream) -> LinkScorer:
        """Return the scorer over a stream."""
        return EdgeBank(stream.num_nodes, self.model)


def build(stream: EventStream, config: RecencyRun | EdgeBankRun, context: Context) -> ScorerLinkTask:
    """Return the task of evaluating a scorer on stream."""
    split = config.split.of(stream)
    return ScorerLinkTask(
        config.scorer,
        stream,
        split,
        evaluation=config.evaluation,
        negatives=kept_negatives(stream, split, config.evaluation, context.run / "negatives"),
    )


METHODS = {
    "recency": Method("recency", RecencyRun, build, "events", "how lately the pair met; nothing to train", "baseline"),
    "edgebank": Method(
        "edgebank", EdgeBankRun, build, "events", "whether the pair has met; nothing to train", "arXiv:2207.10128"
    ),
}
