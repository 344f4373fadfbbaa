"""Shared code of methods with a node memory: settings, event queries and the link-prediction task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.errors import check_range
from hopstate.layers.decoders import PairHistory
from hopstate.methods.method import Context
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.methods.shared.link import (
    LearnedLinkRun,
    clock_of,
    evaluation_negatives,
    fit_feature_scale,
    pair_features,
)
from hopstate.streaming.memory_scorer import ActiveEvents
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.link import LinkEvaluation, LinkTask
from hopstate.training.tasks.memory import DrawnT, LinkObjective, MemoryWindows, Objective

BATCH = 128  # table 9 of CTDG-SSM, arXiv:2606.04672


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of node-memory updates.

    Args:
        num_neighbors: number of recent events of each endpoint that are used as context, if the model's order is above
            0.
        batch_size: events per batch. The whole batch is scored before it updates the memory.
        tbptt_window: batches of truncated backpropagation through time, which is also the number of batches per
            optimizer step.
        cut_ties: split events with equal timestamps into batches of at most batch_size. All of them are scored before
            any updates the memory.
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
    """Base configuration of memory models for temporal link prediction.

    Args:
        batch_size: events per batch. The whole batch is scored before it updates the memory.
        evaluation: protocol and negatives. Its batch_size defaults to that of the run.
    """

    batch_size: int = BATCH
    evaluation: LinkEvaluation = field(default_factory=lambda: LinkEvaluation(batch_size=BATCH))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation.batch_size == BATCH:  # the default: update the memory as in training
            object.__setattr__(self, "evaluation", replace(self.evaluation, batch_size=self.batch_size))


@dataclass(frozen=True, kw_only=True)
class MemoryNodeRun(EventNodeRun, MemorySettings):
    """Base configuration of memory models for node classification."""

    def __post_init__(self) -> None:
        super().__post_init__()
        MemorySettings.__post_init__(self)


def memory_source(
    stream: EventStream,
    config: MemoryLinkRun | MemoryNodeRun,
    context: Context,
    model: MemoryModel,
    objective: Callable[[EventSplit, ActiveEvents], Objective[DrawnT]],
    tie_batch_size: int,
) -> tuple[MemoryWindows[DrawnT], Clock]:
    """Return the training windows of a memory model, and its time normalization. Training sees training events only.

    Fits the feature scale of a pair-history head.

    Args:
        stream, config, context: as in `Method.build`.
        model: the model.
        objective: (split, queries over the training events) → queries and loss of a batch.
        tie_batch_size: as in `MemoryWindows`.
    """
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.time_scale, context)
    head = next((layer for layer in model.modules() if isinstance(layer, PairHistory)), None)

    def inputs(events: EventStream, rows: np.ndarray | None = None) -> ActiveEvents:
        store = NeighborStore.from_stream(events, rows)
        features = None if head is None else pair_features(store, events, clock)
        count = config.num_neighbors
        return ActiveEvents(model, events, store, num_neighbors=count, clock=clock, pair_features=features)

    train_inputs = inputs(stream, split.train)
    if head is not None and train_inputs.pair_features is not None and context.trained is None:
        fit_feature_scale(head, train_inputs.pair_features, stream, split, config.loop.seed)
    windows = MemoryWindows(
        model,
        stream,
        split,
        objective=objective(split, train_inputs),
        train_inputs=train_inputs,
        inputs=inputs,
        batch_size=config.batch_size,
        tie_batch_size=tie_batch_size,
        tbptt_window=config.tbptt_window,
        cut_ties=config.cut_ties,
    )
    return windows, clock


def memory_task(stream: EventStream, config: MemoryLinkRun, context: Context, model: MemoryModel) -> LinkTask:
    """Return the link-prediction task of a memory model. Training sees training events only."""
    objective = partial(
        LinkObjective, stream, batch_size=config.batch_size, seed=config.loop.seed, mixture=config.negatives
    )
    source, clock = memory_source(stream, config, context, model, objective, config.evaluation.batch_size)
    negatives = evaluation_negatives(stream, source.split, config, context)
    return LinkTask(source, evaluation=config.evaluation, negatives=negatives, clock=clock)
