"""What methods with a node memory share: settings, look-ups over a stream, the task of links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.errors import check_range
from hopstate.layers.decoders import PairHistory
from hopstate.methods.method import Context
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.methods.shared.link import LearnedLinkRun, clock_of, evaluation_negatives, fit_scale, pair_features
from hopstate.streaming.memory_scorer import ActiveEvents
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.link import LinkEvaluation, LinkTask
from hopstate.training.tasks.memory import DrawnT, LinkObjective, MemoryWindows, Objective

BATCH = 128  # table 9 of CTDG-SSM, arXiv:2606.04672


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """How events move a memory.

    Args:
        num_neighbors: most recent events of context per end of a batch's events, if the model's order is above 0.
        batch_size: events that are scored, then move the memory, together.
        tbptt_window: batches that gradients flow back through, and batches of an optimiser step.
        cut_ties: cut the events of one time into batches too, of at most batch_size; all of them are scored before any
            moves the memory.
    """

    num_neighbors: int = 10
    batch_size: int = BATCH
    tbptt_window: int = 4
    cut_ties: bool = True

    def __post_init__(self) -> None:
        check_range(minimum=1, num_neighbors=self.num_neighbors, batch_size=self.batch_size)
        check_range(minimum=1, tbptt_window=self.tbptt_window)


@dataclass(frozen=True, kw_only=True)
class MemoryLinkRun(LearnedLinkRun, MemorySettings):  # jsonargparse follows the types of first bases alone
    """What the configurations of memory models for links in time share.

    Args:
        batch_size: events that are scored, then move the memory, together.
        evaluation: protocol and negatives; its batch_size is that of the run unless you give another.
    """

    batch_size: int = BATCH
    evaluation: LinkEvaluation = field(default_factory=lambda: LinkEvaluation(batch_size=BATCH))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation.batch_size == BATCH:  # as it stands by default: the memory moves as it does in training
            object.__setattr__(self, "evaluation", replace(self.evaluation, batch_size=self.batch_size))


@dataclass(frozen=True, kw_only=True)
class MemoryNodeRun(EventNodeRun, MemorySettings):
    """What the configurations of memory models for nodes at events share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        MemorySettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class MemoryInputs:
    """A memory model and its look-ups over a stream.

    Args:
        model: the model.
        stream: the data.
        settings: how events move the memory.
        split, clock: of the run.
        inputs: stream → look-ups over all of it.
        train_inputs: look-ups that see the training events alone.
    """

    model: MemoryModel
    stream: EventStream
    settings: MemorySettings
    split: EventSplit
    clock: Clock
    inputs: Callable[[EventStream], ActiveEvents]
    train_inputs: ActiveEvents

    @classmethod
    def of(
        cls, stream: EventStream, config: MemoryLinkRun | MemoryNodeRun, context: Context, model: MemoryModel
    ) -> MemoryInputs:
        """Return the look-ups of a model; a head that reads pair histories gets the scale of the training pairs."""
        split = config.split.of(stream)
        clock = clock_of(stream, split, config.gap_unit, context)
        head = next((layer for layer in model.modules() if isinstance(layer, PairHistory)), None)
        count = config.num_neighbors

        def inputs(events: EventStream, store: NeighborStore | None = None) -> ActiveEvents:
            store = NeighborStore.from_stream(events) if store is None else store
            features = None if head is None else pair_features(store, events, clock)
            return ActiveEvents(model, events, store, neighbors=count, clock=clock, pair_features=features)

        known = inputs(stream, NeighborStore.from_stream(stream, split.train))
        if head is not None and known.pair_features is not None and context.trained is None:
            fit_scale(head, known.pair_features, stream, split, config.loop.seed)
        return cls(
            model=model,
            stream=stream,
            settings=config,
            split=split,
            clock=clock,
            inputs=inputs,
            train_inputs=known,
        )

    def windows(self, objective: Objective[DrawnT], tie_batch_size: int) -> MemoryWindows[DrawnT]:
        """Return the windows of training batches; tie_batch_size as of `MemoryWindows`."""
        return MemoryWindows(
            self.model,
            self.stream,
            self.split,
            objective=objective,
            train_inputs=self.train_inputs,
            inputs=self.inputs,
            batch_size=self.settings.batch_size,
            tie_batch_size=tie_batch_size,
            tbptt_window=self.settings.tbptt_window,
            cut_ties=self.settings.cut_ties,
        )


def memory_task(stream: EventStream, config: MemoryLinkRun, context: Context, model: MemoryModel) -> LinkTask:
    """Return the task of training a memory model on links; training looks training events up, evaluation all."""
    made = MemoryInputs.of(stream, config, context, model)
    objective = LinkObjective(
        stream,
        made.split,
        made.train_inputs,
        batch_size=config.batch_size,
        seed=config.loop.seed,
        mixture=config.negatives,
    )
    source = made.windows(objective, config.evaluation.batch_size)
    negatives = evaluation_negatives(stream, made.split, config, context)
    return LinkTask(source, evaluation=config.evaluation, negatives=negatives, clock=made.clock)
