"""What methods with a node memory share: look-ups over a stream, windows of training batches, the task of links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.layers.decoders import PairHistory
from hopstate.methods.method import Context
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.methods.shared.link import LearnedLinkRun, clock_of, evaluation_negatives, fit_scale, pair_features
from hopstate.streaming.memory_scorer import ActiveEvents
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.memory import DrawnT, LinkQuestions, MemoryWindows, Questions


@dataclass(frozen=True, kw_only=True)
class MemoryInputs:
    """A memory model and its look-ups over a stream.

    Args:
        model: the model.
        split, clock: of the run.
        inputs: stream → look-ups over all of it.
        train_inputs: look-ups that see the training events alone.
    """

    model: MemoryModel
    split: EventSplit
    clock: Clock
    inputs: Callable[[EventStream], ActiveEvents]
    train_inputs: ActiveEvents

    @classmethod
    def of(
        cls,
        stream: EventStream,
        config: LearnedLinkRun | EventNodeRun,
        context: Context,
        model: MemoryModel,
        num_neighbors: int,
    ) -> MemoryInputs:
        """Return the look-ups of a model; a head that reads pair histories gets the scale of the training pairs."""
        split = config.split.of(stream)
        clock = clock_of(stream, split, config.gap_unit, context)
        head = next((layer for layer in model.modules() if isinstance(layer, PairHistory)), None)

        def inputs(events: EventStream, store: NeighborStore | None = None) -> ActiveEvents:
            store = NeighborStore.from_stream(events) if store is None else store
            features = None if head is None else pair_features(store, events, clock)
            return ActiveEvents(model, events, store, neighbors=num_neighbors, clock=clock, pair_features=features)

        known = inputs(stream, NeighborStore.from_stream(stream, split.train))
        if head is not None and known.pair_features is not None and context.trained is None:
            fit_scale(head, known.pair_features, stream, split, config.loop.seed)
        return cls(model=model, split=split, clock=clock, inputs=inputs, train_inputs=known)

    def windows(
        self,
        stream: EventStream,
        questions: Questions[DrawnT],
        *,
        batch_size: int,
        tie_batch_size: int,
        tbptt_window: int,
        cut_ties: bool,
    ) -> MemoryWindows[DrawnT]:
        """Return the windows of training batches; see `MemoryWindows` for the arguments."""
        return MemoryWindows(
            self.model,
            stream,
            self.split,
            questions=questions,
            train_inputs=self.train_inputs,
            inputs=self.inputs,
            batch_size=batch_size,
            tie_batch_size=tie_batch_size,
            tbptt_window=tbptt_window,
            cut_ties=cut_ties,
        )


def memory_task(
    stream: EventStream,
    config: LearnedLinkRun,
    context: Context,
    model: MemoryModel,
    *,
    num_neighbors: int = 1,
    tbptt_window: int = 1,
    cut_ties: bool = True,
) -> LinkTask:
    """Return the task of training a memory model on links; training looks training events up, evaluation all.

    Args:
        num_neighbors: most recent events of context per end of a batch's events, if `model.order` is above 0.
        tbptt_window, cut_ties: see `MemoryWindows`.
    """
    made = MemoryInputs.of(stream, config, context, model, num_neighbors)
    size, seed = config.batch_size, config.loop.seed
    questions = LinkQuestions(
        stream, made.split, made.train_inputs, batch_size=size, seed=seed, mixture=config.negatives
    )
    source = made.windows(
        stream,
        questions,
        batch_size=size,
        tie_batch_size=config.evaluation.batch_size,
        tbptt_window=tbptt_window,
        cut_ties=cut_ties,
    )
    negatives = evaluation_negatives(stream, made.split, config, context)
    return LinkTask(source, evaluation=config.evaluation, negatives=negatives, clock=made.clock)
